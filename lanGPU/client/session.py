"""One process of the program attached to the agent: its shared memory, its connection, its two threads.

The *forwarder* sleeps on the doorbell, sends records, carries out requests; it alone sends. The *receiver* reads the socket and
writes replies into slots; it never sends, so a server that does not read cannot make us deaf.
"""

import contextlib
import ctypes
import errno
import logging
import os
import socket
import struct
import threading
from collections.abc import Callable
from typing import Final

from lanGPU.client import layout as lay
from lanGPU.client import pump, pump_ir
from lanGPU.client.calls.state import SessionState, Symbols
from lanGPU.client.engine import Engine, reply_bytes
from lanGPU.client.link import Link, send_buffers
from lanGPU.client.memory import MemoryRefusedError, ProgramFaultError, ProgramMemory
from lanGPU.client.output import write_for
from lanGPU.client.ring import Ring, RingCorruptError
from lanGPU.client.stats import SessionStats, clock_ns
from lanGPU.client.syscalls import address_of
from lanGPU.constants import (
    CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_NOT_INITIALIZED,
    CUDA_ERROR_SYSTEM_NOT_READY,
    CUDA_ERROR_UNKNOWN,
    INLINE_MAX_BYTES,
    MAX_BULK_BYTES,
    MAX_THREADS,
)
from lanGPU.driverapi.table import BY_ID
from lanGPU.errors import ConnectionLostError, LanGPUError, RemoteProtocolError
from lanGPU.wire import events as ev
from lanGPU.wire.connection import Buffer, Connection
from lanGPU.wire.frames import HEADER_BYTES, FrameType, encode_header
from lanGPU.wire.handshake import Welcome
from lanGPU.wire.records import FLAG_REPLY, RECORD_HEADER, REPLY_HEADER

_log = logging.getLogger(__name__)

_SLEEP_S: Final = 1.0
"""Longest sleep of the forwarder: only a safety net, every change rings."""
_GOODBYE_S: Final = 2.0
"""How long an ended process's session may take to say goodbye before its socket is closed."""
_COPIED_BYTES: Final = 16 * 1024
_MAX_HOST_CALLS: Final = 1 << 16
"""Calls of functions of the program that wait; destructors may come many at a time."""
_RECORDS_HEADER: Final = struct.Struct("<8sII")
_RECORDS_PREFIX: Final = encode_header(FrameType.RECORDS, 0, 0)[:8]
_FAST_REPLY: Final = struct.Struct("<8sIIIIiHH")
"""A frame header and the header of the reply behind it."""
_REPLY_PREFIX: Final = encode_header(FrameType.REPLY, 0, 0)[:8]
_FAST_BYTES: Final = 64 * 1024
_LOG_LEVELS: Final = {"error": logging.ERROR, "warning": logging.WARNING, "info": logging.INFO, "debug": logging.DEBUG}

Opener = Callable[[int, str], Link]
"""Opens a connection for (pid, program name). Raises what `link.open_session` raises."""


