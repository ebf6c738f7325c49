"""Calls that report arrays of handles: the client offers a name for each place, objects that have one keep theirs."""

import struct
from collections.abc import Sequence
from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS
from lanGPU.driverapi.model import ArgKind, HandleType
from lanGPU.server.call import Call, Handles, Prepared, prepare
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.wire.records import HANDLE_TAG, HANDLE_TAG_MASK, NULL_WORD

_NODE_ARRAYS: Final = frozenset({"nodes", "rootNodes", "from", "to", "dependencies", "dependentNodes"})
_COUNTS: Final = frozenset({"numNodes", "numRootNodes", "numEdges", "numDependencies", "numDependentNodes"})


def names_in_force(handles: Handles, handle_type: HandleType, real: Sequence[int], offered: Sequence[int]) -> list[int]:
    """The name of each of the driver's handles: the one it has, else the one offered in its place, which is bound."""
    names = []
    for handle, offer in zip(real, offered, strict=True):
        name = handles.virtual(handle, handle_type) if handle else 0
        if name is None:
            handles.define(offer, handle, handle_type)
            name = offer
        names.append(name)
    return names


def offers(call: Call, name: str) -> list[int]:
    """The names that the client offers in argument `name`; none where its pointer was NULL."""
    blob = call.blob(name)
    found = list(struct.unpack(f"<{len(blob) // 8}Q", blob[: len(blob) // 8 * 8]))
    if any(offer & HANDLE_TAG_MASK != HANDLE_TAG for offer in found):
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{name} offers something that is no name")
    return found


def _array_output(call: Call, prepared: Prepared, name: str) -> bytearray | None:
    """The buffer that the driver filled for argument `name`."""
    position = 0
    for arg, word in zip(call.row.args, call.words, strict=True):
        if arg.kind not in (ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT) or word == NULL_WORD:
            continue
        if arg.name == name:
            data: bytearray = prepared.outputs[position][2]
            return data
        position += 1
    return None


@server_call("cuModuleEnumerateFunctions", "cuLibraryEnumerateKernels")
def enumerate_functions(issuer: Issuer, call: Call) -> Answer:
    """The array: u64 per offered name. Outputs: the names in force."""
    name = "functions" if "functions" in call.row.arg_index else "kernels"
    offered = offers(call, name)
    call.replace(name, bytearray(8 * len(offered)))
    return _run(issuer, call, {name: offered}, HandleType.FUNCTION)


@server_call(
    "cuGraphGetNodes",
    "cuGraphGetRootNodes",
    "cuGraphGetEdges",
    "cuGraphGetEdges_v2",
    "cuGraphNodeGetDependencies",
    "cuGraphNodeGetDependencies_v2",
    "cuGraphNodeGetDependentNodes",
    "cuGraphNodeGetDependentNodes_v2",
)
def graph_arrays(issuer: Issuer, call: Call) -> Answer:
    """Node arrays: u64 per offered name, or NULL; the count says how many places there are. Outputs: names in force, unused places 0."""
    (count_name,) = _COUNTS & call.row.arg_index.keys()
    count = call.blob(count_name)
    if len(count) != 8:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{count_name} is NULL")
    (places,) = struct.unpack("<Q", count)
    offered = {}
    for name in sorted(_NODE_ARRAYS & call.row.arg_index.keys()):
        index = call.row.arg_index[name]
        if call.blobs[index] is None:
            continue
        offered[name] = offers(call, name)
        if len(offered[name]) < places:
            raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{name} has fewer places than announced")
        call.replace(name, bytearray(8 * len(offered[name])))
    edges = call.row.arg_index.get("edgeData")
    if edges is not None and call.words[edges] != NULL_WORD and call.words[edges] < 8 * places:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, "edgeData has fewer places than announced")
    return _run(issuer, call, offered, HandleType.GRAPH_NODE)


def _run(issuer: Issuer, call: Call, offered: dict[str, list[int]], handle_type: HandleType) -> Answer:
    issuer.executor.ensure_thread(call.thread)
    prepared = prepare(call, issuer.executor)
    result = issuer.driver.call(call.symbol, *prepared.args)
    if result == CUDA_SUCCESS:
        for name, offer in offered.items():
            data = _array_output(call, prepared, name)
            assert data is not None
            # The driver says how many it has; places past those hold 0, which has no name.
            real = struct.unpack(f"<{len(offer)}Q", data)
            names = names_in_force(issuer.executor, handle_type, real, offer)
            data[:] = struct.pack(f"<{len(offer)}Q", *names)
    return result, prepared.finish(issuer.executor, result)
