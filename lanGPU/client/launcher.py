"""`langpu run`: checks the server, starts the program with the shim in its library path, serves it until it ends.

The program keeps our terminal, process group, stdin, stdout and stderr. Each of its processes that makes a CUDA call attaches by
itself and gets a session of its own. When the main program ended and other processes still use the GPU, we go on serving them
until they end too (the exit code stays the main program's); a second signal, or --timeout, ends them.
"""

import asyncio
import contextlib
import errno
import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lanGPU.client import layout as lay
from lanGPU.client import pump
from lanGPU.client.link import Link, address_text, open_session
from lanGPU.client.registrar import Registrar, program_name
from lanGPU.client.session import Session
from lanGPU.client.signals import PASSED_ON, SignalEvents
from lanGPU.client.stats import render, summary, write_json
from lanGPU.client.symbols import Shim, ensure
from lanGPU.errors import ConfigError, ProgramError, ProgramPermissionError

EXIT_TIMEOUT: Final = 124
"""As timeout(1)."""
_KILL_AFTER_S: Final = 5.0
"""Between SIGTERM and SIGKILL of a program that ran too long."""
_DOUBLE_CTRL_C_S: Final = 0.5
"""An interrupt sent by a process may have gone to our whole group: the program gets ours only if it is still there after this."""
_STUCK_AFTER_S: Final = 3.0
"""After an interrupt: a call that waited all this time and got no reply may never return, and nor would the program."""
ENV_BLOCKING: Final = "LANGPU_BLOCKING"


@dataclass(frozen=True)
class RunOptions:
    """What `langpu run` was told."""

    program: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 0
    stats: bool = False
    stats_json: Path | None = None
    timeout_s: float | None = None
    report_unsupported: bool = False


def find_program(name: str, environment: Mapping[str, str] = os.environ) -> str:
    """The path that execvp would take.

    Raises:
        ProgramError: there is none. ProgramPermissionError: it may not be executed.
    """
    if not name:
        raise ProgramError("the program's name is empty")
    if os.path.dirname(name):
        path = Path(name)
        if not path.exists():
            raise ProgramError(f"{name}: no such file", hint="check the path")
        if path.is_dir():
            raise ProgramPermissionError(f"{name} is a folder")
        if not os.access(name, os.X_OK):
            raise ProgramPermissionError(f"{name} may not be executed", hint=_permission_hint(name))
        return name
    search = environment.get("PATH", os.defpath)
    found = shutil.which(name, path=search)
    if found is not None:
        return found
    for folder in search.split(os.pathsep):
        candidate = Path(folder or ".", name)
        if candidate.is_file():
            raise ProgramPermissionError(f"{candidate} may not be executed", hint=_permission_hint(str(candidate)))
    raise ProgramError(f"{name}: not found in PATH", hint="check the spelling, or give its path")


def _permission_hint(name: str) -> str:
    return f"try `python {name}`" if name.endswith(".py") else f"`chmod +x {name}` makes it executable"


def run(options: RunOptions) -> int:
    """Run the program; its exit code, or 128 + the signal that ended it, or EXIT_TIMEOUT.

    Raises:
        ProgramError, ConnectError, TransportTimeoutError, RemoteProtocolError, VersionMismatchError, RefusedError, ConfigError:
            nothing was started.
    """
    program = find_program(options.program[0])
    if options.stats_json is not None:
        _check_writable(options.stats_json)
    link = open_session(options.host, options.port, program=os.path.basename(program), pid=os.getpid())
    try:
        shim = ensure()
        launcher = _Launcher(options, program, link, shim)
    except BaseException:
        link.close()
        raise
    return asyncio.run(launcher.main())


def _check_writable(path: Path) -> None:
    """Better before the program ran than after. Raises ConfigError."""
    if path.exists():
        if not os.access(path, os.W_OK):
            raise ConfigError(f"statistics cannot be written to {path}: it is not writable")
        return
    write_json(path, {})
    path.unlink()


