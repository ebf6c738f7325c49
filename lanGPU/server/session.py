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
from dataclasses import replace
from typing import Final, Never

from lanGPU.driverapi import table
from lanGPU.errors import LanGPUError, RemoteProtocolError
from lanGPU.server import kernel_output
from lanGPU.server.control import WorkerControl
from lanGPU.server.driver import Driver
from lanGPU.server.issuer import Issuer
from lanGPU.server.reference import Executor
from lanGPU.wire import events as ev
from lanGPU.wire.connection import Buffer, Connection, Role
from lanGPU.wire.handshake import CAP_KERNEL_OUTPUT, Hello, Refusal, Welcome

_log = logging.getLogger(__name__)

POLL_S: Final = 0.5
"""How often a watchdog looks that cannot be woken by the event itself."""
GRACE_S: Final = 1.0
"""A client that is gone gives the issuing thread this long to notice and end by itself; then the process ends, whatever it does."""
_IOV_MAX: Final = 1024


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
        self._issuer = Issuer(driver, executor, table.BY_ID, send=self._send, log=self._send_log)
        self._wants_output = CAP_KERNEL_OUTPUT in hello.caps and kernel_output.supported()
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
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._issuer.close()
        if capture is not None:
            with contextlib.suppress(OSError):
                capture.close()
        return reason

    def _loop(self) -> str:
        connection, issuer, sock = self._connection, self._issuer, self._sock
        while True:
            n = sock.recv_into(connection.get_buffer())
            self.bytes_in += n
            connection.buffer_received(n)
            with issuer.lock:
                while (event := connection.next_event()) is not None:
                    if isinstance(event, ev.RecordsReceived):
                        issuer.feed(event.data)
                    elif isinstance(event, ev.PingReceived):
                        connection.send_pong(event.id)
                        self._send(connection.data_to_send())
                    elif isinstance(event, ev.GoodbyeReceived):
                        connection.send_goodbye("bye")
                        self._send(connection.data_to_send())
                        return "the client said goodbye"
                    elif isinstance(event, ev.ConnectionClosed):
                        return "the client closed the connection"

    def goodbye(self, reason: str) -> None:
        """Tells the client why, if that is still possible at once."""
        if not self._issuer.lock.acquire(timeout=0.2):
            return  # the issuing thread is in the driver, perhaps for ever
        try:
            with contextlib.suppress(OSError, LanGPUError):
                self._sock.settimeout(0.2)
                self._connection.send_goodbye(reason)
                self._send(self._connection.data_to_send())
        finally:
            self._issuer.lock.release()

    # --- sending; always under the issuer's lock ---------------------------------------------------------------------
    def _send(self, buffers: list[Buffer]) -> None:
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
        self._connection.send_log(level, text)
        self._send(self._connection.data_to_send())

    def _send_output(self, printed: list[tuple[int, bytes]]) -> None:
        with contextlib.suppress(LanGPUError):  # we said goodbye already
            for descriptor, data in printed:
                self._connection.send_kernel_output(descriptor, data)
        self._send(self._connection.data_to_send())

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
