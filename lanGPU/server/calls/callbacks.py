"""Host functions, host nodes and user objects: the driver gets functions of ours that call the client back."""

import struct
from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED
from lanGPU.server.call import Call
from lanGPU.server.callbacks import HostCalls
from lanGPU.server.calls.graphs import translate_nodes
from lanGPU.server.issuer import Answer, Issuer, server_call

_HOST_NODE: Final = struct.Struct("<QQ")
"""CUDA_HOST_NODE_PARAMS: fn, userData."""


def _host_calls(issuer: Issuer, call: Call) -> HostCalls:
    found = issuer.host_calls
    if found is None:
        raise call.failed(CUDA_ERROR_NOT_SUPPORTED, "no client to call back")
    found.listen()
    return found


def _put(call: Call, name: str, address: int) -> None:
    call.words[call.row.arg_index[name]] = address


@server_call("cuLaunchHostFunc", "cuLaunchHostFunc_v2")
def launch_host_func(issuer: Issuer, call: Call) -> Answer:
    """`userData`: the callback's number."""
    _put(call, "fn", _host_calls(issuer, call).host_function)
    return issuer.carry_out(call)


@server_call("cuStreamAddCallback")
def stream_add_callback(issuer: Issuer, call: Call) -> Answer:
    """`userData`: the callback's number."""
    _put(call, "callback", _host_calls(issuer, call).stream_callback)
    return issuer.carry_out(call)


@server_call("cuUserObjectCreate")
def user_object_create(issuer: Issuer, call: Call) -> Answer:
    """`ptr`: the callback's number."""
    _put(call, "destroy", _host_calls(issuer, call).destructor)
    return issuer.carry_out(call)


@server_call("cuGraphAddHostNode", "cuGraphHostNodeSetParams", "cuGraphExecHostNodeSetParams")
def host_node(issuer: Issuer, call: Call) -> Answer:
    """In `nodeParams`, `userData`: the callback's number."""
    data = bytearray(call.blob("nodeParams"))
    if len(data) != _HOST_NODE.size:
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{len(data)} bytes of node parameters")
    _, number = _HOST_NODE.unpack(data)
    _HOST_NODE.pack_into(data, 0, _host_calls(issuer, call).host_function, number)
    call.replace("nodeParams", data)
    if "dependencies" in call.row.arg_index:
        translate_nodes(issuer, call, "dependencies")
    return issuer.carry_out(call)
