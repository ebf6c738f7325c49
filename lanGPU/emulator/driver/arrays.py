"""CUDA arrays and mipmapped arrays: rows without gaps in device memory that no kernel is told the address of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import ARRAY3D_DESCRIPTOR, ARRAY_DESCRIPTOR
from lanGPU.emulator.attributes import texture_limit
from lanGPU.emulator.driver.cabi import get_bytes, need, put_bytes, put_u64
from lanGPU.emulator.driver.copies import pinned
from lanGPU.emulator.driver.objects import Context
from lanGPU.emulator.driver.operations import BytesCopy, Copy, Side
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.results import INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver
    from lanGPU.emulator.memory import Allocation

CHANNEL_BYTES: Final = {0x01: 1, 0x02: 2, 0x03: 4, 0x08: 1, 0x09: 2, 0x0A: 4, 0x10: 2, 0x20: 4}
"""CUarray_format of integers, halves and floats -> bytes of one channel; the formats of video and compressed textures are not here."""
LAYERED: Final = 0x01
SURFACE_LDST: Final = 0x02
CUBEMAP: Final = 0x04
TEXTURE_GATHER: Final = 0x08
_COLOR_ATTACHMENT: Final = 0x20
_PLAIN_FLAGS: Final = LAYERED | SURFACE_LDST | CUBEMAP | TEXTURE_GATHER | _COLOR_ATTACHMENT
_ALL_FLAGS: Final = 0x1FF
"""CUDA_ARRAY3D_*; depth textures, sparse arrays, deferred mapping and video are refused by name."""


@dataclass(slots=True, eq=False)
class CudaArray:
    """A CUarray. Sizes are the descriptor's: 0 says that there is no such dimension."""

    context: Context
    width: int
    height: int
    depth: int
    format: int
    channels: int
    flags: int
    address: int
    handle: int = 0
    allocation: Allocation | None = None
    """None for a level, whose memory belongs to its mipmapped array."""
    owner: MipmappedArray | None = None

    @property
    def element_bytes(self) -> int:
        """Of all channels."""
        return CHANNEL_BYTES[self.format] * self.channels

    @property
    def pitch(self) -> int:
        """From row to row."""
        return self.width * self.element_bytes

    @property
    def rows(self) -> int:
        return max(1, self.height)

    @property
    def slices(self) -> int:
        return max(1, self.depth)

    @property
    def slice_pitch(self) -> int:
        """From slice to slice, or layer to layer."""
        return self.pitch * self.rows

    @property
    def total_bytes(self) -> int:
        return self.slice_pitch * self.slices

    @property
    def layers(self) -> int:
        """Layers, or faces of cubes; 0 if the depth is a depth."""
        return self.depth if self.flags & (LAYERED | CUBEMAP) else 0

    def describe(self) -> dict[str, int]:
        """The fields of CUDA_ARRAY3D_DESCRIPTOR."""
        return {
            "Width": self.width,
            "Height": self.height,
            "Depth": self.depth,
            "Format": self.format,
            "NumChannels": self.channels,
            "Flags": self.flags,
        }


@dataclass(slots=True, eq=False)
class MipmappedArray:
    """A CUmipmappedArray; its levels lie behind each other in one allocation."""

    context: Context
    allocation: Allocation
    levels: list[CudaArray] = field(default_factory=list)
    handle: int = 0


# --- descriptors ---------------------------------------------------------------------------------------------------------
def _limits(f: dict[str, int], mipmapped: bool) -> tuple[int, ...]:
    """Largest width, height and depth for the kind of array that the fields ask for."""
    flags, height, depth = f["Flags"], f["Height"], f["Depth"]
    if flags & CUBEMAP:
        if flags & LAYERED:
            width = texture_limit("CUBEMAP_LAYERED_WIDTH")
            return width, width, texture_limit("CUBEMAP_LAYERED_LAYERS")
        return texture_limit("CUBEMAP_WIDTH"), texture_limit("CUBEMAP_WIDTH"), 6
    if flags & LAYERED:
        if not height:
            return texture_limit("1D_LAYERED_WIDTH"), 0, texture_limit("1D_LAYERED_LAYERS")
        return tuple(texture_limit(f"2D_LAYERED_{name}") for name in ("WIDTH", "HEIGHT", "LAYERS"))
    if depth:
        return tuple(texture_limit(f"3D_{name}") for name in ("WIDTH", "HEIGHT", "DEPTH"))
    if height:
        kind = "2D_GATHER" if flags & TEXTURE_GATHER else "2D_MIPMAPPED" if mipmapped else "2D"
        return texture_limit(kind + "_WIDTH"), texture_limit(kind + "_HEIGHT"), 0
    return texture_limit("1D_MIPMAPPED_WIDTH" if mipmapped else "1D_WIDTH"), 0, 0


