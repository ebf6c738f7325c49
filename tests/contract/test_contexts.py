"""Contexts: the stack of each thread, primary contexts, life and death."""

import threading
from typing import Any

import pytest

from tests.helpers.device import Cuda


@pytest.fixture
def device(cuda: Cuda) -> Any:
    return cuda.cuDeviceGet(0)


def test_creation_makes_it_current_and_destruction_takes_it_away(cuda: Cuda, device: Any) -> None:
    before = int(cuda.cuCtxGetCurrent())
    context = cuda.cuCtxCreate(None, 0, device)
    assert int(cuda.cuCtxGetCurrent()) == int(context)
    assert int(cuda.cuCtxGetDevice()) == int(device)
    cuda.cuCtxDestroy(context)
    assert int(cuda.cuCtxGetCurrent()) == before
    assert cuda.fails("cuCtxDestroy", context) in (cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT, cuda.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED)


def test_push_and_pop(cuda: Cuda, context: Any, device: Any) -> None:
    second = cuda.cuCtxCreate(None, 0, device)
    assert int(cuda.cuCtxPopCurrent()) == int(second)
    assert int(cuda.cuCtxGetCurrent()) == int(context)
    cuda.cuCtxPushCurrent(second)
    assert int(cuda.cuCtxGetCurrent()) == int(second)
    cuda.cuCtxDestroy(second)
    assert int(cuda.cuCtxGetCurrent()) == int(context)


def test_an_empty_stack_does_not_pop(cuda: Cuda) -> None:
    results: list[int] = []

    def run() -> None:
        results.append(cuda.fails("cuCtxPopCurrent"))
        results.append(cuda.fails("cuMemAlloc", 64))
        results.append(int(cuda.cuCtxGetCurrent()))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert results == [int(cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT)] * 2 + [0]


def test_each_thread_has_its_own_current_context(cuda: Cuda, context: Any) -> None:
    seen: list[int] = []

    def run() -> None:
        seen.append(int(cuda.cuCtxGetCurrent()))
        cuda.cuCtxSetCurrent(context)
        seen.append(int(cuda.cuCtxGetCurrent()))
        cuda.cuMemFree(cuda.cuMemAlloc(64))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert seen == [0, int(context)]


def test_a_context_destroyed_by_another_thread(cuda: Cuda, device: Any) -> None:
    context = cuda.cuCtxCreate(None, 0, device)
    thread = threading.Thread(target=lambda: cuda.cuCtxDestroy(context))
    thread.start()
    thread.join()
    assert cuda.fails("cuMemAlloc", 64) in (cuda.CUresult.CUDA_ERROR_CONTEXT_IS_DESTROYED, cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT)
    cuda.cuCtxPopCurrent()


def test_the_primary_context_is_one(cuda: Cuda, device: Any) -> None:
    first, second = cuda.cuDevicePrimaryCtxRetain(device), cuda.cuDevicePrimaryCtxRetain(device)
    try:
        assert int(first) == int(second)
        assert cuda.cuDevicePrimaryCtxGetState(device)[1] == 1
        cuda.cuDevicePrimaryCtxRelease(device)
        assert cuda.cuDevicePrimaryCtxGetState(device)[1] == 1
    finally:
        cuda.cuDevicePrimaryCtxRelease(device)
    assert cuda.cuDevicePrimaryCtxGetState(device)[1] == 0
    assert cuda.fails("cuDevicePrimaryCtxRelease", device) == cuda.CUresult.CUDA_ERROR_INVALID_CONTEXT


def test_memory_goes_with_its_context(cuda: Cuda, device: Any) -> None:
    outer = cuda.cuCtxCreate(None, 0, device)
    inner = cuda.cuCtxCreate(None, 0, device)
    cuda.cuMemAlloc(64 << 20)
    used = cuda.cuMemGetInfo()[0]
    cuda.cuCtxDestroy(inner)
    assert cuda.cuMemGetInfo()[0] >= used + (64 << 20)
    cuda.cuCtxDestroy(outer)


def test_flags_are_checked(cuda: Cuda, device: Any) -> None:
    assert cuda.fails("cuCtxCreate", None, 0x10000, device) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_stream_priorities(cuda: Cuda, context: Any) -> None:
    least, greatest = cuda.cuCtxGetStreamPriorityRange()
    assert greatest <= least == 0
    stream = cuda.cuStreamCreateWithPriority(1, greatest - 100)
    assert cuda.cuStreamGetPriority(stream) == greatest
    assert cuda.cuStreamGetFlags(stream) == 1
    cuda.cuStreamDestroy(stream)


def test_limits_can_be_read_and_set(cuda: Cuda, context: Any) -> None:
    stack = cuda.CUlimit.CU_LIMIT_STACK_SIZE
    assert cuda.cuCtxGetLimit(stack) > 0
    cuda.cuCtxSetLimit(stack, 4096)
    assert cuda.cuCtxGetLimit(stack) >= 4096
