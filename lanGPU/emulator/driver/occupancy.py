"""Occupancy: how many blocks fit, by threads, blocks and shared memory of compute capability 7.5. Registers never limit."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.attributes import (
    BLOCKS_PER_MULTIPROCESSOR,
    SHARED_PER_BLOCK_OPTIN,
    SHARED_PER_MULTIPROCESSOR,
    THREADS_PER_MULTIPROCESSOR,
    WARP_SIZE,
)
from lanGPU.emulator.driver.cabi import need, put_i32, put_u64
from lanGPU.emulator.driver.modules import max_threads, resolve_function
from lanGPU.emulator.driver.objects import Context
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.mapping import align_up
from lanGPU.emulator.results import INVALID_VALUE, CuError

if TYPE_CHECKING:
    from collections.abc import Callable

    from lanGPU.emulator.driver.state import Driver
    from lanGPU.emulator.ptx import KernelInfo

_SHARED_UNIT: Final = 256
_B2D_SIZE: Final = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)
_FLAGS: Final = frozenset(ENUMS["CUoccupancy_flags"].values())


def active_blocks(info: KernelInfo, block_size: int, dynamic_shared: int) -> int:
    """Blocks of that size that a multiprocessor holds at once; 0 if one does not fit."""
    if block_size <= 0:
        raise CuError(INVALID_VALUE)
    shared = align_up(info.shared_bytes + dynamic_shared, _SHARED_UNIT)
    if block_size > max_threads(info) or shared > SHARED_PER_BLOCK_OPTIN:
        return 0
    by_threads = THREADS_PER_MULTIPROCESSOR // align_up(block_size, WARP_SIZE)
    by_shared = SHARED_PER_MULTIPROCESSOR // shared if shared else BLOCKS_PER_MULTIPROCESSOR
    return min(by_threads, by_shared, BLOCKS_PER_MULTIPROCESSOR)


@in_context("cuOccupancyMaxActiveBlocksPerMultiprocessor")
def max_active_blocks(d: Driver, context: Context, count: int, f: int, block_size: int, shared: int) -> None:
    put_i32(count, active_blocks(resolve_function(d, context, f).info, block_size, shared))


@in_context("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags")
def max_active_blocks_with_flags(d: Driver, context: Context, count: int, f: int, block_size: int, shared: int, flags: int) -> None:
    if flags not in _FLAGS:
        raise CuError(INVALID_VALUE)
    max_active_blocks(d, context, count, f, block_size, shared)


def _potential(d: Driver, context: Context, min_grid: int, block: int, f: int, shared_of: Callable[[int], int], limit: int) -> None:
    need(min_grid), need(block)
    info = resolve_function(d, context, f).info
    most = min(limit or max_threads(info), max_threads(info))
    if most <= 0:
        raise CuError(INVALID_VALUE)
    best_threads = best_size = best_blocks = 0
    for size in (most, *range(most // WARP_SIZE * WARP_SIZE, 0, -WARP_SIZE)):
        blocks = active_blocks(info, size, shared_of(size))
        if blocks * size > best_threads:
            best_threads, best_size, best_blocks = blocks * size, size, blocks
        if best_threads >= THREADS_PER_MULTIPROCESSOR:
            break
    put_i32(min_grid, best_blocks * d.config.multiprocessors)
    put_i32(block, best_size)


@in_context("cuOccupancyMaxPotentialBlockSize")
def max_potential_block_size(
    d: Driver, context: Context, min_grid: int, block: int, f: int, size_function: int, shared: int, limit: int
) -> None:
    """The largest block among those with the most threads in flight, as the driver API says."""
    shared_of = _B2D_SIZE(size_function) if size_function else lambda _size: shared
    _potential(d, context, min_grid, block, f, shared_of, limit)


@in_context("cuOccupancyMaxPotentialBlockSizeWithFlags")
def max_potential_block_size_with_flags(
    d: Driver, context: Context, min_grid: int, block: int, f: int, size_function: int, shared: int, limit: int, flags: int
) -> None:
    if flags not in _FLAGS:
        raise CuError(INVALID_VALUE)
    max_potential_block_size(d, context, min_grid, block, f, size_function, shared, limit)


@in_context("cuOccupancyAvailableDynamicSMemPerBlock")
def available_dynamic_shared(d: Driver, context: Context, size: int, f: int, blocks: int, block_size: int) -> None:
    info = resolve_function(d, context, f).info
    if blocks <= 0 or block_size <= 0 or blocks > BLOCKS_PER_MULTIPROCESSOR:
        raise CuError(INVALID_VALUE)
    share = SHARED_PER_MULTIPROCESSOR // blocks // _SHARED_UNIT * _SHARED_UNIT
    put_u64(size, max(0, min(share, SHARED_PER_BLOCK_OPTIN) - info.shared_bytes))