def _check(f: dict[str, int], *, mipmapped: bool = False) -> None:
    """INVALID_VALUE for a descriptor that cuArray3DCreate's documentation excludes, NOT_SUPPORTED for kinds that are not emulated."""
    width, height, depth, flags = f["Width"], f["Height"], f["Depth"], f["Flags"]
    if flags & ~_ALL_FLAGS or f["NumChannels"] not in (1, 2, 4):
        raise CuError(INVALID_VALUE)
    if f["Format"] not in CHANNEL_BYTES:
        known = f["Format"] in ENUMS["CUarray_format"].values()
        raise CuError(NOT_SUPPORTED if known else INVALID_VALUE, f"array format {f['Format']:#x}")
    if flags & ~_PLAIN_FLAGS:
        raise CuError(NOT_SUPPORTED, f"arrays with flags {flags:#x} are not supported by the emulated driver")
    if not width or (depth and not height and not flags & LAYERED):
        raise CuError(INVALID_VALUE)
    if flags & LAYERED and not depth:
        raise CuError(INVALID_VALUE)
    if flags & CUBEMAP and (width != height or depth % 6 or not depth or (depth != 6 and not flags & LAYERED)):
        raise CuError(INVALID_VALUE)
    if flags & TEXTURE_GATHER and (not height or depth):
        raise CuError(INVALID_VALUE)
    if any(size > limit for size, limit in zip((width, height, depth), _limits(f, mipmapped), strict=True)):
        raise CuError(INVALID_VALUE)


def _bytes_of(f: dict[str, int]) -> int:
    return f["Width"] * max(1, f["Height"]) * max(1, f["Depth"]) * CHANNEL_BYTES[f["Format"]] * f["NumChannels"]


def _array(context: Context, f: dict[str, int], address: int) -> CudaArray:
    return CudaArray(context, f["Width"], f["Height"], f["Depth"], f["Format"], f["NumChannels"], f["Flags"], address)


# --- arrays ----------------------------------------------------------------------------------------------------------------
def _create(d: Driver, context: Context, out: int, f: dict[str, int]) -> None:
    _check(f)
    allocation = d.memory.allocate(_bytes_of(f), context.device.ordinal, context=context)
    array = _array(context, f, allocation.address)
    array.allocation = allocation
    array.handle = d.handles.add(array)
    put_u64(out, array.handle)


@in_context("cuArrayCreate_v2", unsafe=True)
def array_create(d: Driver, context: Context, out: int, descriptor: int) -> None:
    fields = ARRAY_DESCRIPTOR.unpack(get_bytes(descriptor, ARRAY_DESCRIPTOR.size))
    _create(d, context, need(out), {**fields, "Depth": 0, "Flags": 0})


@in_context("cuArray3DCreate_v2", unsafe=True)
def array_3d_create(d: Driver, context: Context, out: int, descriptor: int) -> None:
    _create(d, context, need(out), ARRAY3D_DESCRIPTOR.unpack(get_bytes(descriptor, ARRAY3D_DESCRIPTOR.size)))


def array_of(d: Driver, handle: int) -> CudaArray:
    """The array, or CUDA_ERROR_INVALID_HANDLE."""
    return d.handles.get(handle, CudaArray)


@in_context("cuArrayGetDescriptor_v2")
def array_get_descriptor(d: Driver, context: Context, descriptor: int, array: int) -> None:
    fields = array_of(d, array).describe()
    del fields["Depth"], fields["Flags"]
    put_bytes(descriptor, ARRAY_DESCRIPTOR.pack(**fields))


@in_context("cuArray3DGetDescriptor_v2")
def array_3d_get_descriptor(d: Driver, context: Context, descriptor: int, array: int) -> None:
    put_bytes(descriptor, ARRAY3D_DESCRIPTOR.pack(**array_of(d, array).describe()))


