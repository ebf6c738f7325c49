"""Device management (driver API group of that name)."""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.attributes import pci_bus
from lanGPU.emulator.config import COMPUTE_CAPABILITY, DEVICE_NAME
from lanGPU.emulator.driver.cabi import get_cstring, need, put_bytes, put_cstring, put_i32, put_u64
from lanGPU.emulator.driver.objects import Pool
from lanGPU.emulator.driver.registry import initialized
from lanGPU.emulator.results import INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_BUS_ID: Final = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.IGNORECASE)
_P2P: Final = ENUMS["CUdevice_P2PAttribute"]
_ATTRIBUTE: Final = ENUMS["CUdevice_attribute"]
_MAX_TEXTURE_1D: Final = 0


@initialized("cuDeviceGet")
def device_get(d: Driver, device: int, ordinal: int) -> None:
    put_i32(device, d.device(ordinal).ordinal)


@initialized("cuDeviceGetCount")
def device_get_count(d: Driver, count: int) -> None:
    put_i32(count, len(d.devices))


@initialized("cuDeviceGetName")
def device_get_name(d: Driver, name: int, length: int, dev: int) -> None:
    d.device(dev)
    put_cstring(name, DEVICE_NAME, length)


@initialized("cuDeviceGetUuid", "cuDeviceGetUuid_v2")
def device_get_uuid(d: Driver, uuid: int, dev: int) -> None:
    put_bytes(uuid, d.device(dev).uuid)


@initialized("cuDeviceGetLuid")
def device_get_luid(d: Driver, luid: int, node_mask: int, dev: int) -> int:
    """LUIDs exist on Windows only."""
    d.device(dev)
    return NOT_SUPPORTED


@initialized("cuDeviceTotalMem_v2")
def device_total_mem(d: Driver, size: int, dev: int) -> None:
    put_u64(size, d.memory.info(d.device(dev).ordinal)[1])


@initialized("cuDeviceGetAttribute")
def device_get_attribute(d: Driver, value: int, attribute: int, dev: int) -> None:
    need(value)
    found = d.device(dev).attributes.get(attribute)
    if found is None:
        raise CuError(INVALID_VALUE)
    put_i32(value, found)


@initialized("cuDeviceComputeCapability")
def device_compute_capability(d: Driver, major: int, minor: int, dev: int) -> None:
    d.device(dev)
    put_i32(major, COMPUTE_CAPABILITY[0])
    put_i32(minor, COMPUTE_CAPABILITY[1])


@initialized("cuDeviceGetProperties")
def device_get_properties(d: Driver, properties: int, dev: int) -> None:
    """Fills CUdevprop: ten integers and two triples, all of them attributes."""
    values = d.device(dev).attributes

    def a(name: str) -> int:
        return values[_ATTRIBUTE["CU_DEVICE_ATTRIBUTE_" + name]]

    fields = [a("MAX_THREADS_PER_BLOCK")]
    fields += [a(f"MAX_BLOCK_DIM_{axis}") for axis in "XYZ"]
    fields += [a(f"MAX_GRID_DIM_{axis}") for axis in "XYZ"]
    fields += [a("MAX_SHARED_MEMORY_PER_BLOCK"), a("TOTAL_CONSTANT_MEMORY"), a("WARP_SIZE"), a("MAX_PITCH")]
    fields += [a("MAX_REGISTERS_PER_BLOCK"), a("CLOCK_RATE"), a("TEXTURE_ALIGNMENT")]
    put_bytes(properties, struct.pack("<14i", *fields))


@initialized("cuDeviceGetByPCIBusId")
def device_get_by_pci_bus_id(d: Driver, device: int, bus_id: int) -> None:
    match = _BUS_ID.fullmatch(get_cstring(bus_id))
    need(device)
    if match is None:
        raise CuError(INVALID_VALUE)
    domain, bus, slot = (int(part or "0", 16) for part in match.groups()[:3])
    for candidate in d.devices:
        if (domain, bus, slot) == (0, pci_bus(candidate.ordinal), 0):
            put_i32(device, candidate.ordinal)
            return
    raise CuError(INVALID_DEVICE)


@initialized("cuDeviceGetPCIBusId")
def device_get_pci_bus_id(d: Driver, bus_id: int, length: int, dev: int) -> None:
    put_cstring(bus_id, f"0000:{pci_bus(d.device(dev).ordinal):02x}:00.0", length)


@initialized("cuDeviceGetTexture1DLinearMaxWidth")
def device_get_texture_1d_linear_max_width(d: Driver, width: int, array_format: int, channels: int, dev: int) -> None:
    d.device(dev)
    if channels not in (1, 2, 4):
        raise CuError(INVALID_VALUE)
    put_u64(width, _MAX_TEXTURE_1D)


@initialized("cuDeviceGetExecAffinitySupport")
def device_get_exec_affinity_support(d: Driver, supported: int, kind: int, dev: int) -> None:
    d.device(dev)
    if kind != 0:  # CU_EXEC_AFFINITY_TYPE_SM_COUNT is the only one
        raise CuError(INVALID_VALUE)
    put_i32(supported, 0)


@initialized("cuDeviceCanAccessPeer")
def device_can_access_peer(d: Driver, value: int, dev: int, peer: int) -> None:
    put_i32(value, int(d.device(dev) is not d.device(peer)))


@initialized("cuDeviceGetP2PAttribute")
def device_get_p2p_attribute(d: Driver, value: int, attribute: int, source: int, destination: int) -> None:
    if d.device(source) is d.device(destination):
        raise CuError(INVALID_DEVICE)
    if attribute not in _P2P.values():
        raise CuError(INVALID_VALUE)
    supported = (_P2P["CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED"], _P2P["CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED"])
    put_i32(value, int(attribute in supported))


@initialized("cuDeviceGetDefaultMemPool")
def device_get_default_mem_pool(d: Driver, pool: int, dev: int) -> None:
    put_u64(pool, d.device(dev).default_pool.handle)


@initialized("cuDeviceGetMemPool")
def device_get_mem_pool(d: Driver, pool: int, dev: int) -> None:
    put_u64(pool, d.device(dev).pool.handle)


@initialized("cuDeviceSetMemPool")
def device_set_mem_pool(d: Driver, dev: int, pool: int) -> None:
    device, found = d.device(dev), d.handles.get(pool, Pool, INVALID_VALUE)
    if found.device is not device:
        raise CuError(INVALID_DEVICE)
    device.pool = found
