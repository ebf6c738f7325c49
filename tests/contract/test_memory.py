"""Allocations, what is known of pointers, linear copies and memsets."""

import ctypes
import itertools
from typing import Any

import numpy as np
import pytest

from tests.helpers.device import Cuda


def random_bytes(n: int) -> np.ndarray:
    return np.random.default_rng(n).integers(0, 256, n, dtype=np.uint8)


@pytest.mark.parametrize("size", [1, 255, 4096, 300_000, (4 << 20) + 1])
def test_bytes_come_back(cuda: Cuda, context: Any, size: int) -> None:
    data = random_bytes(size)
    pointer = cuda.put(data)
    assert (cuda.get(pointer, size, np.uint8) == data).all()
    cuda.cuMemFree(pointer)


def test_allocations_are_aligned_and_apart(cuda: Cuda, context: Any) -> None:
    pointers = sorted(int(cuda.cuMemAlloc(size)) for size in (1, 100, 257, 70_000, 1 << 20) for _ in range(4))
    assert all(p % 256 == 0 for p in pointers)
    ranges = [tuple(map(int, cuda.cuMemGetAddressRange(p))) for p in pointers]
    assert [start for start, _ in ranges] == pointers
    assert all(a + size <= b for (a, size), (b, _) in itertools.pairwise(ranges))


def test_what_cannot_be_allocated(cuda: Cuda, context: Any) -> None:
    assert cuda.fails("cuMemAlloc", 0) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    assert cuda.fails("cuMemAlloc", 1 << 46) == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY
    cuda.cuMemFree(cuda.cuMemAlloc(64))  # that was no sticky error


def test_free_memory_goes_down_and_up(cuda: Cuda, context: Any) -> None:
    before, total = cuda.cuMemGetInfo()
    pointer = cuda.cuMemAlloc(32 << 20)
    assert cuda.cuMemGetInfo()[0] <= before - (32 << 20)
    cuda.cuMemFree(pointer)
    assert cuda.cuMemGetInfo() == (before, total)


def test_freeing_the_wrong_pointer(cuda: Cuda, context: Any) -> None:
    pointer = cuda.cuMemAlloc(1024)
    assert cuda.fails("cuMemFree", int(pointer) + 256) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    cuda.cuMemFree(pointer)
    assert cuda.fails("cuMemFree", pointer) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    cuda.cuMemFree(0)


def test_copies_within_the_device(cuda: Cuda, context: Any) -> None:
    data = random_bytes(10_000)
    a, b = cuda.put(data), cuda.put(np.zeros_like(data))
    cuda.cuMemcpyDtoD(int(b) + 10, int(a) + 20, 5000)
    expected = np.zeros_like(data)
    expected[10:5010] = data[20:5020]
    assert (cuda.get(b, 10_000, np.uint8) == expected).all()


def test_a_copy_over_the_end(cuda: Cuda, context: Any) -> None:
    pointer = cuda.cuMemAlloc(1 << 20)
    host = np.zeros(4 << 20, np.uint8)
    assert cuda.fails("cuMemcpyHtoD", pointer, host.ctypes.data, host.nbytes) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


@pytest.mark.parametrize(("bits", "dtype", "value"), [(8, np.uint8, 0xA5), (16, np.uint16, 0xBEEF), (32, np.uint32, 0xDEADBEEF)])
@pytest.mark.parametrize("count", [1, 1000, 1_300_001])
def test_memset(cuda: Cuda, context: Any, bits: int, dtype: Any, value: int, count: int) -> None:
    size = np.dtype(dtype).itemsize
    pointer = cuda.put(np.zeros(count + 2, dtype))
    getattr(cuda, f"cuMemsetD{bits}")(int(pointer) + size, value, count)
    got = cuda.get(pointer, count + 2, dtype)
    assert got[0] == got[-1] == 0
    assert (got[1:-1] == value).all()


def test_memset_wants_alignment(cuda: Cuda, context: Any) -> None:
    pointer = cuda.cuMemAlloc(64)
    assert cuda.fails("cuMemsetD32", int(pointer) + 2, 0, 1) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_pitched_memory(cuda: Cuda, context: Any) -> None:
    pointer, pitch = cuda.cuMemAllocPitch(100, 7, 4)
    assert pitch >= 100
    assert pitch % 32 == 0
    cuda.cuMemsetD2D8(pointer, pitch, 1, 100, 7)
    data = random_bytes(60).reshape(3, 20)
    copy = cuda.CUDA_MEMCPY2D()
    copy.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.srcHost, copy.srcPitch = data.ctypes.data, 20
    copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.dstDevice, copy.dstPitch, copy.dstXInBytes, copy.dstY = pointer, pitch, 5, 2
    copy.WidthInBytes, copy.Height = 20, 3
    cuda.cuMemcpy2D(copy)
    back = np.zeros((7, 100), np.uint8)
    copy = cuda.CUDA_MEMCPY2D()
    copy.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.srcPitch = pointer, pitch
    copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.dstHost, copy.dstPitch = back.ctypes.data, 100
    copy.WidthInBytes, copy.Height = 100, 7
    cuda.cuMemcpy2D(copy)
    expected = np.ones((7, 100), np.uint8)
    expected[2:5, 5:25] = data
    assert (back == expected).all()


