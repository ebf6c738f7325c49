"""Events: points in the queue, with the time at which it got there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.emulator.driver.cabi import need, put_f32, put_u64
from lanGPU.emulator.driver.objects import EVENT_DISABLE_TIMING, EVENT_INTERPROCESS, Context, Event, Recording, Stream
from lanGPU.emulator.driver.operations import Record
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.results import CAPTURED_EVENT, INVALID_HANDLE, INVALID_VALUE, NOT_READY, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_FLAGS: Final = 0x7
_NS_PER_MS: Final = 1e6
_RECORD_EXTERNAL: Final = 1


@in_context("cuEventCreate")
def event_create(d: Driver, context: Context, out: int, flags: int) -> int | None:
    need(out)
    if flags & ~_FLAGS or (flags & EVENT_INTERPROCESS and not flags & EVENT_DISABLE_TIMING):
        raise CuError(INVALID_VALUE)
    if flags & EVENT_INTERPROCESS:
        return NOT_SUPPORTED
    put_u64(out, d.handles.add(Event(context, flags)))
    return None


@in_context("cuEventDestroy_v2", "cuEventDestroy")
def event_destroy(d: Driver, context: Context, event: int) -> None:
    """Returns at once, recorded or not."""
    d.handles.get(event, Event)
    d.handles.remove(event)


def record(d: Driver, stream: Stream, event: Event, *, external: bool = False) -> None:
    """Records `event` in `stream`, or notes where a capture has got to."""
    if event.context.device is not stream.context.device:
        raise CuError(INVALID_HANDLE)
    if stream.capture is not None:
        if external:
            stream.capture.add_record(stream, event)
        else:
            event.capture = stream.capture
            event.capture_nodes = stream.capture.tail(stream)
            event.recording = None
        return
    recording = Recording()
    d.run(stream, Record(recording), wait=False)
    recording.number = stream.last
    event.capture = None
    event.recording = recording  # last: until now another thread saw the record before this one


@in_context("cuEventRecord")
def event_record(d: Driver, context: Context, event: int, stream: int) -> None:
    record(d, d.stream(context, stream), d.handles.get(event, Event))


@in_context("cuEventRecordWithFlags")
def event_record_with_flags(d: Driver, context: Context, event: int, stream: int, flags: int) -> None:
    if flags & ~_RECORD_EXTERNAL:
        raise CuError(INVALID_VALUE)
    record(d, d.stream(context, stream), d.handles.get(event, Event), external=bool(flags))


def _asked(event: Event) -> Recording | None:
    """What a query or wait looks at; None: never recorded, which counts as done."""
    if event.capture is not None:
        raise CuError(CAPTURED_EVENT)
    return event.recording


@in_context("cuEventQuery")
def event_query(d: Driver, context: Context, event: int) -> int | None:
    recording = _asked(d.handles.get(event, Event))
    return NOT_READY if recording is not None and not d.queue.done(recording.number) else None


@in_context("cuEventSynchronize")
def event_synchronize(d: Driver, context: Context, event: int) -> None:
    found = d.handles.get(event, Event)
    recording = _asked(found)
    if recording is not None:
        d.queue.wait(recording.number)
    if found.context.error:
        raise CuError(found.context.error)


@in_context("cuEventElapsedTime", "cuEventElapsedTime_v2")
def event_elapsed_time(d: Driver, context: Context, milliseconds: int, start: int, end: int) -> int | None:
    """From the host's clock at the moments when the queue got to the two records."""
    first, second = d.handles.get(start, Event), d.handles.get(end, Event)
    need(milliseconds)
    recordings = (_asked(first), _asked(second))
    if recordings[0] is None or recordings[1] is None or (first.flags | second.flags) & EVENT_DISABLE_TIMING:
        raise CuError(INVALID_HANDLE)
    if not all(r is not None and d.queue.done(r.number) for r in recordings):
        return NOT_READY
    put_f32(milliseconds, (recordings[1].time_ns - recordings[0].time_ns) / _NS_PER_MS)
    return None
