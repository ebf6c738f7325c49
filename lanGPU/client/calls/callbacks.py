"""Functions of the program that the device's work calls: host functions and callbacks in streams, host nodes, user objects' destructors.

The server never learns an address of the program: each function is registered under a number, and the number is what comes back. A
thread of the shim's own, made at the first registration, calls the functions; the device's work goes on when it said that one returned.
"""

import struct
from typing import Final

from lanGPU.client.calls.devices import need_pointer, write_u64
from lanGPU.client.calls.effects import (
    CallError,
    CallProgram,
    HostDone,
    LogLine,
    NextHostCall,
    Part,
    Post,
    ReadMemory,
    Request,
    StartThread,
    Steps,
    WriteMemory,
)
from lanGPU.client.calls.graphs import post_node, read_dependencies
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.shared import pull, push
from lanGPU.client.calls.state import Call, Callback
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS
from lanGPU.wire.handshake import CAP_HOST_CALLS

_HOST_NODE: Final = struct.Struct("<QQ")
"""CUDA_HOST_NODE_PARAMS: fn, userData."""


def _ready(call: Call) -> Part[None]:
    """There is a server that calls back and a thread that can be called."""
    state = call.state
    if state.welcome is None or CAP_HOST_CALLS not in state.welcome.caps:
        raise CallError(CUDA_ERROR_NOT_SUPPORTED, "the server is too old to call functions of the program")
    if not state.callbacks.started:
        state.callbacks.started = True
        failure = yield StartThread()
        if failure:
            state.callbacks.started = False
            raise CallError(CUDA_ERROR_NOT_SUPPORTED, f"no thread for host functions can be made in the program: error {failure}")


def _in_stream(call: Call, stream: int, function: int, data: int, *rest: int, passes_status: bool = False) -> Steps:
    if not function:
        return CUDA_ERROR_INVALID_VALUE
    yield from _ready(call)
    state = call.state
    # A captured function belongs to a graph, which may be launched any number of times.
    lasting = state.table.capturing()
    callback = Callback(function, data, call.thread.current, stream if passes_status else None, lasting)
    number = state.callbacks.add(callback)
    state.publish_looks()
    result = yield Post(call.row.name, (stream, 0, number, *rest))
    if result:
        state.callbacks.remove(number)
        state.publish_looks()
    return int(result)


@client_call("cuLaunchHostFunc")
def launch_host_func(call: Call, stream: int, function: int, data: int) -> Steps:
    """Posted: the function runs when the stream gets there."""
    return (yield from _in_stream(call, stream, function, data))


@client_call("cuLaunchHostFunc_v2")
def launch_host_func_v2(call: Call, stream: int, function: int, data: int, mode: int) -> Steps:
    """As cuLaunchHostFunc."""
    return (yield from _in_stream(call, stream, function, data, mode & 0xFFFF_FFFF))


@client_call("cuStreamAddCallback")
def stream_add_callback(call: Call, stream: int, function: int, data: int, flags: int) -> Steps:
    """The function also gets the stream and how its work went."""
    if flags & 0xFFFF_FFFF:
        return CUDA_ERROR_INVALID_VALUE
    return (yield from _in_stream(call, stream, function, data, 0, passes_status=True))


def _node(call: Call, address: int) -> Part[bytes]:
    """A *host node* as it is sent: the callback's number in place of the function and its argument."""
    need_pointer(address)
    function, data = _HOST_NODE.unpack((yield ReadMemory(address, _HOST_NODE.size)))
    if not function:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    yield from _ready(call)
    number = call.state.callbacks.add(Callback(function, data, call.thread.current, None, True))
    call.state.publish_looks()
    return _HOST_NODE.pack(0, number)


@client_call("cuGraphAddHostNode")
def add_host_node(call: Call, out: int, graph: int, dependencies: int, count: int, params: int) -> Steps:
    """A node that calls the program."""
    need_pointer(out)
    nodes = yield from read_dependencies(dependencies, count)
    node = yield from _node(call, params)
    return (yield from post_node(call, call.row.name, out, graph, nodes, (node,)))


@client_call("cuGraphHostNodeSetParams")
def host_node_set_params(call: Call, node: int, params: int) -> Steps:
    """As cuGraphAddHostNode."""
    data = yield from _node(call, params)
    return int((yield Post(call.row.name, (node, data), 0)))


@client_call("cuGraphExecHostNodeSetParams")
def exec_host_node_set_params(call: Call, graph_exec: int, node: int, params: int) -> Steps:
    """As cuGraphAddHostNode."""
    data = yield from _node(call, params)
    return int((yield Post(call.row.name, (graph_exec, node, data), 0)))


@client_call("cuGraphHostNodeGetParams")
def host_node_get_params(call: Call, node: int, params: int) -> Steps:
    """The function that the program gave, by its number."""
    need_pointer(params)
    reply = yield Request(call.row.name, (node, _HOST_NODE.size), 0)
    if reply.result:
        return int(reply.result)
    _, number = _HOST_NODE.unpack_from(reply.outputs)
    callback = call.state.callbacks.find(number)
    if callback is None:
        return CUDA_ERROR_INVALID_VALUE
    yield WriteMemory(params, _HOST_NODE.pack(callback.function, callback.data))
    return CUDA_SUCCESS


@client_call("cuUserObjectCreate")
def user_object_create(call: Call, out: int, pointer: int, destructor: int, references: int, flags: int) -> Steps:
    """An object of the program's that graphs keep alive."""
    need_pointer(out)
    need_pointer(destructor)
    yield from _ready(call)
    state = call.state
    number = state.callbacks.add(Callback(destructor, pointer, call.thread.current, None, False, destructor=True))
    handle = state.names.take()
    # Waited for: the driver may refuse the flags or the count, and then nothing calls the destructor.
    reply = yield Request(call.row.name, (handle, number, 0, references & 0xFFFF_FFFF, flags & 0xFFFF_FFFF), 0)
    if reply.result:
        state.callbacks.remove(number)
        state.names.give_back(handle)
        return int(reply.result)
    yield write_u64(out, handle)
    return CUDA_SUCCESS


def serve(call: Call) -> Steps:
    """The thread in the program that calls its functions: never ends but with the session."""
    state = call.state
    while True:
        event = yield NextHostCall()
        callback = state.callbacks.begin(event.callback)
        if callback is None:
            yield LogLine("warning", f"the server wants callback {event.callback} called, which is not registered", once="callback")
        else:
            shared = bool(state.shared) and not callback.destructor and callback.context in state.contexts
            if shared:
                yield from _bind(call, callback.context)
                yield from pull(call)
            if callback.stream is None:
                yield CallProgram(callback.function, (callback.data,))
            else:
                yield CallProgram(callback.function, (callback.stream, event.status, callback.data))
            if shared:
                yield from push(call)
            state.callbacks.end(callback)
            state.publish_looks()
        if event.call:
            yield HostDone(event.call)


def _bind(call: Call, context: int) -> Part[None]:
    """Make `context` current for the server's copies of what is shared."""
    if call.thread.announced != context:
        call.thread.stack[:] = [context]
        call.thread.announced = context
        call.state.publish_thread(call.thread)
        yield Post("cuCtxSetCurrent", (context,), 0)