def test_a_3d_copy(cuda: Cuda, context: Any) -> None:
    data = random_bytes(4 * 5 * 6).reshape(4, 5, 6)
    device = cuda.put(np.zeros_like(data))
    copy = cuda.CUDA_MEMCPY3D()
    copy.srcMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_HOST
    copy.srcHost, copy.srcPitch, copy.srcHeight = data.ctypes.data, 6, 5
    copy.srcXInBytes, copy.srcY, copy.srcZ = 1, 2, 1
    copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.dstDevice, copy.dstPitch, copy.dstHeight = device, 6, 5
    copy.WidthInBytes, copy.Height, copy.Depth = 3, 2, 3
    cuda.cuMemcpy3D(copy)
    expected = np.zeros_like(data)
    expected[:3, :2, :3] = data[1:4, 2:4, 1:4]
    assert (cuda.get(device, data.size, np.uint8).reshape(data.shape) == expected).all()


def test_a_pitch_below_the_width(cuda: Cuda, context: Any) -> None:
    pointer = cuda.cuMemAlloc(4096)
    copy = cuda.CUDA_MEMCPY2D()
    copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.srcPitch = pointer, 10
    copy.dstDevice, copy.dstPitch = int(pointer) + 2048, 20
    copy.WidthInBytes, copy.Height = 20, 4
    assert cuda.fails("cuMemcpy2D", copy) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_pinned_memory(cuda: Cuda, context: Any) -> None:
    host = cuda.cuMemHostAlloc(8192, 0x2)  # CU_MEMHOSTALLOC_DEVICEMAP
    view = np.frombuffer((ctypes.c_uint8 * 8192).from_address(int(host)), np.uint8)
    view[:] = random_bytes(8192)
    device = cuda.cuMemAlloc(8192)
    cuda.cuMemcpyHtoDAsync(device, int(host), 8192, 0)
    cuda.cuStreamSynchronize(0)
    assert (cuda.get(device, 8192, np.uint8) == view).all()
    assert cuda.cuMemHostGetDevicePointer(int(host), 0)
    cuda.cuMemFreeHost(int(host))
    assert cuda.fails("cuMemFreeHost", int(host)) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_registered_memory(cuda: Cuda, context: Any) -> None:
    memory = np.zeros(1 << 16, np.uint8)
    start = (memory.ctypes.data + 4095) & ~4095
    cuda.cuMemHostRegister(start, 8192, 0)
    assert cuda.fails("cuMemHostRegister", start, 8192, 0) == cuda.CUresult.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    cuda.cuMemHostUnregister(start)
    assert cuda.fails("cuMemHostUnregister", start) == cuda.CUresult.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED


def test_pageable_memory_may_be_changed_after_an_asynchronous_copy(cuda: Cuda, context: Any) -> None:
    data = np.full(1000, 7, np.uint32)
    device = cuda.cuMemAlloc(data.nbytes)
    cuda.cuMemcpyHtoDAsync(device, data.ctypes.data, data.nbytes, 0)
    data[:] = 8
    cuda.cuStreamSynchronize(0)
    assert (cuda.get(device, 1000) == 7).all()


def test_pointers_are_known(cuda: Cuda, context: Any) -> None:
    pointer = cuda.cuMemAlloc(5000)
    attribute = cuda.CUpointer_attribute

    def ask(name: str, at: int) -> Any:
        return cuda.cuPointerGetAttribute(getattr(attribute, "CU_POINTER_ATTRIBUTE_" + name), at)

    inside = int(pointer) + 100
    assert int(ask("MEMORY_TYPE", inside)) == int(cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE)
    assert int(ask("CONTEXT", inside)) == int(context)
    assert int(ask("DEVICE_ORDINAL", inside)) == 0
    assert int(ask("RANGE_START_ADDR", inside)) == int(pointer)
    assert int(ask("RANGE_SIZE", inside)) >= 5000
    stack = ctypes.c_int()
    result = cuda.fails("cuPointerGetAttribute", attribute.CU_POINTER_ATTRIBUTE_CONTEXT, ctypes.addressof(stack))
    assert result == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
