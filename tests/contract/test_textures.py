"""Texture objects: what kernels read through them, against exact arithmetic, and what creation refuses."""

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.helpers.device import Cuda
from tests.helpers.textures import (
    BORDER,
    CLAMP,
    CUBEMAP,
    GATHER,
    LAYERED,
    LINEAR,
    MIRROR,
    NORMALIZED,
    POINT,
    READ_AS_INTEGER,
    SRGB,
    WRAP,
    array,
    array_resource,
    fill,
    read,
    reader,
    sample,
    sampler,
)

TEX_1D = reader("tex.1d.v4.f32.f32", 1, extra="[%rd1, {%c0}]")
TEX_2D = reader("tex.2d.v4.f32.f32", 2, extra="[%rd1, {%c0, %c1}]")
TEX_2D_U32 = reader("tex.2d.v4.u32.f32", 2, result="u32", extra="[%rd1, {%c0, %c1}]")
TEX_3D = reader("tex.3d.v4.f32.f32", 3, extra="[%rd1, {%c0, %c1, %c2, %c2}]")
FETCH_F32 = reader("tex.1d.v4.f32.s32", 1, integer=1, extra="[%rd1, {%n0}]")
FETCH_U32 = reader("tex.1d.v4.u32.s32", 1, integer=1, result="u32", extra="[%rd1, {%n0}]")
EXACT = 2.0**-20
"""What single precision may lose of values around 1, with weights that are exact."""


def values(shape: tuple[int, ...], dtype: Any, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind == "f":
        return rng.integers(-64, 64, shape).astype(dtype) / np.array(64, dtype)
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max, shape, dtype=dtype, endpoint=True)


def clear_of_edges(places: np.ndarray) -> np.ndarray:
    """Coordinates in 64ths, and an odd 512th: no rounding decides which texel is meant."""
    return (np.round(places * 64) / 64 + 1 / 512).astype(np.float32)


@pytest.mark.parametrize("filter", [POINT, LINEAR])
@pytest.mark.parametrize("mode", [WRAP, CLAMP, MIRROR, BORDER])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("flags", [0, NORMALIZED])
def test_coordinates(cuda: Cuda, context: Any, filter: int, mode: int, dims: int, flags: int) -> None:
    sizes = (8, 4, 16)[:dims]
    data = values((*reversed(sizes), 1), np.float32)
    more = {"borderColor": [0.5, 0, 0, 0]}
    texture = cuda.cuTexObjectCreate(
        array_resource(cuda, array(cuda, data)), sampler(cuda, mode=mode, filter=filter, flags=flags, **more), None
    )
    rng = np.random.default_rng(dims)
    places = clear_of_edges(rng.uniform(-2.5, 3.5, (200, dims)) * (1 if flags else np.array(sizes)))
    got = read(cuda, texture, (TEX_1D, TEX_2D, TEX_3D)[dims - 1], places)
    effective = CLAMP if not flags and mode in (WRAP, MIRROR) else mode
    for place, result in zip(places, got, strict=True):
        expected = sample(
            lambda at: Fraction(float(data[(*reversed(at), 0)])),
            sizes,
            [float(x) for x in place],
            [effective] * dims,
            linear=filter == LINEAR,
            normalized=bool(flags),
            border=Fraction(1, 2),
        )
        assert abs(Fraction(float(result[0])) - expected) <= EXACT, place
    cuda.cuTexObjectDestroy(texture)


@pytest.mark.parametrize("channels", [1, 2, 4])
@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "int8", "int16", "int32", "float16", "float32"])
def test_formats(cuda: Cuda, context: Any, dtype: str, channels: int) -> None:
    data = values((3, 5, channels), dtype)
    resource = array_resource(cuda, array(cuda, data))
    x, y = np.meshgrid(np.arange(5), np.arange(3))
    places = np.stack([x.ravel() + 0.5, y.ravel() + 0.5], 1).astype(np.float32)
    flat = data.reshape(-1, channels)
    kind = np.dtype(dtype).kind
    if kind == "f":
        got = read(cuda, cuda.cuTexObjectCreate(resource, sampler(cuda), None), TEX_2D, places)
        assert (got[:, :channels] == flat.astype(np.float32)).all()
        return
    got = read(cuda, cuda.cuTexObjectCreate(resource, sampler(cuda, flags=READ_AS_INTEGER), None), TEX_2D_U32, places, np.uint32)
    assert (got[:, :channels].view(np.int32) == flat.astype(np.int64).astype(np.uint32 if kind == "u" else np.int32).view(np.int32)).all()
    if data.itemsize < 4:
        got = read(cuda, cuda.cuTexObjectCreate(resource, sampler(cuda), None), TEX_2D, places)
        expected = np.maximum(flat.astype(np.float64) / np.iinfo(dtype).max, -1.0)
        assert np.abs(got[:, :channels] - expected).max() <= 2.0**-23


