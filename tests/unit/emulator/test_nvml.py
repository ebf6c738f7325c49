"""The emulated NVML through its C entry points, in this process."""

import ctypes
import os
from collections.abc import Iterator
from typing import Any

import pytest

from lanGPU.emulator import nvml
from lanGPU.emulator.config import DEVICE_NAME, EmulatorConfig
from lanGPU.emulator.driver import Driver
from lanGPU.emulator.memory import Kind
from lanGPU.emulator.nvml import BODIES, Nvml
from lanGPU.emulator.nvml_library import entry_points
from lanGPU.nvml.functions import FUNCTIONS
from lanGPU.nvml.names import NAMES

TOTAL = 64 << 20


class Entries:
    """`nvmlX(...)` as C would call it."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self._callbacks = entry_points(Nvml(driver))

    def __getattr__(self, name: str) -> Any:
        return self._callbacks[name]


@pytest.fixture
def n() -> Iterator[Entries]:
    driver = Driver(EmulatorConfig(2, TOTAL, 2))
    yield Entries(driver)
    driver.queue.finish()


def device(n: Entries, index: int = 0) -> int:
    handle = ctypes.c_uint64()
    assert n.nvmlDeviceGetHandleByIndex_v2(index, ctypes.addressof(handle)) == 0
    return handle.value


def test_every_name_has_an_entry_and_every_local_row_a_body(n: Entries) -> None:
    assert set(entry_points(Nvml(n.driver))) == set(NAMES)
    assert {name for name, function in FUNCTIONS.items() if function.local} - set(BODIES) == {"nvmlErrorString"}


def test_nothing_before_init_and_nothing_after_shutdown(n: Entries) -> None:
    count = ctypes.c_uint32(77)
    where = ctypes.addressof(count)
    assert n.nvmlDeviceGetCount_v2(where) == 1
    assert n.nvmlDeviceGetMigMode() == 1
    assert n.nvmlInit_v2() == 0
    assert n.nvmlInitWithFlags(1) == 0
    assert n.nvmlDeviceGetCount_v2(where) == 0
    assert count.value == 2
    assert n.nvmlDeviceGetMigMode() == 3
    assert n.nvmlShutdown() == 0
    assert n.nvmlDeviceGetCount_v2(where) == 0
    assert n.nvmlShutdown() == 0
    assert n.nvmlDeviceGetCount_v2(where) == 1
    assert n.nvmlShutdown() == 1


def test_bad_arguments(n: Entries) -> None:
    n.nvmlInit_v2()
    out = ctypes.create_string_buffer(96)
    where = ctypes.addressof(out)
    handle = device(n)
    assert n.nvmlDeviceGetHandleByIndex_v2(2, where) == 2
    assert n.nvmlDeviceGetHandleByUUID(0, where) == 2
    text = ctypes.create_string_buffer(b"GPU-nobody")
    assert n.nvmlDeviceGetHandleByUUID(ctypes.addressof(text), where) == 6
    assert n.nvmlDeviceGetHandleByPciBusId_v2(ctypes.addressof(text), where) == 2
    assert n.nvmlDeviceGetName(0, where, 96) == 2
    assert n.nvmlDeviceGetName(handle, 0, 96) == 2
    assert n.nvmlDeviceGetName(handle, where, len(DEVICE_NAME)) == 7
    assert n.nvmlDeviceGetName(handle, where, len(DEVICE_NAME) + 1) == 0
    assert out.value == DEVICE_NAME.encode()
    assert n.nvmlDeviceGetClockInfo(handle, 99, where) == 2
    ctypes.c_uint32.from_buffer(out).value = 0x0100_0028 + 1
    assert n.nvmlDeviceGetMemoryInfo_v2(handle, where) == 25
    assert n.nvmlDeviceGetPowerUsage() == 3
    assert ctypes.string_at(n.nvmlErrorString(25)) == b"Argument version mismatch"


def test_memory_and_processes_are_this_processes(n: Entries) -> None:
    n.nvmlInit_v2()
    driver, handle = n.driver, device(n, 1)
    count = ctypes.c_uint32(0)
    entries = (ctypes.c_uint64 * 6)()
    ask = n.nvmlDeviceGetComputeRunningProcesses_v3
    assert ask(handle, ctypes.addressof(count), 0) == 0
    driver.ready = True
    context = driver.new_context(driver.devices[1], 0)
    allocation = driver.memory.allocate(4 << 20, 1, Kind.DEVICE, context=context)
    memory = (ctypes.c_uint64 * 3)()
    assert n.nvmlDeviceGetMemoryInfo(handle, ctypes.addressof(memory)) == 0
    assert tuple(memory) == (TOTAL, TOTAL - (4 << 20), 4 << 20)
    assert ask(handle, ctypes.addressof(count), 0) == 7
    assert count.value == 1
    assert ask(handle, ctypes.addressof(count), ctypes.addressof(entries)) == 0
    assert (entries[0], entries[1]) == (os.getpid(), 4 << 20)
    count.value = 2
    assert ask(device(n, 0), ctypes.addressof(count), ctypes.addressof(entries)) == 0
    assert count.value == 0
    driver.end_context(context)
    assert allocation.address


def test_utilisation_is_the_processors_share_of_time(n: Entries, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0, 10.0, 50.0]
    monkeypatch.setattr(nvml.time, "monotonic", lambda: clock[0])
    slept: list[float] = []

    def sleep(duration_s: float) -> None:
        slept.append(duration_s)
        clock[0] += duration_s
        clock[2] += duration_s

    monkeypatch.setattr(nvml.time, "sleep", sleep)
    monkeypatch.setattr(nvml, "_processor_seconds", lambda: (clock[1], clock[2]))
    entries = Entries(n.driver)
    entries.nvmlInit_v2()
    handle, rates = device(entries), (ctypes.c_uint32 * 2)()

    def asked(*then: float) -> tuple[int, int]:
        clock[:] = then
        assert entries.nvmlDeviceGetUtilizationRates(handle, ctypes.addressof(rates)) == 0
        return rates[0], rates[1]

    assert asked(100, 10.125, 50) == (67, 67), "it waited for a sample"
    assert 1 / 6 <= sum(slept) < 0.2
    assert asked(101, 10.125 + 0.5, clock[2] + 2) == (25, 25)
    assert asked(101.1, 20, clock[2] + 20) == (25, 25), "too soon"
    assert asked(102, 10.625, clock[2]) == (0, 0)
    assert asked(103, 10.625, clock[2]) == (0, 0), "no time has passed for the processor"


def test_processor_seconds_grow() -> None:
    busy, total = nvml._processor_seconds()
    assert 0 < busy <= total
