"""Copies: linear, unified, pitched; host memory; pointer attributes."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanGPU.client.calls.pitched import boxes
from lanGPU.constants import COPY_CHUNK_BYTES
from lanGPU.driverapi.structs import MEMCPY2D, MEMCPY3D
from tests.helpers.call_driver import Program

INVALID_VALUE, INVALID_CONTEXT, ALREADY, NOT_REGISTERED, NOT_SUPPORTED = 1, 201, 712, 713, 801
DEVICE_BASE = 0x1000_0000_0000


class Device:
    """Device memory behind a fake server."""

    def __init__(self, size: int) -> None:
        self.data = bytearray(size)

    def __call__(self, name: str, values: tuple[Any, ...]) -> Any:
        if name.startswith("cuMemcpyHtoD"):
            at = values[0] - DEVICE_BASE
            assert len(values[1]) == values[2]
            self.data[at : at + values[2]] = values[1]
            return 0
        if name.startswith("cuMemcpyDtoH"):
            at = values[1] - DEVICE_BASE
            return bytes(self.data[at : at + values[2]])
        if name.startswith("cuMemcpyDtoD"):
            dst, src, size = values[0] - DEVICE_BASE, values[1] - DEVICE_BASE, values[2]
            self.data[dst : dst + size] = self.data[src : src + size]
            return 0
        if name == "cuPointerGetAttribute":
            inside = DEVICE_BASE <= values[2] < DEVICE_BASE + len(self.data)
            return (2).to_bytes(4, "little") if inside else INVALID_VALUE
        return 0


def pattern(size: int) -> bytes:
    return bytes(i * 7 % 251 for i in range(size))


def test_large_upload_and_download_in_pieces() -> None:
    size = 2 * COPY_CHUNK_BYTES + 12345
    device = Device(size)
    program = Program(device)
    source = pattern(size)
    assert program.call("cuMemcpyHtoD_v2", DEVICE_BASE, program.put(source), size) == 0
    assert device.data == source
    assert [len(v[1]) for _, v in program.sent] == [COPY_CHUNK_BYTES, COPY_CHUNK_BYTES, 12345]
    target = program.put(size)
    assert program.call("cuMemcpyDtoHAsync_v2", target, DEVICE_BASE, size, 0x99) == 0
    assert program.read(target, size) == source
    assert all(v[3] == 0x99 for n, v in program.sent if n == "cuMemcpyDtoHAsync_v2")


def test_bad_host_addresses() -> None:
    program = Program(Device(64))
    assert program.call("cuMemcpyHtoD_v2", DEVICE_BASE, 0, 64) == INVALID_VALUE
    assert program.call("cuMemcpyHtoD_v2", DEVICE_BASE, 0x10, 64) == INVALID_VALUE
    assert program.call("cuMemcpyDtoH_v2", 0, DEVICE_BASE, 64) == INVALID_VALUE


@pytest.mark.parametrize("suffix", ["", "Async"])
def test_unified_copies_find_their_sides(suffix: str) -> None:
    device = Device(256)
    program = Program(device)
    rest = (5,) if suffix else ()
    name = "cuMemcpy" + suffix
    source = program.put(pattern(64))
    target = program.put(64)
    assert program.call(name, DEVICE_BASE + 8, source, 64, *rest) == 0
    assert program.call(name, DEVICE_BASE + 128, DEVICE_BASE + 8, 64, *rest) == 0
    assert program.call(name, target, DEVICE_BASE + 128, 64, *rest) == 0
    assert program.read(target, 64) == pattern(64)
    other = program.put(64)
    assert program.call(name, other, target, 64, *rest) == 0
    assert program.read(other, 64) == pattern(64)
    assert program.call(name, 0, 0, 0, *rest) == 0


@given(st.integers(1, 40), st.integers(1, 9), st.integers(1, 5), st.integers(1, 64))
def test_boxes_cover_each_byte_once(width: int, height: int, depth: int, limit: int) -> None:
    seen = set()
    for box in boxes(width, height, depth, limit):
        assert box.width * box.height * box.depth <= limit
        for z in range(box.depth):
            for y in range(box.height):
                for x in range(box.width):
                    point = (box.x + x, box.y + y, box.z + z)
                    assert point not in seen
                    seen.add(point)
    assert len(seen) == width * height * depth


def copy_2d(**fields: int) -> bytes:
    return MEMCPY2D.pack(**fields)


@pytest.mark.parametrize("pitch", [16, 20, 400])
def test_2d_host_to_device_is_packed(pitch: int) -> None:
    program = Program()
    source = pattern(3 + pitch * 5)
    address = program.put(source)
    data = copy_2d(
        srcMemoryType=1, srcHost=address, srcPitch=pitch, srcXInBytes=3, srcY=1, dstMemoryType=2, dstDevice=DEVICE_BASE, dstPitch=64,
        dstXInBytes=5, WidthInBytes=10, Height=4,
    )  # fmt: skip
    assert program.call("cuMemcpy2D_v2", program.put(data)) == 0
    ((name, (sent,)),) = program.sent
    assert name == "cuMemcpy2D_v2"
    assert MEMCPY2D.get(sent, "srcHost") == 0
    assert MEMCPY2D.get(sent, "dstXInBytes") == 5
    rows = sent[MEMCPY2D.size :]
    assert rows == b"".join(source[3 + (y + 1) * pitch :][:10] for y in range(4))


def test_2d_device_to_host_leaves_gaps_alone() -> None:
    rows = pattern(30)
    program = Program(lambda name, values: rows)
    target = program.put(b"\xee" * 100)
    data = copy_2d(
        srcMemoryType=2, srcDevice=DEVICE_BASE, srcPitch=64, dstMemoryType=1, dstHost=target, dstPitch=20, dstXInBytes=2, WidthInBytes=10,
        Height=3,
    )  # fmt: skip
    assert program.call("cuMemcpy2DAsync_v2", program.put(data), 7) == 0
    expected = bytearray(b"\xee" * 100)
    for y in range(3):
        expected[2 + 20 * y : 12 + 20 * y] = rows[10 * y : 10 * y + 10]
    assert program.read(target, 100) == expected


def test_2d_on_the_device_passes_as_it_is() -> None:
    program = Program()
    data = copy_2d(srcMemoryType=2, srcDevice=1, srcPitch=8, dstMemoryType=3, dstArray=2, WidthInBytes=4, Height=2)
    assert program.call("cuMemcpy2DUnaligned_v2", program.put(data)) == 0
    assert program.sent == [("cuMemcpy2DUnaligned_v2", (data,))]
    bad = copy_2d(srcMemoryType=9, dstMemoryType=2, WidthInBytes=4, Height=2)
    assert program.call("cuMemcpy2D_v2", program.put(bad)) == INVALID_VALUE
    null = copy_2d(srcMemoryType=1, dstMemoryType=2, srcPitch=8, WidthInBytes=4, Height=2)
    assert program.call("cuMemcpy2D_v2", program.put(null)) == INVALID_VALUE


def test_3d_unified_sides_are_resolved_and_cut() -> None:
    height, depth, width = 3, 2, COPY_CHUNK_BYTES // 2
    program = Program(Device(1))
    source = bytes(width) * (height * depth)
    data = MEMCPY3D.pack(
        srcMemoryType=4, srcDevice=program.put(source), srcPitch=width, srcHeight=height, dstMemoryType=3, dstArray=77, dstZ=5,
        WidthInBytes=width, Height=height, Depth=depth,
    )  # fmt: skip
    assert program.call("cuMemcpy3D_v2", program.put(data)) == 0
    sent = [v[0] for n, v in program.sent if n == "cuMemcpy3D_v2"]
    assert [MEMCPY3D.get(s, "dstZ") for s in sent] == [5, 5, 6, 6]
    assert [MEMCPY3D.get(s, "dstY") for s in sent] == [0, 2, 0, 2]
    assert [len(s) - MEMCPY3D.size for s in sent] == [2 * width, width, 2 * width, width]
    assert {MEMCPY3D.get(s, "srcMemoryType") for s in sent} == {1}


def test_host_memory_books() -> None:
    program = Program()
    out = program.put(8)
    assert program.call("cuMemHostAlloc", out, 100, 0) == INVALID_CONTEXT
    assert program.call("cuCtxCreate_v2", out, 0, 0) == 0
    assert program.call("cuMemHostAlloc", out, 0, 0) == INVALID_VALUE
    assert program.call("cuMemHostAlloc", out, 100, 0x80) == INVALID_VALUE
    assert program.call("cuMemHostAlloc", out, 100, 5) == 0
    address = program.u64(out)
    assert program.call("cuMemHostGetFlags", out, address + 50) == 0
    assert program.u32(out) == 5
    assert program.call("cuMemHostGetFlags", out, address + 100) == INVALID_VALUE
    assert program.call("cuMemHostGetDevicePointer_v2", out, address + 4096, 0) == INVALID_VALUE
    assert program.call("cuMemHostRegister_v2", address + 8, 8, 0) == ALREADY
    assert program.call("cuMemFreeHost", address + 8) == INVALID_VALUE
    assert program.call("cuMemFreeHost", address) == 0
    assert address not in program.regions
    assert program.call("cuMemFreeHost", address) == INVALID_VALUE


def test_registered_memory() -> None:
    program = Program()
    out = program.put(8)
    assert program.call("cuCtxCreate_v2", out, 0, 0) == 0
    memory = program.put(4096)
    assert program.call("cuMemHostRegister_v2", memory, 4096, 0) == 0
    assert program.call("cuMemHostRegister_v2", memory + 4000, 200, 0) == ALREADY
    assert program.call("cuMemHostUnregister", memory + 1) == NOT_REGISTERED
    assert program.call("cuMemFreeHost", memory) == INVALID_VALUE
    assert program.call("cuMemHostUnregister", memory) == 0
    assert program.call("cuMemHostUnregister", memory) == NOT_REGISTERED
    assert program.call("cuMemHostRegister_v2", memory, 4096, 4) == NOT_SUPPORTED
    assert program.call("cuMemHostRegister_v2", 0, 4096, 0) == INVALID_VALUE


def test_pointer_attributes() -> None:
    program = Program(Device(64))
    out = program.put(8)
    assert program.call("cuCtxCreate_v2", out, 0, 0) == 0
    context = program.u64(out)
    assert program.call("cuMemAllocHost_v2", out, 64) == 0
    pinned = program.u64(out)
    assert program.call("cuPointerGetAttribute", out, 2, pinned + 5) == 0
    assert program.u32(out) == 1
    assert program.call("cuPointerGetAttribute", out, 11, pinned + 5) == 0
    assert program.u64(out) == pinned
    assert program.call("cuPointerGetAttribute", out, 1, pinned) == 0
    assert program.u64(out) == context
    assert program.call("cuPointerGetAttribute", out, 2, DEVICE_BASE) == 0
    assert program.u32(out) == 2
    assert program.call("cuPointerGetAttribute", out, 2, program.put(8)) == INVALID_VALUE
    assert program.call("cuPointerGetAttribute", out, 99, DEVICE_BASE) == INVALID_VALUE
    assert program.call("cuPointerGetAttribute", 0, 2, DEVICE_BASE) == INVALID_VALUE


def test_pointer_attributes_of_an_unknown_address_have_defaults() -> None:
    program = Program(Device(64))
    kinds = program.put(struct.pack("<2I", 2, 9))
    a, b = program.put(b"\xff" * 4), program.put(4)
    outs = program.put(struct.pack("<2Q", a, b))
    assert program.call("cuPointerGetAttributes", 2, kinds, outs, 0x1234) == 0
    assert struct.unpack("<i", program.read(a, 4)) == (0,)
    assert struct.unpack("<i", program.read(b, 4)) == (-2,)
