"""Nodes of each kind: adding them, and their parameters."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import KERNEL_NODE_PARAMS_V1, KERNEL_NODE_PARAMS_V2, MEMCPY3D, MEMSET_NODE_PARAMS, StructLayout
from lanGPU.emulator.driver.cabi import get_bytes, need, put_bytes, put_u64
from lanGPU.emulator.driver.copies import check_fill
from lanGPU.emulator.driver.graph_memory import refuse_memory
from lanGPU.emulator.driver.graphs import add_node, graph_of, node_of
from lanGPU.emulator.driver.launches import check_cooperative, make_launch
from lanGPU.emulator.driver.modules import resolve_function
from lanGPU.emulator.driver.nodes import TYPE, Node, RecordEvent, SubGraph, WaitEvent
from lanGPU.emulator.driver.objects import Context, Event
from lanGPU.emulator.driver.operations import Copy, Fill, HostFunction, Launch, PitchedCopy, Side
from lanGPU.emulator.driver.pitched import copy_3d
from lanGPU.emulator.driver.registry import in_context, initialized
from lanGPU.emulator.results import INVALID_VALUE, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_ARRAY_TYPE: Final = ENUMS["CUmemorytype"]["CU_MEMORYTYPE_ARRAY"]
_HOST_TYPE: Final = ENUMS["CUmemorytype"]["CU_MEMORYTYPE_HOST"]
_DEVICE_TYPE: Final = ENUMS["CUmemorytype"]["CU_MEMORYTYPE_DEVICE"]
_ATTRIBUTE_BYTES: Final = 64
_SIZES: Final = ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes")
_NODE_ATTRIBUTES: Final = frozenset(
    ENUMS["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_" + name]
    for name in ("ACCESS_POLICY_WINDOW", "COOPERATIVE", "CLUSTER_DIMENSION", "CLUSTER_SCHEDULING_POLICY_PREFERENCE", "PRIORITY")
)
_COOPERATIVE: Final = ENUMS["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_COOPERATIVE"]


def of_kind(d: Driver, handle: int, kind: str) -> Node:
    """A node of that type; INVALID_VALUE for others."""
    node = node_of(d, handle)
    if node.type != TYPE[kind]:
        raise CuError(INVALID_VALUE)
    return node


# --- kernels -------------------------------------------------------------------------------------------------------------
def read_launch(d: Driver, context: Context, pointer: int, layout: StructLayout, like: Node | None = None) -> Launch:
    """The launch that a CUDA_KERNEL_NODE_PARAMS describes; its parameters are copied now. It is cooperative if the node `like` is."""
    fields = layout.unpack(get_bytes(pointer, layout.size))
    if fields.get("ctx"):
        context = d.context(fields["ctx"])
    function = resolve_function(d, context, fields["func"] or fields.get("kern", 0))
    grid = (fields["gridDimX"], fields["gridDimY"], fields["gridDimZ"])
    block = (fields["blockDimX"], fields["blockDimY"], fields["blockDimZ"])
    cooperative = like is not None and isinstance(like.action, Launch) and like.action.cooperative
    return make_launch(d, function, grid, block, fields["sharedMemBytes"], fields["kernelParams"], fields["extra"], cooperative=cooperative)


@in_context("cuGraphAddKernelNode")
def graph_add_kernel_node(d: Driver, context: Context, out: int, graph: int, dependencies: int, count: int, params: int) -> None:
    add_node(d, out, graph, dependencies, count, "KERNEL", read_launch(d, context, params, KERNEL_NODE_PARAMS_V1))


@in_context("cuGraphAddKernelNode_v2")
def graph_add_kernel_node_v2(d: Driver, context: Context, out: int, graph: int, dependencies: int, count: int, params: int) -> None:
    add_node(d, out, graph, dependencies, count, "KERNEL", read_launch(d, context, params, KERNEL_NODE_PARAMS_V2))


def _describe_launch(node: Node, layout: StructLayout) -> bytes:
    """The struct for a kernel node; its `kernelParams` is memory of the node's."""
    action = node.action
    assert isinstance(action, Launch)
    places = action.function.info.params
    pointers = 0
    if places:
        values = ctypes.create_string_buffer(action.parameters, len(action.parameters))
        base = ctypes.addressof(values)
        array = (ctypes.c_uint64 * len(places))(*(base + offset for offset, _ in places))
        node.shown = values, array
        pointers = ctypes.addressof(array)
    sizes = (*action.grid, *action.block, action.shared_bytes)
    fields = dict(zip(_SIZES, sizes, strict=True))
    if "ctx" in layout.fields:
        fields["ctx"] = action.context.handle
    kernel = action.function.kernel
    if kernel is not None and "kern" in layout.fields:
        # A library's kernel is told as the CUkernel it was made from: that is what libcudart looks up.
        return layout.pack(kern=kernel.handle, kernelParams=pointers, **fields)
    return layout.pack(func=action.function.handle, kernelParams=pointers, **fields)


