"""Devices: what they say of themselves."""

import pytest

from tests.helpers.device import Cuda

A = "CU_DEVICE_ATTRIBUTE_"


def attribute(cuda: Cuda, name: str) -> int:
    value: int = cuda.cuDeviceGetAttribute(getattr(cuda.CUdevice_attribute, A + name), cuda.cuDeviceGet(0))
    return value


def test_there_is_a_device_with_a_name_and_memory(cuda: Cuda) -> None:
    device = cuda.cuDeviceGet(0)
    assert cuda.cuDeviceGetCount() >= 1
    assert cuda.cuDeviceGetName(128, device).rstrip(b"\0 ")
    assert cuda.cuDeviceTotalMem(device) > 1 << 20
    assert len(cuda.cuDeviceGetUuid(device).bytes) == 16


def test_the_uuid_is_stable(cuda: Cuda) -> None:
    device = cuda.cuDeviceGet(0)
    assert cuda.cuDeviceGetUuid(device).bytes == cuda.cuDeviceGetUuid(device).bytes != bytes(16)


def test_a_name_is_cut_to_its_buffer(cuda: Cuda) -> None:
    name = cuda.cuDeviceGetName(4, cuda.cuDeviceGet(0))
    assert len(name) == 4
    assert name[3:] == b"\0"


def test_limits_hold_together(cuda: Cuda) -> None:
    assert attribute(cuda, "WARP_SIZE") == 32
    assert attribute(cuda, "MAX_THREADS_PER_BLOCK") == 1024
    assert attribute(cuda, "MULTIPROCESSOR_COUNT") >= 1
    assert attribute(cuda, "MAX_SHARED_MEMORY_PER_BLOCK") == 48 * 1024
    assert attribute(cuda, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN") >= 48 * 1024
    assert attribute(cuda, "UNIFIED_ADDRESSING") == 1


@pytest.mark.parametrize("ordinal", [-1, 4096])
def test_an_ordinal_out_of_range(cuda: Cuda, ordinal: int) -> None:
    assert cuda.fails("cuDeviceGet", ordinal) == cuda.CUresult.CUDA_ERROR_INVALID_DEVICE


def test_the_pci_bus_id_leads_back(cuda: Cuda) -> None:
    device = cuda.cuDeviceGet(0)
    bus_id = cuda.cuDeviceGetPCIBusId(32, device)
    assert int(cuda.cuDeviceGetByPCIBusId(bus_id.rstrip(b"\0"))) == int(device)
    assert cuda.fails("cuDeviceGetByPCIBusId", b"not a bus id") == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_error_names_and_texts(cuda: Cuda) -> None:
    assert cuda.cuGetErrorName(cuda.CUresult.CUDA_ERROR_ILLEGAL_ADDRESS) == b"CUDA_ERROR_ILLEGAL_ADDRESS"
    assert cuda.cuGetErrorString(cuda.CUresult.CUDA_SUCCESS)


def test_the_driver_has_a_version(cuda: Cuda) -> None:
    assert cuda.cuDriverGetVersion() >= 12000


def test_entry_points_by_name_and_version(cuda: Cuda) -> None:
    new, status = cuda.cuGetProcAddress(b"cuMemAlloc", 12000, 0)
    old, _ = cuda.cuGetProcAddress(b"cuMemAlloc", 2000, 0)
    assert int(status) == 0
    assert new
    assert old
    assert new != old
    nothing, status = cuda.cuGetProcAddress(b"cuNoSuchFunction", 12000, 0)
    assert not nothing
    assert status == cuda.CUdriverProcAddressQueryResult.CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND
