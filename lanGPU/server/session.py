"""One session in its worker process: the socket's issuing loop and the watchdog beside it.

"No event loop between the socket and the reply": the issuing thread receives, carries out and sends with plain blocking calls. The
watchdog thread does nothing but poll for a client or a daemon that is gone, because the issuing thread may be in the driver for ever.
"""

import contextlib
import logging
import os
import select
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final, Never

from lanGPU.driverapi import table
from lanGPU.errors import LanGPUError, RemoteProtocolError
from lanGPU.server import kernel_output
from lanGPU.server.callbacks import HostCalls
from lanGPU.server.control import WorkerControl
from lanGPU.server.driver import Driver
from lanGPU.server.issuer import Issuer
from lanGPU.server.reference import Executor
from lanGPU.wire import events as ev
from lanGPU.wire.connection import Buffer, Connection, Role
from lanGPU.wire.handshake import CAP_HOST_CALLS, CAP_KERNEL_OUTPUT, Hello, Refusal, Welcome

_log = logging.getLogger(__name__)

POLL_S: Final = 0.5
"""How often a watchdog looks that cannot be woken by the event itself."""
GRACE_S: Final = 1.0
"""A client that is gone gives the issuing thread this long to notice and end by itself; then the process ends, whatever it does."""
_IOV_MAX: Final = 1024
_INBOX_BYTES: Final = 256 * 1024 * 1024
"""Records that the reader keeps for the issuing thread; a client with more than that on its way may wait for its own host function."""


class _Inbox:
    """What the reader received and the issuing thread has not taken."""

    def __init__(self) -> None:
        self._items: deque[ev.Event | Exception] = deque()
        self._bytes = 0
        self._changed = threading.Condition()

    def put(self, item: ev.Event | Exception, size: int = 0) -> None:
        """Adds an item of that many bytes; waits while there are too many."""
        with self._changed:
            while self._bytes > _INBOX_BYTES:
                self._changed.wait()
            self._items.append(item)
            self._bytes += size
            self._changed.notify_all()

    def take(self) -> ev.Event:
        """The oldest item, when there is one; an exception is raised."""
        with self._changed:
            while not self._items:
                self._changed.wait()
            item = self._items.popleft()
            if isinstance(item, ev.RecordsReceived):
                self._bytes -= len(item.data)
                self._changed.notify_all()
        if isinstance(item, Exception):
            raise item
        return item


