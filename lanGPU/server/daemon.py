"""`langpu serve`: accepts clients, reads their HELLO, and gives each session to a worker process.

The daemon never loads a driver: what it knows of the devices comes from a probe process, so no CUDA context is ever its own.
"""

import asyncio
import contextlib
import dataclasses
import errno
import ipaddress
import logging
import os
import secrets
import select
import signal
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from lanGPU import __version__
from lanGPU.constants import DEFAULT_PORT, HANDSHAKE_TIMEOUT_S, PROTOCOL_VERSION, PROTOCOL_VERSION_MIN
from lanGPU.errors import ConfigError, LanGPUError, RemoteProtocolError, VersionMismatchError
from lanGPU.server.pool import Pool, WorkerProcess
from lanGPU.server.session import tune_socket
from lanGPU.wire import events as ev
from lanGPU.wire.connection import Connection, Role, joined
from lanGPU.wire.handshake import PURPOSE_SESSION, PURPOSE_STATUS, Hello, Refusal, choose_version

_log = logging.getLogger(__name__)

MAX_HANDSHAKES: Final = 64
"""Connections that have not finished their HELLO; one more ends the oldest, so that idlers cannot lock others out."""
BACKLOG: Final = 128
LINGER_S: Final = 1.0
"""After a last word to a client: how long its remaining bytes are read away, lest a reset overtakes that word."""
LINGER_BYTES: Final = 64 * 1024
VANISHED_S: Final = 1.5
"""A client that hung up gives its worker this long; the worker's own watchdog is faster where it can run at all."""
STATS_TIMEOUT_S: Final = 0.3


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How to serve. Times in seconds; `port` 0 takes a free one; `name` is shown to clients (empty: the host's)."""

    bind: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    emulate: bool = False
    insecure: bool = False
    name: str = ""
    max_sessions: int = 32
    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S
    worker_timeout_s: float = 60.0
    drain_timeout_s: float = 30.0


@dataclass(slots=True)
class _Session:
    """A session as the daemon sees it. `sock` is our own handle of the connection, to notice its end whatever the worker does."""

    id: str
    hello: Hello
    peer: str
    sock: socket.socket
    worker: WorkerProcess
    since: float
    vanished_at: float | None = None


def serve(options: ServeOptions) -> int:
    """Serves until SIGTERM or Ctrl-C; returns the exit code.

    Raises:
        ConfigError: the address cannot be used, is not loopback, or the port is taken.
        NoDeviceError: no driver or no device, and not `emulate`.
    """
    listener = listen(options)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            return runner.run(_Daemon(options, listener).run())
    finally:
        listener.close()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


def listen(options: ServeOptions) -> socket.socket:
    """The listening socket; ConfigError says what is wrong with the address."""
    where = f"{options.bind}:{options.port}"
    try:
        found = socket.getaddrinfo(options.bind, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (socket.gaierror, UnicodeError) as exc:
        raise ConfigError(f"{options.bind!r} is no address of this machine: {exc}", hint="use --bind 127.0.0.1") from exc
    family, kind, protocol, _, address = found[0]
    if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback:
        if not options.insecure:
            raise ConfigError(
                f"{options.bind} can be reached by other machines, and lanGPU does not yet check who connects, nor encrypt: "
                "anybody there could use the GPU, run code on it and read what others compute",
                hint="keep the loopback address (and use an SSH tunnel), or add --insecure if you trust every machine in the network",
            )
        _log.warning(
            "INSECURE: listening on %s. Every machine that reaches this address can use the GPU, and all traffic can be read.", where
        )
    sock = socket.socket(family, kind, protocol)
    try:
        if sys.platform == "win32":
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_EXCLUSIVEADDRUSE, 1)  # there REUSEADDR would share the port
        else:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as exc:
        sock.close()
        if exc.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {options.port} of {options.bind} is in use, perhaps by another `langpu serve`",
                hint="see `langpu status`; end the other program or choose another --port",
            ) from exc
        if exc.errno == errno.EACCES:
            raise ConfigError(f"no permission to listen on {where}", hint="choose a --port above 1023") from exc
        raise ConfigError(f"cannot listen on {where}: {exc.strerror}", hint="see --bind and --port") from exc
    return sock


