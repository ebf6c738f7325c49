"""Graphs as structures: creation, nodes, edges, clones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from lanGPU.emulator.driver.cabi import get_bytes, get_u64, need, put_bytes, put_u32, put_u64
from lanGPU.emulator.driver.graph_memory import leave, memory_nodes, refuse_memory
from lanGPU.emulator.driver.nodes import TYPE, Graph, Node, SubGraph, release
from lanGPU.emulator.driver.registry import initialized
from lanGPU.emulator.results import INVALID_VALUE, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_EDGE_BYTES = 8
_MAX_DEPENDENCIES = 1 << 20


def graph_of(d: Driver, handle: int) -> Graph:
    """The graph behind a handle; INVALID_VALUE."""
    return d.handles.get(handle, Graph, INVALID_VALUE)


def node_of(d: Driver, handle: int) -> Node:
    """The node behind a handle; INVALID_VALUE."""
    return d.handles.get(handle, Node, INVALID_VALUE)


def read_nodes(d: Driver, pointer: int, count: int) -> list[Node]:
    """The nodes of a C array."""
    if count > _MAX_DEPENDENCIES:
        raise CuError(INVALID_VALUE)
    return [node_of(d, get_u64(need(pointer) + 8 * i)) for i in range(count)]


def check_edges(pointer: int, count: int) -> None:
    """CUgraphEdgeData must be the plain kind, all zero: programmatic dependencies do not exist here."""
    if pointer and count and any(get_bytes(pointer, count * _EDGE_BYTES)):
        raise CuError(NOT_SUPPORTED, "graph edges with ports or types are not supported by the emulated driver")


def publish(d: Driver, node: Node) -> int:
    """The node's handle, given at its first use outside."""
    if not node.handle:
        node.handle = d.handles.add(node)
    return node.handle


def add_node(d: Driver, out: int, graph: int, dependencies: int, count: int, kind: str, action: object, parameters: bytes = b"") -> Node:
    """Adds a node and writes its handle."""
    need(out)
    node = graph_of(d, graph).add(TYPE[kind], action, read_nodes(d, dependencies, count), parameters)
    put_u64(out, publish(d, node))
    return node


def forget(d: Driver, graph: Graph) -> None:
    """Takes the graph's handles and its memory away, nested graphs' too."""
    leave(d, graph)
    for node in graph.nodes:
        if node.handle:
            d.handles.remove(node.handle)
        if isinstance(node.action, SubGraph):
            forget(d, node.action.graph)
    if graph.handle:
        d.handles.remove(graph.handle)
    for held, times in graph.user_objects.items():
        release(d, held, times)
    graph.user_objects.clear()


def _put_nodes(d: Driver, nodes: Sequence[Node], out: int, count: int) -> None:
    """The API's way of returning an array: with a NULL array only the count; spare room is filled with NULL."""
    if out:
        room = get_u64(count)
        for i in range(room):
            put_u64(out + 8 * i, publish(d, nodes[i]) if i < len(nodes) else 0)
        put_u64(count, min(room, len(nodes)))
    else:
        put_u64(count, len(nodes))


def _put_edge_data(pointer: int, count: int) -> None:
    if pointer:
        put_bytes(pointer, bytes(_EDGE_BYTES * count))


# --- graphs --------------------------------------------------------------------------------------------------------------
@initialized("cuGraphCreate")
def graph_create(d: Driver, graph: int, flags: int) -> None:
    need(graph)
    if flags:
        raise CuError(INVALID_VALUE)
    created = Graph()
    created.handle = d.handles.add(created)
    put_u64(graph, created.handle)


@initialized("cuGraphClone")
def graph_clone(d: Driver, clone: int, original: int) -> None:
    need(clone)
    found = graph_of(d, original)
    refuse_memory(found, "cuGraphClone")
    copy, _ = found.clone()
    copy.handle = d.handles.add(copy)
    put_u64(clone, copy.handle)


@initialized("cuGraphDestroy")
def graph_destroy(d: Driver, graph: int) -> None:
    """Executable graphs made from it live on."""
    forget(d, graph_of(d, graph))


@initialized("cuGraphGetId")
def graph_get_id(d: Driver, graph: int, out: int) -> None:
    put_u32(out, graph_of(d, graph).id)


@initialized("cuGraphGetNodes")
def graph_get_nodes(d: Driver, graph: int, nodes: int, count: int) -> None:
    _put_nodes(d, list(graph_of(d, graph).nodes), nodes, count)


@initialized("cuGraphGetRootNodes")
def graph_get_root_nodes(d: Driver, graph: int, nodes: int, count: int) -> None:
    _put_nodes(d, [node for node in graph_of(d, graph).nodes if not node.dependencies], nodes, count)


@initialized("cuGraphGetEdges")
def graph_get_edges(d: Driver, graph: int, source: int, target: int, count: int) -> None:
    edges = graph_of(d, graph).edges()
    if bool(source) != bool(target):
        raise CuError(INVALID_VALUE)
    if source:
        room = get_u64(count)
        _put_nodes(d, [a for a, _ in edges], source, count)
        put_u64(count, room)
        _put_nodes(d, [b for _, b in edges], target, count)
    else:
        put_u64(count, len(edges))


