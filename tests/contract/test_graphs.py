"""Graphs, built node by node and captured from streams."""

import ctypes
import struct
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers.device import BUMP, Buffer, Cuda

U64, U32 = ctypes.c_uint64, ctypes.c_uint32


class Bumps:
    """Kernel node parameters that add a number to one place."""

    def __init__(self, cuda: Cuda, pointer: Any) -> None:
        self.cuda, self.pointer = cuda, pointer
        self.function = cuda.function(BUMP, "bump")
        self._keep: list[Buffer] = []

    def params(self, by: int) -> Any:
        buffer = Buffer(struct.pack("<QI", int(self.pointer), by))
        self._keep.append(buffer)
        node = self.cuda.CUDA_KERNEL_NODE_PARAMS()
        node.func = self.function
        node.gridDimX = node.gridDimY = node.gridDimZ = node.blockDimX = node.blockDimY = node.blockDimZ = 1
        node.sharedMemBytes, node.kernelParams, node.extra = 0, 0, buffer.address
        return node


@pytest.fixture
def counter(cuda: Cuda, context: Any) -> Any:
    return cuda.put(np.zeros(1, np.uint32))


@pytest.fixture
def bumps(cuda: Cuda, counter: Any) -> Bumps:
    return Bumps(cuda, counter)


