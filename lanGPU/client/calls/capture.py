"""Stream capture: what a stream has captured so far, and each thread's capture mode."""

from lanGPU.client.calls.arrays import EDGE_BYTES, Offer, ask
from lanGPU.client.calls.devices import need_pointer, write_i32, write_u64
from lanGPU.client.calls.effects import Part, Post, ReadMemory, Steps, WriteMemory
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call
from lanGPU.client.calls.strings import map_memory
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, MAX_HANDLES
from lanGPU.errors import RemoteProtocolError
from lanGPU.wire.records import Value

_PLACES = 16
"""Dependencies asked for at first: a stream rarely waits for more."""
_ROOM_BYTES = 4096
_ACTIVE = 1
"""CU_STREAM_CAPTURE_STATUS_ACTIVE."""
_MODES = 3
"""CU_STREAM_CAPTURE_MODE_GLOBAL, THREAD_LOCAL, RELAXED."""


@client_call("cuThreadExchangeStreamCaptureMode")
def exchange_mode(call: Call, mode: int) -> Steps:
    """Swaps the thread's mode with the program's word."""
    need_pointer(mode)
    wanted = int.from_bytes((yield ReadMemory(mode, 4)), "little")
    if wanted >= _MODES:
        return CUDA_ERROR_INVALID_VALUE
    yield write_i32(mode, call.thread.capture_mode)
    if wanted != call.thread.capture_mode:
        call.thread.capture_mode = wanted
        yield Post("cuThreadExchangeStreamCaptureMode", (wanted.to_bytes(4, "little"),), 0)
    return CUDA_SUCCESS


@client_call("cuStreamGetCaptureInfo_v2")
def capture_info_v2(call: Call, stream: int, status: int, number: int, graph: int, nodes: int, count: int) -> Steps:
    """As version 3, which knows of edges' data."""
    return (yield from _capture_info(call, stream, status, number, graph, nodes, None, count))


@client_call("cuStreamGetCaptureInfo_v3")
def capture_info_v3(call: Call, stream: int, status: int, number: int, graph: int, nodes: int, edges: int, count: int) -> Steps:
    """The arrays are valid until the thread's next call of this kind."""
    return (yield from _capture_info(call, stream, status, number, graph, nodes, edges, count))


def _capture_info(call: Call, stream: int, status: int, number: int, graph: int, nodes: int, edges: int | None, count: int) -> Steps:
    need_pointer(status)
    places = _PLACES if nodes or edges else 0
    while True:
        offers = [Offer(call, 1) if graph else None, Offer(call, places) if places else None]
        data = [offer.data if offer else None for offer in offers]
        values: list[Value] = [stream, 4, 8, data[0], data[1]]
        if edges is not None:
            values.append(bytes(EDGE_BYTES * places) if places else None)
        values.append(places.to_bytes(8, "little"))
        result, out = yield from ask(call.row.name, [offer for offer in offers if offer], tuple(values))
        if result:
            return result
        view, at = memoryview(out), 16
        state, identity = int.from_bytes(view[:4], "little"), int.from_bytes(view[8:16], "little")
        captured = found = b""
        if offers[0]:
            captured = bytes(view[at : at + 8])
            offers[0].settle(captured)
            at += 8
        if offers[1]:
            found = bytes(view[at : at + 8 * places])
            offers[1].settle(found)
            at += 8 * places
        edge_data = bytes(view[at : at + EDGE_BYTES * places]) if edges is not None and places else b""
        at += len(edge_data)
        total = int.from_bytes(view[at : at + 8], "little")
        if len(view) < at + 8 or total > MAX_HANDLES // 4:
            raise RemoteProtocolError(f"{call.row.name}: an answer of {len(view)} bytes")
        if total <= places or not places:
            break
        places = total  # once more, with room for all
    yield write_i32(status, state)
    if state != _ACTIVE:
        return CUDA_SUCCESS
    if number:
        yield write_u64(number, identity)
    if graph:
        yield WriteMemory(graph, captured)
    if count:
        yield write_u64(count, total)
    if nodes or edges:
        room = yield from _room(call, (8 + EDGE_BYTES) * places)
        yield WriteMemory(room, found + edge_data, now=True)
        if nodes:
            yield write_u64(nodes, room)
        if edges:
            yield write_u64(edges, room + 8 * places)
    return CUDA_SUCCESS


def _room(call: Call, size: int) -> Part[int]:
    """Memory in the program for the arrays that this thread asks for."""
    rooms = call.state.capture_rooms
    address, have = rooms.get(call.thread.slot, (0, 0))
    if have < size:
        have = max(_ROOM_BYTES, (size + 4095) & -4096)
        address = yield from map_memory(have)
        rooms[call.thread.slot] = address, have
    return address
