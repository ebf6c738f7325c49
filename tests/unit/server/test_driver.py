"""Which entry point a symbol means, what a machine without a device says, and what is asked of each device."""

from types import SimpleNamespace
from typing import Any

import pytest

from lanGPU.constants import CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_SUPPORTED
from lanGPU.driverapi import table
from lanGPU.errors import DriverError, NoDeviceError
from lanGPU.server.devices import describe_devices
from lanGPU.server.driver import Driver
from tests.helpers.fake_driver import FakeDriver, write, write_u64


def driver_without_library(answers: dict[tuple[bytes, int], int]) -> tuple[Driver, list[tuple[bytes, int, int]]]:
    """A Driver on a platform that cannot look symbols up; `answers`: (base name, flags) -> address."""
    asked: list[tuple[bytes, int, int]] = []

    def get(name: bytes, version: int, flags: int) -> tuple[int, ...]:
        asked.append((name, version, flags))
        address = answers.get((name, flags))
        return (500, 0, 1) if address is None else (0, address, 0)

    driver = Driver.__new__(Driver)
    driver._library = None
    driver._bindings = SimpleNamespace(cuGetProcAddress=get)
    driver._addresses, driver._functions = {}, {}
    return driver, asked


def test_symbols_are_asked_for_by_base_name_version_and_stream_flag() -> None:
    driver, asked = driver_without_library({(b"cuMemAlloc", 1): 0x10, (b"cuMemcpyDtoH", 2): 0x20})
    assert driver.resolve("cuMemAlloc_v2") == 0x10
    assert driver.resolve("cuMemcpyDtoH_v2_ptds") == 0x20
    assert driver.resolve("cuEventRecord") == 0
    assert driver.resolve("cuNoSuchThing") == 0
    since = {name: table.BY_NAME[name].since for name in ("cuMemAlloc_v2", "cuMemcpyDtoH_v2", "cuEventRecord")}
    assert asked == [
        (b"cuMemAlloc", since["cuMemAlloc_v2"], 1),
        (b"cuMemcpyDtoH", since["cuMemcpyDtoH_v2"], 2),
        (b"cuEventRecord", since["cuEventRecord"], 1),
    ]
    driver.resolve("cuMemAlloc_v2")
    assert len(asked) == 3
    assert driver.call("cuEventRecord", 0, 0) == CUDA_ERROR_NOT_SUPPORTED


@pytest.mark.parametrize(("result", "words"), [(CUDA_ERROR_NO_DEVICE, "no CUDA device"), (34, "stub"), (999, "cuInit returned 999")])
def test_a_driver_that_does_not_start_says_why_and_what_to_do(monkeypatch: pytest.MonkeyPatch, result: int, words: str) -> None:
    driver, _ = driver_without_library({})
    monkeypatch.setattr(driver, "call", lambda *_: result, raising=False)
    with pytest.raises(NoDeviceError, match=words) as caught:
        driver.initialize()
    assert "--emulate" in caught.value.hint


def machine(count: int) -> FakeDriver:
    fake = FakeDriver()

    def text(value: bytes) -> Any:
        return lambda out, _size, _device: write(out, value + b"\0") or 0

    def attribute(out: int, number: int, _device: int) -> int:
        if number == 17:
            return 1  # one that this driver does not know
        write(out, number.to_bytes(4, "little"))
        return 0

    fake.functions |= {
        "cuDeviceGetCount": lambda out: write(out, count.to_bytes(4, "little")) or 0,
        "cuDeviceGet": lambda out, ordinal: write(out, ordinal.to_bytes(4, "little")) or 0,
        "cuDeviceGetName": text("GPÜ".encode()),
        "cuDeviceTotalMem_v2": lambda out, _: write_u64(out, 1 << 33) or 0,
        "cuDeviceGetUuid": lambda out, device: write(out, bytes([device] * 16)) or 0,
        "cuDeviceGetPCIBusId": text(b"0000:01:00.0"),
        "cuDeviceGetAttribute": attribute,
    }
    return fake


def test_devices_are_described_whole() -> None:
    one, two = describe_devices(machine(2))  # type: ignore[arg-type]
    assert (one.name, one.total_bytes, one.pci_bus_id, one.luid) == ("GPÜ", 1 << 33, "0000:01:00.0", b"")
    assert (one.uuid, two.uuid) == (bytes(16), b"\1" * 16)
    assert 17 not in one.attributes
    assert one.attributes[75] == 75
    assert len(one.attributes) > 100


def test_a_driver_without_devices_or_answers() -> None:
    with pytest.raises(NoDeviceError):
        describe_devices(machine(0))  # type: ignore[arg-type]
    broken = machine(1)
    broken.functions["cuDeviceTotalMem_v2"] = lambda *_: 999
    with pytest.raises(DriverError):
        describe_devices(broken)  # type: ignore[arg-type]
