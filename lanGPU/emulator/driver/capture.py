"""Stream capture: operations become nodes of a graph instead of running."""

from __future__ import annotations

import ctypes
from itertools import count
from threading import get_native_id
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.driver.cabi import get_u32, need, put_u32, put_u64
from lanGPU.emulator.driver.graph_memory import leave
from lanGPU.emulator.driver.graphs import check_edges, graph_of, publish, read_nodes
from lanGPU.emulator.driver.nodes import TYPE, Graph, Node, RecordEvent, SubGraph, WaitEvent
from lanGPU.emulator.driver.objects import STREAM_LEGACY, Context, Event, Stream
from lanGPU.emulator.driver.operations import BytesCopy, Copy, Fill, HostFunction, Launch, PitchedCopy
from lanGPU.emulator.driver.registry import in_context, initialized
from lanGPU.emulator.results import (
    ILLEGAL_STATE,
    INVALID_VALUE,
    STREAM_CAPTURE_IMPLICIT,
    STREAM_CAPTURE_INVALIDATED,
    STREAM_CAPTURE_MERGE,
    STREAM_CAPTURE_UNJOINED,
    STREAM_CAPTURE_UNMATCHED,
    STREAM_CAPTURE_UNSUPPORTED,
    STREAM_CAPTURE_WRONG_THREAD,
    CuError,
)

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver
    from lanGPU.emulator.queue import Operation

_STATUS: Final = {name.removeprefix("CU_STREAM_CAPTURE_STATUS_"): value for name, value in ENUMS["CUstreamCaptureStatus"].items()}
_MODES: Final = ENUMS["CUstreamCaptureMode"].values()
_RELAXED: Final = ENUMS["CUstreamCaptureMode"]["CU_STREAM_CAPTURE_MODE_RELAXED"]
_KINDS: Final = {Launch: "KERNEL", Copy: "MEMCPY", BytesCopy: "MEMCPY", PitchedCopy: "MEMCPY", Fill: "MEMSET", HostFunction: "HOST"}
_ids = count(1)


class Capture:
    """One capture: the stream it began in, those that joined, and for each the nodes that its next operation waits for."""

    def __init__(self, d: Driver, origin: Stream, mode: int) -> None:
        self.id = next(_ids)
        self.mode = mode
        self.thread = get_native_id()
        self.graph = Graph()
        self.origin = origin
        self.valid = True
        self.streams: dict[Stream, frozenset[Node]] = {origin: frozenset()}
        self.shown: ctypes.Array[ctypes.c_uint64] | None = None
        self.shown_edges: ctypes.Array[ctypes.c_uint64] | None = None
        self._driver = d
        origin.capture = self
        d.captures.add(self)

    def _check(self) -> None:
        if not self.valid:
            raise CuError(STREAM_CAPTURE_INVALIDATED)

    def invalidate(self) -> None:
        """Something happened that a capture does not survive; its streams stay in it until it is ended."""
        self.valid = False

    def tail(self, stream: Stream) -> frozenset[Node]:
        """The nodes that the next operation of `stream` waits for."""
        self._check()
        return self.streams[stream]

    def _append(self, stream: Stream, kind: str, action: object) -> Node:
        self._check()
        node = self.graph.add(TYPE[kind], action, sorted(self.streams[stream], key=lambda n: n.local_id))
        self.streams[stream] = frozenset({node})
        return node

    def add(self, stream: Stream, operation: Operation) -> None:
        """Adds what would have been queued."""
        kind = _KINDS.get(type(operation))
        if kind is None:
            self.invalidate()
            raise CuError(STREAM_CAPTURE_UNSUPPORTED, f"{operation.label} cannot be captured")
        self._append(stream, kind, operation)

    def add_memory(self, stream: Stream, kind: str, action: object) -> None:
        """Adds a stream-ordered allocation or free."""
        self._append(stream, kind, action)

    def add_child(self, stream: Stream, graph: Graph) -> None:
        """Adds the launch of a graph."""
        clone, _ = graph.clone()
        clone.handle = self._driver.handles.add(clone)
        self._append(stream, "GRAPH", SubGraph(clone))

    def add_record(self, stream: Stream, event: Event) -> None:
        """Adds an event record that is visible outside."""
        self._append(stream, "EVENT_RECORD", RecordEvent(event))

    def add_wait(self, stream: Stream, event: Event) -> None:
        """Adds a wait for an event of outside."""
        self._append(stream, "WAIT_EVENT", WaitEvent(event))

    def join(self, stream: Stream, event: Event) -> None:
        """`stream` waits for an event that was recorded in this capture, and belongs to it from now on."""
        self._check()
        if stream.capture is not None and stream.capture is not self:
            self.invalidate()
            stream.capture.invalidate()
            raise CuError(STREAM_CAPTURE_MERGE)
        if stream.handle == STREAM_LEGACY:
            self.invalidate()
            raise CuError(STREAM_CAPTURE_IMPLICIT)
        stream.capture = self
        self.streams[stream] = self.streams.get(stream, frozenset()) | event.capture_nodes

    def end(self) -> None:
        """Releases the streams."""
        for stream in self.streams:
            stream.capture = None
        self._driver.captures.discard(self)
        for _, event in self._driver.handles.all(Event):
            if event.capture is self:
                event.capture, event.capture_nodes = None, frozenset()

    def unjoined(self) -> bool:
        """Whether work of a joined stream is not waited for by the origin."""
        joined: set[Node] = set()
        todo = list(self.streams[self.origin])
        while todo:
            node = todo.pop()
            if node not in joined:
                joined.add(node)
                todo.extend(node.dependencies)
        return any(not nodes <= joined for nodes in self.streams.values())


