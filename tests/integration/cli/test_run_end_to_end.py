"""`langpu run` and `langpu status` against a served emulated device: what programs do wrong, what goes wrong around them, what they get."""

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lanGPU.errors import RemoteProtocolError
from tests.helpers.server import ServerProcess, ask_status, wait_until

LANGPU = [sys.executable, "-m", "lanGPU.cli.main"]
TIMEOUT_S = 60.0

pytestmark = pytest.mark.slow

PRELUDE = """
import sys
import numpy as np
from cuda.bindings import driver as cu

def check(answer):
    error, *values = answer
    assert not error, error
    return values[0] if len(values) == 1 else values

def load(body, options=()):
    text = ".version 8.0\\n.target sm_70\\n.address_size 64\\n.visible .entry k(.param .u64 p, .param .u32 count)\\n{\\n" + body + "\\n}\\n"
    return cu.cuModuleLoadData(text.encode() + b"\\0")

def launch(module, pointer, n, grid=1, block=1):
    kernel = check(cu.cuModuleGetFunction(module, b"k"))
    values = [np.array([pointer], np.uint64), np.array([n], np.uint32)]
    pointers = np.array([v.ctypes.data for v in values], np.uint64)
    return cu.cuLaunchKernel(kernel, grid, 1, 1, block, 1, 1, 0, 0, pointers.ctypes.data, 0)[0]

STORE = ".reg .b64 a; .reg .b32 n; ld.param.u64 a, [p]; ld.param.u32 n, [count]; st.global.u32 [a], n; ret;"
check(cu.cuInit(0))
check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(check(cu.cuDeviceGet(0))))))
"""
GOOD = """
memory = int(check(cu.cuMemAlloc(4)))
assert launch(check(load(STORE)), memory, 4711) == 0
word = np.zeros(1, np.uint32)
check(cu.cuMemcpyDtoH(word.ctypes.data, memory, 4))
print("found", word[0])
"""
ENDLESS = """
module = check(load("AGAIN: bra AGAIN;"))
assert launch(module, 0, 0) == 0
print("launched", flush=True)
check(cu.cuCtxSynchronize())
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as process:
        yield process


def command(server: ServerProcess, *program: str, options: tuple[str, ...] = ()) -> list[str]:
    return [*LANGPU, "run", "--host", f"127.0.0.1:{server.port}", *options, "--", *program]


def run(server: ServerProcess, script: str, *options: str) -> "subprocess.CompletedProcess[str]":
    program = (sys.executable, "-c", PRELUDE + script)
    return subprocess.run(command(server, *program, options=options), capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


def good(server: ServerProcess) -> None:
    """A session on that server still computes."""
    done = run(server, GOOD)
    assert (done.returncode, done.stdout) == (0, "found 4711\n"), done.stderr


def test_a_good_program(server: ServerProcess) -> None:
    good(server)


def test_an_illegal_address_is_error_700_and_sticks_to_its_session(server: ServerProcess) -> None:
    script = """
assert launch(check(load(STORE)), 0xDEAD0000, 1) == 0
print([int(cu.cuCtxSynchronize()[0]), int(cu.cuCtxSynchronize()[0]), int(cu.cuMemAlloc(4)[0])])
"""
    done = run(server, script)
    assert (done.returncode, done.stdout) == (0, "[700, 700, 700]\n"), done.stderr
    good(server)


def test_ptx_that_does_not_compile(server: ServerProcess) -> None:
    script = """
error, module = load(".reg .b32 n; frobnicate.u32 n, 1; ret;")
if not error:
    error, kernel = cu.cuModuleGetFunction(module, b"k")
print(error.name)
"""
    done = run(server, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() in ("CUDA_ERROR_INVALID_PTX", "CUDA_ERROR_NOT_SUPPORTED")
    assert "frobnicate" in done.stderr + server.stderr()


def test_out_of_memory_is_reported_at_its_call_and_harms_nothing(server: ServerProcess) -> None:
    done = run(server, "print(int(cu.cuMemAlloc(1 << 46)[0]))\n" + GOOD)
    assert (done.returncode, done.stdout) == (0, "2\nfound 4711\n"), done.stderr


def test_a_posted_call_that_fails_is_named_and_reported_by_the_next_that_waits(server: ServerProcess) -> None:
    script = """
