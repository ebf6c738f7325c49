"""The agent's side of the shared memory, and access to a program's memory."""

import ctypes
import os
import struct

import pytest

from lanGPU.client import layout as lay
from lanGPU.client.memory import ProgramFaultError, ProgramMemory
from lanGPU.client.ring import Ring, RingCorruptError, command_read, command_syscall, command_write
from tests.helpers.fake_shim import FakeShim


def test_peek_wraps_and_respects_positions() -> None:
    ring = Ring()
    shim = FakeShim(ring.fd)
    start = lay.RING_BYTES - 16
    shim.u64[lay.HEAD // 8] = shim.u64[lay.TAIL // 8] = start
    shim.publish(b"a" * 8)
    shim.publish(b"b" * 24)
    assert [bytes(v) for v in ring.peek(1 << 20, start + 8)] == [b"a" * 8]
    assert [bytes(v) for v in ring.peek(1 << 20)] == [b"a" * 8 + b"b" * 8, b"b" * 16]
    ring.advance(8)
    assert [len(v) for v in ring.peek(12)] == [8, 4]
    ring.advance(24)
    assert ring.peek(1 << 20) == []
    ring.close()


@pytest.mark.parametrize("head", [lay.RING_BYTES + 8, 1 << 63])
def test_corrupt_head(head: int) -> None:
    ring = Ring()
    FakeShim(ring.fd).u64[lay.HEAD // 8] = head
    with pytest.raises(RingCorruptError):
        ring.peek(1 << 20)


def test_corrupt_requests() -> None:
    ring = Ring()
    shim = FakeShim(ring.fd)
    shim.u32[lay.REQUESTS // 4] = 100_000
    shim.u32[lay.REQUEST_HEAD // 4] = 1
    with pytest.raises(RingCorruptError):
        ring.take_request()
    shim.u32[lay.REQUESTS // 4] = 5
    shim.u64[(lay.SLOTS + 5 * lay.SLOT_BYTES + lay.SLOT_POSITION) // 8] = 8
    with pytest.raises(RingCorruptError):
        ring.take_request()


def test_memory_cannot_be_shrunk_by_the_program() -> None:
    ring = Ring()
    with pytest.raises(PermissionError):
        os.ftruncate(ring.fd, 4096)
    ring.close()
    assert ring.fd == -1
    ring.close()


def test_equal_layouts_share_their_entries() -> None:
    ring = Ring()
    shim = FakeShim(ring.fd)
    assert ring.set_function(5, 1, ((0, 8), (8, 4)), 16)
    assert ring.set_function(6, 2, ((0, 8), (8, 4)), 16)
    assert ring.set_function(7, 0, (), 0)
    entries = [struct.unpack_from("<4I", shim.view, lay.FUNCTIONS + lay.FUNCTION_BYTES * i) for i in (5, 6, 7)]
    assert entries[0] == (3, 16, 0, 1)
    assert entries[1] == (3, 16, 0, 2)
    assert entries[2][:2] == (1, 0)
    assert not ring.set_function(8, 0, tuple((i, 1) for i in range(lay.PARAMS_CAPACITY)), 4)


@pytest.mark.parametrize("command", [command_write(1, b"abc"), command_read(1, 2), command_syscall(9, (1, -1))])
def test_commands_have_their_size_and_are_aligned(command: bytes) -> None:
    assert struct.unpack_from("<I", command, 4)[0] == len(command)
    assert len(command) % 8 == 0


def test_program_memory() -> None:
    memory = ProgramMemory(os.getpid())
    buffer = ctypes.create_string_buffer(b"hello\0world", 64)
    address = ctypes.addressof(buffer)
    assert memory.read(address, 5) == b"hello"
    assert memory.read_string(address, 64) == b"hello"
    memory.write(address, b"J")
    memory.write(address + 1, bytearray(b"u"))
    memory.write(address + 2, memoryview(b"mp"))
    assert buffer.raw[:5] == b"Jumpo"
    for bad in (lambda: memory.read(0x10, 8), lambda: memory.write(0x10, b"x"), lambda: memory.read_string(address, 3)):
        with pytest.raises(ProgramFaultError):
            bad()
    assert memory.direct
    assert memory.read(0x10, 0) == b""