@in_context("cuArrayDestroy", unsafe=True)
def array_destroy(d: Driver, context: Context, array: int) -> None:
    """Waits for all work first, since kernels may read the array through objects, which end with it. A level is its owner's to end."""
    found = array_of(d, array)
    if found.allocation is None:
        raise CuError(INVALID_HANDLE, "a level of a mipmapped array")
    d.queue.drain()
    d.memory.map.textures.remove_where(lambda owner: getattr(owner, "resource", None) is found)
    d.handles.remove(array)
    d.memory.forget(found.allocation)
    d.memory.reclaim(found.allocation)


@in_context("cuArrayGetPlane")
def array_get_plane(d: Driver, context: Context, out: int, array: int, plane: int) -> None:
    """No array here has planes."""
    need(out), array_of(d, array)
    raise CuError(INVALID_VALUE)


@in_context("cuArrayGetMemoryRequirements", "cuMipmappedArrayGetMemoryRequirements")
def array_get_memory_requirements(d: Driver, context: Context, out: int, array: int, device: int) -> None:
    """For arrays with deferred mapping only (driver API), which are not created here."""
    need(out), d.device(device)
    if not isinstance(d.handles.peek(array), CudaArray | MipmappedArray):
        raise CuError(INVALID_HANDLE)
    raise CuError(INVALID_VALUE)


@in_context("cuArrayGetSparseProperties", "cuMipmappedArrayGetSparseProperties")
def array_get_sparse_properties(d: Driver, context: Context, out: int, array: int) -> None:
    """For sparse arrays only (driver API), which are not created here."""
    need(out)
    if not isinstance(d.handles.peek(array), CudaArray | MipmappedArray):
        raise CuError(INVALID_HANDLE)
    raise CuError(INVALID_VALUE)


