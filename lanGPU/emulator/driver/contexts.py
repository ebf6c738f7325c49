"""Primary contexts, contexts, and each thread's stack of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.driver.cabi import need, put_i32, put_u32, put_u64
from lanGPU.emulator.driver.objects import Context, Device
from lanGPU.emulator.driver.registry import in_context, initialized
from lanGPU.emulator.driver.services import DEFAULT_FIFO_BYTES, DEFAULT_HEAP_BYTES, MALLOC_HEAP_SIZE, PRINTF_FIFO_SIZE
from lanGPU.emulator.results import (
    CONTEXT_IS_DESTROYED,
    INVALID_CONTEXT,
    INVALID_DEVICE,
    INVALID_VALUE,
    NOT_SUPPORTED,
    PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_NOT_ENABLED,
    CuError,
)

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_FLAGS_MASK: Final = 0xFF
_LIMITS: Final = ENUMS["CUlimit"]
_DEFAULT_LIMITS: Final = {
    _LIMITS["CU_LIMIT_STACK_SIZE"]: 1024,
    PRINTF_FIFO_SIZE: DEFAULT_FIFO_BYTES,
    MALLOC_HEAP_SIZE: DEFAULT_HEAP_BYTES,
    _LIMITS["CU_LIMIT_MAX_L2_FETCH_GRANULARITY"]: 64,
    _LIMITS["CU_LIMIT_PERSISTING_L2_CACHE_SIZE"]: 0,
}
_API_VERSIONS: Final = {"v2": 3020, "v3": 11040, "v4": 12050}


# --- primary contexts ------------------------------------------------------------------------------------------------
@initialized("cuDevicePrimaryCtxRetain")
def primary_retain(d: Driver, pctx: int, dev: int) -> None:
    device = d.device(dev)
    need(pctx)
    with d.lock:
        primary = primary_of(d, device)
        if not primary.alive:
            _revive(device)
        device.primary_references += 1
        put_u64(pctx, primary.handle)


def primary_of(d: Driver, device: Device) -> Context:
    """The device's primary context, alive or not: its handle stays the same from one life to the next."""
    with d.lock:
        if device.primary is None:
            device.primary = d.new_context(device, device.primary_flags, primary=True)
            device.primary.alive = False
        return device.primary


def _revive(device: Device) -> None:
    assert device.primary is not None
    device.primary.alive = True
    device.primary.error = 0
    device.primary.flags = device.primary_flags
    device.primary.legacy.last = 0


@initialized("cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2")
def primary_release(d: Driver, dev: int) -> None:
    device = d.device(dev)
    with d.lock:
        if device.primary_references == 0 or device.primary is None:
            raise CuError(INVALID_CONTEXT)
        device.primary_references -= 1
        last = device.primary_references == 0
    if last:
        d.end_context(device.primary)


@initialized("cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2")
def primary_reset(d: Driver, dev: int) -> None:
    """Gives everything back and clears a sticky error; who retained the context still has it, empty."""
    device = d.device(dev)
    if device.primary is not None and device.primary.alive:
        d.end_context(device.primary)
        if device.primary_references:
            _revive(device)


@initialized("cuDevicePrimaryCtxSetFlags", "cuDevicePrimaryCtxSetFlags_v2")
def primary_set_flags(d: Driver, dev: int, flags: int) -> int | None:
    device = d.device(dev)
    _check_flags(flags)
    device.primary_flags = flags
    if device.primary is not None and device.primary.alive:
        device.primary.flags = flags
    return None


@initialized("cuDevicePrimaryCtxGetState")
def primary_get_state(d: Driver, dev: int, flags: int, active: int) -> None:
    device = d.device(dev)
    put_u32(flags, device.primary_flags)
    put_i32(active, int(device.primary is not None and device.primary.alive))


# --- creation and destruction ------------------------------------------------------------------------------------------
def _check_flags(flags: int) -> None:
    schedule = flags & 0x7
    if flags & ~_FLAGS_MASK or schedule not in (0, 1, 2, 4):
        raise CuError(INVALID_VALUE)


