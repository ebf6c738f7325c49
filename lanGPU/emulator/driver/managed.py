"""Managed memory: the emulated devices are the host, so it is memory that both use; advice and prefetches are kept and told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from lanGPU.driverapi import managed as rules
from lanGPU.emulator.driver.cabi import get_u32, get_u64, need, put_bytes, put_u64
from lanGPU.emulator.driver.objects import Context
from lanGPU.emulator.driver.registry import in_context, initialized
from lanGPU.emulator.memory import Allocation, Kind
from lanGPU.emulator.results import INVALID_DEVICE, INVALID_VALUE, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_MAX_ATTRIBUTES: Final = 64
_MAX_VALUE_BYTES: Final = 4096


def _need(d: Driver, address: int, size: int) -> Allocation:
    """The managed allocation that holds all of a range, or INVALID_VALUE."""
    found = d.memory.find(address)
    if found is None or found.kind is not Kind.MANAGED or not size or address + size > found.address + found.size:
        raise CuError(INVALID_VALUE)
    return found


@in_context("cuMemAllocManaged", unsafe=True)
def mem_alloc_managed(d: Driver, context: Context, dptr: int, size: int, flags: int) -> None:
    need(dptr)
    if flags not in (rules.ATTACH_GLOBAL, rules.ATTACH_HOST):
        raise CuError(INVALID_VALUE)
    put_u64(dptr, d.memory.allocate_host(size, context.device.ordinal, flags, context, Kind.MANAGED).address)


def _prefetch(d: Driver, address: int, size: int, location: rules.Location) -> None:
    found = _need(d, address, size)
    if not rules.is_location(location, len(d.devices)):
        raise CuError(INVALID_DEVICE)
    found.hints.prefetched(address, address + size, location)


@in_context("cuMemPrefetchAsync")
def mem_prefetch_async(d: Driver, context: Context, address: int, size: int, device: int, stream: int) -> None:
    d.stream(context, stream)
    _prefetch(d, address, size, rules.location_of_device(device))


@in_context("cuMemPrefetchAsync_v2")
def mem_prefetch_async_v2(d: Driver, context: Context, address: int, size: int, location: int, flags: int, stream: int) -> None:
    d.stream(context, stream)
    if flags:
        raise CuError(INVALID_VALUE)
    _prefetch(d, address, size, rules.location_of_word(location))


def _advise(d: Driver, address: int, size: int, advice: int, location: rules.Location) -> None:
    found = _need(d, address, size)
    if not rules.valid_advice(advice, location, len(d.devices)):
        raise CuError(INVALID_DEVICE if advice in range(1, 7) else INVALID_VALUE)
    found.hints.advise(address, address + size, advice, location)


@in_context("cuMemAdvise")
def mem_advise(d: Driver, context: Context, address: int, size: int, advice: int, device: int) -> None:
    _advise(d, address, size, advice, rules.location_of_device(device))


@in_context("cuMemAdvise_v2")
def mem_advise_v2(d: Driver, context: Context, address: int, size: int, advice: int, location: int) -> None:
    _advise(d, address, size, advice, rules.location_of_word(location))


def _attribute(d: Driver, attribute: int, address: int, size: int, room: int) -> bytes:
    found = _need(d, address, size)
    value = found.hints.attribute(attribute, address, address + size, room) if room <= _MAX_VALUE_BYTES else None
    if value is None:
        raise CuError(INVALID_VALUE)
    return value


@initialized("cuMemRangeGetAttribute")
def mem_range_get_attribute(d: Driver, out: int, room: int, attribute: int, address: int, size: int) -> None:
    put_bytes(need(out), _attribute(d, attribute, address, size, room))


@initialized("cuMemRangeGetAttributes")
def mem_range_get_attributes(d: Driver, outs: int, rooms: int, attributes: int, count: int, address: int, size: int) -> None:
    need(outs), need(rooms), need(attributes)
    if not 0 < count <= _MAX_ATTRIBUTES:
        raise CuError(INVALID_VALUE)
    values = [_attribute(d, get_u32(attributes + 4 * i), address, size, get_u64(rooms + 8 * i)) for i in range(count)]
    for i, value in enumerate(values):
        put_bytes(need(get_u64(outs + 8 * i)), value)


@in_context("cuStreamAttachMemAsync")
def stream_attach_mem_async(d: Driver, context: Context, stream: int, address: int, length: int, flags: int) -> None:
    """Of whole allocations; both sides may use the memory at any time, whatever it is attached to."""
    d.stream(context, stream)
    found = d.memory.allocations.get(address)
    if found is None or found.kind is not Kind.MANAGED or length not in (0, found.size):
        raise CuError(INVALID_VALUE)
    if flags not in (rules.ATTACH_GLOBAL, rules.ATTACH_HOST, rules.ATTACH_SINGLE) or (flags == rules.ATTACH_SINGLE and not stream):
        raise CuError(INVALID_VALUE)
    found.flags = flags
