"""Host functions of real programs under `langpu run`: their thread, ends of the program and of the server, forked children."""

import os
import signal
import subprocess
import sys

import pytest

from tests.helpers.device import ROOT
from tests.helpers.server import ServerProcess, ask_status, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

BEGIN = """
import ctypes, os, signal, sys, threading, time
from cuda.bindings import driver as cuda

def ok(answer):
    assert int(answer[0]) == 0, answer
    return answer[1] if len(answer) == 2 else answer[1:]

def host_function(function, kept=[]):
    kept.append(ctypes.CFUNCTYPE(None, ctypes.c_uint64)(function))
    return cuda.CUhostFn(ctypes.cast(kept[-1], ctypes.c_void_p).value)

def begin():
    ok(cuda.cuInit(0))
    ok(cuda.cuCtxSetCurrent(ok(cuda.cuDevicePrimaryCtxRetain(0))))

begin()
"""


def start(server: ServerProcess, program: str) -> subprocess.Popen[str]:
    langpu = os.path.join(os.path.dirname(sys.executable), "langpu")
    command = [langpu, "run", "--host", f"127.0.0.1:{server.port}", "--", sys.executable, "-c", BEGIN + program]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(server: ServerProcess, program: str) -> tuple[int, str, str]:
    process = start(server, program)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def test_the_thread_of_host_functions_takes_no_signal_of_the_programs() -> None:
    with ServerProcess() as server:
        code, out, err = run(
            server,
            """
threads = []
ok(cuda.cuLaunchHostFunc(0, host_function(lambda _: threads.append(threading.get_native_id())), 0))
ok(cuda.cuCtxSynchronize())
(mine,) = set(threads)
assert mine != threading.get_native_id()
blocked = next(line for line in open(f"/proc/self/task/{mine}/status") if line.startswith("SigBlk"))
assert int(blocked.split()[1], 16) & 1 << signal.SIGINT - 1
main = next(line for line in open("/proc/self/task/%d/status" % os.getpid()) if line.startswith("SigBlk"))
assert not int(main.split()[1], 16)
print("ok")
""",
        )
    assert (code, out) == (0, "ok\n"), err


def test_a_program_ends_while_a_host_function_runs() -> None:
    with ServerProcess() as server:
        code, out, err = run(
            server,
            """
inside = threading.Event()
def sleep(_):
    inside.set()
    time.sleep(100)
ok(cuda.cuLaunchHostFunc(0, host_function(sleep), 0))
assert inside.wait(10)
print("bye", flush=True)
os._exit(3)
""",
        )
        assert (code, out) == (3, "bye\n"), err
        assert wait_until(lambda: not ask_status(server.port)["sessions"])


def test_the_server_is_lost_while_a_host_function_runs() -> None:
    with ServerProcess() as server:
        process = start(
            server,
            """
def wait(_):
    print("inside", flush=True)
    time.sleep(60)
ok(cuda.cuLaunchHostFunc(0, host_function(wait), 0))
print(int(cuda.cuCtxSynchronize()[0]), flush=True)
os._exit(0)
""",
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "inside\n"
        server.signal(signal.SIGKILL)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    assert out == "709\n"
    assert "lost" in err


def test_a_forked_child_has_host_functions_of_its_own() -> None:
    with ServerProcess() as server:
        code, out, err = run(
            server,
            """
seen = []
function = host_function(seen.append)
ok(cuda.cuLaunchHostFunc(0, function, 1))
ok(cuda.cuCtxSynchronize())
child = os.fork()
begin_again = child == 0
if begin_again:
    begin()
ok(cuda.cuLaunchHostFunc(0, function, 2))
ok(cuda.cuCtxSynchronize())
assert seen == [1, 2], seen
if begin_again:
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
print("ok")
""",
        )
    assert (code, out) == (0, "ok\n"), err


def test_what_kernels_print_comes_before_the_host_function_behind_them() -> None:
    with ServerProcess() as server:
        code, out, err = run(
            server,
            '''
ptx = b"""
.version 7.0
.target sm_75
.address_size 64
.extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b);
.global .align 1 .b8 text[12] = {102, 114, 111, 109, 32, 75, 10, 0};
.visible .entry speak()
{
.reg .b64 %rd<3>;
.reg .b32 %r<2>;
mov.u64 %rd1, text;
cvta.global.u64 %rd2, %rd1;
{
.param .b64 p0;
st.param.b64 [p0], %rd2;
.param .b64 p1;
st.param.b64 [p1], 0;
.param .b32 r0;
call.uni (r0), vprintf, (p0, p1);
}
ret;
}
\\0"""
speak = ok(cuda.cuModuleGetFunction(ok(cuda.cuModuleLoadData(ptx)), b"speak"))
for i in range(3):
    ok(cuda.cuLaunchKernel(speak, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0))
    ok(cuda.cuLaunchHostFunc(0, host_function(lambda i: os.write(1, b"host %d\\n" % i) and None), i))
ok(cuda.cuCtxSynchronize())
''',
        )
    assert (code, out) == (0, "".join(f"from K\nhost {i}\n" for i in range(3))), err
