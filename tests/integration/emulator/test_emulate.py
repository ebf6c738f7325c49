"""`langpu emulate` as a process: exit codes, signals, and the ways in which programs find the device."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.device import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LANGPU: Final = [sys.executable, "-m", "lanGPU.cli.main", "emulate"]
DEVICE_NAME: Final = "lanGPU emulated device"
SHOW: Final = """
import ctypes
cuda = ctypes.CDLL("libcuda.so.1")
name = ctypes.create_string_buffer(100)
print(cuda.cuInit(0), cuda.cuDeviceGetName(name, 100, 0), name.value.decode())
"""
ENDLESS: Final = """
import ctypes, sys
from tests.helpers.device import *
cuda = Cuda("given")
cuda.cuInit(0)
context = cuda.cuCtxCreate(None, 0, cuda.cuDeviceGet(0))
stop = cuda.put(np.zeros(1, np.uint32))
endless = cuda.function(PTX_HEADER + '''
.visible .entry endless(.param .u64 flag)
{
    .reg .pred %p<2>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [flag];
AGAIN:
    ld.volatile.global.u32 %r1, [%rd1];
    setp.eq.u32 %p1, %r1, 0;
    @%p1 bra AGAIN;
    ret;
}''', "endless")
cuda.launch(endless, 1, 1, ((ctypes.c_uint64, stop),))
"""


def emulate(*program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LANGPU, *program],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_python_program_has_the_device_in_its_own_process() -> None:
    done = emulate(sys.executable, "-c", SHOW + "import os, sys\nprint('lanGPU.emulator.library' in sys.modules)\nsys.exit(7)")
    assert done.stdout.splitlines() == [f"0 0 {DEVICE_NAME}", "True"], done.stderr
    assert done.returncode == 7


def test_a_script_by_its_first_line(tmp_path: Path) -> None:
    script = tmp_path / "show"
    script.write_text(f"#!{sys.executable}\n{SHOW}")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    assert emulate(str(script)).stdout.strip() == f"0 0 {DEVICE_NAME}"


def test_a_module_and_a_child_process(tmp_path: Path) -> None:
    (tmp_path / "parent.py").write_text(f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {SHOW!r}], check=True)\n")
    done = emulate(sys.executable, "-m", "parent", PYTHONPATH=f"{tmp_path}{os.pathsep}{ROOT}")
    assert done.stdout.strip() == f"0 0 {DEVICE_NAME}", done.stderr


def test_lookups_find_the_library() -> None:
    code = """
import ctypes, ctypes.util
found = ctypes.util.find_library("cuda")
print(found, ctypes.CDLL(found).cuInit(0), ctypes.CDLL("libcuda.so").cuInit(0))
"""
    assert emulate(sys.executable, "-c", code).stdout.split() == ["libcuda.so.1", "0", "0"]


def test_another_sitecustomize_still_runs(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('customized')\n")
    done = emulate(sys.executable, "-c", "import sys, sitecustomize\nprint(sitecustomize.__file__)", PYTHONPATH=str(tmp_path))
    # Twice: in the langpu command's own Python, and in the program's.
    assert done.stdout.splitlines() == ["customized", "customized", str(tmp_path / "sitecustomize.py")]


def test_a_program_that_is_not_there() -> None:
    done = emulate("no-such-program-here")
    assert done.returncode == 127
    assert "no-such-program-here" in done.stderr


def test_a_program_that_may_not_be_executed(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("print()\n")
    done = emulate(str(script))
    assert done.returncode == 126
    assert "not executable" in done.stderr


def test_an_impossible_device_is_refused_before_the_program_starts() -> None:
    done = emulate(sys.executable, "-c", "print('started')", LANGPU_EMULATE_DEVICES="none")
    assert done.returncode == 64
    assert "LANGPU_EMULATE_DEVICES" in done.stderr
    assert done.stdout == ""


def test_devices_and_memory_from_the_environment() -> None:
    code = """
import ctypes
cuda, count, size = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(), ctypes.c_size_t()
cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(count)), cuda.cuDeviceTotalMem_v2(ctypes.byref(size), 1)
print(count.value, size.value)
"""
    done = emulate(sys.executable, "-c", code, LANGPU_EMULATE_DEVICES="2", LANGPU_EMULATE_MEMORY="50000000")
    assert done.stdout.split() == ["2", "50000000"], done.stderr


@pytest.mark.parametrize("then", ["cuda.cuCtxSynchronize()", "time.sleep(100)"], ids=["waiting in the driver", "not waiting"])
def test_ctrl_c_ends_a_program_whose_kernel_does_not_end(then: str) -> None:
    code = ENDLESS + f"import time\ntry:\n    print('running', flush=True)\n    {then}\nfinally:\n    print('cleaned up', flush=True)\n"
    with subprocess.Popen(
        [*LANGPU, sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as program:
        try:
            assert program.stdout is not None
            assert program.stdout.readline() == "running\n"
            program.send_signal(signal.SIGINT)
            out, err = program.communicate(timeout=30)
        finally:
            program.kill()
    assert "cleaned up" in out
    assert program.returncode == -signal.SIGINT, err
    assert "KeyboardInterrupt" in err


def test_work_that_is_queued_at_the_end_is_still_done() -> None:
    code = """
from tests.helpers.device import *
cuda = Cuda("given")
cuda.cuInit(0)
context = cuda.cuCtxCreate(None, 0, cuda.cuDeviceGet(0))
class Last:
    def __init__(self):
        self.driver = cuda.driver
        self.pointer = cuda.put(np.zeros(1, np.uint32))
        self.bump = cuda.function(BUMP, "bump")
        self.value = ctypes.c_uint32()
        self.address = ctypes.addressof(self.value)
        cuda.launch(self.bump, 1, 1, ((ctypes.c_uint64, self.pointer), (ctypes.c_uint32, 5)))
    def __del__(self):
        self.driver.cuMemcpyDtoH(self.address, self.pointer, 4)
        print(self.value.value, int(self.driver.cuMemFree(self.pointer)[0]), flush=True)
last = Last()
"""
    done = emulate(sys.executable, "-c", code)
    assert (done.stdout.split(), done.returncode) == (["5", "0"], 0), done.stderr
    assert done.stderr == ""


C_PROGRAM: Final = r"""
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) { puts(dlerror()); return 1; }
    int (*init)(unsigned) = (int (*)(unsigned))dlsym(library, "cuInit");
    int (*name_of)(char *, int, int) = (int (*)(char *, int, int))dlsym(library, "cuDeviceGetName");
    char name[100] = "";
    int first = init(0), second = name_of(name, 100, 0);
    printf("%d %d %s\n", first, second, name);
    return 9;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no gcc on this machine")
def test_any_other_program_gets_a_private_server(tmp_path: Path) -> None:
    source = tmp_path / "show.c"
    source.write_text(C_PROGRAM)
    subprocess.run(["gcc", "-o", tmp_path / "show", source, "-ldl"], check=True, timeout=60)
    done = emulate(str(tmp_path / "show"))
    assert (done.stdout.strip(), done.returncode) == (f"0 0 {DEVICE_NAME}", 9), done.stderr


def test_a_python_that_ignores_its_environment_gets_one_too() -> None:
    done = emulate(sys.executable, "-I", "-c", SHOW)
    assert done.stdout.strip() == f"0 0 {DEVICE_NAME}", done.stderr
