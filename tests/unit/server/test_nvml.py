"""The server's NVML, over a library that answers what the test says."""

import ctypes
import os
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from lanGPU.errors import DriverError
from lanGPU.nvml import results
from lanGPU.nvml.question import Question, decode_answer, decode_question, encode_question
from lanGPU.server.nvml import LIBRARY_NAME, Nvml, own_processes

UUIDS = [bytes(range(16)), bytes(range(16, 32))]
HANDLES = {f"GPU-{uuid.UUID(bytes=unique)}".encode(): 0x7F00_0000_1000 + number for number, unique in enumerate(reversed(UUIDS))}
"""NVML's order is not CUDA's."""


class Library:
    """What ctypes.CDLL would be; functions get ctypes values, as C's would."""

    def __init__(self, init: int = 0, **functions: Callable[..., int]) -> None:
        self.nvmlInit_v2 = lambda: init
        for name, function in functions.items():
            setattr(self, name, function)

    def nvmlDeviceGetHandleByUUID(self, text: bytes, out: Any) -> int:
        if text not in HANDLES:
            return results.ERROR_NOT_FOUND
        out._obj.value = HANDLES[text]
        return 0


def question(name: str, *values: Any) -> Question:
    return decode_question(encode_question(name, values))


def ask(library: Any, name: str, *values: Any, uuids: Callable[[], Sequence[bytes]] = lambda: UUIDS) -> tuple[int, list[bytes]]:
    def load(soname: str) -> Any:
        assert soname == LIBRARY_NAME
        if isinstance(library, Exception):
            raise library
        return library

    asked = question(name, *values)
    return decode_answer(Nvml(uuids, load).ask(asked), asked.sizes)


def test_numbers_come_back_from_the_device_that_cuda_means() -> None:
    seen = []

    def power(device: ctypes.c_void_p, out: ctypes.c_void_p) -> int:
        seen.append(device.value)
        ctypes.c_uint32.from_address(out.value or 0).value = 75_000 + len(seen)
        return 0

    library = Library(nvmlDeviceGetPowerUsage=power)
    assert ask(library, "nvmlDeviceGetPowerUsage", 0, None) == (0, [b"", struct.pack("<I", 75_001)])
    assert ask(library, "nvmlDeviceGetPowerUsage", 1, None) == (0, [b"", struct.pack("<I", 75_002)])
    assert seen == [HANDLES[f"GPU-{uuid.UUID(bytes=unique)}".encode()] for unique in UUIDS]
    assert ask(library, "nvmlDeviceGetPowerUsage", 2, None)[0] == results.ERROR_NOT_FOUND


def test_arguments_by_value_and_structs() -> None:
    def temperature(device: Any, sensor: ctypes.c_uint32, out: ctypes.c_void_p) -> int:
        ctypes.c_uint32.from_address(out.value or 0).value = 40 + sensor.value
        return 0

    def memory(device: Any, out: ctypes.c_void_p) -> int:
        version, _ = struct.unpack("<II", ctypes.string_at(out.value or 0, 8))
        assert version == 0x0200_0028
        ctypes.memmove((out.value or 0) + 8, struct.pack("<4Q", 100, 1, 60, 39), 32)
        return 0

    library = Library(nvmlDeviceGetTemperature=temperature, nvmlDeviceGetMemoryInfo_v2=memory)
    assert ask(library, "nvmlDeviceGetTemperature", 0, 3, None)[1][2] == struct.pack("<I", 43)
    given = struct.pack("<I", 0x0200_0028) + bytes(36)
    result, outputs = ask(library, "nvmlDeviceGetMemoryInfo_v2", 0, given)
    assert (result, outputs[1]) == (0, struct.pack("<I4x4Q", 0x0200_0028, 100, 1, 60, 39))


