"""The loops in machine code against their Python meaning: any split of the bytes, odd frames, a full ring."""

import ctypes
import os
import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from lanGPU.client import layout as lay
from lanGPU.client import pump, pump_ir
from lanGPU.client.ring import Ring
from lanGPU.client.syscalls import address_of
from lanGPU.wire.frames import FrameType, decode_header, encode_header
from lanGPU.wire.records import REPLY_HEADER
from tests.helpers.fake_shim import FakeShim


class Bench:
    def __init__(self) -> None:
        loops = pump.load()
        assert loops is not None
        self.loops = loops
        self.ring = Ring()
        self.shim = FakeShim(self.ring.fd)
        self.here, self.there = socket.socketpair()
        self.there.settimeout(20)
        self.context = pump.new_context(self.ring.address)
        self.context.fd = self.here.fileno()
        self.buffer = bytearray(pump.RECEIVE_BYTES)
        self.context.buffer = address_of(self.buffer)
        self.context.buffer_bytes = len(self.buffer)

    def forward(self) -> int:
        return self.loops.forward(ctypes.addressof(self.context))

    def receive(self) -> int:
        return self.loops.receive(ctypes.addressof(self.context))

    def rest(self) -> bytes:
        return bytes(self.buffer[self.context.start : self.context.end])

    def expect_reply(self, token: int, slot: int = 0) -> None:
        self.shim.u32[(lay.SLOTS + slot * lay.SLOT_BYTES + lay.SLOT_TOKEN) // 4] = token

    def slot(self, slot: int = 0) -> tuple[int, bytes]:
        base = lay.SLOTS + slot * lay.SLOT_BYTES
        count = self.shim.u32[(base + lay.SLOT_REPLY_BYTES) // 4]
        return self.shim.u32[(base + lay.SLOT_REPLY_SEQ) // 4], bytes(self.shim.view[base + lay.SLOT_DATA : base + lay.SLOT_DATA + count])


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.here.close()
    made.there.close()


def frame(reply: bytes) -> bytes:
    return encode_header(FrameType.REPLY, 0, len(reply)) + reply


def reply(token: int, data: bytes = b"", thread: int = 0) -> bytes:
    return REPLY_HEADER.pack(thread, token, 0, 0, 0) + data


def test_replies_split_anywhere_reach_their_slots(bench: Bench) -> None:
    first, second = reply(7, b"x" * 40), reply(9, b"y" * 8, thread=3)
    stream = frame(first) + frame(second)
    bench.expect_reply(7)
    bench.expect_reply(9, slot=3)
    for count, at in enumerate(range(1, len(stream)), 1):
        for piece in (stream[:at], stream[at:]):
            bench.there.send(piece)
        bench.there.send(encode_header(FrameType.LOG, 0, 0))  # returns to Python
        assert bench.receive() == pump_ir.RECEIVE_PYTHON
        assert bench.rest() == encode_header(FrameType.LOG, 0, 0)
        bench.context.start = bench.context.end = 0
        assert bench.slot() == (count, first)
        assert bench.slot(3) == (count, second)
    assert bench.context.replies == 2 * (len(stream) - 1)


@pytest.mark.parametrize(
    "odd",
    [
        frame(reply(8)),  # nobody waits for this token
        frame(reply(7 | pump_ir.AGENT_TOKEN)),
        frame(reply(7, thread=512)),
        frame(reply(7, thread=0xFFFF_FFFF)),
        frame(reply(7)[:14] + b"\1\0"),
        frame(reply(7, bytes(lay.SLOT_DATA_BYTES))),  # larger than a slot
        frame(reply(7))[:8] + struct.pack("<II", 0, 8) + bytes(8),
        frame(reply(7))[:8] + struct.pack("<II", 4, 16) + bytes(20),
        b"garbage that is long enough",
    ],
)
def test_everything_else_is_left_to_python(bench: Bench, odd: bytes) -> None:
    bench.expect_reply(7)
    bench.there.send(frame(reply(7)) + odd)
    assert bench.receive() == pump_ir.RECEIVE_PYTHON
    assert bench.slot()[0] == 1
    assert odd.startswith(bench.rest())
    assert len(bench.rest()) >= 16


def test_end_and_error_of_the_connection(bench: Bench) -> None:
    bench.there.send(frame(reply(7))[:20])
    bench.there.shutdown(socket.SHUT_WR)
    assert bench.receive() == pump_ir.RECEIVE_END
    assert len(bench.rest()) == 20
    bench.context.fd = -1
    assert bench.receive() == -9  # EBADF
    bench.shim.publish(bytes(8))
    assert bench.forward() == -9


def test_records_go_out_in_frames_also_around_the_end_of_the_ring(bench: Bench) -> None:
    bench.here.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)  # short sends
    record = os.urandom(lay.RING_BYTES // 2 + 8)
    thread = threading.Thread(target=bench.forward)
    thread.start()
    for _ in range(4):
        bench.shim.publish(record)
        got = bytearray()
        while len(got) < 16 + len(record):
            got += bench.there.recv(1 << 20)
        assert decode_header(got).bulk == len(record)
        assert got[16:] == record
    bench.context.attention = 1
    bench.ring.ring_doorbell()
    thread.join(20)
    assert not thread.is_alive()
    assert bench.ring.tail > 2 * lay.RING_BYTES


def test_requests_and_attention_come_before_records(bench: Bench) -> None:
    bench.shim.publish(bytes(16))
    bench.shim.u32[lay.REQUEST_HEAD // 4] = 1
    assert bench.forward() == pump_ir.FORWARD_PYTHON
    bench.shim.u32[lay.REQUEST_TAIL // 4] = 1
    bench.context.attention = 1
    assert bench.forward() == pump_ir.FORWARD_PYTHON
    assert bench.ring.tail == 0


def test_corrupt_head(bench: Bench) -> None:
    bench.shim.u64[lay.HEAD // 8] = lay.RING_BYTES + 8
    assert bench.forward() == pump_ir.FORWARD_CORRUPT
    bench.shim.u64[lay.HEAD // 8] = 1 << 63
    assert bench.forward() == pump_ir.FORWARD_CORRUPT


def test_record_bytes_and_waiting_threads(bench: Bench) -> None:
    bench.shim.u32[lay.SPACE_WAITERS // 4] = 1
    bench.shim.u64[lay.COUNT_SYNC // 8] = 1
    records = [bytes([i]) * 24 for i in range(20)]
    for record in records:
        bench.shim.publish(record)
    thread = threading.Thread(target=bench.forward)
    thread.start()
    got = b""
    while len(got) < 16 + 20 * 24:
        got += bench.there.recv(4096)
    bench.context.attention = 1
    bench.ring.ring_doorbell()
    thread.join(20)
    assert not thread.is_alive()
    header = decode_header(got)
    assert (header.type, header.bulk) == (FrameType.RECORDS, 20 * 24)
    assert got[16:] == b"".join(records)
    assert bench.ring.tail == bench.ring.head == 480
    assert bench.shim.u32[lay.SPACE_SEQ // 4] == 1
    assert (bench.context.bytes_sent, bench.context.record_bytes) == (496, 480)
    assert bench.context.wait_since > 0
    bench.expect_reply(1)
    bench.there.send(frame(reply(1)))
    bench.there.shutdown(socket.SHUT_WR)
    assert bench.receive() == pump_ir.RECEIVE_END
    assert bench.context.wait_since == 0
    assert bench.context.wait_ns > 0
