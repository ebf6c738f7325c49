"""Attaching, forking, and what is left when the agent is gone."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from lanGPU.client import layout as lay
from lanGPU.constants import CUDA_ERROR_NO_DEVICE, CUDA_ERROR_SYSTEM_NOT_READY
from tests.helpers.fake_agent import FakeAgent, FakeSession
from tests.helpers.server import wait_until
from tests.helpers.shim_program import Program

pytestmark = pytest.mark.slow

SYNCHRONIZE = "result = cuda.cuCtxSynchronize()"
FORK = """
read, write = os.pipe()
child = os.fork()
if child == 0:
    try:
        answer = []
        exec(inside)
        os.write(write, repr(answer).encode())
    finally:
        os._exit(0)
os.close(write)
parent = [cuda.cuMemsetD8_v2(ctypes.c_uint64(1), 1, 1), cuda.cuCtxSynchronize()]
with os.fdopen(read, "rb") as pipe: answer = eval(pipe.read() or "None")
os.waitpid(child, 0)
result = (parent, answer, child)
"""


def test_without_an_agent() -> None:
    with Program(None) as program:
        assert program.run(SYNCHRONIZE) == CUDA_ERROR_NO_DEVICE
        assert program.call("cuInit", ("int", 0))[0] == CUDA_ERROR_NO_DEVICE


def test_with_a_socket_that_is_not_there(tmp_path: Path) -> None:
    for path in (os.fsencode(tmp_path / "gone"), b"", b"x" * 200):
        with Program(path) as program:
            assert program.run(SYNCHRONIZE) == CUDA_ERROR_NO_DEVICE


def test_refusal(agent: FakeAgent, program: Program) -> None:
    agent.refusal = 803
    assert program.run(SYNCHRONIZE) == 803
    assert program.run(SYNCHRONIZE) == 803
    assert len(agent.hellos) == 1


@pytest.mark.parametrize("name", [b"a b=c", "ünï".encode(), b"\xff\xfe", b"LANGPU_AGENT_SOCKET=x", b"longest"])
def test_odd_paths(name: bytes) -> None:
    with tempfile.TemporaryDirectory(prefix="l") as folder:  # a test's own folder may be too long for a socket
        if name == b"longest":
            name = name.ljust(107 - len(folder) - 1, b"_")
        with FakeAgent(Path(folder), name) as agent, Program(agent.path) as program:
            assert program.run(SYNCHRONIZE) == 0


@pytest.mark.parametrize("first", [True, False])
def test_a_large_environment(agent: FakeAgent, first: bool) -> None:
    extra = {f"{'A' if first else 'Z'}{i}": "v" * 100_000 for i in range(10)}
    with Program(agent.path, {**extra, "XLANGPU_AGENT_SOCKET": "/wrong"}) as program:
        assert program.run(SYNCHRONIZE) == 0


def test_a_program_that_writes_its_title_over_its_environment(agent: FakeAgent, program: Program) -> None:
    source = """
stat = open("/proc/self/stat").read().rpartition(")")[2].split()
start, end = int(stat[47]), int(stat[48])  # env_start, env_end of proc(5)
libc = ctypes.CDLL(None)
environ = ctypes.POINTER(ctypes.c_char_p).in_dll(libc, "environ")
copies, i = [], 0
while environ[i] is not None:
    copies.append(ctypes.create_string_buffer(environ[i]))
    i += 1
moved = (ctypes.c_char_p * (len(copies) + 1))(*[ctypes.cast(c, ctypes.c_char_p) for c in copies], None)
ctypes.c_void_p.in_dll(libc, "environ").value = ctypes.addressof(moved)
ctypes.memset(start, 0, end - start)
result = (b"LANGPU" in open("/proc/self/environ", "rb").read(), cuda.cuCtxSynchronize())
"""
    assert program.run(source) == (False, 0)


def test_a_program_that_cleared_its_environment(agent: FakeAgent, program: Program) -> None:
    assert program.run("ctypes.CDLL(None).clearenv()\nresult = cuda.cuCtxSynchronize()") == 0


def test_threads_that_come_first_together(agent: FakeAgent, program: Program) -> None:
    source = """
import threading
barrier = threading.Barrier(8)
result = []
def one():
    barrier.wait()
    result.append(cuda.cuCtxSynchronize())
threads = [threading.Thread(target=one) for i in range(8)]
for t in threads: t.start()
for t in threads: t.join()
"""
    assert program.run(source) == [0] * 8
    assert len(agent.hellos) == 1
    assert {r.thread for r in agent.session.records} == set(range(8))


def test_a_forked_child_attaches_anew(agent: FakeAgent, program: Program) -> None:
    assert program.run(SYNCHRONIZE) == 0
    inside = "answer = [cuda.cuMemsetD8_v2(ctypes.c_uint64(2), 2, 2), cuda.cuCtxSynchronize(), os.getpid()]"
    parent, answer, child = program.run(FORK, inside=inside)
    assert parent == [0, 0]
    assert answer == [0, 0, child]
    assert [s.pid for s in agent.sessions] == [program.process.pid, child]
    assert [[r.words[0] for r in s.records if r.words] for s in agent.sessions] == [[1], [2]]
    assert program.run(SYNCHRONIZE) == 0


def test_a_forked_child_that_does_not_use_cuda(agent: FakeAgent, program: Program) -> None:
    assert program.run(SYNCHRONIZE) == 0
    parent, answer, _ = program.run(FORK, inside="answer = [1]")
    assert (parent, answer) == ([0, 0], [1])
    assert len(agent.hellos) == 1


def test_fork_before_the_first_call_and_grandchildren(agent: FakeAgent, program: Program) -> None:
    inside = """
