"""Memory pools. They keep account; freed memory goes straight back to the device, so nothing is ever held in reserve."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import MEM_ACCESS_DESC, MEM_LOCATION, MEM_POOL_PROPS
from lanGPU.emulator.driver.cabi import get_bytes, get_u32, get_u64, need, put_u32, put_u64
from lanGPU.emulator.driver.objects import Pool
from lanGPU.emulator.driver.registry import initialized
from lanGPU.emulator.results import INVALID_DEVICE, INVALID_VALUE, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_ATTRIBUTE: Final = {name.removeprefix("CU_MEMPOOL_ATTR_"): value for name, value in ENUMS["CUmemPool_attribute"].items()}
_SWITCHES: Final = tuple(
    _ATTRIBUTE[n] for n in ("REUSE_FOLLOW_EVENT_DEPENDENCIES", "REUSE_ALLOW_OPPORTUNISTIC", "REUSE_ALLOW_INTERNAL_DEPENDENCIES")
)
_PINNED: Final = ENUMS["CUmemAllocationType"]["CU_MEM_ALLOCATION_TYPE_PINNED"]
_ON_DEVICE: Final = ENUMS["CUmemLocationType"]["CU_MEM_LOCATION_TYPE_DEVICE"]
_READ_WRITE: Final = ENUMS["CUmemAccess_flags"]["CU_MEM_ACCESS_FLAGS_PROT_READWRITE"]


@initialized("cuMemPoolCreate")
def mem_pool_create(d: Driver, pool: int, properties: int) -> int | None:
    fields = MEM_POOL_PROPS.unpack(get_bytes(properties, MEM_POOL_PROPS.size))
    need(pool)
    if fields["handleTypes"]:
        return NOT_SUPPORTED  # sharing between processes
    if fields["allocType"] != _PINNED:
        raise CuError(INVALID_VALUE)
    if fields["location_type"] != _ON_DEVICE:
        return NOT_SUPPORTED  # pools of host memory
    created = Pool(d.device(fields["location_id"]), max_size=fields["maxSize"])
    created.handle = d.handles.add(created)
    put_u64(pool, created.handle)
    return None


def _pool(d: Driver, handle: int) -> Pool:
    return d.handles.get(handle, Pool, INVALID_VALUE)


@initialized("cuMemPoolDestroy")
def mem_pool_destroy(d: Driver, pool: int) -> None:
    """What was allocated from it lives until it is freed."""
    found = _pool(d, pool)
    if found.is_default:
        raise CuError(INVALID_VALUE)
    if found.device.pool is found:
        found.device.pool = found.device.default_pool
    d.handles.remove(pool)


@initialized("cuMemPoolTrimTo")
def mem_pool_trim_to(d: Driver, pool: int, keep: int) -> None:
    _pool(d, pool)


@initialized("cuMemPoolGetAttribute")
def mem_pool_get_attribute(d: Driver, pool: int, attribute: int, value: int) -> int | None:
    found = _pool(d, pool)
    if attribute in _SWITCHES:
        put_u32(value, found.attributes.get(attribute, 1))
    elif attribute == _ATTRIBUTE["RELEASE_THRESHOLD"]:
        put_u64(value, found.attributes.get(attribute, 0))
    elif attribute in (_ATTRIBUTE["RESERVED_MEM_CURRENT"], _ATTRIBUTE["USED_MEM_CURRENT"]):
        put_u64(value, found.used)
    elif attribute in (_ATTRIBUTE["RESERVED_MEM_HIGH"], _ATTRIBUTE["USED_MEM_HIGH"]):
        put_u64(value, found.used_high)
    elif attribute == _ATTRIBUTE.get("ALLOCATION_TYPE"):
        put_u32(value, _PINNED)
    elif attribute == _ATTRIBUTE.get("EXPORT_HANDLE_TYPES"):
        put_u32(value, 0)
    elif attribute == _ATTRIBUTE.get("LOCATION_ID"):
        put_u32(value, found.device.ordinal)
    elif attribute == _ATTRIBUTE.get("LOCATION_TYPE"):
        put_u32(value, _ON_DEVICE)
    elif attribute == _ATTRIBUTE.get("MAX_POOL_SIZE"):
        put_u64(value, found.max_size)
    else:
        return NOT_SUPPORTED if attribute in _ATTRIBUTE.values() else INVALID_VALUE
    return None


@initialized("cuMemPoolSetAttribute")
def mem_pool_set_attribute(d: Driver, pool: int, attribute: int, value: int) -> None:
    """Reuse switches are kept and change nothing: memory is given out again only after it was really freed."""
    found = _pool(d, pool)
    if attribute in _SWITCHES:
        found.attributes[attribute] = get_u32(value)
    elif attribute == _ATTRIBUTE["RELEASE_THRESHOLD"]:
        found.attributes[attribute] = get_u64(value)
    elif attribute in (_ATTRIBUTE["RESERVED_MEM_HIGH"], _ATTRIBUTE["USED_MEM_HIGH"]) and get_u64(value) == 0:
        found.used_high = found.used
    else:
        raise CuError(INVALID_VALUE)


@initialized("cuMemPoolSetAccess")
def mem_pool_set_access(d: Driver, pool: int, descriptors: int, count: int) -> None:
    """Every device reaches every other's memory; the flags are kept for cuMemPoolGetAccess."""
    found = _pool(d, pool)
    for i in range(count):
        entry = MEM_ACCESS_DESC.unpack(get_bytes(need(descriptors) + i * MEM_ACCESS_DESC.size, MEM_ACCESS_DESC.size))
        if entry["location_type"] != _ON_DEVICE:
            raise CuError(INVALID_VALUE)
        device = d.device(entry["location_id"])
        if device is found.device and entry["flags"] != _READ_WRITE:
            raise CuError(INVALID_DEVICE)  # "access from the device of the pool is always enabled" (driver API)
        found.access[device.ordinal] = entry["flags"]


@initialized("cuMemPoolGetAccess")
def mem_pool_get_access(d: Driver, flags: int, pool: int, location: int) -> None:
    found = _pool(d, pool)
    where = MEM_LOCATION.unpack(get_bytes(location, MEM_LOCATION.size))
    if where["type"] != _ON_DEVICE:
        raise CuError(INVALID_VALUE)
    device = d.device(where["id"])
    put_u32(flags, _READ_WRITE if device is found.device else found.access.get(device.ordinal, 0))
