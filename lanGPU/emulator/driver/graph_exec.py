"""Executable graphs: instantiation, updates, launches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import GRAPH_EXEC_UPDATE_RESULT_INFO, GRAPH_INSTANTIATE_PARAMS, KERNEL_NODE_PARAMS_V1, KERNEL_NODE_PARAMS_V2
from lanGPU.emulator.driver.cabi import get_bytes, need, put_bytes, put_u32, put_u64
from lanGPU.emulator.driver.graph_memory import begin_launch, memory_nodes, reclaim, refuse_memory
from lanGPU.emulator.driver.graph_nodes import read_copy, read_fill, read_host_function, read_launch
from lanGPU.emulator.driver.graphs import forget, graph_of, node_of, publish
from lanGPU.emulator.driver.nodes import TYPE, AllocateMemory, FreeMemory, Graph, GraphExec, Node, RecordEvent, SubGraph, WaitEvent, start
from lanGPU.emulator.driver.objects import Context, Event, Recording
from lanGPU.emulator.driver.operations import Launch
from lanGPU.emulator.driver.registry import in_context, initialized
from lanGPU.emulator.results import INVALID_VALUE, NOT_SUPPORTED, CuError, result

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_FLAG: Final = ENUMS["CUgraphInstantiate_flags"]
_FLAGS_MASK: Final = 0xF
_AUTO_FREE: Final = _FLAG["CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH"]
_DEVICE_LAUNCH: Final = _FLAG["CUDA_GRAPH_INSTANTIATE_FLAG_DEVICE_LAUNCH"]
_UPDATE: Final = {name.removeprefix("CU_GRAPH_EXEC_UPDATE_"): value for name, value in ENUMS["CUgraphExecUpdateResult"].items()}
_UPDATE_FAILURE: Final = result("GRAPH_EXEC_UPDATE_FAILURE")


# --- instantiation ---------------------------------------------------------------------------------------------------------
def _instantiate(d: Driver, context: Context, out: int, graph: int, flags: int) -> None:
    need(out)
    if flags & ~_FLAGS_MASK:
        raise CuError(INVALID_VALUE)
    if flags & _DEVICE_LAUNCH:
        raise CuError(NOT_SUPPORTED, "launching graphs from kernels is not supported by the emulated driver")
    source = graph_of(d, graph)
    held = [node.action.memory for node in memory_nodes(source) if isinstance(node.action, AllocateMemory)]
    if held and source.executables:  # driver API, cuGraphAddMemAllocNode
        raise CuError(NOT_SUPPORTED, "a graph with memory nodes has one executable at a time")
    clone, pairs = source.clone()
    created = GraphExec(context, clone, pairs, flags, source=source)
    source.executables += 1
    for memory in held:
        memory.holders += 1
    created.handle = d.handles.add(created)
    put_u64(out, created.handle)


@in_context("cuGraphInstantiate_v2", "cuGraphInstantiate")
def graph_instantiate(d: Driver, context: Context, out: int, graph: int, error_node: int, log: int, log_bytes: int) -> None:
    if error_node:
        put_u64(error_node, 0)
    if log and log_bytes:
        put_bytes(log, b"\0")
    _instantiate(d, context, out, graph, 0)


@in_context("cuGraphInstantiateWithFlags")
def graph_instantiate_with_flags(d: Driver, context: Context, out: int, graph: int, flags: int) -> None:
    _instantiate(d, context, out, graph, flags)


@in_context("cuGraphInstantiateWithParams")
def graph_instantiate_with_params(d: Driver, context: Context, out: int, graph: int, params: int) -> None:
    data = bytearray(get_bytes(params, GRAPH_INSTANTIATE_PARAMS.size))
    _instantiate(d, context, out, graph, GRAPH_INSTANTIATE_PARAMS.get(data, "flags"))
    GRAPH_INSTANTIATE_PARAMS.put(data, "hErrNode_out", 0)
    GRAPH_INSTANTIATE_PARAMS.put(data, "result_out", 0)
    put_bytes(params, bytes(data))


def _exec(d: Driver, handle: int) -> GraphExec:
    return d.handles.get(handle, GraphExec, INVALID_VALUE)


@initialized("cuGraphExecDestroy")
def graph_exec_destroy(d: Driver, graph_exec: int) -> None:
    found = _exec(d, graph_exec)
    forget(d, found.graph)
    if found.source is not None:
        found.source.executables -= 1
    d.handles.remove(graph_exec)


@initialized("cuGraphExecGetFlags")
def graph_exec_get_flags(d: Driver, graph_exec: int, flags: int) -> None:
    put_u64(flags, _exec(d, graph_exec).flags)


@initialized("cuGraphExecGetId")
def graph_exec_get_id(d: Driver, graph_exec: int, out: int) -> None:
    put_u32(out, _exec(d, graph_exec).id)


# --- launches --------------------------------------------------------------------------------------------------------------
@in_context("cuGraphUpload")
def graph_upload(d: Driver, context: Context, graph_exec: int, stream: int) -> None:
    """Nothing to upload: the graph lies where it runs."""
    _exec(d, graph_exec), d.stream(context, stream)


@in_context("cuGraphLaunch")
def graph_launch(d: Driver, context: Context, graph_exec: int, stream: int) -> None:
    found, where = _exec(d, graph_exec), d.stream(context, stream)
    if where.capture is not None:
        refuse_memory(found.graph, "cuGraphLaunch in a stream that captures")
        where.capture.add_child(where, found.graph)
        return
    freed = begin_launch(d, found.graph, auto_free=bool(found.flags & _AUTO_FREE)) if memory_nodes(found.graph) else []
    run, recordings = start(found)
    d.submit(where, run)
    for event, recording in recordings:
        _publish_recording(event, recording, where.last)
    for memory in freed:
        reclaim(d, memory)


def _publish_recording(event: Event, recording: Recording, number: int) -> None:
    recording.number = number
    event.capture = None
    event.recording = recording


# --- changes of single nodes -------------------------------------------------------------------------------------------------
def replace_action(d: Driver, graph_exec: int, node: int, kind: str, action: object) -> None:
    """Gives the executable's node something else to do; INVALID_VALUE for a node of another kind."""
    found = _exec(d, graph_exec)
    target = found.node(node_of(d, node))
    if target.type != TYPE[kind]:
        raise CuError(INVALID_VALUE)
    target.action = action
    found.changed()


