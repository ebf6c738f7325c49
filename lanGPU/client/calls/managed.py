"""Managed memory: at the same address in the program and on the device, kept equal by `lanGPU.client.calls.shared`.

Advice and prefetches are checked and kept for cuMemRangeGetAttribute; where the memory lies does not depend on them.
"""

import struct

from lanGPU.client.calls import shared
from lanGPU.client.calls.contexts import need_current
from lanGPU.client.calls.devices import need_pointer, write_u64
from lanGPU.client.calls.effects import CallError, ReadMemory, Steps, WriteMemory
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, i32, u32
from lanGPU.constants import CUDA_ERROR_INVALID_DEVICE, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS
from lanGPU.driverapi import managed as rules

_MAX_ATTRIBUTES = 64
_MAX_VALUE_BYTES = 4096


def _need(call: Call, address: int, size: int) -> shared.Shared:
    """The managed allocation that holds all of a range. Raises CallError INVALID_VALUE."""
    found = shared.find_managed(call, address)
    if found is None or not size or address + size > found.start + found.size:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    return found


@client_call("cuMemAllocManaged")
def allocate(call: Call, out: int, size: int, flags: int) -> Steps:
    """Zeros. CU_MEM_ATTACH_SINGLE is for cuStreamAttachMemAsync only."""
    need_pointer(out)
    if not size or u32(flags) not in (rules.ATTACH_GLOBAL, rules.ATTACH_HOST):
        return CUDA_ERROR_INVALID_VALUE
    context = need_current(call)
    made = yield from shared.create(call, context.handle, size, managed=True)
    made.attach = u32(flags)
    yield write_u64(out, made.start)
    return CUDA_SUCCESS


def _prefetch(call: Call, address: int, size: int, location: rules.Location) -> Steps:
    need_current(call)
    found = _need(call, address, size)
    if not rules.is_location(location, len(call.state.devices)):
        return CUDA_ERROR_INVALID_DEVICE
    found.hints.prefetched(address, address + size, location)
    return CUDA_SUCCESS
    yield  # a generator, although it asks for nothing


@client_call("cuMemPrefetchAsync")
def prefetch(call: Call, address: int, size: int, device: int, stream: int) -> Steps:
    """The contents are where they are needed anyway."""
    return (yield from _prefetch(call, address, size, rules.location_of_device(i32(device))))


@client_call("cuMemPrefetchAsync_v2")
def prefetch_v2(call: Call, address: int, size: int, location: int, flags: int, stream: int) -> Steps:
    """As the first version; flags must be 0."""
    if u32(flags):
        return CUDA_ERROR_INVALID_VALUE
    return (yield from _prefetch(call, address, size, rules.location_of_word(location)))


def _advise(call: Call, address: int, size: int, advice: int, location: rules.Location) -> Steps:
    need_current(call)
    found = _need(call, address, size)
    if not rules.valid_advice(advice, location, len(call.state.devices)):
        return CUDA_ERROR_INVALID_DEVICE if advice in range(1, 7) else CUDA_ERROR_INVALID_VALUE
    found.hints.advise(address, address + size, advice, location)
    return CUDA_SUCCESS
    yield


@client_call("cuMemAdvise")
def advise(call: Call, address: int, size: int, advice: int, device: int) -> Steps:
    """Kept."""
    return (yield from _advise(call, address, size, u32(advice), rules.location_of_device(i32(device))))


@client_call("cuMemAdvise_v2")
def advise_v2(call: Call, address: int, size: int, advice: int, location: int) -> Steps:
    """Kept."""
    return (yield from _advise(call, address, size, u32(advice), rules.location_of_word(location)))


def _attribute(call: Call, attribute: int, address: int, size: int, room: int) -> bytes:
    found = _need(call, address, size)
    value = found.hints.attribute(attribute, address, address + size, room) if room <= _MAX_VALUE_BYTES else None
    if value is None:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    return value


@client_call("cuMemRangeGetAttribute")
def range_attribute(call: Call, out: int, room: int, attribute: int, address: int, size: int) -> Steps:
    """From what was advised."""
    need_pointer(out)
    yield WriteMemory(out, _attribute(call, u32(attribute), address, size, room))
    return CUDA_SUCCESS


@client_call("cuMemRangeGetAttributes")
def range_attributes(call: Call, outs: int, rooms: int, attributes: int, count: int, address: int, size: int) -> Steps:
    """As many single questions."""
    need_pointer(outs, rooms, attributes)
    if not 0 < count <= _MAX_ATTRIBUTES:
        return CUDA_ERROR_INVALID_VALUE
    pointers = struct.unpack(f"<{count}Q", (yield ReadMemory(outs, 8 * count)))
    sizes = struct.unpack(f"<{count}Q", (yield ReadMemory(rooms, 8 * count)))
    kinds = struct.unpack(f"<{count}I", (yield ReadMemory(attributes, 4 * count)))
    need_pointer(*pointers)
    values = [_attribute(call, kind, address, size, room) for kind, room in zip(kinds, sizes, strict=True)]
    for pointer, value in zip(pointers, values, strict=True):
        yield WriteMemory(pointer, value)
    return CUDA_SUCCESS


@client_call("cuStreamAttachMemAsync")
def attach(call: Call, stream: int, address: int, length: int, flags: int) -> Steps:
    """Of whole allocations; a length of 0 means that, too. Contents are kept equal whatever the memory is attached to."""
    need_current(call)
    found = shared.find_managed(call, address)
    kind = u32(flags)
    if found is None or address != found.start or length not in (0, found.size):
        return CUDA_ERROR_INVALID_VALUE
    if kind not in (rules.ATTACH_GLOBAL, rules.ATTACH_HOST, rules.ATTACH_SINGLE) or (kind == rules.ATTACH_SINGLE and not stream):
        return CUDA_ERROR_INVALID_VALUE
    found.attach = kind
    return CUDA_SUCCESS
    yield
