"""A connection to a server, opened: TCP, HELLO, WELCOME; and every way in which that fails, in words."""

import contextlib
import os
import socket
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lanGPU.constants import CONNECT_TIMEOUT_S, HANDSHAKE_TIMEOUT_S
from lanGPU.errors import (
    ConnectError,
    LanGPUError,
    RefusedError,
    RemoteProtocolError,
    TransportTimeoutError,
    VersionMismatchError,
)
from lanGPU.wire import events as ev
from lanGPU.wire.connection import Buffer, Connection, Role
from lanGPU.wire.handshake import CAP_HOST_CALLS, CAP_KERNEL_OUTPUT, PURPOSE_SESSION, PURPOSE_STATUS, Hello, Welcome

_SOCKET_BUFFER_BYTES: Final = 4 * 1024 * 1024
"""Asked of the kernel for each direction: the bandwidth-delay product of 1 Gbit/s at 30 ms. The kernel may give less."""
_IOV_MAX: Final = 1024
"""Buffers of one sendmsg (Linux, UIO_MAXIOV)."""


def address_text(host: str, port: int) -> str:
    """HOST:PORT for people, IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


@dataclass
class Link:
    """An open session's socket and protocol state; `preread` events came together with the WELCOME."""

    sock: socket.socket
    connection: Connection
    welcome: Welcome
    connect_s: float
    preread: list[ev.Event] = field(default_factory=list)

    def close(self) -> None:
        """Say goodbye if that needs no waiting, and close."""
        with contextlib.suppress(OSError, LanGPUError):
            self.connection.send_goodbye("unused")
            self.sock.setblocking(False)
            self.sock.sendmsg(self.connection.data_to_send())
        self.sock.close()


def send_buffers(sock: socket.socket, buffers: Sequence[Buffer]) -> int:
    """Send everything, in order; returns the number of bytes. Raises OSError."""
    if len(buffers) == 1:
        sock.sendall(buffers[0])
        return len(buffers[0])
    total = sum(map(len, buffers))
    sent = sock.sendmsg(buffers[:_IOV_MAX]) if len(buffers) > _IOV_MAX else sock.sendmsg(buffers)
    if sent == total:
        return total
    left = total - sent
    rest = list(buffers)
    while left:
        at = 0
        while sent >= len(rest[at]):
            sent -= len(rest[at])
            at += 1
        rest = rest[at:]
        if sent:
            rest[0] = memoryview(rest[0])[sent:]
        sent = sock.sendmsg(rest[:_IOV_MAX])
        left -= sent
    return total


def _connect(host: str, port: int, timeout_s: float) -> socket.socket:
    where = address_text(host, port)
    try:
        sock = socket.create_connection((host, port), timeout=timeout_s)
    except socket.gaierror as exc:
        raise ConnectError(
            f"the host name {host!r} is not known: {exc.strerror}", hint="check the spelling, or give an IP address"
        ) from exc
    except TimeoutError as exc:
        raise ConnectError(f"{where} did not answer within {timeout_s:g} s") from exc
    except ConnectionRefusedError as exc:
        raise ConnectError(f"no server listens at {where}") from exc
    except (OSError, UnicodeError) as exc:
        raise ConnectError(f"cannot connect to {where}: {getattr(exc, 'strerror', None) or exc}") from exc
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            # A larger size that was set already (or that the kernel tunes by itself) is left alone.
            if sock.getsockopt(socket.SOL_SOCKET, option) < _SOCKET_BUFFER_BYTES:
                sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER_BYTES)
    except OSError:
        sock.close()
        raise
    return sock


def _exchange(sock: socket.socket, connection: Connection, hello: Hello, timeout_s: float, where: str) -> ev.Event:
    """Send HELLO and return the first event of the answer."""
    deadline = time.monotonic() + timeout_s
    connection.send_hello(hello)
    not_ours = f"what listens at {where} is not a lanGPU server"
    try:
        sock.settimeout(timeout_s)
        send_buffers(sock, connection.data_to_send())
        while (event := connection.next_event()) is None:
            sock.settimeout(max(deadline - time.monotonic(), 0.001))
            connection.buffer_received(sock.recv_into(connection.get_buffer()))
    except TimeoutError as exc:
        raise TransportTimeoutError(
            f"{where} accepted the connection but did not answer within {timeout_s:g} s",
            hint="check that the port belongs to `langpu serve`",
        ) from exc
    except RemoteProtocolError as exc:
        raise RemoteProtocolError(f"{not_ours}: {exc}") from exc
    except OSError as exc:
        raise RemoteProtocolError(f"{where} closed the connection in the handshake: {exc.strerror or exc}") from exc
    if isinstance(event, ev.ConnectionClosed):
        raise RemoteProtocolError(f"{where} closed the connection without an answer; it may not be a lanGPU server")
    if isinstance(event, ev.RefuseReceived):
        refusal = event.refusal
        text = f"the server at {where} refused: {refusal.message or refusal.reason}"
        kind = VersionMismatchError if refusal.reason == "version" else RefusedError
        raise kind(text, hint=refusal.hint)
    return event


def open_session(
    host: str,
    port: int,
    *,
    program: str,
    pid: int,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    handshake_timeout_s: float = HANDSHAKE_TIMEOUT_S,
) -> Link:
    """Open a session.

    Raises:
        ConnectError, TransportTimeoutError, RemoteProtocolError, VersionMismatchError, RefusedError: with a sentence and a hint.
    """
    started = time.monotonic()
    where = address_text(host, port)
    sock = _connect(host, port, connect_timeout_s)
    try:
        connection = Connection(Role.CLIENT)
        caps = (CAP_KERNEL_OUTPUT, CAP_HOST_CALLS)
        hello = Hello(purpose=PURPOSE_SESSION, program=program, pid=pid, host=socket.gethostname(), caps=caps)
        event = _exchange(sock, connection, hello, handshake_timeout_s, where)
        if not isinstance(event, ev.WelcomeReceived):
            raise RemoteProtocolError(f"{where} answered a session's HELLO with {type(event).__name__}")
        preread = []
        while (more := connection.next_event()) is not None:
            preread.append(more)
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return Link(sock, connection, event.welcome, time.monotonic() - started, preread)


def ask_status(host: str, port: int, timeout_s: float) -> dict[str, object]:
    """What the server says about itself. Raises as `open_session`."""
    where = address_text(host, port)
    sock = _connect(host, port, timeout_s)
    try:
        connection = Connection(Role.CLIENT)
        hello = Hello(purpose=PURPOSE_STATUS, program="langpu", pid=os.getpid(), host=socket.gethostname())
        event = _exchange(sock, connection, hello, timeout_s, where)
    finally:
        sock.close()
    if not isinstance(event, ev.StatusReceived):
        raise RemoteProtocolError(f"{where} answered a status question with {type(event).__name__}")
    return event.status