@in_context("cuGraphExecKernelNodeSetParams")
def graph_exec_kernel_node_set_params(d: Driver, context: Context, graph_exec: int, node: int, params: int) -> None:
    replace_action(d, graph_exec, node, "KERNEL", read_launch(d, context, params, KERNEL_NODE_PARAMS_V1, node_of(d, node)))


@in_context("cuGraphExecKernelNodeSetParams_v2")
def graph_exec_kernel_node_set_params_v2(d: Driver, context: Context, graph_exec: int, node: int, params: int) -> None:
    replace_action(d, graph_exec, node, "KERNEL", read_launch(d, context, params, KERNEL_NODE_PARAMS_V2, node_of(d, node)))


@in_context("cuGraphExecMemcpyNodeSetParams")
def graph_exec_memcpy_node_set_params(d: Driver, context: Context, graph_exec: int, node: int, params: int, ctx: int) -> None:
    d.context(ctx)
    replace_action(d, graph_exec, node, "MEMCPY", read_copy(d, params)[0])


@in_context("cuGraphExecMemsetNodeSetParams")
def graph_exec_memset_node_set_params(d: Driver, context: Context, graph_exec: int, node: int, params: int, ctx: int) -> None:
    d.context(ctx)
    replace_action(d, graph_exec, node, "MEMSET", read_fill(d, params)[0])


@in_context("cuGraphExecHostNodeSetParams")
def graph_exec_host_node_set_params(d: Driver, context: Context, graph_exec: int, node: int, params: int) -> None:
    replace_action(d, graph_exec, node, "HOST", read_host_function(params))


@in_context("cuGraphExecEventRecordNodeSetEvent")
def graph_exec_event_record_node_set_event(d: Driver, context: Context, graph_exec: int, node: int, event: int) -> None:
    replace_action(d, graph_exec, node, "EVENT_RECORD", RecordEvent(d.handles.get(event, Event)))


@in_context("cuGraphExecEventWaitNodeSetEvent")
def graph_exec_event_wait_node_set_event(d: Driver, context: Context, graph_exec: int, node: int, event: int) -> None:
    replace_action(d, graph_exec, node, "WAIT_EVENT", WaitEvent(d.handles.get(event, Event)))


