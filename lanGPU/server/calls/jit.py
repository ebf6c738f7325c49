"""JIT options: the C arrays of the client, log buffers of ours in the places of its pointers, and what the driver wrote, for the reply."""

import ctypes
import struct
from typing import Any, Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED
from lanGPU.driverapi.enums import ENUMS
from lanGPU.server.call import Call
from lanGPU.wire.records import pad8

_OPTION: Final = ENUMS["CUjit_option"]
_LOG_SIZES: Final = {
    _OPTION["CU_JIT_INFO_LOG_BUFFER"]: _OPTION["CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES"],
    _OPTION["CU_JIT_ERROR_LOG_BUFFER"]: _OPTION["CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"],
}
_NAME_ARRAYS: Final = frozenset(
    _OPTION[f"CU_JIT_{name}"]
    for name in ("GLOBAL_SYMBOL_NAMES", "GLOBAL_SYMBOL_ADDRESSES", "REFERENCED_KERNEL_NAMES", "REFERENCED_VARIABLE_NAMES")
)
_WRITTEN: Final = {
    _OPTION["CU_JIT_THREADS_PER_BLOCK"]: 4,
    _OPTION["CU_JIT_WALL_TIME"]: 4,
    _OPTION["CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES"]: 8,
    _OPTION["CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES"]: 8,
}
"""Options whose value the driver replaces, and how many bytes of it count."""
MAX_LOG_BYTES: Final = 1 << 20
"""More than any compiler's messages that a person reads; programs ask for 1 to 64 KiB."""
MAX_OPTIONS: Final = 64


class JitOptions:
    """Options of one call, in memory that the driver may write to while this object lives.

    Raises:
        DriverError: CUDA_ERROR_NOT_SUPPORTED for options with arrays of names, CUDA_ERROR_INVALID_VALUE for arrays that do not fit.
    """

    def __init__(self, call: Call, count: str, options: str, values: str) -> None:
        self.count = call.word(count) & 0xFFFF_FFFF
        keys, words = call.blob(options), call.blob(values)
        if self.count > MAX_OPTIONS or len(keys) < 4 * self.count or len(words) < 8 * self.count:
            raise call.failed(CUDA_ERROR_INVALID_VALUE, f"{self.count} options in {len(keys)} and {len(words)} bytes")
        self._keys = struct.unpack_from(f"<{self.count}i", keys)
        self._options = (ctypes.c_int * max(self.count, 1))(*self._keys)
        self._values = (ctypes.c_uint64 * max(self.count, 1))(*struct.unpack_from(f"<{self.count}Q", words))
        self._logs: dict[int, Any] = {}
        sizes = {key: self._values[i] & 0xFFFF_FFFF for i, key in enumerate(self._keys)}
        for i, key in enumerate(self._keys):
            if key in _NAME_ARRAYS:
                raise call.failed(CUDA_ERROR_NOT_SUPPORTED, f"JIT option {key} holds pointers to names")
            if key in _LOG_SIZES:
                capacity = min(sizes.get(_LOG_SIZES[key], 0), MAX_LOG_BYTES)
                self._logs[i] = buffer = ctypes.create_string_buffer(max(capacity, 1))
                self._values[i] = ctypes.addressof(buffer)
        for i, key in enumerate(self._keys):
            if key in _LOG_SIZES.values():
                self._values[i] = min(self._values[i] & 0xFFFF_FFFF, MAX_LOG_BYTES)

    @property
    def args(self) -> tuple[int, int]:
        """Addresses of the option and the value array; NULL without options."""
        return (ctypes.addressof(self._options), ctypes.addressof(self._values)) if self.count else (0, 0)

    def outputs(self, result: int, tail: bytes = b"") -> bytes:
        """*JIT outputs* of docs/internals.md: the call's real result and what the driver wrote; `tail` follows."""
        entries = []
        for i, key in enumerate(self._keys):
            if i in self._logs:
                data = self._logs[i].value + b"\0"
            elif key in _WRITTEN:
                data = struct.pack("<Q", self._values[i])[: _WRITTEN[key]]
            else:
                continue
            entries.append(struct.pack("<II", key, len(data)) + data.ljust(pad8(len(data)), b"\0"))
        return struct.pack("<iI", result, len(entries)) + b"".join(entries) + tail
