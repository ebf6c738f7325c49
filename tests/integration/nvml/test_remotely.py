"""NVML in a program under `langpu run`, which never calls CUDA."""

import os
import subprocess
import sys
import textwrap

import pytest

from tests.helpers.device import ROOT
from tests.helpers.server import ServerProcess

pytestmark = pytest.mark.slow

HEAD = """
import ctypes as c, threading
n = c.CDLL("libnvidia-ml.so.1")
n.nvmlErrorString.restype = c.c_char_p
u, h, text = c.c_uint(77), c.c_void_p(), c.create_string_buffer(96)
"""
PROGRAM = """
assert n.nvmlDeviceGetCount_v2(c.byref(u)) == 1 and u.value == 77
assert n.nvmlInit_v2() == 0 and n.nvmlInitWithFlags(0) == 0
assert n.nvmlDeviceGetCount_v2(c.byref(u)) == 0 and u.value == 1
assert n.nvmlDeviceGetCount_v2(None) == 2
assert n.nvmlDeviceGetHandleByIndex_v2(1, c.byref(h)) == 2 and not h.value
assert n.nvmlDeviceGetHandleByIndex_v2(0, c.byref(h)) == 0
assert n.nvmlDeviceGetName(h, text, 96) == 0 and b"emulated" in text.value
assert n.nvmlDeviceGetName(h, text, 3) == 7
assert n.nvmlDeviceGetName(None, text, 96) == 2 and n.nvmlDeviceGetName(c.c_void_p(1), text, 96) == 2
assert n.nvmlDeviceGetUUID(h, text, 80) == 0 and text.value.startswith(b"GPU-")
again = c.c_void_p()
assert n.nvmlDeviceGetHandleByUUID(text, c.byref(again)) == 0 and again.value == h.value
assert n.nvmlDeviceGetHandleByUUID(b"GPU-none", c.byref(again)) == 6
assert n.nvmlDeviceGetMigMode(h, text, text) == 3
assert n.nvmlDeviceGetMigMode(h, text, text) == 3
assert n.nvmlDeviceGetMemoryInfo(h, None) == 2 and n.nvmlDeviceGetMemoryInfo(None, text) == 2
assert n.nvmlErrorString(7) == b"Insufficient Size"
wrong = []
def work():
    count = c.c_uint()
    for _ in range(50):
        if n.nvmlDeviceGetCount_v2(c.byref(count)) or count.value != 1:
            wrong.append(count.value)
threads = [threading.Thread(target=work) for _ in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
assert not wrong
assert n.nvmlShutdown() == 0 and n.nvmlDeviceGetCount_v2(c.byref(u)) == 0
assert n.nvmlShutdown() == 0 and n.nvmlDeviceGetCount_v2(c.byref(u)) == 1 and n.nvmlShutdown() == 1
print("right")
"""
BOTH = """
cuda = c.CDLL("libcuda.so.1")
assert cuda.cuDeviceGetCount(c.byref(u)) == 3
assert n.nvmlInit_v2() == 0
assert cuda.cuDeviceGetCount(c.byref(u)) == 3, "nvmlInit is not cuInit"
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGetCount(c.byref(u)) == 0 and u.value == 1
print("right")
"""


def _run(where: str, program: str) -> subprocess.CompletedProcess[str]:
    langpu = os.path.join(os.path.dirname(sys.executable), "langpu")
    command = [langpu, "run", "--report-unsupported", "--host", where, "--", sys.executable, "-c", HEAD + textwrap.dedent(program)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.timeout(150)
def test_a_program_asks_and_ends_cleanly() -> None:
    with ServerProcess() as server:
        where = f"127.0.0.1:{server.port}"
        done = _run(where, PROGRAM)
        assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
        assert done.stderr.count("nvmlDeviceGetMigMode is not supported") == 1
        assert "langpu:   nvmlDeviceGetMigMode 2\n" in done.stderr
        done = _run(where, BOTH)
        assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
