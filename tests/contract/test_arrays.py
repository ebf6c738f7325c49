"""CUDA arrays: descriptors, every kind of copy, graph nodes, and surfaces that kernels read and write."""

from typing import Any

import numpy as np
import pytest

from tests.helpers.device import PTX_HEADER, Cuda
from tests.helpers.textures import (
    CUBEMAP,
    GATHER,
    LAYERED,
    SURFACE,
    U32,
    U64,
    array,
    array_resource,
    contents,
)


def make(cuda: Cuda, width: int, height: int, depth: int, *, flags: int = 0, format: int = 0x20, channels: int = 1) -> Any:
    """A CUDA_ARRAY3D_DESCRIPTOR."""
    descriptor = cuda.CUDA_ARRAY3D_DESCRIPTOR()
    descriptor.Width, descriptor.Height, descriptor.Depth = width, height, depth
    descriptor.Format, descriptor.NumChannels, descriptor.Flags = cuda.CUarray_format(format), channels, flags
    return descriptor


def numbers(shape: tuple[int, ...], seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 2**32, shape, dtype=np.uint32)


def test_descriptors_come_back(cuda: Cuda, context: Any) -> None:
    plain = cuda.CUDA_ARRAY_DESCRIPTOR()
    plain.Width, plain.Height, plain.Format, plain.NumChannels = 30, 20, cuda.CUarray_format(3), 2
    made = cuda.cuArrayCreate(plain)
    back = cuda.cuArrayGetDescriptor(made)
    assert (back.Width, back.Height, int(back.Format), back.NumChannels) == (30, 20, 3, 2)
    full = cuda.cuArray3DGetDescriptor(made)
    assert (full.Width, full.Height, full.Depth, full.Flags) == (30, 20, 0, 0)
    layered = cuda.cuArray3DCreate(make(cuda, 8, 4, 5, flags=LAYERED | SURFACE))
    full = cuda.cuArray3DGetDescriptor(layered)
    assert (full.Width, full.Height, full.Depth, full.Flags) == (8, 4, 5, LAYERED | SURFACE)


@pytest.mark.parametrize(
    ("size", "flags", "channels", "format"),
    [
        ((0, 4, 0), 0, 1, 0x20),
        ((4, 0, 4), 0, 1, 0x20),  # a depth without a height
        ((4, 4, 0), LAYERED, 1, 0x20),
        ((4, 4, 5), CUBEMAP, 1, 0x20),
        ((4, 5, 6), CUBEMAP, 1, 0x20),
        ((4, 4, 0), 0, 3, 0x20),
        ((4, 4, 4), GATHER, 1, 0x20),
    ],
)
def test_refused_descriptors(cuda: Cuda, context: Any, size: tuple[int, int, int], flags: int, channels: int, format: int) -> None:
    descriptor = make(cuda, *size, flags=flags, channels=channels, format=format)
    assert cuda.fails("cuArray3DCreate", descriptor) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_limits_are_those_of_the_attributes(cuda: Cuda, context: Any) -> None:
    def attribute(name: str) -> int:
        return int(cuda.cuDeviceGetAttribute(getattr(cuda.CUdevice_attribute, "CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE" + name), 0))

    for size, flags in (
        ((attribute("1D_WIDTH"), 0, 0), 0),
        ((attribute("2D_WIDTH"), 1, 0), 0),
        ((1, attribute("2D_HEIGHT"), 0), 0),
        ((1, 1, attribute("3D_DEPTH")), 0),
        ((1, 1, attribute("2D_LAYERED_LAYERS")), LAYERED),
        ((attribute("1D_LAYERED_WIDTH"), 0, 1), LAYERED),
    ):
        cuda.cuArrayDestroy(cuda.cuArray3DCreate(make(cuda, *size, flags=flags, format=1)))
        larger = tuple(n + 1 if n > 1 else n for n in size)
        result = cuda.fails("cuArray3DCreate", make(cuda, *larger, flags=flags, format=1))
        assert result == cuda.CUresult.CUDA_ERROR_INVALID_VALUE, size


