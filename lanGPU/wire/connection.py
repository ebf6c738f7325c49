"""One connection, sans-IO, for both roles: bytes in, events out, buffers to send.

A shell does, for ever::

    n = sock.recv_into(connection.get_buffer())
    connection.buffer_received(n)
    while (event := connection.next_event()) is not None: ...
    sock.sendmsg(connection.data_to_send())

The receiving methods and the sending methods share nothing but the state, which after the handshake only GOODBYE changes: so one
thread may receive while another sends. Neither half may be used by two threads at once.
"""

import struct
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, StrEnum
from typing import Final, TypeAlias

from lanGPU.constants import MAX_BODY_BYTES, MAX_BULK_BYTES, MAX_KERNEL_OUTPUT_BYTES
from lanGPU.errors import LocalProtocolError, RemoteProtocolError
from lanGPU.wire import events as ev
from lanGPU.wire.events import Event
from lanGPU.wire.frames import HEADER_BYTES, FrameType, decode_body, decode_header, encode_body, encode_header
from lanGPU.wire.handshake import CAP_KERNEL_OUTPUT, Hello, Refusal, Welcome, check_plain, get_int, get_text

Buffer: TypeAlias = bytes | bytearray | memoryview

_RECEIVE_BYTES: Final = 256 * 1024
"""Room offered to one recv: about what a loopback socket holds; larger reads gain nothing and leave more to move."""
_LOOKAHEAD_BYTES: Final = 64 * 1024
"""Read at most this much past a large frame: the rest of a read is moved to the front of the buffer."""
_LIMIT_BYTES: Final = HEADER_BYTES + MAX_BODY_BYTES + MAX_BULK_BYTES + _RECEIVE_BYTES
"""The buffer never grows past the largest frame and one read."""
_REPLY: Final = struct.Struct("<IIiHH")


class Role(StrEnum):
    """Which side of the connection we are."""

    CLIENT = "client"
    SERVER = "server"


class State(Enum):
    """Where a connection is. The names say what happened, from our side."""

    START = "start"
    HELLO_DONE = "hello done"
    OPEN = "open"
    WE_LEFT = "we said goodbye"
    PEER_LEFT = "peer said goodbye"
    CLOSED = "closed"
    ERROR = "error"


class Direction(Enum):
    """Which way a frame goes, seen from us."""

    SEND = "send"
    RECEIVE = "receive"


_F = FrameType
_S = State
Transitions: TypeAlias = Mapping[tuple[State, Direction, FrameType], State]


def _machine(role: Role) -> Transitions:
    """(state, direction, frame) -> next state; what is absent is not allowed."""
    client = role is Role.CLIENT
    to_server, to_client = (Direction.SEND, Direction.RECEIVE) if client else (Direction.RECEIVE, Direction.SEND)
    table = {
        (_S.START, to_server, _F.HELLO): _S.HELLO_DONE,
        (_S.HELLO_DONE, to_client, _F.WELCOME): _S.OPEN,
        (_S.HELLO_DONE, to_client, _F.REFUSE): _S.CLOSED,
        (_S.HELLO_DONE, to_client, _F.STATUS): _S.CLOSED,
    }
    if not client:
        table[_S.START, to_client, _F.REFUSE] = _S.CLOSED  # a HELLO that we could not read is answered too
    # What each side may say in a session, and until which goodbye.
    said_by_client = (_F.RECORDS, _F.PING, _F.PONG, _F.HOST_DONE)
    said_by_server = (_F.REPLY, _F.LOG, _F.KERNEL_OUTPUT, _F.PING, _F.PONG, _F.HOST_CALL)
    for direction, frames in ((to_server, said_by_client), (to_client, said_by_server)):
        half_open = _S.PEER_LEFT if direction is Direction.SEND else _S.WE_LEFT
        for frame in frames:
            table[_S.OPEN, direction, frame] = _S.OPEN
            table[half_open, direction, frame] = half_open
    # A peer that broke the rules may still be told so, once.
    table[_S.ERROR, Direction.SEND, _F.GOODBYE] = _S.CLOSED
    if not client:
        table[_S.ERROR, Direction.SEND, _F.REFUSE] = _S.CLOSED
    table[_S.OPEN, Direction.SEND, _F.GOODBYE] = _S.WE_LEFT
    table[_S.OPEN, Direction.RECEIVE, _F.GOODBYE] = _S.PEER_LEFT
    table[_S.WE_LEFT, Direction.RECEIVE, _F.GOODBYE] = _S.CLOSED
    table[_S.PEER_LEFT, Direction.SEND, _F.GOODBYE] = _S.CLOSED
    return table


