"""What the driver says about its devices, once for each process."""

import ctypes
from typing import Final

from lanGPU.constants import CUDA_SUCCESS
from lanGPU.driverapi.enums import ENUMS
from lanGPU.errors import NoDeviceError
from lanGPU.server.driver import Driver
from lanGPU.wire.handshake import MAX_DEVICES, DeviceInfo

_NAME_BYTES = 256
_REMOTE: Final = {
    ENUMS["CUdevice_attribute"][f"CU_DEVICE_ATTRIBUTE_{name}"]: 0
    for name in (
        "CONCURRENT_MANAGED_ACCESS",
        "PAGEABLE_MEMORY_ACCESS",
        "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES",
        "DIRECT_MANAGED_MEM_ACCESS_FROM_HOST",
        "HOST_NATIVE_ATOMIC_SUPPORTED",
        "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM",
    )
}
"""What no device can do with the memory of a program on another machine."""


def _attribute_ids() -> range:
    """Every CUdevice_attribute that cuda.bindings knows. Values are dense; the enum's last member is their end, not an attribute."""
    from cuda.bindings.driver import CUdevice_attribute

    return range(1, int(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX))


def _uuid(driver: Driver, device: int) -> bytes:
    uuid = ctypes.create_string_buffer(16)
    if driver.call("cuDeviceGetUuid_v2", ctypes.addressof(uuid), device) != CUDA_SUCCESS:
        driver.check("cuDeviceGetUuid", ctypes.addressof(uuid), device)
    return uuid.raw


def device_uuids(driver: Driver) -> list[bytes]:
    """The UUIDs of every device, in order, after cuInit. Raises DriverError."""
    count, device = ctypes.c_int(), ctypes.c_int()
    driver.check("cuDeviceGetCount", ctypes.addressof(count))
    uuids = []
    for ordinal in range(min(count.value, MAX_DEVICES)):
        driver.check("cuDeviceGet", ctypes.addressof(device), ordinal)
        uuids.append(_uuid(driver, device.value))
    return uuids


def _describe(driver: Driver, ordinal: int) -> DeviceInfo:
    device = ctypes.c_int()
    driver.check("cuDeviceGet", ctypes.addressof(device), ordinal)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    driver.check("cuDeviceGetName", ctypes.addressof(name), _NAME_BYTES, device.value)
    total = ctypes.c_size_t()
    driver.check("cuDeviceTotalMem_v2", ctypes.addressof(total), device.value)
    uuid = _uuid(driver, device.value)
    bus = ctypes.create_string_buffer(64)
    has_bus = driver.call("cuDeviceGetPCIBusId", ctypes.addressof(bus), 64, device.value) == CUDA_SUCCESS
    luid, mask = ctypes.create_string_buffer(8), ctypes.c_uint()
    # Only Windows has LUIDs; elsewhere the call may succeed and write nothing.
    has_luid = driver.call("cuDeviceGetLuid", ctypes.addressof(luid), ctypes.addressof(mask), device.value) == CUDA_SUCCESS and mask.value
    attributes: dict[int, int] = {}
    value = ctypes.c_int()
    for attribute in _attribute_ids():
        # An attribute that this driver does not know is left out: the client answers its question as the driver would.
        if driver.call("cuDeviceGetAttribute", ctypes.addressof(value), attribute, device.value) == CUDA_SUCCESS:
            attributes[attribute] = _REMOTE.get(attribute, value.value)
    return DeviceInfo(
        name=name.value.decode(errors="replace"),
        uuid=uuid,
        total_bytes=total.value,
        pci_bus_id=bus.value.decode(errors="replace") if has_bus else "",
        attributes=attributes,
        luid=luid.raw if has_luid else b"",
    )


def describe_devices(driver: Driver) -> tuple[DeviceInfo, ...]:
    """Every device, after cuInit.

    Raises:
        NoDeviceError: there is none.
        DriverError: the driver does not answer for a device that it counts.
    """
    count = ctypes.c_int()
    driver.check("cuDeviceGetCount", ctypes.addressof(count))
    if count.value <= 0:
        raise NoDeviceError(
            "this machine has an NVIDIA driver but no CUDA device", hint="serve an emulated device with `langpu serve --emulate`"
        )
    return tuple(_describe(driver, ordinal) for ordinal in range(min(count.value, MAX_DEVICES)))