@initialized("cuGraphGetEdges_v2")
def graph_get_edges_v2(d: Driver, graph: int, source: int, target: int, data: int, count: int) -> None:
    graph_get_edges(d, graph, source, target, count)
    if source:
        _put_edge_data(data, get_u64(count))


# --- edges ---------------------------------------------------------------------------------------------------------------
def _pairs(d: Driver, graph: int, source: int, target: int, count: int) -> list[tuple[Node, Node]]:
    found = graph_of(d, graph)
    pairs = list(zip(read_nodes(d, source, count), read_nodes(d, target, count), strict=True))
    if any(a.graph is not found or b.graph is not found for a, b in pairs):
        raise CuError(INVALID_VALUE)
    return pairs


@initialized("cuGraphAddDependencies")
def graph_add_dependencies(d: Driver, graph: int, source: int, target: int, count: int) -> None:
    """An edge that exists or would close a circle is INVALID_VALUE, and then none is added."""
    added: list[tuple[Node, Node]] = []
    try:
        for before, after in _pairs(d, graph, source, target, count):
            if before in after.dependencies or before.graph.reaches(before, after):
                raise CuError(INVALID_VALUE)
            after.dependencies[before] = None
            added.append((before, after))
    except CuError:
        for before, after in added:
            del after.dependencies[before]
        raise


@initialized("cuGraphAddDependencies_v2")
def graph_add_dependencies_v2(d: Driver, graph: int, source: int, target: int, data: int, count: int) -> None:
    check_edges(data, count)
    graph_add_dependencies(d, graph, source, target, count)


@initialized("cuGraphRemoveDependencies")
def graph_remove_dependencies(d: Driver, graph: int, source: int, target: int, count: int) -> None:
    pairs = _pairs(d, graph, source, target, count)
    if memory_nodes(graph_of(d, graph)):  # driver API, cuGraphAddMemAllocNode
        raise CuError(NOT_SUPPORTED, "edges of a graph with memory nodes cannot be deleted")
    if any(before not in after.dependencies for before, after in pairs):
        raise CuError(INVALID_VALUE)
    for before, after in pairs:
        after.dependencies.pop(before, None)


@initialized("cuGraphRemoveDependencies_v2")
def graph_remove_dependencies_v2(d: Driver, graph: int, source: int, target: int, data: int, count: int) -> None:
    check_edges(data, count)
    graph_remove_dependencies(d, graph, source, target, count)


# --- nodes ---------------------------------------------------------------------------------------------------------------
@initialized("cuGraphNodeGetType")
def graph_node_get_type(d: Driver, node: int, kind: int) -> None:
    put_u32(kind, node_of(d, node).type)


@initialized("cuGraphNodeGetLocalId")
def graph_node_get_local_id(d: Driver, node: int, out: int) -> None:
    put_u32(out, node_of(d, node).local_id)


@initialized("cuGraphNodeGetDependencies")
def graph_node_get_dependencies(d: Driver, node: int, out: int, count: int) -> None:
    _put_nodes(d, list(node_of(d, node).dependencies), out, count)


@initialized("cuGraphNodeGetDependencies_v2")
def graph_node_get_dependencies_v2(d: Driver, node: int, out: int, data: int, count: int) -> None:
    graph_node_get_dependencies(d, node, out, count)
    if out:
        _put_edge_data(data, get_u64(count))


def _dependents(node: Node) -> list[Node]:
    return [other for other in node.graph.nodes if node in other.dependencies]


@initialized("cuGraphNodeGetDependentNodes")
def graph_node_get_dependent_nodes(d: Driver, node: int, out: int, count: int) -> None:
    _put_nodes(d, _dependents(node_of(d, node)), out, count)


@initialized("cuGraphNodeGetDependentNodes_v2")
def graph_node_get_dependent_nodes_v2(d: Driver, node: int, out: int, data: int, count: int) -> None:
    graph_node_get_dependent_nodes(d, node, out, count)
    if out:
        _put_edge_data(data, get_u64(count))


@initialized("cuGraphNodeFindInClone")
def graph_node_find_in_clone(d: Driver, out: int, original: int, clone: int) -> None:
    wanted = node_of(d, original)
    need(out)
    for node in graph_of(d, clone).nodes:
        if node.original is wanted:
            put_u64(out, publish(d, node))
            return
    raise CuError(INVALID_VALUE)


@initialized("cuGraphDestroyNode")
def graph_destroy_node(d: Driver, node: int) -> None:
    found = node_of(d, node)
    if memory_nodes(found.graph):  # driver API, cuGraphAddMemAllocNode
        raise CuError(NOT_SUPPORTED, "nodes of a graph with memory nodes cannot be deleted")
    found.graph.remove(found)
    if isinstance(found.action, SubGraph):
        forget(d, found.action.graph)
    d.handles.remove(node)
