"""Launches: parameters in both forms, sizes, shared memory, occupancy."""

import ctypes
import struct
from typing import Any

import numpy as np
import pytest

from tests.helpers.device import ADD, BUMP, SUM, Buffer, Cuda

U64, U32 = ctypes.c_uint64, ctypes.c_uint32


@pytest.mark.parametrize("n", [1, 100, 100_003])
@pytest.mark.parametrize("form", ["kernelParams", "extra"])
def test_vector_addition(cuda: Cuda, context: Any, n: int, form: str) -> None:
    rng = np.random.default_rng(n)
    a, b = rng.random(n, np.float32), rng.random(n, np.float32)
    add = cuda.function(ADD, "add")
    pa, pb, out = cuda.put(a), cuda.put(b), cuda.put(np.zeros(n + 1, np.float32))
    grid = (n + 255) // 256
    if form == "extra":
        buffer = Buffer(struct.pack("<QQQI", int(pa), int(pb), int(out), n))
        cuda.cuLaunchKernel(add, grid, 1, 1, 256, 1, 1, 0, 0, 0, buffer.address)
    else:
        cuda.launch(add, grid, 256, ((U64, pa), (U64, pb), (U64, out), (U32, n)))
    got = cuda.get(out, n + 1, np.float32)
    assert (got[:n] == a + b).all()
    assert got[n] == 0


def test_parameters_are_taken_when_the_call_is_made(cuda: Cuda, context: Any) -> None:
    bump, pointer = cuda.function(BUMP, "bump"), cuda.cuMemAlloc(4)
    cuda.cuMemsetD32(pointer, 0, 1)
    buffer = Buffer(struct.pack("<QI", int(pointer), 1))
    for value in range(10):
        struct.pack_into("<I", buffer.data, 8, value)
        cuda.cuLaunchKernel(bump, 1, 1, 1, 1, 1, 1, 0, 0, 0, buffer.address)
    assert cuda.get(pointer, 1)[0] == sum(range(10))


def test_shared_memory_and_barriers(cuda: Cuda, context: Any) -> None:
    numbers = np.random.default_rng(1).integers(0, 1000, 64 * 33, dtype=np.uint32)
    source, out = cuda.put(numbers), cuda.put(np.zeros(33, np.uint32))
    cuda.launch(cuda.function(SUM, "sum"), 33, 64, ((U64, source), (U64, out)), shared=256)
    assert (cuda.get(out, 33) == numbers.reshape(33, 64).sum(axis=1)).all()


def test_a_buffer_that_is_too_small(cuda: Cuda, context: Any) -> None:
    bump, pointer = cuda.function(BUMP, "bump"), cuda.cuMemAlloc(4)
    buffer = Buffer(struct.pack("<QI", int(pointer), 1), size=4)
    result = cuda.fails("cuLaunchKernel", bump, 1, 1, 1, 1, 1, 1, 0, 0, 0, buffer.address)
    assert result == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


@pytest.mark.parametrize(
    ("grid", "block"),
    [((0, 1, 1), (1, 1, 1)), ((1, 1, 1), (0, 1, 1)), ((1, 1, 1), (1025, 1, 1)), ((1, 1, 1), (1, 1, 65)), ((1, 65536, 1), (1, 1, 1))],
)
def test_sizes_out_of_range(cuda: Cuda, context: Any, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
    bump, pointer = cuda.function(BUMP, "bump"), cuda.cuMemAlloc(4)
    arguments = ((int(pointer), 1), (U64, U32))
    assert cuda.fails("cuLaunchKernel", bump, *grid, *block, 0, 0, arguments, 0) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    cuda.launch(bump, 1, 1, ((U64, pointer), (U32, 1)))  # that was no sticky error
    cuda.cuCtxSynchronize()


def test_too_much_shared_memory(cuda: Cuda, context: Any) -> None:
    add = cuda.function(SUM, "sum")
    result = cuda.fails("cuLaunchKernel", add, 1, 1, 1, 1, 1, 1, 60 * 1024, 0, ((0, 0), (U64, U64)), 0)
    assert result == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_a_kernel_with_a_required_block(cuda: Cuda, context: Any) -> None:
    text = BUMP.replace("(.param .u64 at, .param .u32 by)", "(.param .u64 at, .param .u32 by)\n.maxntid 64, 1, 1")
    function = cuda.function(text, "bump")
    attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK
    assert cuda.cuFuncGetAttribute(attribute, function) == 64
    arguments = ((int(cuda.cuMemAlloc(4)), 1), (U64, U32))
    assert cuda.fails("cuLaunchKernel", function, 1, 1, 1, 65, 1, 1, 0, 0, arguments, 0) != 0


def test_launch_ex(cuda: Cuda, context: Any) -> None:
    bump, pointer = cuda.function(BUMP, "bump"), cuda.put(np.zeros(1, np.uint32))
    stream = cuda.cuStreamCreate(1)
    config = cuda.CUlaunchConfig()
    config.gridDimX = config.gridDimY = config.gridDimZ = config.blockDimX = config.blockDimY = config.blockDimZ = 1
    config.hStream, config.numAttrs = stream, 0
    cuda.cuLaunchKernelEx(config, bump, ((int(pointer), 3), (U64, U32)), 0)
    cuda.cuStreamSynchronize(stream)
    assert cuda.get(pointer, 1)[0] == 3


def test_occupancy(cuda: Cuda, context: Any) -> None:
    add = cuda.function(ADD, "add")
    device = cuda.cuDeviceGet(0)
    threads = cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, device)
    assert cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(add, 1024, 0) == threads // 1024
    assert 1 <= cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(add, 128, 32 * 1024) <= 7
    grid, block = cuda.cuOccupancyMaxPotentialBlockSize(add, None, 0, 0)
    assert block % 32 == 0
    assert grid * block >= threads


def test_a_function_runs_in_its_own_context_only_and_a_kernel_in_the_streams(cuda: Cuda, context: Any) -> None:
    stream, pointer = cuda.cuStreamCreate(0), cuda.cuMemAlloc(4)
    cuda.cuMemsetD32(pointer, 0, 1)
    bump = cuda.function(BUMP, "bump")
    kernel = cuda.cuLibraryGetKernel(cuda.cuLibraryLoadData(BUMP.encode() + b"\0", [], [], 0, [], [], 0), b"bump")
    as_function = cuda.CUfunction(int(kernel))
    buffer = Buffer(struct.pack("<QI", int(pointer), 5))
    other = cuda.cuCtxCreate(None, 0, cuda.cuDeviceGet(0))
    try:
        result = cuda.fails("cuLaunchKernel", bump, 1, 1, 1, 1, 1, 1, 0, 0, 0, buffer.address)
        assert result in (cuda.CUresult.CUDA_ERROR_INVALID_HANDLE, cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT)
        cuda.cuLaunchKernel(as_function, 1, 1, 1, 1, 1, 1, 0, stream, 0, buffer.address)
        cuda.cuStreamSynchronize(stream)
    finally:
        cuda.cuCtxDestroy(other)
    assert cuda.get(pointer, 1)[0] == 5
