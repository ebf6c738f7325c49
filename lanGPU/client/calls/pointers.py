"""Pointer attributes: of host memory from our books, of everything else from the server."""

import struct

from lanGPU.client.calls.copies import MEMORY_TYPE_DEVICE, MEMORY_TYPE_HOST
from lanGPU.client.calls.devices import need_pointer
from lanGPU.client.calls.effects import Part, ReadMemory, Request, Steps, WriteMemory
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.shared import Shared, find
from lanGPU.client.calls.state import Call, HostRange, u32
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS

CONTEXT = 1
MEMORY_TYPE = 2
DEVICE_POINTER = 3
HOST_POINTER = 4
P2P_TOKENS = 5
DEVICE_ORDINAL = 9
RANGE_START_ADDR = 11
RANGE_SIZE = 12
MAPPED = 13
_DEVICE_INVALID = -2
"""CU_DEVICE_INVALID."""
_MAX_ATTRIBUTES = 64

SIZES = {
    CONTEXT: 8,
    MEMORY_TYPE: 4,
    DEVICE_POINTER: 8,
    HOST_POINTER: 8,
    6: 4,  # SYNC_MEMOPS
    7: 8,  # BUFFER_ID
    8: 4,  # IS_MANAGED
    DEVICE_ORDINAL: 4,
    10: 4,  # IS_LEGACY_CUDA_IPC_CAPABLE
    RANGE_START_ADDR: 8,
    RANGE_SIZE: 8,
    MAPPED: 4,
    14: 8,  # ALLOWED_HANDLE_TYPES
    15: 4,  # IS_GPU_DIRECT_RDMA_CAPABLE
    16: 4,  # ACCESS_FLAGS
    17: 8,  # MEMPOOL_HANDLE
    18: 8,  # MAPPING_SIZE
    19: 8,  # MAPPING_BASE_ADDR
    20: 8,  # MEMORY_BLOCK_ID
    21: 4,  # IS_HW_DECOMPRESS_CAPABLE
    22: 4,  # LOCALITY_DOMAIN_ORDINAL
}
"""CUpointer_attribute -> bytes of its value (cuda.h, cuPointerGetAttribute)."""
_FALSE = (8, 10, 14, 15, 17, 21)
_READ_WRITE = 3


def managed_attribute(call: Call, attribute: int, address: int, found: Shared) -> tuple[int, bytes]:
    """(CUresult, value) for managed memory."""
    context = call.state.contexts.get(found.context)
    values = {
        CONTEXT: found.context,
        MEMORY_TYPE: MEMORY_TYPE_DEVICE,
        DEVICE_POINTER: address,
        HOST_POINTER: address,
        6: 0,
        7: found.base,
        8: 1,
        DEVICE_ORDINAL: context.device if context else 0,
        RANGE_START_ADDR: found.start,
        RANGE_SIZE: found.size,
        MAPPED: 1,
        16: _READ_WRITE,
        **dict.fromkeys(_FALSE[1:], 0),
    }
    if attribute not in values:
        return CUDA_ERROR_INVALID_VALUE, b""
    return CUDA_SUCCESS, values[attribute].to_bytes(SIZES[attribute], "little")


def host_attribute(call: Call, attribute: int, address: int, found: HostRange, shared: Shared | None) -> tuple[int, bytes]:
    """(CUresult, value) for a host address that CUDA knows."""
    size = SIZES[attribute]
    context = call.state.current_context(call.thread)
    values = {
        CONTEXT: context.handle if context else 0,
        MEMORY_TYPE: MEMORY_TYPE_HOST,
        HOST_POINTER: address,
        DEVICE_ORDINAL: context.device if context else 0,
        RANGE_START_ADDR: found.start,
        RANGE_SIZE: found.size,
        MAPPED: 1,
        **dict.fromkeys(_FALSE, 0),
    }
    if shared is not None:
        values[DEVICE_POINTER] = address - shared.start + shared.device
    if attribute not in values:
        return CUDA_ERROR_NOT_SUPPORTED if attribute == DEVICE_POINTER else CUDA_ERROR_INVALID_VALUE, b""
    return CUDA_SUCCESS, values[attribute].to_bytes(size, "little")


def _ask(call: Call, attribute: int, address: int) -> Part[tuple[int, bytes]]:
    """(CUresult, value)."""
    if attribute == P2P_TOKENS:
        return CUDA_ERROR_NOT_SUPPORTED, b""
    size = SIZES.get(attribute)
    if size is None:
        return CUDA_ERROR_INVALID_VALUE, b""
    shared = find(call, address)
    if shared is not None and shared.managed:
        return managed_attribute(call, attribute, address, shared)
    found = call.state.host.find(address)
    if found is not None:
        return host_attribute(call, attribute, address, found, shared)
    reply = yield Request("cuPointerGetAttribute", (size, attribute, address), 0)
    return reply.result, reply.outputs[:size]


@client_call("cuPointerGetAttribute")
def get_attribute(call: Call, out: int, attribute: int, address: int) -> Steps:
    """INVALID_VALUE for addresses that CUDA does not know."""
    need_pointer(out)
    result, value = yield from _ask(call, u32(attribute), address)
    if not result:
        yield WriteMemory(out, value)
    return result


@client_call("cuPointerGetAttributes")
def get_attributes(call: Call, count_word: int, attributes: int, data: int, address: int) -> Steps:
    """Unknown addresses give default values and CUDA_SUCCESS (cuda.h, cuPointerGetAttributes)."""
    count = u32(count_word)
    if not count or count > _MAX_ATTRIBUTES or not attributes or not data:
        return CUDA_ERROR_INVALID_VALUE
    kinds = struct.unpack(f"<{count}I", (yield ReadMemory(attributes, 4 * count)))
    outs = struct.unpack(f"<{count}Q", (yield ReadMemory(data, 8 * count)))
    for kind, out in zip(kinds, outs, strict=True):
        if kind not in SIZES or not out:
            return CUDA_ERROR_NOT_SUPPORTED if kind == P2P_TOKENS else CUDA_ERROR_INVALID_VALUE
        result, value = yield from _ask(call, kind, address)
        if result == CUDA_ERROR_INVALID_VALUE or (result == CUDA_ERROR_NOT_SUPPORTED and kind == DEVICE_POINTER):
            default = _DEVICE_INVALID if kind == DEVICE_ORDINAL else 0
            value = default.to_bytes(SIZES[kind], "little", signed=True)
        elif result:
            return result
        yield WriteMemory(out, value)
    return CUDA_SUCCESS
