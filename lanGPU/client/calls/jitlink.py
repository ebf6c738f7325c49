"""The driver's linker: log buffers of cuLinkCreate are filled by every later call, the result lies in the program's memory."""

from dataclasses import dataclass, field

from lanGPU.client.calls.devices import need_pointer, write_u64
from lanGPU.client.calls.effects import Post, ReadFile, ReadMemory, ReadString, Request, Steps, Syscall, WriteMemory
from lanGPU.client.calls.images import JitOptions, read_options, write_jit_outputs
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, u32
from lanGPU.client.calls.strings import map_memory
from lanGPU.constants import CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, MAX_RECORD_BYTES
from lanGPU.errors import LanGPUError, RemoteProtocolError

_INPUT_PTX = 1


@dataclass(slots=True)
class Link:
    """One linker: where its logs go and its results lie (address, bytes)."""

    jit: JitOptions
    results: list[tuple[int, int]] = field(default_factory=list)


@client_call("cuLinkCreate_v2")
def create(call: Call, count: int, options: int, values: int, out: int) -> Steps:
    """The buffers of its options stay in use until cuLinkDestroy."""
    need_pointer(out)
    jit = yield from read_options(count, options, values)
    names = call.state.names
    handle = names.take()
    try:
        reply = yield Request("cuLinkCreate_v2", (jit.count, jit.options, jit.values, handle), 0)
        result, _ = yield from write_jit_outputs(reply, jit)
    except LanGPUError:
        names.give_back(handle)
        raise
    if result:
        names.give_back(handle)
        return result
    call.state.links[handle] = Link(jit)
    yield write_u64(out, handle)
    return CUDA_SUCCESS


def _link(call: Call, handle: int) -> Link | None:
    link = call.state.links.get(handle)
    return link if isinstance(link, Link) else None


def _add(call: Call, state: int, kind: int, data: bytes | bytearray, name: bytes | None, options: tuple[int, int, int]) -> Steps:
    link = _link(call, state)
    if link is None:
        return CUDA_ERROR_INVALID_HANDLE
    jit = yield from read_options(*options)
    values = (state, u32(kind), data, len(data), name, jit.count, jit.options, jit.values)
    reply = yield Request("cuLinkAddData_v2", values, 0)
    result, _ = yield from write_jit_outputs(reply, jit, link.jit)
    return result


@client_call("cuLinkAddData_v2")
def add_data(call: Call, state: int, kind: int, data: int, size: int, name: int, count: int, options: int, values: int) -> Steps:
    """The data's size is given."""
    if not data or not size or size > MAX_RECORD_BYTES // 2:
        return CUDA_ERROR_INVALID_VALUE
    content = yield ReadMemory(data, size)
    text = ((yield ReadString(name)) + b"\0") if name else None
    return (yield from _add(call, state, kind, content, text, (count, options, values)))


@client_call("cuLinkAddFile_v2")
def add_file(call: Call, state: int, kind: int, path: int, count: int, options: int, values: int) -> Steps:
    """The file is the client's; its path is the name in logs."""
    need_pointer(path)
    text = yield ReadString(path)
    content = yield ReadFile(text)
    if u32(kind) == _INPUT_PTX and not content.endswith(b"\0"):
        content += b"\0"
    return (yield from _add(call, state, kind, content, text + b"\0", (count, options, values)))


@client_call("cuLinkComplete")
def complete(call: Call, state: int, out: int, size_out: int) -> Steps:
    """The image lives in the program until cuLinkDestroy."""
    link = _link(call, state)
    if link is None:
        return CUDA_ERROR_INVALID_HANDLE
    need_pointer(out)
    reply = yield Request("cuLinkComplete", (state, 0, 0), 0)
    result, rest = yield from write_jit_outputs(reply, link.jit)
    if result:
        return result
    size = int.from_bytes(rest[:8], "little")
    image = rest[8 : 8 + size]
    if len(rest) < 8 or len(image) != size:
        raise RemoteProtocolError("the linker's result is cut off")
    length = (size + 4096) & ~4095
    address = yield from map_memory(length)
    link.results.append((address, length))
    yield WriteMemory(address, image)
    yield write_u64(out, address)
    if size_out:
        yield write_u64(size_out, size)
    return CUDA_SUCCESS


@client_call("cuLinkDestroy")
def destroy(call: Call, state: int) -> Steps:
    """Frees the results."""
    link = _link(call, state)
    if link is None:
        return CUDA_ERROR_INVALID_HANDLE
    del call.state.links[state]
    for address, length in link.results:
        yield Syscall("munmap", (address, length))
    result = yield Post("cuLinkDestroy", (state,), 0)
    call.state.release_name(state)
    return int(result)