TRANSITIONS: Final[Mapping[Role, Transitions]] = {role: _machine(role) for role in Role}

_ORDERLY_END: Final = frozenset({_S.START, _S.PEER_LEFT, _S.CLOSED})
"""States in which the peer may close its half between frames."""


class Connection:
    """The protocol state of one connection. `hello`: take over, as server, a connection whose HELLO was read elsewhere."""

    def __init__(self, role: Role, *, hello: Hello | None = None) -> None:
        self.role = role
        self.hello = hello
        self.state = State.START
        if hello is not None:
            if role is not Role.SERVER:
                raise LocalProtocolError("only a server takes over a connection")
            self.state = State.HELLO_DONE
        self._transitions = TRANSITIONS[role]
        self._buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._start = 0  # first byte not yet reported
        self._end = 0  # past the last byte received
        self._type = FrameType.HELLO  # of the current frame, if _total
        self._body = 0
        self._total = 0  # bytes of the current frame; 0 until its header was read
        self._eof = False
        self._eof_reported = False
        self._error: RemoteProtocolError | None = None
        self._out: list[Buffer] = []

    # --- receiving -----------------------------------------------------------------------------------------------
    def leave_buffer(self) -> None:
        """Receive into another buffer from now on: views in earlier events live on until they are dropped."""
        rest = self._buffer[self._start : self._end]
        self._buffer = memoryview(bytearray(max(len(rest), _RECEIVE_BYTES)))
        self._buffer[: len(rest)] = rest
        self._start, self._end = 0, len(rest)

    @property
    def buffered_bytes(self) -> int:
        """Bytes received and not yet reported in an event."""
        return self._end - self._start

    def get_buffer(self, hint: int = 0) -> memoryview:
        """Where to receive into, never empty; `hint`: bytes that lie ready. Ends the life of all views in earlier events.

        Raises:
            LocalProtocolError: events were not drained, the buffer is full.
        """
        have = self._end - self._start
        if self._start:
            if have:
                self._buffer[:have] = self._buffer[self._start : self._end]
            self._start, self._end = 0, have
        # Past a large frame little is read, because a rest must be moved; before a header is known, one read's worth.
        wanted = self._total + _LOOKAHEAD_BYTES if self._total > have else have + max(_RECEIVE_BYTES, hint)
        limit = min(wanted, _LIMIT_BYTES)
        if have >= limit:
            raise LocalProtocolError("the receive buffer is full: drain next_event() before receiving more")
        if limit > len(self._buffer) and (self._total > have or hint > 0 or have == len(self._buffer)):
            grown = memoryview(bytearray(limit))
            grown[:have] = self._buffer[:have]
            self._buffer = grown
        return self._buffer[have : min(limit, len(self._buffer))]

    def buffer_received(self, n: int) -> None:
        """`n` bytes were received into the last `get_buffer`; 0 is the end of the peer's bytes."""
        if n == 0:
            self._eof = True
        self._end += n

    def receive_data(self, data: Buffer) -> None:
        """Bytes from the peer, copied; empty is the end of its bytes. Drain `next_event` after each.

        Raises:
            LocalProtocolError: more bytes than the largest frame and one read were not drained.
        """
        if self._error is not None:
            return
        if not len(data):
            self._eof = True
            return
        done = 0
        while done < len(data):
            room = self.get_buffer(len(data) - done)
            n = min(len(room), len(data) - done)
            room[:n] = data[done : done + n]
            self._end += n
            done += n

    def next_event(self) -> Event | None:
        """The next event; None when more bytes are needed.

        Raises:
            RemoteProtocolError: the peer broke the rules (again at every later call); close the connection.
        """
        start = self._start
        have = self._end - start
        if not self._total:
            if self._error is not None:
                raise self._error
            if have < HEADER_BYTES:
                return self._end_of_bytes() if self._eof else None
            try:
                frame_type, body, bulk = decode_header(self._buffer, start)
            except LocalProtocolError as exc:
                raise self._broken(str(exc)) from exc
            if (self.state, Direction.RECEIVE, frame_type) not in self._transitions:
                raise self._broken(f"{frame_type.name} is not allowed when {self.state.value}")
            self._type = frame_type
            self._body = body
            self._total = HEADER_BYTES + body + bulk
        if have < self._total:
            return self._end_of_bytes() if self._eof else None
        end = start + self._total
        self._start = end
        self._total = 0
        frame_type = self._type
        if frame_type is _F.REPLY:
            data = self._buffer[start + HEADER_BYTES : end]
            if len(data) < _REPLY.size:
                raise self._broken("a reply is shorter than its header")
            thread, token, result, failed_api, zero = _REPLY.unpack_from(data)
            if zero:
                raise self._broken("a reply's reserved field is not 0")
            return ev.ReplyReceived(thread, token, result, failed_api, data)
        if frame_type is _F.RECORDS:
            return ev.RecordsReceived(self._buffer[start + HEADER_BYTES : end])
        try:
            event = self._control(frame_type, self._buffer[start + HEADER_BYTES : start + HEADER_BYTES + self._body])
        except LocalProtocolError as exc:
            raise self._broken(str(exc)) from exc
        self.state = self._transitions[self.state, Direction.RECEIVE, frame_type]
        return event

    def _control(self, frame_type: FrameType, data: memoryview) -> Event:
        return _DECODERS[frame_type](self, decode_body(data))

    def _hello(self, body: dict[str, object]) -> Event:
        self.hello = Hello.from_body(body)
        return ev.HelloReceived(self.hello)

    def _welcome(self, body: dict[str, object]) -> Event:
        welcome = Welcome.from_body(body)
        if self.hello is None or not self.hello.min <= welcome.version <= self.hello.max:
            raise LocalProtocolError(f"the server chose protocol version {welcome.version}, which was not offered")
        return ev.WelcomeReceived(welcome)

    def _status(self, body: dict[str, object]) -> Event:
        checked = check_plain(body)
        assert isinstance(checked, dict)
        return ev.StatusReceived(checked)

    def _kernel_output(self, body: dict[str, object]) -> Event:
        if self.hello is None or CAP_KERNEL_OUTPUT not in self.hello.caps:
            raise LocalProtocolError("kernel output, which was not asked for")
        data = body.get("data")
        if not isinstance(data, bytes) or len(data) > MAX_KERNEL_OUTPUT_BYTES:
            raise LocalProtocolError("kernel output that is no bytes, or too many")
        return ev.KernelOutputReceived(get_int(body, "fd", range(1, 3)), data)

    def _end_of_bytes(self) -> Event | None:
        if self._eof_reported:
            return None
        self._eof_reported = True
        orderly = self.state in _ORDERLY_END and self._end == self._start
        self.state = State.CLOSED
        return ev.ConnectionClosed(orderly)

    def _broken(self, message: str) -> RemoteProtocolError:
        self.state = State.ERROR
        self._start = self._end = self._total = 0
        self._error = RemoteProtocolError(message)
        return self._error

    # --- sending -------------------------------------------------------------------------------------------------
    def data_to_send(self) -> list[Buffer]:
        """What to send now, in order, for one vectored send; forgets it."""
        out, self._out = self._out, []
        return out

    def send_hello(self, hello: Hello) -> None:
        """Client: opens the conversation."""
        self._send(_F.HELLO, hello.to_body())
        self.hello = hello

    def send_welcome(self, welcome: Welcome) -> None:
        """Server: opens the session."""
        self._send(_F.WELCOME, welcome.to_body())

    def send_refuse(self, refusal: Refusal) -> None:
        """Server: no; close after sending."""
        self._send(_F.REFUSE, refusal.to_body())

    def send_status(self, status: Mapping[str, object]) -> None:
        """Server: the answer to purpose "status"; close after sending."""
        check_plain(dict(status))
        self._send(_F.STATUS, status)

    def send_records(self, *pieces: Buffer) -> None:
        """Client: the next bytes of the record stream, not copied; cut into as many frames as they need."""
        self._move(_F.RECORDS)
        frame: list[Buffer] = []
        size = 0
        for piece in pieces:
            view = memoryview(piece).cast("B")
            while len(view):
                part = view[: MAX_BULK_BYTES - size]
                frame.append(part)
                size += len(part)
                view = view[len(part) :]
                if size == MAX_BULK_BYTES:
                    self._out += [encode_header(_F.RECORDS, 0, size), *frame]
                    frame, size = [], 0
        if size:
            self._out += [encode_header(_F.RECORDS, 0, size), *frame]

    def send_reply(self, reply: Buffer) -> None:
        """Server: one reply (its header included), not copied."""
        header = encode_header(_F.REPLY, 0, len(reply))
        self._move(_F.REPLY)
        self._out += [header, reply]

    def send_log(self, level: str, text: str) -> None:
        """Server: a line for the user's log."""
        self._send(_F.LOG, {"level": level[:16], "text": text[:8000]})

    def send_kernel_output(self, descriptor: int, data: bytes) -> None:
        """Server: kernels printed `data`, at most MAX_KERNEL_OUTPUT_BYTES, for descriptor 1 or 2; only to a client with the capability."""
        if self.hello is None or CAP_KERNEL_OUTPUT not in self.hello.caps:
            raise LocalProtocolError("the client takes no kernel output")
        self._send(_F.KERNEL_OUTPUT, {"fd": descriptor, "data": data})

    def send_goodbye(self, reason: str) -> None:
        """We send nothing more; `reason` a short word."""
        self._send(_F.GOODBYE, {"reason": reason[:200]})

    def send_ping(self, ping_id: int) -> None:
        """Asks for a PONG with the same id."""
        self._send(_F.PING, {"id": ping_id})

    def send_pong(self, ping_id: int) -> None:
        """Answers a PING."""
        self._send(_F.PONG, {"id": ping_id})

    def send_host_done(self, call: int) -> None:
        """Client: the function of that HOST_CALL returned."""
        self._send(_F.HOST_DONE, {"call": call})

    def _send(self, frame_type: FrameType, body: Mapping[str, object]) -> None:
        data = encode_body(body)
        header = encode_header(frame_type, len(data), 0)
        self._move(frame_type)
        self._out += [header, data]

    def _move(self, frame_type: FrameType) -> None:
        state = self._transitions.get((self.state, Direction.SEND, frame_type))
        if state is None:
            raise LocalProtocolError(f"{frame_type.name} cannot be sent when {self.state.value}")
        self.state = state


