"""Functions of the program that the device's work calls: host functions, stream callbacks, host nodes, destructors of user objects."""

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.helpers.device import Cuda

HOST_FUNCTION = ctypes.CFUNCTYPE(None, ctypes.c_uint64)
STREAM_CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64)
HostFunction = Callable[[Callable[[int], None]], Any]


@pytest.fixture
def host_function(cuda: Cuda, context: Any) -> Iterator[HostFunction]:
    """Makes a CUhostFn of a Python function and keeps it until the context is idle."""
    kept: list[object] = []

    def make(function: Callable[[int], None]) -> Any:
        kept.append(HOST_FUNCTION(function))
        return cuda.CUhostFn(ctypes.cast(kept[-1], ctypes.c_void_p).value)

    yield make
    cuda.cuCtxSynchronize()


def test_host_functions_of_a_stream_run_in_order_with_their_arguments(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    seen: list[int] = []
    function = host_function(seen.append)
    stream = cuda.cuStreamCreate(1)
    data = [0, 1, (1 << 64) - 1, *range(2, 60)]
    for number in data:
        cuda.cuLaunchHostFunc(stream, function, number)
    cuda.cuStreamSynchronize(stream)
    assert seen == data


def test_host_functions_of_the_default_streams(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    seen: list[int] = []
    function = host_function(seen.append)
    for stream in (0, 1, 2):
        cuda.cuLaunchHostFunc(stream, function, 10 + stream)
        cuda.cuStreamSynchronize(stream)
    assert seen == [10, 11, 12]


def test_work_behind_a_host_function_waits_for_it(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    go = threading.Event()
    stream = cuda.cuStreamCreate(1)
    event = cuda.cuEventCreate(0)
    cuda.cuLaunchHostFunc(stream, host_function(lambda _: go.wait(10) and None), 0)
    cuda.cuEventRecord(event, stream)
    time.sleep(0.05)
    assert cuda.fails("cuEventQuery", event) == cuda.CUresult.CUDA_ERROR_NOT_READY
    assert cuda.fails("cuStreamQuery", stream) == cuda.CUresult.CUDA_ERROR_NOT_READY
    go.set()
    cuda.cuEventSynchronize(event)
    cuda.cuStreamQuery(stream)


def test_a_call_that_waits_for_the_device_does_not_stop_a_host_function(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    """The function returns only because what the program says is heard while the driver waits for it."""
    seen: list[int] = []

    def slow(data: int) -> None:
        time.sleep(0.1)
        seen.append(data)

    pointer = cuda.cuMemAlloc(64)
    module_free = cuda.cuMemAlloc(64)
    for number in range(3):
        cuda.cuLaunchHostFunc(0, host_function(slow), number)
    cuda.cuMemFree(module_free)
    cuda.cuMemsetD32(pointer, 4, 16)
    assert (cuda.get(pointer, 16) == 4).all()
    assert seen == [0, 1, 2]


def test_a_copy_behind_a_host_function_sends_what_it_wrote(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    pinned = int(cuda.cuMemHostAlloc(4096, 0))
    ctypes.memset(pinned, 0, 4096)
    device = cuda.cuMemAlloc(4096)
    stream = cuda.cuStreamCreate(1)

    def fill(data: int) -> None:
        time.sleep(0.05)
        ctypes.memset(pinned, data, 4096)

    for value in (7, 9):
        cuda.cuLaunchHostFunc(stream, host_function(fill), value)
        cuda.cuMemcpyHtoDAsync(device, pinned, 4096, stream)
        cuda.cuStreamSynchronize(stream)
        assert (cuda.get(device, 1024) == value * 0x01010101).all()


def test_a_host_function_sees_what_a_copy_before_it_brought(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    seen: list[int] = []
    pinned = int(cuda.cuMemHostAlloc(4, 0))
    device = cuda.cuMemAlloc(4)
    function = host_function(lambda _: seen.append(ctypes.c_uint32.from_address(pinned).value))
    for value in range(5):
        cuda.cuMemsetD32Async(device, value, 1, 0)
        cuda.cuMemcpyDtoHAsync(pinned, device, 4, 0)
        cuda.cuLaunchHostFunc(0, function, 0)
        cuda.cuStreamSynchronize(0)
    assert seen == [0, 1, 2, 3, 4]


def test_a_host_function_and_mapped_memory(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    """A kernel's work, then the function that reads it and writes, then work that reads that."""
    mapped = int(cuda.cuMemHostAlloc(64, 2))
    on_device = cuda.cuMemHostGetDevicePointer(mapped, 0)
    out = cuda.cuMemAlloc(64)
    words = (ctypes.c_uint32 * 16).from_address(mapped)
    seen: list[int] = []

    def change(_: int) -> None:
        seen.append(words[3])
        words[3] += 1

    stream = cuda.cuStreamCreate(1)
    cuda.cuMemsetD32Async(on_device, 5, 16, stream)
    cuda.cuLaunchHostFunc(stream, host_function(change), 0)
    cuda.cuMemcpyDtoDAsync(out, on_device, 64, stream)
    cuda.cuStreamSynchronize(stream)
    assert seen == [5]
    assert list(cuda.get(out, 16)) == [5, 5, 5, 6, *[5] * 12]


def test_a_stream_callback_is_told_its_stream_and_status(cuda: Cuda, context: Any) -> None:
    seen: list[tuple[int, int, int]] = []
    function = STREAM_CALLBACK(lambda stream, status, data: seen.append((stream, status, data)))
    address = cuda.CUstreamCallback(ctypes.cast(function, ctypes.c_void_p).value)
    stream = cuda.cuStreamCreate(0)
    cuda.cuStreamAddCallback(stream, address, 17, 0)
    cuda.cuStreamSynchronize(stream)
    assert seen == [(int(stream), 0, 17)]
    assert cuda.fails("cuStreamAddCallback", stream, address, 17, 1) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def raw(cuda: Cuda, name: str, *args: int) -> int:
    """The CUresult of a call with words as they are: cuda.bindings wraps functions in its own."""
    found = cuda.cuGetProcAddress(name.encode(), 12000, 0)
    address = int(found[0] if isinstance(found, tuple) else found)
    return int(ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(args))(address)(*args))


def test_a_null_function_is_refused(cuda: Cuda, context: Any) -> None:
    invalid = int(cuda.CUresult.CUDA_ERROR_INVALID_VALUE)
    assert raw(cuda, "cuLaunchHostFunc", 0, 0, 5) == invalid
    assert raw(cuda, "cuStreamAddCallback", 0, 0, 5, 0) == invalid
    graph = cuda.cuGraphCreate(0)
    out = ctypes.c_uint64()
    params = (ctypes.c_uint64 * 2)(0, 5)
    assert raw(cuda, "cuGraphAddHostNode", ctypes.addressof(out), int(graph), 0, 0, ctypes.addressof(params)) == invalid
    assert raw(cuda, "cuUserObjectCreate", ctypes.addressof(out), 5, 0, 1, 1) == invalid
    cuda.cuCtxSynchronize()


def test_host_functions_from_many_threads(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    seen: list[int] = []
    function = host_function(seen.append)
    failures: list[BaseException] = []

    def work(first: int) -> None:
        try:
            cuda.cuCtxSetCurrent(context)
            stream = cuda.cuStreamCreate(1)
            for number in range(first, first + 20):
                cuda.cuLaunchHostFunc(stream, function, number)
            cuda.cuStreamSynchronize(stream)
            mine = [n for n in seen if first <= n < first + 20]
            assert mine == list(range(first, first + 20))
        except BaseException as exc:
            failures.append(exc)

    threads = [threading.Thread(target=work, args=(100 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert len(seen) == 80


def host_node(cuda: Cuda, function: Any, data: int) -> Any:
    params = cuda.CUDA_HOST_NODE_PARAMS()
    params.fn = function
    params.userData = data
    return params


def test_a_host_node_runs_at_every_launch_and_can_be_changed(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    seen: list[int] = []
    function = host_function(seen.append)
    other = host_function(lambda data: seen.append(-data))
    graph = cuda.cuGraphCreate(0)
    node = cuda.cuGraphAddHostNode(graph, None, 0, host_node(cuda, function, 1))
    after = cuda.cuGraphAddHostNode(graph, [node], 1, host_node(cuda, function, 2))
    executable = cuda.cuGraphInstantiate(graph, 0)
    for _ in range(3):
        cuda.cuGraphLaunch(executable, 0)
    cuda.cuStreamSynchronize(0)
    assert seen == [1, 2] * 3
    cuda.cuGraphExecHostNodeSetParams(executable, after, host_node(cuda, other, 3))
    cuda.cuGraphHostNodeSetParams(node, host_node(cuda, other, 4))
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuStreamSynchronize(0)
    assert seen == [1, 2] * 3 + [1, -3]
    told = cuda.cuGraphHostNodeGetParams(node)
    assert (int(told.fn), int(told.userData)) == (int(other), 4)
    told = cuda.cuGraphHostNodeGetParams(after)
    assert (int(told.fn), int(told.userData)) == (int(function), 2)


def test_a_captured_host_function_runs_at_every_launch(cuda: Cuda, context: Any, host_function: HostFunction) -> None:
    seen: list[int] = []
    function = host_function(seen.append)
    stream = cuda.cuStreamCreate(1)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    cuda.cuLaunchHostFunc(stream, function, 1)
    cuda.cuLaunchHostFunc(stream, function, 2)
    graph = cuda.cuStreamEndCapture(stream)
    executable = cuda.cuGraphInstantiate(graph, 0)
    assert seen == []
    for _ in range(3):
        cuda.cuGraphLaunch(executable, stream)
    cuda.cuStreamSynchronize(stream)
    assert seen == [1, 2] * 3


def test_a_user_object_ends_with_its_last_reference(cuda: Cuda, context: Any) -> None:
    released: list[int] = []
    ended = threading.Event()

    @HOST_FUNCTION
    def destroy(data: int) -> None:
        released.append(data)
        ended.set()

    address = cuda.CUhostFn(ctypes.cast(destroy, ctypes.c_void_p).value)
    held = cuda.cuUserObjectCreate(5, address, 2, cuda.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    cuda.cuUserObjectRelease(held, 1)
    cuda.cuUserObjectRetain(held, 1)
    cuda.cuUserObjectRelease(held, 1)
    cuda.cuCtxSynchronize()
    assert released == []
    cuda.cuUserObjectRelease(held, 1)
    assert ended.wait(10)
    assert released == [5]
    assert cuda.fails("cuUserObjectCreate", 5, address, 1, 0) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
