"""Memory of the emulated devices: allocations, their accounting, and the map that kernels are checked against.

Small allocations are cut from blocks of 2 MiB, which go back as a whole when all their pieces are free; larger ones are mappings of
their own. No piece is handed out twice.
"""

from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from threading import RLock
from typing import Final

from lanGPU.driverapi.managed import Hints
from lanGPU.emulator.mapping import HUGE_PAGE, PAGE, AddressSpace, PhysicalMemory, align_up, reserve_at, set_access
from lanGPU.emulator.ptx import AllocationMap
from lanGPU.emulator.results import HOST_MEMORY_ALREADY_REGISTERED, INVALID_VALUE, OUT_OF_MEMORY, CuError

ALIGNMENT: Final = 512
"""Of every allocation; CUDA promises 256 bytes, its drivers give 512."""
SMALL_MAX: Final = 256 * 1024
"""Up to here an allocation is a piece of a block: mappings are a scarce resource of the kernel (65,530 by default)."""
GRANULARITY: Final = HUGE_PAGE
"""Of physical memory and reservations, as NVIDIA's drivers report it."""

_buffer_ids = count(1)


class Kind(Enum):
    """What an allocation is."""

    DEVICE = "device"
    HEAP = "heap"
    """Where kernels' malloc works; CUDA lets no call of the host's use it."""
    POOL = "pool"
    HOST = "host"
    MANAGED = "managed"
    REGISTERED = "registered"
    PHYSICAL = "physical"


@dataclass(slots=True, eq=False)
class Allocation:
    """A range of addresses that kernels may use."""

    address: int
    size: int
    kind: Kind
    device: int
    """Ordinal of the device whose memory it is, or which was current for host memory."""
    context: object = None
    flags: int = 0
    pool: object = None
    charged_bytes: int = 0
    buffer_id: int = field(default_factory=lambda: next(_buffer_ids))
    block: "_Block | None" = None
    sync_memops: int = 0
    hints: Hints = field(default_factory=Hints)
    variable: bool = False
    """A `__managed__` variable, which ends with its image only."""


@dataclass(slots=True, eq=False)
class _Block:
    """2 MiB from which small allocations are cut."""

    address: int
    used: int = 0
    live: int = 0


@dataclass(slots=True, eq=False)
class PhysicalAllocation:
    """What a CUmemGenericAllocationHandle stands for. It lives while the handle or a mapping of it does."""

    offset: int
    size: int
    device: int
    properties: bytes
    references: int = 1


@dataclass(slots=True, eq=False)
class Reservation:
    """Addresses of cuMemAddressReserve and the mappings inside them, by address."""

    address: int
    size: int
    mappings: dict[int, tuple[int, PhysicalAllocation]] = field(default_factory=dict)


class DeviceBudget:
    """Bytes of one device. Not thread-safe: `Memory` holds its lock."""

    def __init__(self, total_bytes: int) -> None:
        self.total_bytes = total_bytes
        self.used_bytes = 0

    def charge(self, size: int) -> None:
        """Takes `size` bytes, or CUDA_ERROR_OUT_OF_MEMORY."""
        if size > self.total_bytes - self.used_bytes:
            raise CuError(OUT_OF_MEMORY)
        self.used_bytes += size


