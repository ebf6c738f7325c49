"""An agent for the generated shim: accepts processes, records what they post, answers as a test says. One thread a process."""

import os
import socket
import struct
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType

from lanGPU.client import layout as lay
from lanGPU.client.ring import Request, Ring, command_return
from lanGPU.driverapi.table import BY_ID
from lanGPU.wire.records import FLAG_REPLY, NULL_WORD, Record, decode, encode_reply

_HELLO = struct.Struct("<IIIIQ32s")
_SLEEP_S = 0.2

Answer = Sequence[bytes] | None
"""Commands for the calling thread; None: the test answers later."""


def accept(record: Record) -> tuple[int, list[bytes | int]]:
    """Success, with outputs of a pattern that `filled` knows."""
    outputs: list[bytes | int] = []
    for arg, word in zip(record.row.args, record.words, strict=True):
        if arg.kind.name in ("BYTES_OUT", "BYTES_INOUT") and word != NULL_WORD:
            outputs.append(filled(word))
        elif arg.kind.name == "HANDLE_QUERY" and word:
            outputs.append(0x4C00_0000_1234)
    return 0, outputs


def filled(count: int) -> bytes:
    """What `accept` puts into `count` bytes of output."""
    return bytes((i * 7 + 1) & 0xFF for i in range(count))


class FakeSession:
    """One attached process."""

    def __init__(self, agent: "FakeAgent", conn: socket.socket, hello: tuple[int, ...]) -> None:
        self.agent = agent
        self.conn = conn
        self.pid = hello[2]
        self.load_address = hello[4]
        self.ring = Ring()
        self.records: list[Record] = []
        self.raw = bytearray()
        """All record bytes, if `keep_raw`."""
        self.requests: list[Request] = []
        self.stalled = threading.Event()
        """While set nothing is taken from the ring."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="fake-agent-session")
        if agent.ready:
            self.ring.set_ready()
        agent.prepare(self)
        self._thread.start()

    def _serve(self) -> None:
        ring = self.ring
        pending = bytearray()
        while not self._stop.is_set():
            seen = ring.doorbell()
            self._work(pending)
            ring.announce_sleep()
            idle = not ring.request_waits() and (ring.head == ring.tail or self.stalled.is_set())
            if idle and not self._stop.is_set():
                ring.sleep(seen, _SLEEP_S)
            ring.awake()

    def _work(self, pending: bytearray) -> None:
        ring = self.ring
        while (request := ring.take_request()) is not None:
            if not self.stalled.is_set():
                self._take(pending, request.position)
            self.requests.append(request)
            commands = self.agent.on_request(self, request)
            if commands is not None:
                ring.answer_commands(request.slot, commands)
        if not self.stalled.is_set():
            self._take(pending, None)

    def _take(self, pending: bytearray, until: int | None) -> None:
        ring = self.ring
        limit = lay.RING_BYTES if until is None else until - ring.tail
        if limit <= 0:
            return
        pieces = ring.peek(limit)
        data = b"".join(pieces)
        if not self.agent.quiet:
            pending += data
            self.raw += data
            while len(pending) >= 16:
                size = int.from_bytes(pending[:4], "little")
                if len(pending) < size:
                    break
                record = decode(memoryview(bytes(pending[:size])), BY_ID)
                del pending[:size]
                self.records.append(record)
                if record.flags & FLAG_REPLY:
                    self.agent.on_record(self, record)
        ring.advance(len(data))

    def reply(self, record: Record, result: int = 0, outputs: Sequence[bytes | int] = ()) -> None:
        """Answer a record that waits."""
        self.ring.answer_record(record.thread, encode_reply(record.thread, record.token, result, outputs))

    def close(self) -> None:
        """Hang up."""
        self._stop.set()
        self.ring.ring_doorbell()
        self._thread.join()
        self.conn.close()
        self.ring.close()


class FakeAgent:
    """Listens at `path`. Override `on_record` and `on_request` by assignment, before or between calls."""

    def __init__(self, folder: Path, name: bytes = b"agent") -> None:
        self.path = os.path.join(os.fsencode(folder), name)
        self.ready = True
        self.quiet = False
        """Records are taken unseen."""
        self.refusal = 0
        self.hellos: list[tuple[int, ...]] = []
        self.sessions: list[FakeSession] = []
        self.attached = threading.Semaphore(0)
        self.on_record: Callable[[FakeSession, Record], None] = lambda session, record: session.reply(record, *accept(record))
        self.on_request: Callable[[FakeSession, Request], Answer] = lambda session, request: [command_return(0)]
        self.prepare: Callable[[FakeSession], None] = lambda session: None
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(self.path)
        self._listener.listen(16)
        self._thread = threading.Thread(target=self._accept, name="fake-agent")
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                conn, _ = self._listener.accept()
            except OSError:
                return
            data = conn.recv(256)
            if len(data) != _HELLO.size:
                conn.close()
                continue
            hello = _HELLO.unpack(data)
            self.hellos.append(hello)
            if self.refusal:
                conn.send(struct.pack("<IIQ", lay.HELLO_MAGIC, self.refusal, 0))
                conn.close()
                continue
            session = FakeSession(self, conn, hello)
            self.sessions.append(session)
            socket.send_fds(conn, [struct.pack("<IIQ", lay.HELLO_MAGIC, 0, lay.TOTAL_BYTES)], [session.ring.fd])
            self.attached.release()

    @property
    def session(self) -> FakeSession:
        """The first process's."""
        return self.sessions[0]

    def hang_up(self) -> None:
        """As if the agent died."""
        sessions, self.sessions = self.sessions, []
        for session in sessions:
            session.close()

    def close(self) -> None:
        """End everything."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        self.hang_up()

    def __enter__(self) -> "FakeAgent":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
