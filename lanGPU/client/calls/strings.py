"""Strings that must lie in the program's memory: error names and texts, function names."""

from lanGPU.client.calls.effects import CallError, Part, Steps, Syscall, WriteMemory
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, SessionState, u32
from lanGPU.client.syscalls import MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE
from lanGPU.constants import CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS
from lanGPU.driverapi import results

_ROOM_BYTES = 64 * 1024
"""Mapped at a time for strings: all of cuda.h's error names and texts take some 15 KB."""


def map_memory(length: int) -> Part[int]:
    """Anonymous memory in the program; its address. Raises CallError OUT_OF_MEMORY."""
    address = yield Syscall("mmap", (0, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))
    if address <= 0:
        raise CallError(CUDA_ERROR_OUT_OF_MEMORY, f"the program cannot map {length} bytes")
    return int(address)


def take_room(state: SessionState, length: int) -> Part[int]:
    """`length` bytes of the program's memory that are ours for good; their address, a multiple of 8."""
    need = (length + 7) & ~7
    if state.string_room[1] < need:
        size = max(_ROOM_BYTES, (need + 4095) & ~4095)
        state.string_room = ((yield from map_memory(size)), size)
    address, room = state.string_room
    state.string_room = (address + need, room - need)
    return address


def place_string(state: SessionState, text: bytes) -> Part[int]:
    """Address of `text` with a NUL in the program's memory; it stays there for good."""
    found = state.strings.get(text)
    if found is not None:
        return found
    address = yield from take_room(state, len(text) + 1)
    # At once: another thread may be given this address before our thread returns.
    yield WriteMemory(address, text + b"\0", now=True)
    state.strings[text] = address
    return address


def _answer(call: Call, text: str | None, out: int) -> Steps:
    if not out:
        return CUDA_ERROR_INVALID_VALUE
    if text is None:
        yield WriteMemory(out, bytes(8))
        return CUDA_ERROR_INVALID_VALUE
    address = yield from place_string(call.state, text.encode())
    yield WriteMemory(out, address.to_bytes(8, "little"))
    return CUDA_SUCCESS


@client_call("cuGetErrorName", before_init=True)
def get_error_name(call: Call, error: int, out: int) -> Steps:
    """Unknown errors: INVALID_VALUE and NULL."""
    return (yield from _answer(call, results.name(u32(error)) if results.is_known(u32(error)) else None, out))


@client_call("cuGetErrorString", before_init=True)
def get_error_string(call: Call, error: int, out: int) -> Steps:
    """Unknown errors: INVALID_VALUE and NULL."""
    return (yield from _answer(call, results.text(u32(error)) if results.is_known(u32(error)) else None, out))


@client_call("cuFuncGetName", "cuKernelGetName")
def function_get_name(call: Call, out: int, handle: int) -> Steps:
    """The name by which the program asked for the function."""
    function = call.state.functions.get(handle)
    if not out:
        return CUDA_ERROR_INVALID_VALUE
    if function is None:
        return CUDA_ERROR_INVALID_HANDLE
    return (yield from _answer(call, function.name, out))
