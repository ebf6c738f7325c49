"""Struct layouts against the structs of cuda.bindings, which were compiled from the header."""

import ctypes
from typing import Any

import pytest

from lanGPU.driverapi import structs
from lanGPU.driverapi.model import HandleType

driver = pytest.importorskip("cuda.bindings.driver")


def memory(address: Any, size: int) -> bytes:
    return ctypes.string_at(int(address), size)


def filled(layout: structs.StructLayout, value: Any, names: list[str]) -> dict[str, int]:
    """Give field i of `value` the number i + 1, and read the layout's view of it."""
    for number, name in enumerate(names, 1):
        setattr(value, name, number)
    seen = layout.unpack(memory(value.getPtr(), layout.size))
    return {name: seen[name] for name in names}


SIMPLE = {
    "CUDA_KERNEL_NODE_PARAMS_v1": [
        "gridDimX",
        "gridDimY",
        "gridDimZ",
        "blockDimX",
        "blockDimY",
        "blockDimZ",
        "sharedMemBytes",
        "extra",
    ],
    "CUDA_KERNEL_NODE_PARAMS_v2": ["gridDimX", "blockDimZ", "sharedMemBytes", "extra"],
    "CUDA_MEMCPY2D_v2": ["srcXInBytes", "srcY", "srcPitch", "dstXInBytes", "dstY", "dstPitch", "WidthInBytes", "Height"],
    "CUDA_MEMCPY3D_v2": [
        "srcXInBytes",
        "srcY",
        "srcZ",
        "srcLOD",
        "srcPitch",
        "srcHeight",
        "dstXInBytes",
        "dstY",
        "dstZ",
        "dstLOD",
        "dstPitch",
        "dstHeight",
        "WidthInBytes",
        "Height",
        "Depth",
    ],
    "CUDA_MEMSET_NODE_PARAMS_v1": ["pitch", "value", "elementSize", "width", "height"],
    "CUlaunchConfig": ["gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes"],
    "CUmemPoolProps": ["maxSize", "usage"],
    "CUDA_GRAPH_INSTANTIATE_PARAMS": ["flags"],
    "CUdevprop": [
        "maxThreadsPerBlock",
        "sharedMemPerBlock",
        "totalConstantMemory",
        "SIMDWidth",
        "memPitch",
        "regsPerBlock",
        "textureAlign",
    ],
}


@pytest.mark.parametrize(("name", "fields"), SIMPLE.items(), ids=lambda value: value if isinstance(value, str) else "")
def test_plain_fields_lie_where_the_compiler_put_them(name: str, fields: list[str]) -> None:
    assert filled(structs.LAYOUTS[name], getattr(driver, name)(), fields) == {f: i for i, f in enumerate(fields, 1)}


def test_handles_and_addresses_in_copies() -> None:
    for name, layout in (("CUDA_MEMCPY2D", structs.MEMCPY2D), ("CUDA_MEMCPY3D", structs.MEMCPY3D)):
        value = getattr(driver, name)()
        value.srcMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_HOST
        value.srcHost = 0x1000
        value.dstMemoryType = driver.CUmemorytype.CU_MEMORYTYPE_DEVICE
        value.dstDevice = driver.CUdeviceptr(0x2000)
        value.srcArray = driver.CUarray(0x3000)
        seen = layout.unpack(memory(value.getPtr(), layout.size))
        assert (seen["srcMemoryType"], seen["dstMemoryType"]) == (1, 2)
        assert (seen["srcHost"], seen["dstDevice"], seen["srcArray"], seen["dstArray"]) == (0x1000, 0x2000, 0x3000, 0)


def test_handles_in_kernel_nodes() -> None:
    value = driver.CUDA_KERNEL_NODE_PARAMS_v2()
    value.func, value.kern, value.ctx = driver.CUfunction(0x11), driver.CUkernel(0x22), driver.CUcontext(0x33)
    seen = structs.KERNEL_NODE_PARAMS_V2.unpack(memory(value.getPtr(), structs.KERNEL_NODE_PARAMS_V2.size))
    assert {name: seen[name] for name in structs.KERNEL_NODE_PARAMS_V2.handles} == {"func": 0x11, "kern": 0x22, "ctx": 0x33}


