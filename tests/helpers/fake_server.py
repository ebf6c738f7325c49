"""A server that speaks frames and carries out a few calls on a bytearray, in a thread of the test."""

import socket
import struct
import threading
from collections.abc import Callable
from typing import Any

from lanGPU.client.link import send_buffers
from lanGPU.driverapi.model import ApiFunction, ArgKind
from lanGPU.driverapi.table import BY_ID
from lanGPU.wire import events as ev
from lanGPU.wire.connection import Connection, Role
from lanGPU.wire.handshake import PURPOSE_STATUS, DeviceInfo, Refusal, Welcome
from lanGPU.wire.records import BLOB_KINDS, FLAG_REPLY, NULL_WORD, RECORD_HEADER, REPLY_HEADER, pad8

DEVICE_BASE = 0x1000_0000_0000
MEMORY_BYTES = 16 << 20
DEVICE = DeviceInfo(name="Fake GPU", uuid=bytes(16), total_bytes=MEMORY_BYTES, attributes={75: 8, 76: 0})


class FakeServer:
    """Listens on a free port of 127.0.0.1 until closed. `calls`: (name, thread, values) of every record, in order."""

    def __init__(self, *, refuse: Refusal | None = None, greeting: bytes | None = None) -> None:
        self.refuse = refuse
        self.greeting = greeting
        self.memory = bytearray(MEMORY_BYTES)
        self.calls: list[tuple[str, int, list[Any]]] = []
        self.hellos: list[Any] = []
        self.goodbyes: list[str] = []
        self.handlers: dict[str, Callable[[int, list[Any]], tuple[int, bytes]]] = {}
        self.gate = threading.Event()
        """Cleared: the server does not read."""
        self.gate.set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads: list[threading.Thread] = []
        self.socks: list[socket.socket] = []
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()

    def close(self) -> None:
        """End every thread and socket."""
        self.gate.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepting.join(10)
        self.drop()
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    def drop(self) -> None:
        """Cut all connections."""
        for sock in self.socks:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def __enter__(self) -> "FakeServer":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self.socks.append(sock)
            thread = threading.Thread(target=self._serve, args=(sock,), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock: socket.socket) -> None:
        with sock:
            try:
                if self.greeting is not None:
                    sock.sendall(self.greeting)
                    return
                self._converse(sock)
            except OSError:
                return

    def _converse(self, sock: socket.socket) -> None:
        connection = Connection(Role.SERVER)
        stream = bytearray()
        while True:
            self.gate.wait()
            n = sock.recv_into(connection.get_buffer())
            connection.buffer_received(n)
            while (event := connection.next_event()) is not None:
                if isinstance(event, ev.HelloReceived):
                    self.hellos.append(event.hello)
                    if self.refuse is not None:
                        connection.send_refuse(self.refuse)
                    elif event.hello.purpose == PURPOSE_STATUS:
                        connection.send_status({"server": "fake", "sessions": []})
                    else:
                        connection.send_welcome(Welcome("01", "fake", 13000, (DEVICE,), emulated=True))
                elif isinstance(event, ev.RecordsReceived):
                    stream += event.data
                    self._carry_out(stream, connection)
                elif isinstance(event, ev.GoodbyeReceived):
                    self.goodbyes.append(event.reason)
                    connection.send_goodbye("bye")
                elif isinstance(event, ev.ConnectionClosed):
                    return
            out = connection.data_to_send()
            if out:
                send_buffers(sock, out)
            if self.refuse is not None and self.hellos:
                return

    def _carry_out(self, stream: bytearray, connection: Connection) -> None:
        while len(stream) >= RECORD_HEADER.size:
            size, api_id, flags, thread, token = RECORD_HEADER.unpack_from(stream)
            if len(stream) < size:
                return
            row = BY_ID[api_id]
            values = _values(row, bytes(stream[:size]))
            del stream[:size]
            self.calls.append((row.name, thread, values))
            result, outputs = self._call(row.name, thread, values)
            if flags & FLAG_REPLY:
                connection.send_reply(REPLY_HEADER.pack(thread, token, result, 0, 0) + (outputs if not result else b""))

    def _call(self, name: str, thread: int, values: list[Any]) -> tuple[int, bytes]:
        if name in self.handlers:
            return self.handlers[name](thread, values)
        if name.startswith("cuMemcpyHtoD"):
            at = values[0] - DEVICE_BASE
            self.memory[at : at + len(values[1])] = values[1]
        elif name.startswith("cuMemcpyDtoH"):
            at = values[1] - DEVICE_BASE
            return 0, bytes(self.memory[at : at + values[2]]).ljust(pad8(values[2]), b"\0")
        elif name == "cuMemAlloc_v2":
            return 0, struct.pack("<Q", DEVICE_BASE)
        elif name.endswith("GetFunction"):
            return 0, struct.pack("<4I", 1, 8, 0, 8)
        return 0, b""


def _values(row: ApiFunction, record: bytes) -> list[Any]:
    at = RECORD_HEADER.size + 8 * len(row.args)
    out: list[Any] = []
    for i, arg in enumerate(row.args):
        word = struct.unpack_from("<Q", record, RECORD_HEADER.size + 8 * i)[0]
        if arg.kind in BLOB_KINDS and word != NULL_WORD:
            out.append(record[at : at + word])
            at += pad8(word)
        elif word == NULL_WORD and (arg.kind in BLOB_KINDS or arg.kind is ArgKind.BYTES_OUT):
            out.append(None)
        else:
            out.append(word)
    return out
