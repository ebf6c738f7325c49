"""Memory: device allocations, host allocations, stream-ordered allocations, and what is known of a pointer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.driver.cabi import get_u32, get_u64, need, put_bytes, put_i32, put_u32, put_u64
from lanGPU.emulator.driver.graph_memory import check_free, make_memory, reclaim
from lanGPU.emulator.driver.graph_memory import free as free_graph_memory
from lanGPU.emulator.driver.objects import Context, Pool
from lanGPU.emulator.driver.operations import Free
from lanGPU.emulator.driver.registry import in_context, initialized
from lanGPU.emulator.mapping import align_up
from lanGPU.emulator.memory import Allocation, Kind
from lanGPU.emulator.results import (
    HOST_MEMORY_NOT_REGISTERED,
    INVALID_VALUE,
    NOT_SUPPORTED,
    OUT_OF_MEMORY,
    CuError,
)

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_PITCH_ALIGNMENT: Final = 512
_HOST_FLAGS: Final = 0x7  # PORTABLE, DEVICEMAP, WRITECOMBINED
_REGISTER_FLAGS: Final = 0xF  # PORTABLE, DEVICEMAP, IOMEMORY, READ_ONLY
_POINTER: Final = {name.removeprefix("CU_POINTER_ATTRIBUTE_"): value for name, value in ENUMS["CUpointer_attribute"].items()}
_TYPE_HOST: Final = ENUMS["CUmemorytype"]["CU_MEMORYTYPE_HOST"]
_TYPE_DEVICE: Final = ENUMS["CUmemorytype"]["CU_MEMORYTYPE_DEVICE"]
_MAX_ATTRIBUTES: Final = 64


def allocate(d: Driver, context: Context, size: int, kind: Kind = Kind.DEVICE, pool: Pool | None = None) -> Allocation:
    """Device memory for `context`; frees that are still queued are waited for before it is refused."""
    ordinal = (pool.device if pool else context.device).ordinal
    owner = None if pool else context
    try:
        return d.memory.allocate(size, ordinal, kind, context=owner, pool=pool)
    except CuError as exc:
        if exc.result != OUT_OF_MEMORY or d.queue.done(d.queue.submitted):
            raise
    d.queue.drain()
    return d.memory.allocate(size, ordinal, kind, context=owner, pool=pool)


# --- device memory -----------------------------------------------------------------------------------------------------
@in_context("cuMemGetInfo_v2")
def mem_get_info(d: Driver, context: Context, free: int, total: int) -> None:
    need(free), need(total)
    available, size = d.memory.info(context.device.ordinal)
    put_u64(free, available)
    put_u64(total, size)


@in_context("cuMemAlloc_v2", unsafe=True)
def mem_alloc(d: Driver, context: Context, dptr: int, size: int) -> None:
    need(dptr)
    put_u64(dptr, allocate(d, context, size).address)


@in_context("cuMemAllocPitch_v2", unsafe=True)
def mem_alloc_pitch(d: Driver, context: Context, dptr: int, pitch: int, width: int, height: int, element_bytes: int) -> None:
    need(dptr), need(pitch)
    if element_bytes not in (4, 8, 16) or not width or not height:
        raise CuError(INVALID_VALUE)
    row = align_up(width, _PITCH_ALIGNMENT)
    put_u64(dptr, allocate(d, context, row * height).address)
    put_u64(pitch, row)


@in_context("cuMemFree_v2", unsafe=True)
def mem_free(d: Driver, context: Context, dptr: int) -> None:
    """Waits for all work first, as NVIDIA's drivers do: kernels may still use the memory. NULL is ignored."""
    if not dptr:
        return
    d.queue.drain()
    if free_graph_memory(d, dptr):
        return
    allocation = d.memory.allocations.get(dptr)
    if allocation is None or allocation.kind not in (Kind.DEVICE, Kind.POOL, Kind.MANAGED) or allocation.variable:
        raise CuError(INVALID_VALUE)
    d.memory.forget(allocation)
    d.memory.reclaim(allocation)
    _discharge(allocation)


@in_context("cuMemGetAddressRange_v2")
def mem_get_address_range(d: Driver, context: Context, base: int, size: int, dptr: int) -> None:
    allocation = d.memory.find(dptr)
    if allocation is None:
        raise CuError(INVALID_VALUE)
    if base:
        put_u64(base, allocation.address)
    if size:
        put_u64(size, allocation.size)


# --- stream-ordered memory -----------------------------------------------------------------------------------------------
def _charge(d: Driver, pool: Pool, size: int) -> None:
    if pool.max_size and pool.used + size > pool.max_size:
        d.queue.drain()
        if pool.used + size > pool.max_size:
            raise CuError(OUT_OF_MEMORY)
    pool.used += size
    pool.used_high = max(pool.used_high, pool.used)


def _discharge(allocation: Allocation) -> None:
    if isinstance(allocation.pool, Pool):
        allocation.pool.used -= allocation.size