def test_srgb(cuda: Cuda, context: Any) -> None:
    data = np.arange(256, dtype=np.uint8).reshape(1, 64, 4)
    texture = cuda.cuTexObjectCreate(array_resource(cuda, array(cuda, data)), sampler(cuda, flags=SRGB), None)
    places = np.array([[x + 0.5, 0.5] for x in range(64)], np.float32)
    got = read(cuda, texture, TEX_2D, places)
    part = data[0] / 255.0
    expected = np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4)
    expected[:, 3] = part[:, 3]
    assert np.abs(got - expected).max() < 1e-5


def test_layers_are_clamped_and_not_mixed(cuda: Cuda, context: Any) -> None:
    data = values((5, 4, 8, 1), np.float32)
    texture = cuda.cuTexObjectCreate(array_resource(cuda, array(cuda, data, flags=LAYERED)), sampler(cuda, filter=LINEAR), None)
    ptx = reader("tex.a2d.v4.f32.f32", 3, integer=1, extra="[%rd1, {%n0, %c1, %c2, %c2}]")
    words = np.zeros((30, 3), np.float32)
    layers = np.arange(30, dtype=np.uint32) % 6
    words[:, 0] = layers.view(np.float32)
    words[:, 1:] = [2.5, 1.5]
    got = read(cuda, texture, ptx, words)
    assert (got[:, 0] == data[np.minimum(layers, 4), 1, 2, 0]).all()
    line = values((7, 16, 1), np.float32)
    texture = cuda.cuTexObjectCreate(array_resource(cuda, array(cuda, line, flags=LAYERED, dims=1)), sampler(cuda), None)
    ptx = reader("tex.a1d.v4.f32.f32", 2, integer=1, extra="[%rd1, {%n0, %c1}]")
    words = np.array([[layer, 3.5] for layer in range(7)], np.float32)
    words[:, 0] = np.arange(7, dtype=np.uint32).view(np.float32)
    assert (read(cuda, texture, ptx, words)[:, 0] == line[:, 3, 0]).all()


def test_cube_faces(cuda: Cuda, context: Any) -> None:
    data = values((12, 4, 4, 1), np.float32)
    single = cuda.cuTexObjectCreate(array_resource(cuda, array(cuda, data[:6], flags=CUBEMAP)), sampler(cuda, flags=NORMALIZED), None)
    several = cuda.cuTexObjectCreate(
        array_resource(cuda, array(cuda, data, flags=CUBEMAP | LAYERED)), sampler(cuda, flags=NORMALIZED), None
    )
    rng = np.random.default_rng(3)
    directions = rng.uniform(-1, 1, (200, 3)).astype(np.float32)
    faces, rows, columns = [], [], []
    for x, y, z in directions.astype(np.float64):
        major = max(abs(x), abs(y), abs(z))
        if abs(x) == major:
            face, s, u = (0, -z, -y) if x >= 0 else (1, z, -y)
        elif abs(y) == major:
            face, s, u = (2, x, z) if y >= 0 else (3, x, -z)
        else:
            face, s, u = (4, x, -y) if z >= 0 else (5, -x, -y)
        faces.append(face)
        columns.append(min(3, int((s / major + 1) / 2 * 4)))
        rows.append(min(3, int((u / major + 1) / 2 * 4)))
    got = read(cuda, single, reader("tex.cube.v4.f32.f32", 3, extra="[%rd1, {%c0, %c1, %c2, %c2}]"), directions)
    assert (got[:, 0] == data[faces, rows, columns, 0]).all()
    layered = np.zeros((200, 4), np.float32)
    layered[:, 0] = np.ones(200, np.uint32).view(np.float32)
    layered[:, 1:] = directions
    ptx = reader("tex.acube.v4.f32.f32", 4, integer=1, extra="[%rd1, {%n0, %c1, %c2, %c3}]")
    assert (read(cuda, several, ptx, layered)[:, 0] == data[np.array(faces) + 6, rows, columns, 0]).all()


