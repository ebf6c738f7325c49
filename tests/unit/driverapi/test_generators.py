"""The generated files are what their generators write."""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from lanGPU.driverapi.enums import ABSENT, ENUMS
from lanGPU.driverapi.signatures import HEADERS, SIGNATURES

TOOLS = Path(__file__).resolve().parents[3] / "tools"


def load(name: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(TOOLS))
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, name, module)
    spec.loader.exec_module(module)
    return module


def header() -> Path:
    try:
        files = importlib.metadata.files("nvidia-cuda-runtime") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("nvidia-cuda-runtime is not installed")
    return Path(str(next(f for f in files if f.name == "cuda.h").locate()))


@pytest.mark.parametrize("tool", ["gen_signatures", "gen_enums"])
def test_committed_files_match_the_installed_header(tool: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    header()
    module = load(tool, monkeypatch)
    assert module.main(["--check"]) == 0, capsys.readouterr().out


def test_the_page_matches_the_table(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert load("gen_driver_api_docs", monkeypatch).main(["--check"]) == 0, capsys.readouterr().out


def test_a_changed_header_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("gen_signatures", monkeypatch)
    source = header()
    for name in ("cuda.h", *module.TYPEDEF_FILES):
        if source.with_name(name).exists():
            text = source.with_name(name).read_text(encoding="utf-8")
            (tmp_path / name).write_text(
                text.replace("cuCtxGetFlags(unsigned int *flags)", "cuCtxGetFlags(size_t *flags)"), encoding="utf-8"
            )
    assert module.main(["--check", "--header", f"13={tmp_path / 'cuda.h'}"]) == 1
    with pytest.raises(SystemExit):
        module.main(["--check", "--header", f"12={tmp_path / 'cuda.h'}"])


def test_both_major_versions_are_covered() -> None:
    assert {version // 1000 for version in HEADERS} == {12, 13} == {version // 1000 for version in ABSENT}
    assert SIGNATURES["cuCtxSynchronize_v2"].headers == tuple(v for v in HEADERS if v >= 13000)
    assert SIGNATURES["cuMemAlloc_v2"].headers == HEADERS


def test_parameters_are_read_from_declarations(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("gen_signatures", monkeypatch)
    assert module.parse_params(" void ") == ()
    assert module.parse_params("const void **a, size_t  b, unsigned int *c, int d[3]") == (
        ("const void**", "a"),
        ("size_t", "b"),
        ("unsigned int*", "c"),
        ("int*", "d"),
    )


def test_enumerators_are_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    module = load("gen_enums", monkeypatch)
    assert module.evaluate("0x10u | (1 << 2)", {}) == 20
    assert module.evaluate("A + 1", {"A": 4}) == 5
    with pytest.raises(SystemExit):
        module.evaluate("f(1)", {})
    assert ENUMS["CUdevice_attribute"]["CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR"] == 75
    assert ENUMS["CUjit_option"]["CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"] == 6
