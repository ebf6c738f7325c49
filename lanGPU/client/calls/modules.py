"""Modules and their functions. A function's name is given once; its parameter layout reaches the shim before the program learns it."""

import struct

from lanGPU.client.calls.devices import need_pointer, write_u64
from lanGPU.client.calls.effects import LogLine, Part, Post, ReadString, Reply, Request, Steps
from lanGPU.client.calls.images import read_image, read_image_file, read_options, write_jit_outputs
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, Function, Layout
from lanGPU.constants import CUDA_SUCCESS, MAX_KERNEL_PARAMS_BYTES
from lanGPU.errors import LanGPUError, RemoteProtocolError
from lanGPU.wire.records import Value

_LAYOUT_HEAD = struct.Struct("<II")
_UNKNOWN_LAYOUT = 0xFFFF_FFFF
_MAX_PARAMS = 4096
"""cuda.h names no limit; 32764 bytes hold no more than some thousand scalars."""


def create(call: Call, out: int, row: str, values: tuple[Value, ...]) -> Part[tuple[int, Reply]]:
    """Send a creation whose first argument is the new handle; returns (handle, reply), the name given back where it failed."""
    names = call.state.names
    handle = names.take()
    try:
        reply = yield Request(row, (handle, *values), 0)
    except LanGPUError:
        names.give_back(handle)
        raise
    if reply.result:
        names.give_back(handle)
        return 0, reply
    yield write_u64(out, handle)
    return handle, reply


def load_plain(call: Call, out: int, row: str, image: bytes | bytearray) -> Steps:
    """A load without options."""
    _, reply = yield from create(call, out, row, (image,))
    return int(reply.result)


@client_call("cuModuleLoadData", "cuModuleLoadFatBinary")
def load_data(call: Call, out: int, address: int) -> Steps:
    """The image's size is found in it."""
    need_pointer(out)
    image = yield from read_image(address)
    return (yield from load_plain(call, out, call.row.name, image))


@client_call("cuModuleLoad")
def load_file(call: Call, out: int, path: int) -> Steps:
    """The file is the client's."""
    need_pointer(out)
    image = yield from read_image_file(path)
    return (yield from load_plain(call, out, "cuModuleLoadData", image))


@client_call("cuModuleLoadDataEx")
def load_data_ex(call: Call, out: int, address: int, count: int, options: int, values: int) -> Steps:
    """Log buffers are filled whether the load succeeds or not."""
    need_pointer(out)
    image = yield from read_image(address)
    jit = yield from read_options(count, options, values)
    names = call.state.names
    handle = names.take()
    try:
        reply = yield Request("cuModuleLoadDataEx", (handle, image, jit.count, jit.options, jit.values), 0)
        result, _ = yield from write_jit_outputs(reply, jit)
    except LanGPUError:
        names.give_back(handle)
        raise
    if result:
        names.give_back(handle)
        return result
    yield write_u64(out, handle)
    return CUDA_SUCCESS


@client_call("cuModuleUnload")
def unload(call: Call, module: int) -> Steps:
    """Its functions die with it."""
    result = yield Post("cuModuleUnload", (module,), 0)
    if not result:
        call.state.drop_children(module)
        call.state.release_name(module)
    return int(result)


# --- functions ---------------------------------------------------------------------------------------------------------
def parse_layout(data: bytes) -> tuple[Layout | None, int]:
    """A *function layout* of the server's: parameters (None: unknown) and bytes of the packed buffer. Raises RemoteProtocolError."""
    try:
        count, packed = _LAYOUT_HEAD.unpack_from(data)
        if count == _UNKNOWN_LAYOUT:
            return None, 0
        if count > _MAX_PARAMS or packed > MAX_KERNEL_PARAMS_BYTES:
            raise RemoteProtocolError(f"a function of {count} parameters in {packed} bytes")
        words = struct.unpack_from(f"<{2 * count}I", data, _LAYOUT_HEAD.size)
    except struct.error as exc:
        raise RemoteProtocolError("a function layout is cut off") from exc
    layout = tuple(zip(words[::2], words[1::2], strict=True))
    if any(offset + size > packed for offset, size in layout):
        raise RemoteProtocolError("a parameter lies outside of its buffer")
    return layout, packed


def get_function(call: Call, out: int, row: str, owner: int, key: str, name: str, values: tuple[Value, ...]) -> Steps:
    """The handle of a function in `owner`; asked for again, it is the same."""
    state = call.state
    known = state.children.find(owner, key)
    if known is None:
        handle = state.names.take()
        try:
            reply = yield Request(row, (handle, *values), 0)
            if reply.result:
                state.names.give_back(handle)
                return int(reply.result)
            layout, packed = parse_layout(reply.outputs)
        except LanGPUError:
            state.names.give_back(handle)
            raise
        known = state.children.find(owner, key)
        if known is None:
            known = handle
            function = Function(handle, owner, name, layout, packed)
            if not state.publish_function(function):
                yield LogLine("warning", f"the parameters of kernel {name} are not known: only launches with `extra` will work")
            state.children.add(owner, key, handle)
    yield write_u64(out, known)
    return CUDA_SUCCESS


@client_call("cuModuleGetFunction")
def module_get_function(call: Call, out: int, module: int, name: int) -> Steps:
    """NOT_FOUND is the server's word."""
    need_pointer(out, name)
    text = yield ReadString(name)
    key = text.decode(errors="replace")
    return (yield from get_function(call, out, "cuModuleGetFunction", module, key, key, (module, text + b"\0")))