def test_texts_are_told_the_room_that_there_is() -> None:
    def serial(device: Any, out: ctypes.c_void_p, length: ctypes.c_uint32) -> int:
        if length.value < 5:
            return results.ERROR_INSUFFICIENT_SIZE
        assert length.value <= 4096
        ctypes.memmove(out.value or 0, b"1234\0", 5)
        return 0

    library = Library(nvmlDeviceGetSerial=serial)
    assert ask(library, "nvmlDeviceGetSerial", 0, None, 30)[1][1] == b"1234".ljust(30, b"\0")
    assert ask(library, "nvmlDeviceGetSerial", 0, None, 1 << 31)[1][1][:5] == b"1234\0"
    assert ask(library, "nvmlDeviceGetSerial", 0, None, 4)[0] == results.ERROR_INSUFFICIENT_SIZE
    assert ask(library, "nvmlDeviceGetSerial", 0, None, 0)[0] == results.ERROR_INSUFFICIENT_SIZE


def test_arrays() -> None:
    def clocks(device: Any, count: ctypes.c_void_p, out: ctypes.c_void_p | None) -> int:
        room = ctypes.c_uint32.from_address(count.value or 0)
        given, room.value = room.value, 2
        if out is None or given < 2:
            return results.ERROR_INSUFFICIENT_SIZE
        ctypes.memmove(out.value or 0, struct.pack("<2I", 810, 405), 8)
        return 0

    library = Library(nvmlDeviceGetSupportedMemoryClocks=clocks)
    assert ask(library, "nvmlDeviceGetSupportedMemoryClocks", 0, 0, False) == (7, [b"", struct.pack("<I", 2), b""])
    result, outputs = ask(library, "nvmlDeviceGetSupportedMemoryClocks", 0, 3, True)
    assert (result, outputs[1:]) == (0, [struct.pack("<I", 2), struct.pack("<3I", 810, 405, 0)])


def processes(*pids: int) -> Callable[..., int]:
    def function(device: Any, count: ctypes.c_void_p, out: ctypes.c_void_p) -> int:
        room = ctypes.c_uint32.from_address(count.value or 0)
        assert room.value >= len(pids)
        room.value = len(pids)
        for place, pid in enumerate(pids):
            ctypes.memmove((out.value or 0) + 24 * place, struct.pack("<I4xQII", pid, 1 << 20, 7, 8), 24)
        return 0

    return function


def test_only_the_sessions_own_process_is_told() -> None:
    name = "nvmlDeviceGetComputeRunningProcesses_v3"
    me = os.getpid()
    library = Library(**{name: processes(me + 1, me, me + 2)})
    assert ask(library, name, 0, 0, False) == (7, [b"", struct.pack("<I", 1), b""])
    result, outputs = ask(library, name, 0, 2, True)
    assert (result, outputs[1]) == (0, struct.pack("<I", 1))
    assert outputs[2] == struct.pack("<I4xQII", me, 1 << 20, 7, 8) + bytes(24)
    assert ask(Library(**{name: processes(me + 1)}), name, 0, 0, False) == (0, [b"", bytes(4), b""])
    assert own_processes(b"", 24, me) == []
    library = Library(**{name: lambda *_: results.ERROR_NOT_SUPPORTED})
    assert ask(library, name, 0, 1, True)[0] == results.ERROR_NOT_SUPPORTED


def test_what_is_missing_says_so() -> None:
    def broken() -> Sequence[bytes]:
        raise DriverError("cuDeviceGetCount", 999)

    name = "nvmlDeviceGetPowerUsage"
    assert ask(OSError("no such file"), name, 0, None) == (results.ERROR_LIBRARY_NOT_FOUND, [b"", bytes(4)])
    assert ask(Library(init=9), name, 0, None)[0] == results.ERROR_DRIVER_NOT_LOADED
    assert ask(Library(), name, 0, None)[0] == results.ERROR_FUNCTION_NOT_FOUND
    assert ask(Library(), name, 0, None, uuids=broken)[0] == results.ERROR_UNKNOWN
    assert ask(Library(), name, 0, None, uuids=lambda: [bytes(16)])[0] == results.ERROR_FUNCTION_NOT_FOUND
    library = Library(**{name: lambda *_: 0})
    assert ask(library, name, 0, None, uuids=lambda: [bytes(16)])[0] == results.ERROR_NOT_FOUND
