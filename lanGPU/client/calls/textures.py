"""Copies between host memory and CUDA arrays that are too large for one record: cut in pieces, as the linear copies are."""

from lanGPU.client.calls.copies import cut, refuse_capture
from lanGPU.client.calls.effects import Fetch, Piece, Post, ReadMemory, Steps
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS


def _upload(call: Call, array: int, offset: int, src: int, total: int, rest: tuple[int, ...]) -> Steps:
    if total and not src:
        return CUDA_ERROR_INVALID_VALUE
    for at, length in cut(total):
        data = yield ReadMemory(src + at, length, staged=True)
        result = yield Post(call.row.name, (array, offset + at, data, length, *rest))
        if result:
            return int(result)
    return CUDA_SUCCESS


def _download(call: Call, dst: int, array: int, offset: int, total: int, rest: tuple[int, ...]) -> Steps:
    if total and not dst:
        return CUDA_ERROR_INVALID_VALUE
    pieces = [Piece(call.row.name, (n, array, offset + at, n, *rest), dst + at, n) for at, n in cut(total)]
    return int((yield Fetch(pieces)))


@client_call("cuMemcpyHtoA_v2")
def memcpy_htoa(call: Call, array: int, offset: int, src: int, total: int) -> Steps:
    """More bytes than a record takes inline."""
    return (yield from _upload(call, array, offset, src, total, ()))


@client_call("cuMemcpyHtoAAsync_v2")
def memcpy_htoa_async(call: Call, array: int, offset: int, src: int, total: int, stream: int) -> Steps:
    """The bytes are taken now, which CUDA allows for any memory."""
    yield from refuse_capture(call, stream)
    return (yield from _upload(call, array, offset, src, total, (stream,)))


@client_call("cuMemcpyAtoH_v2")
def memcpy_atoh(call: Call, dst: int, array: int, offset: int, total: int) -> Steps:
    """More bytes than a reply takes inline."""
    return (yield from _download(call, dst, array, offset, total, ()))


@client_call("cuMemcpyAtoHAsync_v2")
def memcpy_atoh_async(call: Call, dst: int, array: int, offset: int, total: int, stream: int) -> Steps:
    """Waits until the bytes are there."""
    return (yield from _download(call, dst, array, offset, total, (stream,)))
