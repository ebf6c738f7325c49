"""Nodes of any kind (struct CUgraphNodeParams), sent as the calls that each kind has of its own."""

from collections.abc import Callable
from typing import Final

from lanGPU.client.calls.arrays import Offer, ask
from lanGPU.client.calls.devices import need_pointer, write_u64
from lanGPU.client.calls.effects import CallError, Part, Post, ReadMemory, Request, Steps, WriteMemory
from lanGPU.client.calls.graphs import copy_node, kernel_node, node_room, post_node, read_dependencies
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS
from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.node_params import COPY_PARAMS, UNION, node_kind
from lanGPU.driverapi.structs import (
    CHILD_GRAPH_NODE_PARAMS,
    GRAPH_NODE_PARAMS,
    KERNEL_NODE_PARAMS_V3,
    MEM_ACCESS_DESC,
    MEM_ALLOC_NODE_PARAMS,
    MEMCPY_NODE_PARAMS,
    MEMSET_NODE_PARAMS,
    MEMSET_NODE_PARAMS_V2,
)
from lanGPU.errors import RemoteProtocolError
from lanGPU.wire.records import Value

_EDGE_BYTES: Final = 8
_MEM_ALLOC: Final = ENUMS["CUgraphNodeType"]["CU_GRAPH_NODE_TYPE_MEM_ALLOC"]
_ADD: Final = {
    "KERNEL": "cuGraphAddKernelNode_v2",
    "MEMCPY": "cuGraphAddMemcpyNode",
    "MEMSET": "cuGraphAddMemsetNode",
    "GRAPH": "cuGraphAddChildGraphNode",
    "EMPTY": "cuGraphAddEmptyNode",
    "WAIT_EVENT": "cuGraphAddEventWaitNode",
    "EVENT_RECORD": "cuGraphAddEventRecordNode",
    "MEM_FREE": "cuGraphAddMemFreeNode",
}
_SET: Final = {
    "KERNEL": "cuGraphKernelNodeSetParams_v2",
    "MEMCPY": "cuGraphMemcpyNodeSetParams",
    "MEMSET": "cuGraphMemsetNodeSetParams",
    "WAIT_EVENT": "cuGraphEventWaitNodeSetEvent",
    "EVENT_RECORD": "cuGraphEventRecordNodeSetEvent",
}
_EXEC_SET: Final = {
    "KERNEL": "cuGraphExecKernelNodeSetParams_v2",
    "MEMCPY": "cuGraphExecMemcpyNodeSetParams",
    "MEMSET": "cuGraphExecMemsetNodeSetParams",
    "GRAPH": "cuGraphExecChildGraphNodeSetParams",
    "WAIT_EVENT": "cuGraphExecEventWaitNodeSetEvent",
    "EVENT_RECORD": "cuGraphExecEventRecordNodeSetEvent",
}
_WITHOUT_CONTEXT: Final = frozenset({_SET["MEMCPY"], _SET["MEMSET"]})
"""Calls whose node keeps the context that it was added with."""


def _kernel(call: Call, at: int) -> Part[tuple[Value, ...]]:
    return ((yield from kernel_node(call, at, KERNEL_NODE_PARAMS_V3)),)


def _memcpy(call: Call, at: int) -> Part[tuple[Value, ...]]:
    head = yield ReadMemory(at, MEMCPY_NODE_PARAMS.size)
    if MEMCPY_NODE_PARAMS.get(head, "flags") or MEMCPY_NODE_PARAMS.get(head, "reserved"):
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    data = yield from copy_node(call, at + COPY_PARAMS)
    return data, MEMCPY_NODE_PARAMS.get(head, "copyCtx") or call.thread.current


def _memset(call: Call, at: int) -> Part[tuple[Value, ...]]:
    data = yield ReadMemory(at, MEMSET_NODE_PARAMS_V2.size)
    # The older struct is the newer one without its context.
    return bytes(data[: MEMSET_NODE_PARAMS.size]), MEMSET_NODE_PARAMS_V2.get(data, "ctx") or call.thread.current


def _graph(call: Call, at: int) -> Part[tuple[Value, ...]]:
    data = yield ReadMemory(at, CHILD_GRAPH_NODE_PARAMS.size)
    if CHILD_GRAPH_NODE_PARAMS.get(data, "ownership"):
        raise CallError(CUDA_ERROR_NOT_SUPPORTED, "child graphs that are moved into their parent are not supported")
    return (CHILD_GRAPH_NODE_PARAMS.get(data, "graph"),)


def _word(call: Call, at: int) -> Part[tuple[Value, ...]]:
    """An event, or the address that is freed."""
    return (int.from_bytes((yield ReadMemory(at, 8)), "little"),)


def _nothing(call: Call, at: int) -> Part[tuple[Value, ...]]:
    yield from ()
    return ()


_READERS: Final[dict[str, Callable[[Call, int], Part[tuple[Value, ...]]]]] = {
    "KERNEL": _kernel,
    "MEMCPY": _memcpy,
    "MEMSET": _memset,
    "GRAPH": _graph,
    "EMPTY": _nothing,
    "WAIT_EVENT": _word,
    "EVENT_RECORD": _word,
    "MEM_FREE": _word,
}