class Session:
    """Serves one process until it ends or its server is lost. Made and closed by the agent's event loop."""

    def __init__(
        self,
        pid: int,
        opener: Opener,
        symbols: Symbols,
        *,
        program: str,
        probe_address: int = 0,
        blocking: bool = False,
        report: Callable[[str, str], None] | None = None,
    ) -> None:
        self.pid = pid
        self.program = program
        self.blocking = blocking
        self.stats = SessionStats(pid, program)
        self._opener = opener
        self._report = report or _report
        self.ring = Ring()
        self.ring.set_blocking(blocking)
        self.memory = ProgramMemory(pid)
        if probe_address:
            self._probe(probe_address)
        self.state = SessionState(symbols, self.ring, process_id=pid)
        self.engine = Engine(self.ring, self.memory, self.state, self)
        self._link: Link | None = None
        self._sock: socket.socket | None = None
        self._sleeping = False
        self._closing = False
        self._lost: LanGPUError | None = None
        self._failed_connect: LanGPUError | None = None
        self._answered_loss = False
        self._pongs: list[int] = []
        self._native = pump.new_context(self.ring.address)
        """Also holds the counters, which both the machine code and Python raise."""
        self._native_buffer = bytearray(pump.RECEIVE_BYTES)
        self._receiver: threading.Thread | None = None
        self._forwarder = threading.Thread(target=self._forward, name=f"langpu-forward-{pid}", daemon=True)

    def start(self) -> None:
        """Begin to serve."""
        self._forwarder.start()

    def _probe(self, address: int) -> None:
        """Find out whether the system lets us into the program's memory, before anything depends on it."""
        try:
            self.memory.read(address, 8)
        except MemoryRefusedError as exc:
            _log.info("no direct access to the program's memory (%s): copies go through shared memory", exc)
        except ProgramFaultError:
            _log.warning("the shim of process %d does not lie where it says", self.pid)

    # --- end -------------------------------------------------------------------------------------------------------------
    def close(self) -> None:
        """The process ended (or must be given up): tell the server, free everything. May block for some seconds; call once."""
        self._closing = True
        self._native.attention = 1
        self.ring.ring_doorbell()
        self._forwarder.join(_GOODBYE_S)
        if self._sock is not None:
            if self._receiver is not None:
                self._receiver.join(_GOODBYE_S)
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
            if self._receiver is not None:
                self._receiver.join()
        self._forwarder.join()
        if self._sock is not None:
            self._sock.close()
        self.stats.posted, self.stats.synchronous, self.stats.agent = self.ring.counts()
        native = self._native
        self.stats.bytes_sent, self.stats.bytes_received = native.bytes_sent, native.bytes_received
        self.stats.record_bytes, self.stats.replies, self.stats.wait_ns = native.record_bytes, native.replies, native.wait_ns
        self.ring.close()

    def abandon(self, result: int = CUDA_ERROR_CONTEXT_IS_DESTROYED) -> None:
        """Every call of the program fails from now on; the session stays until `close`."""
        self.ring.set_closed(result)

    def _lose(self, exc: LanGPUError) -> None:
        """The server is gone (any thread): say so once, and let the forwarder fail everything that waits."""
        if self._closing or self._lost is not None:
            return
        self._lost = exc
        self._report(f"the connection to the server was lost: {exc}", exc.hint or "start the program again when the server is back")
        self.ring.set_closed(self._loss_result)
        if self._sock is not None:
            with contextlib.suppress(OSError):
                self._sock.shutdown(socket.SHUT_RDWR)
        self._wake()

    def waits_for_reply(self) -> int | None:
        """How many replies came so far, if a call waits for one more; the same answer later means that nothing came in between."""
        replies: int = self._native.replies
        return replies if self._native.asked + self.ring.count_synchronous() > replies else None

    def interrupt(self) -> None:
        """Give the session up because the user wants to end the program and a call of it may never return."""
        self._lose(ConnectionLostError("interrupted while a call waited for the GPU", hint="a kernel of the program may never end"))

    @property
    def _loss_result(self) -> int:
        return CUDA_ERROR_CONTEXT_IS_DESTROYED if self.state.contexts else CUDA_ERROR_SYSTEM_NOT_READY

    # --- connection ------------------------------------------------------------------------------------------------------
    def connect(self) -> Welcome:
        """Forwarder: open the connection; an error is reported on stderr once and raised each time."""
        if self._link is not None:
            return self._link.welcome
        try:
            link = self._opener(self.pid, self.program)
        except LanGPUError as exc:
            if self._failed_connect is None:
                self._report(str(exc), exc.hint)
            self._failed_connect = exc
            raise
        self._link = link
        self._sock = link.sock
        self._native.fd = link.sock.fileno()
        self._native.buffer = address_of(self._native_buffer)
        self._native.buffer_bytes = len(self._native_buffer)
        self.stats.connect_s = link.connect_s
        self.state.welcome = link.welcome
        self._receiver = threading.Thread(target=self._receive, name=f"langpu-receive-{self.pid}", daemon=True)
        self._receiver.start()
        return link.welcome

    def waited(self, replies: int) -> None:
        """A call of the agent's waits for the server, for so many replies."""
        self.stats.agent_round_trips += 1
        self._native.asked += replies

    def send_records(self, *buffers: Buffer) -> None:
        """Forwarder: send record bytes. Raises ConnectionLostError."""
        total = sum(map(len, buffers))
        if total <= MAX_BULK_BYTES:
            self._send([encode_header(FrameType.RECORDS, 0, total), *buffers])
        else:
            assert self._link is not None
            self._link.connection.send_records(*buffers)
            self._send(self._link.connection.data_to_send())
        self._native.record_bytes += total
        if total > INLINE_MAX_BYTES:
            self.stats.bulk_up_bytes += total

    def send_host_done(self, call: int) -> None:
        """Forwarder: a function of the program returned. Raises ConnectionLostError."""
        assert self._link is not None
        self._link.connection.send_host_done(call)
        self._send(self._link.connection.data_to_send())

    def _send(self, buffers: list[Buffer]) -> None:
        if self._lost is not None or self._sock is None:
            raise ConnectionLostError(str(self._lost or "not connected"))
        native = self._native
        if not native.wait_since and native.asked + self.ring.count_synchronous() > native.replies:
            native.wait_since = clock_ns()
        try:
            native.bytes_sent += send_buffers(self._sock, buffers)
        except OSError as exc:
            error = ConnectionLostError(exc.strerror or str(exc))
            self._lose(error)
            raise error from exc

    # --- forwarder -------------------------------------------------------------------------------------------------------
    def _forward(self) -> None:
        ring = self.ring
        try:
            while not self._closing:
                loops = pump.ready() if self._serving else None
                if loops is not None:
                    self._native.attention = 0
                    self._work()
                    self._sleeping = True
                    if self._serving and not self._needs_python():
                        self._check_forward(loops.forward(ctypes.addressof(self._native)))
                    self._sleeping = False
                    continue
                seen = ring.doorbell()
                self._work()
                ring.announce_sleep()
                self._sleeping = True
                if self._idle():
                    ring.sleep(seen, _SLEEP_S)
                self._sleeping = False
                ring.awake()
            self._goodbye()
        except RingCorruptError as exc:
            self._report(f"process {self.pid} damaged the memory it shares with langpu: {exc}", "")
            ring.set_closed(CUDA_ERROR_UNKNOWN)
            self._goodbye()
        except Exception:
            _log.exception("the forwarder of process %d failed", self.pid)
            ring.set_closed(CUDA_ERROR_UNKNOWN)
            self._fail_waiting(CUDA_ERROR_UNKNOWN)
            self._goodbye()

    @property
    def _serving(self) -> bool:
        """Records may go out without being looked at."""
        return self.state.initialised and self._link is not None and self._lost is None

    def _check_forward(self, code: int) -> None:
        """What the machine code came back with."""
        if code == pump_ir.FORWARD_CORRUPT:
            self.ring.peek(0)
            raise RingCorruptError("the ring's head and tail do not fit")
        if code < 0:
            self._lose(ConnectionLostError(os.strerror(-code)))

    def _needs_python(self) -> bool:
        """Something waits that is neither a record nor a request."""
        return bool(self._closing or self._pongs or self.engine.ready or (self._lost is not None and not self._answered_loss))

    def _idle(self) -> bool:
        """There is nothing to do; asked after sleep was announced."""
        return not self._needs_python() and self.ring.head == self.ring.tail and not self.ring.request_waits()

    def _work(self) -> None:
        """One round of everything there is to do."""
        if self.engine.ready:
            self.engine.resume_ready()
        if self._pongs:
            self._answer_pings()
        while (request := self.ring.take_request()) is not None:
            if request.position > self.ring.tail:
                self._forward_records(request.position)
            self.engine.handle(request)
        self._forward_records(None)
        if self._lost is not None and not self._answered_loss:
            self._answered_loss = True
            self._fail_waiting(self._loss_result)

    def _forward_records(self, until: int | None) -> None:
        while pieces := self.ring.peek(MAX_BULK_BYTES, until):
            count = len(pieces[0]) if len(pieces) == 1 else sum(map(len, pieces))
            if self._link is None or not self.state.initialised or self._lost is not None:
                self._refuse_records(pieces, count)
            else:
                try:
                    header = _RECORDS_HEADER.pack(_RECORDS_PREFIX, 0, count)
                    # A short copy costs less than a vectored send.
                    self._send([header + pieces[0]] if count <= _COPIED_BYTES and len(pieces) == 1 else [header, *pieces])
                except ConnectionLostError:
                    self._refuse_records(pieces, count)
                else:
                    self._native.record_bytes += count
            self.ring.advance(count)
            if until is not None and self.ring.tail >= until:
                break

    def _refuse_records(self, pieces: list[memoryview], count: int) -> None:
        """Nobody takes these records: whoever waits for one of them gets an error."""
        result = self._loss_result if self._lost is not None else CUDA_ERROR_NOT_INITIALIZED
        data = b"".join(pieces)
        at = 0
        while at + RECORD_HEADER.size <= count:
            size, api_id, flags, thread, token = RECORD_HEADER.unpack_from(data, at)
            if size < RECORD_HEADER.size or size % 8 or thread >= MAX_THREADS:
                raise RingCorruptError(f"a record of {size} bytes for thread {thread}")
            if flags & FLAG_REPLY:
                self.ring.answer_record(thread, reply_bytes(thread, token, result))
            elif self._lost is None:
                row = BY_ID.get(api_id)
                name = row.name if row else f"driver function {api_id}"
                self.engine.log_once(f"early {api_id}", "warning", f"{name} was called before cuInit")
            at += size

    def _fail_waiting(self, result: int) -> None:
        """Answer every thread that may wait: those of our own calls and those that sit on a record already sent."""
        busy = self.engine.busy_slots
        self.engine.fail_all(result)
        for slot in range(self.ring.slots_used()):
            if slot not in busy:
                self.ring.answer_record(slot, reply_bytes(slot, self.ring.token(slot), result))

    def _answer_pings(self) -> None:
        if self._link is None:
            return
        pongs, self._pongs = self._pongs, []
        for ping_id in pongs:
            self._link.connection.send_pong(ping_id)
        with contextlib.suppress(ConnectionLostError):
            self._send(self._link.connection.data_to_send())

    def _goodbye(self) -> None:
        """Say goodbye and close our half, so that the receiver sees the end."""
        if self._link is None or self._sock is None:
            return
        with contextlib.suppress(OSError, LanGPUError):
            self._link.connection.send_goodbye("process ended")
            self._sock.settimeout(_GOODBYE_S)
            send_buffers(self._sock, self._link.connection.data_to_send())
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_WR)

    # --- receiver --------------------------------------------------------------------------------------------------------
    def _wake(self) -> None:
        """Have the forwarder look around."""
        self._native.attention = 1
        if self._sleeping:
            self.ring.ring_doorbell()

    def _receive(self) -> None:
        assert self._link is not None
        try:
            self._receive_events(self._link)
        except RemoteProtocolError as exc:
            self._lose(exc)
        except OSError as exc:
            if exc.errno not in (errno.EBADF, errno.ENOTCONN):
                self._lose(ConnectionLostError(exc.strerror or str(exc)))
        except Exception:
            _log.exception("the receiver of process %d failed", self.pid)
            self._lose(ConnectionLostError("an error in lanGPU itself, logged above"))

    def _receive_events(self, link: Link) -> None:
        sock = link.sock
        connection = link.connection
        for event in link.preread:
            if not self._on_event(event):
                return
        # What usually comes, whole short replies, takes no part in the connection's state: it is handed on without an event.
        fast = bytearray(_FAST_BYTES)
        view = memoryview(fast)
        while True:
            loops = pump.ready()
            if connection.buffered_bytes:
                self._count_received(connection, sock.recv_into(connection.get_buffer()))
            elif loops is not None and not self.engine.waiting:
                self._receive_natively(loops, connection)
            else:
                count = sock.recv_into(fast)
                self._native.bytes_received += count
                at = self._deliver_short(fast, view, count)
                if at < count or not count:
                    connection.receive_data(view[at:count])
            while (received := connection.next_event()) is not None:
                if type(received) is ev.ReplyReceived:
                    self._deliver(received.thread, received.token, received.result, received.data)
                elif not self._on_event(received):
                    return
            if self.engine.inbox:
                self._wake()

    def _count_received(self, connection: Connection, count: int) -> None:
        self._native.bytes_received += count
        connection.buffer_received(count)

    def _receive_natively(self, loops: pump.Pump, connection: Connection) -> None:
        """Let machine code deliver replies until something else comes, which the connection gets. Raises OSError."""
        native = self._native
        code = loops.receive(ctypes.addressof(native))
        if code < 0:
            raise OSError(-code, os.strerror(-code))
        start, end = native.start, native.end
        native.start = native.end = 0
        connection.receive_data(memoryview(self._native_buffer)[start:end])
        if code == pump_ir.RECEIVE_END:
            connection.receive_data(b"")

    def _deliver_short(self, data: bytearray, view: memoryview, end: int) -> int:
        """Deliver the whole replies at the start of `data[:end]`; returns where something else begins."""
        at = 0
        while at + _FAST_REPLY.size <= end:
            prefix, body, bulk, thread, token, result, _, zero = _FAST_REPLY.unpack_from(data, at)
            after = at + HEADER_BYTES + bulk
            if prefix != _REPLY_PREFIX or body or zero or bulk < REPLY_HEADER.size or after > end:
                break
            self._deliver(thread, token, result, view[at + HEADER_BYTES : after])
            at = after
        return at

    def _deliver(self, thread: int, token: int, result: int, reply: memoryview) -> None:
        """Hand a reply to the call that waits for it."""
        native = self._native
        native.replies += 1
        if native.wait_since and native.replies >= native.asked + self.ring.count_synchronous():
            native.wait_ns += clock_ns() - native.wait_since
            native.wait_since = 0
        if self.engine.on_reply(thread, token, result, reply):
            return
        if thread >= MAX_THREADS or len(reply) > lay.SLOT_DATA_BYTES:
            raise RemoteProtocolError(f"a reply of {len(reply)} bytes for thread {thread}")
        if self.ring.token(thread) != token:
            _log.warning("a reply for call %d of thread %d, which does not wait for it", token, thread)
            return
        self.ring.answer_record(thread, reply)

    def _on_event(self, event: ev.Event) -> bool:
        """Anything but a reply; False: the connection is over."""
        if isinstance(event, ev.LogReceived):
            _log.log(_LOG_LEVELS.get(event.level, logging.INFO), "%s", event.text)
        elif isinstance(event, ev.KernelOutputReceived):
            # Here, so that it is out before the reply behind it lets the program go on.
            write_for(self.pid, event.descriptor, event.data, lambda: self._closing or self._lost is not None)
        elif isinstance(event, ev.PingReceived):
            self._pongs.append(event.id)
            self._wake()
        elif isinstance(event, ev.HostCallReceived):
            if len(self.engine.host_calls) >= _MAX_HOST_CALLS:
                raise RemoteProtocolError(f"more than {_MAX_HOST_CALLS} host functions at a time")
            self.engine.host_calls.append(event)
            self._wake()
        elif isinstance(event, ev.GoodbyeReceived):
            self._lose(ConnectionLostError(f"the server ended the session ({event.reason or 'no reason given'})"))
        elif isinstance(event, ev.ConnectionClosed):
            self._lose(ConnectionLostError("the server closed the connection"))
            return False
        return True


def _report(message: str, hint: str) -> None:
    """One line (and a hint) for the user, written at once so that lines of several processes do not mix."""
    text = f"langpu: {message}\n" + (f"hint: {hint}\n" if hint else "")
    with contextlib.suppress(OSError):
        os.write(2, text.encode(errors="replace"))
