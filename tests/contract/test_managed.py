"""Memory that the program and the device share: managed, mapped, registered."""

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.helpers.device import ADD, BUMP, PTX_HEADER, Cuda

GLOBAL, HOST, SINGLE = 1, 2, 4


def view(address: Any, count: int, dtype: Any = np.uint32) -> np.ndarray:
    """The program's own view of memory at `address`."""
    raw = (ctypes.c_uint8 * (count * np.dtype(dtype).itemsize)).from_address(int(address))
    return np.frombuffer(raw, dtype)


def bump(cuda: Cuda, at: Any, by: int, stream: Any = 0) -> None:
    cuda.launch(cuda.function(BUMP, "bump"), 1, 1, ((ctypes.c_uint64, at), (ctypes.c_uint32, by)), stream=stream)


def test_both_sides_see_what_the_other_wrote(cuda: Cuda, context: Any) -> None:
    n = 300_001
    memory = cuda.cuMemAllocManaged(3 * 4 * n, GLOBAL)
    a, b, out = (view(int(memory) + i * 4 * n, n, np.float32) for i in range(3))
    add = cuda.function(ADD, "add")
    pointers = [(ctypes.c_uint64, int(memory) + i * 4 * n) for i in range(3)]
    for step in (1.0, 2.5):
        a[:] = np.arange(n) * step
        b[:] = 7 * step
        cuda.launch(add, (n + 255) // 256, 256, (*pointers, (ctypes.c_uint32, n)))
        cuda.cuCtxSynchronize()
        assert (out == np.arange(n, dtype=np.float32) * np.float32(step) + np.float32(7 * step)).all()
    cuda.cuMemFree(memory)


def test_neither_side_undoes_the_other(cuda: Cuda, context: Any) -> None:
    memory = cuda.cuMemAllocManaged(8192, GLOBAL)
    words = view(memory, 2048)
    words[:] = 5
    bump(cuda, memory, 10)
    bump(cuda, int(memory) + 4096, 1)
    cuda.cuCtxSynchronize()
    assert (words[0], words[1], words[1024], words[1025]) == (15, 5, 6, 5)
    words[0], words[2] = 100, 0  # 0 is what the memory held at first
    bump(cuda, memory, 1)
    bump(cuda, int(memory) + 8, 3)
    cuda.cuStreamSynchronize(0)
    assert (words[0], words[2], words[3]) == (101, 3, 5)


@pytest.mark.parametrize("wait", ["stream", "event", "query", "copy"])
def test_every_way_of_waiting_shows_results(cuda: Cuda, context: Any, wait: str) -> None:
    memory, other = cuda.cuMemAllocManaged(64, GLOBAL), cuda.cuMemAlloc(64)
    view(memory, 1)[0] = 1
    stream = cuda.cuStreamCreate(1)
    event = cuda.cuEventCreate(0)
    bump(cuda, memory, 1, stream)
    cuda.cuEventRecord(event, stream)
    if wait == "stream":
        cuda.cuStreamSynchronize(stream)
    elif wait == "event":
        cuda.cuEventSynchronize(event)
    elif wait == "query":
        while cuda.fails("cuStreamQuery", stream):
            pass
    else:
        data = np.zeros(4, np.uint32)
        cuda.cuMemcpyDtoHAsync(data.ctypes.data, other, 16, stream)
        cuda.cuStreamSynchronize(stream)
    assert view(memory, 1)[0] == 2


def test_copies_and_memsets_of_managed_memory(cuda: Cuda, context: Any) -> None:
    memory, device = cuda.cuMemAllocManaged(40_000, GLOBAL), cuda.cuMemAlloc(40_000)
    words = view(memory, 10_000)
    words[:] = np.arange(10_000)
    cuda.cuMemcpy(device, memory, 40_000)
    assert (cuda.get(device, 10_000) == np.arange(10_000)).all()
    cuda.cuMemsetD32(memory, 9, 5000)
    cuda.cuCtxSynchronize()
    assert (words[:5000] == 9).all()
    assert (words[5000:] == np.arange(5000, 10_000)).all()
    cuda.cuMemcpyDtoD(memory, device, 40_000)
    cuda.cuCtxSynchronize()
    assert (words == np.arange(10_000)).all()
    host = np.full(10, 3, np.uint32)
    cuda.cuMemcpyHtoD(memory, host.ctypes.data, 40)
    cuda.cuCtxSynchronize()
    assert (words[:12] == [3] * 10 + [10, 11]).all()
    bump(cuda, memory, 4)
    cuda.cuMemcpyHtoD(device, int(memory), 4)  # the program's side of managed memory as a source
    assert cuda.get(device, 1)[0] == 7


def test_graphs_and_stream_writes(cuda: Cuda, context: Any) -> None:
    memory = cuda.cuMemAllocManaged(64, GLOBAL)
    words, stream = view(memory, 16), cuda.cuStreamCreate(1)
    kernel = cuda.function(BUMP, "bump")
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    cuda.launch(kernel, 1, 1, ((ctypes.c_uint64, memory), (ctypes.c_uint32, 2)), stream=stream)
    graph = cuda.cuStreamEndCapture(stream)
    executable = cuda.cuGraphInstantiate(graph, 0)
    for start in (10, 20):
        words[0] = start
        cuda.cuGraphLaunch(executable, stream)
        cuda.cuStreamSynchronize(stream)
        assert words[0] == start + 2
    cuda.cuStreamWriteValue32(stream, int(memory) + 4, 77, 0)
    cuda.cuStreamSynchronize(stream)
    assert (words[0], words[1]) == (22, 77)


def test_what_is_known_of_managed_memory(cuda: Cuda, context: Any) -> None:
    memory = cuda.cuMemAllocManaged(5000, GLOBAL)
    kinds = cuda.CUpointer_attribute
    middle = cuda.CUdeviceptr(int(memory) + 100)
    assert int(cuda.cuPointerGetAttribute(kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED, middle)) == 1
    assert int(cuda.cuPointerGetAttribute(kinds.CU_POINTER_ATTRIBUTE_DEVICE_POINTER, middle)) == int(middle)
    assert int(cuda.cuPointerGetAttribute(kinds.CU_POINTER_ATTRIBUTE_HOST_POINTER, middle)) == int(middle)
    assert tuple(map(int, cuda.cuMemGetAddressRange(middle))) == (int(memory), 5000)
    cuda.cuMemFree(memory)
    assert cuda.fails("cuPointerGetAttribute", kinds.CU_POINTER_ATTRIBUTE_IS_MANAGED, middle) == 1  # INVALID_VALUE
    assert cuda.fails("cuMemFree", memory) == 1


@pytest.mark.parametrize(("size", "flags"), [(0, GLOBAL), (64, 0), (64, SINGLE), (64, 8)])
def test_managed_memory_that_cannot_be(cuda: Cuda, context: Any, size: int, flags: int) -> None:
    assert cuda.fails("cuMemAllocManaged", size, flags) == 1


def test_advice_is_told(cuda: Cuda, context: Any) -> None:
    memory = cuda.cuMemAllocManaged(3 * 65536, GLOBAL)
    advice, kinds = cuda.CUmem_advise, cuda.CUmem_range_attribute
    place = cuda.CUmemLocation()
    place.type, place.id = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0

    def told(kind: Any, size: int = 3 * 65536) -> int:
        return int(cuda.cuMemRangeGetAttribute(4, kind, memory, size))

    assert told(kinds.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 0
    assert told(kinds.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == -2  # CU_DEVICE_INVALID
    cuda.cuMemAdvise(memory, 65536, advice.CU_MEM_ADVISE_SET_READ_MOSTLY, place)
    assert told(kinds.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY) == 0
    assert told(kinds.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 65536) == 1
    cuda.cuMemAdvise(memory, 65536, advice.CU_MEM_ADVISE_UNSET_READ_MOSTLY, place)
    assert told(kinds.CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY, 65536) == 0
    cuda.cuMemAdvise(memory, 3 * 65536, advice.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place)
    assert told(kinds.CU_MEM_RANGE_ATTRIBUTE_PREFERRED_LOCATION) == 0
    place.id = 99
    assert cuda.fails("cuMemAdvise", memory, 4096, advice.CU_MEM_ADVISE_SET_PREFERRED_LOCATION, place) == 101  # INVALID_DEVICE
    device = cuda.cuMemAlloc(4096)
    assert cuda.fails("cuMemAdvise", device, 4096, advice.CU_MEM_ADVISE_SET_READ_MOSTLY, place) == 1


def test_prefetches_and_attachments(cuda: Cuda, context: Any) -> None:
    memory = cuda.cuMemAllocManaged(65536, HOST)
    place = cuda.CUmemLocation()
    place.type, place.id = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    stream = cuda.cuStreamCreate(0)
    view(memory, 1)[0] = 6
    cuda.cuMemPrefetchAsync(memory, 65536, place, 0, stream)
    cuda.cuStreamAttachMemAsync(stream, memory, 0, SINGLE)
    bump(cuda, memory, 1, stream)
    cuda.cuStreamSynchronize(stream)
    assert view(memory, 1)[0] == 7
    assert cuda.fails("cuMemPrefetchAsync", memory, 65537, place, 0, stream) == 1
    assert cuda.fails("cuMemPrefetchAsync", memory, 65536, place, 1, stream) == 1
    assert cuda.fails("cuStreamAttachMemAsync", stream, memory, 100, SINGLE) == 1
    assert cuda.fails("cuStreamAttachMemAsync", stream, memory, 0, 8) == 1


def test_kernels_use_mapped_memory(cuda: Cuda, context: Any) -> None:
    host = cuda.cuMemHostAlloc(100_000, 0x2)  # CU_MEMHOSTALLOC_DEVICEMAP
    device = cuda.cuMemHostGetDevicePointer(int(host), 0)
    assert int(device) == int(host)  # unified addressing
    words = view(host, 25_000)
    words[:] = np.arange(25_000)
    for turn in range(1, 4):
        bump(cuda, int(device) + 4, 10)
        cuda.cuCtxSynchronize()
        assert (words[1], words[2]) == (1 + 10 * turn, 2)
    words[0] = 1000  # beside what the next kernel writes, and without waiting for it
    bump(cuda, int(device) + 4, 5)
    words[2] = 3000
    bump(cuda, int(device) + 8, 5)
    cuda.cuCtxSynchronize()
    assert tuple(map(int, words[:4])) == (1000, 36, 3005, 3)
    assert (words[4:] == np.arange(4, 25_000)).all()
    cuda.cuMemFreeHost(int(host))
    assert cuda.fails("cuMemHostGetDevicePointer", int(host), 0) == 1


def test_kernels_use_registered_memory(cuda: Cuda, context: Any) -> None:
    memory = np.zeros(1 << 15, np.uint32)
    start = (memory.ctypes.data + 4095) & ~4095
    words = view(start, 4096)
    words[:] = 40
    assert cuda.fails("cuMemHostGetDevicePointer", start, 0) == 1
    cuda.cuMemHostRegister(start, 16384, 0x2)  # CU_MEMHOSTREGISTER_DEVICEMAP
    device = cuda.cuMemHostGetDevicePointer(start + 400, 0)
    bump(cuda, device, 2)
    cuda.cuCtxSynchronize()
    assert (words[99], words[100], words[101]) == (40, 42, 40)
    bump(cuda, int(device) + 4, 3)
    cuda.cuMemHostUnregister(start)  # waits
    assert (words[100], words[101]) == (42, 43)
    assert cuda.fails("cuMemHostGetDevicePointer", start, 0) == 1


def test_shared_memory_ends_with_its_context(cuda: Cuda, context: Any) -> None:
    other = cuda.cuCtxCreate(None, 0, cuda.cuDeviceGet(0))
    memory = cuda.cuMemAllocManaged(4096, GLOBAL)
    bump(cuda, memory, 1)
    cuda.cuCtxSynchronize()
    cuda.cuCtxDestroy(other)
    mine = cuda.cuMemAllocManaged(4096, GLOBAL)
    bump(cuda, mine, 3)
    cuda.cuCtxSynchronize()
    assert view(mine, 1)[0] == 3


MANAGED = (
    PTX_HEADER
    + """
.visible .global .attribute(.managed) .align 4 .u32 total = 40;
.visible .global .align 4 .u32 plain = 1;
.visible .entry count_up()
{
    .reg .b32 %r<4>;
    ld.global.u32 %r1, [total];
    add.u32 %r2, %r1, 2;
    st.global.u32 [total], %r2;
    ret;
}
"""
)


def test_managed_variables(cuda: Cuda, context: Any) -> None:
    library = cuda.cuLibraryLoadData(MANAGED.encode() + b"\0", [], [], 0, [], [], 0)
    address, size = cuda.cuLibraryGetManaged(library, b"total")
    word = view(address, 1)
    assert (size, word[0]) == (4, 40)
    kernel = cuda.cuLibraryGetKernel(library, b"count_up")
    for start in (40, 100):
        word[0] = start
        cuda.cuLaunchKernel(cuda.cuKernelGetFunction(kernel), 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
        cuda.cuCtxSynchronize()
        assert word[0] == start + 2
    assert int(cuda.cuLibraryGetManaged(library, b"total")[0]) == int(address)
    assert cuda.fails("cuLibraryGetManaged", library, b"plain") == cuda.CUresult.CUDA_ERROR_NOT_FOUND
    assert cuda.fails("cuMemFree", int(address)) == 1
    cuda.cuLibraryUnload(library)