def linear_resource(cuda: Cuda, data: np.ndarray, kind: int, size: int) -> tuple[Any, Any]:
    pointer = cuda.cuMemAlloc(size)
    cuda.cuMemcpyHtoD(pointer, data.ctypes.data, data.nbytes)
    resource = cuda.CUDA_RESOURCE_DESC()
    resource.resType = cuda.CUresourcetype(2)
    resource.res.linear.devPtr = pointer
    resource.res.linear.format = cuda.CUarray_format(kind)
    resource.res.linear.numChannels = data.shape[-1]
    resource.res.linear.sizeInBytes = data.nbytes
    return resource, pointer


def test_linear_memory(cuda: Cuda, context: Any) -> None:
    data = values((100, 4), np.float32)
    resource, pointer = linear_resource(cuda, data, 0x20, data.nbytes)
    texture = cuda.cuTexObjectCreate(resource, sampler(cuda), None)
    places = np.arange(100, dtype=np.int32).reshape(-1, 1)
    assert (read(cuda, texture, FETCH_F32, places) == data).all()
    outside = np.array([[-1], [100], [2**31 - 1], [-(2**31)]], np.int32)
    assert not read(cuda, texture, FETCH_F32, outside).any()
    bytes_ = values((64, 1), np.uint8)
    resource, pointer = linear_resource(cuda, bytes_, 1, 64)
    texture = cuda.cuTexObjectCreate(resource, sampler(cuda, flags=READ_AS_INTEGER), None)
    assert (read(cuda, texture, FETCH_U32, np.arange(64, dtype=np.int32).reshape(-1, 1), np.uint32)[:, 0] == bytes_[:, 0]).all()
    cuda.cuMemFree(pointer)


def test_pitched_memory_is_filtered(cuda: Cuda, context: Any) -> None:
    data = values((6, 32, 1), np.float32)
    pointer = cuda.put(data)
    resource = cuda.CUDA_RESOURCE_DESC()
    resource.resType = cuda.CUresourcetype(3)
    view = resource.res.pitch2D
    view.devPtr, view.format, view.numChannels = pointer, cuda.CUarray_format(0x20), 1
    view.width, view.height, view.pitchInBytes = 20, 6, 128
    texture = cuda.cuTexObjectCreate(resource, sampler(cuda, filter=LINEAR), None)
    places = clear_of_edges(np.random.default_rng(1).uniform(-2, 22, (100, 2)))
    got = read(cuda, texture, TEX_2D, places)
    for place, result in zip(places, got, strict=True):
        expected = sample(
            lambda at: Fraction(float(data[at[1], at[0], 0])), (20, 6), list(map(float, place)), [CLAMP] * 2, linear=True, normalized=False
        )
        assert abs(Fraction(float(result[0])) - expected) <= EXACT


def test_gather(cuda: Cuda, context: Any) -> None:
    data = values((8, 8, 4), np.float32)
    texture = cuda.cuTexObjectCreate(array_resource(cuda, array(cuda, data, flags=GATHER)), sampler(cuda), None)
    places = np.array([[x + 0.01, y + 0.01] for x in range(1, 8) for y in range(1, 8)], np.float32)
    for n, channel in enumerate("rgba"):
        got = read(cuda, texture, reader(f"tld4.{channel}.2d.v4.f32.f32", 2, extra="[%rd1, {%c0, %c1}]"), places)
        for (x, y), four in zip(places.astype(int), got, strict=True):
            left, top = x - 1, y - 1
            assert list(four) == [data[y, left, n], data[y, x, n], data[top, x, n], data[top, left, n]]


def mipmaps(cuda: Cuda) -> tuple[Any, list[np.ndarray]]:
    descriptor = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    descriptor.Width, descriptor.Height, descriptor.Depth = 16, 8, 0
    descriptor.Format, descriptor.NumChannels = cuda.CUarray_format(0x20), 1
    made = cuda.cuMipmappedArrayCreate(descriptor, 99)
    levels = []
    for n in range(5):
        levels.append(np.full((max(1, 8 >> n), max(1, 16 >> n), 1), n + 1, np.float32))
        fill(cuda, cuda.cuMipmappedArrayGetLevel(made, n), levels[-1], (max(1, 16 >> n), max(1, 8 >> n), 0))
    assert cuda.fails("cuMipmappedArrayGetLevel", made, 5) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    return made, levels


