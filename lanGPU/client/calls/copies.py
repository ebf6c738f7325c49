"""Linear copies that the shim leaves to the agent: large ones, and those whose sides are not known from the function's name.

An upload is cut in pieces that are read and sent in order; the call returns when all bytes were read, so the program may overwrite
them. A download is asked for at once, piece by piece, and its replies are written where they belong as they arrive.
"""

from collections.abc import Iterator

from lanGPU.client.calls.effects import CallError, Fetch, LogLine, Part, Piece, Post, ReadMemory, Request, Steps, WriteMemory
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call
from lanGPU.constants import (
    COPY_CHUNK_BYTES,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED,
    CUDA_SUCCESS,
)
from lanGPU.driverapi.batches import MAX_COPIES, valid_attributes, valid_batch, words
from lanGPU.driverapi.structs import MEMCPY_ATTRIBUTES
from lanGPU.wire.records import FLAG_PER_THREAD, NULL_WORD

POINTER_MEMORY_TYPE = 2
MEMORY_TYPE_HOST = 1
MEMORY_TYPE_DEVICE = 2
_INVALIDATED = 2
"""CU_STREAM_CAPTURE_STATUS_INVALIDATED."""


def cut(total: int, piece: int = COPY_CHUNK_BYTES) -> Iterator[tuple[int, int]]:
    """(offset, length) of consecutive pieces."""
    for offset in range(0, total, piece):
        yield offset, min(piece, total - offset)


def refuse_capture(call: Call, stream: int) -> Part[None]:
    """Raises CallError where `stream` captures: the program's memory would have to be read or written whenever the graph is launched."""
    if not call.state.table.capturing():
        return
    reply = yield Request("cuStreamIsCapturing", (stream, 4))
    if reply.result:
        raise CallError(reply.result)
    status = int.from_bytes(reply.outputs[:4], "little")
    if status == _INVALIDATED:
        raise CallError(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED)
    if status:
        text = f"{call.row.name}: copies from or to host memory inside a stream capture are not supported"
        yield LogLine("warning", text, once=text)
        raise CallError(CUDA_ERROR_NOT_SUPPORTED, text)


def settled(call: Call, source: int, stream: int | None) -> Steps:
    """Wait for the stream where a host function of it may still write the pinned memory that a copy reads: we read it right away."""
    state = call.state
    if state.callbacks.pending and (state.shared or state.host.find(source) is not None) and not state.table.capturing():
        return int((yield Request("cuStreamSynchronize", (stream or 0,))).result)
    return CUDA_SUCCESS


def upload(call: Call, dst: int, src: int, total: int, stream: int | None = None) -> Steps:
    """Host to device; with a stream in its order."""
    if total and not src:
        return CUDA_ERROR_INVALID_VALUE
    if result := (yield from settled(call, src, stream)):
        return result
    for offset, length in cut(total):
        data = yield ReadMemory(src + offset, length, staged=True)
        if stream is None:
            result = yield Post("cuMemcpyHtoD_v2", (dst + offset, data, length))
        else:
            result = yield Post("cuMemcpyHtoDAsync_v2", (dst + offset, data, length, stream))
        if result:
            return int(result)
    return CUDA_SUCCESS


def download(dst: int, src: int, total: int, stream: int | None = None) -> Steps:
    """Device to host; returns when all bytes are there."""
    if total and not dst:
        return CUDA_ERROR_INVALID_VALUE
    if stream is None:
        pieces = [Piece("cuMemcpyDtoH_v2", (n, src + at, n), dst + at, n) for at, n in cut(total)]
    else:
        pieces = [Piece("cuMemcpyDtoHAsync_v2", (n, src + at, n, stream), dst + at, n) for at, n in cut(total)]
    return int((yield Fetch(pieces)))


def host_copy(dst: int, src: int, total: int) -> Steps:
    """Host to host."""
    for offset, length in cut(total):
        data = yield ReadMemory(src + offset, length)
        yield WriteMemory(dst + offset, data)
    return CUDA_SUCCESS


@client_call("cuMemcpyHtoD_v2")
def memcpy_htod(call: Call, dst: int, src: int, total: int) -> Steps:
    """More bytes than a record takes inline."""
    return (yield from upload(call, dst, src, total))


@client_call("cuMemcpyHtoDAsync_v2")
def memcpy_htod_async(call: Call, dst: int, src: int, total: int, stream: int) -> Steps:
    """The bytes are taken now, which CUDA allows for any memory."""
    yield from refuse_capture(call, stream)
    return (yield from upload(call, dst, src, total, stream))


@client_call("cuMemcpyDtoH_v2")
def memcpy_dtoh(call: Call, dst: int, src: int, total: int) -> Steps:
    """More bytes than a reply takes inline."""
    return (yield from download(dst, src, total))


@client_call("cuMemcpyDtoHAsync_v2")
def memcpy_dtoh_async(call: Call, dst: int, src: int, total: int, stream: int) -> Steps:
    """Waits until the bytes are there: correct for every program, if not the fastest."""
    return (yield from download(dst, src, total, stream))


