"""Virtual memory management, and stream-ordered memory from pools."""

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.helpers.device import BUMP, Cuda


@pytest.fixture
def properties(cuda: Cuda) -> Any:
    prop = cuda.CUmemAllocationProp()
    prop.type = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    prop.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    prop.location.id = 0
    return prop


@pytest.fixture
def granularity(cuda: Cuda, context: Any, properties: Any) -> int:
    minimum = cuda.CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    return int(cuda.cuMemGetAllocationGranularity(properties, minimum))


def allow(cuda: Cuda, pointer: Any, size: int) -> None:
    access = cuda.CUmemAccessDesc()
    access.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = 0
    access.flags = cuda.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
    cuda.cuMemSetAccess(pointer, size, [access], 1)


def test_one_memory_at_two_addresses(cuda: Cuda, context: Any, properties: Any, granularity: int) -> None:
    size = granularity
    handle = cuda.cuMemCreate(size, properties, 0)
    base = cuda.cuMemAddressReserve(2 * size, 0, 0, 0)
    first, second = int(base), int(base) + size
    for at in (first, second):
        cuda.cuMemMap(at, size, 0, handle, 0)
    allow(cuda, first, 2 * size)
    cuda.cuMemRelease(handle)
    cuda.cuMemsetD32(first, 5, 1000)
    bump = cuda.function(BUMP, "bump")
    cuda.launch(bump, 1, 1, ((ctypes.c_uint64, second), (ctypes.c_uint32, 1)))
    got = cuda.get(first, 1000)
    assert got[0] == 6
    assert (got[1:] == 5).all()
    cuda.cuMemUnmap(first, 2 * size)
    cuda.cuMemAddressFree(first, 2 * size)


def test_a_copy_over_two_mappings(cuda: Cuda, context: Any, properties: Any, granularity: int) -> None:
    size = granularity
    base = int(cuda.cuMemAddressReserve(2 * size, 0, 0, 0))
    handles = [cuda.cuMemCreate(size, properties, 0) for _ in range(2)]
    for i, handle in enumerate(handles):
        cuda.cuMemMap(base + i * size, size, 0, handle, 0)
    allow(cuda, base, 2 * size)
    data = np.random.default_rng(3).integers(0, 256, 10_000, dtype=np.uint8)
    cuda.cuMemcpyHtoD(base + size - 5000, data.ctypes.data, 10_000)
    assert (cuda.get(base + size - 5000, 10_000, np.uint8) == data).all()
    cuda.cuMemUnmap(base, 2 * size)
    for handle in handles:
        cuda.cuMemRelease(handle)
    cuda.cuMemAddressFree(base, 2 * size)


def test_what_is_not_mapped_cannot_be_used(cuda: Cuda, context: Any, properties: Any, granularity: int) -> None:
    base = cuda.cuMemAddressReserve(granularity, 0, 0, 0)
    assert cuda.fails("cuMemsetD8", base, 0, 16) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    handle = cuda.cuMemCreate(granularity, properties, 0)
    cuda.cuMemMap(base, granularity, 0, handle, 0)
    assert cuda.fails("cuMemMap", base, granularity, 0, handle, 0) != 0
    assert cuda.fails("cuMemAddressFree", base, granularity) != 0
    cuda.cuMemUnmap(base, granularity)
    cuda.cuMemRelease(handle)
    cuda.cuMemAddressFree(base, granularity)


def test_physical_memory_counts(cuda: Cuda, context: Any, properties: Any, granularity: int) -> None:
    free = cuda.cuMemGetInfo()[0]
    size = 16 * granularity
    handle = cuda.cuMemCreate(size, properties, 0)
    assert cuda.cuMemGetInfo()[0] <= free - size
    cuda.cuMemRelease(handle)
    assert cuda.cuMemGetInfo()[0] == free
    assert cuda.fails("cuMemCreate", 1 << 46, properties, 0) == cuda.CUresult.CUDA_ERROR_OUT_OF_MEMORY


def test_sizes_must_fit_the_granularity(cuda: Cuda, context: Any, properties: Any, granularity: int) -> None:
    assert cuda.fails("cuMemCreate", granularity + 1, properties, 0) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    assert cuda.fails("cuMemAddressReserve", granularity + 1, 0, 0, 0) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_a_wished_address_is_given_if_it_is_free(cuda: Cuda, context: Any, granularity: int) -> None:
    base = int(cuda.cuMemAddressReserve(granularity, 0, 0, 0))
    other = int(cuda.cuMemAddressReserve(granularity, 0, base, 0))
    assert other != base
    for at in (base, other):
        cuda.cuMemAddressFree(at, granularity)
    if cuda.kind == "emulated":  # elsewhere a wish is only a wish
        assert int(cuda.cuMemAddressReserve(granularity, 0, base, 0)) == base
        cuda.cuMemAddressFree(base, granularity)


def test_stream_ordered_memory(cuda: Cuda, context: Any) -> None:
    stream = cuda.cuStreamCreate(1)
    pool = cuda.cuDeviceGetMemPool(cuda.cuDeviceGet(0))
    pointers = [cuda.cuMemAllocAsync(1000, stream) for _ in range(3)]
    for value, pointer in enumerate(pointers):
        cuda.cuMemsetD8Async(pointer, value, 1000, stream)
    assert [int(cuda.get(p, 1, np.uint8)[0]) for p in pointers if cuda.cuStreamSynchronize(stream) is None] == [0, 1, 2]
    used = int(cuda.cuMemPoolGetAttribute(pool, cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
    assert used >= 3000
    for pointer in pointers:
        cuda.cuMemFreeAsync(pointer, stream)
    cuda.cuStreamSynchronize(stream)
    after = int(cuda.cuMemPoolGetAttribute(pool, cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
    assert after <= used - 3000


def test_a_pool_of_ones_own(cuda: Cuda, context: Any) -> None:
    props = cuda.CUmemPoolProps()
    props.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    props.location.id = 0
    pool = cuda.cuMemPoolCreate(props)
    pointer = cuda.cuMemAllocFromPoolAsync(4096, pool, 0)
    cuda.cuMemsetD32Async(pointer, 9, 1024, 0)
    assert (cuda.get(pointer, 1024) == 9).all()
    threshold = cuda.CUmemPool_attribute.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
    cuda.cuMemPoolSetAttribute(pool, threshold, cuda.driver.cuuint64_t(1 << 20))
    assert int(cuda.cuMemPoolGetAttribute(pool, threshold)) == 1 << 20
    cuda.cuMemFreeAsync(pointer, 0)
    cuda.cuStreamSynchronize(0)
    cuda.cuMemPoolDestroy(pool)