def test_handles_in_launch_configs_and_graph_parameters() -> None:
    config = driver.CUlaunchConfig()
    config.hStream = driver.CUstream(0x44)
    config.attrs = [driver.CUlaunchAttribute(), driver.CUlaunchAttribute()]
    config.numAttrs = 2
    seen = structs.LAUNCH_CONFIG.unpack(memory(config.getPtr(), structs.LAUNCH_CONFIG.size))
    assert (seen["hStream"], seen["numAttrs"]) == (0x44, 2)
    assert seen["attrs"]
    params = driver.CUDA_GRAPH_INSTANTIATE_PARAMS()
    params.hUploadStream, params.hErrNode_out = driver.CUstream(5), driver.CUgraphNode(6)
    seen = structs.GRAPH_INSTANTIATE_PARAMS.unpack(memory(params.getPtr(), structs.GRAPH_INSTANTIATE_PARAMS.size))
    assert (seen["hUploadStream"], seen["hErrNode_out"]) == (5, 6)


def test_launch_attributes() -> None:
    attribute = driver.CUlaunchAttribute()
    attribute.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
    attribute.value.cooperative = 7
    seen = structs.LAUNCH_ATTRIBUTE.unpack(memory(attribute.getPtr(), structs.LAUNCH_ATTRIBUTE.size))
    assert (seen["id"], seen["value[0]"]) == (2, 7)
    attribute.value.launchCompletionEvent.event = driver.CUevent(0x55)
    assert structs.LAUNCH_ATTRIBUTE.get(memory(attribute.getPtr(), 72), "value[0]") == 0x55


def test_memory_properties() -> None:
    prop = driver.CUmemAllocationProp()
    prop.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = 3
    prop.allocFlags.compressionType = 1
    prop.allocFlags.usage = 9
    seen = structs.MEM_ALLOCATION_PROP.unpack(memory(prop.getPtr(), structs.MEM_ALLOCATION_PROP.size))
    assert (seen["type"], seen["location_type"], seen["location_id"], seen["compressionType"], seen["usage"]) == (1, 1, 3, 1, 9)
    access = driver.CUmemAccessDesc()
    access.location.type = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = 4
    access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    assert list(structs.MEM_ACCESS_DESC.unpack(memory(access.getPtr(), structs.MEM_ACCESS_DESC.size)).values()) == [1, 4, 3]
    pool = driver.CUmemPoolProps()
    pool.location.id = 5
    assert structs.MEM_POOL_PROPS.get(memory(pool.getPtr(), structs.MEM_POOL_PROPS.size), "location_id") == 5


SIZES = {
    "CUDA_KERNEL_NODE_PARAMS_v1": 56,
    "CUDA_KERNEL_NODE_PARAMS_v2": 72,
    "CUDA_KERNEL_NODE_PARAMS_v3": 72,
    "CUDA_MEMCPY2D_v2": 128,
    "CUDA_MEMCPY3D_v2": 200,
    "CUDA_MEMCPY3D_PEER_v1": 200,
    "CUmemcpyAttributes_v1": 24,
    "CUDA_MEMSET_NODE_PARAMS_v1": 40,
    "CUDA_MEMSET_NODE_PARAMS_v2": 48,
    "CUgraphNodeParams": 256,
    "CUDA_MEMCPY_NODE_PARAMS": 216,
    "CUDA_MEM_ALLOC_NODE_PARAMS_v2": 120,
    "CUDA_CHILD_GRAPH_NODE_PARAMS": 16,
    "CUlaunchConfig": 56,
    "CUlaunchAttribute": 72,
    "CUmemLocation": 8,
    "CUmemPoolProps": 88,
    "CUmemAllocationProp": 32,
    "CUmemAccessDesc": 12,
    "CUDA_GRAPH_INSTANTIATE_PARAMS": 32,
    "CUgraphExecUpdateResultInfo": 24,
    "CUdevprop": 56,
    "CUDA_ARRAY_DESCRIPTOR_v2": 24,
    "CUDA_ARRAY3D_DESCRIPTOR_v2": 40,
    "CUDA_RESOURCE_DESC_v1": 144,
    "CUDA_TEXTURE_DESC_v1": 104,
    "CUDA_RESOURCE_VIEW_DESC_v1": 112,
}
"""sizeof, as gcc on x86-64 gives it for cuda.h of CUDA 13.5."""


def test_sizes() -> None:
    assert {name: layout.size for name, layout in structs.LAYOUTS.items()} == SIZES


@pytest.mark.parametrize("layout", structs.LAYOUTS.values(), ids=lambda layout: layout.name)
def test_a_struct_packs_and_unpacks(layout: structs.StructLayout) -> None:
    values = {name: number % 100 for number, name in enumerate(layout.fields, 1)}
    assert layout.unpack(b"\xff" * 5 + layout.pack(**values), 5) == values
    assert set(layout.handles) | set(layout.host_pointers) <= set(layout.fields)
    assert all(isinstance(kind, HandleType) for kind in layout.handles.values())
