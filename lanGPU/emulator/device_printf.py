"""What a kernel's printf prints, from its format and the packed arguments that vprintf gets.

The arguments lie as in a C struct, each at a multiple of its size: int 4 bytes, long and long long, double and pointers 8. A float was
made a double by the compiler. The conversion itself is the C library's, as in CUDA ("the final formatting takes place on the host").

Source: CUDA C++ Programming Guide, "Formatted Output".
"""

import ctypes
import re
from collections.abc import Callable
from typing import Final, NamedTuple

MAX_ARGUMENTS: Final = 32
"""Beyond them a conversion is printed as it is written."""
MAX_CONVERSION_BYTES: Final = 65536
"""What one conversion prints at most: a kernel's width or precision is any 32-bit number."""

_CONVERSION: Final = re.compile(
    rb"%(?P<flags>[-# 0+]*)(?P<width>\*|\d+)?(?:\.(?P<precision>\*|\d*))?(?P<size>hh|h|ll|l|j|z|t)?(?P<type>[cdiouxXpeEfFgGaAs%])"
)
_WIDE: Final = (b"l", b"ll", b"j", b"z", b"t")
_INTEGERS: Final = b"diouxX"

_snprintf = ctypes.CDLL(None).snprintf
_snprintf.restype = ctypes.c_int

Read = Callable[[int, int], bytes]
"""``read(address, size)``: bytes that the thread may read; raises where it may not."""
ReadString = Callable[[int], bytes]


class Text(NamedTuple):
    """One printf's output."""

    data: bytes
    arguments: int
    """How many were taken: what printf returns in a kernel."""
    stored_bytes: int
    """Room that the arguments and their strings take in the output buffer."""


class _Arguments:
    def __init__(self, address: int, read: Read) -> None:
        self._address = address
        self._read = read
        self._offset = 0
        self.count = 0
        self.bytes = 0

    def room(self, wanted: int) -> bool:
        return self._address != 0 and self.count + wanted <= MAX_ARGUMENTS

    def next(self, size: int) -> bytes:
        self._offset = -(-self._offset // size) * size
        data = self._read(self._address + self._offset, size)
        self._offset += size
        self.count += 1
        self.bytes += 8
        return data

    def integer(self) -> int:
        return int.from_bytes(self.next(4), "little", signed=True)


def format_text(template: bytes, arguments: int, read: Read, read_string: ReadString) -> Text:
    """`template` with the arguments that lie at device address `arguments` (0: none)."""
    taken = _Arguments(arguments, read)
    strings = 0

    def convert(match: re.Match[bytes]) -> bytes:
        nonlocal strings
        kind, size = match["type"], match["size"] or b""
        if kind == b"%":
            return b"%"
        stars = (match["width"] == b"*") + (match["precision"] == b"*")
        if not taken.room(stars + 1):
            return match[0]
        flags = match["flags"]
        width = _number(match["width"], taken)
        if width is not None and width < 0:  # from an argument: left-justified
            width, flags = -width, flags + b"-"
        precision = _number(match["precision"], taken)
        spec = b"%" + flags
        if width is not None:
            spec += b"%d" % min(width, MAX_CONVERSION_BYTES)
        if precision is not None and precision >= 0:  # a negative one counts as none
            spec += b".%d" % min(precision, MAX_CONVERSION_BYTES)
        if kind == b"s":
            address = int.from_bytes(taken.next(8), "little")
            text = read_string(address) if address else b"(null)"
            strings += len(text) + 1
            return _print(spec + b"s", ctypes.c_char_p(text))
        if kind == b"p":
            return _print(spec + b"p", ctypes.c_void_p(int.from_bytes(taken.next(8), "little")))
        if kind == b"c":
            # Not the C library's: a NUL would end its string.
            return _pad(bytes([taken.integer() & 0xFF]), width or 0, left=b"-" in flags)
        if kind in _INTEGERS:
            if size in _WIDE:
                return _print(spec + b"ll" + kind, ctypes.c_longlong(int.from_bytes(taken.next(8), "little", signed=True)))
            return _print(spec + size + kind, ctypes.c_int(taken.integer()))
        return _print(spec + kind, ctypes.c_double.from_buffer_copy(taken.next(8)))

    data = _CONVERSION.sub(convert, template)
    return Text(data, taken.count, taken.bytes + strings)


def _number(text: bytes | None, taken: _Arguments) -> int | None:
    """A width or precision, which may be an argument."""
    if text is None:
        return None
    return taken.integer() if text == b"*" else int(text[:10] or b"0")


def _pad(text: bytes, width: int, *, left: bool) -> bytes:
    width = min(width, MAX_CONVERSION_BYTES)
    return text.ljust(width) if left else text.rjust(width)


def _print(spec: bytes, value: object) -> bytes:
    """One conversion by the C library."""
    size = _snprintf(None, ctypes.c_size_t(0), spec, value)
    if size < 0:
        return b""
    room = min(size, 2 * MAX_CONVERSION_BYTES) + 1
    buffer = ctypes.create_string_buffer(room)
    _snprintf(buffer, ctypes.c_size_t(room), spec, value)
    return buffer.value
