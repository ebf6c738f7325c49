"""`langpu run` as a process: starting, ending, signals, several processes, statistics. The programs attach with a shim in Python."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lanGPU.client.status import query
from lanGPU.errors import ConnectError, RefusedError, RemoteProtocolError, TransportTimeoutError, VersionMismatchError
from lanGPU.wire.handshake import Refusal
from tests.helpers.fake_server import FakeServer

pytestmark = pytest.mark.slow  # each starts Python two or three times

ROOT = Path(__file__).parents[3]
LIMIT_S = 30
PRELUDE = """
import os, signal, sys, time
from tests.helpers.fake_shim import FakeShim
from tests.helpers.launcher_main import DIGEST
shim = FakeShim.attach(os.environ["LANGPU_AGENT_SOCKET"], DIGEST)
assert shim.agent("cuInit", 0) == 0
"""


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with FakeServer() as made:
        yield made


def command(port: int, *program: str, **options: Any) -> list[str]:
    return [sys.executable, "-m", "tests.helpers.launcher_main", str(port), json.dumps(options), *program]


def start(port: int, *program: str, **options: Any) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        command(port, *program, **options),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: "subprocess.Popen[str]", stdin: str | None = None) -> tuple[int, str, str]:
    try:
        out, err = process.communicate(stdin, timeout=LIMIT_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    return process.returncode, out, err


def run(port: int, *program: str, **options: Any) -> tuple[int, str, str]:
    return finish(start(port, *program, **options))


def script(text: str) -> tuple[str, str, str]:
    return sys.executable, "-c", PRELUDE + textwrap.dedent(text)


def test_exit_code_and_streams_are_the_programs(server: FakeServer) -> None:
    process = start(server.port, sys.executable, "-c", "import sys; print(sys.stdin.read()); print('e', file=sys.stderr); sys.exit(41)")
    assert finish(process, "hello") == (41, "hello\n", "e\n")


def test_environment(server: FakeServer) -> None:
    code, out, _ = run(
        server.port, "sh", "-c", "echo $LD_LIBRARY_PATH; stat -c %a $(dirname $LANGPU_AGENT_SOCKET); echo $LANGPU_AGENT_SOCKET"
    )
    folder, mode, path = out.split()
    assert code == 0
    assert folder.startswith("/nonexistent/shim")
    assert mode == "700"
    assert not Path(path).parent.exists()  # gone with the run


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, 137), (signal.SIGSEGV, 139), (signal.SIGTERM, 143)])
def test_death_by_signal(server: FakeServer, number: int, code: int) -> None:
    assert run(server.port, sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})")[0] == code


def test_program_attaches_and_is_served(server: FakeServer, tmp_path: Path) -> None:
    numbers = tmp_path / "stats.json"
    program = script(
        """
        out = shim.buffer(8)
        assert shim.agent("cuCtxCreate_v2", out.address, 0, 0) == 0
        shim.post("cuMemsetD8_v2", 1 << 44, 1, 4)
        assert shim.sync("cuCtxSynchronize")[0] == 0
        """
    )
    code, _, err = run(server.port, *program, stats=True, stats_json=str(numbers))
    assert code == 0, err
    assert [name for name, _, _ in server.calls] == ["cuCtxCreate_v2", "cuMemsetD8_v2", "cuCtxSynchronize"]
    assert len(server.hellos) == 1  # the connection that was checked is the one that is used
    assert server.goodbyes == ["process ended"]
    data = json.loads(numbers.read_text())
    assert data["schema"] == 1
    assert data["device"] == "Fake GPU"
    assert data["round_trips"] == 2
    assert data["calls"] == {"posted": 1, "synchronous": 1, "agent": 2}
    assert data["exit_code"] == 0
    assert len(data["processes"]) == 1
    assert "round trips" in err


def test_each_process_has_its_own_session(server: FakeServer) -> None:
    program = script(
        """
        import subprocess
        child = os.environ.get("CHILD")
        if not child:
            for _ in range(2):
                subprocess.run([sys.executable, "-c", os.environ["SCRIPT"]], env={**os.environ, "CHILD": "1"}, check=True)
        assert shim.sync("cuCtxSynchronize")[0] == 0
        """
    )
    process = subprocess.run(
        command(server.port, *program),
        cwd=ROOT,
        env={**os.environ, "SCRIPT": program[2]},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert len(server.hellos) == 3
    assert len(server.goodbyes) == 3


def test_process_that_outlives_the_program_is_served(server: FakeServer) -> None:
    program = script(
        """
        if os.fork() == 0:
            shim.close()
            mine = FakeShim.attach(os.environ["LANGPU_AGENT_SOCKET"], DIGEST)
            assert mine.agent("cuInit", 0) == 0
            parent = os.getppid()
            os.write(int(os.environ["READY"]), b"x")
            while os.getppid() == parent:
                time.sleep(0.005)
            assert mine.sync("cuCtxSynchronize")[0] == 0
            print("child done", flush=True)
            os._exit(0)
        os.read(ready, 1)
        os._exit(3)
        """.replace("if os.fork()", "ready, told = os.pipe(); os.environ['READY'] = str(told)\n        if os.fork()", 1)
    )
    code, out, err = run(server.port, *program)
    assert (code, out) == (3, "child done\n"), err
    assert "still serving 1" in err


def test_crash_leaves_nothing(server: FakeServer) -> None:
    code, _, _ = run(server.port, *script("os.kill(os.getpid(), signal.SIGKILL)"))
    assert code == 137
    assert server.goodbyes == ["process ended"]


def test_foreign_shim_is_refused(server: FakeServer) -> None:
    program = (
        sys.executable,
        "-c",
        PRELUDE.split("shim =")[0]
        + textwrap.dedent(
            """
            for digest, abi in ((bytes(32), 1), (DIGEST, 99)):
                try:
                    FakeShim.attach(os.environ["LANGPU_AGENT_SOCKET"], digest, abi=abi)
                except ConnectionError as exc:
                    print(exc.args[0])
            """
        ),
    )
    assert run(server.port, *program)[:2] == (0, "803\n803\n")


# --- signals -----------------------------------------------------------------------------------------------------------------
def _signal_program(body: str) -> tuple[str, str, str]:
    return (
        sys.executable,
        "-c",
        textwrap.dedent(
            f"""
            import os, signal, sys, time
            seen = []
            def note(number, frame):
                seen.append(number)
                print("got", number, flush=True)
                {body}
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP):
                signal.signal(number, note)
            print("ready", flush=True)
            end = time.monotonic() + 20
            while time.monotonic() < end:
                signal.sigtimedwait([], 0.05)
            """
        ),
    )


TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGUSR1, signal.SIGHUP, signal.SIGINT])
def test_signals_to_us_are_passed_on(server: FakeServer, number: signal.Signals) -> None:
    process = start(server.port, *_signal_program("sys.exit(5)"))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    process.send_signal(number)
    assert finish(process)[:2] == (5, f"got {int(number)}\n")


def test_interrupt_of_the_group_ends_it_once(server: FakeServer) -> None:
    process = start(server.port, *_signal_program("sys.exit(7)"))
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process)[:2] == (7, f"got {int(signal.SIGINT)}\n")


def test_ctrl_c_of_a_terminal_reaches_the_program_once(server: FakeServer) -> None:
    leader, follower = os.openpty()
    program = _signal_program("os.kill(os.getpid(), signal.SIGUSR1) if number == signal.SIGINT else (time.sleep(0.8), sys.exit(9))")
    process = subprocess.Popen(
        [sys.executable, "-c", TERMINAL, *command(server.port, *program)],
        cwd=ROOT, stdin=follower, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    os.close(follower)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.write(leader, b"\x03")
        out, _ = process.communicate(timeout=LIMIT_S)
    finally:
        os.close(leader)
        if process.poll() is None:
            process.kill()
    assert process.returncode == 9
    assert out.split("\n").count(f"got {int(signal.SIGINT)}") == 1


def test_timeout(server: FakeServer) -> None:
    began = time.monotonic()
    code, _, err = run(server.port, sys.executable, "-c", "import time; time.sleep(30)", timeout_s=0.3)
    assert code == 124
    assert time.monotonic() - began < 15
    assert "longer than 0.3 s" in err


# --- what cannot be started --------------------------------------------------------------------------------------------------
def test_program_not_found_and_not_executable(server: FakeServer, tmp_path: Path) -> None:
    plain = tmp_path / "plain.py"
    plain.write_text("print(1)")
    noise = tmp_path / "noise"
    noise.write_text("\x00\x01")
    noise.chmod(0o755)
    assert run(server.port, "no-such-program-at-all")[0] == 127
    assert run(server.port, str(tmp_path / "nothing"))[0] == 127
    code, _, err = run(server.port, str(plain))
    assert code == 126
    assert "python" in err
    assert run(server.port, str(tmp_path))[0] == 126
    assert run(server.port, str(noise))[0] == 126
    assert server.calls == []


def test_unreachable_servers_start_nothing(tmp_path: Path) -> None:
    proof = tmp_path / "started"
    program = ("sh", "-c", f"touch {proof}")
    with FakeServer() as gone:
        port = gone.port
    code, _, err = run(port, *program)
    assert code == ConnectError.exit_code
    assert "langpu serve" in err
    with FakeServer(greeting=b"HTTP/1.1 400 Bad Request\r\n\r\n") as web:
        assert run(web.port, *program)[0] == RemoteProtocolError.exit_code
    with FakeServer(greeting=b"") as silent:
        assert run(silent.port, *program)[0] == RemoteProtocolError.exit_code
    with FakeServer(refuse=Refusal("version", "speaks 7 only", "update", 7, 7)) as old:
        code, _, err = run(old.port, *program)
        assert code == VersionMismatchError.exit_code
        assert "speaks 7 only" in err
    with FakeServer(refuse=Refusal("full", "no more sessions", "wait")) as full:
        code, _, err = run(full.port, *program)
        assert code == RefusedError.exit_code
        assert "wait" in err
    assert not proof.exists()


def test_status_query(server: FakeServer) -> None:
    assert query("127.0.0.1", server.port, 10) == {"server": "fake", "sessions": []}
    server.gate.clear()
    with pytest.raises(TransportTimeoutError):
        query("127.0.0.1", server.port, 0.2)
    server.gate.set()
    with pytest.raises(ConnectError):
        query("no-such-host.invalid", server.port, 5)


def test_unwritable_statistics_are_found_before_the_program_runs(server: FakeServer, tmp_path: Path) -> None:
    proof = tmp_path / "started"
    code, _, err = run(server.port, "sh", "-c", f"touch {proof}", stats_json=str(tmp_path / "no" / "folder" / "x.json"))
    assert code == 64
    assert "statistics" in err
    assert not proof.exists()
