"""Functions of CUDA's device runtime that have no PTX: vprintf, __assertfail, malloc and free. Compiled code calls back for them.

Source: PTX Writer's Guide to Interoperability, "System Calls".
"""

import ctypes
import logging
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from lanGPU.emulator.device_printf import format_text
from lanGPU.emulator.kernel_output import STDERR, STDOUT
from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx.syntax import Function

if TYPE_CHECKING:
    from lanGPU.emulator.ptx.allocations import AllocationMap

logger = logging.getLogger(__name__)


class Heap(Protocol):
    """Where kernels' malloc and free work."""

    def allocate(self, size: int) -> int: ...

    def free(self, address: int) -> bool: ...


class Output(Protocol):
    """Where kernels print."""

    def add(self, descriptor: int, text: bytes, stored_bytes: int) -> bool: ...


class Services(Protocol):
    """What a kernel that uses these functions is launched with."""

    @property
    def heap(self) -> Heap | None: ...

    @property
    def output(self) -> Output: ...


@dataclass(frozen=True, slots=True)
class SystemFunction:
    """Its number for the call back, and the bytes of its parameters and result (0: none)."""

    number: int
    parameters: tuple[int, ...]
    result: int

    def matches(self, declared: Function) -> bool:
        """Whether a module declares it as it is."""
        returns = tuple(v.size for v in declared.returns)
        return tuple(v.size for v in declared.params) == self.parameters and returns == ((self.result,) if self.result else ())


PRINT: Final = 0
ASSERT: Final = 1
ALLOCATE: Final = 2
FREE: Final = 3
SYSTEM_FUNCTIONS: Final = {
    "vprintf": SystemFunction(PRINT, (8, 8), 4),
    "__assertfail": SystemFunction(ASSERT, (8, 8, 4, 8, 8), 0),
    "malloc": SystemFunction(ALLOCATE, (8,), 8),
    "free": SystemFunction(FREE, (8,), 0),
}
HEAP_FUNCTIONS: Final = frozenset({"malloc", "free"})
MAX_PARAMETERS: Final = 5

# vprintf's results besides a number of arguments.
_NO_FORMAT: Final = -1
_INTERNAL_ERROR: Final = -2

_MAX_STRING_BYTES: Final = 1 << 20


class _BadAddressError(Exception):
    """The thread may not read there; `args[0]` is the address."""


_launches: dict[int, tuple[Services, "AllocationMap"]] = {}
"""Address of a worker's context → what its launch has."""

_CALLBACK: Final = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int, ctypes.c_int)


def enter(context: int, services: Services, allocations: "AllocationMap") -> None:
    """From here on the worker with this context may call system functions."""
    _launches[context] = (services, allocations)


def leave(context: int) -> None:
    """The worker's launch ended."""
    _launches.pop(context, None)


class _Thread:
    """What the calling thread may read."""

    def __init__(self, context: int, allocations: "AllocationMap") -> None:
        self._allocations = allocations
        fields = ctypes.string_at(context, c.SITES)
        shared, shared_bytes = struct.unpack_from("<QQ", fields, c.SHARED)
        arena, _, arena_end, depot, depot_end = struct.unpack_from("<5Q", fields, c.ARENA)
        self._windows: tuple[tuple[int, int], ...] = ((shared, shared + shared_bytes), (arena, arena_end), (depot, depot_end))
        self.block: tuple[int, ...] = struct.unpack_from("<3I", fields, c.CTAID)

    def room(self, address: int) -> int:
        """Readable bytes from `address` on.

        Raises:
            _BadAddressError: there are none.
        """
        for start, end in self._windows:
            if start <= address < end:
                return end - address
        found = self._allocations.find(address)
        if found is None:
            raise _BadAddressError(address)
        start, size = found
        return start + size - address

    def read(self, address: int, size: int) -> bytes:
        if self.room(address) < size:
            raise _BadAddressError(address)
        return ctypes.string_at(address, size)

    def string(self, address: int) -> bytes:
        """Up to a NUL."""
        room = self.room(address)
        out = bytearray()
        while room > 0 and len(out) < _MAX_STRING_BYTES:
            piece = ctypes.string_at(address + len(out), min(room, 256))
            text, end, _ = piece.partition(b"\0")
            out += text
            if end:
                return bytes(out)
            room -= len(piece)
        raise _BadAddressError(address + len(out))


def _serve(context: int, number: int, arguments: int, tx: int, ty: int, tz: int) -> int:
    """What compiled code calls: (context, function, i64 arguments, whose first word becomes the result) → FAULT_* or 0."""
    words: Any = (ctypes.c_uint64 * MAX_PARAMETERS).from_address(arguments)
    try:
        services, allocations = _launches[context]
        if number == ALLOCATE:
            words[0] = services.heap.allocate(words[0]) if services.heap else 0
            return 0
        if number == FREE:
            address = words[0]
            if address and (services.heap is None or not services.heap.free(address)):
                return c.FAULT_ILLEGAL_ADDRESS
            return 0
        thread = _Thread(context, allocations)
        if number == PRINT:
            words[0] = _print(services.output, thread, words[0], words[1]) & 0xFFFFFFFF
            return 0
        message, file, function = (thread.string(words[n]) if words[n] else b"" for n in (0, 1, 3))
        bx, by, bz = thread.block
        where = b"%s:%d: %s: block: [%d,%d,%d], thread: [%d,%d,%d]" % (file, words[2], function, bx, by, bz, tx, ty, tz)
        services.output.add(STDERR, b"%s Assertion `%s` failed.\n" % (where, message), len(where) + len(message))
        return c.FAULT_ASSERT
    except _BadAddressError as exc:
        words[0] = exc.args[0]
        return c.FAULT_ILLEGAL_ADDRESS
    except BaseException:
        # Nothing may pass through machine code; the kernel ends as one that went wrong.
        logger.exception("a function of the device runtime failed")
        return c.FAULT_TRAP


def _print(output: Output, thread: _Thread, template: int, arguments: int) -> int:
    if not template:
        return _NO_FORMAT
    text = format_text(thread.string(template), arguments, thread.read, thread.string)
    return text.arguments if output.add(STDOUT, text.data, text.stored_bytes) else _INTERNAL_ERROR


_callback = _CALLBACK(_serve)
SERVE: Final = ctypes.cast(_callback, ctypes.c_void_p).value or 0
"""Address of `_serve` as a C function."""