class PoolFree(Free):
    """A stream-ordered free that its pool's accounting sees."""

    def run(self) -> None:
        """Frees, and counts."""
        Free.run(self)
        _discharge(self.allocation)


def _allocate_async(d: Driver, context: Context, dptr: int, size: int, pool: Pool, stream: int) -> None:
    need(dptr)
    where = d.stream(context, stream)
    if where.capture is not None:
        action = make_memory(d, pool.device.ordinal, size, context)
        try:
            where.capture.add_memory(where, "MEM_ALLOC", action)
        except CuError:
            action.memory.holders = 0
            reclaim(d, action.memory)
            raise
        put_u64(dptr, action.memory.allocation.address)
        return
    if not size:
        raise CuError(INVALID_VALUE)
    _charge(d, pool, size)
    try:
        # The memory is there at once, which is earlier than promised and so right for every order of streams.
        put_u64(dptr, allocate(d, context, size, Kind.POOL, pool).address)
    except CuError:
        pool.used -= size
        raise


@in_context("cuMemAllocAsync")
def mem_alloc_async(d: Driver, context: Context, dptr: int, size: int, stream: int) -> None:
    _allocate_async(d, context, dptr, size, context.device.pool, stream)


@in_context("cuMemAllocFromPoolAsync")
def mem_alloc_from_pool_async(d: Driver, context: Context, dptr: int, size: int, pool: int, stream: int) -> None:
    _allocate_async(d, context, dptr, size, d.handles.get(pool, Pool, INVALID_VALUE), stream)


@in_context("cuMemFreeAsync")
def mem_free_async(d: Driver, context: Context, dptr: int, stream: int) -> None:
    if not dptr:
        return
    where = d.stream(context, stream)
    if where.capture is not None:
        where.capture.add_memory(where, "MEM_FREE", check_free(d, where.capture.graph, dptr))
        return
    if free_graph_memory(d, dptr):
        return
    allocation = d.memory.allocations.get(dptr)
    if allocation is None or allocation.kind not in (Kind.DEVICE, Kind.POOL) or allocation.flags & _FREED:
        raise CuError(INVALID_VALUE)
    allocation.flags |= _FREED
    d.submit(where, PoolFree(allocation, d.memory))


_FREED: Final = 1 << 31
"""In Allocation.flags of device memory: a stream-ordered free is on its way."""


# --- host memory ---------------------------------------------------------------------------------------------------------
@in_context("cuMemHostAlloc", unsafe=True)
def mem_host_alloc(d: Driver, context: Context, pp: int, size: int, flags: int) -> None:
    need(pp)
    if flags & ~_HOST_FLAGS:
        raise CuError(INVALID_VALUE)
    put_u64(pp, d.memory.allocate_host(size, context.device.ordinal, flags, context).address)


@in_context("cuMemAllocHost_v2", unsafe=True)
def mem_alloc_host(d: Driver, context: Context, pp: int, size: int) -> None:
    mem_host_alloc(d, context, pp, size, 0)


def _host_allocation(d: Driver, pointer: int, kind: Kind) -> Allocation:
    allocation = d.memory.allocations.get(pointer)
    if allocation is None or allocation.kind is not kind:
        raise CuError(HOST_MEMORY_NOT_REGISTERED if kind is Kind.REGISTERED and pointer else INVALID_VALUE)
    return allocation


@in_context("cuMemFreeHost", unsafe=True)
def mem_free_host(d: Driver, context: Context, pointer: int) -> None:
    allocation = _host_allocation(d, pointer, Kind.HOST)
    d.queue.drain()
    d.memory.forget(allocation)
    d.memory.reclaim(allocation)


@in_context("cuMemHostRegister_v2", unsafe=True)
def mem_host_register(d: Driver, context: Context, pointer: int, size: int, flags: int) -> None:
    if flags & ~_REGISTER_FLAGS:
        raise CuError(INVALID_VALUE)
    d.memory.register_host(pointer, size, context.device.ordinal, flags, context)


@in_context("cuMemHostUnregister", unsafe=True)
def mem_host_unregister(d: Driver, context: Context, pointer: int) -> None:
    allocation = _host_allocation(d, pointer, Kind.REGISTERED)
    d.queue.drain()
    d.memory.forget(allocation)


def _any_host(d: Driver, pointer: int) -> Allocation:
    allocation = d.memory.find(pointer)
    if allocation is None or allocation.kind not in (Kind.HOST, Kind.REGISTERED):
        raise CuError(INVALID_VALUE)
    return allocation


@in_context("cuMemHostGetDevicePointer_v2")
def mem_host_get_device_pointer(d: Driver, context: Context, dptr: int, pointer: int, flags: int) -> None:
    """Host memory has the same address for kernels."""
    need(dptr)
    if flags:
        raise CuError(INVALID_VALUE)
    _any_host(d, pointer)
    put_u64(dptr, pointer)


@in_context("cuMemHostGetFlags")
def mem_host_get_flags(d: Driver, context: Context, flags: int, pointer: int) -> None:
    # Under unified addressing all pinned memory is mapped and portable (driver API, unified addressing).
    put_u32(flags, _any_host(d, pointer).flags | 0x3)