def _read(call: Call, params: int, rows: dict[str, str]) -> Part[tuple[str, tuple[Value, ...]]]:
    """(row, its last arguments) for the node that `params` describes. Raises CallError: bad struct, a kind that is not supported."""
    need_pointer(params)
    kind = node_kind((yield ReadMemory(params, GRAPH_NODE_PARAMS.size)))
    if kind is None:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    row = rows.get(kind)
    if row is None:
        raise CallError(CUDA_ERROR_NOT_SUPPORTED, f"{call.row.name} for nodes of type {kind} is not supported")
    values = yield from _READERS[kind](call, params + UNION)
    return row, values[:1] if row in _WITHOUT_CONTEXT else values


def mem_alloc_node(call: Call, out: int, graph: int, nodes: bytes, params: int) -> Steps:
    """Adds an allocation node by the struct at `params`, and writes its address there."""
    layout = MEM_ALLOC_NODE_PARAMS
    data = yield ReadMemory(params, layout.size)
    count, entries = layout.get(data, "accessDescCount"), layout.get(data, "accessDescs")
    if count > len(call.state.devices) or (count and not entries):
        return CUDA_ERROR_INVALID_VALUE
    descriptors = bytes((yield ReadMemory(entries, count * MEM_ACCESS_DESC.size))) if count else b""
    layout.put(data, "accessDescs", 0)
    offer = Offer(call, 1)
    handle = offer.handles[0]
    values = (handle, graph, nodes, len(nodes) // 8, bytes(data) + descriptors)
    result, answer = yield from ask("cuGraphAddMemAllocNode", [offer], values)
    if result:
        return result
    if len(answer) < 8:
        raise RemoteProtocolError(f"{call.row.name}: an answer of {len(answer)} bytes")
    yield WriteMemory(params + layout.fields["dptr"].offset, answer[:8])
    yield write_u64(out, handle)
    return CUDA_SUCCESS


@client_call("cuGraphAddMemAllocNode")
def add_mem_alloc_node(call: Call, out: int, graph: int, dependencies: int, count: int, params: int) -> Steps:
    """The address is known at once, so the call waits for the answer."""
    need_pointer(out)
    need_pointer(params)
    nodes = yield from read_dependencies(dependencies, count)
    return (yield from mem_alloc_node(call, out, graph, nodes, params))


@client_call("cuGraphMemAllocNodeGetParams")
def mem_alloc_node_get_params(call: Call, node: int, params: int) -> Steps:
    """The descriptors lie where they lay when the node was asked before."""
    need_pointer(params)
    layout = MEM_ALLOC_NODE_PARAMS
    reply = yield Request(call.row.name, (node, layout.size), 0)
    if reply.result:
        return int(reply.result)
    data, descriptors = bytearray(reply.outputs[: layout.size]), reply.outputs[layout.size :]
    if len(data) < layout.size or layout.get(data, "accessDescCount") * MEM_ACCESS_DESC.size > len(descriptors):
        raise RemoteProtocolError(f"{call.row.name}: an answer of {len(reply.outputs)} bytes")
    if descriptors and layout.get(data, "accessDescCount"):
        address = yield from node_room(call, node, len(descriptors))
        yield WriteMemory(address, descriptors)
        layout.put(data, "accessDescs", address)
    yield WriteMemory(params, data)
    return CUDA_SUCCESS


def _add(call: Call, out: int, graph: int, dependencies: int, data: int, count: int, params: int) -> Steps:
    need_pointer(out)
    nodes = yield from read_dependencies(dependencies, count)
    edges = bytes((yield ReadMemory(data, _EDGE_BYTES * count))) if data and count else b""
    if any(edges):
        # Only cuGraphAddNode_v2 itself takes ports and types, and it would need the parameters of every kind on the other side.
        raise CallError(CUDA_ERROR_NOT_SUPPORTED, f"{call.row.name}: dependencies with ports or types are not supported")
    need_pointer(params)
    if int.from_bytes((yield ReadMemory(params, 4)), "little") == _MEM_ALLOC:
        return (yield from mem_alloc_node(call, out, graph, nodes, params + UNION))
    row, values = yield from _read(call, params, _ADD)
    return (yield from post_node(call, row, out, graph, nodes, values))


@client_call("cuGraphAddNode")
def add_node(call: Call, out: int, graph: int, dependencies: int, count: int, params: int) -> Steps:
    """Plain dependencies."""
    return (yield from _add(call, out, graph, dependencies, 0, count, params))


@client_call("cuGraphAddNode_v2")
def add_node_v2(call: Call, out: int, graph: int, dependencies: int, data: int, count: int, params: int) -> Steps:
    """Dependencies with data, which must be the plain kind."""
    return (yield from _add(call, out, graph, dependencies, data, count, params))


@client_call("cuGraphNodeSetParams")
def node_set_params(call: Call, node: int, params: int) -> Steps:
    """The call for the struct's kind; the driver refuses a node of another."""
    row, values = yield from _read(call, params, _SET)
    return int((yield Post(row, (node, *values), 0)))


@client_call("cuGraphExecNodeSetParams")
def exec_node_set_params(call: Call, graph_exec: int, node: int, params: int) -> Steps:
    """The call for the struct's kind; the driver refuses a node of another."""
    row, values = yield from _read(call, params, _EXEC_SET)
    return int((yield Post(row, (graph_exec, node, *values), 0)))
