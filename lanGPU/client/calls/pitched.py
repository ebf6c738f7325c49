"""2D and 3D copies. Host sides are gathered and scattered here; what travels are packed rows, cut so that neither side stages much."""

from collections.abc import Iterator
from dataclasses import dataclass

from lanGPU.client.calls.copies import is_device, refuse_capture, settled
from lanGPU.client.calls.devices import need_pointer
from lanGPU.client.calls.effects import CallError, Part, Post, ReadMemory, Request, Steps, WriteMemory
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call
from lanGPU.client.memory import ProgramFaultError
from lanGPU.constants import COPY_CHUNK_BYTES, CUDA_ERROR_INVALID_CONTEXT, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS
from lanGPU.driverapi.batches import without_peers
from lanGPU.driverapi.structs import MEMCPY2D, MEMCPY3D, MEMCPY3D_PEER, StructLayout
from lanGPU.errors import RemoteProtocolError

HOST = 1
DEVICE = 2
ARRAY = 3
UNIFIED = 4
_DENSE = 4
"""Rows are read in one go, gaps included, while the gaps are at most this many times the data."""


@dataclass(slots=True)
class Side:
    """A host side: where row (y, z) begins is start + pitch * (y + height * z)."""

    start: int
    pitch: int
    height: int

    def row(self, x: int, y: int, z: int) -> int:
        """Address of byte x of a row."""
        return self.start + x + self.pitch * (y + self.height * z)


@dataclass(slots=True)
class Box:
    """A part of the copied volume; sizes in bytes, rows, slices."""

    x: int
    y: int
    z: int
    width: int
    height: int
    depth: int


