"""Virtual memory management: addresses, physical memory, and the mappings between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import MEM_ACCESS_DESC, MEM_ALLOCATION_PROP, MEM_LOCATION
from lanGPU.emulator.driver.cabi import get_bytes, need, put_bytes, put_u64
from lanGPU.emulator.driver.registry import initialized
from lanGPU.emulator.memory import GRANULARITY, Kind, PhysicalAllocation
from lanGPU.emulator.results import INVALID_VALUE, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_PINNED: Final = ENUMS["CUmemAllocationType"]["CU_MEM_ALLOCATION_TYPE_PINNED"]
_ON_DEVICE: Final = ENUMS["CUmemLocationType"]["CU_MEM_LOCATION_TYPE_DEVICE"]
_READ_WRITE: Final = ENUMS["CUmemAccess_flags"]["CU_MEM_ACCESS_FLAGS_PROT_READWRITE"]
_READ: Final = ENUMS["CUmemAccess_flags"]["CU_MEM_ACCESS_FLAGS_PROT_READ"]


@dataclass(slots=True, eq=False)
class PhysicalHandle:
    """A CUmemGenericAllocationHandle; cuMemRetainAllocationHandle makes further references to the same one."""

    physical: PhysicalAllocation
    references: int = 1


def _sized(size: int) -> int:
    if size <= 0 or size % GRANULARITY:
        raise CuError(INVALID_VALUE, f"{size} is not a multiple of the granularity, {GRANULARITY}")
    return size


def _handle(d: Driver, handle: int) -> PhysicalHandle:
    return d.handles.get(handle, PhysicalHandle, INVALID_VALUE)


def _properties(pointer: int) -> tuple[bytes, dict[str, int]]:
    data = get_bytes(pointer, MEM_ALLOCATION_PROP.size)
    return data, MEM_ALLOCATION_PROP.unpack(data)


@initialized("cuMemGetAllocationGranularity")
def mem_get_allocation_granularity(d: Driver, granularity: int, properties: int, option: int) -> int | None:
    _, fields = _properties(properties)
    if fields["location_type"] != _ON_DEVICE:
        return NOT_SUPPORTED
    d.device(fields["location_id"])
    if option not in ENUMS["CUmemAllocationGranularity_flags"].values():
        raise CuError(INVALID_VALUE)
    put_u64(granularity, GRANULARITY)
    return None


@initialized("cuMemAddressReserve")
def mem_address_reserve(d: Driver, ptr: int, size: int, alignment: int, address: int, flags: int) -> None:
    need(ptr)
    if flags or alignment & (alignment - 1):
        raise CuError(INVALID_VALUE)
    put_u64(ptr, d.memory.reserve(_sized(size), alignment, address))


@initialized("cuMemAddressFree")
def mem_address_free(d: Driver, ptr: int, size: int) -> None:
    d.memory.free_reservation(ptr, size)


@initialized("cuMemCreate")
def mem_create(d: Driver, handle: int, size: int, properties: int, flags: int) -> int | None:
    data, fields = _properties(properties)
    need(handle)
    if flags or fields["type"] != _PINNED:
        raise CuError(INVALID_VALUE)
    if fields["requestedHandleTypes"] or fields["location_type"] != _ON_DEVICE:
        return NOT_SUPPORTED  # sharing between processes; host memory
    device = d.device(fields["location_id"])
    put_u64(handle, d.handles.add(PhysicalHandle(d.memory.create_physical(_sized(size), device.ordinal, data))))
    return None


@initialized("cuMemRelease")
def mem_release(d: Driver, handle: int) -> None:
    """The memory itself lives until its last mapping ends."""
    with d.lock:
        found = _handle(d, handle)
        found.references -= 1
        if found.references == 0:
            d.handles.remove(handle)
            d.memory.drop_physical(found.physical)


@initialized("cuMemRetainAllocationHandle")
def mem_retain_allocation_handle(d: Driver, handle: int, address: int) -> None:
    need(handle)
    physical = next(
        (
            physical
            for reservation in list(d.memory.reservations.values())
            for start, (size, physical) in list(reservation.mappings.items())
            if start <= address < start + size
        ),
        None,
    )
    if physical is None:
        raise CuError(INVALID_VALUE)
    with d.lock:
        for value, existing in d.handles.all(PhysicalHandle):
            if existing.physical is physical:
                existing.references += 1
                put_u64(handle, value)
                return
        physical.references += 1
        put_u64(handle, d.handles.add(PhysicalHandle(physical)))


@initialized("cuMemMap")
def mem_map(d: Driver, ptr: int, size: int, offset: int, handle: int, flags: int) -> None:
    """Maps a whole allocation: as in CUDA, the offset must be 0 and the size that of the allocation."""
    found = _handle(d, handle)
    if flags or offset or _sized(size) != found.physical.size or ptr % GRANULARITY:
        raise CuError(INVALID_VALUE)
    d.memory.map_physical(ptr, size, found.physical)


@initialized("cuMemUnmap")
def mem_unmap(d: Driver, ptr: int, size: int) -> None:
    """Waits for all work first: kernels may still use the memory."""
    _sized(size)
    d.queue.drain()
    d.memory.unmap_physical(ptr, size)


@initialized("cuMemSetAccess")
def mem_set_access(d: Driver, ptr: int, size: int, descriptors: int, count: int) -> int | None:
    if not count:
        raise CuError(INVALID_VALUE)
    allowed = False
    for i in range(count):
        entry = MEM_ACCESS_DESC.unpack(get_bytes(need(descriptors) + i * MEM_ACCESS_DESC.size, MEM_ACCESS_DESC.size))
        if entry["location_type"] != _ON_DEVICE:
            return NOT_SUPPORTED
        d.device(entry["location_id"])
        if entry["flags"] == _READ:
            return NOT_SUPPORTED  # kernels are checked for bounds, not for reading and writing
        allowed = allowed or entry["flags"] == _READ_WRITE
    d.queue.drain()
    d.memory.set_access(ptr, _sized(size), allowed)
    return None


@initialized("cuMemGetAccess")
def mem_get_access(d: Driver, flags: int, location: int, ptr: int) -> None:
    where = MEM_LOCATION.unpack(get_bytes(location, MEM_LOCATION.size))
    if where["type"] != _ON_DEVICE:
        raise CuError(INVALID_VALUE)
    d.device(where["id"])
    allocation = d.memory.find(ptr)
    if allocation is None:
        d.memory.reservation_of(ptr, 1)
    put_u64(flags, _READ_WRITE if allocation is not None and allocation.kind is Kind.PHYSICAL else 0)


@initialized("cuMemGetAllocationPropertiesFromHandle")
def mem_get_allocation_properties_from_handle(d: Driver, properties: int, handle: int) -> None:
    put_bytes(properties, _handle(d, handle).physical.properties)
