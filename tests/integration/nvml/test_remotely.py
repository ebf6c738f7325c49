"""NVML in a program under `langpu run`, which never calls CUDA."""

import os
import subprocess
import sys
import textwrap

import pytest

from lanGPU.client.shim import ensure
from lanGPU.nvml.question import encode_question
from lanGPU.wire import events as ev
from tests.helpers.device import ROOT
from tests.helpers.server import RawClient, ServerProcess

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


ENDS = """
import atexit, os, sys
assert n.nvmlInit_v2() == 0 and n.nvmlDeviceGetHandleByIndex_v2(0, c.byref(h)) == 0
atexit.register(lambda: print(n.nvmlDeviceGetMemoryInfo(h, text), flush=True))
child = os.fork()
if not child:
    status = n.nvmlDeviceGetMemoryInfo(h, text) == 1 and n.nvmlInit_v2() == 0 and n.nvmlDeviceGetMemoryInfo(h, text) == 0
    os._exit(0 if status else 7)
assert os.waitpid(child, 0)[1] == 0
threading.Thread(target=lambda: [n.nvmlDeviceGetMemoryInfo(h, c.create_string_buffer(24)) for _ in iter(int, 1)], daemon=True).start()
"""
LOSES = """
import sys
assert n.nvmlInit_v2() == 0 and n.nvmlDeviceGetHandleByIndex_v2(0, c.byref(h)) == 0
print(n.nvmlDeviceGetMemoryInfo(h, text), flush=True)
sys.stdin.readline()
print(n.nvmlDeviceGetMemoryInfo(h, text), n.nvmlDeviceGetMemoryInfo(h, text), n.nvmlErrorString(15), n.nvmlShutdown())
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


@pytest.mark.timeout(150)
def test_ends_that_nobody_prepared() -> None:
    """No nvmlShutdown, questions at exit, from a thread that does not stop, and from a child made by fork."""
    with ServerProcess() as server:
        done = _run(f"127.0.0.1:{server.port}", ENDS)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@pytest.mark.timeout(150)
def test_a_server_that_dies_is_a_lost_gpu() -> None:
    langpu = os.path.join(os.path.dirname(sys.executable), "langpu")
    with ServerProcess() as server:
        command = [langpu, "run", "--host", f"127.0.0.1:{server.port}", "--", sys.executable, "-c", HEAD + LOSES]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "0\n"
            server.kill()
            out, err = program.communicate("go\n", timeout=60)
    assert (program.returncode, out) == (0, "15 15 b'GPU is lost' 15\n"), err


POWER = encode_question("nvmlDeviceGetPowerUsage", (0, None))


@pytest.mark.parametrize(
    "values",
    [
        (b"junk", 4, 8, 8),
        (POWER, 0, 8, 8),
        (POWER, len(POWER), 1 << 20, 1 << 20),
        (POWER, len(POWER), None, 8),
        (None, 0, 8, 8),
    ],
)
def test_corrupt_questions_end_the_connection_and_nothing_else(values: tuple[object, ...]) -> None:
    with ServerProcess() as server:
        with RawClient(server.port) as client:
            client.open()
            client.send("langpuNvml", *values)  # type: ignore[arg-type]
            event = client.event()
            assert isinstance(event, ev.GoodbyeReceived), event
            assert "protocol error" in event.reason
        with RawClient(server.port) as client:
            client.open()
            question = encode_question("nvmlDeviceGetMemoryInfo", (0, None))
            result, outputs = client.reply(client.send("langpuNvml", question, len(question), 28, 28))
            assert (result, outputs[:4], len(outputs)) == (0, bytes(4), 32)
            question = encode_question("nvmlDeviceGetPowerUsage", (9, None))
            result, outputs = client.reply(client.send("langpuNvml", question, len(question), 8, 8))
            assert (result, outputs[:4]) == (0, (6).to_bytes(4, "little"))


def test_texts_of_errors_need_nobody() -> None:
    """nvmlErrorString returns an address, also where no agent and no server is."""
    program = """
assert n.nvmlInit_v2() == 9
for code, text in ((0, b"Success"), (9, b"Driver Not Loaded"), (25, b"Argument version mismatch"), (26, b"Unknown Error")):
    assert n.nvmlErrorString(code) == text
assert n.nvmlErrorString(-1) == n.nvmlErrorString(999) == b"Unknown Error"
print("right")
"""
    alone = [sys.executable, "-c", HEAD + program]
    done = subprocess.run(
        alone,
        cwd=ROOT,
        env={**os.environ, "LD_LIBRARY_PATH": str(ensure().path.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "right\n"), done.stderr
