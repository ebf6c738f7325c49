"""CUDA arrays on the server's side: texture and surface objects made of them, copies from them to the host, nodes that name them."""

from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS
from lanGPU.driverapi import structs
from lanGPU.driverapi.model import HandleType
from lanGPU.server.call import MAX_OUTPUT_BYTES, Call, address_of, name_of, name_or_none, prepare
from lanGPU.server.calls.copies import refuse_capture, stream_of
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.wire.records import pad8

_RESOURCES: Final = {0: HandleType.ARRAY, 1: HandleType.MIPMAPPED_ARRAY}
"""CU_RESOURCE_TYPE_ARRAY and CU_RESOURCE_TYPE_MIPMAPPED_ARRAY; the others name device memory by its address."""
_ARRAY_MEMORY: Final = 3
"""CU_MEMORYTYPE_ARRAY"""


@server_call("cuTexObjectCreate", "cuSurfObjectCreate")
def create_object(issuer: Issuer, call: Call) -> Answer:
    """`pResDesc`: the struct, its array a name. Outputs: the driver's own handle, which kernels get as a number."""
    data = bytearray(call.blob("pResDesc"))
    if data:
        if len(data) < structs.RESOURCE_DESC.size:
            raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(data)} bytes of a resource")
        kind = _RESOURCES.get(structs.RESOURCE_DESC.get(data, "resType"))
        if kind is not None:
            structs.RESOURCE_DESC.put(data, "devPtr", call.translate(issuer.executor, structs.RESOURCE_DESC.get(data, "devPtr"), kind))
        call.replace("pResDesc", data)
    return issuer.carry_out(call)


@server_call("cuTexObjectGetResourceDesc", "cuSurfObjectGetResourceDesc")
def resource_of_object(issuer: Issuer, call: Call) -> Answer:
    """Outputs: the struct, its array by its name."""
    issuer.executor.ensure_thread(call.thread)
    prepared = prepare(call, issuer.executor)
    result = issuer.driver.call(call.symbol, *prepared.args)
    if result == CUDA_SUCCESS:
        for _, _, out in prepared.outputs:
            kind = _RESOURCES.get(structs.RESOURCE_DESC.get(out, "resType"))
            if kind is not None:
                structs.RESOURCE_DESC.put(out, "devPtr", name_of(issuer.executor, structs.RESOURCE_DESC.get(out, "devPtr"), kind))
    return result, prepared.finish(issuer.executor, result)


@server_call("cuGraphMemcpyNodeGetParams")
def copy_of_node(issuer: Issuer, call: Call) -> Answer:
    """Outputs: struct CUDA_MEMCPY3D, arrays by their names; one that has none any more is 0."""
    issuer.executor.ensure_thread(call.thread)
    prepared = prepare(call, issuer.executor)
    result = issuer.driver.call(call.symbol, *prepared.args)
    if result == CUDA_SUCCESS:
        layout = structs.MEMCPY3D
        for _, _, out in prepared.outputs:
            for side in ("src", "dst"):
                array = layout.get(out, f"{side}Array") if layout.get(out, f"{side}MemoryType") == _ARRAY_MEMORY else 0
                layout.put(out, f"{side}Array", name_or_none(issuer.executor, array, HandleType.ARRAY))
    return result, prepared.finish(issuer.executor, result)


@server_call("cuMemcpyAtoH_v2", "cuMemcpyAtoHAsync_v2")
def array_to_host(issuer: Issuer, call: Call) -> Answer | None:
    """Outputs: the bytes. The asynchronous copy is answered when its stream got there."""
    issuer.executor.ensure_thread(call.thread)
    count, room = call.word("ByteCount"), call.word("dstHost")
    if not count <= room <= MAX_OUTPUT_BYTES:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{count} bytes into {room}")
    stream = stream_of(issuer, call)
    asynchronous = "hStream" in call.row.arg_index
    if asynchronous:
        refuse_capture(issuer, call, stream)
    data = bytearray(pad8(room))
    arguments = [address_of(data), call.handle(issuer.executor, "srcArray"), call.word("srcOffset"), count]
    if asynchronous:
        arguments.append(call.handle(issuer.executor, "hStream"))
    symbol = call.symbol

    def copy() -> int:
        result = issuer.driver.call(symbol, *arguments)
        return issuer.driver.call("cuStreamSynchronize", stream) if asynchronous and result == CUDA_SUCCESS else result

    return issuer.wait(call, issuer.stream_ready(stream), copy, lambda result: data if result == CUDA_SUCCESS else b"")