@initialized("cuGraphKernelNodeGetParams")
def graph_kernel_node_get_params(d: Driver, node: int, params: int) -> None:
    put_bytes(params, _describe_launch(of_kind(d, node, "KERNEL"), KERNEL_NODE_PARAMS_V1))


@initialized("cuGraphKernelNodeGetParams_v2")
def graph_kernel_node_get_params_v2(d: Driver, node: int, params: int) -> None:
    put_bytes(params, _describe_launch(of_kind(d, node, "KERNEL"), KERNEL_NODE_PARAMS_V2))


@in_context("cuGraphKernelNodeSetParams")
def graph_kernel_node_set_params(d: Driver, context: Context, node: int, params: int) -> None:
    found = of_kind(d, node, "KERNEL")
    found.action = read_launch(d, context, params, KERNEL_NODE_PARAMS_V1, found)


@in_context("cuGraphKernelNodeSetParams_v2")
def graph_kernel_node_set_params_v2(d: Driver, context: Context, node: int, params: int) -> None:
    found = of_kind(d, node, "KERNEL")
    found.action = read_launch(d, context, params, KERNEL_NODE_PARAMS_V2, found)


@initialized("cuGraphKernelNodeGetAttribute")
def graph_kernel_node_get_attribute(d: Driver, node: int, attribute: int, value: int) -> None:
    found = of_kind(d, node, "KERNEL")
    if attribute not in _NODE_ATTRIBUTES:
        raise CuError(INVALID_VALUE)
    if attribute == _COOPERATIVE:
        assert isinstance(found.action, Launch)
        put_bytes(value, int(found.action.cooperative).to_bytes(_ATTRIBUTE_BYTES, "little"))
        return
    put_bytes(value, found.attributes.get(attribute, bytes(_ATTRIBUTE_BYTES)))


@initialized("cuGraphKernelNodeSetAttribute")
def graph_kernel_node_set_attribute(d: Driver, node: int, attribute: int, value: int) -> None:
    """Hints are kept; a cluster cannot be had."""
    found = of_kind(d, node, "KERNEL")
    data = get_bytes(value, _ATTRIBUTE_BYTES)
    ids = ENUMS["CUlaunchAttributeID"]
    cluster = attribute == ids["CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"] and any(data[:12])
    if attribute not in _NODE_ATTRIBUTES or cluster:
        raise CuError(INVALID_VALUE)
    if attribute == _COOPERATIVE:
        _set_cooperative(d, found, any(data[:4]))
        return
    found.attributes[attribute] = data


@initialized("cuGraphKernelNodeCopyAttributes")
def graph_kernel_node_copy_attributes(d: Driver, destination: int, source: int) -> None:
    found, other = of_kind(d, destination, "KERNEL"), of_kind(d, source, "KERNEL")
    assert isinstance(other.action, Launch)
    _set_cooperative(d, found, other.action.cooperative)
    found.attributes = dict(other.attributes)


def _set_cooperative(d: Driver, node: Node, cooperative: bool) -> None:
    action = node.action
    assert isinstance(action, Launch)
    if cooperative:
        check_cooperative(d, action.function, action.grid, action.block, action.shared_bytes)
    node.action = replace(action, cooperative=cooperative)