def test_nodes_run_in_the_order_of_their_edges(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph = cuda.cuGraphCreate(0)
    memset = cuda.CUDA_MEMSET_NODE_PARAMS()
    memset.dst, memset.elementSize, memset.width, memset.height, memset.value, memset.pitch = counter, 4, 1, 1, 100, 4
    late = cuda.cuGraphAddKernelNode(graph, [], 0, bumps.params(5))
    first = cuda.cuGraphAddMemsetNode(graph, [], 0, memset, context)
    cuda.cuGraphAddDependencies(graph, [first], [late], [cuda.CUgraphEdgeData()], 1)
    executable = cuda.cuGraphInstantiate(graph, 0)
    for _ in range(3):
        cuda.cuGraphLaunch(executable, 0)
    cuda.cuStreamSynchronize(0)
    assert cuda.get(counter, 1)[0] == 105
    assert len(cuda.cuGraphGetNodes(graph, 2)[0]) == 2
    assert [int(n) for n in cuda.cuGraphGetRootNodes(graph, 1)[0]] == [int(first)]
    assert cuda.cuGraphNodeGetType(late) == cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_KERNEL
    cuda.cuGraphDestroy(graph)
    cuda.cuGraphLaunch(executable, 0)  # lives on without the graph
    cuda.cuStreamSynchronize(0)
    cuda.cuGraphExecDestroy(executable)


def test_a_circle_is_refused(cuda: Cuda, context: Any) -> None:
    graph = cuda.cuGraphCreate(0)
    a = cuda.cuGraphAddEmptyNode(graph, [], 0)
    b = cuda.cuGraphAddEmptyNode(graph, [a], 1)
    edge = [cuda.CUgraphEdgeData()]
    refused = cuda.fails("cuGraphAddDependencies", graph, [b], [a], edge, 1)
    assert refused or cuda.fails("cuGraphInstantiate", graph, 0)  # a driver may notice only then
    assert cuda.fails("cuGraphAddDependencies", graph, [a], [b], edge, 1) != 0  # is there already
    cuda.cuGraphDestroy(graph)


def test_an_executable_takes_new_parameters(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph = cuda.cuGraphCreate(0)
    node = cuda.cuGraphAddKernelNode(graph, [], 0, bumps.params(1))
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuGraphExecKernelNodeSetParams(executable, node, bumps.params(10))
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuStreamSynchronize(0)
    assert cuda.get(counter, 1)[0] == 11
    cuda.cuGraphKernelNodeSetParams(node, bumps.params(1000))  # the graph's node, not the executable's
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuStreamSynchronize(0)
    assert cuda.get(counter, 1)[0] == 21


def test_copy_nodes(cuda: Cuda, context: Any) -> None:
    a, b = cuda.put(np.arange(100, dtype=np.uint32)), cuda.put(np.zeros(100, np.uint32))

    def params(source: Any) -> Any:
        copy = cuda.CUDA_MEMCPY3D()
        copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
        copy.srcDevice, copy.dstDevice, copy.srcPitch, copy.dstPitch = source, b, 400, 400
        copy.srcHeight = copy.dstHeight = copy.Height = copy.Depth = 1
        copy.WidthInBytes = 400
        return copy

    graph = cuda.cuGraphCreate(0)
    node = cuda.cuGraphAddMemcpyNode(graph, [], 0, params(a), context)
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphLaunch(executable, 0)
    assert (cuda.get(b, 100) == np.arange(100)).all()
    other = cuda.put(np.full(100, 9, np.uint32))
    cuda.cuGraphExecMemcpyNodeSetParams(executable, node, params(other), context)
    cuda.cuGraphLaunch(executable, 0)
    assert (cuda.get(b, 100) == 9).all()
    assert int(cuda.cuGraphMemcpyNodeGetParams(node).srcDevice) == int(a)


def test_a_child_graph_is_copied(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    child = cuda.cuGraphCreate(0)
    node = cuda.cuGraphAddKernelNode(child, [], 0, bumps.params(3))
    parent = cuda.cuGraphCreate(0)
    first = cuda.cuGraphAddChildGraphNode(parent, [], 0, child)
    cuda.cuGraphAddChildGraphNode(parent, [first], 1, child)
    cuda.cuGraphDestroyNode(node)
    executable = cuda.cuGraphInstantiate(parent, 0)
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuStreamSynchronize(0)
    assert cuda.get(counter, 1)[0] == 6


def test_capture_makes_a_graph_and_runs_nothing(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    stream, other = cuda.cuStreamCreate(1), cuda.cuStreamCreate(1)
    fork, join = cuda.cuEventCreate(2), cuda.cuEventCreate(2)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    cuda.cuMemsetD32Async(counter, 50, 1, stream)
    cuda.cuEventRecord(fork, stream)
    cuda.cuStreamWaitEvent(other, fork, 0)
    cuda.launch(bumps.function, 1, 1, ((U64, counter), (U32, 1)), stream=other)
    assert cuda.cuStreamIsCapturing(other) == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    cuda.cuEventRecord(join, other)
    cuda.cuStreamWaitEvent(stream, join, 0)
    cuda.launch(bumps.function, 1, 1, ((U64, counter), (U32, 2)), stream=stream)
    graph = cuda.cuStreamEndCapture(stream)
    assert cuda.get(counter, 1)[0] == 0
    assert len(cuda.cuGraphGetNodes(graph, 3)[0]) == 3
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphLaunch(executable, stream)
    cuda.cuStreamSynchronize(stream)
    assert cuda.get(counter, 1)[0] == 53
    for s in (stream, other):
        assert cuda.cuStreamIsCapturing(s) == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE


def test_what_breaks_a_capture(cuda: Cuda, context: Any) -> None:
    stream = cuda.cuStreamCreate(1)
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL
    cuda.cuStreamBeginCapture(stream, mode)
    assert cuda.fails("cuStreamSynchronize", stream) == cuda.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert cuda.cuStreamIsCapturing(stream) == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_INVALIDATED
    assert cuda.fails("cuStreamEndCapture", stream) == cuda.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    cuda.cuStreamBeginCapture(stream, mode)
    assert cuda.fails("cuMemAlloc", 64) == cuda.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
    assert cuda.fails("cuStreamEndCapture", stream) == cuda.CUresult.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
    assert cuda.fails("cuStreamEndCapture", stream) == cuda.CUresult.CUDA_ERROR_ILLEGAL_STATE
    cuda.cuMemFree(cuda.cuMemAlloc(64))


def test_work_that_does_not_come_back(cuda: Cuda, context: Any, counter: Any) -> None:
    stream, other, fork = cuda.cuStreamCreate(1), cuda.cuStreamCreate(1), cuda.cuEventCreate(2)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    cuda.cuEventRecord(fork, stream)
    cuda.cuStreamWaitEvent(other, fork, 0)
    cuda.cuMemsetD32Async(counter, 1, 1, other)
    assert cuda.fails("cuStreamEndCapture", stream) == cuda.CUresult.CUDA_ERROR_STREAM_CAPTURE_UNJOINED


def test_an_update_with_another_graph(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graphs = []
    for by in (1, 20):
        graph = cuda.cuGraphCreate(0)
        cuda.cuGraphAddKernelNode(graph, [], 0, bumps.params(by))
        graphs.append(graph)
    executable = cuda.cuGraphInstantiate(graphs[0], 0)
    cuda.cuGraphExecUpdate(executable, graphs[1])
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuStreamSynchronize(0)
    assert cuda.get(counter, 1)[0] == 20
    different = cuda.cuGraphCreate(0)
    assert cuda.fails("cuGraphExecUpdate", executable, different) == cuda.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE


def test_a_graph_keeps_a_user_object(cuda: Cuda, context: Any) -> None:
    released = threading.Event()
    destroy = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _data: released.set())
    address = cuda.CUhostFn(ctypes.cast(destroy, ctypes.c_void_p).value)
    graph = cuda.cuGraphCreate(0)
    held = cuda.cuUserObjectCreate(0, address, 1, cuda.CUuserObject_flags.CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    cuda.cuGraphRetainUserObject(graph, held, 1, cuda.CUuserObjectRetain_flags.CU_GRAPH_USER_OBJECT_MOVE)
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphDestroy(graph)
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuStreamSynchronize(0)
    assert not released.is_set()
    cuda.cuGraphExecDestroy(executable)
    assert released.wait(10)


def test_a_capture_tells_its_graph_and_what_a_stream_waits_for(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    stream = cuda.cuStreamCreate(1)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    status, number, graph, nodes, *_ = cuda.cuStreamGetCaptureInfo(stream)
    assert status == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    assert number
    assert not nodes
    for length in range(1, 4):
        cuda.cuMemsetD32Async(counter, length, 1, stream)
        again = cuda.cuStreamGetCaptureInfo(stream)
        assert (again[0], int(again[1])) == (status, int(number))
        assert int(again[2]) == int(graph)
        (last,) = again[3]
        nodes, count = cuda.cuGraphGetNodes(graph, 9)
        assert count == length
        assert int(last) in {int(n) for n in nodes}
    assert cuda.cuStreamIsCapturing(stream) == status
    cuda.cuStreamEndCapture(stream)
    assert cuda.cuStreamIsCapturing(stream) == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE
    cuda.cuStreamDestroy(stream)


def test_a_relaxed_thread_may_allocate_while_it_captures(cuda: Cuda, context: Any) -> None:
    modes = cuda.CUstreamCaptureMode
    stream = cuda.cuStreamCreate(1)
    cuda.cuStreamBeginCapture(stream, modes.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    before = cuda.cuThreadExchangeStreamCaptureMode(modes.CU_STREAM_CAPTURE_MODE_RELAXED)
    pointer = cuda.cuMemAlloc(1000)
    assert cuda.cuThreadExchangeStreamCaptureMode(before) == modes.CU_STREAM_CAPTURE_MODE_RELAXED
    cuda.cuMemsetD8Async(pointer, 1, 1000, stream)
    graph = cuda.cuStreamEndCapture(stream)
    assert cuda.cuGraphGetNodes(graph, 5)[1] == 1
    cuda.cuMemFree(pointer)
    cuda.cuStreamDestroy(stream)


def test_a_kernel_node_tells_its_parameters(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph = cuda.cuGraphCreate(0)
    node = cuda.cuGraphAddKernelNode(graph, [], 0, bumps.params(7))
    for by in (7, 9):
        shown = cuda.cuGraphKernelNodeGetParams(node)
        assert (shown.gridDimX, shown.blockDimX, shown.sharedMemBytes) == (1, 1, 0)
        pointers = (ctypes.c_uint64 * 2).from_address(int(shown.kernelParams))
        assert U64.from_address(pointers[0]).value == int(counter)
        assert U32.from_address(pointers[1]).value == by
        cuda.cuGraphKernelNodeSetParams(node, bumps.params(9))
    again = cuda.cuGraphKernelNodeGetParams(node)
    other = cuda.cuGraphCreate(0)
    cuda.cuGraphAddKernelNode(other, [], 0, again)  # what is told can be used
    cuda.cuGraphLaunch(cuda.cuGraphInstantiate(other, 0), 0)
    cuda.cuStreamSynchronize(0)
    assert cuda.get(counter, 1)[0] == 9
    empty = cuda.cuGraphAddEmptyNode(graph, [], 0)
    assert cuda.fails("cuGraphKernelNodeGetParams", empty) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    cuda.cuStreamSynchronize(0)


def test_a_captured_launch_tells_its_parameters(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    stream = cuda.cuStreamCreate(1)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    cuda.launch(bumps.function, 1, 1, ((U64, counter), (U32, 33)), stream=stream)
    graph = cuda.cuStreamEndCapture(stream)
    (node,) = cuda.cuGraphGetNodes(graph, 1)[0]
    shown = cuda.cuGraphKernelNodeGetParams(node)
    assert int(shown.func) == int(bumps.function)
    assert U32.from_address((ctypes.c_uint64 * 2).from_address(int(shown.kernelParams))[1]).value == 33


def _node_params(cuda: Cuda, kind: str) -> Any:
    params = cuda.CUgraphNodeParams()
    params.type = getattr(cuda.CUgraphNodeType, f"CU_GRAPH_NODE_TYPE_{kind}")
    return params


def _kernel_params(cuda: Cuda, bumps: Bumps, by: int) -> Any:
    params, plain = _node_params(cuda, "KERNEL"), bumps.params(by)
    kernel = params.kernel
    for name in ("func", "gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes", "extra"):
        setattr(kernel, name, getattr(plain, name))
    kernel.kernelParams = 0
    params.kernel = kernel
    return params


def _memset_params(cuda: Cuda, pointer: Any, value: int, context: Any) -> Any:
    params = _node_params(cuda, "MEMSET")
    memset = params.memset
    memset.dst, memset.elementSize, memset.width, memset.height, memset.value, memset.pitch = pointer, 4, 1, 1, value, 4
    memset.ctx = context
    params.memset = memset
    return params


def test_nodes_of_any_kind_are_added_and_changed_by_one_call(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph, child = cuda.cuGraphCreate(0), cuda.cuGraphCreate(0)
    target = cuda.put(np.zeros(1, np.uint32))
    copy = _node_params(cuda, "MEMCPY")
    memcpy = copy.memcpy
    memcpy.copyCtx = context
    inner = memcpy.copyParams
    inner.srcMemoryType = inner.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    inner.srcDevice, inner.dstDevice, inner.srcPitch, inner.dstPitch = counter, target, 4, 4
    inner.srcHeight = inner.dstHeight = inner.Height = inner.Depth = 1
    inner.WidthInBytes = 4
    memcpy.copyParams = inner
    copy.memcpy = memcpy
    event, nested = cuda.cuEventCreate(2), _node_params(cuda, "GRAPH")
    cuda.cuGraphAddNode(child, [], None, 0, _kernel_params(cuda, bumps, 2))
    holder = nested.graph
    holder.graph = child
    nested.graph = holder
    record = _node_params(cuda, "EVENT_RECORD")
    recorded = record.eventRecord
    recorded.event = event
    record.eventRecord = recorded
    made = [
        _memset_params(cuda, counter, 10, context),
        _kernel_params(cuda, bumps, 5),
        nested,
        _node_params(cuda, "EMPTY"),
        copy,
        record,
    ]
    nodes: list[Any] = []
    for params in made:
        nodes.append(cuda.cuGraphAddNode(graph, nodes[-1:], None, len(nodes[-1:]), params))
    kinds = [int(cuda.cuGraphNodeGetType(node)) for node in nodes]
    assert kinds == [int(params.type) for params in made]
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuEventSynchronize(event)
    assert cuda.get(target, 1)[0] == 17
    cuda.cuGraphExecNodeSetParams(executable, nodes[1], _kernel_params(cuda, bumps, 100))
    cuda.cuGraphExecNodeSetParams(executable, nodes[0], _memset_params(cuda, counter, 1, context))
    cuda.cuGraphLaunch(executable, 0)
    assert cuda.get(target, 1)[0] == 103
    cuda.cuGraphNodeSetParams(nodes[1], _kernel_params(cuda, bumps, 1000))
    cuda.cuGraphLaunch(cuda.cuGraphInstantiate(graph, 0), 0)
    assert cuda.get(target, 1)[0] == 1012
    cuda.cuGraphLaunch(executable, 0)  # has what it had
    assert cuda.get(target, 1)[0] == 103


def test_bad_node_parameters_are_refused(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph = cuda.cuGraphCreate(0)
    reserved = _node_params(cuda, "EMPTY")
    ctypes.c_uint32.from_address(reserved.getPtr() + 4).value = 1
    assert cuda.fails("cuGraphAddNode", graph, [], None, 0, reserved) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    unknown = _node_params(cuda, "EMPTY")
    ctypes.c_uint32.from_address(unknown.getPtr()).value = 99
    assert cuda.fails("cuGraphAddNode", graph, [], None, 0, unknown) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    assert cuda.cuGraphGetNodes(graph, 1)[1] == 0
    cuda.cuStreamSynchronize(0)


def test_a_capture_goes_into_a_graph_and_its_dependencies_can_be_changed(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph, stream = cuda.cuGraphCreate(0), cuda.cuStreamCreate(1)
    first = cuda.cuGraphAddMemsetNode(graph, [], 0, _plain_memset(cuda, counter, 7), context)
    mode = cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    cuda.cuStreamBeginCaptureToGraph(stream, graph, [first], None, 1, mode)
    cuda.launch(bumps.function, 1, 1, ((U64, counter), (U32, 1)), stream=stream)
    replace = cuda.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES
    cuda.cuStreamUpdateCaptureDependencies(stream, [first], None, 1, replace)
    cuda.launch(bumps.function, 1, 1, ((U64, counter), (U32, 2)), stream=stream)
    waits = cuda.cuStreamGetCaptureInfo(stream)[3]
    assert len(waits) == 1
    assert int(cuda.cuGraphNodeGetDependencies(waits[0], 1)[0][0]) == int(first)
    add = cuda.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_ADD_CAPTURE_DEPENDENCIES
    others = [node for node in cuda.cuGraphGetNodes(graph, 3)[0] if int(node) not in (int(first), int(waits[0]))]
    cuda.cuStreamUpdateCaptureDependencies(stream, others, None, 1, add)
    cuda.cuStreamEndCapture(stream)
    assert cuda.cuGraphGetNodes(graph, 9)[1] == 3
    cuda.cuGraphLaunch(cuda.cuGraphInstantiate(graph, 0), 0)
    cuda.cuStreamSynchronize(0)
    assert cuda.get(counter, 1)[0] == 10
    other = cuda.cuGraphCreate(0)
    stranger = cuda.cuGraphAddEmptyNode(other, [], 0)
    refused = cuda.fails("cuStreamBeginCaptureToGraph", stream, graph, [stranger], None, 1, mode)
    assert refused == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    assert cuda.cuStreamIsCapturing(stream) == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE


def _plain_memset(cuda: Cuda, pointer: Any, value: int) -> Any:
    memset = cuda.CUDA_MEMSET_NODE_PARAMS()
    memset.dst, memset.elementSize, memset.width, memset.height, memset.value, memset.pitch = pointer, 4, 1, 1, value, 4
    return memset


def test_captured_copies_read_and_write_host_memory_at_each_launch(cuda: Cuda, context: Any) -> None:
    pointer, stream = cuda.put(np.zeros(4, np.uint32)), cuda.cuStreamCreate(1)
    host = cuda.cuMemHostAlloc(32, 0)
    words = (ctypes.c_uint32 * 8).from_address(int(host))
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    cuda.cuMemcpyHtoDAsync(pointer, host, 16, stream)
    cuda.cuMemcpyDtoHAsync(int(host) + 16, pointer, 16, stream)
    executable = cuda.cuGraphInstantiate(cuda.cuStreamEndCapture(stream), 0)
    for value in (3, 8):
        words[1] = value
        cuda.cuGraphLaunch(executable, stream)
        cuda.cuStreamSynchronize(stream)
        assert cuda.get(pointer, 4)[1] == value
        assert words[5] == value
    cuda.cuMemFreeHost(host)


def test_a_clone_knows_what_its_nodes_were(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph = cuda.cuGraphCreate(0)
    first = cuda.cuGraphAddMemsetNode(graph, [], 0, _plain_memset(cuda, counter, 1), context)
    second = cuda.cuGraphAddKernelNode(graph, [first], 1, bumps.params(4))
    clone = cuda.cuGraphClone(graph)
    twin = cuda.cuGraphNodeFindInClone(second, clone)
    assert int(twin) not in (int(first), int(second))
    cuda.cuGraphKernelNodeSetParams(twin, bumps.params(40))  # the clone's only
    results = []
    for each in (graph, clone):
        cuda.cuGraphLaunch(cuda.cuGraphInstantiate(each, 0), 0)
        results.append(cuda.get(counter, 1)[0])
    assert results == [5, 41]
    stranger = cuda.cuGraphAddEmptyNode(cuda.cuGraphCreate(0), [], 0)
    assert cuda.fails("cuGraphNodeFindInClone", stranger, clone) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_a_node_can_be_switched_off(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph = cuda.cuGraphCreate(0)
    first = cuda.cuGraphAddMemsetNode(graph, [], 0, _plain_memset(cuda, counter, 1), context)
    second = cuda.cuGraphAddKernelNode(graph, [first], 1, bumps.params(4))
    executable = cuda.cuGraphInstantiate(graph, 0)
    assert int(cuda.cuGraphExecGetFlags(executable)) == 0
    assert cuda.cuGraphNodeGetEnabled(executable, second) == 1
    for enabled, expected in ((0, 1), (1, 5)):
        cuda.cuGraphNodeSetEnabled(executable, second, enabled)
        assert cuda.cuGraphNodeGetEnabled(executable, second) == enabled
        cuda.cuGraphLaunch(executable, 0)
        cuda.cuStreamSynchronize(0)
        assert cuda.get(counter, 1)[0] == expected


def test_an_update_says_what_does_not_fit(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph, other = cuda.cuGraphCreate(0), cuda.cuGraphCreate(0)
    cuda.cuGraphAddKernelNode(graph, [], 0, bumps.params(1))
    node = cuda.cuGraphAddMemsetNode(other, [], 0, _plain_memset(cuda, counter, 1), context)
    executable = cuda.cuGraphInstantiate(graph, 0)
    result, info = cuda.driver.cuGraphExecUpdate(executable, other)
    assert int(result) == cuda.CUresult.CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE
    if info is not None:  # cuda.bindings may keep it back where the call fails
        assert info.result == cuda.CUgraphExecUpdateResult.CU_GRAPH_EXEC_UPDATE_ERROR_NODE_TYPE_CHANGED
        assert int(info.errorNode) == int(node)


def test_a_stream_that_joined_a_capture_may_end(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    stream, other = cuda.cuStreamCreate(1), cuda.cuStreamCreate(1)
    fork, join = cuda.cuEventCreate(2), cuda.cuEventCreate(2)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED)
    cuda.cuEventRecord(fork, stream)
    cuda.cuStreamWaitEvent(other, fork, 0)
    cuda.cuEventDestroy(fork)
    cuda.launch(bumps.function, 1, 1, ((U64, counter), (U32, 6)), stream=other)
    cuda.cuEventRecord(join, other)
    cuda.cuStreamWaitEvent(stream, join, 0)
    cuda.cuEventDestroy(join)
    cuda.cuStreamDestroy(other)
    assert cuda.cuStreamIsCapturing(stream) == cuda.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
    cuda.cuGraphLaunch(cuda.cuGraphInstantiate(cuda.cuStreamEndCapture(stream), 0), stream)
    cuda.cuStreamSynchronize(stream)
    assert cuda.get(counter, 1)[0] == 6


def _alloc_params(cuda: Cuda, size: int) -> Any:
    params = cuda.CUDA_MEM_ALLOC_NODE_PARAMS()
    props = params.poolProps
    props.allocType = cuda.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    props.location.type, props.location.id = cuda.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
    params.poolProps = props
    params.bytesize = size
    return params


def _used(cuda: Cuda, name: str) -> int:
    return int(cuda.cuDeviceGetGraphMemAttribute(0, getattr(cuda.CUgraphMem_attribute, f"CU_GRAPH_MEM_ATTR_{name}")))


def test_nodes_allocate_and_free(cuda: Cuda, context: Any, counter: Any, bumps: Bumps) -> None:
    graph = cuda.cuGraphCreate(0)
    params = _alloc_params(cuda, 1000)
    allocate = cuda.cuGraphAddMemAllocNode(graph, [], 0, params)
    pointer = int(params.dptr)
    assert pointer
    assert int(cuda.cuGraphMemAllocNodeGetParams(allocate).dptr) == pointer
    assert cuda.cuGraphMemAllocNodeGetParams(allocate).bytesize == 1000
    fill = cuda.cuGraphAddMemsetNode(graph, [allocate], 1, _plain_memset(cuda, pointer, 31), context)
    copy = cuda.CUDA_MEMCPY3D()
    copy.srcMemoryType = copy.dstMemoryType = cuda.CUmemorytype.CU_MEMORYTYPE_DEVICE
    copy.srcDevice, copy.dstDevice, copy.WidthInBytes, copy.Height, copy.Depth = pointer, counter, 4, 1, 1
    used = cuda.cuGraphAddMemcpyNode(graph, [fill], 1, copy, context)
    free = cuda.cuGraphAddMemFreeNode(graph, [used], 1, pointer)
    assert int(cuda.cuGraphMemFreeNodeGetParams(free)) == pointer
    kinds = [int(cuda.cuGraphNodeGetType(node)) for node in (allocate, free)]
    assert kinds == [cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_ALLOC, cuda.CUgraphNodeType.CU_GRAPH_NODE_TYPE_MEM_FREE]
    assert cuda.fails("cuGraphAddMemFreeNode", graph, [free], 1, pointer) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE
    assert cuda.fails("cuGraphClone", graph) != 0
    executable = cuda.cuGraphInstantiate(graph, 0)
    assert cuda.fails("cuGraphInstantiate", graph, 0) != 0  # one at a time
    for _ in range(2):
        cuda.cuMemsetD32(counter, 0, 1)
        cuda.cuGraphLaunch(executable, 0)
        cuda.cuStreamSynchronize(0)
        assert cuda.get(counter, 1)[0] == 31
    assert _used(cuda, "USED_MEM_CURRENT") == 0
    assert _used(cuda, "USED_MEM_HIGH") >= 1000
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)
    cuda.cuDeviceGraphMemTrim(0)
    assert _used(cuda, "RESERVED_MEM_CURRENT") == 0


def test_graph_memory_outlives_its_graph_until_it_is_freed(cuda: Cuda, context: Any) -> None:
    graph = cuda.cuGraphCreate(0)
    params = _alloc_params(cuda, 64)
    node = cuda.cuGraphAddMemAllocNode(graph, [], 0, params)
    pointer = int(params.dptr)
    cuda.cuGraphAddMemsetNode(graph, [node], 1, _plain_memset(cuda, pointer, 5), context)
    executable = cuda.cuGraphInstantiate(graph, 0)
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuStreamSynchronize(0)
    assert _used(cuda, "USED_MEM_CURRENT") >= 64
    assert cuda.fails("cuGraphLaunch", executable, 0) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE  # not free yet
    cuda.cuMemFree(pointer)
    cuda.cuGraphLaunch(executable, 0)
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)
    assert cuda.get(pointer, 1)[0] == 5
    cuda.cuMemFreeAsync(pointer, 0)
    cuda.cuStreamSynchronize(0)
    cuda.cuDeviceGraphMemTrim(0)
    assert _used(cuda, "RESERVED_MEM_CURRENT") == 0
    assert cuda.fails("cuMemFreeAsync", pointer, 0) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_a_captured_allocation_becomes_nodes(cuda: Cuda, context: Any, counter: Any) -> None:
    stream = cuda.cuStreamCreate(1)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    pointer = cuda.cuMemAllocAsync(256, stream)
    cuda.cuMemsetD32Async(pointer, 12, 64, stream)
    cuda.cuMemcpyDtoDAsync(counter, int(pointer) + 128, 4, stream)
    cuda.cuMemFreeAsync(pointer, stream)
    graph = cuda.cuStreamEndCapture(stream)
    kinds = [int(cuda.cuGraphNodeGetType(node)) for node in cuda.cuGraphGetNodes(graph, 4)[0]]
    assert sorted(kinds) == sorted([10, 2, 1, 11])
    executable = cuda.cuGraphInstantiate(graph, 0)
    for _ in range(2):
        cuda.cuGraphLaunch(executable, stream)
    cuda.cuStreamSynchronize(stream)
    assert cuda.get(counter, 1)[0] == 12
    cuda.cuGraphExecDestroy(executable)
    cuda.cuGraphDestroy(graph)


def test_a_graph_is_printed_into_a_file(
    cuda: Cuda, context: Any, counter: Any, bumps: Bumps, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, child = cuda.cuGraphCreate(0), cuda.cuGraphCreate(0)
    first = cuda.cuGraphAddKernelNode(graph, [], 0, bumps.params(1))
    cuda.cuGraphAddEmptyNode(child, [], 0)
    cuda.cuGraphAddChildGraphNode(graph, [first], 1, child)
    monkeypatch.chdir(tmp_path)
    for path in (tmp_path / "absolute.dot", Path("relative.dot")):
        cuda.cuGraphDebugDotPrint(graph, str(path).encode(), 0)
        text = (tmp_path / path).read_text()
        assert text.startswith("digraph")
        assert text.count("->") == 1
        assert "bump" in text
    refused = cuda.fails("cuGraphDebugDotPrint", graph, str(tmp_path / "missing" / "graph.dot").encode(), 0)
    assert refused in (cuda.CUresult.CUDA_ERROR_OPERATING_SYSTEM, cuda.CUresult.CUDA_ERROR_INVALID_VALUE)