def tune_socket(sock: socket.socket) -> None:
    """No Nagle delay; a peer whose machine vanished without a word is noticed within half a minute."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 30_000)):
        option = getattr(socket, name, None)
        if option is not None:
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.IPPROTO_TCP, option, value)


class Session:
    """Serves one client on `sock`, whose HELLO the daemon read; `run` returns when the session is over."""

    def __init__(self, sock: socket.socket, hello: Hello, control: WorkerControl, driver: Driver, executor: Executor) -> None:
        self._sock = sock
        self._control = control
        self._connection = Connection(Role.SERVER, hello=hello)
        can_call = CAP_HOST_CALLS in hello.caps
        self._host_calls = HostCalls(self._call_host, self._listen)
        self._issuer = Issuer(
            driver, executor, table.BY_ID, send=self._send, log=self._send_log, host_calls=self._host_calls if can_call else None
        )
        self._wants_output = CAP_KERNEL_OUTPUT in hello.caps and kernel_output.supported()
        self._inbox: _Inbox | None = None
        """Not None: the reader receives, because the issuing thread may have to wait for the client while it is in the driver."""
        self._send_lock = threading.Lock()
        self._say_lock = threading.Lock()
        self._over = threading.Event()
        self.bytes_in = 0
        self.bytes_out = 0

    def welcome(self, welcome: Welcome) -> None:
        """Answers the HELLO."""
        if self._wants_output:
            welcome = replace(welcome, caps=(*welcome.caps, CAP_KERNEL_OUTPUT))
        self._connection.send_welcome(welcome)
        self._send(self._connection.data_to_send())

    def refuse(self, reason: str, message: str, hint: str) -> None:
        """Answers the HELLO with a no."""
        with contextlib.suppress(OSError):
            self._connection.send_refuse(Refusal(reason, message, hint))
            self._send(self._connection.data_to_send())
            self._sock.shutdown(socket.SHUT_WR)

    def run(self) -> str:
        """The session from WELCOME to its end; returns how it ended, in a few words. Nothing of the client's escapes as an exception."""
        capture = kernel_output.OutputCapture.start() if self._wants_output else None
        if capture is not None:
            self._issuer.print_from(capture.take, self._send_output)
        threading.Thread(target=self._watch, name="watchdog", daemon=True).start()
        try:
            reason = self._loop()
        except RemoteProtocolError as exc:
            reason = f"protocol error: {exc}"
            self.goodbye(reason)
        except OSError as exc:
            reason = f"connection lost: {exc.strerror or exc}"
        finally:
            self._over.set()
            self._host_calls.end()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._issuer.close()
        if capture is not None:
            with contextlib.suppress(OSError):
                capture.close()
        return reason

    def _loop(self) -> str:
        connection, issuer = self._connection, self._issuer
        while self._inbox is None:
            self._receive()
            with issuer.lock:
                while self._inbox is None and (event := connection.next_event()) is not None:
                    if (reason := self._on_event(event)) is not None:
                        return reason
        while True:
            event = self._inbox.take()
            with issuer.lock:
                if (reason := self._on_event(event)) is not None:
                    return reason

    def _receive(self) -> None:
        n = self._sock.recv_into(self._connection.get_buffer())
        self.bytes_in += n
        self._connection.buffer_received(n)

    def _on_event(self, event: ev.Event) -> str | None:
        """Carries out what the client sent, under the issuer's lock; not None: how the session ended."""
        connection = self._connection
        if isinstance(event, ev.RecordsReceived):
            self._issuer.feed(event.data)
        elif isinstance(event, ev.PingReceived):
            self._say(lambda: connection.send_pong(event.id))
        elif isinstance(event, ev.GoodbyeReceived):
            self._say(lambda: connection.send_goodbye("bye"))
            return "the client said goodbye"
        elif isinstance(event, ev.ConnectionClosed):
            return "the client closed the connection"
        return None

    # --- functions of the program ------------------------------------------------------------------------------------
    def _listen(self) -> None:
        """The issuing thread, in the middle of a record: from now on a reader receives in its place."""
        self._connection.leave_buffer()  # that record lies in the old one
        self._inbox = _Inbox()
        threading.Thread(target=self._read, args=(self._inbox,), name="reader", daemon=True).start()

    def _read(self, inbox: _Inbox) -> None:
        try:
            while self._hand_over(inbox):
                self._receive()
        except (RemoteProtocolError, OSError) as exc:
            inbox.put(exc)
        self._host_calls.end()

    def _hand_over(self, inbox: _Inbox) -> bool:
        """What was received, to the issuing thread; False: nothing will come any more."""
        while (event := self._connection.next_event()) is not None:
            if isinstance(event, ev.HostDoneReceived):
                self._host_calls.done(event.call)
            elif isinstance(event, ev.RecordsReceived):
                data = memoryview(bytearray(event.data))
                inbox.put(ev.RecordsReceived(data), len(data))
            else:
                inbox.put(event)
                if isinstance(event, ev.ConnectionClosed | ev.GoodbyeReceived):
                    return False
        return True

    def goodbye(self, reason: str) -> None:
        """Tells the client why, if that is still possible at once."""
        if not self._issuer.lock.acquire(timeout=0.2):
            return  # the issuing thread is in the driver, perhaps for ever
        try:
            with contextlib.suppress(OSError, LanGPUError):
                self._sock.settimeout(0.2)
                self._say(lambda: self._connection.send_goodbye(reason))
        finally:
            self._issuer.lock.release()

    # --- sending; under the issuer's lock, but for host calls --------------------------------------------------------
    def _say(self, put: Callable[[], None]) -> None:
        """What `put` gives to the connection, sent at once; from any thread."""
        with self._say_lock:
            put()
            self._send(self._connection.data_to_send())

    def _call_host(self, frame: bytes) -> None:
        """A host call, behind what kernels printed before it; from any thread."""
        self._issuer.flush_printed()
        self._send([frame])

    def _send(self, buffers: list[Buffer]) -> None:
        with self._send_lock:
            self._send_now(buffers)

    def _send_now(self, buffers: list[Buffer]) -> None:
        if len(buffers) == 1:
            self._sock.sendall(buffers[0])
            self.bytes_out += len(buffers[0])
            return
        total = sum(map(len, buffers))
        self.bytes_out += total
        if sys.platform == "win32":
            self._sock.sendall(b"".join(buffers))
            return
        sent = self._sock.sendmsg(buffers[:_IOV_MAX])
        if sent == total:
            return
        for buffer in buffers:
            if sent >= len(buffer):
                sent -= len(buffer)
                continue
            self._sock.sendall(memoryview(buffer)[sent:])
            sent = 0

    def _send_log(self, level: str, text: str) -> None:
        self._say(lambda: self._connection.send_log(level, text))

    def _send_output(self, printed: list[tuple[int, bytes]]) -> None:
        with contextlib.suppress(LanGPUError):  # we said goodbye already
            for descriptor, data in printed:
                self._say(partial(self._connection.send_kernel_output, descriptor, data))

    # --- watchdog ----------------------------------------------------------------------------------------------------
    def stats(self) -> dict[str, object]:
        """What `langpu status` shows of this session's traffic."""
        return {"bytes_in": self.bytes_in, "bytes_out": self.bytes_out, "calls": self._issuer.calls}

    def _watch(self) -> None:
        """Ends the process when the client or the daemon is gone, however long the issuing thread stays in the driver."""
        if sys.platform == "win32":  # no poll for a hang-up there: the daemon's word and its end are all we watch
            while self._on_control():
                pass
            _end(1)
        poll = select.poll()
        poll.register(self._control.fileno(), select.POLLIN)
        poll.register(self._sock.fileno(), select.POLLRDHUP)
        while True:
            for fd, _ in poll.poll():
                if fd != self._control.fileno():
                    # The rest of what the client sent may still be carried out, but not for long.
                    if self._over.wait(GRACE_S):
                        return  # the main thread ends the process itself
                    _log.info("the client is gone, and a call is still running")
                    _end(0)
                if not self._on_control():
                    _end(1)

    def _on_control(self) -> bool:
        """One message of the daemon; False: it is gone."""
        message = self._control.receive()
        if message is None:
            return False
        if message["type"] == "stats":
            self._control.send({"type": "stats", "id": message["id"], **self.stats()})
        elif message["type"] == "stop":
            self.goodbye(str(message.get("reason", "the server stops")))
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            self._over.wait(0.2)  # the issuing thread's last log line
            _end(0)
        return True


def _end(code: int) -> Never:
    """Ends the process now: threads in the driver cannot be ended in any other way."""
    logging.shutdown()
    os._exit(code)
