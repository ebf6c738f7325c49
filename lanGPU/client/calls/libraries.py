"""Libraries and kernels."""

from lanGPU.client.calls import shared
from lanGPU.client.calls.devices import need_pointer, write_u64
from lanGPU.client.calls.effects import Part, Post, ReadMemory, ReadString, Request, Steps
from lanGPU.client.calls.images import read_image, read_image_file, read_options, write_jit_outputs
from lanGPU.client.calls.modules import get_function
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, u32
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS
from lanGPU.errors import LanGPUError

_MAX_LIBRARY_OPTIONS = 64


def _load(call: Call, out: int, image: bytes | bytearray, args: tuple[int, ...]) -> Steps:
    jit_options, jit_values, jit_count, options, values, count_word = args
    jit = yield from read_options(jit_count, jit_options, jit_values)
    count = u32(count_word)
    if count > _MAX_LIBRARY_OPTIONS or (count and not options):
        return CUDA_ERROR_INVALID_VALUE
    kinds: bytes = (yield ReadMemory(options, 4 * count)) if count else b""
    words: bytes = (yield ReadMemory(values, 8 * count)) if count and values else bytes(8 * count)
    names = call.state.names
    handle = names.take()
    try:
        reply = yield Request("cuLibraryLoadData", (handle, image, jit.options, jit.values, jit.count, kinds, words, count), 0)
        result, _ = yield from write_jit_outputs(reply, jit)
    except LanGPUError:
        names.give_back(handle)
        raise
    if result:
        names.give_back(handle)
        return result
    yield write_u64(out, handle)
    return CUDA_SUCCESS


@client_call("cuLibraryLoadData")
def load_data(call: Call, out: int, code: int, *rest: int) -> Steps:
    """As cuModuleLoadDataEx; library options are passed on."""
    need_pointer(out)
    image = yield from read_image(code)
    return (yield from _load(call, out, image, rest))


@client_call("cuLibraryLoadFromFile")
def load_file(call: Call, out: int, path: int, *rest: int) -> Steps:
    """The file is the client's."""
    need_pointer(out)
    image = yield from read_image_file(path)
    return (yield from _load(call, out, image, rest))


@client_call("cuLibraryUnload")
def unload(call: Call, library: int) -> Steps:
    """Its kernels die with it."""
    result = yield Post("cuLibraryUnload", (library,), 0)
    if not result:
        for item in [item for item in call.state.shared if item.owner == library]:
            yield from shared.destroy(call, item)
        call.state.drop_children(library)
        call.state.release_name(library)
    return int(result)


@client_call("cuLibraryGetKernel")
def get_kernel(call: Call, out: int, library: int, name: int) -> Steps:
    """One handle a kernel."""
    need_pointer(out, name)
    text = yield ReadString(name)
    key = text.decode(errors="replace")
    return (yield from get_function(call, out, "cuLibraryGetKernel", library, key, key, (library, text + b"\0")))


@client_call("cuLibraryGetManaged")
def get_managed(call: Call, out: int, size: int, library: int, name: int) -> Steps:
    """The variable lies at the same address on both sides from the first time on that it is asked for."""
    need_pointer(name)
    if not out and not size:
        return CUDA_ERROR_INVALID_VALUE
    text = yield ReadString(name)
    reply = yield Request("cuLibraryGetManaged", (8, 8, library, text + b"\0"), 0)
    if reply.result:
        return int(reply.result)
    address, length = (int.from_bytes(reply.outputs[at : at + 8], "little") for at in (0, 8))
    if shared.find(call, address) is None:
        yield from shared.adopt(call, address, reply.outputs[16 : 16 + length], library)
    for pointer, value in ((out, address), (size, length)):
        if pointer:
            yield write_u64(pointer, value)
    return CUDA_SUCCESS


@client_call("cuLibraryGetModule")
def get_module(call: Call, out: int, library: int) -> Steps:
    """One handle a library."""
    need_pointer(out)
    handle = yield from _library_module(call, library)
    if handle < 0:
        return -handle
    yield write_u64(out, handle)
    return CUDA_SUCCESS


def _library_module(call: Call, library: int) -> Part[int]:
    """The module's handle, or the CUresult negated."""
    state = call.state
    key = "\0module"  # no kernel has this name
    known = state.children.find(library, key)
    if known is None:
        handle = state.names.take()
        reply = yield Request("cuLibraryGetModule", (handle, library), 0)
        if reply.result:
            state.names.give_back(handle)
            return -int(reply.result)
        known = state.children.find(library, key)
        if known is None:
            known = handle
            state.children.add(library, key, handle)
    return known


@client_call("cuKernelGetFunction")
def kernel_get_function(call: Call, out: int, kernel: int) -> Steps:
    """One handle a kernel."""
    need_pointer(out)
    function = call.state.functions.get(kernel)
    name = function.name if function is not None else ""
    return (yield from get_function(call, out, "cuKernelGetFunction", kernel, "\0function", name, (kernel,)))
