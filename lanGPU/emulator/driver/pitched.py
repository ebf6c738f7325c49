"""2D and 3D copies between linear memory and arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.batches import without_peers
from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import MEMCPY2D, MEMCPY3D, MEMCPY3D_PEER
from lanGPU.emulator.driver.arrays import array_side
from lanGPU.emulator.driver.cabi import get_bytes, need
from lanGPU.emulator.driver.objects import Context
from lanGPU.emulator.driver.operations import PitchedCopy, Side
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.results import INVALID_VALUE, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_HOST: Final = ENUMS["CUmemorytype"]["CU_MEMORYTYPE_HOST"]
_DEVICE: Final = ENUMS["CUmemorytype"]["CU_MEMORYTYPE_DEVICE"]
_ARRAY: Final = ENUMS["CUmemorytype"]["CU_MEMORYTYPE_ARRAY"]
_UNIFIED: Final = ENUMS["CUmemorytype"]["CU_MEMORYTYPE_UNIFIED"]


def copy_2d(d: Driver, data: bytes) -> PitchedCopy | None:
    """The copy that a CUDA_MEMCPY2D asks for; None if it is empty."""
    fields = MEMCPY2D.unpack(data)
    for side in ("src", "dst"):
        fields[side + "Z"] = fields[side + "LOD"] = 0
        fields[side + "Height"] = fields["Height"]
    fields["Depth"] = 1
    return _copy(d, fields)


def copy_3d(d: Driver, data: bytes) -> PitchedCopy | None:
    """The copy that a CUDA_MEMCPY3D asks for; None if it is empty."""
    return _copy(d, MEMCPY3D.unpack(data))


def _copy(d: Driver, fields: dict[str, int]) -> PitchedCopy | None:
    width, height, depth = fields["WidthInBytes"], fields["Height"], fields["Depth"]
    if not (width and height and depth):
        return None
    source = _side(d, fields, "src", width, height, depth)
    destination = _side(d, fields, "dst", width, height, depth)
    return PitchedCopy(destination, source, width, height, depth, d.memory)


def _side(d: Driver, fields: dict[str, int], side: str, width: int, height: int, depth: int) -> Side:
    kind = fields[side + "MemoryType"]
    if kind == _ARRAY:
        return array_side(d, fields, side, width, height, depth)
    if kind not in (_HOST, _DEVICE, _UNIFIED) or fields[side + "LOD"]:
        raise CuError(INVALID_VALUE)
    base = need(fields[side + ("Host" if kind == _HOST else "Device")])
    # A pitch or height of 0 stands for "no gaps" (the driver computes both from the extent).
    pitch = fields[side + "Pitch"] or fields[side + "XInBytes"] + width
    rows = fields[side + "Height"] or fields[side + "Y"] + height
    if (height > 1 or depth > 1) and pitch < fields[side + "XInBytes"] + width:
        raise CuError(INVALID_VALUE)
    if depth > 1 and rows < fields[side + "Y"] + height:
        raise CuError(INVALID_VALUE)
    slice_pitch = pitch * rows
    address = base + fields[side + "Z"] * slice_pitch + fields[side + "Y"] * pitch + fields[side + "XInBytes"]
    extent = (depth - 1) * slice_pitch + (height - 1) * pitch + width
    device = kind == _DEVICE or (kind == _UNIFIED and d.memory.contains(address, extent))
    if device:
        d.check_range(address, extent)
    return Side(address, pitch, slice_pitch, device)


def _must_wait(d: Driver, copy: PitchedCopy) -> bool:
    """Whether a side is pageable host memory, which is not to be touched after the call."""
    return any(
        not side.device and not d.memory.contains(side.address, side.extent(copy.width, copy.height, copy.depth))
        for side in (copy.destination, copy.source)
    )


def _run(d: Driver, context: Context, copy: PitchedCopy | None, stream: int, *, synchronous: bool) -> None:
    where = d.stream(context, stream)
    if copy is None:
        return
    both = copy.destination.device and copy.source.device
    wait = not both if synchronous else where.capture is None and _must_wait(d, copy)
    d.run(where, copy, wait=wait)


@in_context("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", unsafe=True)
def memcpy_2d(d: Driver, context: Context, copy: int) -> None:
    _run(d, context, copy_2d(d, get_bytes(copy, MEMCPY2D.size)), 0, synchronous=True)


@in_context("cuMemcpy2DAsync_v2")
def memcpy_2d_async(d: Driver, context: Context, copy: int, stream: int) -> None:
    _run(d, context, copy_2d(d, get_bytes(copy, MEMCPY2D.size)), stream, synchronous=False)


@in_context("cuMemcpy3D_v2", unsafe=True)
def memcpy_3d(d: Driver, context: Context, copy: int) -> None:
    _run(d, context, copy_3d(d, get_bytes(copy, MEMCPY3D.size)), 0, synchronous=True)


@in_context("cuMemcpy3DAsync_v2")
def memcpy_3d_async(d: Driver, context: Context, copy: int, stream: int) -> None:
    _run(d, context, copy_3d(d, get_bytes(copy, MEMCPY3D.size)), stream, synchronous=False)


def _peer_copy(d: Driver, copy: int) -> PitchedCopy | None:
    data, contexts = without_peers(get_bytes(copy, MEMCPY3D_PEER.size))
    for side, handle in zip(("src", "dst"), contexts, strict=True):
        if MEMCPY3D.get(data, side + "MemoryType") == _DEVICE:
            d.context(handle)
    return copy_3d(d, data)


@in_context("cuMemcpy3DPeer", unsafe=True)
def memcpy_3d_peer(d: Driver, context: Context, copy: int) -> None:
    _run(d, context, _peer_copy(d, copy), 0, synchronous=True)


@in_context("cuMemcpy3DPeerAsync")
def memcpy_3d_peer_async(d: Driver, context: Context, copy: int, stream: int) -> None:
    _run(d, context, _peer_copy(d, copy), stream, synchronous=False)