class _Launcher:
    def __init__(self, options: RunOptions, program: str, link: Link, shim: Shim) -> None:
        self.options = options
        self.program = program
        self.shim = shim
        self.welcome = link.welcome
        self._spare = [link]
        """The connection that the first process takes."""
        self.pid = 0
        self.exit_code: int | None = None
        self.timed_out = False
        self.blocking = os.environ.get(ENV_BLOCKING, "") not in ("", "0")
        self._timers: list[asyncio.TimerHandle] = []
        self._compiler: threading.Thread | None = None

    # --- sessions --------------------------------------------------------------------------------------------------------
    def _open(self, pid: int, program: str) -> Link:
        """Called by a session's forwarder thread."""
        try:
            link = self._spare.pop()
        except IndexError:
            return open_session(self.options.host, self.options.port, program=program, pid=pid)
        if _is_open(link.sock):
            return link
        link.close()
        return open_session(self.options.host, self.options.port, program=program, pid=pid)

    def _make_session(self, pid: int, load_address: int) -> Session:
        if self._compiler is None:
            # Here, not earlier: threads made before SignalEvents would take the signals, and not every program uses CUDA.
            self._compiler = threading.Thread(target=pump.load, name="langpu-compile")
            self._compiler.start()
        return Session(
            pid,
            self._open,
            self.shim.at(load_address),
            program=program_name(pid),
            probe_address=load_address,
            blocking=self.blocking,
        )

    # --- the program -----------------------------------------------------------------------------------------------------
    def _environment(self, socket_path: Path) -> dict[str, str]:
        environment = dict(os.environ)
        folder = str(self.shim.folder)
        old = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = f"{folder}:{old}" if old else folder
        environment[lay.ENV_SOCKET] = str(socket_path)
        return environment

    def _spawn(self, registrar: Registrar, signals: SignalEvents) -> int:
        """Start the program in our process group. Raises ProgramError."""
        try:
            return os.posix_spawn(
                self.program,
                self.options.program,
                self._environment(registrar.path),
                setsigmask=signals.previous_mask,
                setsigdef=[s for s in (signal.SIGPIPE, signal.SIGXFSZ) if s in signal.valid_signals()],  # Python ignores these
            )
        except OSError as exc:
            if exc.errno == errno.ENOEXEC:
                raise ProgramPermissionError(f"{self.program} is not a program of this machine", hint="a script needs a #! line") from exc
            if exc.errno in (errno.EACCES, errno.EPERM):
                raise ProgramPermissionError(f"{self.program} may not be executed: {exc.strerror}") from exc
            raise ProgramError(f"{self.program} cannot be started: {exc.strerror}") from exc

    async def main(self) -> int:
        """Start, serve, report."""
        started = time.monotonic()
        self._finished = asyncio.Event()
        registrar = Registrar(self._make_session, self.shim.digest)
        self._registrar = registrar
        signals = SignalEvents(PASSED_ON, self._on_signal)
        try:
            self.pid = self._spawn(registrar, signals)
            await self._until_ended(registrar)
        finally:
            for timer in self._timers:
                timer.cancel()
            await registrar.close()
            while self._spare:
                self._spare.pop().close()
            if self._compiler is not None:
                await asyncio.to_thread(self._compiler.join)
            signals.close()
        assert self.exit_code is not None
        code = EXIT_TIMEOUT if self.timed_out else self.exit_code
        self._report(registrar, time.monotonic() - started, code)
        return code

    async def _until_ended(self, registrar: Registrar) -> None:
        loop = asyncio.get_running_loop()
        pidfd = os.pidfd_open(self.pid)
        ended = asyncio.Event()
        loop.add_reader(pidfd, ended.set)
        if self.options.timeout_s is not None:
            self._later(self.options.timeout_s, self._on_timeout)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(pidfd)
            os.close(pidfd)
        _, status = os.waitpid(self.pid, os.WNOHANG)  # noqa: ASYNC222  # the pidfd said that it ended
        code = os.waitstatus_to_exitcode(status)
        self.exit_code = code if code >= 0 else 128 - code
        await self._serve_the_rest(registrar)

    async def _serve_the_rest(self, registrar: Registrar) -> None:
        """Processes that outlive the main program are served until they end."""
        told = False
        while registrar.sessions and not self._finished.is_set():
            pids = sorted(session.pid for session in registrar.sessions if session.pid != self.pid)
            if pids and not told:
                told = True
                _say(f"the program ended; still serving {len(pids)} of its processes: {', '.join(map(str, pids))}")
            registrar.changed.clear()
            waiters = [asyncio.ensure_future(registrar.changed.wait()), asyncio.ensure_future(self._finished.wait())]
            await asyncio.wait(waiters, return_when=asyncio.FIRST_COMPLETED)
            for waiter in waiters:
                waiter.cancel()

    # --- signals and time ------------------------------------------------------------------------------------------------
    def _later(self, delay_s: float, action: Callable[[], object]) -> None:
        self._timers.append(asyncio.get_running_loop().call_later(delay_s, action))

    def _send(self, number: signal.Signals) -> None:
        """To the program; once it ended, to what remains of it."""
        if self.exit_code is None:
            _kill(self.pid, number)
            return
        for session in self._registrar.sessions:
            _kill(session.pid, number)

    def _on_signal(self, number: signal.Signals, from_terminal: bool) -> None:
        if self.exit_code is not None:
            # The main program is gone: whoever signals wants the rest gone too.
            if not from_terminal:
                self._send(number)
            if number in (signal.SIGINT, signal.SIGTERM, signal.SIGQUIT, signal.SIGHUP):
                self._later(_KILL_AFTER_S, self._finished.set)
            return
        if number is signal.SIGINT:
            waiting = {session: reply for session in self._registrar.sessions if (reply := session.waits_for_reply()) is not None}
            self._later(_STUCK_AFTER_S, lambda: self._free_stuck(waiting))
        if from_terminal:
            return  # the program has it already
        if number is signal.SIGINT:
            self._later(_DOUBLE_CTRL_C_S, self._interrupt)
        else:
            self._send(number)

    def _interrupt(self) -> None:
        if self.exit_code is None:
            self._send(signal.SIGINT)

    def _free_stuck(self, waiting: Mapping[Session, int]) -> None:
        """The shim's waits go on after a signal, so a program whose kernel never ends would not notice the interrupt."""
        for session, reply in waiting.items():
            if session in self._registrar.sessions and session.waits_for_reply() == reply:
                session.interrupt()

    def _on_timeout(self) -> None:
        self.timed_out = True
        _say(f"the program ran longer than {self.options.timeout_s:g} s and is ended")
        for session in self._registrar.sessions:
            if session.pid != self.pid:
                _kill(session.pid, signal.SIGTERM)
        if self.exit_code is None:
            _kill(self.pid, signal.SIGTERM)
        self._later(_KILL_AFTER_S, self._on_patience_over)

    def _on_patience_over(self) -> None:
        for session in self._registrar.sessions:
            _kill(session.pid, signal.SIGKILL)
        if self.exit_code is None:
            _kill(self.pid, signal.SIGKILL)
        self._finished.set()

    # --- at the end ------------------------------------------------------------------------------------------------------
    def _report(self, registrar: Registrar, wall_s: float, code: int) -> None:
        if self.options.report_unsupported:
            counts = sum((session.engine.unsupported for session in registrar.ended), Counter[str]())
            _say("functions answered with not supported: " + ("" if counts else "none"))
            for name, count in sorted(counts.items()):
                _say(f"  {name} {count}")
        if not self.options.stats and self.options.stats_json is None:
            return
        devices = self.welcome.devices
        numbers = summary(
            [session.stats for session in registrar.ended],
            server=address_text(self.options.host, self.options.port),
            device=devices[0].name if devices else "",
            wall_s=wall_s,
            exit_code=code,
        )
        if self.options.stats:
            print(render(numbers), file=sys.stderr, flush=True)  # noqa: T201
        if self.options.stats_json is not None:
            write_json(self.options.stats_json, numbers)


def _is_open(sock: socket.socket) -> bool:
    """Whether the server kept the connection while the program started."""
    try:
        return sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def _kill(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _say(text: str) -> None:
    with contextlib.suppress(OSError):
        os.write(2, f"langpu: {text}\n".encode())