posted = cu.cuMemsetD8Async(0xDEAD0000, 1, 64, 0)[0]
print([int(posted), int(cu.cuCtxSynchronize()[0]) != 0, int(cu.cuCtxSynchronize()[0])])
"""
    done = run(server, script)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[0, True, 0]\n"
    assert "cuMemsetD8Async" in done.stderr


def test_a_function_that_is_not_there_says_so_and_is_logged_once(server: ServerProcess) -> None:
    script = """
import ctypes
library = ctypes.CDLL("libcuda.so.1")
print([library.cuSurfRefGetArray(None, None), library.cuSurfRefGetArray(None, None)])
"""
    done = run(server, script)
    assert (done.returncode, done.stdout) == (0, "[801, 801]\n"), done.stderr
    assert done.stderr.count("cuSurfRefGetArray") == 1


def test_a_kernel_that_never_ends_meets_the_timeout(server: ServerProcess) -> None:
    done = run(server, ENDLESS, "--timeout", "4")
    assert (done.returncode, done.stdout) == (124, "launched\n"), done.stderr
    assert "Traceback" not in done.stderr
    good(server)


def test_ctrl_c_ends_a_kernel_that_never_ends(server: ServerProcess) -> None:
    program = (sys.executable, "-c", PRELUDE + ENDLESS)
    process = subprocess.Popen(
        command(server, *program), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0, preexec_fn=_default_interrupt
    )
    with process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert process.stdout.readline() == "launched\n"
            os.killpg(process.pid, signal.SIGINT)
            code = process.wait(20)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
        words = process.stderr.read()
    assert code in (130, -signal.SIGINT), words
    # the program's own KeyboardInterrupt at most
    assert words.count("Traceback") <= 1
    assert wait_until(lambda: not ask_status(server.port)["sessions"])
    good(server)


def _default_interrupt() -> None:
    """A test runner in the background has SIGINT ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def test_a_crash_is_the_programs_exit_code_and_leaves_no_session(server: ServerProcess) -> None:
    done = run(server, "import os\nos.abort()")
    assert done.returncode == 128 + signal.SIGABRT
    assert wait_until(lambda: not ask_status(server.port)["sessions"])
    good(server)


def test_children_have_rings_and_sessions_of_their_own(server: ServerProcess, tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        f"import subprocess, sys\nchild = {PRELUDE + GOOD!r}\n"
        + PRELUDE
        + GOOD
        + "sys.stdout.flush()\n"
        + "for _ in 'ab':\n"
        + "    subprocess.run([sys.executable, '-c', child], check=True)\n"
    )
    stats = tmp_path / "stats.json"
    done = subprocess.run(
        command(server, sys.executable, str(script), options=("--stats-json", str(stats))),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "found 4711\n" * 3), done.stderr
    assert len(json.loads(stats.read_text())["processes"]) == 3


def test_a_fork_that_then_uses_the_gpu(server: ServerProcess) -> None:
    """Before any CUDA call: CUDA itself forbids using a context that was made before a fork."""
    script = """
import os
pid = os.fork()
from cuda.bindings import driver
"""
    done = subprocess.run(
        command(server, sys.executable, "-c", script + PRELUDE + GOOD + "sys.stdout.flush()\nif pid: os.waitpid(pid, 0)\n"),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "found 4711\n" * 2), done.stderr


def test_large_copies_arrive_as_they_were_sent(server: ServerProcess) -> None:
    """Sizes around the limits at which a copy goes another way."""
    script = """
random = np.random.default_rng(5)
for size in (1, 7, 65528, 65536, 65537, (1 << 20) - 1, (1 << 20) + 5, 9_000_001):
    sent = random.integers(0, 256, size, np.uint8)
    memory = int(check(cu.cuMemAlloc(size)))
    check(cu.cuMemcpyHtoD(memory, sent.ctypes.data, size))
    kept = sent.copy()
    sent[:] = 0  # the call has returned: the buffer is ours again
    got = np.empty(size, np.uint8)
    check(cu.cuMemcpyDtoH(got.ctypes.data, memory, size))
    assert np.array_equal(got, kept), size
    check(cu.cuMemFree(memory))
print("same")
"""
    done = run(server, script)
    assert (done.returncode, done.stdout) == (0, "same\n"), done.stderr


