"""Nodes of any kind through one struct, CUgraphNodeParams."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.node_params import COPY_PARAMS, UNION, node_kind
from lanGPU.driverapi.structs import (
    CHILD_GRAPH_NODE_PARAMS,
    GRAPH_NODE_PARAMS,
    KERNEL_NODE_PARAMS_V3,
    MEMCPY_NODE_PARAMS,
    MEMSET_NODE_PARAMS_V2,
)
from lanGPU.emulator.driver.cabi import get_bytes, get_u64, need
from lanGPU.emulator.driver.graph_exec import replace_action, replace_child
from lanGPU.emulator.driver.graph_memory import refuse_memory
from lanGPU.emulator.driver.graph_nodes import read_copy, read_fill, read_host_function, read_launch
from lanGPU.emulator.driver.graphs import add_node, check_edges, graph_of, node_of
from lanGPU.emulator.driver.memory_nodes import graph_add_mem_alloc_node, graph_add_mem_free_node
from lanGPU.emulator.driver.nodes import TYPE, RecordEvent, SubGraph, WaitEvent
from lanGPU.emulator.driver.objects import Context, Event
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.results import INVALID_VALUE, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_EVENTS: Final = {"EVENT_RECORD": RecordEvent, "WAIT_EVENT": WaitEvent}


def _kind(pointer: int) -> str:
    """The node's kind; INVALID_VALUE for none, or where reserved bytes are set."""
    kind = node_kind(get_bytes(pointer, GRAPH_NODE_PARAMS.size))
    if kind is None:
        raise CuError(INVALID_VALUE)
    return kind


def _child(at: int) -> int:
    fields = CHILD_GRAPH_NODE_PARAMS.unpack(get_bytes(at, CHILD_GRAPH_NODE_PARAMS.size))
    if fields["ownership"]:
        raise CuError(NOT_SUPPORTED, "child graphs that are moved into their parent are not supported by the emulated driver")
    return fields["graph"]


def _action(d: Driver, context: Context, pointer: int, kind: str) -> tuple[object, bytes]:
    """What a node of that kind does, and the struct that is kept for questions."""
    at = pointer + UNION
    if kind == "KERNEL":
        return read_launch(d, context, at, KERNEL_NODE_PARAMS_V3), b""
    if kind == "MEMCPY":
        head = MEMCPY_NODE_PARAMS.unpack(get_bytes(at, MEMCPY_NODE_PARAMS.size))
        if head["flags"] or head["reserved"]:
            raise CuError(INVALID_VALUE)
        if head["copyCtx"]:
            d.context(head["copyCtx"])
        return read_copy(d, at + COPY_PARAMS)
    if kind == "MEMSET":
        ctx = MEMSET_NODE_PARAMS_V2.get(get_bytes(at, MEMSET_NODE_PARAMS_V2.size), "ctx")
        if ctx:
            d.context(ctx)
        return read_fill(d, at)
    if kind == "HOST":
        return read_host_function(at), b""
    if kind in _EVENTS:
        return _EVENTS[kind](d.handles.get(get_u64(at), Event)), b""
    if kind == "EMPTY":
        return None, b""
    raise CuError(NOT_SUPPORTED, f"graph nodes of type {kind} are not supported by the emulated driver")


@in_context("cuGraphAddNode")
def graph_add_node(d: Driver, context: Context, out: int, graph: int, dependencies: int, count: int, params: int) -> None:
    need(out)
    kind = _kind(params)
    if kind == "GRAPH":
        child = graph_of(d, _child(params + UNION))
        refuse_memory(child, "cuGraphAddNode")
        copy, _ = child.clone()
        copy.handle = d.handles.add(copy)
        add_node(d, out, graph, dependencies, count, kind, SubGraph(copy))
        return
    if kind == "MEM_ALLOC":
        graph_add_mem_alloc_node(d, context, out, graph, dependencies, count, params + UNION)
        return
    if kind == "MEM_FREE":
        graph_add_mem_free_node(d, out, graph, dependencies, count, get_u64(params + UNION))
        return
    action, data = _action(d, context, params, kind)
    add_node(d, out, graph, dependencies, count, kind, action, data)


@in_context("cuGraphAddNode_v2")
def graph_add_node_v2(d: Driver, context: Context, out: int, graph: int, dependencies: int, edges: int, count: int, params: int) -> None:
    check_edges(edges, count)
    graph_add_node(d, context, out, graph, dependencies, count, params)


@in_context("cuGraphNodeSetParams")
def graph_node_set_params(d: Driver, context: Context, node: int, params: int) -> None:
    found, kind = node_of(d, node), _kind(params)
    if found.type != TYPE[kind]:
        raise CuError(INVALID_VALUE)
    if kind == "GRAPH":
        raise CuError(NOT_SUPPORTED, "replacing the graph of a child graph node is not supported by the emulated driver")
    found.action, found.parameters = _action(d, context, params, kind)


@in_context("cuGraphExecNodeSetParams")
def graph_exec_node_set_params(d: Driver, context: Context, graph_exec: int, node: int, params: int) -> None:
    kind = _kind(params)
    if kind == "GRAPH":
        replace_child(d, graph_exec, node, _child(params + UNION))
    else:
        replace_action(d, graph_exec, node, kind, _action(d, context, params, kind)[0])