def test_mipmap_levels(cuda: Cuda, context: Any) -> None:
    made, _ = mipmaps(cuda)
    ptx = reader("tex.level.2d.v4.f32.f32", 3, extra="[%rd1, {%c0, %c1}], %c2")
    resource = array_resource(cuda, made, mipmapped=True)
    wanted = np.array([-3, 0, 0.25, 0.49, 0.51, 1, 1.75, 3, 4, 9], np.float32)
    places = np.stack([np.full(10, 0.3), np.full(10, 0.6), wanted], 1).astype(np.float32)
    more = {"maxMipmapLevelClamp": 3.5, "minMipmapLevelClamp": 0.25}
    nearest = cuda.cuTexObjectCreate(resource, sampler(cuda, flags=NORMALIZED, **more), None)
    level = np.clip(wanted, 0.25, 3.5)
    assert (read(cuda, nearest, ptx, places)[:, 0] == np.floor(level + 0.5) + 1).all()
    mixed = cuda.cuTexObjectCreate(resource, sampler(cuda, flags=NORMALIZED, mipmapFilterMode=cuda.CUfilter_mode(1), **more), None)
    assert np.abs(read(cuda, mixed, ptx, places)[:, 0] - (level + 1)).max() <= 1 / 256
    gradient = reader("tex.grad.2d.v4.f32.f32", 4, extra="[%rd1, {%c0, %c1}], {%c2, %c3}, {%c3, %c2}")
    steps = np.array([[0.5, 0.5, 2.0**n / 16, 0.0] for n in range(4)], np.float32)
    plain = cuda.cuTexObjectCreate(resource, sampler(cuda, flags=NORMALIZED, maxMipmapLevelClamp=4.0), None)
    assert (read(cuda, plain, gradient, steps)[:, 0] == [1, 2, 3, 4]).all()


def test_a_view_shows_some_levels_in_another_format(cuda: Cuda, context: Any) -> None:
    made, _ = mipmaps(cuda)
    view = cuda.CUDA_RESOURCE_VIEW_DESC()
    view.format = cuda.CUresourceViewFormat.CU_RES_VIEW_FORMAT_UINT_1X32
    view.width, view.height, view.firstMipmapLevel, view.lastMipmapLevel = 16, 8, 2, 3
    resource = array_resource(cuda, made, mipmapped=True)
    texture = cuda.cuTexObjectCreate(resource, sampler(cuda, flags=NORMALIZED), view)
    got = read(cuda, texture, TEX_2D_U32, np.array([[0.5, 0.5]], np.float32), np.uint32)
    assert got[0, 0] == np.float32(3).view(np.uint32)
    assert cuda.cuTexObjectGetResourceViewDesc(texture).firstMipmapLevel == 2
    view.lastMipmapLevel = 5
    assert cuda.fails("cuTexObjectCreate", resource, sampler(cuda), view) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_sizes_asked_by_the_kernel(cuda: Cuda, context: Any) -> None:
    data = values((3, 5, 1), np.float32)
    texture = cuda.cuTexObjectCreate(array_resource(cuda, array(cuda, data)), sampler(cuda), None)
    ptx = TEX_2D_U32.replace(
        "tex.2d.v4.u32.f32 {%r20, %r21, %r22, %r23}, [%rd1, {%c0, %c1}];",
        "txq.width.b32 %r20, [%rd1];\n    txq.height.b32 %r21, [%rd1];\n    mov.u32 %r22, 0;\n    mov.u32 %r23, 0;",
    )
    assert list(read(cuda, texture, ptx, np.zeros((1, 2), np.float32), np.uint32)[0]) == [5, 3, 0, 0]


def test_descriptions_come_back(cuda: Cuda, context: Any) -> None:
    made = array(cuda, values((3, 5, 1), np.float32))
    texture = cuda.cuTexObjectCreate(array_resource(cuda, made), sampler(cuda, mode=BORDER, filter=LINEAR), None)
    assert int(cuda.cuTexObjectGetResourceDesc(texture).res.array.hArray) == int(made)
    assert cuda.cuTexObjectGetTextureDesc(texture).addressMode[0] == cuda.CUaddress_mode.CU_TR_ADDRESS_MODE_BORDER
    assert cuda.fails("cuTexObjectGetResourceViewDesc", texture) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    cuda.cuTexObjectDestroy(texture)
    assert cuda.fails("cuTexObjectGetTextureDesc", texture) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_integers_are_not_filtered(cuda: Cuda, context: Any) -> None:
    resource = array_resource(cuda, array(cuda, values((3, 5, 1), np.uint32)))
    assert cuda.fails("cuTexObjectCreate", resource, sampler(cuda, filter=LINEAR), None) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_a_misaligned_address(cuda: Cuda, context: Any) -> None:
    data = values((100, 1), np.float32)
    resource, pointer = linear_resource(cuda, data, 0x20, 1024)
    resource.res.linear.devPtr = cuda.CUdeviceptr(int(pointer) + 4)
    assert cuda.fails("cuTexObjectCreate", resource, sampler(cuda), None) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
