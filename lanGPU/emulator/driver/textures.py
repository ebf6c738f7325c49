"""Texture and surface objects: their structs checked and made into descriptors that kernels read."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.structs import RESOURCE_DESC, RESOURCE_VIEW_DESC, TEXTURE_DESC
from lanGPU.emulator.attributes import TEXTURE_ALIGNMENT, TEXTURE_PITCH_ALIGNMENT, texture_limit
from lanGPU.emulator.driver.arrays import CHANNEL_BYTES, SURFACE_LDST, CudaArray, MipmappedArray, array_of
from lanGPU.emulator.driver.cabi import get_bytes, need, put_bytes, put_u64
from lanGPU.emulator.driver.objects import Context
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.ptx import textures as t
from lanGPU.emulator.results import INVALID_VALUE, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_ARRAY, _MIPMAPPED, _LINEAR, _PITCH2D = range(4)
"""CUresourcetype"""
_READ_AS_INTEGER: Final = 0x01
_NORMALIZED: Final = 0x02
_SRGB: Final = 0x10
_ALL_FLAGS: Final = _READ_AS_INTEGER | _NORMALIZED | _SRGB | 0x20 | 0x40
"""CU_TRSF_*; the last two (no trilinear optimisation, seamless cubemaps) change nothing here: cube filtering stays within a face."""
_VIEW_FORMATS: Final = tuple(
    (code, channels) for codes in ((0x01, 0x08), (0x02, 0x09), (0x03, 0x0A), (0x10,), (0x20,)) for code in codes for channels in (1, 2, 4)
)
"""CUresourceViewFormat from 1 on: (CUarray_format, channels); compressed formats follow."""
_VIEW_FORMATS_END: Final = 0x22
_SIGNED: Final = frozenset({0x08, 0x09, 0x0A})


@dataclass(slots=True, eq=False)
class TextureObject:
    """A CUtexObject or CUsurfObject: what it was made with. `resource` is the array that ends it when it ends."""

    context: Context
    kind: int
    resource: object
    resource_desc: bytes
    texture_desc: bytes = b""
    view_desc: bytes = b""


@dataclass(slots=True)
class _Source:
    """What a resource holds."""

    format: int
    channels: int
    levels: tuple[t.Level, ...]
    layers: int = 0
    memory_bytes: int = 0
    resource: object = None


def _level(array: CudaArray) -> t.Level:
    return t.Level(array.address, array.pitch, array.slice_pitch, array.width, array.rows, array.slices)


def _source(d: Driver, f: dict[str, int]) -> _Source:
    """The resource that a CUDA_RESOURCE_DESC names."""
    kind = f["resType"]
    if f["flags"]:
        raise CuError(INVALID_VALUE)
    if kind == _ARRAY:
        array = array_of(d, f["devPtr"])
        return _Source(array.format, array.channels, (_level(array),), array.layers, resource=array)
    if kind == _MIPMAPPED:
        mipmapped = d.handles.get(f["devPtr"], MipmappedArray)
        first = mipmapped.levels[0]
        return _Source(first.format, first.channels, tuple(map(_level, mipmapped.levels)), first.layers, resource=mipmapped)
    if kind not in (_LINEAR, _PITCH2D) or f["format"] not in CHANNEL_BYTES or f["numChannels"] not in (1, 2, 4):
        raise CuError(INVALID_VALUE)
    element = CHANNEL_BYTES[f["format"]] * f["numChannels"]
    address = need(f["devPtr"])
    if address % TEXTURE_ALIGNMENT:
        raise CuError(INVALID_VALUE)
    if kind == _LINEAR:
        size = f["width"]
        width, height, pitch = size // element, 1, size
        if not 0 < width <= texture_limit("1D_LINEAR_WIDTH"):
            raise CuError(INVALID_VALUE)
    else:
        width, height, pitch = f["width"], f["height"], f["pitchInBytes"]
        fits = 0 < width <= texture_limit("2D_LINEAR_WIDTH") and 0 < height <= texture_limit("2D_LINEAR_HEIGHT")
        if not fits or pitch % TEXTURE_PITCH_ALIGNMENT or not width * element <= pitch <= texture_limit("2D_LINEAR_PITCH"):
            raise CuError(INVALID_VALUE)
        size = (height - 1) * pitch + width * element
    d.check_range(address, size)
    return _Source(f["format"], f["numChannels"], (t.Level(address, pitch, pitch * height, width, height, 1),), memory_bytes=size)


def _apply_view(source: _Source, f: dict[str, int]) -> None:
    """Narrows the resource to what a CUDA_RESOURCE_VIEW_DESC shows of it."""
    if source.resource is None:
        raise CuError(INVALID_VALUE)
    view = f["format"]
    if view > _VIEW_FORMATS_END:
        raise CuError(INVALID_VALUE)
    if view > len(_VIEW_FORMATS):
        raise CuError(NOT_SUPPORTED, f"resource view format {view:#x}: compressed formats are not emulated")
    if view:
        code, channels = _VIEW_FORMATS[view - 1]
        if CHANNEL_BYTES[code] * channels != CHANNEL_BYTES[source.format] * source.channels:
            raise CuError(INVALID_VALUE)
        source.format, source.channels = code, channels
    top = source.levels[0]
    depth = f["depth"] or 1
    if (f["width"], f["height"] or 1) != (top.width, top.height) or (not source.layers and depth != top.depth):
        raise CuError(INVALID_VALUE)
    first, last = f["firstMipmapLevel"], f["lastMipmapLevel"]
    if not first <= last < len(source.levels):
        raise CuError(INVALID_VALUE)
    levels = source.levels[first : last + 1]
    if source.layers:
        layer, end = f["firstLayer"], f["lastLayer"]
        if not layer <= end < source.layers:
            raise CuError(INVALID_VALUE)
        source.layers = end - layer + 1
        levels = tuple(
            t.Level(lv.base + layer * lv.slice_pitch, lv.pitch, lv.slice_pitch, lv.width, lv.height, source.layers) for lv in levels
        )
    elif f["firstLayer"] or f["lastLayer"]:
        raise CuError(INVALID_VALUE)
    source.levels = levels


def _read_mode(format_code: int, flags: int) -> t.Read:
    """Integers of 8 and 16 bits are read as fractions unless READ_AS_INTEGER is given; those of 32 bits never are."""
    if format_code == 0x20:
        return t.Read.FLOAT
    if format_code == 0x10:
        return t.Read.HALF
    signed = format_code in _SIGNED
    if flags & _READ_AS_INTEGER or CHANNEL_BYTES[format_code] == 4:
        return t.Read.SIGNED if signed else t.Read.UNSIGNED
    return t.Read.SNORM if signed else t.Read.UNORM


def _float(bits: int) -> float:
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


def _texture(source: _Source, f: dict[str, int]) -> t.Descriptor:
    modes = (f["addressMode[0]"], f["addressMode[1]"], f["addressMode[2]"])
    if f["flags"] & ~_ALL_FLAGS or max(modes) > t.BORDER_MODE or f["filterMode"] > 1 or f["mipmapFilterMode"] > 1:
        raise CuError(INVALID_VALUE)
    read = _read_mode(source.format, f["flags"])
    if not f["flags"] & _NORMALIZED:  # wrap and mirror need them, and are clamp without (Programming Guide)
        x, y, z = (t.CLAMP if mode in (t.WRAP, t.MIRROR) else mode for mode in modes)
        modes = (x, y, z)
    plain = source.resource is None and source.levels[0].height == 1 and source.memory_bytes == source.levels[0].pitch
    if f["filterMode"] and read < t.Read.UNORM and not plain:
        raise CuError(INVALID_VALUE)  # only what is read as floating point can be interpolated
    if f["flags"] & _SRGB and (source.format != 0x01 or read is not t.Read.UNORM):
        raise CuError(INVALID_VALUE)
    return t.Descriptor(
        t.TEXTURE,
        read,
        CHANNEL_BYTES[source.format] * source.channels,
        source.channels,
        source.format,
        source.levels,
        source.layers,
        (t.BORDER_MODE,) * 3 if plain else modes,
        bool(f["flags"] & _NORMALIZED) and not plain,
        bool(f["filterMode"]) and not plain,
        bool(f["flags"] & _SRGB),
        bool(f["mipmapFilterMode"]),
        _float(f["mipmapLevelBias"]),
        _float(f["minMipmapLevelClamp"]),
        _float(f["maxMipmapLevelClamp"]),
        (0, 0, 0, 0) if plain else (f["borderColor[0]"], f["borderColor[1]"], f["borderColor[2]"], f["borderColor[3]"]),
        source.memory_bytes,
    )


@in_context("cuTexObjectCreate")
def tex_object_create(d: Driver, context: Context, out: int, resource: int, texture: int, view: int) -> None:
    """Linear memory is read without filter, out of range as 0, whatever the texture descriptor says (CUDA Programming Guide)."""
    need(out)
    made = TextureObject(context, t.TEXTURE, None, get_bytes(resource, RESOURCE_DESC.size), get_bytes(texture, TEXTURE_DESC.size))
    source = _source(d, RESOURCE_DESC.unpack(made.resource_desc))
    if view:
        made.view_desc = get_bytes(view, RESOURCE_VIEW_DESC.size)
        _apply_view(source, RESOURCE_VIEW_DESC.unpack(made.view_desc))
    made.resource = source.resource
    put_u64(out, d.memory.map.textures.add(_texture(source, TEXTURE_DESC.unpack(made.texture_desc)), made))


@in_context("cuSurfObjectCreate")
def surf_object_create(d: Driver, context: Context, out: int, resource: int) -> None:
    need(out)
    made = TextureObject(context, t.SURFACE, None, get_bytes(resource, RESOURCE_DESC.size))
    fields = RESOURCE_DESC.unpack(made.resource_desc)
    if fields["resType"] != _ARRAY:
        raise CuError(INVALID_VALUE)
    source = _source(d, fields)
    array = array_of(d, fields["devPtr"])
    flags = array.flags if array.owner is None else array.owner.levels[0].flags
    if not flags & SURFACE_LDST:
        raise CuError(INVALID_VALUE)
    made.resource = array if array.owner is None else array.owner
    read = _read_mode(source.format, _READ_AS_INTEGER)
    descriptor = t.Descriptor(t.SURFACE, read, array.element_bytes, array.channels, array.format, source.levels, source.layers)
    put_u64(out, d.memory.map.textures.add(descriptor, made))


def _object(d: Driver, handle: int, kind: int) -> TextureObject:
    found = d.memory.map.textures.get(handle)
    if not isinstance(found, TextureObject) or found.kind != kind:
        raise CuError(INVALID_VALUE)
    return found


def _destroy(d: Driver, handle: int, kind: int) -> None:
    """Waits for all work first: kernels may still use the object."""
    _object(d, handle, kind)
    d.queue.drain()
    d.memory.map.textures.remove(handle)


@in_context("cuTexObjectDestroy")
def tex_object_destroy(d: Driver, context: Context, handle: int) -> None:
    _destroy(d, handle, t.TEXTURE)


@in_context("cuSurfObjectDestroy")
def surf_object_destroy(d: Driver, context: Context, handle: int) -> None:
    _destroy(d, handle, t.SURFACE)


@in_context("cuTexObjectGetResourceDesc")
def tex_object_get_resource_desc(d: Driver, context: Context, out: int, handle: int) -> None:
    put_bytes(out, _object(d, handle, t.TEXTURE).resource_desc)


@in_context("cuSurfObjectGetResourceDesc")
def surf_object_get_resource_desc(d: Driver, context: Context, out: int, handle: int) -> None:
    put_bytes(out, _object(d, handle, t.SURFACE).resource_desc)


@in_context("cuTexObjectGetTextureDesc")
def tex_object_get_texture_desc(d: Driver, context: Context, out: int, handle: int) -> None:
    put_bytes(out, _object(d, handle, t.TEXTURE).texture_desc)


@in_context("cuTexObjectGetResourceViewDesc")
def tex_object_get_resource_view_desc(d: Driver, context: Context, out: int, handle: int) -> None:
    """INVALID_VALUE if the object was made without one."""
    found = _object(d, handle, t.TEXTURE)
    if not found.view_desc:
        raise CuError(INVALID_VALUE)
    put_bytes(out, found.view_desc)