def create_context(d: Driver, pctx: int, flags: int, dev: int, version: str = "v2") -> None:
    """A new context, current to the calling thread."""
    device = d.device(dev)
    need(pctx)
    _check_flags(flags)
    context = d.new_context(device, flags, api_version=_API_VERSIONS[version])
    d.stack().append(context)
    put_u64(pctx, context.handle)


@initialized("cuCtxCreate_v2")
def ctx_create_v2(d: Driver, pctx: int, flags: int, dev: int) -> None:
    create_context(d, pctx, flags, dev, "v2")


@initialized("cuCtxCreate_v3")
def ctx_create_v3(d: Driver, pctx: int, affinity: int, count: int, flags: int, dev: int) -> int | None:
    if affinity or count:
        return NOT_SUPPORTED
    create_context(d, pctx, flags, dev, "v3")
    return None


@initialized("cuCtxCreate_v4")
def ctx_create_v4(d: Driver, pctx: int, parameters: int, flags: int, dev: int) -> int | None:
    if parameters:
        return NOT_SUPPORTED
    create_context(d, pctx, flags, dev, "v4")
    return None


@initialized("cuCtxDestroy", "cuCtxDestroy_v2")
def ctx_destroy(d: Driver, ctx: int) -> None:
    context = d.handles.get(ctx, Context, INVALID_CONTEXT)
    if context.primary:
        raise CuError(INVALID_CONTEXT)
    if not context.alive:
        raise CuError(CONTEXT_IS_DESTROYED)
    d.end_context(context)
    d.handles.remove(ctx)
    stack = d.stack()
    if stack and stack[-1] is context:
        stack.pop()


# --- the thread's stack ------------------------------------------------------------------------------------------------
@initialized("cuCtxGetCurrent")
def ctx_get_current(d: Driver, pctx: int) -> None:
    stack = d.stack()
    put_u64(pctx, stack[-1].handle if stack else 0)


@initialized("cuCtxSetCurrent")
def ctx_set_current(d: Driver, ctx: int) -> None:
    stack = d.stack()
    if not ctx:
        if stack:
            stack.pop()
        return
    context = _bindable(d, ctx)
    if stack:
        stack[-1] = context
    else:
        stack.append(context)


@initialized("cuCtxPushCurrent", "cuCtxPushCurrent_v2")
def ctx_push_current(d: Driver, ctx: int) -> None:
    d.stack().append(_bindable(d, ctx))


def _bindable(d: Driver, handle: int) -> Context:
    """A context that may be made current. A primary one may before it is active: libcudart does so and retains it then."""
    context = d.handles.get(handle, Context, INVALID_CONTEXT)
    if not context.alive and not context.primary:
        raise CuError(CONTEXT_IS_DESTROYED)
    return context


@initialized("cuCtxPopCurrent", "cuCtxPopCurrent_v2")
def ctx_pop_current(d: Driver, pctx: int) -> None:
    stack = d.stack()
    if not stack:
        raise CuError(INVALID_CONTEXT)
    context = stack.pop()
    if pctx:
        put_u64(pctx, context.handle)


# --- questions and settings ----------------------------------------------------------------------------------------------
def _named(d: Driver, handle: int) -> Context:
    """The context that an optional handle argument means."""
    return d.context(handle) if handle else d.require_context()


@in_context("cuCtxGetDevice")
def ctx_get_device(d: Driver, context: Context, device: int) -> None:
    put_i32(device, context.device.ordinal)


@initialized("cuCtxGetDevice_v2")
def ctx_get_device_v2(d: Driver, device: int, ctx: int) -> None:
    put_i32(device, _named(d, ctx).device.ordinal)


@in_context("cuCtxGetFlags")
def ctx_get_flags(d: Driver, context: Context, flags: int) -> None:
    put_u32(flags, context.device.primary_flags if context.primary else context.flags)


@in_context("cuCtxSetFlags")
def ctx_set_flags(d: Driver, context: Context, flags: int) -> None:
    _check_flags(flags)
    context.flags = flags
    if context.primary:
        context.device.primary_flags = flags


@initialized("cuCtxGetId")
def ctx_get_id(d: Driver, ctx: int, context_id: int) -> None:
    put_u64(context_id, _named(d, ctx).id)


