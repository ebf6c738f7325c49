"""Graphs: arrays of nodes, kernel nodes with packed parameters, structs that hold handles."""

import ctypes
import struct
import tempfile
from pathlib import Path
from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, MAX_KERNEL_PARAMS_BYTES
from lanGPU.driverapi import structs
from lanGPU.driverapi.model import HandleType
from lanGPU.driverapi.structs import StructLayout
from lanGPU.server.call import CU_LAUNCH_PARAM_BUFFER_POINTER, MAX_OUTPUT_BYTES, Call, address_of, name_or_none, pack_extra, prepare
from lanGPU.server.calls.arrays import names_in_force, offers
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.wire.records import NULL_WORD, pad8

_MAX_DEVICES: Final = 1024
"""More access descriptors than any machine has devices are a broken answer."""
_HOST_MEMORY: Final = 1
"""CU_MEMORYTYPE_HOST"""


def translate_nodes(issuer: Issuer, call: Call, *names: str) -> None:
    """Replaces arrays of node names by arrays of the driver's nodes."""
    for name in names:
        nodes = call.blob(name)
        if not len(nodes):
            continue
        if len(nodes) % 8:
            raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{name} is no array of handles")
        count = len(nodes) // 8
        real = [call.translate(issuer.executor, node, HandleType.GRAPH_NODE) for node in struct.unpack(f"<{count}Q", nodes)]
        call.replace(name, bytearray(struct.pack(f"<{count}Q", *real)))


def translate_struct(issuer: Issuer, call: Call, layout: StructLayout, data: bytearray) -> None:
    """Replaces the names in the handle fields of a struct by the driver's handles."""
    for field, handle_type in layout.handles.items():
        layout.put(data, field, call.translate(issuer.executor, layout.get(data, field), handle_type))


@server_call(
    "cuGraphAddMemsetNode",
    "cuGraphAddEmptyNode",
    "cuGraphAddChildGraphNode",
    "cuGraphAddEventRecordNode",
    "cuGraphAddEventWaitNode",
    "cuGraphAddMemFreeNode",
    "cuStreamBeginCaptureToGraph",
    "cuStreamUpdateCaptureDependencies",
    "cuStreamUpdateCaptureDependencies_v2",
)
def add_node(issuer: Issuer, call: Call) -> Answer:
    """`dependencies`: u64 per node name."""
    translate_nodes(issuer, call, "dependencies")
    return issuer.carry_out(call)


@server_call(
    "cuGraphAddDependencies",
    "cuGraphAddDependencies_v2",
    "cuGraphRemoveDependencies",
    "cuGraphRemoveDependencies_v2",
)
def dependencies(issuer: Issuer, call: Call) -> Answer:
    """`from`, `to`: u64 per node name."""
    translate_nodes(issuer, call, "from", "to")
    return issuer.carry_out(call)


_KERNEL_NODE_LAYOUT: Final = {
    "cuGraphAddKernelNode": structs.KERNEL_NODE_PARAMS_V1,
    "cuGraphAddKernelNode_v2": structs.KERNEL_NODE_PARAMS_V2,
    "cuGraphKernelNodeSetParams": structs.KERNEL_NODE_PARAMS_V1,
    "cuGraphKernelNodeSetParams_v2": structs.KERNEL_NODE_PARAMS_V2,
    "cuGraphExecKernelNodeSetParams": structs.KERNEL_NODE_PARAMS_V1,
    "cuGraphExecKernelNodeSetParams_v2": structs.KERNEL_NODE_PARAMS_V2,
}


@server_call(*_KERNEL_NODE_LAYOUT)
def kernel_node(issuer: Issuer, call: Call) -> Answer:
    """`nodeParams`: the struct (handles virtual, `kernelParams` = bytes of the packed buffer or NULL_WORD, `extra` 0), then the buffer."""
    layout = _KERNEL_NODE_LAYOUT[call.row.name]
    blob = call.blob("nodeParams")
    if len(blob) < layout.size:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(blob)} bytes of node parameters")
    data = bytearray(blob[: layout.size])
    translate_struct(issuer, call, layout, data)
    length = layout.get(data, "kernelParams")
    keep: list[object] = []
    layout.put(data, "kernelParams", 0)
    layout.put(data, "extra", 0)
    if length != NULL_WORD:
        params = blob[layout.size : layout.size + length]
        if len(params) != length:
            raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(params)} of {length} bytes of kernel parameters")
        layout.put(data, "extra", pack_extra(keep, params)[1])
    call.replace("nodeParams", data)
    if "dependencies" in call.row.arg_index:
        translate_nodes(issuer, call, "dependencies")
    return issuer.carry_out(call)  # the driver copies the parameters before it returns