grandchild = os.fork()
if grandchild == 0:
    os._exit(cuda.cuCtxSynchronize() + 40)
answer = [os.waitstatus_to_exitcode(os.waitpid(grandchild, 0)[1]), cuda.cuCtxSynchronize()]
"""
    assert program.run(FORK, inside=inside)[:2] == ([0, 0], [40, 0])
    assert len(agent.hellos) == 3


def test_fork_while_threads_post(agent: FakeAgent, program: Program) -> None:
    agent.quiet = True
    source = """
import threading
from tests.helpers import native_loop
stop = False
bad = []
def work(tag):
    while not stop:
        bad.append(native_loop.post(cuda.cuMemsetD8_v2, 500, tag))
threads = [threading.Thread(target=work, args=((i + 1) << 40,)) for i in range(3)]
for t in threads: t.start()
codes = []
for i in range(12):
    child = os.fork()
    if child == 0:
        os._exit(native_loop.post(cuda.cuMemsetD8_v2, 100, 1 << 50))
    codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop = True
for t in threads: t.join()
result = (codes, set(bad))
"""
    assert program.run(source) == ([0] * 12, {0})
    assert len(agent.hellos) == 13


def test_other_programs_get_nothing_of_ours(agent: FakeAgent, program: Program) -> None:
    assert program.run(SYNCHRONIZE) == 0
    source = """
import subprocess, sys
show = "import os; print([os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + f)])"
result = subprocess.run([sys.executable, "-c", show], capture_output=True, text=True, close_fds=False).stdout
"""
    listing = program.run(source)
    assert "socket:" not in listing
    assert "memfd" not in listing
    here = program.run(
        "result = [os.readlink('/proc/self/fd/' + f) for f in os.listdir('/proc/self/fd') if os.path.lexists('/proc/self/fd/' + f)]"
    )
    assert not any("memfd" in name for name in here)  # mapped, and the descriptor closed


def test_an_agent_that_dies(agent: FakeAgent, program: Program) -> None:
    assert program.run(SYNCHRONIZE) == 0
    agent.on_record = lambda session, record: None
    program.send(SYNCHRONIZE)
    session = agent.session
    assert wait_until(lambda: len(session.records) == 2)
    start = time.monotonic()
    agent.hang_up()
    assert program.receive() == CUDA_ERROR_SYSTEM_NOT_READY
    assert time.monotonic() - start < 3
    start = time.monotonic()
    assert program.run("result = {cuda.cuCtxSynchronize() for i in range(1000)}") == {CUDA_ERROR_SYSTEM_NOT_READY}
    assert time.monotonic() - start < 1


def test_an_agent_that_dies_before_a_thread_is_greeted(agent: FakeAgent, program: Program) -> None:
    def silent(session: FakeSession, request: object) -> None:
        return None

    agent.on_request = silent
    program.send("result = cuda.cuMemsetD8_v2(ctypes.c_uint64(1), 1, 1)")
    assert agent.attached.acquire(timeout=10)
    session = agent.session
    assert wait_until(lambda: bool(session.requests))
    agent.hang_up()
    assert program.receive() == CUDA_ERROR_SYSTEM_NOT_READY


def test_a_session_that_broke_answers_nobody(agent: FakeAgent, program: Program) -> None:
    agent.on_record = lambda session, record: session.ring.set_closed(999)
    start = time.monotonic()
    assert program.run(SYNCHRONIZE) == 999
    assert time.monotonic() - start < 3


def test_signals_interrupt_nothing(agent: FakeAgent, program: Program) -> None:
    # A handler without SA_RESTART: every sleeping system call of the shim ends with EINTR.
    agent.on_record = lambda session, record: (time.sleep(0.05), session.reply(record))[1]
    source = """
import signal, threading
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
try:
    result = [cuda.cuCtxSynchronize() for i in range(10)]
finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
"""
    assert program.run(source) == [0] * 10
    assert agent.hellos[0][1] == lay.SHIM_ABI


def test_an_agent_that_dies_is_noticed_under_frequent_signals(agent: FakeAgent, program: Program) -> None:
    assert program.run(SYNCHRONIZE) == 0
    agent.on_record = lambda session, record: None
    source = """
import signal
signal.signal(signal.SIGALRM, lambda *a: None)
signal.setitimer(signal.ITIMER_REAL, 0.1, 0.1)
try:
    result = cuda.cuCtxSynchronize()
finally:
    signal.setitimer(signal.ITIMER_REAL, 0)
"""
    program.send(source)
    session = agent.session
    assert wait_until(lambda: len(session.records) == 2)
    agent.hang_up()
    assert program.receive() == CUDA_ERROR_SYSTEM_NOT_READY
