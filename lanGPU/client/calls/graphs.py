"""Graph nodes whose parameters hold pointers: kernel nodes (parameters are gathered) and copies (device memory and arrays only)."""

from lanGPU.client.calls.copies import is_device
from lanGPU.client.calls.devices import need_pointer, write_u64
from lanGPU.client.calls.effects import CallError, Part, Post, ReadMemory, Steps
from lanGPU.client.calls.launch import pack
from lanGPU.client.calls.pitched import DEVICE, HOST, UNIFIED
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, MAX_HANDLES
from lanGPU.driverapi.structs import KERNEL_NODE_PARAMS_V1, KERNEL_NODE_PARAMS_V2, MEMCPY3D
from lanGPU.errors import LanGPUError
from lanGPU.wire.records import NULL_WORD, Value


def read_dependencies(address: int, count: int) -> Part[bytes]:
    """An array of node handles."""
    if not count:
        return b""
    if not address or count > MAX_HANDLES:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    return bytes((yield ReadMemory(address, 8 * count)))


def kernel_node(call: Call, address: int) -> Part[bytes]:
    """A *kernel node*: the struct, then the packed parameters."""
    need_pointer(address)
    layout = KERNEL_NODE_PARAMS_V2 if call.row.name.endswith("_v2") else KERNEL_NODE_PARAMS_V1
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


def _add(call: Call, out: int, graph: int, dependencies: bytes, count: int, rest: tuple[Value, ...]) -> Steps:
    names = call.state.names
    handle = names.take()
    try:
        result = yield Post(call.row.name, (handle, graph, dependencies, count, *rest), 0)
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
    node = yield from kernel_node(call, params)
    return (yield from _add(call, out, graph, nodes, count, (node,)))


@client_call("cuGraphKernelNodeSetParams", "cuGraphKernelNodeSetParams_v2")
def kernel_node_set_params(call: Call, node: int, params: int) -> Steps:
    """As cuGraphAddKernelNode."""
    data = yield from kernel_node(call, params)
    return int((yield Post(call.row.name, (node, data), 0)))


@client_call("cuGraphExecKernelNodeSetParams", "cuGraphExecKernelNodeSetParams_v2")
def exec_kernel_node_set_params(call: Call, graph_exec: int, node: int, params: int) -> Steps:
    """As cuGraphAddKernelNode."""
    data = yield from kernel_node(call, params)
    return int((yield Post(call.row.name, (graph_exec, node, data), 0)))


@client_call("cuGraphAddMemcpyNode")
def add_memcpy_node(call: Call, out: int, graph: int, dependencies: int, count: int, params: int, context: int) -> Steps:
    """Device memory and arrays only."""
    need_pointer(out)
    nodes = yield from read_dependencies(dependencies, count)
    data = yield from copy_node(call, params)
    return (yield from _add(call, out, graph, nodes, count, (data, context)))


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
