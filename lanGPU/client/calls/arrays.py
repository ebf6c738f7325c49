"""Calls that report arrays of objects: a name is offered for each place, the server answers with the names in force.

An object that had a name keeps it, and the name offered in its place is free again.
"""

from lanGPU.client.calls.devices import need_pointer, write_u64
from lanGPU.client.calls.effects import CallError, Part, ReadMemory, Request, Steps, WriteMemory
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, Function, u32
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, MAX_HANDLES, MAX_KERNEL_PARAMS_BYTES
from lanGPU.errors import LanGPUError, RemoteProtocolError
from lanGPU.wire.records import Value

EDGE_BYTES = 8
"""struct CUgraphEdgeData."""
_MAX_PARAMS = 4096


class Offer:
    """Names offered for the places of one array."""

    def __init__(self, call: Call, count: int) -> None:
        self._names = call.state.names
        self.handles = [self._names.take() for _ in range(count)]

    @property
    def data(self) -> bytes:
        """As the record carries them."""
        return b"".join(handle.to_bytes(8, "little") for handle in self.handles)

    def settle(self, answer: bytes) -> tuple[int, ...]:
        """Keep the names that were taken, give back the others; returns the handles in force."""
        found = tuple(int.from_bytes(answer[at : at + 8], "little") for at in range(0, len(answer), 8))
        taken = set(found)
        for handle in self.handles:
            if handle not in taken:
                self._names.give_back(handle)
        return found

    def withdraw(self) -> None:
        """Nothing was taken."""
        for handle in self.handles:
            self._names.give_back(handle)


def ask(row: str, offers: list[Offer], values: tuple[Value, ...]) -> Part[tuple[int, bytes]]:
    """(CUresult, outputs) of a request with offered names, which are free again where it fails."""
    try:
        reply = yield Request(row, values, 0)
    except LanGPUError:
        for offer in offers:
            offer.withdraw()
        raise
    if reply.result:
        for offer in offers:
            offer.withdraw()
    return reply.result, reply.outputs


# --- functions of a module, kernels of a library -------------------------------------------------------------------------
def _describe(call: Call, handle: int, owner: int, prefix: str) -> Part[int]:
    """Learn the parameters of a function that was found by enumeration; its name is not known."""
    reply = yield Request(f"{prefix}GetParamCount", (handle, 8), 0)
    if reply.result:
        return int(reply.result)
    count = int.from_bytes(reply.outputs[:8], "little")
    if count > _MAX_PARAMS:
        raise RemoteProtocolError(f"a function of {count} parameters")
    layout = []
    for i in range(count):
        reply = yield Request(f"{prefix}GetParamInfo", (handle, i, 8, 8), 0)
        if reply.result:
            return int(reply.result)
        layout.append((int.from_bytes(reply.outputs[:8], "little"), int.from_bytes(reply.outputs[8:16], "little")))
    packed = max((offset + size for offset, size in layout), default=0)
    if packed > MAX_KERNEL_PARAMS_BYTES:
        raise RemoteProtocolError(f"a function whose parameters take {packed} bytes")
    call.state.publish_function(Function(handle, owner, "", tuple(layout), packed))
    return CUDA_SUCCESS


@client_call("cuModuleEnumerateFunctions", "cuLibraryEnumerateKernels")
def enumerate_functions(call: Call, out: int, count_word: int, owner: int) -> Steps:
    """At most as many as the program has room for."""
    count = u32(count_word)
    need_pointer(out)
    if not count or count > MAX_HANDLES // 4:
        return CUDA_ERROR_INVALID_VALUE
    result, found = yield from functions_of(call, call.row.name, owner, count)
    if result:
        return result
    yield WriteMemory(out, b"".join(handle.to_bytes(8, "little") for handle in found))
    return CUDA_SUCCESS


def functions_of(call: Call, row: str, owner: int, count: int) -> Part[tuple[int, tuple[int, ...]]]:
    """(CUresult, handles) of up to `count` functions of a module, or kernels of a library, each ready for launches."""
    offer = Offer(call, count)
    result, outputs = yield from ask(row, [offer], (offer.data, count, owner))
    if result:
        return result, ()
    found = offer.settle(outputs[: 8 * count])
    prefix = "cuFunc" if row == "cuModuleEnumerateFunctions" else "cuKernel"
    for handle in found:
        if handle and handle not in call.state.functions:
            result = yield from _describe(call, handle, owner, prefix)
            if result:
                return result, ()
            call.state.children.add(owner, f"\0{handle:x}", handle)
    return CUDA_SUCCESS, found


# --- graph nodes ---------------------------------------------------------------------------------------------------------
def _nodes(call: Call, subject: int, arrays: tuple[int, ...], edge_data: int | None, number: int) -> Steps:
    """`arrays`: where the program wants node handles; all NULL: only their number is asked for."""
    need_pointer(number)
    wanted = any(arrays)
    if wanted and not all(arrays):
        return CUDA_ERROR_INVALID_VALUE
    count = int.from_bytes((yield ReadMemory(number, 8)), "little") if wanted else 0
    if count > MAX_HANDLES // 4:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    offers = [Offer(call, count) for _ in arrays] if wanted else []
    values: list[Value] = [subject, *([offer.data for offer in offers] if wanted else [None] * len(arrays))]
    edges = EDGE_BYTES * count if wanted and edge_data else None
    if edge_data is not None:
        values.append(edges)
    values.append(count.to_bytes(8, "little"))
    result, outputs = yield from ask(call.row.name, offers, tuple(values))
    if result:
        return result
    at = 0
    for offer, address in zip(offers, arrays, strict=False):
        piece = outputs[at : at + 8 * count]
        offer.settle(piece)
        yield WriteMemory(address, piece)
        at += 8 * count
    if edges and edge_data:
        yield WriteMemory(edge_data, outputs[at : at + edges])
        at += edges
    found = outputs[at : at + 8]
    if len(found) != 8:
        raise RemoteProtocolError(f"{call.row.name}: an answer of {len(outputs)} bytes")
    yield write_u64(number, int.from_bytes(found, "little"))
    return CUDA_SUCCESS


@client_call("cuGraphGetNodes", "cuGraphGetRootNodes", "cuGraphNodeGetDependencies", "cuGraphNodeGetDependentNodes")
def get_nodes(call: Call, subject: int, nodes: int, number: int) -> Steps:
    """One array."""
    return (yield from _nodes(call, subject, (nodes,), None, number))


@client_call("cuGraphNodeGetDependencies_v2", "cuGraphNodeGetDependentNodes_v2")
def get_nodes_v2(call: Call, subject: int, nodes: int, edge_data: int, number: int) -> Steps:
    """One array and its edges' data."""
    return (yield from _nodes(call, subject, (nodes,), edge_data, number))


@client_call("cuGraphGetEdges")
def get_edges(call: Call, graph: int, from_nodes: int, to_nodes: int, number: int) -> Steps:
    """Two arrays."""
    return (yield from _nodes(call, graph, (from_nodes, to_nodes), None, number))


@client_call("cuGraphGetEdges_v2")
def get_edges_v2(call: Call, graph: int, from_nodes: int, to_nodes: int, edge_data: int, number: int) -> Steps:
    """Two arrays and the edges' data."""
    return (yield from _nodes(call, graph, (from_nodes, to_nodes), edge_data, number))
