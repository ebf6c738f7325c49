"""Memory pools of devices (one name each), and attributes whose size depends on which is asked."""

from lanGPU.client.calls.devices import need_device, need_pointer, write_u64
from lanGPU.client.calls.effects import Part, Post, ReadMemory, Request, Steps, WriteMemory
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, i32, u32
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS

_SIZES = {1: 4, 2: 4, 3: 4, 4: 8, 5: 8, 6: 8, 7: 8, 8: 8, 9: 4, 10: 4, 11: 4, 12: 4, 13: 8, 14: 4, 15: 4}
"""CUmemPool_attribute -> bytes of its value (cuda.h, cuMemPoolSetAttribute and cuMemPoolGetAttribute)."""


def _default(call: Call, ordinal: int) -> Part[tuple[int, int]]:
    """(CUresult, handle) of a device's default pool."""
    pools = call.state.pools
    handle = pools.get(("default", ordinal))
    if handle is None:
        handle = call.state.names.take()
        reply = yield Request("cuDeviceGetDefaultMemPool", (handle, ordinal), 0)
        if reply.result:
            call.state.names.give_back(handle)
            return reply.result, 0
        handle = pools.setdefault(("default", ordinal), handle)
    return CUDA_SUCCESS, handle


@client_call("cuDeviceGetDefaultMemPool")
def get_default(call: Call, out: int, dev: int) -> Steps:
    """Always the same handle."""
    need_pointer(out)
    need_device(call, dev)
    result, handle = yield from _default(call, i32(dev))
    if not result:
        yield write_u64(out, handle)
    return result


@client_call("cuDeviceGetMemPool")
def get_pool(call: Call, out: int, dev: int) -> Steps:
    """What the program set, else the default pool."""
    need_pointer(out)
    need_device(call, dev)
    handle = call.state.pools.get(("current", i32(dev)))
    if handle is None:
        result, handle = yield from _default(call, i32(dev))
        if result:
            return result
    yield write_u64(out, handle)
    return CUDA_SUCCESS


@client_call("cuDeviceSetMemPool")
def set_pool(call: Call, dev: int, pool: int) -> Steps:
    """Kept for cuDeviceGetMemPool, and sent."""
    need_device(call, dev)
    result = yield Post("cuDeviceSetMemPool", (i32(dev), pool), 0)
    if not result:
        call.state.pools["current", i32(dev)] = pool
    return int(result)


@client_call("cuMemPoolSetAttribute")
def set_attribute(call: Call, pool: int, attribute: int, value: int) -> Steps:
    """The value's size is the attribute's."""
    size = _SIZES.get(u32(attribute))
    if size is None or not value:
        return CUDA_ERROR_INVALID_VALUE
    data = yield ReadMemory(value, size)
    return int((yield Post("cuMemPoolSetAttribute", (pool, u32(attribute), data), 0)))


@client_call("cuMemPoolGetAttribute")
def get_attribute(call: Call, pool: int, attribute: int, out: int) -> Steps:
    """The value's size is the attribute's."""
    size = _SIZES.get(u32(attribute))
    if size is None or not out:
        return CUDA_ERROR_INVALID_VALUE
    reply = yield Request("cuMemPoolGetAttribute", (pool, u32(attribute), size), 0)
    if not reply.result:
        yield WriteMemory(out, reply.outputs[:size])
    return int(reply.result)