@in_context("cuStreamBeginCapture_v2")
def stream_begin_capture(d: Driver, context: Context, handle: int, mode: int) -> None:
    stream = d.stream(context, handle)
    if mode not in _MODES:
        raise CuError(INVALID_VALUE)
    if stream.handle == STREAM_LEGACY:
        raise CuError(STREAM_CAPTURE_UNSUPPORTED)
    if stream.capture is not None:
        raise CuError(ILLEGAL_STATE)
    Capture(d, stream, mode)


@in_context("cuStreamBeginCaptureToGraph")
def stream_begin_capture_to_graph(
    d: Driver, context: Context, handle: int, graph: int, dependencies: int, edges: int, count: int, mode: int
) -> None:
    """The first operation waits for `dependencies`, which are nodes of the graph."""
    found = graph_of(d, graph)
    check_edges(edges, count)
    nodes = frozenset(read_nodes(d, dependencies, count))
    if any(node.graph is not found for node in nodes):
        raise CuError(INVALID_VALUE)
    stream_begin_capture(d, context, handle, mode)
    stream = d.stream(context, handle)
    capture = stream.capture
    assert capture is not None
    capture.graph = found
    capture.streams[stream] = nodes


@in_context("cuStreamEndCapture")
def stream_end_capture(d: Driver, context: Context, handle: int, graph: int) -> None:
    stream = d.stream(context, handle)
    need(graph)
    capture = stream.capture
    if capture is None:
        raise CuError(ILLEGAL_STATE)
    if capture.origin is not stream:
        raise CuError(STREAM_CAPTURE_UNMATCHED)
    if capture.mode != _RELAXED and capture.thread != get_native_id():
        raise CuError(STREAM_CAPTURE_WRONG_THREAD)
    capture.end()
    put_u64(graph, 0)
    if not capture.valid or capture.unjoined():
        if not capture.graph.handle:
            leave(d, capture.graph)
        raise CuError(STREAM_CAPTURE_UNJOINED if capture.valid else STREAM_CAPTURE_INVALIDATED)
    if not capture.graph.handle:
        capture.graph.handle = d.handles.add(capture.graph)
    put_u64(graph, capture.graph.handle)


def _status(stream: Stream) -> int:
    if stream.capture is None:
        return _STATUS["NONE"]
    return _STATUS["ACTIVE" if stream.capture.valid else "INVALIDATED"]