def boxes(width: int, height: int, depth: int, limit: int = COPY_CHUNK_BYTES) -> Iterator[Box]:
    """The volume cut in parts of at most `limit` bytes each, the whole of it in order of rows."""
    if width * height * depth <= limit:
        yield Box(0, 0, 0, width, height, depth)
        return
    rows = max(1, min(height, limit // width))
    for z in range(depth):
        for y in range(0, height, rows):
            count = min(rows, height - y)
            for x in range(0, width, limit):
                yield Box(x, y, z, min(limit, width - x), count, 1)


class _Copy:
    """One call's struct, its sides resolved."""

    def __init__(self, layout: StructLayout, data: bytes | bytearray) -> None:
        self.layout = layout
        self.data = bytearray(data)
        self.three = layout is MEMCPY3D
        self.width = layout.get(data, "WidthInBytes")
        self.height = layout.get(data, "Height")
        self.depth = layout.get(data, "Depth") if self.three else 1

    def get(self, name: str) -> int:
        return self.layout.get(self.data, name)

    def resolve(self, call: Call, side: str) -> Part[Side | None]:
        """The host side, or None for device and array memory; a unified address becomes what it is."""
        kind = self.get(f"{side}MemoryType")
        address = self.get(f"{side}Host")
        if kind == UNIFIED:
            address = self.get(f"{side}Device")
            kind = DEVICE if (yield from is_device(call, address)) else HOST
            self.layout.put(self.data, f"{side}MemoryType", kind)
        if kind not in (HOST, DEVICE, ARRAY):
            raise CallError(CUDA_ERROR_INVALID_VALUE)
        if kind != HOST:
            return None
        if not address and self.width and self.height and self.depth:
            raise CallError(CUDA_ERROR_INVALID_VALUE)
        pitch = self.get(f"{side}Pitch") or self.get(f"{side}XInBytes") + self.width
        height = self.get(f"{side}Height") or self.height if self.three else self.height
        if pitch < self.get(f"{side}XInBytes") + self.width and self.height * self.depth > 1:
            raise CallError(CUDA_ERROR_INVALID_VALUE)
        z = self.get(f"{side}Z") if self.three else 0
        start = Side(address, pitch, height).row(self.get(f"{side}XInBytes"), self.get(f"{side}Y"), z)
        # Host addresses mean nothing to the server.
        self.layout.put(self.data, f"{side}Host", 0)
        self.layout.put(self.data, f"{side}Device", 0)
        return Side(start, pitch, height)

    def part(self, box: Box, source: Side | None, target: Side | None) -> bytes:
        """The struct for one part: device and array sides moved to its corner."""
        out = bytearray(self.data)
        put = self.layout.put
        for side, host in (("src", source), ("dst", target)):
            if host is None:
                put(out, f"{side}XInBytes", self.get(f"{side}XInBytes") + box.x)
                put(out, f"{side}Y", self.get(f"{side}Y") + box.y)
                if self.three:
                    put(out, f"{side}Z", self.get(f"{side}Z") + box.z)
        put(out, "WidthInBytes", box.width)
        put(out, "Height", box.height)
        if self.three:
            put(out, "Depth", box.depth)
        return bytes(out)


def gather(side: Side, box: Box) -> Part[bytes | bytearray]:
    """The rows of a part, packed."""
    out = bytearray()
    for z in range(box.z, box.z + box.depth):
        first = side.row(box.x, box.y, z)
        if box.height and side.pitch <= _DENSE * box.width:
            try:
                span = yield ReadMemory(first, (box.height - 1) * side.pitch + box.width)
            except ProgramFaultError:
                pass  # a gap between rows may not be mapped; the rows are
            else:
                if side.pitch == box.width:
                    out += span
                else:
                    for at in range(0, len(span), side.pitch):
                        out += span[at : at + box.width]
                continue
        for y in range(box.height):
            out += yield ReadMemory(first + y * side.pitch, box.width)
    return out


def scatter(side: Side, box: Box, data: bytes | bytearray) -> Part[None]:
    """Packed rows to where they belong; gaps are not touched."""
    at = 0
    for z in range(box.z, box.z + box.depth):
        first = side.row(box.x, box.y, z)
        if side.pitch == box.width:
            size = box.width * box.height
            yield WriteMemory(first, data[at : at + size])
            at += size
            continue
        for y in range(box.height):
            yield WriteMemory(first + y * side.pitch, data[at : at + box.width])
            at += box.width


def _pitched(call: Call, layout: StructLayout, address: int, stream: int | None) -> Steps:
    need_pointer(address)
    return (yield from _copy(call, call.row.name, layout, (yield ReadMemory(address, layout.size)), stream))


def _copy(call: Call, row: str, layout: StructLayout, data: bytes | bytearray, stream: int | None) -> Steps:
    copy = _Copy(layout, data)
    source = yield from copy.resolve(call, "src")
    target = yield from copy.resolve(call, "dst")
    if not (copy.width and copy.height and copy.depth):
        return CUDA_SUCCESS
    rest = () if stream is None else (stream,)
    if source is None and target is None:
        return int((yield Post(row, (bytes(copy.data), *rest))))
    if stream is not None:
        yield from refuse_capture(call, stream)
    if source is not None and target is not None and stream is not None:
        reply = yield Request("cuStreamSynchronize", (stream,))
        if reply.result:
            return int(reply.result)
    if source is not None and (result := (yield from settled(call, source.row(0, 0, 0), stream))):
        return result
    for box in boxes(copy.width, copy.height, copy.depth):
        size = box.width * box.height * box.depth
        if source is not None:
            data = yield from gather(source, box)
            if target is not None:
                yield from scatter(target, box, data)
                continue
            result = yield Post(row, (copy.part(box, source, target) + data, *rest))
            if result:
                return int(result)
        else:
            assert target is not None
            reply = yield Request(row, (copy.part(box, source, target), *rest))
            if reply.result:
                return int(reply.result)
            if len(reply.outputs) < size:
                raise RemoteProtocolError(f"{row}: {len(reply.outputs)} of {size} bytes came back")
            yield from scatter(target, box, reply.outputs)
    return CUDA_SUCCESS


@client_call("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2")
def memcpy_2d(call: Call, address: int) -> Steps:
    """Returns when a host side was read or written."""
    return (yield from _pitched(call, MEMCPY2D, address, None))


@client_call("cuMemcpy2DAsync_v2")
def memcpy_2d_async(call: Call, address: int, stream: int) -> Steps:
    """As the linear asynchronous copies: host bytes are taken at once, or waited for."""
    return (yield from _pitched(call, MEMCPY2D, address, stream))


@client_call("cuMemcpy3D_v2")
def memcpy_3d(call: Call, address: int) -> Steps:
    """Returns when a host side was read or written."""
    return (yield from _pitched(call, MEMCPY3D, address, None))


@client_call("cuMemcpy3DAsync_v2")
def memcpy_3d_async(call: Call, address: int, stream: int) -> Steps:
    """As cuMemcpy2DAsync."""
    return (yield from _pitched(call, MEMCPY3D, address, stream))


def _peers(call: Call, row: str, address: int, stream: int | None) -> Steps:
    need_pointer(address)
    data, contexts = without_peers((yield ReadMemory(address, MEMCPY3D_PEER.size)))
    for side, context in zip(("src", "dst"), contexts, strict=True):
        # The context is ignored where the memory is an array, and host memory belongs to none.
        if MEMCPY3D.get(data, f"{side}MemoryType") == DEVICE and context not in call.state.contexts:
            return CUDA_ERROR_INVALID_CONTEXT
    return (yield from _copy(call, row, MEMCPY3D, data, stream))


@client_call("cuMemcpy3DPeer")
def memcpy_3d_peer(call: Call, address: int) -> Steps:
    """As cuMemcpy3D: under unified addressing an address says whose memory it is."""
    return (yield from _peers(call, "cuMemcpy3D_v2", address, None))


@client_call("cuMemcpy3DPeerAsync")
def memcpy_3d_peer_async(call: Call, address: int, stream: int) -> Steps:
    """As cuMemcpy3DAsync."""
    return (yield from _peers(call, "cuMemcpy3DAsync_v2", address, stream))
