"""Module images and JIT options, as modules, libraries and the linker share them."""

import struct
from dataclasses import dataclass, field

from lanGPU.client.calls.devices import need_pointer
from lanGPU.client.calls.effects import CallError, Part, ReadFile, ReadMemory, ReadString, Reply, WriteMemory
from lanGPU.client.calls.state import u32
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED
from lanGPU.driverapi.images import locate
from lanGPU.errors import RemoteProtocolError

JIT_THREADS_PER_BLOCK = 1
JIT_WALL_TIME = 2
JIT_INFO_LOG_BUFFER = 3
JIT_INFO_LOG_BUFFER_SIZE_BYTES = 4
JIT_ERROR_LOG_BUFFER = 5
JIT_ERROR_LOG_BUFFER_SIZE_BYTES = 6
_LOG_BUFFERS = (JIT_INFO_LOG_BUFFER, JIT_ERROR_LOG_BUFFER)
_ARRAYS = (17, 18, 25, 27)
"""CU_JIT_GLOBAL_SYMBOL_NAMES, _ADDRESSES, REFERENCED_KERNEL_NAMES, REFERENCED_VARIABLE_NAMES: pointers to arrays of pointers."""
_MAX_OPTIONS = 256
_HEAD = struct.Struct("<iI")
_ENTRY = struct.Struct("<II")


def read_image(address: int) -> Part[bytes | bytearray]:
    """A whole image from the program's memory: what a wrapper points to, PTX with its NUL. Raises ImageError."""
    need_pointer(address)
    steps = locate(address)
    wanted = next(steps)
    while True:
        data = yield ReadMemory(*wanted)
        try:
            wanted = steps.send(bytes(data))
        except StopIteration as stop:
            location = stop.value
            break
    image = yield ReadMemory(location.address, location.size)
    assert isinstance(image, bytes | bytearray)
    return image


def read_image_file(path: int) -> Part[bytes]:
    """A whole image from a file of the program's; PTX gets its NUL. Raises FileError, ImageError."""
    need_pointer(path)
    data: bytes = yield ReadFile((yield ReadString(path)))
    if data[:4] not in (b"\x7fELF", b"\x50\xed\x55\xba") and not data.endswith(b"\0"):
        data += b"\0"
    return data


@dataclass(slots=True)
class JitOptions:
    """The options of one call: what is sent, and where its outputs go."""

    options: bytes = b""
    values: bytes = b""
    count: int = 0
    value_address: dict[int, int] = field(default_factory=dict)
    """Option -> address of its word in the program's optionValues."""
    buffers: dict[int, int] = field(default_factory=dict)
    """Log buffer option -> address of the buffer."""


def read_options(count_word: int, options: int, values: int) -> Part[JitOptions]:
    """The C arrays of a call. Raises CallError."""
    count = u32(count_word)
    if not count:
        return JitOptions()
    if count > _MAX_OPTIONS or not options or not values:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    kinds = struct.unpack(f"<{count}I", (yield ReadMemory(options, 4 * count)))
    words = list(struct.unpack(f"<{count}Q", (yield ReadMemory(values, 8 * count))))
    out = JitOptions(count=count)
    for i, kind in enumerate(kinds):
        if kind in _ARRAYS:
            raise CallError(CUDA_ERROR_NOT_SUPPORTED, f"JIT option {kind} holds arrays of pointers")
        out.value_address[kind] = values + 8 * i
        if kind in _LOG_BUFFERS:
            out.buffers[kind] = words[i]
            words[i] = 0
    out.options = struct.pack(f"<{count}I", *kinds)
    out.values = struct.pack(f"<{count}Q", *words)
    return out


def write_jit_outputs(reply: Reply, *places: JitOptions) -> Part[tuple[int, bytes]]:
    """Fill log buffers and option values; the first of `places` that has an option gets it.

    Returns the call's own CUresult and what follows the entries. Raises RemoteProtocolError: not the format.
    """
    if reply.result:
        return reply.result, b""
    data = reply.outputs
    try:
        result, entries = _HEAD.unpack_from(data)
        at = _HEAD.size
        found = []
        for _ in range(entries):
            option, length = _ENTRY.unpack_from(data, at)
            at += _ENTRY.size
            if at + length > len(data):
                raise RemoteProtocolError("a JIT output is cut off")
            found.append((option, data[at : at + length]))
            at += (length + 7) & ~7
    except struct.error as exc:
        raise RemoteProtocolError("JIT outputs are cut off") from exc
    for option, content in found:
        for place in places:
            if option in _LOG_BUFFERS:
                if option in place.buffers:
                    if place.buffers[option] and content:
                        yield WriteMemory(place.buffers[option], content)
                    break
            elif option in place.value_address:
                yield WriteMemory(place.value_address[option], content[:8])
                break
    return result, data[at:]
