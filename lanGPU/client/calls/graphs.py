"""Graph nodes whose parameters hold pointers: kernel nodes (parameters are gathered) and copies (device memory and arrays only)."""

import struct

from lanGPU.client.calls.arrays import Offer, ask
from lanGPU.client.calls.copies import is_device
from lanGPU.client.calls.devices import need_pointer, write_u64
from lanGPU.client.calls.effects import CallError, Part, Post, ReadMemory, ReadString, Request, Steps, WriteFile, WriteMemory
from lanGPU.client.calls.launch import pack
from lanGPU.client.calls.pitched import DEVICE, HOST, UNIFIED
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, Function, u32
from lanGPU.client.calls.strings import take_room
from lanGPU.constants import (
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS,
    MAX_HANDLES,
    MAX_KERNEL_PARAMS_BYTES,
)
from lanGPU.driverapi.structs import KERNEL_NODE_PARAMS_V1, KERNEL_NODE_PARAMS_V2, MEMCPY3D, StructLayout
from lanGPU.errors import LanGPUError, RemoteProtocolError
from lanGPU.wire.records import NULL_WORD, Value

_MAX_PARAMS = 4096
"""Parameters of a kernel: more than MAX_KERNEL_PARAMS_BYTES could hold are a broken answer."""


def read_dependencies(address: int, count: int) -> Part[bytes]:
    """An array of node handles."""
    if not count:
        return b""
    if not address or count > MAX_HANDLES:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    return bytes((yield ReadMemory(address, 8 * count)))


def kernel_layout(call: Call) -> StructLayout:
    """The struct that this version of a call has."""
    return KERNEL_NODE_PARAMS_V2 if call.row.name.endswith("_v2") else KERNEL_NODE_PARAMS_V1


def kernel_node(call: Call, address: int, layout: StructLayout) -> Part[bytes]:
    """A *kernel node*: the struct, then the packed parameters."""
    need_pointer(address)
    data = yield ReadMemory(address, layout.size)
    function = layout.get(data, "func")
    if not function and layout is KERNEL_NODE_PARAMS_V2:
        function = layout.get(data, "kern")
    packed = yield from pack(call, function, layout.get(data, "kernelParams"), layout.get(data, "extra"))
    layout.put(data, "kernelParams", NULL_WORD if packed is None else len(packed))
    layout.put(data, "extra", 0)
    return bytes(data) + (packed or b"")


def copy_node(call: Call, address: int) -> Part[bytes]:
    """CUDA_MEMCPY3D with both sides on the device; unified addresses are resolved."""
    need_pointer(address)
    data = yield ReadMemory(address, MEMCPY3D.size)
    for side in ("src", "dst"):
        kind = MEMCPY3D.get(data, f"{side}MemoryType")
        if kind == UNIFIED:
            kind = DEVICE if (yield from is_device(call, MEMCPY3D.get(data, f"{side}Device"))) else HOST
            MEMCPY3D.put(data, f"{side}MemoryType", kind)
        if kind == HOST:
            raise CallError(CUDA_ERROR_NOT_SUPPORTED, "graph nodes that copy host memory are not supported")
    return bytes(data)