# --- copies --------------------------------------------------------------------------------------------------------------
def read_copy(d: Driver, pointer: int) -> tuple[PitchedCopy, bytes]:
    """The copy that a CUDA_MEMCPY3D describes, and the struct."""
    data = get_bytes(pointer, MEMCPY3D.size)
    copy = copy_3d(d, data)
    if copy is None:
        raise CuError(INVALID_VALUE)
    return copy, data


@in_context("cuGraphAddMemcpyNode")
def graph_add_memcpy_node(d: Driver, context: Context, out: int, graph: int, dependencies: int, count: int, params: int, ctx: int) -> None:
    d.context(ctx)
    action, data = read_copy(d, params)
    add_node(d, out, graph, dependencies, count, "MEMCPY", action, data)


@in_context("cuGraphMemcpyNodeSetParams")
def graph_memcpy_node_set_params(d: Driver, context: Context, node: int, params: int) -> None:
    found = of_kind(d, node, "MEMCPY")
    found.action, found.parameters = read_copy(d, params)


@initialized("cuGraphMemcpyNodeGetParams")
def graph_memcpy_node_get_params(d: Driver, node: int, params: int) -> None:
    found = of_kind(d, node, "MEMCPY")
    put_bytes(params, found.parameters or _describe_copy(found.action))


def _describe_copy(action: object) -> bytes:
    """The struct for a copy that a stream capture made."""
    if isinstance(action, Copy):
        sides = {
            "dst": Side(action.destination, action.size, action.size, action.check_destination),
            "src": Side(action.source, action.size, action.size, action.check_source),
        }
        width, height, depth = action.size, 1, 1
    elif isinstance(action, PitchedCopy):
        sides = {"dst": action.destination, "src": action.source}
        width, height, depth = action.width, action.height, action.depth
    else:
        raise CuError(INVALID_VALUE)
    fields = {"WidthInBytes": width, "Height": height, "Depth": depth}
    for name, side in sides.items():
        if side.array:
            x, y, z = side.corner
            place = {"MemoryType": _ARRAY_TYPE, "Array": side.array, "XInBytes": x, "Y": y, "Z": z}
            fields.update({name + key: value for key, value in place.items()})
            continue
        fields[name + "MemoryType"] = _DEVICE_TYPE if side.device else _HOST_TYPE
        fields[name + ("Device" if side.device else "Host")] = side.address
        fields[name + "Pitch"] = side.pitch
        fields[name + "Height"] = side.slice_pitch // side.pitch if side.pitch else height
    return MEMCPY3D.pack(**fields)


# --- memsets -------------------------------------------------------------------------------------------------------------
def read_fill(d: Driver, pointer: int) -> tuple[Fill, bytes]:
    """The memset that a CUDA_MEMSET_NODE_PARAMS describes, and the struct."""
    data = get_bytes(pointer, MEMSET_NODE_PARAMS.size)
    f = MEMSET_NODE_PARAMS.unpack(data)
    if f["elementSize"] not in (1, 2, 4) or not f["width"] or not f["height"]:
        raise CuError(INVALID_VALUE)
    check_fill(d, f["dst"], f["pitch"], f["elementSize"], f["width"], f["height"])
    pitch = f["pitch"] if f["height"] > 1 else f["width"] * f["elementSize"]
    return Fill(f["dst"], pitch, f["value"], f["elementSize"], f["width"], f["height"], d.memory), data


@in_context("cuGraphAddMemsetNode")
def graph_add_memset_node(d: Driver, context: Context, out: int, graph: int, dependencies: int, count: int, params: int, ctx: int) -> None:
    d.context(ctx)
    action, data = read_fill(d, params)
    add_node(d, out, graph, dependencies, count, "MEMSET", action, data)


@in_context("cuGraphMemsetNodeSetParams")
def graph_memset_node_set_params(d: Driver, context: Context, node: int, params: int) -> None:
    found = of_kind(d, node, "MEMSET")
    found.action, found.parameters = read_fill(d, params)


@initialized("cuGraphMemsetNodeGetParams")
def graph_memset_node_get_params(d: Driver, node: int, params: int) -> None:
    found = of_kind(d, node, "MEMSET")
    put_bytes(params, found.parameters or _describe_fill(found.action))