def test_linear_copies(cuda: Cuda, context: Any) -> None:
    data = numbers((1000,))
    one = cuda.cuArray3DCreate(make(cuda, 1000, 0, 0, format=3))
    two = cuda.cuArray3DCreate(make(cuda, 1000, 0, 0, format=3))
    cuda.cuMemcpyHtoA(one, 0, data.ctypes.data, 4000)
    cuda.cuMemcpyAtoA(two, 400, one, 0, 2000)
    back = np.zeros(500, np.uint32)
    cuda.cuMemcpyAtoH(back.ctypes.data, two, 400, 2000)
    assert (back == data[:500]).all()
    pointer = cuda.put(np.zeros(1000, np.uint32))
    cuda.cuMemcpyAtoD(pointer, one, 40, 400)
    assert (cuda.get(pointer, 100) == data[10:110]).all()
    cuda.cuMemcpyDtoA(one, 0, pointer, 400)
    cuda.cuMemcpyAtoH(back.ctypes.data, one, 0, 400)
    assert (back[:100] == data[10:110]).all()
    stream = cuda.cuStreamCreate(1)
    cuda.cuMemcpyHtoAAsync(two, 0, data.ctypes.data, 4000, stream)
    everything = np.zeros(1000, np.uint32)
    cuda.cuMemcpyAtoHAsync(everything.ctypes.data, two, 0, 4000, stream)
    cuda.cuStreamSynchronize(stream)
    assert (everything == data).all()
    assert cuda.fails("cuMemcpyAtoH", back.ctypes.data, one, 3996, 8) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


@pytest.mark.parametrize("megabytes", [1, 5])
def test_large_copies_are_whole(cuda: Cuda, context: Any, megabytes: int) -> None:
    data = numbers((32, 1024, 8 * megabytes, 1))
    made = array(cuda, data)
    assert (contents(cuda, made, data, (8 * megabytes, 1024, 32)) == data).all()
    line = numbers((100_000, 1))
    made = array(cuda, line)
    back = np.zeros_like(line)
    cuda.cuMemcpyAtoH(back.ctypes.data, made, 0, line.nbytes)
    assert (back == line).all()
    reverse = np.ascontiguousarray(line[::-1])
    cuda.cuMemcpyHtoA(made, 0, reverse.ctypes.data, line.nbytes)
    cuda.cuMemcpyAtoH(back.ctypes.data, made, 0, line.nbytes)
    assert (back == reverse).all()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_boxes_between_arrays_and_device_memory(cuda: Cuda, context: Any, asynchronous: bool) -> None:
    data = numbers((6, 10, 20, 1))
    source, target = array(cuda, data), array(cuda, np.zeros_like(data))
    copy = cuda.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY
    copy.srcArray, copy.dstArray = source, target
    copy.srcXInBytes, copy.srcY, copy.srcZ = 4 * 3, 2, 1
    copy.dstXInBytes, copy.dstY, copy.dstZ = 4 * 5, 1, 2
    copy.WidthInBytes, copy.Height, copy.Depth = 4 * 7, 5, 3
    if asynchronous:
        cuda.cuMemcpy3DAsync(copy, 0)
    else:
        cuda.cuMemcpy3D(copy)
    expected = np.zeros_like(data)
    expected[2:5, 1:6, 5:12] = data[1:4, 2:7, 3:10]
    assert (contents(cuda, target, data, (20, 10, 6)) == expected).all()
    pointer = cuda.put(np.zeros(64 * 5, np.uint32))
    flat = cuda.CUDA_MEMCPY2D()
    flat.srcMemoryType, flat.srcArray = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY, array(cuda, data[0])
    flat.srcXInBytes, flat.srcY = 8, 3
    flat.dstMemoryType, flat.dstDevice, flat.dstPitch = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE, pointer, 256
    flat.WidthInBytes, flat.Height = 64, 5
    if asynchronous:
        cuda.cuMemcpy2DAsync(flat, 0)
    else:
        cuda.cuMemcpy2D(flat)
    assert (cuda.get(pointer, 320).reshape(5, 64)[:, :16] == data[0, 3:8, 2:18, 0]).all()
    flat.srcY = 6
    assert cuda.fails("cuMemcpy2D", flat) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_a_graph_node_with_arrays(cuda: Cuda, context: Any) -> None:
    data = numbers((10, 20, 1))
    source, target = array(cuda, data), array(cuda, np.zeros_like(data))
    copy = cuda.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_ARRAY
    copy.srcArray, copy.dstArray = source, target
    copy.WidthInBytes, copy.Height, copy.Depth = 80, 10, 1
    graph = cuda.cuGraphCreate(0)
    node = cuda.cuGraphAddMemcpyNode(graph, None, 0, copy, context)
    known = cuda.cuGraphMemcpyNodeGetParams(node)
    assert (int(known.srcArray), int(known.dstArray)) == (int(source), int(target))
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphLaunch(executable, 0)
    assert (contents(cuda, target, data, (20, 10, 0)) == data).all()


