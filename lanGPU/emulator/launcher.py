"""`langpu emulate`: a program on an emulated device of its own.

A Python program whose environment has lanGPU gets the driver into its own process: we become that program (exec), so exit code, signals
and terminal are its own, and no server, agent or wire is involved. Any other program runs under `langpu run` against a private
`langpu serve --emulate` on loopback, which ends with it.
"""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final

from lanGPU.emulator.program import LOG_LEVEL_VARIABLE
from lanGPU.errors import ConnectError, ProgramError, ProgramPermissionError

_INTERPRETER: Final = re.compile(r"python(\d+(\.\d+)?)?t?")
_WITHOUT_SITE: Final = re.compile(r"-[a-zA-Z]*[EIS]")
"""Python options under which neither PYTHONPATH nor sitecustomize counts: -E, -I, -S, alone or in a group."""
_PROBE: Final = "import lanGPU.emulator.library"
_PROBE_TIMEOUT_S: Final = 60.0
_SHEBANG_BYTES: Final = 256
_LISTENING: Final = re.compile(rb"listening on (\S+)")
_SERVER_END_S: Final = 10.0
_FORWARDED: Final = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGCONT}
)
_SI_KERNEL: Final = 0x80
"""siginfo.si_code of a signal from the terminal, which went to the whole foreground group."""
_PR_SET_PDEATHSIG: Final = 1


@dataclass(frozen=True, slots=True)
class EmulateOptions:
    """What `langpu emulate` was told."""

    program: tuple[str, ...]


def emulate(options: EmulateOptions) -> int:
    """Runs the program; its exit code (128 + signal where one ended it). Does not return where we become the program.

    Raises:
        ProgramError: not found; ProgramPermissionError: not executable. ConnectError: the private server does not start.
        ConfigError: the generated library cannot be written, or the environment asks for an impossible device.
    """
    path = find_program(options.program[0], os.environ)
    interpreter = python_of(path, options.program[1:], os.environ)
    level = os.environ.get(LOG_LEVEL_VARIABLE) or _current_level()
    if interpreter is not None and _has_langpu(interpreter):
        environment = in_process_environment(os.environ)
        environment[LOG_LEVEL_VARIABLE] = level
        sys.stdout.flush()
        sys.stderr.flush()
        try:
            os.execve(path, options.program, environment)
        except OSError as exc:
            raise ProgramPermissionError(f"{path} cannot be executed: {exc.strerror}") from exc
    return _with_server(options.program, level)


def _current_level() -> str:
    import logging

    return logging.getLevelName(logging.getLogger("lanGPU").getEffectiveLevel())


# --- finding out what the program is ---------------------------------------------------------------------------------------
def find_program(name: str, environment: Mapping[str, str]) -> str:
    """The path that execvp would take; ProgramError or ProgramPermissionError."""
    if os.sep in name:
        candidate = Path(name)
        if not candidate.exists():
            raise ProgramError(f"{name}: no such program")
        if candidate.is_dir() or not os.access(name, os.X_OK):
            raise ProgramPermissionError(f"{name}: not executable", hint="a script can be run as `langpu emulate python SCRIPT`")
        return name
    search = environment.get("PATH", os.defpath)
    found = shutil.which(name, path=search)
    if found is not None:
        return found
    for folder in search.split(os.pathsep):
        if (Path(folder or ".") / name).is_file():
            raise ProgramPermissionError(f"{Path(folder or '.') / name}: not executable")
    raise ProgramError(f"{name}: program not found in PATH")


def python_of(path: str, arguments: tuple[str, ...], environment: Mapping[str, str]) -> str | None:
    """The Python interpreter that will run the program at `path` and will look at sitecustomize; None if there is none."""
    options: tuple[str, ...]
    if _INTERPRETER.fullmatch(os.path.basename(path)):
        interpreter, options = path, arguments
    else:
        line = _shebang(path)
        if not line:
            return None
        words = line.split()
        if os.path.basename(words[0]) == "env":
            words = [word for word in words[1:] if word != "-S" and "=" not in word]
            found = shutil.which(words[0], path=environment.get("PATH", os.defpath)) if words else None
            if found is None:
                return None
            words[0] = found
        interpreter, options = words[0], tuple(words[1:])
        if not _INTERPRETER.fullmatch(os.path.basename(interpreter)):
            return None
    for option in options:
        if not option.startswith("-") or option in ("-", "-c", "-m", "--"):
            break
        if _WITHOUT_SITE.match(option):
            return None
    return interpreter


def _shebang(path: str) -> str:
    try:
        with open(path, "rb") as file:
            first = file.readline(_SHEBANG_BYTES)
    except OSError:
        return ""
    return first[2:].decode("utf-8", errors="replace").strip() if first.startswith(b"#!") else ""


def _has_langpu(interpreter: str) -> bool:
    """Whether that Python can load the emulated driver; ours can, others are asked."""
    if os.path.abspath(interpreter) == os.path.abspath(sys.executable):
        return True
    try:
        asked = subprocess.run(
            [interpreter, "-c", _PROBE], stdin=subprocess.DEVNULL, capture_output=True, timeout=_PROBE_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return asked.returncode == 0


# --- in the program's own process ----------------------------------------------------------------------------------------------
def in_process_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment in which a Python program and its Python children load the emulated driver, and lookups by file find it."""
    from lanGPU.emulator.config import EmulatorConfig
    from lanGPU.emulator.library import ensure

    EmulatorConfig.from_environment(environment)  # its errors belong here, not into the program
    out = dict(environment)
    for name, folder in (("PYTHONPATH", Path(__file__).parent / "inject"), ("LD_LIBRARY_PATH", ensure().parent)):
        old = environment.get(name, "")
        out[name] = f"{folder}{os.pathsep}{old}" if old else str(folder)
    return out


# --- through a private server ------------------------------------------------------------------------------------------------
def _with_server(program: tuple[str, ...], level: str) -> int:
    command = [sys.executable, "-m", "lanGPU.cli.main"]
    logging_options = ["--log-level", level.lower()]
    server = subprocess.Popen(
        [*command, "serve", "--emulate", "--bind", "127.0.0.1", "--port", "0", *logging_options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is the program's
        preexec_fn=_end_with_parent,
    )
    try:
        assert server.stdout is not None
        address = _address(server.stdout)
        return _run_and_pass_signals([*command, "run", "--host", address, *logging_options, "--", *program])
    finally:
        server.terminate()
        try:
            server.wait(_SERVER_END_S)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()
        if server.stdout is not None:
            server.stdout.close()


def _end_with_parent() -> None:
    """In the server's process: SIGTERM when we die, even of SIGKILL."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def _address(output: IO[bytes]) -> str:
    """HOST:PORT from the server's first line; ConnectError if it ends without one."""
    match = _LISTENING.search(output.readline())
    if match is None:
        raise ConnectError("the private server for the emulated device did not start", hint="its reason is above")
    return match.group(1).decode()


def _run_and_pass_signals(command: list[str]) -> int:
    """Runs `langpu run` in our process group; passes on what was sent to us alone."""
    watched = _FORWARDED | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    try:
        child = subprocess.Popen(command, preexec_fn=lambda: signal.pthread_sigmask(signal.SIG_SETMASK, before))
        while True:
            info = signal.sigwaitinfo(watched)
            if info.si_signo == signal.SIGCHLD:
                code = child.poll()
                if code is not None:
                    return 128 - code if code < 0 else code
            elif info.si_code != _SI_KERNEL:
                child.send_signal(info.si_signo)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
