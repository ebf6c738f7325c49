"""The NVML of this machine, asked for the devices that CUDA serves; loaded and initialised at the first question.

Works from `lanGPU.nvml.functions` alone: no struct is interpreted here but lists of processes. Needs no CUDA context.
"""

import ctypes
import logging
import os
import struct
import sys
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from lanGPU.errors import LanGPUError
from lanGPU.nvml import results
from lanGPU.nvml.functions import MAX_ENTRIES, Function, Kind
from lanGPU.nvml.question import Question, encode_answer

_log = logging.getLogger(__name__)

LIBRARY_NAME: Final = "nvml.dll" if sys.platform == "win32" else "libnvidia-ml.so.1"
_TYPES: Final = {Kind.DEVICE: ctypes.c_void_p, Kind.U32: ctypes.c_uint32, Kind.LENGTH: ctypes.c_uint32}
"""Of what is passed by value; all else is a pointer."""
_PROCESS_ID: Final = struct.Struct("<I")


def own_processes(entries: bytes, size: int, process_id: int) -> list[bytes]:
    """Entries of `size` bytes that begin with `process_id`. Others' ids mean nothing, or the wrong thing, on the client's machine."""
    found = (entries[at : at + size] for at in range(0, len(entries) - size + 1, size))
    return [entry for entry in found if _PROCESS_ID.unpack_from(entry)[0] == process_id]


class Nvml:
    """Answers questions; thread-safe. `uuids`: 16 bytes for every served device, in order."""

    def __init__(self, uuids: Callable[[], Sequence[bytes]], load: Callable[[str], Any] = ctypes.CDLL) -> None:
        self._uuids = uuids
        self._load = load
        self._lock = threading.Lock()
        self._library: Any = None
        self._started: int | None = None
        self._devices: list[int | None] = []

    def _start(self) -> int:
        """nvmlInit's result, or that there is no library; asked once."""
        with self._lock:
            if self._started is None:
                try:
                    self._library = self._load(LIBRARY_NAME)
                    self._started = int(self._library.nvmlInit_v2())
                except (OSError, AttributeError) as exc:
                    _log.warning("this machine has no NVML: %s", exc)
                    self._started = results.ERROR_LIBRARY_NOT_FOUND
                if self._started == results.SUCCESS:
                    try:
                        self._devices = [self._find(unique) for unique in self._uuids()]
                    except LanGPUError as exc:
                        _log.warning("NVML cannot tell which devices are meant: %s", exc)
                        self._started = results.ERROR_UNKNOWN
            return self._started

    def _find(self, unique: bytes) -> int | None:
        """NVML numbers devices in its own order, so a device is found by its UUID; None: NVML does not know it (a MIG instance)."""
        handle = ctypes.c_void_p()
        by_uuid = self._library.nvmlDeviceGetHandleByUUID
        result = by_uuid(f"GPU-{uuid.UUID(bytes=bytes(unique))}".encode(), ctypes.byref(handle))
        return handle.value if result == results.SUCCESS else None

    def ask(self, question: Question) -> bytes:
        """The answer's bytes, as long as the question says."""
        result, outputs = self._ask(question)
        return encode_answer(result, question.sizes, outputs)

    def _ask(self, question: Question) -> tuple[int, list[bytes]]:
        function, values = question.function, list(question.values)
        nothing = [b""] * len(values)
        started = self._start()
        if started != results.SUCCESS:
            return started, nothing
        try:
            entry = getattr(self._library, question.name)
        except AttributeError:
            return results.ERROR_FUNCTION_NOT_FOUND, nothing
        for place, param in enumerate(function.params):
            if param.kind is Kind.DEVICE:
                ordinal = int(values[place] or 0)
                handle = self._devices[ordinal] if ordinal < len(self._devices) else None
                if handle is None:
                    return results.ERROR_NOT_FOUND, nothing
                values[place] = handle
        places = next((place for place, param in enumerate(function.params) if param.kind is Kind.PROCESSES), None)
        if places is None:
            return self._call(entry, function, values, question.sizes)
        return self._call_processes(entry, question, values, places)

    @staticmethod
    def _call(entry: Any, function: Function, values: Sequence[Any], sizes: Sequence[int]) -> tuple[int, list[bytes]]:
        args: list[Any] = []
        buffers: list[Any] = []
        for param, value, size in zip(function.params, values, sizes, strict=True):
            by_value = _TYPES.get(param.kind)
            buffer = None
            if by_value is not None:
                args.append(by_value(value))
            elif param.kind in (Kind.ARRAY, Kind.PROCESSES) and not value:
                args.append(None)
            else:
                # Never empty: a library may look at a buffer that it was told is 0 bytes long.
                buffer = ctypes.create_string_buffer(max(size, 8))
                if param.kind is Kind.COUNT:
                    ctypes.c_uint32.from_buffer(buffer).value = min(int(value), MAX_ENTRIES)
                elif isinstance(value, bytes):
                    ctypes.memmove(buffer, value, len(value))
                args.append(ctypes.c_void_p(ctypes.addressof(buffer)))
            buffers.append(buffer)
        for place, param in enumerate(function.params):
            if param.kind is Kind.LENGTH:  # of the buffer that there is, not of the one that the program has
                args[place] = ctypes.c_uint32(sizes[place - 1])
        result = int(entry(*args))
        return result, [b"" if buffer is None else buffer.raw[:size] for buffer, size in zip(buffers, sizes, strict=True)]

    def _call_processes(self, entry: Any, question: Question, values: list[Any], places: int) -> tuple[int, list[bytes]]:
        """Asks for all processes and answers with this session's only: this one."""
        size = question.function.params[places].size
        room = values[places - 1] if values[places] else 0
        values[places - 1 : places + 1] = [MAX_ENTRIES, True]
        sizes = list(question.sizes)
        sizes[places] = MAX_ENTRIES * size
        result, outputs = self._call(entry, question.function, values, sizes)
        if result != results.SUCCESS:
            return result, outputs
        count = min(int.from_bytes(outputs[places - 1], "little"), MAX_ENTRIES)
        mine = own_processes(outputs[places][: count * size], size, os.getpid())
        outputs[places - 1 : places + 1] = [len(mine).to_bytes(4, "little"), b"".join(mine)]
        return (results.SUCCESS if len(mine) <= room else results.ERROR_INSUFFICIENT_SIZE), outputs