@server_call("cuGraphKernelNodeGetParams", "cuGraphKernelNodeGetParams_v2")
def kernel_node_get_params(issuer: Issuer, call: Call) -> Answer:
    """`nodeParams`: a name for the function, used if it has none. Outputs: the struct with handles virtual and both pointers 0, then u64
    number of parameters, u64 (offset, size) of each, the packed values."""
    layout = structs.KERNEL_NODE_PARAMS_V2 if call.row.name.endswith("_v2") else structs.KERNEL_NODE_PARAMS_V1
    offered = offers(call, "nodeParams")[:1]
    if not offered:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, "no name is offered")
    data = bytearray(layout.size)
    issuer.executor.ensure_thread(call.thread)
    result = issuer.driver.call(call.symbol, call.handle(issuer.executor, "hNode"), address_of(data))
    if result != CUDA_SUCCESS:
        return result, b""
    fields = layout.unpack(data)
    real = fields["func"] or fields.get("kern", 0)
    pairs = _parameters(issuer, call, real, "cuFunc" if fields["func"] else "cuKernel")
    packed = bytearray(max((offset + size for offset, size in pairs), default=0))
    if pairs and fields["kernelParams"]:
        pointers = (ctypes.c_uint64 * len(pairs)).from_address(fields["kernelParams"])
        for (offset, size), pointer in zip(pairs, pointers, strict=True):
            packed[offset : offset + size] = ctypes.string_at(pointer, size)
    elif pairs:
        packed[:] = _from_extra(call, fields["extra"], len(packed))
    (name,) = names_in_force(issuer.executor, HandleType.FUNCTION, [real], offered)
    layout.put(data, "func" if fields["func"] else "kern", name)
    layout.put(data, "kernelParams", 0)
    layout.put(data, "extra", 0)
    if layout is structs.KERNEL_NODE_PARAMS_V2:
        if fields["func"]:
            layout.put(data, "kern", name_or_none(issuer.executor, fields["kern"], HandleType.FUNCTION))
        layout.put(data, "ctx", name_or_none(issuer.executor, fields["ctx"], HandleType.CONTEXT))
    words = [word for pair in pairs for word in pair]
    return result, bytes(data + struct.pack(f"<{1 + len(words)}Q", len(pairs), *words) + packed)


def _parameters(issuer: Issuer, call: Call, function: int, prefix: str) -> list[tuple[int, int]]:
    """(offset, size) of each parameter. Raises DriverError: this driver cannot tell (before CUDA 12.4)."""
    offset, size = ctypes.c_uint64(), ctypes.c_uint64()
    found: list[tuple[int, int]] = []
    while len(found) <= MAX_KERNEL_PARAMS_BYTES:
        args = (function, len(found), ctypes.addressof(offset), ctypes.addressof(size))
        result = issuer.driver.call(f"{prefix}GetParamInfo", *args)
        if result == CUDA_ERROR_INVALID_VALUE:  # what a driver says of the index behind the last parameter
            return found
        if result != CUDA_SUCCESS:
            raise call.failed(result, "the driver does not tell the kernel's parameters")
        if offset.value + size.value > MAX_KERNEL_PARAMS_BYTES:
            raise call.failed(CUDA_ERROR_NOT_SUPPORTED, f"a parameter at {offset.value} of {size.value} bytes")
        found.append((offset.value, size.value))
    raise call.failed(CUDA_ERROR_NOT_SUPPORTED, "a kernel with more parameters than can be")


def _from_extra(call: Call, extra: int, size: int) -> bytes:
    """The first `size` bytes of the buffer that CU_LAUNCH_PARAM_BUFFER_POINTER names."""
    words = (ctypes.c_uint64 * 4).from_address(extra) if extra else ()
    pairs = dict(zip(words[::2], words[1::2], strict=True)) if words else {}
    if CU_LAUNCH_PARAM_BUFFER_POINTER not in pairs:
        raise call.failed(CUDA_ERROR_NOT_SUPPORTED, "the driver shows no parameters of the node")
    return ctypes.string_at(pairs[CU_LAUNCH_PARAM_BUFFER_POINTER], size)


@server_call("cuGraphAddMemAllocNode")
def mem_alloc_node(issuer: Issuer, call: Call) -> Answer:
    """`nodeParams`: the struct with accessDescs 0, then the descriptors. Output: u64 the address."""
    layout, entry = structs.MEM_ALLOC_NODE_PARAMS, structs.MEM_ACCESS_DESC.size
    blob = call.blob("nodeParams")
    data, descriptors = bytearray(blob[: layout.size]), bytearray(blob[layout.size :])
    if len(data) < layout.size or layout.get(data, "accessDescCount") * entry != len(descriptors):
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(blob)} bytes of node parameters")
    layout.put(data, "win32SecurityAttributes", 0)
    layout.put(data, "accessDescs", address_of(descriptors) if descriptors else 0)
    call.replace("nodeParams", data)
    translate_nodes(issuer, call, "dependencies")
    result, outputs = issuer.carry_out(call)
    if result != CUDA_SUCCESS:
        return result, b""
    return result, layout.get(memoryview(outputs), "dptr").to_bytes(8, "little")


