"""Streams and events."""

import ctypes
from typing import Any

import pytest

from tests.helpers.device import BUMP, Cuda


def test_a_stream_is_idle_when_it_is_new_and_after_waiting(cuda: Cuda, context: Any) -> None:
    stream = cuda.cuStreamCreate(1)
    cuda.cuStreamQuery(stream)
    pointer = cuda.cuMemAlloc(1 << 20)
    cuda.cuMemsetD8Async(pointer, 1, 1 << 20, stream)
    cuda.cuStreamSynchronize(stream)
    cuda.cuStreamQuery(stream)
    cuda.cuStreamDestroy(stream)


def test_flags_are_checked(cuda: Cuda, context: Any) -> None:
    assert cuda.fails("cuStreamCreate", 0x100) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    assert cuda.fails("cuEventCreate", 0x100) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_the_streams_context_and_device(cuda: Cuda, context: Any) -> None:
    stream = cuda.cuStreamCreate(0)
    assert int(cuda.cuStreamGetDevice(stream)) == 0
    assert cuda.cuStreamGetId(stream) != cuda.cuStreamGetId(0)


@pytest.mark.parametrize("stream", [0, 1, 2], ids=["null", "legacy", "per thread"])
def test_the_default_streams(cuda: Cuda, context: Any, stream: int) -> None:
    pointer = cuda.cuMemAlloc(64)
    cuda.cuMemsetD8Async(pointer, 3, 64, stream)
    cuda.cuStreamSynchronize(stream)
    assert (cuda.get(pointer, 16) == 0x03030303).all()


def test_order_in_a_stream_and_across_an_event(cuda: Cuda, context: Any) -> None:
    bump = cuda.function(BUMP, "bump")
    pointer = cuda.cuMemAlloc(4)
    first, second = cuda.cuStreamCreate(1), cuda.cuStreamCreate(1)
    event = cuda.cuEventCreate(2)
    cuda.cuMemsetD32Async(pointer, 5, 1, first)
    for _ in range(50):
        cuda.launch(bump, 1, 1, ((ctypes.c_uint64, pointer), (ctypes.c_uint32, 2)), stream=first)
    cuda.cuEventRecord(event, first)
    cuda.cuStreamWaitEvent(second, event, 0)
    cuda.launch(bump, 1, 1, ((ctypes.c_uint64, pointer), (ctypes.c_uint32, 1000)), stream=second)
    cuda.cuStreamSynchronize(second)
    assert cuda.get(pointer, 1)[0] == 1105


def test_events_measure_time(cuda: Cuda, context: Any) -> None:
    start, end = cuda.cuEventCreate(0), cuda.cuEventCreate(0)
    pointer = cuda.cuMemAlloc(1 << 20)
    cuda.cuEventRecord(start, 0)
    cuda.cuMemsetD8Async(pointer, 1, 1 << 20, 0)
    cuda.cuEventRecord(end, 0)
    cuda.cuEventSynchronize(end)
    elapsed = cuda.cuEventElapsedTime(start, end)
    assert 0 <= elapsed < 60_000
    assert cuda.cuEventElapsedTime(end, start) == pytest.approx(-elapsed)


def test_events_that_cannot_measure(cuda: Cuda, context: Any) -> None:
    timed, fresh, untimed = cuda.cuEventCreate(0), cuda.cuEventCreate(0), cuda.cuEventCreate(2)
    cuda.cuEventRecord(timed, 0)
    cuda.cuEventRecord(untimed, 0)
    cuda.cuCtxSynchronize()
    assert cuda.fails("cuEventElapsedTime", timed, fresh) == cuda.CUresult.CUDA_ERROR_INVALID_HANDLE
    assert cuda.fails("cuEventElapsedTime", timed, untimed) == cuda.CUresult.CUDA_ERROR_INVALID_HANDLE
    cuda.cuEventQuery(fresh)  # never recorded counts as done
    cuda.cuEventSynchronize(fresh)


def test_a_destroyed_event_is_no_event(cuda: Cuda, context: Any) -> None:
    event = cuda.cuEventCreate(0)
    cuda.cuEventDestroy(event)
    if cuda.kind == "emulated":  # on a GPU the driver may not notice
        assert cuda.fails("cuEventQuery", event) == cuda.CUresult.CUDA_ERROR_INVALID_HANDLE


def test_a_host_function_runs_in_its_place(cuda: Cuda, context: Any) -> None:
    seen: list[int] = []
    pinned = int(cuda.cuMemHostAlloc(4, 0))
    device = cuda.cuMemAlloc(4)

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    def note(data: int) -> None:
        seen.append(ctypes.c_uint32.from_address(pinned).value)

    cuda.cuMemsetD32Async(device, 11, 1, 0)
    cuda.cuMemcpyDtoHAsync(pinned, device, 4, 0)
    cuda.cuLaunchHostFunc(0, cuda.CUhostFn(ctypes.cast(note, ctypes.c_void_p).value), 0)
    cuda.cuStreamSynchronize(0)
    assert seen == [11]
