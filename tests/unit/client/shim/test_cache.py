"""The generated library on disk: made once, whole, and made again when it is damaged."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lanGPU.client import shim
from lanGPU.driverapi.exports import export_names
from lanGPU.errors import ConfigError

pytestmark = pytest.mark.slow

# In other processes: the emulator's library cannot be loaded beside this one.
PLACES = "import ctypes, sys; l = ctypes.CDLL(sys.argv[1]); print(*(ctypes.cast(l[n], ctypes.c_void_p).value for n in sys.argv[2:]))"
CHILD = "from lanGPU.client import shim; print(shim.ensure().path, end='')"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def _loads(path: Path) -> bool:
    """In another process: what is wrong with a library may end it."""
    return not subprocess.run(
        [sys.executable, "-c", f"import ctypes; ctypes.CDLL({str(path)!r}).cuInit"], timeout=60, check=False
    ).returncode


def test_made_and_found_again(cache: Path) -> None:
    made = shim.ensure()
    assert made.path.is_relative_to(cache)
    assert set(made.symbols) == set(shim.entry_names())
    before = made.path.stat()
    assert shim.ensure() == made
    after = made.path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
    assert (made.path.parent / "libcuda.so").resolve() == made.path.resolve()


def test_offsets_are_those_of_the_file(cache: Path) -> None:
    made = shim.ensure()
    names = ["cuInit", "cuLaunchKernel", export_names()[-1]]
    printed = subprocess.run([sys.executable, "-c", PLACES, made.path, *names], stdout=subprocess.PIPE, timeout=60, check=True).stdout
    assert len({int(place) - made.symbols[name] for name, place in zip(names, printed.split(), strict=True)}) == 1


@pytest.mark.parametrize("name", [shim.SONAME, "symbols"])
@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "changed"])
def test_a_damaged_file_is_made_again(cache: Path, name: str, damage: str) -> None:
    made = shim.ensure()
    content = made.path.read_bytes()
    victim = made.path.parent / name
    data = victim.read_bytes()
    middle = len(data) // 2
    victim.unlink()
    if damage == "changed":
        victim.write_bytes(data[:middle] + bytes([data[middle] ^ 0xFF]) + data[middle + 1 :])
    elif damage != "gone":
        victim.write_bytes(data[:middle] if damage == "cut" else b"")
    assert shim.ensure() == made
    assert made.path.read_bytes() == content
    assert _loads(made.path)


def test_two_processes_at_once(cache: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(cache)}
    children = [subprocess.Popen([sys.executable, "-c", CHILD], env=environment, stdout=subprocess.PIPE) for _ in range(2)]
    paths = [child.communicate(timeout=60)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert paths[0] == paths[1]
    path = Path(os.fsdecode(paths[0]))
    assert sorted(os.listdir(path.parent)) == ["libcuda.so", "libcuda.so.1", "libnvidia-ml.so.1", "symbols"]
    assert _loads(path)


def test_no_place_to_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_bytes(b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(ConfigError, match="cannot be written"):
        shim.ensure()


@pytest.mark.parametrize(("system", "machine"), [("Linux", "aarch64"), ("Darwin", "x86_64")])
def test_another_machine_is_named(system: str, machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("platform.machine", lambda: machine)
    monkeypatch.setattr("platform.system", lambda: system)
    with pytest.raises(ConfigError, match=machine):
        shim.ensure()