# --- mipmapped arrays --------------------------------------------------------------------------------------------------------
@in_context("cuMipmappedArrayCreate", unsafe=True)
def mipmapped_array_create(d: Driver, context: Context, out: int, descriptor: int, count: int) -> None:
    """The number of levels is clamped to what halving the largest size allows, as the driver does."""
    need(out)
    f = ARRAY3D_DESCRIPTOR.unpack(get_bytes(descriptor, ARRAY3D_DESCRIPTOR.size))
    _check(f, mipmapped=True)
    layered = bool(f["Flags"] & (LAYERED | CUBEMAP))
    largest = max(f["Width"], f["Height"], 0 if layered else f["Depth"])
    shapes = []
    for level in range(max(1, min(count & 0xFFFF_FFFF, largest.bit_length()))):
        shape = dict(f)
        for name in ("Width", "Height") if layered else ("Width", "Height", "Depth"):
            shape[name] = max(1, f[name] >> level) if f[name] else 0
        shapes.append(shape)
    allocation = d.memory.allocate(sum(-(-_bytes_of(shape) // 512) * 512 for shape in shapes), context.device.ordinal, context=context)
    made = MipmappedArray(context, allocation)
    made.handle = d.handles.add(made)
    address = allocation.address
    for shape in shapes:
        array = _array(context, shape, address)
        array.owner = made
        array.handle = d.handles.add(array)
        made.levels.append(array)
        address += -(-_bytes_of(shape) // 512) * 512
    put_u64(out, made.handle)


@in_context("cuMipmappedArrayGetLevel")
def mipmapped_array_get_level(d: Driver, context: Context, out: int, array: int, level: int) -> None:
    need(out)
    levels = d.handles.get(array, MipmappedArray).levels
    if level & 0xFFFF_FFFF >= len(levels):
        raise CuError(INVALID_VALUE)
    put_u64(out, levels[level & 0xFFFF_FFFF].handle)


@in_context("cuMipmappedArrayDestroy", unsafe=True)
def mipmapped_array_destroy(d: Driver, context: Context, array: int) -> None:
    """As cuArrayDestroy; the levels end with it."""
    found = d.handles.get(array, MipmappedArray)
    d.queue.drain()
    ended = (found, *found.levels)
    d.memory.map.textures.remove_where(lambda owner: getattr(owner, "resource", None) in ended)
    for handle in (found.handle, *(level.handle for level in found.levels)):
        d.handles.remove(handle)
    d.memory.forget(found.allocation)
    d.memory.reclaim(found.allocation)


# --- copies ------------------------------------------------------------------------------------------------------------------
def array_side(d: Driver, fields: dict[str, int], side: str, width: int, height: int, depth: int) -> Side:
    """The array side of a pitched copy; INVALID_VALUE if the box leaves the array or cuts elements."""
    array = array_of(d, fields[side + "Array"])
    x, y, z = fields[side + "XInBytes"], fields[side + "Y"], fields[side + "Z"]
    if fields[side + "LOD"] or x % array.element_bytes or width % array.element_bytes:
        raise CuError(INVALID_VALUE)
    if x + width > array.pitch or y + height > array.rows or z + depth > array.slices:
        raise CuError(INVALID_VALUE)
    address = array.address + z * array.slice_pitch + y * array.pitch + x
    return Side(address, array.pitch, array.slice_pitch, True, array.handle, (x, y, z))


def _span(d: Driver, handle: int, offset: int, size: int) -> int:
    """Address of bytes of a one-dimensional array, or of the first row of another."""
    array = array_of(d, handle)
    if offset + size > array.pitch:
        raise CuError(INVALID_VALUE)
    return array.address + offset


@in_context("cuMemcpyAtoA_v2", unsafe=True)
def memcpy_a_to_a(d: Driver, context: Context, dst: int, dst_offset: int, src: int, src_offset: int, size: int) -> None:
    to, start = _span(d, dst, dst_offset, size), _span(d, src, src_offset, size)
    if array_of(d, dst).element_bytes != array_of(d, src).element_bytes:
        raise CuError(INVALID_VALUE)
    if size:
        d.run(d.stream(context, 0), Copy(to, start, size, d.memory, True, True), wait=False)


@in_context("cuMemcpyAtoD_v2", unsafe=True)
def memcpy_a_to_d(d: Driver, context: Context, dst: int, src: int, offset: int, size: int) -> None:
    start = _span(d, src, offset, size)
    if size:
        d.check_range(need(dst), size)
        d.run(d.stream(context, 0), Copy(dst, start, size, d.memory, True, True), wait=False)


@in_context("cuMemcpyDtoA_v2", unsafe=True)
def memcpy_d_to_a(d: Driver, context: Context, dst: int, offset: int, src: int, size: int) -> None:
    to = _span(d, dst, offset, size)
    if size:
        d.check_range(need(src), size)
        d.run(d.stream(context, 0), Copy(to, src, size, d.memory, True, True), wait=False)


@in_context("cuMemcpyHtoA_v2", unsafe=True)
def memcpy_h_to_a(d: Driver, context: Context, dst: int, offset: int, src: int, size: int) -> None:
    to = _span(d, dst, offset, size)
    if size:
        d.run(d.stream(context, 0), Copy(to, need(src), size, d.memory, True, False), wait=True)


@in_context("cuMemcpyHtoAAsync_v2")
def memcpy_h_to_a_async(d: Driver, context: Context, dst: int, offset: int, src: int, size: int, stream: int) -> None:
    where, to = d.stream(context, stream), _span(d, dst, offset, size)
    if not size:
        return
    if where.capture is not None or pinned(d, need(src), size):
        d.run(where, Copy(to, src, size, d.memory, True, False), wait=False)
    else:
        d.run(where, BytesCopy(to, get_bytes(src, size), d.memory), wait=False)


@in_context("cuMemcpyAtoH_v2", unsafe=True)
def memcpy_a_to_h(d: Driver, context: Context, dst: int, src: int, offset: int, size: int) -> None:
    start = _span(d, src, offset, size)
    if size:
        d.run(d.stream(context, 0), Copy(need(dst), start, size, d.memory, False, True), wait=True)


@in_context("cuMemcpyAtoHAsync_v2")
def memcpy_a_to_h_async(d: Driver, context: Context, dst: int, src: int, offset: int, size: int, stream: int) -> None:
    where, start = d.stream(context, stream), _span(d, src, offset, size)
    if size:
        wait = where.capture is None and not pinned(d, need(dst), size)
        d.run(where, Copy(need(dst), start, size, d.memory, False, True), wait=wait)