@in_context("cuGraphExecChildGraphNodeSetParams")
def graph_exec_child_graph_node_set_params(d: Driver, context: Context, graph_exec: int, node: int, child: int) -> None:
    replace_child(d, graph_exec, node, child)


def replace_child(d: Driver, graph_exec: int, node: int, child: int) -> None:
    """Gives a child graph node another graph of the same shape; INVALID_VALUE for other shapes and nodes."""
    found, new = _exec(d, graph_exec), graph_of(d, child)
    target = found.node(node_of(d, node))
    if not isinstance(target.action, SubGraph) or _difference(target.action.graph, new) is not None:
        raise CuError(INVALID_VALUE)
    target.action = SubGraph(new.clone()[0])
    found.changed()


@in_context("cuGraphNodeSetEnabled")
def graph_node_set_enabled(d: Driver, context: Context, graph_exec: int, node: int, enabled: int) -> None:
    found = _exec(d, graph_exec)
    target = found.node(node_of(d, node))
    if target.type not in (TYPE["KERNEL"], TYPE["MEMCPY"], TYPE["MEMSET"]):
        raise CuError(INVALID_VALUE)
    if enabled:
        found.disabled.discard(target)
    else:
        found.disabled.add(target)
    found.changed()


@in_context("cuGraphNodeGetEnabled")
def graph_node_get_enabled(d: Driver, context: Context, graph_exec: int, node: int, enabled: int) -> None:
    found = _exec(d, graph_exec)
    put_u32(enabled, int(found.node(node_of(d, node)) not in found.disabled))


# --- whole updates -------------------------------------------------------------------------------------------------------------
def _difference(old: Graph, new: Graph) -> tuple[str, Node | None] | None:
    """Why `new` cannot take the place of `old`; None if it can. Nodes are matched by the order in which they were added."""
    before, after = list(old.nodes), list(new.nodes)
    if len(before) != len(after):
        return "ERROR_TOPOLOGY_CHANGED", None
    places = {node: i for i, node in enumerate(before)}
    new_places = {node: i for i, node in enumerate(after)}
    for was, now in zip(before, after, strict=True):
        if {places[n] for n in was.dependencies} != {new_places[n] for n in now.dependencies}:
            return "ERROR_TOPOLOGY_CHANGED", now
        if was.type != now.type:
            return "ERROR_NODE_TYPE_CHANGED", now
        if isinstance(was.action, SubGraph) and isinstance(now.action, SubGraph):
            nested = _difference(was.action.graph, now.action.graph)
            if nested is not None:
                return nested
        if isinstance(was.action, AllocateMemory | FreeMemory) and was.action != now.action:
            return "ERROR_PARAMETERS_CHANGED", now
        if isinstance(was.action, Launch) and isinstance(now.action, Launch) and was.action.context is not now.action.context:
            return "ERROR_FUNCTION_CHANGED", now
    return None


def _update(d: Driver, graph_exec: int, graph: int) -> tuple[str, Node | None] | None:
    found, new = _exec(d, graph_exec), graph_of(d, graph)
    why = _difference(found.graph, new)
    if why is None:
        clone, _ = new.clone()
        for target, source in zip(found.graph.nodes, clone.nodes, strict=True):
            target.action, target.parameters = source.action, source.parameters
        found.changed()
    return why


@in_context("cuGraphExecUpdate")
def graph_exec_update(d: Driver, context: Context, graph_exec: int, graph: int, error_node: int, update: int) -> int | None:
    why = _update(d, graph_exec, graph)
    put_u64(error_node, publish(d, why[1]) if why and why[1] else 0)
    put_u32(update, _UPDATE[why[0] if why else "SUCCESS"])
    return _UPDATE_FAILURE if why else None


@in_context("cuGraphExecUpdate_v2")
def graph_exec_update_v2(d: Driver, context: Context, graph_exec: int, graph: int, info: int) -> int | None:
    need(info)
    why = _update(d, graph_exec, graph)
    node = publish(d, why[1]) if why and why[1] else 0
    put_bytes(info, GRAPH_EXEC_UPDATE_RESULT_INFO.pack(result=_UPDATE[why[0] if why else "SUCCESS"], errorNode=node))
    return _UPDATE_FAILURE if why else None