def _asked(d: Driver, context: Context, handle: int) -> Stream:
    """The stream a question is about: asking does not disturb, except for the legacy stream while others capture."""
    return context.legacy if handle in (0, STREAM_LEGACY) and not d.captures else d.stream(context, handle)


@in_context("cuStreamIsCapturing")
def stream_is_capturing(d: Driver, context: Context, handle: int, status: int) -> None:
    put_u32(status, _status(_asked(d, context, handle)))


def _info(d: Driver, context: Context, handle: int, status: int, capture_id: int) -> Capture | None:
    stream = _asked(d, context, handle)
    put_u32(status, _status(stream))
    capture = stream.capture
    if capture is not None and capture_id:
        put_u64(capture_id, capture.id)
    return capture if capture is not None and capture.valid else None


@in_context("cuStreamGetCaptureInfo")
def stream_get_capture_info(d: Driver, context: Context, handle: int, status: int, capture_id: int) -> None:
    _info(d, context, handle, status, capture_id)


@in_context("cuStreamGetCaptureInfo_v2")
def stream_get_capture_info_v2(
    d: Driver, context: Context, handle: int, status: int, capture_id: int, graph: int, dependencies: int, count: int
) -> None:
    stream_get_capture_info_v3(d, context, handle, status, capture_id, graph, dependencies, 0, count)


@in_context("cuStreamGetCaptureInfo_v3")
def stream_get_capture_info_v3(
    d: Driver, context: Context, handle: int, status: int, capture_id: int, graph: int, dependencies: int, edges: int, count: int
) -> None:
    """The array of dependencies is the driver's and valid until the next call on the stream."""
    capture = _info(d, context, handle, status, capture_id)
    if capture is None:
        return
    if graph:
        if not capture.graph.handle:
            capture.graph.handle = d.handles.add(capture.graph)
        put_u64(graph, capture.graph.handle)
    nodes = sorted(capture.streams[d.stream(context, handle)], key=lambda n: n.local_id)
    if dependencies:
        capture.shown = (ctypes.c_uint64 * max(len(nodes), 1))(*(publish(d, node) for node in nodes))
        put_u64(dependencies, ctypes.addressof(capture.shown))
    if edges:
        capture.shown_edges = (ctypes.c_uint64 * max(len(nodes), 1))()  # CUgraphEdgeData, 8 bytes: only plain edges are captured
        put_u64(edges, ctypes.addressof(capture.shown_edges))
    if count:
        put_u64(count, len(nodes))


def _update(d: Driver, context: Context, handle: int, dependencies: int, count: int, flags: int) -> None:
    stream = d.stream(context, handle)
    capture = stream.capture
    if capture is None:
        raise CuError(ILLEGAL_STATE)
    if flags not in (0, 1):
        raise CuError(INVALID_VALUE)
    nodes = frozenset(read_nodes(d, dependencies, count))
    if any(node.graph is not capture.graph for node in nodes):
        raise CuError(INVALID_VALUE)
    capture.streams[stream] = nodes if flags else capture.tail(stream) | nodes


@in_context("cuStreamUpdateCaptureDependencies")
def stream_update_capture_dependencies(d: Driver, context: Context, handle: int, dependencies: int, count: int, flags: int) -> None:
    _update(d, context, handle, dependencies, count, flags)


@in_context("cuStreamUpdateCaptureDependencies_v2")
def stream_update_capture_dependencies_v2(
    d: Driver, context: Context, handle: int, dependencies: int, edges: int, count: int, flags: int
) -> None:
    check_edges(edges, count)
    _update(d, context, handle, dependencies, count, flags)


@initialized("cuThreadExchangeStreamCaptureMode")
def thread_exchange_stream_capture_mode(d: Driver, mode: int) -> None:
    new = get_u32(mode)
    if new not in _MODES:
        raise CuError(INVALID_VALUE)
    thread = get_native_id()
    put_u32(mode, d.capture_modes.get(thread, 0))
    d.capture_modes[thread] = new
