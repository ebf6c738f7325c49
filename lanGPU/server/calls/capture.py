"""Stream capture: what a stream has captured, under names; the program's threads and their capture modes."""

import ctypes
from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS
from lanGPU.driverapi.model import HandleType
from lanGPU.server.call import Call
from lanGPU.server.calls.arrays import names_in_force, offers
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.wire.records import NULL_WORD

_ACTIVE: Final = 1
"""CU_STREAM_CAPTURE_STATUS_ACTIVE"""
_MODES: Final = 3


@server_call("cuStreamGetCaptureInfo_v2", "cuStreamGetCaptureInfo_v3")
def capture_info(issuer: Issuer, call: Call) -> Answer:
    """`graph_out`, `dependencies_out`: u64 per offered name, or NULL. Outputs: status, id, names in force, edges' data, their number."""
    stream = call.translate(issuer.executor, call.word("hStream"), HandleType.STREAM)
    with_edges = "edgeData_out" in call.row.arg_index
    graph_offer, node_offers = offers(call, "graph_out"), offers(call, "dependencies_out")
    wants_edges = with_edges and call.word("edgeData_out") != NULL_WORD
    places = max(len(node_offers), len(call.blob("edgeData_out")) // 8 if wants_edges else 0)
    status, number = ctypes.c_int(0), ctypes.c_uint64(0)
    graph, nodes, edges, count = (ctypes.c_uint64(0) for _ in range(4))
    issuer.executor.ensure_thread(call.thread)
    args = [stream, *(ctypes.addressof(word) for word in (status, number, graph, nodes, *([edges] if with_edges else []), count))]
    result = issuer.driver.call(call.symbol, *args)
    if result != CUDA_SUCCESS:
        return result, b""
    shown = min(count.value, places) if status.value == _ACTIVE else 0
    out = bytearray(status.value.to_bytes(8, "little") + number.value.to_bytes(8, "little"))
    if graph_offer:
        real = [graph.value if status.value == _ACTIVE else 0]
        for name in names_in_force(issuer.executor, HandleType.GRAPH, real, graph_offer[:1]):
            out += name.to_bytes(8, "little")
    if node_offers:
        found = list((ctypes.c_uint64 * shown).from_address(nodes.value)) if shown else []
        real = [*found, *[0] * (len(node_offers) - shown)]
        for name in names_in_force(issuer.executor, HandleType.GRAPH_NODE, real, node_offers):
            out += name.to_bytes(8, "little")
    if wants_edges:
        data = ctypes.string_at(edges.value, 8 * shown) if shown and edges.value else b""
        out += data.ljust(len(call.blob("edgeData_out")), b"\0")
    out += (count.value if status.value == _ACTIVE else 0).to_bytes(8, "little")
    return result, bytes(out)


@server_call("cuThreadExchangeStreamCaptureMode")
def exchange_mode(issuer: Issuer, call: Call) -> Answer:
    """The issuing thread has the most lenient mode of all of the program's threads: no call may fail because another thread's is strict."""
    mode = int.from_bytes(call.blob("mode"), "little")
    if mode >= _MODES:
        raise call.failed(CUDA_ERROR_INVALID_VALUE)
    modes = issuer.state.setdefault("capture modes", {})
    assert isinstance(modes, dict)
    modes[call.thread] = mode
    wanted = ctypes.c_int(max(modes.values()))
    issuer.executor.ensure_thread(call.thread)
    return issuer.driver.call(call.row.name, ctypes.addressof(wanted)), b""
