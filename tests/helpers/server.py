"""`langpu serve` as a process on loopback, and a client that speaks the protocol by hand."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from lanGPU.driverapi import table
from lanGPU.wire import events as ev
from lanGPU.wire.connection import Connection, Role, joined
from lanGPU.wire.handshake import Hello, Welcome
from lanGPU.wire.records import Value, encode, make_handle

ENV_DRIVER = "LANGPU_TEST_DRIVER"
"""A folder with a libcuda.so.1 to serve instead of the emulated driver."""
START_TIMEOUT_S = 60.0
READY = re.compile(r"^langpu serve: listening on (\S+):(\d+) \((\d+) GPUs?: (.+)\)\n$")
_BY_OPTIONS = """
import json, logging, sys
logging.basicConfig(level="INFO")
from lanGPU.errors import LanGPUError
from lanGPU.server.daemon import ServeOptions, serve
try:
    sys.exit(serve(ServeOptions(**json.loads(sys.argv[1]))))
except LanGPUError as error:
    print(f"{error}\\nhint: {error.hint}", file=sys.stderr)
    sys.exit(error.exit_code)
"""


def wait_until(condition: Callable[[], bool], timeout_s: float = 10.0) -> bool:
    """Whether `condition` became true in time. For what other processes do and nobody tells us of."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


class ServerProcess:
    """`langpu serve --port 0`, ended with its context. `options`: fields of ServeOptions that the command line has no flag for."""

    def __init__(self, *arguments: str, port: int = 0, emulate: bool = True, env: dict[str, str] | None = None, **options: Any) -> None:
        self.env = {**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})}
        driver = os.environ.get(ENV_DRIVER)
        if emulate and driver:
            emulate = False
            self.env["LD_LIBRARY_PATH"] = driver
        if options:
            options = {"port": port, "emulate": emulate, **options}
            self._command = [sys.executable, "-c", _BY_OPTIONS, json.dumps(options)]
        else:
            flags = ["--emulate"] if emulate else []
            self._command = [sys.executable, "-m", "lanGPU.cli.main", "serve", "--port", str(port), *flags, *arguments]
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 (closed with the process)
        self.process: subprocess.Popen[str] | None = None
        self.host, self.port, self.devices = "", 0, ""

    def start(self) -> "ServerProcess":
        """Starts and waits for the ready line; AssertionError with the server's words if it ends instead."""
        self.launch()
        assert self.process is not None
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        match = READY.match(line)
        if match is None:
            self.kill()
            raise AssertionError(f"no ready line but {line!r}; stderr:\n{self.stderr()}")
        self.host, self.port, self.devices = match[1], int(match[2]), match[4]
        return self

    def launch(self) -> None:
        """Starts without waiting."""
        self.process = subprocess.Popen(
            self._command, env=self.env, stdout=subprocess.PIPE, stderr=self._stderr, text=True, cwd=Path.home()
        )

    def stderr(self) -> str:
        """Everything written to stderr so far."""
        self._stderr.seek(0)
        return self._stderr.read()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def workers(self) -> list[psutil.Process]:
        """The server's worker processes."""
        return psutil.Process(self.pid).children(recursive=True)

    def signal(self, number: int = signal.SIGTERM) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def wait(self, timeout_s: float = 20.0) -> int:
        """The exit code."""
        assert self.process is not None
        return self.process.wait(timeout_s)

    def run_to_end(self, timeout_s: float = 30.0) -> tuple[int, str, str]:
        """For a server that cannot start: exit code, stdout, stderr."""
        self.launch()
        return self.collect(timeout_s)

    def collect(self, timeout_s: float = 30.0) -> tuple[int, str, str]:
        """Waits for the end: exit code, stdout, stderr."""
        assert self.process is not None
        try:
            out, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        words = self.stderr()
        self._stderr.close()
        return self.process.returncode, out, words

    def kill(self) -> None:
        """SIGKILL, and whatever workers there are."""
        if self.process is None:
            return
        workers = self.workers() if self.process.poll() is None else []
        self.process.kill()
        self.process.wait()
        for worker in workers:
            if worker.is_running():
                psutil.wait_procs([worker], timeout=5)

    def __enter__(self) -> "ServerProcess":
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self.process is not None
        workers = []
        if self.process.poll() is None:
            workers = self.workers()
            self.signal()
            self.signal()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()
                raise
        _, alive = psutil.wait_procs(workers, timeout=5)
        for worker in alive:
            worker.kill()
        if self.process.stdout is not None:
            self.process.stdout.close()
        words = self.stderr()
        self._stderr.close()
        if kind is not None:
            sys.stderr.write(words)
        assert not alive, f"workers outlived their daemon: {alive}"


class RawClient:
    """The protocol by hand: a socket and a Connection."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = 20.0) -> None:
        self.sock = socket.create_connection((host, port), timeout_s)
        self.connection = Connection(Role.CLIENT)
        self.logs: list[ev.LogReceived] = []
        self._token = 0
        self._handles = 0

    def open(self, **hello: Any) -> Welcome:
        """HELLO and WELCOME."""
        event = self.greet(**hello)
        assert isinstance(event, ev.WelcomeReceived), event
        return event.welcome

    def greet(self, **hello: Any) -> ev.Event:
        """HELLO, and what the server answers."""
        self.connection.send_hello(Hello(**{"program": "test", "pid": os.getpid(), "host": "here", **hello}))
        self.flush()
        return self.event()

    def flush(self) -> None:
        self.sock.sendall(joined(self.connection.data_to_send()))

    def event(self) -> ev.Event:
        """The next event; TimeoutError if none comes."""
        while (event := self.connection.next_event()) is None:
            self.connection.buffer_received(self.sock.recv_into(self.connection.get_buffer()))
        return event

    def name(self) -> int:
        """A fresh name for a handle."""
        self._handles += 1
        return make_handle(self._handles, 0)

    def post(self, row: str, *values: Value, thread: int = 0) -> None:
        """A call that nobody waits for."""
        self.connection.send_records(encode(table.BY_NAME[row], values, thread=thread))
        self.flush()

    def send(self, row: str, *values: Value, thread: int = 0, flags: int = 0) -> int:
        """A call whose reply is read later; returns its token."""
        self._token += 1
        self.connection.send_records(encode(table.BY_NAME[row], values, thread=thread, token=self._token, flags=flags))
        self.flush()
        return self._token

    def reply(self, token: int) -> tuple[int, bytes]:
        """CUresult and outputs of the call with `token`, which must be the next reply."""
        while True:
            event = self.event()
            if isinstance(event, ev.LogReceived):
                self.logs.append(event)
                continue
            assert isinstance(event, ev.ReplyReceived), event
            assert event.token == token
            return event.result, bytes(event.outputs)

    def ask(self, row: str, *values: Value, thread: int = 0) -> tuple[int, bytes]:
        """A call and its reply."""
        return self.reply(self.send(row, *values, thread=thread))

    def goodbye(self) -> None:
        """An orderly end."""
        self.connection.send_goodbye("exit")
        self.flush()
        while not isinstance(self.event(), ev.ConnectionClosed):
            pass
        self.close()

    def close(self) -> None:
        self.sock.close()

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def ask_status(port: int) -> dict[str, Any]:
    """The STATUS map."""
    with RawClient(port) as client:
        event = client.greet(purpose="status")
        assert isinstance(event, ev.StatusReceived), event
        return event.status
