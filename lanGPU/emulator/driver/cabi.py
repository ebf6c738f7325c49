"""Reading and writing the program's memory through raw addresses, as C code would."""

import ctypes
import struct
from ctypes import c_float, c_int32, c_uint32, c_uint64, string_at
from typing import Final

from lanGPU.constants import MAX_CSTRING_BYTES
from lanGPU.emulator.results import INVALID_VALUE, CuError

memmove: Final = ctypes.memmove
memset: Final = ctypes.memset


def need(pointer: int) -> int:
    """`pointer` unless it is NULL: CUDA_ERROR_INVALID_VALUE."""
    if not pointer:
        raise CuError(INVALID_VALUE)
    return pointer


def put_u64(pointer: int, value: int) -> None:
    """``*(uint64_t *)pointer = value``; NULL answers INVALID_VALUE."""
    c_uint64.from_address(need(pointer)).value = value


def put_u32(pointer: int, value: int) -> None:
    """``*(uint32_t *)pointer = value``; NULL answers INVALID_VALUE."""
    c_uint32.from_address(need(pointer)).value = value


def put_i32(pointer: int, value: int) -> None:
    """``*(int *)pointer = value``; NULL answers INVALID_VALUE."""
    c_int32.from_address(need(pointer)).value = value


def put_f32(pointer: int, value: float) -> None:
    """``*(float *)pointer = value``; NULL answers INVALID_VALUE."""
    c_float.from_address(need(pointer)).value = value


def put_bytes(pointer: int, data: bytes) -> None:
    """Copies `data` to `pointer`; NULL answers INVALID_VALUE."""
    memmove(need(pointer), data, len(data))


def get_u64(pointer: int) -> int:
    """``*(uint64_t *)pointer``; NULL answers INVALID_VALUE."""
    return c_uint64.from_address(need(pointer)).value


def get_u32(pointer: int) -> int:
    """``*(uint32_t *)pointer``; NULL answers INVALID_VALUE."""
    return c_uint32.from_address(need(pointer)).value


def get_bytes(pointer: int, size: int) -> bytes:
    """`size` bytes at `pointer`; NULL answers INVALID_VALUE."""
    return string_at(need(pointer), size)


def get_cstring(pointer: int) -> str:
    """The NUL-terminated string at `pointer`; NULL or one without end in MAX_CSTRING_BYTES answers INVALID_VALUE."""
    data = string_at(need(pointer))
    if len(data) >= MAX_CSTRING_BYTES:
        raise CuError(INVALID_VALUE)
    return data.decode("utf-8", errors="surrogateescape")


def get_struct(layout: struct.Struct, pointer: int) -> tuple[int, ...]:
    """The members of the struct at `pointer`; NULL answers INVALID_VALUE."""
    return layout.unpack(string_at(need(pointer), layout.size))


def put_cstring(pointer: int, text: str, capacity: int) -> None:
    """Copies `text`, cut to `capacity` bytes with its NUL; NULL or no room answers INVALID_VALUE."""
    if capacity <= 0:
        raise CuError(INVALID_VALUE)
    put_bytes(pointer, text.encode()[: capacity - 1] + b"\0")


_interned: dict[str, ctypes.Array[ctypes.c_char]] = {}


def static_string(text: str) -> int:
    """The address of a C string that lives as long as the process."""
    buffer = _interned.get(text)
    if buffer is None:
        buffer = _interned.setdefault(text, ctypes.create_string_buffer(text.encode("utf-8", errors="surrogateescape")))
    return ctypes.addressof(buffer)