def _decode_ping(_: Connection, body: dict[str, object]) -> Event:
    return ev.PingReceived(get_int(body, "id", range(1 << 63)))


def _decode_host_call(_: Connection, body: dict[str, object]) -> Event:
    numbers = range(1 << 64)
    return ev.HostCallReceived(
        get_int(body, "call", numbers), get_int(body, "callback", numbers), get_int(body, "status", range(1 << 31), 0)
    )


_DECODERS: Final[Mapping[FrameType, Callable[[Connection, dict[str, object]], Event]]] = {
    _F.HELLO: Connection._hello,
    _F.WELCOME: Connection._welcome,
    _F.REFUSE: lambda _, body: ev.RefuseReceived(Refusal.from_body(body)),
    _F.STATUS: Connection._status,
    _F.LOG: lambda _, body: ev.LogReceived(get_text(body, "level", "info", 16), get_text(body, "text", "", 8000)),
    _F.GOODBYE: lambda _, body: ev.GoodbyeReceived(get_text(body, "reason", "", 200)),
    _F.KERNEL_OUTPUT: Connection._kernel_output,
    _F.PING: _decode_ping,
    _F.PONG: lambda _, body: ev.PongReceived(get_int(body, "id", range(1 << 63))),
    _F.HOST_CALL: _decode_host_call,
    _F.HOST_DONE: lambda _, body: ev.HostDoneReceived(get_int(body, "call", range(1 << 64))),
}


def joined(buffers: Sequence[Buffer]) -> bytes:
    """`buffers` as one bytes object (tests, small control frames)."""
    return b"".join(buffers)
