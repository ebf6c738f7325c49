"""Linear copies and memsets.

Host memory that the program did not pin is read before an asynchronous call returns, and written before it returns, as CUDA does
("API synchronization behavior" in the driver API's documentation).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.batches import MAX_COPIES, valid_attributes, valid_batch, words
from lanGPU.driverapi.structs import MEMCPY_ATTRIBUTES
from lanGPU.emulator.driver.cabi import get_bytes, need, put_u64
from lanGPU.emulator.driver.objects import Context, Stream
from lanGPU.emulator.driver.operations import BytesCopy, Copy, Fill
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.results import INVALID_VALUE, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_STAGE_MAX: Final = 64 * 1024
"""Up to here pageable bytes are set aside and the call returns; above it waits until they are copied."""


def _copy(d: Driver, stream: Stream, destination: int, source: int, size: int, *, device: tuple[bool, bool], wait: bool) -> None:
    """One copy; `device` says which sides (destination, source) must be device-accessible memory."""
    if size == 0:
        if wait:
            d.queue.wait(d.last_of(stream))
        return
    need(destination), need(source)
    for address, is_device in ((destination, device[0]), (source, device[1])):
        if is_device:
            d.check_range(address, size)
    d.run(stream, Copy(destination, source, size, d.memory, *device), wait=wait)


def pinned(d: Driver, pointer: int, size: int) -> bool:
    """Whether all of it is memory that kernels may use."""
    return d.memory.contains(pointer, size)


# --- host to device ------------------------------------------------------------------------------------------------------
@in_context("cuMemcpyHtoD_v2", unsafe=True)
def memcpy_h_to_d(d: Driver, context: Context, dst: int, src: int, size: int) -> None:
    _copy(d, d.stream(context, 0), dst, src, size, device=(True, False), wait=True)


@in_context("cuMemcpyHtoDAsync_v2")
def memcpy_h_to_d_async(d: Driver, context: Context, dst: int, src: int, size: int, stream: int) -> None:
    _host_source_async(d, d.stream(context, stream), dst, src, size)


def _host_source_async(d: Driver, stream: Stream, dst: int, src: int, size: int) -> None:
    kept = stream.capture is not None or pinned(d, src, size)
    if kept or size > _STAGE_MAX:
        _copy(d, stream, dst, src, size, device=(True, False), wait=not kept)
    elif size:
        d.check_range(dst, size)
        d.run(stream, BytesCopy(dst, get_bytes(src, size), d.memory), wait=False)


# --- device to host ------------------------------------------------------------------------------------------------------
@in_context("cuMemcpyDtoH_v2", unsafe=True)
def memcpy_d_to_h(d: Driver, context: Context, dst: int, src: int, size: int) -> None:
    _copy(d, d.stream(context, 0), dst, src, size, device=(False, True), wait=True)


@in_context("cuMemcpyDtoHAsync_v2")
def memcpy_d_to_h_async(d: Driver, context: Context, dst: int, src: int, size: int, stream: int) -> None:
    where = d.stream(context, stream)
    kept = where.capture is not None or pinned(d, dst, size)
    _copy(d, where, dst, src, size, device=(False, True), wait=not kept)


# --- device to device, peers, unified ---------------------------------------------------------------------------------------
@in_context("cuMemcpyDtoD_v2", unsafe=True)
def memcpy_d_to_d(d: Driver, context: Context, dst: int, src: int, size: int) -> None:
    _copy(d, d.stream(context, 0), dst, src, size, device=(True, True), wait=False)


@in_context("cuMemcpyDtoDAsync_v2")
def memcpy_d_to_d_async(d: Driver, context: Context, dst: int, src: int, size: int, stream: int) -> None:
    _copy(d, d.stream(context, stream), dst, src, size, device=(True, True), wait=False)


@in_context("cuMemcpyPeer", unsafe=True)
def memcpy_peer(d: Driver, context: Context, dst: int, dst_context: int, src: int, src_context: int, size: int) -> None:
    d.context(dst_context), d.context(src_context)
    _copy(d, d.stream(context, 0), dst, src, size, device=(True, True), wait=False)


@in_context("cuMemcpyPeerAsync")
def memcpy_peer_async(d: Driver, context: Context, dst: int, dst_context: int, src: int, src_context: int, size: int, stream: int) -> None:
    d.context(dst_context), d.context(src_context)
    _copy(d, d.stream(context, stream), dst, src, size, device=(True, True), wait=False)


@in_context("cuMemcpy", unsafe=True)
def memcpy(d: Driver, context: Context, dst: int, src: int, size: int) -> None:
    """Either side may be any memory: what is not a device's or pinned is the program's."""
    sides = (pinned(d, dst, size), pinned(d, src, size))
    _copy(d, d.stream(context, 0), dst, src, size, device=sides, wait=not all(sides))


@in_context("cuMemcpyAsync")
def memcpy_async(d: Driver, context: Context, dst: int, src: int, size: int, stream: int) -> None:
    _unified(d, context, dst, src, size, stream)


def _unified(d: Driver, context: Context, dst: int, src: int, size: int, stream: int) -> None:
    where = d.stream(context, stream)
    sides = (pinned(d, dst, size), pinned(d, src, size))
    if sides == (True, False):
        _host_source_async(d, where, dst, src, size)
    else:
        _copy(d, where, dst, src, size, device=sides, wait=not all(sides) and where.capture is None)


# --- batches -----------------------------------------------------------------------------------------------------------------
def _batch(
    d: Driver, context: Context, arrays: tuple[int, int, int], count: int, attributes: tuple[int, int, int], fail: int, stream: int
) -> None:
    attrs, attrs_indexes, attrs_count = attributes
    if not count or count > MAX_COPIES or not 0 < attrs_count <= count or not all((*arrays, attrs, attrs_indexes)):
        raise CuError(INVALID_VALUE)
    dsts, srcs, sizes = (words(get_bytes(array, 8 * count)) for array in arrays)
    indexes = words(get_bytes(attrs_indexes, 8 * attrs_count))
    settings = get_bytes(attrs, MEMCPY_ATTRIBUTES.size * attrs_count)
    if not valid_batch((*dsts, *srcs), count, settings, indexes, stream, per_thread=False):
        if fail:
            put_u64(fail, 2**64 - 1)  # no single copy is to blame
        raise CuError(INVALID_VALUE)
    for i, (dst, src, size) in enumerate(zip(dsts, srcs, sizes, strict=True)):
        try:
            _unified(d, context, dst, src, size, stream)
        except CuError:
            if fail:
                put_u64(fail, i)
            raise


@in_context("cuMemcpyBatchAsync")
def memcpy_batch_async(
    d: Driver,
    context: Context,
    dsts: int,
    srcs: int,
    sizes: int,
    count: int,
    attrs: int,
    idxs: int,
    n: int,
    fail: int,
    stream: int,
) -> None:
    _batch(d, context, (dsts, srcs, sizes), count, (attrs, idxs, n), fail, stream)


@in_context("cuMemcpyBatchAsync_v2")
def memcpy_batch_async_v2(
    d: Driver, context: Context, dsts: int, srcs: int, sizes: int, count: int, attrs: int, idxs: int, n: int, stream: int
) -> None:
    _batch(d, context, (dsts, srcs, sizes), count, (attrs, idxs, n), 0, stream)


@in_context("cuMemcpyWithAttributesAsync")
def memcpy_with_attributes_async(d: Driver, context: Context, dst: int, src: int, size: int, attributes: int, stream: int) -> None:
    if not valid_attributes(get_bytes(need(attributes), MEMCPY_ATTRIBUTES.size)):
        raise CuError(INVALID_VALUE)
    _unified(d, context, dst, src, size, stream)


# --- memsets -----------------------------------------------------------------------------------------------------------------
def check_fill(d: Driver, destination: int, pitch: int, element_bytes: int, width: int, height: int) -> None:
    """CUDA_ERROR_INVALID_VALUE unless the memset may be carried out."""
    if destination % element_bytes or (height > 1 and (pitch < width * element_bytes or pitch % element_bytes)):
        raise CuError(INVALID_VALUE)
    d.check_range(need(destination), (height - 1) * pitch + width * element_bytes)


def _fill(d: Driver, stream: Stream, destination: int, pitch: int, value: int, element_bytes: int, width: int, height: int) -> None:
    if width == 0 or height == 0:
        return
    check_fill(d, destination, pitch, element_bytes, width, height)
    d.run(stream, Fill(destination, pitch, value, element_bytes, width, height, d.memory), wait=False)


def _make(element_bytes: int) -> None:
    bits = 8 * element_bytes

    @in_context(f"cuMemsetD{bits}_v2", unsafe=True)
    def linear(d: Driver, context: Context, dst: int, value: int, count: int) -> None:
        _fill(d, d.stream(context, 0), dst, count * element_bytes, value, element_bytes, count, 1)

    @in_context(f"cuMemsetD{bits}Async")
    def linear_async(d: Driver, context: Context, dst: int, value: int, count: int, stream: int) -> None:
        _fill(d, d.stream(context, stream), dst, count * element_bytes, value, element_bytes, count, 1)

    @in_context(f"cuMemsetD2D{bits}_v2", unsafe=True)
    def pitched(d: Driver, context: Context, dst: int, pitch: int, value: int, width: int, height: int) -> None:
        _fill(d, d.stream(context, 0), dst, pitch, value, element_bytes, width, height)

    @in_context(f"cuMemsetD2D{bits}Async")
    def pitched_async(d: Driver, context: Context, dst: int, pitch: int, value: int, width: int, height: int, stream: int) -> None:
        _fill(d, d.stream(context, stream), dst, pitch, value, element_bytes, width, height)


for _bytes in (1, 2, 4):
    _make(_bytes)
