"""Questions about devices, entry points, strings."""

import struct

import pytest

from lanGPU.driverapi.signatures import HEADERS
from lanGPU.errors import ConnectError
from tests.helpers.call_driver import DEVICE, Program

INVALID_VALUE, NO_DEVICE, INVALID_DEVICE, NOT_FOUND, NOT_INITIALIZED, NOT_SUPPORTED = 1, 100, 101, 500, 3, 801


def test_init_connects_and_devices_are_known() -> None:
    program = Program(initialised=False)
    out = program.put(8)
    assert program.call("cuDeviceGetCount", out) == NOT_INITIALIZED
    assert program.call("cuInit", 1) == INVALID_VALUE
    assert program.call("cuInit", 0) == 0
    assert program.call("cuDeviceGetCount", out) == 0
    assert program.u32(out) == 1


def test_init_without_server_and_without_device() -> None:
    program = Program(initialised=False)
    program.welcome = ConnectError("nobody")
    assert program.call("cuInit", 0) == NO_DEVICE
    out = program.put(4)
    assert program.call("cuDriverGetVersion", out) == 0
    assert program.u32(out) == max(HEADERS)
    assert program.call("cuDeviceGetCount", out) == NOT_INITIALIZED


def test_driver_version_before_init_is_the_servers() -> None:
    program = Program(initialised=False)
    out = program.put(4)
    assert program.call("cuDriverGetVersion", out) == 0
    assert program.u32(out) == 13000
    assert program.call("cuDriverGetVersion", 0) == INVALID_VALUE


def test_device_get() -> None:
    program = Program()
    out = program.put(b"\xff" * 8)
    assert program.call("cuDeviceGet", out, 0) == 0
    assert program.read(out, 8) == bytes(4) + b"\xff" * 4
    assert program.call("cuDeviceGet", out, 1) == INVALID_DEVICE
    assert program.call("cuDeviceGet", out, -1) == INVALID_DEVICE
    assert program.call("cuDeviceGet", 0, 0) == INVALID_VALUE


@pytest.mark.parametrize(("room", "expected"), [(64, b"Test GPU\0"), (9, b"Test GPU\0"), (5, b"Test\0"), (1, b"\0")])
def test_name_is_cut_to_the_buffer(room: int, expected: bytes) -> None:
    program = Program()
    out = program.put(b"\xee" * 64)
    assert program.call("cuDeviceGetName", out, room, 0) == 0
    assert program.read(out, 64) == expected.ljust(64, b"\xee")


def test_name_of_bad_arguments() -> None:
    program = Program()
    out = program.put(64)
    assert program.call("cuDeviceGetName", out, 0, 0) == INVALID_VALUE
    assert program.call("cuDeviceGetName", out, -5, 0) == INVALID_VALUE
    assert program.call("cuDeviceGetName", out, 64, 7) == INVALID_DEVICE


def test_attributes_uuid_memory() -> None:
    program = Program()
    out = program.put(64)
    assert program.call("cuDeviceGetAttribute", out, 75, 0) == 0
    assert program.u32(out) == 8
    assert program.call("cuDeviceGetAttribute", out, 9999, 0) == INVALID_VALUE
    assert program.call("cuDeviceGetUuid_v2", out, 0) == 0
    assert program.read(out, 16) == DEVICE.uuid
    assert program.call("cuDeviceTotalMem_v2", out, 0) == 0
    assert program.u64(out) == DEVICE.total_bytes
    assert program.call("cuDeviceGetLuid", out, out, 0) == NOT_SUPPORTED
    assert program.call("cuDeviceGetProperties", out, 0) == 0
    assert struct.unpack("<14i", program.read(out, 56))[:4] == (1024, 1024, 1024, 64)


@pytest.mark.parametrize(
    ("text", "result"), [(b"0000:65:00.0", 0), (b"65:00.0", 0), (b"0000:65:00", 0), (b"0000:66:00.0", 101), (b"garbage", 1)]
)
def test_pci_bus_id(text: bytes, result: int) -> None:
    program = Program()
    out = program.put(4)
    assert program.call("cuDeviceGetByPCIBusId", out, program.put(text + b"\0")) == result


def test_proc_address() -> None:
    program = Program(initialised=False)
    program.symbols.known = {"cuMemAlloc_v2": 0x1234, "cuMemcpy_ptds": 0x99, "cuMemcpy": 0x77, "cuGetProcAddress_v2": 0x55}
    out = program.put(8)
    status = program.put(b"\xff" * 4)
    name = program.put(b"cuMemAlloc\0")
    assert program.call("cuGetProcAddress_v2", name, out, 12000, 0, status) == 0
    assert (program.u64(out), program.u32(status)) == (0x1234, 0)
    copy = program.put(b"cuMemcpy\0")
    assert program.call("cuGetProcAddress_v2", copy, out, 12000, 2, status) == 0
    assert program.u64(out) == 0x99
    assert program.call("cuGetProcAddress", copy, out, 12000, 0) == 0
    assert program.u64(out) == 0x77
    # too old for the caller's CUDA; and nothing of this name
    assert program.call("cuGetProcAddress_v2", name, out, 1000, 0, status) == 0
    assert (program.u64(out), program.u32(status)) == (0, 2)
    assert program.call("cuGetProcAddress_v2", program.put(b"\0"), out, 12000, 0, status) == 0
    assert program.u32(status) == 1
    assert program.call("cuGetProcAddress", program.put(b"\0"), out, 12000, 0) == NOT_FOUND
    assert program.call("cuGetProcAddress_v2", name, out, 12000, 8, status) == INVALID_VALUE
    assert program.call("cuGetProcAddress_v2", name, 0, 12000, 0, status) == INVALID_VALUE


def test_error_names_lie_in_the_program_once() -> None:
    program = Program(initialised=False)
    out = program.put(8)
    assert program.call("cuGetErrorName", 700, out) == 0
    first = program.u64(out)
    assert program.string(first) == b"CUDA_ERROR_ILLEGAL_ADDRESS"
    assert program.call("cuGetErrorName", 700, out) == 0
    assert program.u64(out) == first
    assert program.call("cuGetErrorString", 0, out) == 0
    assert program.string(program.u64(out)) == b"no error"
    assert program.call("cuGetErrorName", 123456, out) == INVALID_VALUE
    assert program.u64(out) == 0
    assert program.call("cuGetErrorName", 0, 0) == INVALID_VALUE


def test_export_table_is_not_found() -> None:
    program = Program(initialised=False)
    out = program.put(b"\xff" * 8)
    assert program.call("cuGetExportTable", out, program.put(16)) == NOT_FOUND
    assert program.u64(out) == 0