def surface_kernel(load: str, store: str) -> str:
    """PTX of `move(in, out, dx, dy)`: out(x, y) = in(x + dx, y + dy), for a block of one thread an element."""
    return (
        PTX_HEADER
        + f"""
.visible .entry move(.param .u64 in, .param .u64 out, .param .u32 dx, .param .u32 dy)
{{
    .reg .b32 %r<20>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    ld.param.u32 %r1, [dx];
    ld.param.u32 %r2, [dy];
    mov.u32 %r3, %tid.x;
    mov.u32 %r4, %ctaid.x;
    add.s32 %r5, %r3, %r1;
    add.s32 %r6, %r4, %r2;
    shl.b32 %r7, %r5, 2;
    shl.b32 %r8, %r3, 2;
    {load}
    {store}
    ret;
}}
"""
    )


@pytest.mark.parametrize("policy", ["zero", "clamp"])
def test_surfaces(cuda: Cuda, context: Any, policy: str) -> None:
    data = numbers((8, 16, 1))
    source, target = array(cuda, data, flags=SURFACE), array(cuda, np.zeros_like(data), flags=SURFACE)
    surfaces = [cuda.cuSurfObjectCreate(array_resource(cuda, a)) for a in (source, target)]
    ptx = surface_kernel(f"suld.b.2d.b32.{policy} %r10, [%rd1, {{%r7, %r6}}];", "sust.b.2d.b32.trap [%rd2, {%r8, %r4}], %r10;")
    cuda.launch(cuda.function(ptx, "move"), 8, 16, ((U64, surfaces[0]), (U64, surfaces[1]), (U32, 3), (U32, 2)))
    got = contents(cuda, target, data, (16, 8, 0))
    y, x = np.meshgrid(np.arange(8) + 2, np.arange(16) + 3, indexing="ij")
    expected = data[np.minimum(y, 7), np.minimum(x, 15)]
    if policy == "zero":
        expected = np.where(((y > 7) | (x > 15))[..., None], 0, expected)
    assert (got == expected).all()
    assert int(cuda.cuSurfObjectGetResourceDesc(surfaces[0]).res.array.hArray) == int(source)
    for surface in surfaces:
        cuda.cuSurfObjectDestroy(surface)


def test_stores_outside_are_dropped_or_clamped(cuda: Cuda, context: Any) -> None:
    data = numbers((4, 8, 1))
    for policy in ("zero", "clamp"):
        target = array(cuda, np.zeros_like(data), flags=SURFACE)
        surface = cuda.cuSurfObjectCreate(array_resource(cuda, target))
        ptx = surface_kernel("mov.u32 %r10, 7;", f"sust.b.2d.b32.{policy} [%rd2, {{%r7, %r6}}], %r10;")
        minus_one = 2**32 - 1
        cuda.launch(cuda.function(ptx, "move"), 1, 1, ((U64, 0), (U64, surface), (U32, minus_one), (U32, 2)))
        expected = np.zeros_like(data)
        if policy == "clamp":
            expected[2, 0] = 7
        assert (contents(cuda, target, data, (8, 4, 0)) == expected).all()


def test_layers_and_vectors_of_surfaces(cuda: Cuda, context: Any) -> None:
    data = np.random.default_rng(5).integers(0, 256, (3, 2, 4, 4), dtype=np.uint8)
    source = array(cuda, data, flags=SURFACE | LAYERED)
    target = array(cuda, np.zeros_like(data), flags=SURFACE | LAYERED)
    a, b = (cuda.cuSurfObjectCreate(array_resource(cuda, x)) for x in (source, target))
    ptx = surface_kernel(
        ".reg .b16 %h<4>;\n    mov.u32 %r11, %ctaid.y;\n    suld.b.a2d.v4.b8.trap {%h0, %h1, %h2, %h3}, [%rd1, {%r11, %r7, %r6, %r6}];",
        "sust.b.a2d.v4.b8.trap [%rd2, {%r11, %r8, %r4, %r4}], {%h3, %h2, %h1, %h0};",
    )
    function = cuda.function(ptx, "move")
    from tests.helpers.device import pack

    cuda.cuLaunchKernel(function, 2, 3, 1, 4, 1, 1, 0, 0, pack(((U64, a), (U64, b), (U32, 0), (U32, 0))), 0)
    assert (contents(cuda, target, data, (4, 2, 3)) == data[..., ::-1]).all()


def test_atomic_additions_to_a_surface(cuda: Cuda, context: Any) -> None:
    data = np.zeros((1, 4, 1), np.uint32)
    target = array(cuda, data, flags=SURFACE)
    surface = cuda.cuSurfObjectCreate(array_resource(cuda, target))
    ptx = surface_kernel("and.b32 %r8, %r8, 15;", "sured.b.add.2d.u32.trap [%rd2, {%r8, 0}], %r3;")
    cuda.launch(cuda.function(ptx, "move"), 3, 64, ((U64, 0), (U64, surface), (U32, 0), (U32, 0)))
    got = contents(cuda, target, data, (4, 1, 0)).ravel()
    assert list(got) == [3 * sum(range(n, 64, 4)) for n in range(4)]


def test_a_surface_needs_the_flag(cuda: Cuda, context: Any) -> None:
    made = array(cuda, numbers((2, 2, 1)))
    assert cuda.fails("cuSurfObjectCreate", array_resource(cuda, made)) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_ended_arrays_are_unknown(cuda: Cuda, context: Any) -> None:
    data = numbers((4, 4, 1))
    made = array(cuda, data)
    cuda.cuArrayDestroy(made)
    for name, arguments in (
        ("cuArrayDestroy", (made,)),
        ("cuArrayGetDescriptor", (made,)),
        ("cuTexObjectCreate", (array_resource(cuda, made), cuda.CUDA_TEXTURE_DESC(), None)),
        ("cuSurfObjectCreate", (array_resource(cuda, made),)),
        ("cuMemcpyAtoH", (data.ctypes.data, made, 0, 4)),
    ):
        assert cuda.fails(name, *arguments) in (
            cuda.CUresult.CUDA_ERROR_INVALID_HANDLE,
            cuda.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED,
        ), name


def test_memory_is_given_back(cuda: Cuda, context: Any) -> None:
    before = cuda.cuMemGetInfo()[0]
    made = cuda.cuArray3DCreate(make(cuda, 1024, 1024, 0))
    assert cuda.cuMemGetInfo()[0] < before
    cuda.cuArrayDestroy(made)
    assert cuda.cuMemGetInfo()[0] == before