def _describe_fill(action: object) -> bytes:
    if not isinstance(action, Fill):
        raise CuError(INVALID_VALUE)
    return MEMSET_NODE_PARAMS.pack(
        dst=action.destination,
        pitch=action.pitch,
        value=action.value,
        elementSize=action.element_bytes,
        width=action.width,
        height=action.height,
    )


# --- the others ------------------------------------------------------------------------------------------------------------
@initialized("cuGraphAddEmptyNode")
def graph_add_empty_node(d: Driver, out: int, graph: int, dependencies: int, count: int) -> None:
    add_node(d, out, graph, dependencies, count, "EMPTY", None)


@initialized("cuGraphAddChildGraphNode")
def graph_add_child_graph_node(d: Driver, out: int, graph: int, dependencies: int, count: int, child: int) -> None:
    """The child is copied: what happens to it later does not matter."""
    refuse_memory(graph_of(d, child), "cuGraphAddChildGraphNode")
    copy, _ = graph_of(d, child).clone()
    copy.handle = d.handles.add(copy)
    add_node(d, out, graph, dependencies, count, "GRAPH", SubGraph(copy))


@initialized("cuGraphChildGraphNodeGetGraph")
def graph_child_graph_node_get_graph(d: Driver, node: int, graph: int) -> None:
    action = of_kind(d, node, "GRAPH").action
    assert isinstance(action, SubGraph)
    put_u64(graph, action.graph.handle)


def read_host_function(pointer: int) -> HostFunction:
    """The call that a CUDA_HOST_NODE_PARAMS describes."""
    data = get_bytes(pointer, 16)
    return HostFunction(need(int.from_bytes(data[:8], "little")), int.from_bytes(data[8:], "little"))


@initialized("cuGraphAddHostNode")
def graph_add_host_node(d: Driver, out: int, graph: int, dependencies: int, count: int, params: int) -> None:
    add_node(d, out, graph, dependencies, count, "HOST", read_host_function(params))


@initialized("cuGraphHostNodeSetParams")
def graph_host_node_set_params(d: Driver, node: int, params: int) -> None:
    of_kind(d, node, "HOST").action = read_host_function(params)


@initialized("cuGraphHostNodeGetParams")
def graph_host_node_get_params(d: Driver, node: int, params: int) -> None:
    action = of_kind(d, node, "HOST").action
    assert isinstance(action, HostFunction)
    put_u64(params, action.address)
    put_u64(params + 8, action.user_data)


@initialized("cuGraphAddEventRecordNode")
def graph_add_event_record_node(d: Driver, out: int, graph: int, dependencies: int, count: int, event: int) -> None:
    add_node(d, out, graph, dependencies, count, "EVENT_RECORD", RecordEvent(d.handles.get(event, Event)))


@initialized("cuGraphAddEventWaitNode")
def graph_add_event_wait_node(d: Driver, out: int, graph: int, dependencies: int, count: int, event: int) -> None:
    add_node(d, out, graph, dependencies, count, "WAIT_EVENT", WaitEvent(d.handles.get(event, Event)))


def _event_handle(d: Driver, action: object) -> int:
    assert isinstance(action, RecordEvent | WaitEvent)
    return next((handle for handle, event in d.handles.all(Event) if event is action.event), 0)


@initialized("cuGraphEventRecordNodeGetEvent")
def graph_event_record_node_get_event(d: Driver, node: int, event: int) -> None:
    put_u64(event, _event_handle(d, of_kind(d, node, "EVENT_RECORD").action))


@initialized("cuGraphEventRecordNodeSetEvent")
def graph_event_record_node_set_event(d: Driver, node: int, event: int) -> None:
    of_kind(d, node, "EVENT_RECORD").action = RecordEvent(d.handles.get(event, Event))


@initialized("cuGraphEventWaitNodeGetEvent")
def graph_event_wait_node_get_event(d: Driver, node: int, event: int) -> None:
    put_u64(event, _event_handle(d, of_kind(d, node, "WAIT_EVENT").action))


@initialized("cuGraphEventWaitNodeSetEvent")
def graph_event_wait_node_set_event(d: Driver, node: int, event: int) -> None:
    of_kind(d, node, "WAIT_EVENT").action = WaitEvent(d.handles.get(event, Event))