@server_call("cuGraphMemAllocNodeGetParams")
def mem_alloc_node_get_params(issuer: Issuer, call: Call) -> Answer:
    """Outputs: the struct with accessDescs 0, then the descriptors."""
    layout = structs.MEM_ALLOC_NODE_PARAMS
    data = bytearray(layout.size)
    issuer.executor.ensure_thread(call.thread)
    result = issuer.driver.call(call.symbol, call.handle(issuer.executor, "hNode"), address_of(data))
    if result != CUDA_SUCCESS:
        return result, b""
    count, entries = layout.get(data, "accessDescCount"), layout.get(data, "accessDescs")
    if count > _MAX_DEVICES or (count and not entries):
        raise call.failed(CUDA_ERROR_NOT_SUPPORTED, f"the driver shows {count} access descriptors")
    layout.put(data, "accessDescs", 0)
    return result, bytes(data) + (ctypes.string_at(entries, count * structs.MEM_ACCESS_DESC.size) if count else b"")


@server_call("cuGraphDebugDotPrint")
def debug_dot_print(issuer: Issuer, call: Call) -> Answer:
    """`path` is not looked at. Output: the file that the driver wrote, padded with line ends."""
    issuer.executor.ensure_thread(call.thread)
    graph = call.handle(issuer.executor, "hGraph")
    with tempfile.TemporaryDirectory(prefix="langpu-") as folder:
        file = Path(folder) / "graph.dot"
        name = bytearray(bytes(file) + b"\0")
        result = issuer.driver.call(call.symbol, graph, address_of(name), call.word("flags"))
        if result != CUDA_SUCCESS:
            return result, b""
        data = file.read_bytes()
    if len(data) > MAX_OUTPUT_BYTES:
        raise call.failed(CUDA_ERROR_NOT_SUPPORTED, f"a graph of {len(data)} bytes of text")
    return result, data.ljust(pad8(len(data)), b"\n")


@server_call("cuGraphAddMemcpyNode", "cuGraphMemcpyNodeSetParams", "cuGraphExecMemcpyNodeSetParams")
def memcpy_node(issuer: Issuer, call: Call) -> Answer:
    """struct CUDA_MEMCPY3D with virtual arrays; a side in host memory answers CUDA_ERROR_NOT_SUPPORTED."""
    name = "copyParams" if "copyParams" in call.row.arg_index else "nodeParams"
    layout = structs.MEMCPY3D
    data = bytearray(call.blob(name))
    if len(data) < layout.size:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(data)} bytes of copy parameters")
    if _HOST_MEMORY in (layout.get(data, "srcMemoryType"), layout.get(data, "dstMemoryType")):
        raise call.failed(CUDA_ERROR_NOT_SUPPORTED, "a copy node with host memory would run when the program is not asked")
    layout.put(data, "srcHost", 0)
    layout.put(data, "dstHost", 0)
    translate_struct(issuer, call, layout, data)
    call.replace(name, data)
    if "dependencies" in call.row.arg_index:
        translate_nodes(issuer, call, "dependencies")
    return issuer.carry_out(call)


@server_call("cuGraphInstantiateWithParams", "cuGraphExecUpdate_v2")
def with_struct(issuer: Issuer, call: Call) -> Answer:
    """The struct's handles are names both ways; nodes without a name are 0."""
    instantiate = call.row.name == "cuGraphInstantiateWithParams"
    layout = structs.GRAPH_INSTANTIATE_PARAMS if instantiate else structs.GRAPH_EXEC_UPDATE_RESULT_INFO
    stream = 0
    if instantiate:
        data = bytearray(call.blob("instantiateParams"))
        if len(data) < layout.size:
            raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(data)} bytes of parameters")
        stream = layout.get(data, "hUploadStream")
        layout.put(data, "hErrNode_out", 0)
        translate_struct(issuer, call, layout, data)
        call.replace("instantiateParams", data)
    issuer.executor.ensure_thread(call.thread)
    prepared = prepare(call, issuer.executor)
    result = issuer.driver.call(call.symbol, *prepared.args)
    for _, _, out in prepared.outputs:
        if len(out) < layout.size:
            raise call.failed(CUDA_ERROR_INVALID_VALUE)
        for field, handle_type in layout.handles.items():
            layout.put(out, field, name_or_none(issuer.executor, layout.get(out, field), handle_type))
        if instantiate:
            layout.put(out, "hUploadStream", stream)
    return result, prepared.finish(issuer.executor, result)
