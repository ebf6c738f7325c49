"""A program's side of the shared memory in Python: attaches as the shim does, posts records, waits for replies, obeys commands.

Written from `lanGPU.client.layout`; no locks, so each test uses it from one thread.
"""

import ctypes
import mmap
import os
import socket
import struct
import time
from collections.abc import Sequence

from lanGPU.client import layout as lay
from lanGPU.client.syscalls import futex_wait, futex_wake
from lanGPU.driverapi.table import BY_NAME
from lanGPU.wire.records import REPLY_HEADER, Value, encode

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
LIMIT_S = 20.0


class FakeShim:
    """One attached process (this one) with one thread, slot 0."""

    def __init__(self, fd: int, conn: socket.socket | None = None) -> None:
        self.conn = conn
        self._map = mmap.mmap(fd, lay.TOTAL_BYTES, mmap.MAP_SHARED)
        self._base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        self.view = memoryview(self._map)
        self.u32 = self.view.cast("I")
        self.u64 = self.view.cast("Q")
        self.slot = 0
        self.u32[lay.NEXT_SLOT // 4] = 1
        self.token = 0
        self.commands = 0
        self.keep: list[object] = []

    @classmethod
    def attach(cls, path: str, digest: bytes, *, abi: int = lay.SHIM_ABI) -> "FakeShim":
        """As the shim: hello, answer with the memfd. Raises ConnectionError with the CUresult."""
        conn = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        conn.settimeout(LIMIT_S)
        conn.connect(path)
        anchor = ctypes.create_string_buffer(4096)
        conn.send(struct.pack("<IIIIQ32s", lay.HELLO_MAGIC, abi, os.getpid(), 1, ctypes.addressof(anchor), digest))
        data, fds, _, _ = socket.recv_fds(conn, 64, 1)
        if not fds:
            conn.close()
            raise ConnectionError(struct.unpack("<IIQ", data)[1] if data else -1)
        shim = cls(fds[0], conn)
        os.close(fds[0])
        shim.keep.append(anchor)
        return shim

    def close(self) -> None:
        """As the end of the process."""
        if self.conn is not None:
            self.conn.close()

    @property
    def _slot(self) -> int:
        return lay.SLOTS + self.slot * lay.SLOT_BYTES

    def _ring_doorbell(self) -> None:
        if self.u32[lay.AGENT_SLEEPING // 4]:
            self.u32[lay.AGENT_SLEEPING // 4] = 0
            self.u32[lay.DOORBELL // 4] += 1
            futex_wake(self._base + lay.DOORBELL)

    def _wait(self, seen: int) -> None:
        deadline = time.monotonic() + LIMIT_S
        at = self._slot + lay.SLOT_REPLY_SEQ
        while self.u32[at // 4] == seen:
            assert time.monotonic() < deadline, "no answer from the agent"
            self.u32[(self._slot + lay.SLOT_WAITING) // 4] = 1
            futex_wait(self._base + at, seen, 0.2)
            self.u32[(self._slot + lay.SLOT_WAITING) // 4] = 0

    def publish(self, record: bytes) -> None:
        """Append a record, waiting for room."""
        deadline = time.monotonic() + LIMIT_S
        while self.u64[lay.HEAD // 8] + len(record) - self.u64[lay.TAIL // 8] > lay.RING_BYTES:
            assert time.monotonic() < deadline, "no room in the ring"
            seen = self.u32[lay.SPACE_SEQ // 4]
            self.u32[lay.SPACE_WAITERS // 4] += 1
            if self.u64[lay.HEAD // 8] + len(record) - self.u64[lay.TAIL // 8] > lay.RING_BYTES:
                futex_wait(self._base + lay.SPACE_SEQ, seen, 0.2)
            self.u32[lay.SPACE_WAITERS // 4] -= 1
        head = self.u64[lay.HEAD // 8]
        at = head % lay.RING_BYTES
        first = min(len(record), lay.RING_BYTES - at)
        self.view[lay.RING + at : lay.RING + at + first] = record[:first]
        self.view[lay.RING : lay.RING + len(record) - first] = record[first:]
        self.u64[lay.HEAD // 8] = head + len(record)
        self._ring_doorbell()

    def post(self, name: str, *values: Value) -> None:
        """A posted call."""
        self.u64[lay.COUNT_POSTED // 8] += 1
        self.publish(encode(BY_NAME[name], values, thread=self.slot))

    def sync(self, name: str, *values: Value) -> tuple[int, bytes]:
        """A call that waits: (CUresult, outputs)."""
        if self.u32[lay.FLAGS // 4] & lay.FLAG_CLOSED:
            return self.u32[lay.CLOSED_RESULT // 4], b""
        self.token += 1
        self.u32[(self._slot + lay.SLOT_TOKEN) // 4] = self.token
        seen = self.u32[(self._slot + lay.SLOT_REPLY_SEQ) // 4]
        self.u64[lay.COUNT_SYNC // 8] += 1
        self.publish(encode(BY_NAME[name], values, thread=self.slot, token=self.token))
        self._wait(seen)
        assert self.u32[(self._slot + lay.SLOT_REPLY_KIND) // 4] == lay.REPLY_RECORD
        count = self.u32[(self._slot + lay.SLOT_REPLY_BYTES) // 4]
        data = bytes(self.view[self._slot + lay.SLOT_DATA : self._slot + lay.SLOT_DATA + count])
        thread, token, result, _, _ = REPLY_HEADER.unpack_from(data)
        assert (thread, token) == (self.slot, self.token)
        return result, data[REPLY_HEADER.size :]

    def _queue(self, api_id: int) -> None:
        base = self._slot
        seen = self.u32[(base + lay.SLOT_REPLY_SEQ) // 4]
        self.u32[(base + lay.SLOT_API_ID) // 4] = api_id
        self.u64[(base + lay.SLOT_POSITION) // 8] = self.u64[lay.HEAD // 8]
        head = self.u32[lay.REQUEST_HEAD // 4]
        self.u32[(lay.REQUESTS + 4 * (head % lay.REQUEST_CAPACITY)) // 4] = self.slot
        self.u32[lay.REQUEST_HEAD // 4] = head + 1
        self._ring_doorbell()
        self._wait(seen)

    def thread_attach(self) -> int:
        """What the shim says when a thread gets a slot."""
        self._queue(lay.API_THREAD_ATTACH)
        return self._obey()

    def agent(self, name: str, *args: int) -> int:
        """A call by way of the agent; its CUresult."""
        if self.u32[lay.FLAGS // 4] & lay.FLAG_CLOSED:
            return self.u32[lay.CLOSED_RESULT // 4]
        for i, word in enumerate(args):
            self.u64[(self._slot + lay.SLOT_ARGS) // 8 + i] = word & 0xFFFF_FFFF_FFFF_FFFF
        self.u64[lay.COUNT_AGENT // 8] += 1
        self._queue(BY_NAME[name].api_id)
        return self._obey()

    def _obey(self) -> int:
        """Carry out commands until RETURN."""
        base = self._slot
        while True:
            kind = self.u32[(base + lay.SLOT_REPLY_KIND) // 4]
            if kind == lay.REPLY_RECORD:
                return int(REPLY_HEADER.unpack_from(self.view, base + lay.SLOT_DATA)[2])
            count = self.u32[(base + lay.SLOT_REPLY_BYTES) // 4]
            data = bytes(self.view[base + lay.SLOT_DATA : base + lay.SLOT_DATA + count])
            at = 0
            while at < len(data):
                opcode, size = struct.unpack_from("<II", data, at)
                assert size % 8 == 0
                assert size
                body = data[at + 8 : at + size]
                at += size
                self.commands += 1
                if opcode == lay.CMD_RETURN:
                    return int.from_bytes(body[:8], "little")
                self._carry_out(opcode, body)
            self._queue(lay.API_CONTINUE)

    def _carry_out(self, opcode: int, body: bytes) -> None:
        base = self._slot + lay.SLOT_DATA
        words: Sequence[int] = struct.unpack_from(f"<{min(len(body) // 8, 7)}Q", body)
        if opcode == lay.CMD_WRITE:
            ctypes.memmove(words[0], body[16 : 16 + words[1]], words[1])
        elif opcode == lay.CMD_READ:
            self.view[base : base + words[1]] = ctypes.string_at(words[0], words[1])
        elif opcode == lay.CMD_READ_STRING:
            text = ctypes.string_at(words[0])[: words[1] - 1] + b"\0"
            self.view[base : base + len(text)] = text
            self.u32[(self._slot + lay.SLOT_REPLY_BYTES) // 4] = len(text)
        elif opcode == lay.CMD_SYSCALL:
            result = _libc.syscall(*(ctypes.c_long(w if w < 1 << 63 else w - (1 << 64)) for w in words))
            self.u64[base // 8] = result & 0xFFFF_FFFF_FFFF_FFFF
        else:
            raise AssertionError(opcode)

    def buffer(self, data: bytes | int) -> "Buffer":
        """Memory of the program."""
        made = Buffer(data)
        self.keep.append(made)
        return made


class Buffer:
    """Bytes at a known address."""

    def __init__(self, data: bytes | int) -> None:
        size = data if isinstance(data, int) else len(data)
        self._raw = ctypes.create_string_buffer(max(size, 1))
        self.size = size
        self.address = ctypes.addressof(self._raw)
        if isinstance(data, bytes):
            ctypes.memmove(self.address, data, size)

    @property
    def bytes(self) -> bytes:
        """What lies there now."""
        return ctypes.string_at(self.address, self.size)

    def set(self, data: bytes) -> None:
        """Overwrite."""
        ctypes.memmove(self.address, data, len(data))

    @property
    def word(self) -> int:
        """As u64, or u32 if it is that small."""
        return int.from_bytes(self.bytes[:8], "little")
