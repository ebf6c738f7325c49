"""Graphs: arrays of nodes, kernel nodes with packed parameters, structs that hold handles."""

import struct
from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED
from lanGPU.driverapi import structs
from lanGPU.driverapi.model import HandleType
from lanGPU.driverapi.structs import StructLayout
from lanGPU.server.call import Call, name_or_none, pack_extra, prepare
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.wire.records import NULL_WORD

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