@initialized("cuCtxGetApiVersion")
def ctx_get_api_version(d: Driver, ctx: int, version: int) -> None:
    put_u32(version, _named(d, ctx).api_version)


@in_context("cuCtxSynchronize")
def ctx_synchronize(d: Driver, context: Context) -> None:
    _synchronize(d, context)


@initialized("cuCtxSynchronize_v2")
def ctx_synchronize_v2(d: Driver, ctx: int) -> None:
    _synchronize(d, _named(d, ctx))


def _synchronize(d: Driver, context: Context) -> None:
    if context.error:
        raise CuError(context.error)
    if d.captures:
        d.break_captures("cuCtxSynchronize")
    d.queue.drain()
    if context.error:
        raise CuError(context.error)


@in_context("cuCtxGetLimit")
def ctx_get_limit(d: Driver, context: Context, value: int, limit: int) -> int | None:
    if limit not in _DEFAULT_LIMITS:
        return NOT_SUPPORTED if limit in _LIMITS.values() else INVALID_VALUE
    put_u64(value, context.limits.get(limit, _DEFAULT_LIMITS[limit]))
    return None


@in_context("cuCtxSetLimit")
def ctx_set_limit(d: Driver, context: Context, limit: int, value: int) -> int | None:
    """Kernels' output buffer and heap can be set until a kernel uses them; stacks are as deep as their code asks."""
    if limit not in _DEFAULT_LIMITS:
        return NOT_SUPPORTED if limit in _LIMITS.values() else INVALID_VALUE
    services = context.services
    if services is not None and ((limit == PRINTF_FIFO_SIZE) or (limit == MALLOC_HEAP_SIZE and services.heap is not None)):
        return INVALID_VALUE
    context.limits[limit] = value
    return None


@in_context("cuCtxGetCacheConfig")
def ctx_get_cache_config(d: Driver, context: Context, config: int) -> None:
    put_u32(config, context.cache_config)


@in_context("cuCtxSetCacheConfig")
def ctx_set_cache_config(d: Driver, context: Context, config: int) -> None:
    """A preference between two memories that are one here."""
    if config not in ENUMS["CUfunc_cache"].values():
        raise CuError(INVALID_VALUE)
    context.cache_config = config


@in_context("cuCtxGetSharedMemConfig")
def ctx_get_shared_mem_config(d: Driver, context: Context, config: int) -> None:
    put_u32(config, context.shared_config)


@in_context("cuCtxSetSharedMemConfig")
def ctx_set_shared_mem_config(d: Driver, context: Context, config: int) -> None:
    """Without effect since compute capability 5.0; the bank size stays 4 bytes."""
    if config not in (0, 1, 2):
        raise CuError(INVALID_VALUE)


@in_context("cuCtxGetStreamPriorityRange")
def ctx_get_stream_priority_range(d: Driver, context: Context, least: int, greatest: int) -> None:
    if least:
        put_i32(least, LEAST_PRIORITY)
    if greatest:
        put_i32(greatest, GREATEST_PRIORITY)


LEAST_PRIORITY: Final = 0
GREATEST_PRIORITY: Final = -5


@in_context("cuCtxResetPersistingL2Cache")
def ctx_reset_persisting_l2_cache(d: Driver, context: Context) -> int:
    return NOT_SUPPORTED


@in_context("cuCtxEnablePeerAccess")
def ctx_enable_peer_access(d: Driver, context: Context, peer: int, flags: int) -> None:
    """Every device can use every other's memory already; the rules are CUDA's."""
    other = d.context(peer)
    if flags:
        raise CuError(INVALID_VALUE)
    if other.device is context.device:
        raise CuError(INVALID_DEVICE)
    if other in context.peers:
        raise CuError(PEER_ACCESS_ALREADY_ENABLED)
    context.peers.add(other)


@in_context("cuCtxDisablePeerAccess")
def ctx_disable_peer_access(d: Driver, context: Context, peer: int) -> None:
    other = d.context(peer)
    if other not in context.peers:
        raise CuError(PEER_ACCESS_NOT_ENABLED)
    context.peers.discard(other)
