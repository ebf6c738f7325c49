"""Nodes that allocate and free memory, and what a device tells of the memory of its graphs."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import MEM_ACCESS_DESC, MEM_ALLOC_NODE_PARAMS, MEM_POOL_PROPS
from lanGPU.emulator.driver.cabi import get_bytes, get_u64, need, put_bytes, put_u64
from lanGPU.emulator.driver.graph_memory import Highs, check_free, make_memory, reclaim, sums
from lanGPU.emulator.driver.graphs import add_node, graph_of, node_of
from lanGPU.emulator.driver.nodes import AllocateMemory, FreeMemory
from lanGPU.emulator.driver.objects import Context
from lanGPU.emulator.driver.registry import in_context, initialized
from lanGPU.emulator.results import INVALID_VALUE, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_ATTRIBUTE: Final = {name.removeprefix("CU_GRAPH_MEM_ATTR_"): value for name, value in ENUMS["CUgraphMem_attribute"].items()}
_PINNED: Final = ENUMS["CUmemAllocationType"]["CU_MEM_ALLOCATION_TYPE_PINNED"]
_ON_DEVICE: Final = ENUMS["CUmemLocationType"]["CU_MEM_LOCATION_TYPE_DEVICE"]


# --- nodes -------------------------------------------------------------------------------------------------------------------
@in_context("cuGraphAddMemAllocNode")
def graph_add_mem_alloc_node(d: Driver, context: Context, out: int, graph: int, dependencies: int, count: int, params: int) -> None:
    need(out)
    data = bytearray(get_bytes(params, MEM_ALLOC_NODE_PARAMS.size))
    fields = MEM_POOL_PROPS.unpack(data)
    if fields["allocType"] != _PINNED or fields["handleTypes"]:
        raise CuError(INVALID_VALUE)
    if fields["location_type"] != _ON_DEVICE:
        raise CuError(NOT_SUPPORTED, "graph memory that is not on a device is not supported by the emulated driver")
    found, device = graph_of(d, graph), d.device(fields["location_id"])
    entries, number = MEM_ALLOC_NODE_PARAMS.get(data, "accessDescs"), MEM_ALLOC_NODE_PARAMS.get(data, "accessDescCount")
    if number > len(d.devices):
        raise CuError(INVALID_VALUE)
    for i in range(number):  # every device reaches every other's memory
        entry = MEM_ACCESS_DESC.unpack(get_bytes(need(entries) + i * MEM_ACCESS_DESC.size, MEM_ACCESS_DESC.size))
        d.device(entry["location_id"])
    descriptors = get_bytes(entries, number * MEM_ACCESS_DESC.size) if number else b""
    action = make_memory(d, device.ordinal, MEM_ALLOC_NODE_PARAMS.get(data, "bytesize"), context)
    address = action.memory.allocation.address
    MEM_ALLOC_NODE_PARAMS.put(data, "dptr", address)
    try:
        node = add_node(d, out, graph, dependencies, count, "MEM_ALLOC", action, bytes(data))
    except CuError:
        action.memory.holders = 0
        reclaim(d, action.memory)
        raise
    assert node.graph is found
    if number:
        node.shown = kept = ctypes.create_string_buffer(descriptors, len(descriptors))
        MEM_ALLOC_NODE_PARAMS.put(data, "accessDescs", ctypes.addressof(kept))
        node.parameters = bytes(data)
    put_u64(params + MEM_ALLOC_NODE_PARAMS.fields["dptr"].offset, address)


@initialized("cuGraphMemAllocNodeGetParams")
def graph_mem_alloc_node_get_params(d: Driver, node: int, params: int) -> None:
    found = node_of(d, node)
    if not isinstance(found.action, AllocateMemory):
        raise CuError(INVALID_VALUE)
    allocation = found.action.memory.allocation
    captured = MEM_ALLOC_NODE_PARAMS.pack(
        allocType=_PINNED, location_type=_ON_DEVICE, location_id=allocation.device, bytesize=allocation.size, dptr=allocation.address
    )
    put_bytes(params, found.parameters or captured)


@initialized("cuGraphAddMemFreeNode")
def graph_add_mem_free_node(d: Driver, out: int, graph: int, dependencies: int, count: int, address: int) -> None:
    add_node(d, out, graph, dependencies, count, "MEM_FREE", check_free(d, graph_of(d, graph), address))


@initialized("cuGraphMemFreeNodeGetParams")
def graph_mem_free_node_get_params(d: Driver, node: int, out: int) -> None:
    action = node_of(d, node).action
    if not isinstance(action, FreeMemory):
        raise CuError(INVALID_VALUE)
    put_u64(out, action.address)


# --- devices -------------------------------------------------------------------------------------------------------------------
@initialized("cuDeviceGraphMemTrim")
def device_graph_mem_trim(d: Driver, device: int) -> None:
    """Nothing is held that no graph needs."""
    d.device(device)


@initialized("cuDeviceGetGraphMemAttribute")
def device_get_graph_mem_attribute(d: Driver, device: int, attribute: int, value: int) -> None:
    ordinal = d.device(device).ordinal
    now, high = sums(d, ordinal), d.graph_memory_highs.get(ordinal, Highs())
    values = {
        _ATTRIBUTE["USED_MEM_CURRENT"]: now.used,
        _ATTRIBUTE["USED_MEM_HIGH"]: high.used,
        _ATTRIBUTE["RESERVED_MEM_CURRENT"]: now.reserved,
        _ATTRIBUTE["RESERVED_MEM_HIGH"]: high.reserved,
    }
    if attribute not in values:
        raise CuError(INVALID_VALUE)
    put_u64(value, values[attribute])


@initialized("cuDeviceSetGraphMemAttribute")
def device_set_graph_mem_attribute(d: Driver, device: int, attribute: int, value: int) -> None:
    """Only the highest values can be set, to 0: counting begins again."""
    ordinal = d.device(device).ordinal
    if get_u64(value):
        raise CuError(INVALID_VALUE)
    now, high = sums(d, ordinal), d.graph_memory_highs.setdefault(ordinal, Highs())
    if attribute == _ATTRIBUTE["USED_MEM_HIGH"]:
        high.used = now.used
    elif attribute == _ATTRIBUTE["RESERVED_MEM_HIGH"]:
        high.reserved = now.reserved
    else:
        raise CuError(INVALID_VALUE)
