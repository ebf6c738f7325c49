"""Streams: all of them share one queue, so their order is that of submission; waiting and asking is per stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.driver.cabi import get_bytes, need, put_bytes, put_i32, put_u32, put_u64
from lanGPU.emulator.driver.contexts import GREATEST_PRIORITY, LEAST_PRIORITY
from lanGPU.emulator.driver.objects import STREAM_LEGACY, STREAM_NON_BLOCKING, STREAM_PER_THREAD, Context, Event, Stream
from lanGPU.emulator.driver.operations import HostFunction, StreamCallback, WriteValue
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.results import (
    INVALID_VALUE,
    NOT_READY,
    STREAM_CAPTURE_ISOLATION,
    STREAM_CAPTURE_UNSUPPORTED,
    CuError,
)

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_ATTRIBUTES: Final = {
    # CUstreamAttrID -> bytes of its value in the union of 64
    ENUMS["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_ACCESS_POLICY_WINDOW"]: 32,
    ENUMS["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY"]: 4,
    ENUMS["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_PRIORITY"]: 4,
    ENUMS["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP"]: 2,
    ENUMS["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN"]: 4,
}
_PRIORITY: Final = ENUMS["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_PRIORITY"]
_SYNC_POLICY: Final = ENUMS["CUlaunchAttributeID"]["CU_LAUNCH_ATTRIBUTE_SYNCHRONIZATION_POLICY"]
_WRITE_FLAGS: Final = 0x1  # CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER


# --- creation and destruction ------------------------------------------------------------------------------------------
def _create(d: Driver, context: Context, out: int, flags: int, priority: int) -> None:
    need(out)
    if flags & ~STREAM_NON_BLOCKING:
        raise CuError(INVALID_VALUE)
    stream = Stream(context, next(d.ids), flags, max(GREATEST_PRIORITY, min(LEAST_PRIORITY, priority)))
    stream.handle = d.handles.add(stream)
    context.streams.add(stream)
    put_u64(out, stream.handle)


@in_context("cuStreamCreate")
def stream_create(d: Driver, context: Context, out: int, flags: int) -> None:
    _create(d, context, out, flags, 0)


@in_context("cuStreamCreateWithPriority")
def stream_create_with_priority(d: Driver, context: Context, out: int, flags: int, priority: int) -> None:
    """A priority out of range is taken as the nearest one, as the driver API says."""
    _create(d, context, out, flags, priority)


@in_context("cuStreamDestroy_v2", "cuStreamDestroy")
def stream_destroy(d: Driver, context: Context, handle: int) -> None:
    """Returns at once; what is queued is still carried out. The stream that a capture began in ends it; one that joined leaves its work."""
    if handle in (0, STREAM_LEGACY, STREAM_PER_THREAD):
        raise CuError(INVALID_VALUE)
    stream = d.stream(context, handle)
    if stream.capture is not None and stream.capture.origin is stream:
        stream.capture.invalidate()
        stream.capture.end()
    d.handles.remove(handle)
    owner = stream.context
    owner.streams.discard(stream)
    if stream.blocking:  # the legacy stream still waits for it
        owner.legacy.last = max(owner.legacy.last, stream.last)


# --- waiting and asking ------------------------------------------------------------------------------------------------
def _not_capturing(stream: Stream) -> None:
    if stream.capture is not None:
        stream.capture.invalidate()
        raise CuError(STREAM_CAPTURE_UNSUPPORTED)


@in_context("cuStreamSynchronize")
def stream_synchronize(d: Driver, context: Context, handle: int) -> None:
    stream = d.stream(context, handle)
    _not_capturing(stream)
    d.queue.wait(d.last_of(stream))
    if stream.context.error:
        raise CuError(stream.context.error)


@in_context("cuStreamQuery")
def stream_query(d: Driver, context: Context, handle: int) -> int | None:
    stream = d.stream(context, handle)
    _not_capturing(stream)
    if not d.queue.done(d.last_of(stream)):
        return NOT_READY
    return stream.context.error or None


@in_context("cuStreamWaitEvent")
def stream_wait_event(d: Driver, context: Context, handle: int, event: int, flags: int) -> None:
    stream, found = d.stream(context, handle), d.handles.get(event, Event)
    if flags not in (0, 1):
        raise CuError(INVALID_VALUE)
    if found.capture is not None:
        found.capture.join(stream, found)
    elif stream.capture is not None:
        if not flags & 1:  # only CU_EVENT_WAIT_EXTERNAL may look outside the capture
            stream.capture.invalidate()
            raise CuError(STREAM_CAPTURE_ISOLATION)
        stream.capture.add_wait(stream, found)
    elif found.recording is not None:
        # The record is in the one queue already, so whatever is queued from now on comes after it.
        stream.last = max(stream.last, found.recording.number)


# --- questions and settings ----------------------------------------------------------------------------------------------
@in_context("cuStreamGetPriority")
def stream_get_priority(d: Driver, context: Context, handle: int, priority: int) -> None:
    put_i32(priority, d.stream(context, handle).priority)


@in_context("cuStreamGetFlags")
def stream_get_flags(d: Driver, context: Context, handle: int, flags: int) -> None:
    put_u32(flags, d.stream(context, handle).flags)


@in_context("cuStreamGetId")
def stream_get_id(d: Driver, context: Context, handle: int, stream_id: int) -> None:
    put_u64(stream_id, d.stream(context, handle).id)


@in_context("cuStreamGetDevice")
def stream_get_device(d: Driver, context: Context, handle: int, device: int) -> None:
    put_i32(device, d.stream(context, handle).context.device.ordinal)


@in_context("cuStreamGetCtx")
def stream_get_ctx(d: Driver, context: Context, handle: int, pctx: int) -> None:
    put_u64(pctx, d.stream(context, handle).context.handle)


@in_context("cuStreamGetCtx_v2")
def stream_get_ctx_v2(d: Driver, context: Context, handle: int, pctx: int, green: int) -> None:
    stream = d.stream(context, handle)
    put_u64(pctx, stream.context.handle)
    if green:
        put_u64(green, 0)


@in_context("cuStreamGetAttribute")
def stream_get_attribute(d: Driver, context: Context, handle: int, attribute: int, value: int) -> None:
    stream = d.stream(context, handle)
    size = _ATTRIBUTES.get(attribute)
    if size is None:
        raise CuError(INVALID_VALUE)
    if attribute == _PRIORITY:
        put_i32(value, stream.priority)
    else:
        default = (1).to_bytes(size, "little") if attribute == _SYNC_POLICY else bytes(size)
        put_bytes(value, stream.attributes.get(attribute, default))


@in_context("cuStreamSetAttribute")
def stream_set_attribute(d: Driver, context: Context, handle: int, attribute: int, value: int) -> None:
    """Hints: kept, and without effect on results."""
    stream = d.stream(context, handle)
    size = _ATTRIBUTES.get(attribute)
    if size is None:
        raise CuError(INVALID_VALUE)
    data = get_bytes(value, size)
    if attribute == _PRIORITY:
        stream.priority = max(GREATEST_PRIORITY, min(LEAST_PRIORITY, int.from_bytes(data, "little", signed=True)))
    else:
        stream.attributes[attribute] = data


@in_context("cuStreamCopyAttributes")
def stream_copy_attributes(d: Driver, context: Context, destination: int, source: int) -> None:
    to, start = d.stream(context, destination), d.stream(context, source)
    to.attributes, to.priority = dict(start.attributes), start.priority


# --- operations in the stream ----------------------------------------------------------------------------------------------
@in_context("cuLaunchHostFunc")
def launch_host_func(d: Driver, context: Context, handle: int, function: int, user_data: int) -> None:
    d.submit(d.stream(context, handle), HostFunction(need(function), user_data, d.print_output))


@in_context("cuStreamAddCallback")
def stream_add_callback(d: Driver, context: Context, handle: int, function: int, user_data: int, flags: int) -> None:
    if flags:
        raise CuError(INVALID_VALUE)
    d.submit(d.stream(context, handle), StreamCallback(need(function), handle, user_data, d.print_output))


def _write_value(d: Driver, context: Context, handle: int, address: int, value: int, flags: int, size: int) -> None:
    if flags & ~_WRITE_FLAGS or address % size:
        raise CuError(INVALID_VALUE)
    d.check_range(need(address), size)
    d.submit(d.stream(context, handle), WriteValue(address, value, size, d.memory))


@in_context("cuStreamWriteValue32_v2")
def stream_write_value_32(d: Driver, context: Context, handle: int, address: int, value: int, flags: int) -> None:
    _write_value(d, context, handle, address, value, flags, 4)


@in_context("cuStreamWriteValue64_v2")
def stream_write_value_64(d: Driver, context: Context, handle: int, address: int, value: int, flags: int) -> None:
    _write_value(d, context, handle, address, value, flags, 8)
