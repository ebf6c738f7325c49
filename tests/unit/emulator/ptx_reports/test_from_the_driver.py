"""What the emulated driver needs of the PTX engine."""

import ctypes
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lanGPU.emulator.ptx import AllocationMap, PtxSyntaxError, parse_module
from tests.helpers.device import ADD, BUMP, ROOT, SUM

RUN = """
import ctypes, sys
from lanGPU.emulator.ptx import AllocationMap, parse_module
from tests.helpers.device import BUMP
cell = ctypes.c_uint32(1)
known = AllocationMap()
known.add(ctypes.addressof(cell), 4)
kernel = parse_module(BUMP.encode()).compile("bump")
parameters = ctypes.addressof(cell).to_bytes(8, "little") + (2).to_bytes(4, "little")
assert kernel.launch((1, 1, 1), (1, 1, 1), 0, parameters, known) is None
print(cell.value)
"""


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin", **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_kernel_from_the_disk_cache_runs_in_a_new_process(tmp_path: Path) -> None:
    for _ in range(2):  # the second process finds the object of the first
        done = run(RUN, XDG_CACHE_HOME=str(tmp_path))
        assert done.stdout == "3\n", done.stderr


def test_launches_work_while_the_interpreter_ends(tmp_path: Path) -> None:
    """Objects free and launch in their finalizers; a grid of several blocks, so that all cores are wanted."""
    code = RUN.replace("(1, 1, 1), (1, 1, 1)", "(64, 1, 1), (1, 1, 1)") + (
        "class Last:\n    def __del__(self):\n        print(self.kernel.launch((64, 1, 1), (1, 1, 1), 0, parameters, known), flush=True)\n"
        "last = Last()\nlast.kernel = kernel\n"
    )
    done = run(code, XDG_CACHE_HOME=str(tmp_path))
    assert done.stdout.splitlines()[-1] == "None", done.stderr


ENDLESS = BUMP.replace("    add.u32 %r3", "AGAIN:\n    bra AGAIN;\n    add.u32 %r3")


def test_a_kernel_that_never_ends_does_not_keep_the_interpreter(tmp_path: Path) -> None:
    """The driver launches on a daemon thread; the engine's own threads must not be waited for at exit either."""
    code = RUN.replace("BUMP", "ENDLESS").replace("tests.helpers.device", "tests.unit.emulator.ptx_reports.test_from_the_driver")
    start = code.index("assert kernel.launch")
    code = code[:start] + (
        "import threading, time\n"
        "t = threading.Thread(target=kernel.launch, args=((64, 1, 1), (1, 1, 1), 0, parameters, known), daemon=True)\n"
        "t.start()\ntime.sleep(0.5)\nprint('left', flush=True)\n"
    )
    try:
        done = run(code, XDG_CACHE_HOME=str(tmp_path))
    except subprocess.TimeoutExpired as exc:
        pytest.fail(f"the interpreter did not end: {exc.stdout!r}")
    assert done.stdout == "left\n", done.stderr


def test_threads_have_the_name_that_may_stay() -> None:
    """tests/conftest.py lets threads named lanGPU-emulator… live as long as the process."""
    data = (ctypes.c_float * 4096)()
    known = AllocationMap()
    known.add(ctypes.addressof(data), ctypes.sizeof(data))
    kernel = parse_module(ADD.encode()).compile("add")
    address = ctypes.addressof(data).to_bytes(8, "little")
    before = set(threading.enumerate())
    assert kernel.launch((16, 1, 1), (256, 1, 1), 0, address * 3 + (4096).to_bytes(4, "little"), known) is None
    assert all(thread.name.startswith("lanGPU-emulator") for thread in set(threading.enumerate()) - before)


def test_shared_memory_is_known_before_compiling() -> None:
    """cuFuncGetAttribute asks for it, and launches are checked against it."""
    assert parse_module(SUM.encode()).kernels["sum"].shared_bytes == 256


def test_an_unknown_register_is_a_mistake_not_a_missing_feature() -> None:
    with pytest.raises(PtxSyntaxError, match="nowhere"):
        parse_module(BUMP.replace("%r3, %r2, %r1", "%r3, %r2, %nowhere").encode()).compile("bump")


def test_a_variable_with_an_offset_in_brackets() -> None:
    """tinygrad's PTX renderer writes ``mov.u64 %rd1, name[0];``."""
    text = SUM.replace("mov.u32 %r6, fixed;", "mov.u32 %r6, fixed[0];").replace("mov.u32 %r8, dynamic;", "mov.u32 %r8, dynamic[0];")
    parse_module(text.encode()).compile("sum")
