"""The whole product, `langpu serve --emulate` and `langpu run`: threads, forks, other languages, and every way to end."""

import contextlib
import fcntl
import os
import pty
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import termios
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.helpers.server import ServerProcess, ask_status, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).parents[3]
LIMIT_S = 60
PRELUDE = """
import ctypes, os, signal, subprocess, sys, threading
from cuda.bindings import driver
from tests.helpers.cuda_work import Device, PTX, check, expected
"""


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess() as started:
        yield started


@pytest.fixture
def runtime() -> Iterator[Path]:
    """Where `langpu run` puts its sockets; short, and empty afterwards."""
    with tempfile.TemporaryDirectory(prefix="r") as folder:
        yield Path(folder)
        assert os.listdir(folder) == []


def command(server: ServerProcess, *program: str) -> list[str]:
    return [sys.executable, "-m", "lanGPU.cli.main", "run", "--host", f"127.0.0.1:{server.port}", "--", *program]


def environment(runtime: Path) -> dict[str, str]:
    return {**os.environ, "XDG_RUNTIME_DIR": str(runtime), "PYTHONPATH": str(ROOT)}


def script(source: str) -> tuple[str, str, str]:
    return sys.executable, "-c", PRELUDE + textwrap.dedent(source)


def run(server: ServerProcess, runtime: Path, *program: str, code: int = 0) -> str:
    """Standard output of a program that ends with `code`; afterwards the server has no session of it."""
    done = subprocess.run(
        command(server, *program), cwd=runtime, env=environment(runtime), capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert wait_until(lambda: ask_status(server.port)["sessions"] == [], 5)
    return done.stdout


def test_many_threads(server: ServerProcess, runtime: Path) -> None:
    source = """
        device = Device()
        wrong = []
        def work(number):
            device.enter()
            stream = check(driver.cuStreamCreate(0))
            for turn in range(12):
                factor = number * 100 + turn
                if device.compute(factor, stream=stream) != expected(factor):
                    wrong.append(factor)
            check(driver.cuStreamDestroy(stream))
        for wave in range(2):
            threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(8)]
            for t in threads: t.start()
            for t in threads: t.join()
        print(wrong)
        """
    assert run(server, runtime, *script(source)) == "[]\n"


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_multiprocessing(server: ServerProcess, runtime: Path, method: str) -> None:
    program = runtime / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys
            from tests.helpers.cuda_work import Device, expected

            def work(factor):
                return Device().compute(factor) == expected(factor)

            if __name__ == "__main__":
                with multiprocessing.get_context(sys.argv[1]).Pool(2, maxtasksperchild=1) as pool:
                    print(pool.map(work, [3, 5, 7, 9], chunksize=1))
                print(work(11))
            """
        )
    )
    assert run(server, runtime, sys.executable, str(program), method) == "[True, True, True, True]\nTrue\n"
    program.unlink()
    shutil.rmtree(runtime / "__pycache__", ignore_errors=True)


def test_fork_after_cuda(server: ServerProcess, runtime: Path) -> None:
    source = """
        device = Device()
        before = device.compute(2) == expected(2)
        child = os.fork()
        if child == 0:
            try:
                ok = Device().compute(3) == expected(3)
            except BaseException:
                import traceback; traceback.print_exc()
                ok = False
            os._exit(0 if ok else 1)
        during = device.compute(4) == expected(4)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        print(before, during, status, device.compute(5) == expected(5))
        """
    assert run(server, runtime, *script(source)) == "True True 0 True\n"


def test_a_program_of_a_program_of_a_program(server: ServerProcess, runtime: Path) -> None:
    inner = PRELUDE + "print(Device().compute(6) == expected(6))"
    source = f"""
        first = Device().compute(2) == expected(2)
        inner = {inner!r}
        shell = subprocess.run(["sh", "-c", 'exec "$0" -c "$1"', sys.executable, inner], capture_output=True, text=True)
        print(first, shell.stdout.strip(), shell.returncode, Device().compute(2) == expected(2))
        """
    assert run(server, runtime, *script(source)) == "True True 0 True\n"


C_PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
typedef unsigned long long u64;
static void *library;
static void *find(const char *name) { void *f = dlsym(library, name); if (!f) { puts(name); exit(90); } return f; }
#define CALL(name, ...) do { int r = ((int (*)())find(#name))(__VA_ARGS__); if (r) { printf("%s: %d\n", #name, r); exit(91); } } while (0)
int main(int argc, char **argv) {
    library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) { puts(dlerror()); return 92; }
    static char ptx[8192];
    FILE *file = fopen(argv[1], "rb");
    if (fread(ptx, 1, sizeof ptx - 1, file) < 10) return 93;
    fclose(file);
    int device; void *context, *module, *function; u64 data; unsigned values[1000], factor = 3, n = 1000;
    CALL(cuInit, 0);
    CALL(cuDeviceGet, &device, 0);
    CALL(cuCtxCreate_v2, &context, 0, device);
    CALL(cuModuleLoadData, &module, ptx);
    CALL(cuModuleGetFunction, &function, module, "scale");
    CALL(cuMemAlloc_v2, &data, (size_t)sizeof values);
    for (unsigned i = 0; i < n; i++) values[i] = i;
    CALL(cuMemcpyHtoD_v2, data, values, (size_t)sizeof values);
    void *parameters[] = {&data, &factor, &n};
    for (int turn = 0; turn < 2; turn++)
        CALL(cuLaunchKernel, function, 16, 1, 1, 64, 1, 1, 0, (void *)0, parameters, (void **)0);
    CALL(cuMemcpyDtoH_v2, values, data, (size_t)sizeof values);
    for (unsigned i = 0; i < n; i++) if (values[i] != 9 * i) { printf("%u: %u\n", i, values[i]); return 94; }
    CALL(cuCtxDestroy_v2, context);
    puts("right");
    return 0;
}
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="no C compiler")
def test_a_c_program(server: ServerProcess, runtime: Path, tmp_path: Path) -> None:
    from tests.helpers.cuda_work import PTX

    (tmp_path / "main.c").write_text(C_PROGRAM)
    (tmp_path / "kernel.ptx").write_bytes(PTX.rstrip(b"\0"))
    subprocess.run(["gcc", "-O1", "-w", "-std=gnu11", "-o", tmp_path / "main", tmp_path / "main.c", "-ldl"], check=True, timeout=60)
    assert run(server, runtime, str(tmp_path / "main"), str(tmp_path / "kernel.ptx")) == "right\n"


@pytest.mark.parametrize(
    ("ending", "code"),
    [
        ("sys.exit(41)", 41),
        ("os._exit(7)", 7),
        ("raise SystemError", 1),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("ctypes.string_at(0)", 139),
        ("os.abort()", 134),
        ("os.kill(os.getpid(), signal.SIGTERM)", 143),
    ],
)
def test_endings_in_mid_launch(server: ServerProcess, runtime: Path, ending: str, code: int) -> None:
    before = {p.pid for p in psutil.Process().children(recursive=True)}
    source = f"""
        import resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        device = Device()
        device.start_endless()
        threading.Thread(target=lambda: (device.enter(), driver.cuCtxSynchronize()), daemon=True).start()
        print("at work", flush=True)
        {ending}
        """
    assert run(server, runtime, *script(source), code=code).startswith("at work\n")
    # The server keeps one worker warm: a new one takes the place of the one that ended.
    assert wait_until(lambda: len({p.pid for p in psutil.Process().children(recursive=True)} - before) <= 1, 10)


def test_the_agent_is_killed(server: ServerProcess, runtime: Path) -> None:
    source = """
        device = Device()
        agent = os.getppid()
        device.start_endless()
        threading.Timer(0.3, lambda: os.kill(agent, signal.SIGKILL)).start()
        results = [int(driver.cuCtxSynchronize()[0]), int(driver.cuCtxSynchronize()[0])]
        print(results, flush=True)
        """
    process = subprocess.Popen(command(server, *script(source)), cwd=runtime, env=environment(runtime), stdout=subprocess.PIPE, text=True)
    out, _ = process.communicate(timeout=LIMIT_S)
    assert out == "[802, 802]\n"
    assert process.returncode == -signal.SIGKILL
    assert wait_until(lambda: ask_status(server.port)["sessions"] == [], 5)
    for left in runtime.iterdir():  # nobody was there to remove it
        shutil.rmtree(left)


def _read_until(master: int, text: bytes, limit_s: float) -> bytes:
    seen = b""
    deadline = time.monotonic() + limit_s
    while text not in seen:
        ready, _, _ = select.select([master], [], [], max(0, deadline - time.monotonic()))
        assert ready, f"no {text!r} in time, only {seen!r}"
        try:
            piece = os.read(master, 4096)
        except OSError:
            piece = b""
        assert piece, f"the end, without {text!r}: {seen!r}"
        seen += piece
    return seen


def test_control_c_in_a_wait_that_would_never_end(server: ServerProcess, runtime: Path) -> None:
    source = """
        device = Device()
        device.start_endless()
        caught = 0
        try:
            print("waiting", flush=True)
            check(driver.cuCtxSynchronize())
        except KeyboardInterrupt:
            caught += 1
        print(f"caught {caught}", flush=True)
        os._exit(5)
        """
    master, slave = pty.openpty()

    def take_terminal() -> None:
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)

    process = subprocess.Popen(
        command(server, *script(source)),
        cwd=runtime,
        env=environment(runtime),
        stdin=slave,
        stdout=slave,
        stderr=slave,
        preexec_fn=take_terminal,
    )
    os.close(slave)
    try:
        _read_until(master, b"waiting", LIMIT_S)
        # Typed when the worker is in the driver already or not: it must make no difference.
        os.write(master, b"\x03")
        seen = _read_until(master, b"caught 1", 20)
        assert b"Traceback" not in seen
        assert process.wait(20) == 5
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        os.close(master)
    assert wait_until(lambda: ask_status(server.port)["sessions"] == [], 5)
