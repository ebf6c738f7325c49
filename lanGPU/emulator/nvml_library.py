"""The emulated libnvidia-ml.so.1 of this process: a jump table as the emulated driver's, its slots callbacks into `lanGPU.emulator.nvml`.

Arguments are read and results written here, by the kinds in `lanGPU.nvml.functions`.
"""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lanGPU.emulator.driver.cabi import static_string
from lanGPU.emulator.nvml import BODIES, HANDLE, Body, Nvml, NvmlError, Result
from lanGPU.native import jump_table
from lanGPU.nvml import results
from lanGPU.nvml.functions import FUNCTIONS, Kind, Param
from lanGPU.nvml.names import NAMES

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_log = logging.getLogger(__name__)

SONAME: Final = "libnvidia-ml.so.1"
READY_WITHOUT_INIT: Final = frozenset(
    {"nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags", "nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2"}
)
_BY_VALUE: Final = {Kind.U32: ctypes.c_uint32, Kind.LENGTH: ctypes.c_uint32}
_CROPPED: Final = "nvmlSystemGetProcessName"
"""Its text is cut to the buffer, all others fit or are refused."""
_MAX_STRING_BYTES: Final = 256


def image() -> bytes:
    """The library's file; its slots say "uninitialized" until they are filled, and at the process's end."""
    return jump_table.build(SONAME, NAMES, results.ERROR_UNINITIALIZED)


def load(path: Path, driver: Driver) -> ctypes.CDLL:
    """Loads the file at `path` into this process and fills its slots; it stays until the process ends."""
    library = ctypes.CDLL(str(path), mode=os.RTLD_NOW | ctypes.RTLD_GLOBAL)
    callbacks = entry_points(Nvml(driver))
    slots = (ctypes.c_uint64 * len(NAMES)).in_dll(library, jump_table.SLOTS_SYMBOL)
    for number, name in enumerate(NAMES):
        slots[number] = ctypes.cast(callbacks[name], ctypes.c_void_p).value or 0
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(callbacks))  # the slots outlive every module's dictionary
    ctypes.pythonapi.Py_AtExit(ctypes.cast(library[jump_table.CLOSE_SYMBOL], ctypes.c_void_p))
    return library


def entry_points(nvml: Nvml) -> dict[str, Any]:
    """A ctypes callback for every exported name."""
    out: dict[str, Any] = {}
    for name in NAMES:
        function = FUNCTIONS.get(name)
        if name == "nvmlErrorString":
            out[name] = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_uint32)(lambda result: static_string(results.text(result)))
        elif function is None or name not in BODIES:
            out[name] = ctypes.CFUNCTYPE(ctypes.c_int)(_unsupported(nvml, name))
        else:
            types = [_BY_VALUE.get(param.kind, ctypes.c_uint64) for param in function.params]
            out[name] = ctypes.CFUNCTYPE(ctypes.c_int, *types)(_entry(nvml, name, function.params, BODIES[name]))
    return out


def _unsupported(nvml: Nvml, name: str) -> Callable[[], int]:
    def call() -> int:
        _log.debug("%s: an emulated device has nothing to say", name)
        return results.ERROR_NOT_SUPPORTED if nvml.users else results.ERROR_UNINITIALIZED

    return call


def _entry(nvml: Nvml, name: str, params: tuple[Param, ...], body: Body) -> Callable[..., int]:
    def call(*args: int) -> int:
        if not nvml.users and name not in READY_WITHOUT_INIT:
            return results.ERROR_UNINITIALIZED
        try:
            inputs = [_input(nvml, param, arg) for param, arg in zip(params, args, strict=True)]
            outputs = iter(body(nvml, *(value for value in inputs if value is not None)))
            for place, param in enumerate(params):
                if param.kind in (Kind.OUT, Kind.STRUCT):
                    _put(args[place], next(outputs), param.size)
                elif param.kind is Kind.TEXT:
                    room = param.size or args[place + 1]
                    _put_text(args[place], str(next(outputs)), room, crop=name == _CROPPED)
                elif param.kind is Kind.COUNT:
                    _put_entries(args[place], args[place + 1], next(outputs))
        except NvmlError as error:
            return error.result
        except Exception:
            _log.exception("%s failed in the emulated NVML", name)
            return results.ERROR_UNKNOWN
        return results.SUCCESS

    return call


def _input(nvml: Nvml, param: Param, arg: int) -> int | str | bytes | None:
    """What a body is given of an argument; None: nothing, it is an output."""
    kind = param.kind
    if kind is Kind.DEVICE:
        return nvml.device(arg - HANDLE)
    if kind is Kind.LENGTH:
        return None
    if kind is Kind.U32:
        return arg
    if not arg and kind not in (Kind.ARRAY, Kind.PROCESSES):
        raise NvmlError(results.ERROR_INVALID_ARGUMENT)
    if kind is Kind.STRING:
        text = ctypes.string_at(arg)
        if len(text) > _MAX_STRING_BYTES:
            raise NvmlError(results.ERROR_INVALID_ARGUMENT)
        return text.decode(errors="replace")
    if kind is Kind.STRUCT:
        size = ctypes.c_uint32.from_address(arg).value & 0xFF_FFFF
        if size not in param.sizes:
            raise NvmlError(results.ERROR_ARGUMENT_VERSION_MISMATCH)
        return ctypes.string_at(arg, size)
    return None


def _put(address: int, value: Result, size: int) -> None:
    data = value.to_bytes(size, "little") if isinstance(value, int) else value
    if not isinstance(data, bytes) or len(data) != size:
        raise ValueError(f"{value!r} has not {size} bytes")
    ctypes.memmove(address, data, size)


def _put_text(address: int, text: str, room: int, *, crop: bool) -> None:
    data = text.encode() + b"\0"
    if crop and 0 < room < len(data):
        data = data[: room - 1] + b"\0"
    if len(data) > room:
        raise NvmlError(results.ERROR_INSUFFICIENT_SIZE)
    ctypes.memmove(address, data, len(data))


def _put_entries(count: int, array: int, entries: Result) -> None:
    if not isinstance(entries, list):
        raise ValueError(f"{entries!r} are no entries")
    number = ctypes.c_uint32.from_address(count)
    room, number.value = number.value if array else 0, len(entries)
    if len(entries) > room:
        raise NvmlError(results.ERROR_INSUFFICIENT_SIZE)
    if entries:
        ctypes.memmove(array, b"".join(entries), sum(map(len, entries)))