class Memory:
    """All memory of the emulated devices of this process; one address space, as with unified addressing. Thread-safe."""

    def __init__(self, totals: list[int]) -> None:
        self.map = AllocationMap()
        self.budgets = [DeviceBudget(total) for total in totals]
        self.allocations: dict[int, Allocation] = {}
        self.reservations: dict[int, Reservation] = {}
        self._heaps: set[int] = set()
        self._space = AddressSpace()
        self._blocks: dict[int, _Block | None] = {}
        self._physical: PhysicalMemory | None = None
        self._lock = RLock()

    # --- allocations ---------------------------------------------------------------------------------------------------
    def allocate(self, size: int, device: int, kind: Kind = Kind.DEVICE, *, context: object = None, pool: object = None) -> Allocation:
        """`size` bytes of `device`, aligned to ALIGNMENT; contents are not defined.

        Raises:
            CuError: INVALID_VALUE for 0 bytes, OUT_OF_MEMORY.
        """
        if size <= 0:
            raise CuError(INVALID_VALUE)
        with self._lock:
            small = size <= SMALL_MAX
            charged = align_up(size, ALIGNMENT if small else PAGE)
            self.budgets[device].charge(charged)
            try:
                if small:
                    block = self._room(device, charged)
                    address = block.address + block.used
                    block.used += charged
                    block.live += 1
                else:
                    block = None
                    address = self._space.map(charged, alignment=HUGE_PAGE if size >= HUGE_PAGE else PAGE)
            except MemoryError as exc:
                self.budgets[device].used_bytes -= charged
                raise CuError(OUT_OF_MEMORY, str(exc)) from exc
            allocation = Allocation(address, size, kind, device, context, pool=pool, charged_bytes=charged, block=block)
            return self._enter(allocation)

    def allocate_host(self, size: int, device: int, flags: int, context: object, kind: Kind = Kind.HOST) -> Allocation:
        """`size` bytes of page-aligned host memory that kernels may use too; not charged to a device."""
        if size <= 0:
            raise CuError(INVALID_VALUE)
        with self._lock:
            charged = align_up(size, PAGE)
            try:
                address = self._space.map(charged)
            except MemoryError as exc:
                raise CuError(OUT_OF_MEMORY, str(exc)) from exc
            return self._enter(Allocation(address, size, kind, device, context, flags, charged_bytes=charged))

    def register_host(self, address: int, size: int, device: int, flags: int, context: object) -> Allocation:
        """Lets kernels use memory that the program already has."""
        if address == 0 or size <= 0:
            raise CuError(INVALID_VALUE)
        with self._lock:
            if self.overlaps(address, size):
                raise CuError(HOST_MEMORY_ALREADY_REGISTERED)
            return self._enter(Allocation(address, size, Kind.REGISTERED, device, context, flags))

    def _enter(self, allocation: Allocation) -> Allocation:
        self.allocations[allocation.address] = allocation
        self.map.add(allocation.address, allocation.size)
        if allocation.kind is Kind.HEAP:
            self._heaps.add(allocation.address)
        return allocation

    def _room(self, device: int, size: int) -> _Block:
        block = self._blocks.get(device)
        if block is None or block.used + size > HUGE_PAGE:
            if block is not None and block.live == 0:
                self._space.unmap(block.address, HUGE_PAGE)
            block = self._blocks[device] = _Block(self._space.map(HUGE_PAGE, alignment=HUGE_PAGE))
        return block

    def forget(self, allocation: Allocation) -> None:
        """Ends the allocation for lookups and kernels; `reclaim` gives its memory back."""
        with self._lock:
            del self.allocations[allocation.address]
            self._heaps.discard(allocation.address)
            self.map.remove(allocation.address)

    def reclaim(self, allocation: Allocation) -> None:
        """Gives the memory of a forgotten allocation back; nothing may use it any more."""
        with self._lock:
            if allocation.kind in (Kind.DEVICE, Kind.POOL, Kind.HEAP):
                self.budgets[allocation.device].used_bytes -= allocation.charged_bytes
            block = allocation.block
            if block is not None:
                block.live -= 1
                if block.live == 0 and self._blocks.get(allocation.device) is not block:
                    self._space.unmap(block.address, HUGE_PAGE)
            elif allocation.kind is not Kind.REGISTERED:
                self._space.unmap(allocation.address, allocation.charged_bytes)

    # --- lookups -------------------------------------------------------------------------------------------------------
    def find(self, address: int) -> Allocation | None:
        """The allocation that `address` lies in; a mapped physical allocation counts as one."""
        found = self.map.find(address)
        return None if found is None else self.allocations.get(found[0])

    def contains(self, address: int, size: int) -> bool:
        """Whether copies and memsets may use all of [address, address + size); it may span allocations that touch."""
        end = address + size
        while address < end:
            found = self.map.find(address)
            if found is None or found[0] in self._heaps:
                return False
            address = found[0] + found[1]
        return True

    def overlaps(self, address: int, size: int) -> bool:
        """Whether any allocation touches [address, address + size)."""
        if self.map.find(address) is not None or self.map.find(address + size - 1) is not None:
            return True
        return any(address <= start < address + size for start in self.allocations)

    def info(self, device: int) -> tuple[int, int]:
        """(free, total) bytes of a device."""
        budget = self.budgets[device]
        return budget.total_bytes - budget.used_bytes, budget.total_bytes

    # --- virtual memory management ---------------------------------------------------------------------------------------
    def reserve(self, size: int, alignment: int, hint: int) -> int:
        """Addresses without memory; `hint` is kept to if it is free."""
        with self._lock:
            try:
                address = self._space.map(size, alignment=max(alignment, GRANULARITY), reserve_only=True, hint=hint)
            except MemoryError as exc:
                raise CuError(OUT_OF_MEMORY, str(exc)) from exc
            self.reservations[address] = Reservation(address, size)
            return address

    def free_reservation(self, address: int, size: int) -> None:
        """Gives reserved addresses back; nothing may be mapped there."""
        with self._lock:
            reservation = self.reservations.get(address)
            if reservation is None or reservation.size != size or reservation.mappings:
                raise CuError(INVALID_VALUE)
            del self.reservations[address]
            self._space.unmap(address, size)

    def create_physical(self, size: int, device: int, properties: bytes) -> PhysicalAllocation:
        """`size` zero bytes of `device` without an address."""
        with self._lock:
            self.budgets[device].charge(size)
            if self._physical is None:
                self._physical = PhysicalMemory()
            return PhysicalAllocation(self._physical.create(size), size, device, properties)

    def drop_physical(self, physical: PhysicalAllocation) -> None:
        """One reference less; the last gives the memory back."""
        with self._lock:
            physical.references -= 1
            if physical.references == 0:
                assert self._physical is not None
                self._physical.release(physical.offset, physical.size)
                self.budgets[physical.device].used_bytes -= physical.size

    def reservation_of(self, address: int, size: int) -> Reservation:
        """The reservation that holds the whole range, or INVALID_VALUE."""
        for reservation in self.reservations.values():
            if reservation.address <= address and address + size <= reservation.address + reservation.size:
                return reservation
        raise CuError(INVALID_VALUE)

    def map_physical(self, address: int, size: int, physical: PhysicalAllocation) -> None:
        """Maps `physical` into a reservation; not accessible yet."""
        with self._lock:
            reservation = self.reservation_of(address, size)
            if any(start < address + size and address < start + mapped for start, (mapped, _) in reservation.mappings.items()):
                raise CuError(INVALID_VALUE)
            assert self._physical is not None
            self._physical.map_at(address, size, physical.offset)
            reservation.mappings[address] = (size, physical)
            physical.references += 1

    def mappings_in(self, address: int, size: int) -> list[tuple[int, int, PhysicalAllocation]]:
        """The mappings that fill the range exactly, ascending; INVALID_VALUE if they do not."""
        with self._lock:
            reservation = self.reservation_of(address, size)
            found, at = [], address
            while at < address + size:
                entry = reservation.mappings.get(at)
                if entry is None:
                    raise CuError(INVALID_VALUE)
                found.append((at, *entry))
                at += entry[0]
            if at != address + size:
                raise CuError(INVALID_VALUE)
            return found

    def set_access(self, address: int, size: int, allowed: bool) -> None:
        """Lets kernels and copies use the mappings of the range, or stops them."""
        with self._lock:
            for start, mapped, physical in self.mappings_in(address, size):
                present = start in self.allocations
                if allowed and not present:
                    set_access(start, mapped, True)
                    self._enter(Allocation(start, mapped, Kind.PHYSICAL, physical.device))
                elif present and not allowed:
                    self.forget(self.allocations[start])
                    set_access(start, mapped, False)

    def unmap_physical(self, address: int, size: int) -> None:
        """Ends the mappings of the range."""
        with self._lock:
            reservation = self.reservation_of(address, size)
            for start, mapped, physical in self.mappings_in(address, size):
                if start in self.allocations:
                    self.forget(self.allocations[start])
                reserve_at(start, mapped)
                del reservation.mappings[start]
                self.drop_physical(physical)

    def release_all(self) -> None:
        """Unmaps everything: for tests, which make many; a process leaves it to its end."""
        with self._lock:
            for allocation in list(self.allocations.values()):
                if allocation.kind is not Kind.PHYSICAL:
                    self.forget(allocation)
                    self.reclaim(allocation)
            for reservation in list(self.reservations.values()):
                for start, (mapped, _) in list(reservation.mappings.items()):
                    self.unmap_physical(start, mapped)
                self.free_reservation(reservation.address, reservation.size)
            for block in self._blocks.values():
                if block is not None and block.live == 0:
                    self._space.unmap(block.address, HUGE_PAGE)
            self._blocks.clear()
            if self._physical is not None:
                self._physical.close()
                self._physical = None