def post_node(call: Call, row: str, out: int, graph: int, dependencies: bytes, rest: tuple[Value, ...]) -> Steps:
    """Adds a node by `row`, whose last arguments are `rest`, and tells the program its name."""
    names = call.state.names
    handle = names.take()
    try:
        result = yield Post(row, (handle, graph, dependencies, len(dependencies) // 8, *rest), 0)
    except LanGPUError:
        names.give_back(handle)
        raise
    if result:
        names.give_back(handle)
        return int(result)
    yield write_u64(out, handle)
    return CUDA_SUCCESS


@client_call("cuGraphAddKernelNode", "cuGraphAddKernelNode_v2")
def add_kernel_node(call: Call, out: int, graph: int, dependencies: int, count: int, params: int) -> Steps:
    """Parameters are taken now, as CUDA does."""
    need_pointer(out)
    nodes = yield from read_dependencies(dependencies, count)
    node = yield from kernel_node(call, params, kernel_layout(call))
    return (yield from post_node(call, call.row.name, out, graph, nodes, (node,)))


@client_call("cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2")
def kernel_node_get_params(call: Call, node: int, params: int) -> Steps:
    """The arrays lie where they lay when the node was asked before; a node that is gone leaves its bytes unused."""
    need_pointer(params)
    layout, offer = kernel_layout(call), Offer(call, 1)
    result, answer = yield from ask(call.row.name, [offer], (node, offer.data))
    if result:
        return result
    data = bytearray(answer[: layout.size])
    try:
        function = layout.get(data, "func") or (layout.get(data, "kern") if "kern" in layout.fields else 0)
        (count,) = struct.unpack_from("<Q", answer, layout.size)
        pairs = tuple(struct.iter_unpack("<QQ", answer[layout.size + 8 : layout.size + 8 + 16 * min(count, _MAX_PARAMS)]))
    except struct.error as exc:
        raise RemoteProtocolError(f"{call.row.name}: an answer of {len(answer)} bytes") from exc
    values = answer[layout.size + 8 + 16 * count :]
    packed = max((offset + size for offset, size in pairs), default=0)
    if count != len(pairs) or packed > len(values) or packed > MAX_KERNEL_PARAMS_BYTES:
        raise RemoteProtocolError(f"{call.row.name}: {count} parameters in an answer of {len(answer)} bytes")
    offer.settle(function.to_bytes(8, "little"))
    if function == offer.handles[0]:
        call.state.publish_function(Function(function, 0, "", pairs, packed))
    address = 0
    if pairs:
        address = yield from node_room(call, node, 8 * count + packed)
        pointers = [address + 8 * count + offset for offset, _ in pairs]
        yield WriteMemory(address, struct.pack(f"<{count}Q", *pointers) + values[:packed])
    layout.put(data, "kernelParams", address)
    layout.put(data, "extra", 0)
    yield WriteMemory(params, data)
    return CUDA_SUCCESS


def node_room(call: Call, node: int, size: int) -> Part[int]:
    """`size` bytes of the program's memory that belong to a node."""
    rooms = call.state.node_rooms
    address, have = rooms.get(node, (0, 0))
    if have < size:
        address = yield from take_room(call.state, size)
        rooms[node] = address, size
    return address


@client_call("cuGraphKernelNodeSetParams", "cuGraphKernelNodeSetParams_v2")
def kernel_node_set_params(call: Call, node: int, params: int) -> Steps:
    """As cuGraphAddKernelNode."""
    data = yield from kernel_node(call, params, kernel_layout(call))
    return int((yield Post(call.row.name, (node, data), 0)))


@client_call("cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2")
def exec_kernel_node_set_params(call: Call, graph_exec: int, node: int, params: int) -> Steps:
    """As cuGraphAddKernelNode."""
    data = yield from kernel_node(call, params, kernel_layout(call))
    return int((yield Post(call.row.name, (graph_exec, node, data), 0)))


@client_call("cuGraphDebugDotPrint")
def debug_dot_print(call: Call, graph: int, path: int, flags: int) -> Steps:
    """The server's driver prints, the file is written here. Handles in it are the driver's."""
    need_pointer(path)
    name = yield ReadString(path)
    reply = yield Request(call.row.name, (graph, b"\0", u32(flags)), 0)
    if reply.result == CUDA_SUCCESS:
        yield WriteFile(bytes(name), bytes(reply.outputs))
    return int(reply.result)


@client_call("cuGraphAddMemcpyNode")
def add_memcpy_node(call: Call, out: int, graph: int, dependencies: int, count: int, params: int, context: int) -> Steps:
    """Device memory and arrays only."""
    need_pointer(out)
    nodes = yield from read_dependencies(dependencies, count)
    data = yield from copy_node(call, params)
    return (yield from post_node(call, call.row.name, out, graph, nodes, (data, context)))


@client_call("cuGraphMemcpyNodeSetParams")
def memcpy_node_set_params(call: Call, node: int, params: int) -> Steps:
    """As cuGraphAddMemcpyNode."""
    data = yield from copy_node(call, params)
    return int((yield Post(call.row.name, (node, data), 0)))


@client_call("cuGraphExecMemcpyNodeSetParams")
def exec_memcpy_node_set_params(call: Call, graph_exec: int, node: int, params: int, context: int) -> Steps:
    """As cuGraphAddMemcpyNode."""
    data = yield from copy_node(call, params)
    return int((yield Post(call.row.name, (graph_exec, node, data, context), 0)))
