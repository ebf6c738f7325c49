"""What the command line makes of its arguments, and what it says when something is wrong.

The parts below it are replaced at their entry points (docs/internals.md, "Entry points that the command line uses").
"""

import json
from pathlib import Path
from typing import Any

import pytest

from lanGPU.cli.main import COMMANDS, EXIT_INTERRUPTED, run_group
from lanGPU.client.launcher import RunOptions
from lanGPU.constants import DEFAULT_PORT
from lanGPU.errors import ConfigError, ConnectError, LanGPUError, TransportTimeoutError
from lanGPU.server.daemon import ServeOptions


class Recorder:
    """An entry point that notes its options and returns, or raises, what it was told."""

    def __init__(self, outcome: Any = 0) -> None:
        self.outcome = outcome
        self.calls: list[Any] = []

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments[0] if len(arguments) == 1 else arguments)
        if isinstance(self.outcome, BaseException):
            raise self.outcome
        return self.outcome


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder()
    monkeypatch.setattr("lanGPU.client.launcher.run", recorder)
    monkeypatch.delenv("LANGPU_HOST", raising=False)
    return recorder


@pytest.fixture
def query(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    recorder = Recorder({"name": "desktop", "devices": [{"name": "GPU", "total_bytes": 1 << 30}], "sessions": []})
    monkeypatch.setattr("lanGPU.client.status.query", recorder)
    monkeypatch.delenv("LANGPU_HOST", raising=False)
    return recorder


def options(**changes: Any) -> RunOptions:
    given = {"program": ("prog",), "host": "127.0.0.1", "port": DEFAULT_PORT, "stats": False, "stats_json": None, "timeout_s": None}
    return RunOptions(**given | changes)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("run prog", options()),
        ("run -- prog", options()),
        ("run prog -c x --help -- --stats", options(program=("prog", "-c", "x", "--help", "--", "--stats"))),
        ("run -- prog --host elsewhere", options(program=("prog", "--host", "elsewhere"))),
        ("run -- --odd-name x", options(program=("--odd-name", "x"))),
        ("run --host desktop:5 prog", options(host="desktop", port=5)),
        ("run --host [::1]:5 prog", options(host="::1", port=5)),
        ("run --host=desktop --stats prog", options(host="desktop", stats=True)),
        ("run --stats-json out.json --timeout 1.5 prog a", options(program=("prog", "a"), stats_json=Path("out.json"), timeout_s=1.5)),
    ],
)
def test_run_options(line: str, expected: RunOptions, run: Recorder) -> None:
    assert run_group(line.split()) == 0
    assert run.calls == [expected]


def test_run_exits_as_its_program_does(run: Recorder) -> None:
    run.outcome = 7
    assert run_group(["run", "prog"]) == 7


def test_run_takes_the_host_of_the_environment(run: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANGPU_HOST", "desktop:99")
    assert run_group(["run", "prog"]) == 0
    assert run.calls == [options(host="desktop", port=99)]


@pytest.mark.parametrize(
    "line",
    [
        "run",
        "run --host",
        "run --host a:b prog",
        "run --no-such-option prog",
        "run --timeout 0 prog",
        "run --timeout -3 prog",
        "run --timeout soon prog",
        "run --timeout nan prog",
        "run --timeout inf prog",
        "run --log-level loud prog",
        "serve --port 65536",
        "serve --port -1",
        "serve --port x",
        "serve --max-sessions 0",
        "serve surplus",
        "status --host a:0",
        "status --timeout 0",
        "emulate",
        "nonsense",
        "--nonsense",
    ],
)
def test_a_bad_line_says_what_is_wrong_and_runs_nothing(
    line: str, run: Recorder, query: Recorder, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_group(line.split()) == ConfigError.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    first, second = err.splitlines()
    assert first.startswith("langpu: ")
    assert second.startswith("hint: ")
    assert not run.calls
    assert not query.calls


def test_no_command_shows_the_help_and_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_group([]) == ConfigError.exit_code
    assert "Usage: langpu" in capsys.readouterr().err


@pytest.mark.parametrize("line", [["--help"], ["-h"], *([name, "--help"] for name in COMMANDS)])
def test_help(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run_group(line) == 0
    out = capsys.readouterr().out
    assert out.startswith("Usage: langpu")
    assert all(len(row) <= 80 for row in out.splitlines())


@pytest.mark.parametrize("error", [ConnectError("nobody listens at a:1"), ConfigError("no", hint="do this"), LanGPUError("odd")])
def test_an_error_is_a_sentence_a_hint_and_an_exit_code(error: LanGPUError, run: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    run.outcome = error
    assert run_group(["run", "prog"]) == error.exit_code
    out, err = capsys.readouterr()
    assert out == ""
    assert err == f"langpu: {error}\n" + (f"hint: {error.hint}\n" if error.hint else "")


def test_a_bug_keeps_its_traceback(run: Recorder) -> None:
    run.outcome = ZeroDivisionError("a bug")
    with pytest.raises(ZeroDivisionError):
        run_group(["run", "prog"])


def test_an_interrupt_ends_quietly(run: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    run.outcome = KeyboardInterrupt()
    assert run_group(["run", "prog"]) == EXIT_INTERRUPTED
    assert capsys.readouterr().out == ""


def test_serve_options(monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder()
    monkeypatch.setattr("lanGPU.server.daemon.serve", recorder)
    assert run_group(["serve"]) == 0
    line = "serve --bind ::1 --port 0 --emulate --insecure --name desk --max-sessions 2"
    assert run_group(line.split()) == 0
    assert recorder.calls == [ServeOptions(), ServeOptions(bind="::1", port=0, emulate=True, insecure=True, name="desk", max_sessions=2)]


def test_status_json(query: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_group(["status", "--json", "--host", "desktop:5", "--host", "[::1]"]) == 0
    assert query.calls == [("desktop", 5, 3.0), ("::1", DEFAULT_PORT, 3.0)]
    answer = json.loads(capsys.readouterr().out)
    assert answer["schema"] == 1
    assert answer["servers"][0] == {"host": "desktop", "port": 5, "reachable": True, "error": None, "status": query.outcome}


def test_status_of_a_server_that_does_not_answer(query: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    query.outcome = TransportTimeoutError("127.0.0.1 did not answer in 3 s", hint="wake it")
    assert run_group(["status", "--json"]) == TransportTimeoutError.exit_code
    out, err = capsys.readouterr()
    assert err == ""
    (server,) = json.loads(out)["servers"]
    assert server["reachable"] is False
    assert server["error"] == {"code": TransportTimeoutError.exit_code, "message": "127.0.0.1 did not answer in 3 s", "hint": "wake it"}
    assert run_group(["status"]) == TransportTimeoutError.exit_code
    assert "hint: wake it" in capsys.readouterr().err


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_group(["version", "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert run_group(["version"]) == 0
    assert capsys.readouterr().out.startswith(f"lanGPU {facts['version']} ")
