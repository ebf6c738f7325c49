"""Kernels that read textures and write surfaces, and what they must read, computed in exact fractions."""

import ctypes
from collections.abc import Callable, Sequence
from fractions import Fraction
from math import floor
from typing import Any, Final

import numpy as np

from tests.helpers.device import PTX_HEADER, Cuda

U64, U32 = ctypes.c_uint64, ctypes.c_uint32

POINT, LINEAR = 0, 1
WRAP, CLAMP, MIRROR, BORDER = range(4)
READ_AS_INTEGER, NORMALIZED, SRGB = 1, 2, 0x10
LAYERED, SURFACE, CUBEMAP, GATHER = 1, 2, 4, 8

FORMATS: Final = {
    "uint8": 1,
    "uint16": 2,
    "uint32": 3,
    "int8": 8,
    "int16": 9,
    "int32": 0xA,
    "float16": 0x10,
    "float32": 0x20,
}
"""numpy's name of a channel -> CUarray_format."""


def reader(instruction: str, coordinates: int, *, integer: int = 0, result: str = "f32", extra: str = "") -> str:
    """PTX of `read(texture, in, out, n)`: thread i reads with the coordinates in[i] (32-bit words each, the first `integer` of them
    integers) and stores four words to out[i]. `extra` names further operands by %c<k>."""
    words = []
    for k in range(coordinates):
        kind = "u32" if k < integer else "f32"
        register = f"%n{k}" if k < integer else f"%c{k}"
        words.append(f"    ld.global.{kind} {register}, [%rd4+{4 * k}];")
    d = "%r2{k}" if result != "f32" else "%f{k}"
    results = ", ".join(d.format(k=k) for k in range(4))
    stores = "\n".join(f"    st.global.{'u32' if result != 'f32' else 'f32'} [%rd5+{4 * k}], {d.format(k=k)};" for k in range(4))
    return (
        PTX_HEADER
        + f"""
.visible .entry read(.param .u64 texture, .param .u64 in, .param .u64 out, .param .u32 n)
{{
    .reg .pred %p<2>;
    .reg .b32 %r<30>, %n<8>;
    .reg .f32 %f<4>, %c<12>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [texture];
    ld.param.u64 %rd2, [in];
    ld.param.u64 %rd3, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd6, %r5, {4 * coordinates};
    add.s64 %rd4, %rd2, %rd6;
    mul.wide.u32 %rd6, %r5, 16;
    add.s64 %rd5, %rd3, %rd6;
{chr(10).join(words)}
    {instruction} {{{results}}}, {extra};
{stores}
DONE:
    ret;
}}
"""
    )


def array(cuda: Cuda, data: np.ndarray, *, flags: int = 0, dims: int = 2) -> Any:
    """A CUDA array with the numbers of `data`, whose axes are (depth,) (height,) width, channels."""
    *shape, channels = data.shape
    width, height, depth = (*reversed(shape), 0, 0)[:3]
    if len(shape) == 2 and flags & LAYERED and dims == 1:
        width, height, depth = shape[1], 0, shape[0]
    descriptor = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    descriptor.Width, descriptor.Height, descriptor.Depth = width, height, depth
    descriptor.Format = cuda.CUarray_format(FORMATS[data.dtype.name])
    descriptor.NumChannels, descriptor.Flags = channels, flags
    made = cuda.cuArray3DCreate(descriptor)
    fill(cuda, made, data, (width, height, depth))
    return made


def fill(cuda: Cuda, target: Any, data: np.ndarray, size: tuple[int, int, int]) -> None:
    """Copies `data` into an array."""
    data = np.ascontiguousarray(data)
    copy = cuda.CUDA_MEMCPY3D()
    copy.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.srcHost = data.ctypes.data
    copy.srcPitch = size[0] * data.shape[-1] * data.itemsize
    copy.srcHeight = max(1, size[1])
    copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY
    copy.dstArray = target
    copy.WidthInBytes, copy.Height, copy.Depth = copy.srcPitch, max(1, size[1]), max(1, size[2])
    cuda.cuMemcpy3D(copy)