def test_threads_with_streams_of_their_own(server: ServerProcess) -> None:
    script = """
import threading
context = check(cu.cuCtxGetCurrent())
module = check(load(".reg .b64 a; .reg .b32 n, v; ld.param.u64 a, [p]; ld.param.u32 n, [count]; atom.global.add.u32 v, [a], n; ret;"))
memory = int(check(cu.cuMemAlloc(4 * 8)))
check(cu.cuMemsetD8(memory, 0, 4 * 8))
def work(index):
    check(cu.cuCtxSetCurrent(context))
    for _ in range(200):
        assert launch(module, memory + 4 * index, 1 + index) == 0
    check(cu.cuCtxSynchronize())
threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
[t.start() for t in threads]
[t.join() for t in threads]
found = np.zeros(8, np.uint32)
check(cu.cuMemcpyDtoH(found.ctypes.data, memory, found.nbytes))
print(found.tolist() == [200 * (1 + i) for i in range(8)])
"""
    done = run(server, script)
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_status_shows_the_session_while_it_runs(server: ServerProcess) -> None:
    script = PRELUDE + GOOD + "sys.stdout.flush()\nsys.stdin.read()\n"
    with subprocess.Popen(
        command(server, sys.executable, "-c", script), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "found 4711\n"
            address = f"127.0.0.1:{server.port}"
            as_json = subprocess.run(
                [*LANGPU, "status", "--json", "--host", address], capture_output=True, text=True, timeout=TIMEOUT_S, check=True
            )
            people = subprocess.run([*LANGPU, "status", "--host", address], capture_output=True, text=True, timeout=TIMEOUT_S, check=True)
        finally:
            process.stdin.close()
            assert process.wait(TIMEOUT_S) == 0
    (entry,) = json.loads(as_json.stdout)["servers"]
    assert entry["reachable"] is True
    assert entry["status"]["emulated"] is True
    (session,) = entry["status"]["sessions"]
    assert session["program"].startswith("python")
    assert session["host"] == socket.gethostname()
    assert server.devices in people.stdout
    assert session["program"] in people.stdout
    assert all(len(line) <= 80 for line in people.stdout.splitlines())


def test_the_stats_block_counts_what_happened(server: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "stats.json"
    done = run(server, GOOD, "--stats", "--stats-json", str(file))
    assert (done.returncode, done.stdout) == (0, "found 4711\n"), done.stderr
    numbers = json.loads(file.read_text())
    assert numbers["calls"]["posted"] >= 1
    assert 1 <= numbers["round_trips"] <= sum(numbers["calls"].values())
    assert f"{numbers['round_trips']:,}" in done.stderr


@pytest.mark.parametrize("line", [["run", "true"], ["status"]])
def test_a_port_where_something_else_listens(line: list[str]) -> None:
    """It answers like a web server, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            while select.select([listener], [], [], TIMEOUT_S)[0]:
                connection, _ = listener.accept()
                with connection:
                    if not connection.recv(4096):
                        return
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")

        thread = threading.Thread(target=answer)
        thread.start()
        port = listener.getsockname()[1]
        name, *rest = line
        done = subprocess.run(
            [*LANGPU, name, "--host", f"127.0.0.1:{port}", *rest], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        with socket.create_connection(("127.0.0.1", port)):
            pass  # an empty connection ends the thread
        thread.join()
    assert done.returncode == RemoteProtocolError.exit_code, done.stderr
    assert done.stderr.startswith("langpu: ")
    assert "hint: " in done.stderr
    assert "Traceback" not in done.stderr


def test_a_port_that_accepts_and_says_nothing() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        start_s = time.monotonic()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        done = subprocess.run(
            [*LANGPU, "status", "--host", address, "--timeout", "1"], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
    assert done.returncode == 83, done.stderr
    assert time.monotonic() - start_s < 20