def is_device(call: Call, address: int) -> Part[bool]:
    """Whether a unified address means device memory.

    Known host ranges are host memory. Of the rest the server is asked: what it knows as an allocation is device memory, everything
    else the program's. The two address spaces are those of different machines, so an address may be valid in both; then the
    device's meaning is taken, which is wrong only for pageable host memory at an address where the server has device memory.
    """
    shared = call.state.shared.find(address)
    if shared is not None and shared.start == shared.device:
        return True
    if call.state.host.find(address) is not None:
        return False
    reply = yield Request("cuPointerGetAttribute", (4, POINTER_MEMORY_TYPE, address), 0)
    return reply.result == 0 and int.from_bytes(reply.outputs[:4], "little") != MEMORY_TYPE_HOST


@client_call("cuMemcpy")
def memcpy(call: Call, dst: int, src: int, total: int) -> Steps:
    """Unified addresses."""
    if not total:
        return CUDA_SUCCESS
    to_device = yield from is_device(call, dst)
    from_device = yield from is_device(call, src)
    if to_device and from_device:
        return int((yield Post("cuMemcpyDtoD_v2", (dst, src, total))))
    if to_device:
        return (yield from upload(call, dst, src, total))
    if from_device:
        return (yield from download(dst, src, total))
    return (yield from host_copy(dst, src, total))


@client_call("cuMemcpyAsync")
def memcpy_async(call: Call, dst: int, src: int, total: int, stream: int) -> Steps:
    """Unified addresses, in the order of a stream."""
    return (yield from _unified(call, dst, src, total, stream))


def _unified(call: Call, dst: int, src: int, total: int, stream: int) -> Steps:
    if not total:
        return CUDA_SUCCESS
    to_device = yield from is_device(call, dst)
    from_device = yield from is_device(call, src)
    if to_device and from_device:
        return int((yield Post("cuMemcpyDtoDAsync_v2", (dst, src, total, stream))))
    yield from refuse_capture(call, stream)
    if to_device:
        return (yield from upload(call, dst, src, total, stream))
    if from_device:
        return (yield from download(dst, src, total, stream))
    reply = yield Request("cuStreamSynchronize", (stream,))
    if reply.result:
        return int(reply.result)
    return (yield from host_copy(dst, src, total))


def _batch(call: Call, arrays: tuple[int, int, int], count: int, attributes: tuple[int, int, int], fail: int, stream: int) -> Steps:
    """The copies one by one, which a batch allows: it promises no order among them. `fail` learns which one failed."""
    attrs, attrs_indexes, attrs_count = attributes
    if not count or count > MAX_COPIES or not 0 < attrs_count <= count or not all((*arrays, attrs, attrs_indexes)):
        return CUDA_ERROR_INVALID_VALUE
    dsts = words((yield ReadMemory(arrays[0], 8 * count)))
    srcs = words((yield ReadMemory(arrays[1], 8 * count)))
    sizes = words((yield ReadMemory(arrays[2], 8 * count)))
    settings = yield ReadMemory(attrs, MEMCPY_ATTRIBUTES.size * attrs_count)
    indexes = words((yield ReadMemory(attrs_indexes, 8 * attrs_count)))
    per_thread = bool(call.flags & FLAG_PER_THREAD)
    if not valid_batch((*dsts, *srcs), count, settings, indexes, stream, per_thread=per_thread):
        if fail:
            yield WriteMemory(fail, NULL_WORD.to_bytes(8, "little"))  # SIZE_MAX: no single copy is to blame
        return CUDA_ERROR_INVALID_VALUE
    for i, (dst, src, total) in enumerate(zip(dsts, srcs, sizes, strict=True)):
        result = yield from _unified(call, dst, src, total, stream)
        if result:
            if fail:
                yield WriteMemory(fail, i.to_bytes(8, "little"))
            return result
    return CUDA_SUCCESS


@client_call("cuMemcpyBatchAsync")
def batch(
    call: Call, dsts: int, srcs: int, sizes: int, count: int, attrs: int, indexes: int, attrs_count: int, fail: int, stream: int
) -> Steps:
    """CUDA 12's form, which says which copy failed."""
    return (yield from _batch(call, (dsts, srcs, sizes), count, (attrs, indexes, attrs_count), fail, stream))


@client_call("cuMemcpyBatchAsync_v2")
def batch_v2(call: Call, dsts: int, srcs: int, sizes: int, count: int, attrs: int, indexes: int, attrs_count: int, stream: int) -> Steps:
    """CUDA 13's form."""
    return (yield from _batch(call, (dsts, srcs, sizes), count, (attrs, indexes, attrs_count), 0, stream))


@client_call("cuMemcpyWithAttributesAsync")
def with_attributes(call: Call, dst: int, src: int, total: int, attributes: int, stream: int) -> Steps:
    """One copy; its source is always read before the call returns, which every access order allows where the order is the stream's."""
    if not attributes or not valid_attributes((yield ReadMemory(attributes, MEMCPY_ATTRIBUTES.size))):
        return CUDA_ERROR_INVALID_VALUE
    return (yield from _unified(call, dst, src, total, stream))
