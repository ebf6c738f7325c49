"""Launches that hold more than plain arguments, and the packing of kernel parameters."""

import math
import struct

from lanGPU.client.calls.devices import need_pointer, write_i32
from lanGPU.client.calls.effects import CallError, Part, Post, ReadMemory, Request, Steps
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, u32
from lanGPU.constants import (
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS,
    LAUNCH_BLOCK,
    LAUNCH_GRID,
    LAUNCH_SHARED_BYTES,
    LAUNCH_THREADS,
    MAX_KERNEL_PARAMS_BYTES,
)
from lanGPU.driverapi.structs import LAUNCH_ATTRIBUTE, LAUNCH_CONFIG

LAUNCH_PARAM_END = 0
LAUNCH_PARAM_BUFFER_POINTER = 1
LAUNCH_PARAM_BUFFER_SIZE = 2
_MAX_EXTRA_WORDS = 9
ATTRIBUTE_COOPERATIVE = 2
_ATTRIBUTES = frozenset({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 16, 17, 18})
"""CUlaunchAttributeID that hold numbers, device addresses or events; 13 (device-updatable node) is written by the driver."""
_MAX_ATTRIBUTES = 64
_SIZES = ("gridDimX", "gridDimY", "gridDimZ", "blockDimX", "blockDimY", "blockDimZ", "sharedMemBytes")
_MAX_ACCEPTED = 4096
"""Launches remembered as accepted; a program has some dozen such kernels and sizes."""


def pack_extra(extra: int) -> Part[bytes]:
    """The buffer that CU_LAUNCH_PARAM_BUFFER_POINTER and _SIZE describe."""
    buffer = size_at = None
    for at in range(0, _MAX_EXTRA_WORDS, 2):
        key = int.from_bytes((yield ReadMemory(extra + 8 * at, 8)), "little")
        if key == LAUNCH_PARAM_END:
            break
        value = int.from_bytes((yield ReadMemory(extra + 8 * at + 8, 8)), "little")
        if key == LAUNCH_PARAM_BUFFER_POINTER:
            buffer = value
        elif key == LAUNCH_PARAM_BUFFER_SIZE:
            size_at = value
        else:
            raise CallError(CUDA_ERROR_INVALID_VALUE)
    else:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    if buffer is None or size_at is None:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    size = int.from_bytes((yield ReadMemory(size_at, 8)), "little")
    if size > MAX_KERNEL_PARAMS_BYTES:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    return bytes((yield ReadMemory(buffer, size)))


def pack_params(call: Call, handle: int, params: int) -> Part[bytes]:
    """The values that `kernelParams` points to, laid out as the kernel wants them."""
    function = call.state.functions.get(handle)
    if function is None:
        raise CallError(CUDA_ERROR_INVALID_HANDLE)
    if function.layout is None:
        raise CallError(CUDA_ERROR_NOT_SUPPORTED, f"the parameters of kernel {function.name} are not known")
    count = len(function.layout)
    out = bytearray(function.packed_bytes)
    pointers = struct.unpack(f"<{count}Q", (yield ReadMemory(params, 8 * count)))
    for (offset, size), pointer in zip(function.layout, pointers, strict=True):
        need_pointer(pointer)
        out[offset : offset + size] = yield ReadMemory(pointer, size)
    return bytes(out)


def pack(call: Call, handle: int, params: int, extra: int) -> Part[bytes | None]:
    """The packed parameter buffer of a launch; None: neither pointer was given. Both at once are an error (cuda.h, cuLaunchKernel)."""
    if params and extra:
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    if extra:
        return (yield from pack_extra(extra))
    if params:
        return (yield from pack_params(call, handle, params))
    return None


