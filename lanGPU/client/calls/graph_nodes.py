"""Nodes of any kind (struct CUgraphNodeParams), sent as the calls that each kind has of its own."""

from collections.abc import Callable
from typing import Final

from lanGPU.client.calls.devices import need_pointer
from lanGPU.client.calls.effects import CallError, Part, Post, ReadMemory, Steps
from lanGPU.client.calls.graphs import copy_node, kernel_node, post_node, read_dependencies
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED
from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import (
    CHILD_GRAPH_NODE_PARAMS,
    GRAPH_NODE_PARAMS,
    KERNEL_NODE_PARAMS_V3,
    MEMCPY_NODE_PARAMS,
    MEMSET_NODE_PARAMS,
    MEMSET_NODE_PARAMS_V2,
)
from lanGPU.wire.records import Value

_UNION: Final = 16
"""Bytes before the union of CUgraphNodeParams (cuda.h)."""
_COPY_PARAMS: Final = 16
"""Bytes before `copyParams` in CUDA_MEMCPY_NODE_PARAMS."""
_EDGE_BYTES: Final = 8
_TYPE: Final = {value: name.removeprefix("CU_GRAPH_NODE_TYPE_") for name, value in ENUMS["CUgraphNodeType"].items()}
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
    data = yield from copy_node(call, at + _COPY_PARAMS)
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
    head = GRAPH_NODE_PARAMS.unpack((yield ReadMemory(params, GRAPH_NODE_PARAMS.size)))
    if any(head[name] for name in ("reserved0[0]", "reserved0[1]", "reserved0[2]", "reserved2")) or head["type"] not in _TYPE:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    kind = _TYPE[head["type"]]
    row = rows.get(kind)
    if row is None:
        raise CallError(CUDA_ERROR_NOT_SUPPORTED, f"{call.row.name} for nodes of type {kind} is not supported")
    values = yield from _READERS[kind](call, params + _UNION)
    return row, values[:1] if row in _WITHOUT_CONTEXT else values


def _add(call: Call, out: int, graph: int, dependencies: int, data: int, count: int, params: int) -> Steps:
    need_pointer(out)
    nodes = yield from read_dependencies(dependencies, count)
    edges = bytes((yield ReadMemory(data, _EDGE_BYTES * count))) if data and count else b""
    if any(edges):
        # Only cuGraphAddNode_v2 itself takes ports and types, and it would need the parameters of every kind on the other side.
        raise CallError(CUDA_ERROR_NOT_SUPPORTED, f"{call.row.name}: dependencies with ports or types are not supported")
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