def contents(cuda: Cuda, source: Any, like: np.ndarray, size: tuple[int, int, int]) -> np.ndarray:
    """What an array holds, shaped as `like`."""
    data = np.zeros_like(np.ascontiguousarray(like))
    copy = cuda.CUDA_MEMCPY3D()
    copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.dstHost = data.ctypes.data
    copy.dstPitch = size[0] * data.shape[-1] * data.itemsize
    copy.dstHeight = max(1, size[1])
    copy.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY
    copy.srcArray = source
    copy.WidthInBytes, copy.Height, copy.Depth = copy.dstPitch, max(1, size[1]), max(1, size[2])
    cuda.cuMemcpy3D(copy)
    return data


def array_resource(cuda: Cuda, source: Any, *, mipmapped: bool = False) -> Any:
    """CUDA_RESOURCE_DESC of an array."""
    resource = cuda.CUDA_RESOURCE_DESC()
    resource.resType = cuda.CUresourcetype(1 if mipmapped else 0)
    if mipmapped:
        resource.res.mipmap.hMipmappedArray = source
    else:
        resource.res.array.hArray = source
    return resource


def sampler(cuda: Cuda, *, mode: int | Sequence[int] = CLAMP, filter: int = POINT, flags: int = 0, **more: Any) -> Any:
    """CUDA_TEXTURE_DESC."""
    description = cuda.CUDA_TEXTURE_DESC()
    modes = [mode] * 3 if isinstance(mode, int) else list(mode)
    description.addressMode = [cuda.CUaddress_mode(m) for m in modes]
    description.filterMode = cuda.CUfilter_mode(filter)
    description.flags = flags
    for name, value in more.items():
        setattr(description, name, value)
    return description


def read(cuda: Cuda, texture: Any, ptx: str, coordinates: np.ndarray, dtype: Any = np.float32) -> np.ndarray:
    """Four words for each row of `coordinates` (n, k), of 32-bit words."""
    n = len(coordinates)
    source, out = cuda.put(np.ascontiguousarray(coordinates)), cuda.put(np.zeros((n, 4), np.uint32))
    function = cuda.function(ptx, "read")
    cuda.launch(function, -(-n // 64), 64, ((U64, texture), (U64, source), (U64, out), (U32, n)))
    return cuda.get(out, 4 * n, dtype).reshape(n, 4)


# --- the model ------------------------------------------------------------------------------------------------------------
def index(i: int, n: int, mode: int) -> int | None:
    """The texel that an index stands for; None for the border."""
    if mode == WRAP:
        return i % n
    if mode == MIRROR:
        return i % (2 * n) if i % (2 * n) < n else 2 * n - 1 - i % (2 * n)
    if mode == CLAMP:
        return min(max(i, 0), n - 1)
    return i if 0 <= i < n else None


def sample(
    texel: Callable[[tuple[int, ...]], Fraction],
    sizes: Sequence[int],
    place: Sequence[float],
    modes: Sequence[int],
    *,
    linear: bool,
    normalized: bool,
    border: Fraction = Fraction(0),
) -> Fraction:
    """A texture's value in exact arithmetic, but for the weights, which have 8 fractional bits. Axes in the order x, y, z."""
    scaled = [Fraction(float(x)) * (n if normalized else 1) for x, n in zip(place, sizes, strict=True)]

    def at(corner: Sequence[int]) -> Fraction:
        found = [index(i, n, mode) for i, n, mode in zip(corner, sizes, modes, strict=True)]
        return border if any(i is None for i in found) else texel(tuple(i for i in found if i is not None))

    if not linear:
        return at([floor(x) for x in scaled])
    total = Fraction(0)
    first = [floor(x - Fraction(1, 2)) for x in scaled]
    parts = [Fraction(floor((x - Fraction(1, 2) - i) * 256 + Fraction(1, 2)), 256) for x, i in zip(scaled, first, strict=True)]
    for corner in range(1 << len(sizes)):
        bits = [corner >> axis & 1 for axis in range(len(sizes))]
        weight = Fraction(1)
        for bit, part in zip(bits, parts, strict=True):
            weight *= part if bit else 1 - part
        if weight:
            total += weight * at([i + bit for i, bit in zip(first, bits, strict=True)])
    return total