# --- pointers --------------------------------------------------------------------------------------------------------------
def _put_attribute(d: Driver, out: int, attribute: int, pointer: int) -> int | None:
    """Writes one attribute; returns a CUresult if the pointer has no such attribute."""
    need(out)
    allocation = d.memory.find(pointer)
    if attribute == _POINTER["MAPPED"]:
        put_bytes(out, bytes([allocation is not None]))
        return None
    if allocation is None:
        return INVALID_VALUE
    host = allocation.kind in (Kind.HOST, Kind.REGISTERED)
    if attribute == _POINTER["CONTEXT"]:
        owner = allocation.context
        put_u64(out, owner.handle if isinstance(owner, Context) else 0)
    elif attribute == _POINTER["MEMORY_TYPE"]:
        put_u32(out, _TYPE_HOST if host else _TYPE_DEVICE)
    elif attribute == _POINTER["DEVICE_POINTER"]:
        put_u64(out, pointer)
    elif attribute == _POINTER["HOST_POINTER"]:
        if not host and allocation.kind is not Kind.MANAGED:
            return INVALID_VALUE
        put_u64(out, pointer)
    elif attribute == _POINTER["SYNC_MEMOPS"]:
        put_u32(out, allocation.sync_memops)
    elif attribute in (_POINTER["BUFFER_ID"], _POINTER["MEMORY_BLOCK_ID"]):
        put_u64(out, allocation.buffer_id)
    elif attribute == _POINTER["IS_MANAGED"]:
        put_u32(out, int(allocation.kind is Kind.MANAGED))
    elif attribute in (_POINTER["IS_LEGACY_CUDA_IPC_CAPABLE"], _POINTER["IS_GPU_DIRECT_RDMA_CAPABLE"]):
        put_u32(out, 0)
    elif attribute == _POINTER["DEVICE_ORDINAL"]:
        put_i32(out, allocation.device)
    elif attribute in (_POINTER["RANGE_START_ADDR"], _POINTER["MAPPING_BASE_ADDR"]):
        put_u64(out, allocation.address)
    elif attribute in (_POINTER["RANGE_SIZE"], _POINTER["MAPPING_SIZE"]):
        put_u64(out, allocation.size)
    elif attribute == _POINTER["ALLOWED_HANDLE_TYPES"]:
        put_u64(out, 0)
    elif attribute == _POINTER["ACCESS_FLAGS"]:
        put_u32(out, 3)  # CU_POINTER_ATTRIBUTE_ACCESS_FLAG_READWRITE
    elif attribute == _POINTER["MEMPOOL_HANDLE"]:
        put_u64(out, allocation.pool.handle if isinstance(allocation.pool, Pool) else 0)
    elif attribute in _POINTER.values():
        return NOT_SUPPORTED
    else:
        return INVALID_VALUE
    return None


@initialized("cuPointerGetAttribute")
def pointer_get_attribute(d: Driver, data: int, attribute: int, pointer: int) -> int | None:
    return _put_attribute(d, data, attribute, pointer)


_ATTRIBUTE_BYTES: Final = {
    **dict.fromkeys(_POINTER.values(), 8),
    **{_POINTER[n]: 4 for n in ("MEMORY_TYPE", "SYNC_MEMOPS", "DEVICE_ORDINAL", "ACCESS_FLAGS", "IS_MANAGED")},
    **{_POINTER[n]: 4 for n in ("IS_LEGACY_CUDA_IPC_CAPABLE", "IS_GPU_DIRECT_RDMA_CAPABLE")},
    _POINTER["MAPPED"]: 1,
    _POINTER["P2P_TOKENS"]: 16,
}


@initialized("cuPointerGetAttributes")
def pointer_get_attributes(d: Driver, count: int, attributes: int, data: int, pointer: int) -> None:
    """As the single question, but what the pointer does not have is NULL instead of an error."""
    if not 0 < count <= _MAX_ATTRIBUTES:
        raise CuError(INVALID_VALUE)
    for i in range(count):
        attribute, out = get_u32(need(attributes) + 4 * i), get_u64(need(data) + 8 * i)
        if attribute not in _ATTRIBUTE_BYTES:
            raise CuError(INVALID_VALUE)
        if _put_attribute(d, out, attribute, pointer) is None:
            continue
        empty = bytes(_ATTRIBUTE_BYTES[attribute])
        put_bytes(out, b"\xfe\xff\xff\xff" if attribute == _POINTER["DEVICE_ORDINAL"] else empty)  # -2: CU_DEVICE_INVALID


@initialized("cuPointerSetAttribute")
def pointer_set_attribute(d: Driver, value: int, attribute: int, pointer: int) -> None:
    allocation = d.memory.find(pointer)
    if attribute != _POINTER["SYNC_MEMOPS"] or allocation is None:
        raise CuError(INVALID_VALUE)
    allocation.sync_memops = int(get_u32(value) != 0)