def read_config(address: int) -> Part[bytes]:
    """A *launch config*: the struct with `attrs` 0, then the attributes."""
    need_pointer(address)
    config = yield ReadMemory(address, LAUNCH_CONFIG.size)
    count = LAUNCH_CONFIG.get(config, "numAttrs")
    attributes = LAUNCH_CONFIG.get(config, "attrs")
    if count > _MAX_ATTRIBUTES or (count and not attributes):
        raise CallError(CUDA_ERROR_INVALID_VALUE)
    data: bytes | bytearray = b""
    if count:
        data = yield ReadMemory(attributes, count * LAUNCH_ATTRIBUTE.size)
        for i in range(count):
            kind = LAUNCH_ATTRIBUTE.get(data, "id", i * LAUNCH_ATTRIBUTE.size)
            if kind not in _ATTRIBUTES:
                raise CallError(CUDA_ERROR_NOT_SUPPORTED, f"launch attribute {kind}")
    LAUNCH_CONFIG.put(config, "attrs", 0)
    return bytes(config) + bytes(data)


def send(call: Call, config: bytes, function: int, packed: bytes | None, *, cooperative: bool = False) -> Steps:
    """Post a launch; one that may well be refused (sizes that not all devices allow, too many blocks for a cooperative one) waits for its
    result, once: a program tests each launch with what it returns."""
    sizes = tuple(LAUNCH_CONFIG.get(config, name) for name in _SIZES)
    grid, block, shared = sizes[:3], sizes[3:6], sizes[6]
    odd = not all(0 < size <= limit for size, limit in zip((*grid, *block), (*LAUNCH_GRID, *LAUNCH_BLOCK), strict=True))
    odd = odd or math.prod(block) > LAUNCH_THREADS or shared > LAUNCH_SHARED_BYTES
    key = (function, cooperative, *sizes)
    accepted = call.state.accepted_launches
    values = (config, function, packed, 0)
    if not (odd or cooperative) or key in accepted:
        return int((yield Post("cuLaunchKernelEx", values)))
    reply = yield Request("cuLaunchKernelEx", values, 0)
    if reply.result == CUDA_SUCCESS:
        if len(accepted) >= _MAX_ACCEPTED:
            accepted.clear()
        accepted.add(key)
    return int(reply.result)


@client_call("cuLaunchKernelEx")
def launch_kernel_ex(call: Call, config: int, function: int, params: int, extra: int) -> Steps:
    """Attributes that hold pointers of the program's are not supported."""
    data = yield from read_config(config)
    packed = yield from pack(call, function, params, extra)
    kinds = [LAUNCH_ATTRIBUTE.get(data, "id", at) for at in range(LAUNCH_CONFIG.size, len(data), LAUNCH_ATTRIBUTE.size)]
    return (yield from send(call, data, function, packed, cooperative=ATTRIBUTE_COOPERATIVE in kinds))


@client_call("cuLaunchCooperativeKernel")
def launch_cooperative_kernel(call: Call, function: int, *args: int) -> Steps:
    """cuLaunchKernelEx with CU_LAUNCH_ATTRIBUTE_COOPERATIVE."""
    *dims, shared, stream, params = args
    packed = yield from pack(call, function, params, 0)
    sizes = dict(zip(_SIZES, map(u32, (*dims, shared)), strict=True))
    config = LAUNCH_CONFIG.pack(**sizes, hStream=stream, numAttrs=1)
    attribute = LAUNCH_ATTRIBUTE.pack(**{"id": ATTRIBUTE_COOPERATIVE, "value[0]": 1})
    return (yield from send(call, config + attribute, function, packed, cooperative=True))


@client_call("cuOccupancyMaxActiveClusters", "cuOccupancyMaxPotentialClusterSize")
def occupancy_clusters(call: Call, out: int, function: int, config: int) -> Steps:
    """The configuration is that of cuLaunchKernelEx."""
    need_pointer(out)
    data = yield from read_config(config)
    reply = yield Request(call.row.name, (4, function, data), 0)
    if reply.result:
        return int(reply.result)
    yield write_i32(out, int.from_bytes(reply.outputs[:4], "little"))
    return CUDA_SUCCESS
