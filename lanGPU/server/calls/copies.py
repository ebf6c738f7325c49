"""Copies to the host, and pitched copies: the host side lies in the record or in the reply."""

from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS
from lanGPU.driverapi import structs
from lanGPU.driverapi.structs import StructLayout
from lanGPU.server.call import MAX_OUTPUT_BYTES, Call, address_of
from lanGPU.server.calls.graphs import translate_struct
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.wire.connection import Buffer
from lanGPU.wire.records import pad8

_HOST_MEMORY: Final = 1
"""CU_MEMORYTYPE_HOST"""
_PER_THREAD: Final = 2
"""CU_STREAM_PER_THREAD"""


def stream_of(issuer: Issuer, call: Call) -> int:
    """The driver's stream in which the call runs, also where NULL means the per-thread one."""
    stream = call.handle(issuer.executor, "hStream") if "hStream" in call.row.arg_index else 0
    return stream or (_PER_THREAD if call.per_thread else 0)


def refuse_capture(issuer: Issuer, call: Call, stream: int) -> None:
    """A captured copy would fill our memory at some later launch, when nobody listens."""
    status = bytearray(4)
    if issuer.driver.call("cuStreamIsCapturing", stream, address_of(status)) == CUDA_SUCCESS and any(status):
        raise call.failed(CUDA_ERROR_NOT_SUPPORTED, "a copy to host memory inside a stream capture")


@server_call("cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2")
def to_host(issuer: Issuer, call: Call) -> Answer | None:
    """Outputs: the bytes, straight from where the driver put them. The asynchronous copy is answered when its stream got there."""
    issuer.executor.ensure_thread(call.thread)
    count = call.word("ByteCount")
    if not count <= call.word("dstHost") <= MAX_OUTPUT_BYTES:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{count} bytes into {call.word('dstHost')}")
    stream = stream_of(issuer, call)
    asynchronous = "hStream" in call.row.arg_index
    if asynchronous:
        refuse_capture(issuer, call, stream)
    data = bytearray(pad8(call.word("dstHost")))
    address, source = address_of(data), call.word("srcDevice")
    own = call.handle(issuer.executor, "hStream") if asynchronous else 0

    def copy() -> int:
        if not asynchronous:
            return issuer.driver.call(call.symbol, address, source, count)
        result = issuer.driver.call(call.symbol, address, source, count, own)
        return result if result != CUDA_SUCCESS else issuer.driver.call("cuStreamSynchronize", stream)

    return issuer.wait(call, issuer.stream_ready(stream), copy, lambda result: data if result == CUDA_SUCCESS else b"")


def _set_host_side(layout: StructLayout, params: bytearray, side: str, data: "memoryview | bytearray") -> None:
    """Makes the `src` or `dst` side of a pitched copy rows without gaps in `data`."""
    layout.put(params, f"{side}Host", address_of(data))
    layout.put(params, f"{side}Pitch", layout.get(params, "WidthInBytes"))
    for name, value in (("XInBytes", 0), ("Y", 0), ("Z", 0), ("LOD", 0), ("Height", layout.get(params, "Height"))):
        if side + name in layout.fields:
            layout.put(params, side + name, value)


def _pitched_bytes(layout: StructLayout, params: bytearray) -> int:
    depth = layout.get(params, "Depth") if "Depth" in layout.fields else 1
    return layout.get(params, "WidthInBytes") * layout.get(params, "Height") * depth


@server_call("cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy2DAsync_v2", "cuMemcpy3D_v2", "cuMemcpy3DAsync_v2")
def pitched(issuer: Issuer, call: Call) -> Answer | None:
    """`pCopy`: *pitched copy* of docs/internals.md. Outputs: the rows of a host destination, packed."""
    issuer.executor.ensure_thread(call.thread)
    layout = structs.MEMCPY3D if "3D" in call.row.name else structs.MEMCPY2D
    stream = stream_of(issuer, call)
    asynchronous = "hStream" in call.row.arg_index
    own = call.handle(issuer.executor, "hStream") if asynchronous else 0
    blob = call.blob("pCopy")
    if len(blob) < layout.size:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(blob)} bytes of copy parameters")
    to_host = layout.get(blob, "dstMemoryType") == _HOST_MEMORY
    ready = not to_host or issuer.stream_ready(stream)
    if not ready:
        call = call.detached()
        blob = call.blob("pCopy")
    params = bytearray(blob[: layout.size])
    total = _pitched_bytes(layout, params)
    rows: memoryview | bytearray = bytearray()
    output = bytearray()
    if layout.get(params, "srcMemoryType") == _HOST_MEMORY:
        rows = blob[layout.size :]
        if len(rows) < total:
            raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(rows)} of {total} source bytes")
        _set_host_side(layout, params, "src", rows)
    if to_host:
        if total > MAX_OUTPUT_BYTES:
            raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{total} bytes do not fit a reply")
        if asynchronous:
            refuse_capture(issuer, call, stream)
        output = bytearray(pad8(total))
        _set_host_side(layout, params, "dst", output)
    translate_struct(issuer, call, layout, params)

    def copy() -> int:
        keep = rows  # the driver reads it
        result = issuer.driver.call(call.symbol, address_of(params), *((own,) if asynchronous else ()))
        if result == CUDA_SUCCESS and to_host and asynchronous:
            result = issuer.driver.call("cuStreamSynchronize", stream)
        del keep
        return result

    def finish(result: int) -> Buffer:
        return output if result == CUDA_SUCCESS else b""

    return issuer.wait(call, ready, copy, finish)