def format_address(address: tuple[Any, ...]) -> str:
    """HOST:PORT, IPv6 in brackets."""
    return f"[{address[0]}]:{address[1]}" if ":" in str(address[0]) else f"{address[0]}:{address[1]}"


class _Daemon:
    def __init__(self, options: ServeOptions, listener: socket.socket) -> None:
        self._options = options
        self._listener = listener
        self._name = options.name or socket.gethostname()
        self._started = time.monotonic()
        arguments = ["--log-level", logging.getLevelName(_log.getEffectiveLevel())]
        if options.emulate:
            arguments.append("--emulate")
        self._arguments = arguments
        self._pool = Pool(arguments)
        self._probe: dict[str, Any] = {}
        self._sessions: dict[str, _Session] = {}
        self._starting = 0
        self._greetings: dict[asyncio.Task[None], float] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self._draining = False
        self._signals = 0
        self._signalled = asyncio.Event()
        self._session_ended = asyncio.Event()

    # --- life ----------------------------------------------------------------------------------------------------
    async def run(self) -> int:
        self._catch_signals()
        try:
            if not await self._learn_devices():
                return 0
            self._pool.start()
            self._spawn(self._accept())
            self._spawn(self._watch_clients())
            self._announce()
            await self._signalled.wait()
            await self._drain()
            return 0
        finally:
            await self._end()

    def _catch_signals(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                loop.add_signal_handler(number, self._on_signal)
            except NotImplementedError:  # Windows
                signal.signal(number, lambda *_: loop.call_soon_threadsafe(self._on_signal))

    def _on_signal(self) -> None:
        self._signals += 1
        self._signalled.set()
        self._session_ended.set()

    async def _learn_devices(self) -> bool:
        """Asks a probe process; False if a signal came first."""
        worker = await WorkerProcess.start([*self._arguments, "--probe"])
        answer = asyncio.create_task(worker.first_message())
        signalled = asyncio.create_task(self._signalled.wait())
        try:
            await asyncio.wait([answer, signalled], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                return False
            self._probe = answer.result()
            return True
        finally:
            for task in (answer, signalled):
                task.cancel()
            worker.kill()
            await worker.exited.wait()

    def _announce(self) -> None:
        names = [device["name"] for device in self._probe["devices"]]
        what = f"{len(names)} GPU{'' if len(names) == 1 else 's'}: {', '.join(names)}"
        # Scripts read the port from this line: it is the only one on stdout.
        sys.stdout.write(f"langpu serve: listening on {format_address(self._listener.getsockname())} ({what})\n")
        sys.stdout.flush()

    async def _drain(self) -> None:
        self._draining = True
        deadline = time.monotonic() + self._options.drain_timeout_s
        if self._sessions or self._starting:
            _log.warning(
                "stopping: %d session(s) may finish within %.0f s; press Ctrl-C again to end them now",
                len(self._sessions) + self._starting,
                self._options.drain_timeout_s,
            )
        while (self._sessions or self._starting) and self._signals < 2 and (left := deadline - time.monotonic()) > 0:
            self._session_ended.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._session_ended.wait(), left)

    async def _end(self) -> None:
        self._draining = True
        self._listener.close()
        for task in [*self._tasks, *self._greetings]:
            task.cancel()
        await asyncio.gather(*self._tasks, *self._greetings, return_exceptions=True)
        workers = [session.worker.stop("the server stops") for session in self._sessions.values()]
        await asyncio.gather(self._pool.close(), *workers)
        for session in self._sessions.values():
            session.sock.close()

    def _spawn(self, coroutine: Any) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a task of the daemon failed", exc_info=task.exception())

    # --- connections -----------------------------------------------------------------------------------------------
    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                sock, address = await loop.sock_accept(self._listener)
            except OSError as exc:
                # A peer that is gone already, or no file descriptors left: neither may end the server.
                _log.warning("accept: %s", exc)
                await asyncio.sleep(0.1)
                continue
            sock.setblocking(False)
            if len(self._greetings) >= MAX_HANDSHAKES:
                min(self._greetings, key=self._greetings.__getitem__).cancel()
            task = asyncio.create_task(self._greet(sock, format_address(address)))
            self._greetings[task] = time.monotonic()
            task.add_done_callback(self._greeted)

    def _greeted(self, task: "asyncio.Task[None]") -> None:
        self._greetings.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            _log.error("a handshake failed in us", exc_info=task.exception())

    async def _greet(self, sock: socket.socket, peer: str) -> None:
        """One connection up to the point where its fate is known. Closes `sock` in every case; a session has its own copy by then."""
        connection = Connection(Role.SERVER)
        try:
            with contextlib.suppress(OSError):
                tune_socket(sock)
            try:
                async with asyncio.timeout(self._options.handshake_timeout_s):
                    hello = await self._read_hello(sock, connection)
                if hello is None:
                    return
                await self._answer(sock, connection, hello, peer)
            except TimeoutError:
                _log.info("%s did not finish its handshake", peer)
                await self._refuse(sock, connection, "timeout", "the handshake took too long", "")
            except RemoteProtocolError as exc:
                _log.info("%s does not speak our protocol: %s", peer, exc)
                await self._refuse(sock, connection, "protocol", str(exc), exc.hint)
            except VersionMismatchError as exc:
                _log.info("%s: %s", peer, exc)
                await self._refuse(sock, connection, "version", str(exc), exc.hint)
        except OSError as exc:
            _log.debug("%s: %s", peer, exc)
        finally:
            sock.close()

    async def _read_hello(self, sock: socket.socket, connection: Connection) -> Hello | None:
        """The HELLO; None if the peer closed without a word (a port scanner)."""
        loop = asyncio.get_running_loop()
        while True:
            connection.receive_data(await loop.sock_recv(sock, 4096))
            event = connection.next_event()
            if isinstance(event, ev.HelloReceived):
                if connection.buffered_bytes:
                    raise RemoteProtocolError("bytes follow the HELLO")
                return event.hello
            if event is not None:
                return None

    async def _answer(self, sock: socket.socket, connection: Connection, hello: Hello, peer: str) -> None:
        version = choose_version(hello.min, hello.max)
        if hello.purpose == PURPOSE_STATUS:
            connection.send_status(await self._status())
            await self._last_words(sock, connection)
        elif hello.purpose != PURPOSE_SESSION:
            await self._refuse(sock, connection, "purpose", f"this server does not know the purpose {hello.purpose!r}", "")
        elif self._draining:
            await self._refuse(sock, connection, "stopping", "the server is stopping", "try again later, or another server")
        elif len(self._sessions) + self._starting >= self._options.max_sessions:
            count = self._options.max_sessions
            await self._refuse(sock, connection, "busy", f"the server has its limit of {count} sessions", "try again later")
        else:
            await self._open_session(sock, connection, hello, peer, version)

    async def _open_session(self, sock: socket.socket, connection: Connection, hello: Hello, peer: str, version: int) -> None:
        self._starting += 1
        try:
            worker = await self._pool.take(self._options.worker_timeout_s)
            session = _Session(secrets.token_hex(8), hello, peer, sock.dup(), worker, time.monotonic())
            message = {
                "type": "session",
                "session": session.id,
                "server": self._name,
                "version": version,
                "hello": dataclasses.asdict(hello),
            }
            self._sessions[session.id] = session
            self._spawn(self._follow(session))
            worker.give(sock, message)
        except (TimeoutError, LanGPUError, OSError) as exc:
            _log.error("no worker for %s: %s", peer, exc)
            await self._refuse(sock, connection, "worker", "the server could not start a worker process", "see the server's log")
        else:
            _log.info("session %s: %s (%d) on %s, worker %d", session.id, hello.program or "?", hello.pid, peer, worker.pid)
        finally:
            self._starting -= 1
            self._session_ended.set()

    async def _follow(self, session: _Session) -> None:
        """A session to its end."""
        worker = session.worker
        try:
            await worker.exited.wait()
        finally:
            if worker.exited.is_set():
                self._sessions.pop(session.id, None)
                with contextlib.suppress(OSError):
                    session.sock.shutdown(socket.SHUT_RDWR)
                session.sock.close()
                self._session_ended.set()
        if worker.returncode:
            _log.error("session %s: its worker %d ended with status %s", session.id, worker.pid, worker.returncode)
        else:
            _log.info("session %s ended: %s", session.id, worker.end_reason or "the client is gone")

    async def _watch_clients(self) -> None:
        """Ends workers whose client is gone and who do not notice: the machine they wait for may never answer."""
        if sys.platform == "win32":
            return
        while True:
            await asyncio.sleep(0.5)
            now = time.monotonic()
            for session in self._sessions.values():
                poll = select.poll()
                poll.register(session.sock, select.POLLRDHUP)
                if not poll.poll(0):
                    continue
                if session.vanished_at is None:
                    session.vanished_at = now
                elif now - session.vanished_at > VANISHED_S:
                    _log.warning("session %s: its client is gone, ending worker %d by force", session.id, session.worker.pid)
                    session.worker.kill()

    # --- last words --------------------------------------------------------------------------------------------------
    async def _refuse(self, sock: socket.socket, connection: Connection, reason: str, message: str, hint: str) -> None:
        connection.send_refuse(Refusal(reason, message, hint))
        await self._last_words(sock, connection)

    async def _last_words(self, sock: socket.socket, connection: Connection) -> None:
        """Sends what is queued and lets the client read it before the connection closes."""
        loop = asyncio.get_running_loop()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LINGER_S):
                await loop.sock_sendall(sock, joined(connection.data_to_send()))
                sock.shutdown(socket.SHUT_WR)
                read = 0
                while read < LINGER_BYTES and (data := await loop.sock_recv(sock, 4096)):
                    read += len(data)

    async def _status(self) -> dict[str, object]:
        now = time.monotonic()
        current = list(self._sessions.values())
        stats = await asyncio.gather(*(session.worker.stats(STATS_TIMEOUT_S) for session in current))
        sessions = [
            {
                "id": session.id,
                "peer": session.peer,
                "host": session.hello.host,
                "program": session.hello.program,
                "pid": session.hello.pid,
                "age_s": round(now - session.since, 3),
                "bytes_in": counters.get("bytes_in"),
                "bytes_out": counters.get("bytes_out"),
                "calls": counters.get("calls"),
            }
            for session, counters in zip(current, stats, strict=True)
        ]
        return {
            "name": self._name,
            "package": __version__,
            "protocol": {"min": PROTOCOL_VERSION_MIN, "max": PROTOCOL_VERSION},
            "pid": os.getpid(),
            "uptime_s": round(now - self._started, 3),
            "driver_version": self._probe["driver_version"],
            "emulated": self._probe["emulated"],
            "draining": self._draining,
            "max_sessions": self._options.max_sessions,
            "devices": [
                {
                    "index": index,
                    "name": device["name"],
                    "uuid": device["uuid"].hex(),
                    "pci_bus_id": device["pci_bus_id"],
                    "total_bytes": device["total_bytes"],
                    "free_bytes": None,  # asking the driver takes a context, which costs device memory
                }
                for index, device in enumerate(self._probe["devices"])
            ],
            "sessions": sessions,
        }
