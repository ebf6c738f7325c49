"""Pinned and registered host memory: the program's own.

A device behind a network cannot use the pinning. Memory that kernels are to use (CU_MEMHOSTALLOC_DEVICEMAP, or its device pointer is asked
for) lies on the device, too, and both are kept equal (`lanGPU.client.calls.shared`); for all other memory only the books are kept.
"""

from lanGPU.client.calls import shared
from lanGPU.client.calls.contexts import need_current
from lanGPU.client.calls.devices import need_pointer, write_i32, write_u64
from lanGPU.client.calls.effects import Steps, Syscall
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, HostRange, u32
from lanGPU.client.calls.strings import map_memory
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS

CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED = 712
CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED = 713
_ALLOC_FLAGS = 0x7
"""CU_MEMHOSTALLOC_PORTABLE, DEVICEMAP, WRITECOMBINED."""
_DEVICEMAP = 0x2
_REGISTER_FLAGS = 0xF
_REGISTER_IOMEMORY = 0x4
_PAGE = 4096
_MAX_BYTES = 1 << 46


def _allocate(call: Call, out: int, size: int, flags: int) -> Steps:
    need_pointer(out)
    if not size or flags & ~_ALLOC_FLAGS:
        return CUDA_ERROR_INVALID_VALUE
    context = need_current(call)
    if size > _MAX_BYTES:
        return CUDA_ERROR_OUT_OF_MEMORY
    if flags & _DEVICEMAP:
        made = yield from shared.create(call, context.handle, size, managed=False)
        call.state.host.add(HostRange(made.start, size, flags, made.mapped_bytes))
        yield write_u64(out, made.start)
        return CUDA_SUCCESS
    length = (size + _PAGE - 1) & -_PAGE
    address = yield from map_memory(length)
    call.state.host.add(HostRange(address, size, flags, length))
    yield write_u64(out, address)
    return CUDA_SUCCESS


@client_call("cuMemAllocHost_v2")
def alloc_host(call: Call, out: int, size: int) -> Steps:
    """cuMemHostAlloc without flags."""
    return (yield from _allocate(call, out, size, 0))


@client_call("cuMemHostAlloc")
def host_alloc(call: Call, out: int, size: int, flags: int) -> Steps:
    """Page-aligned, zeroed."""
    return (yield from _allocate(call, out, size, u32(flags)))


@client_call("cuMemFreeHost")
def free_host(call: Call, address: int) -> Steps:
    """Only what cuMemAllocHost and cuMemHostAlloc gave."""
    found = call.state.host.find(address)
    if found is None or found.start != address or not found.mapped_bytes:
        return CUDA_ERROR_INVALID_VALUE
    call.state.host.remove(found)
    item = shared.find(call, address)
    if item is not None:
        result = yield from shared.destroy(call, item)
        if item.mapped_bytes:
            return result
    yield Syscall("munmap", (found.start, found.mapped_bytes))
    return CUDA_SUCCESS


@client_call("cuMemHostRegister_v2")
def register(call: Call, address: int, size: int, flags: int) -> Steps:
    """Overlap with known host memory is ALREADY_REGISTERED."""
    if not address or not size or u32(flags) & ~_REGISTER_FLAGS or address + size > 1 << 64:
        return CUDA_ERROR_INVALID_VALUE
    if u32(flags) & _REGISTER_IOMEMORY:
        return CUDA_ERROR_NOT_SUPPORTED
    need_current(call)
    if call.state.host.overlaps(address, size):
        return CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
    call.state.host.add(HostRange(address, size, u32(flags), 0))
    return CUDA_SUCCESS
    yield  # a generator, although it asks for nothing


@client_call("cuMemHostUnregister")
def unregister(call: Call, address: int) -> Steps:
    """By the address that was registered."""
    if not address:
        return CUDA_ERROR_INVALID_VALUE
    found = call.state.host.find(address)
    if found is None or found.start != address or found.mapped_bytes:
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED
    call.state.host.remove(found)
    item = shared.find(call, address)
    return (yield from shared.destroy(call, item)) if item is not None else CUDA_SUCCESS


@client_call("cuMemHostGetDevicePointer_v2")
def get_device_pointer(call: Call, out: int, address: int, flags: int) -> Steps:
    """From here on the memory lies on the device, too: at the program's address only if it was allocated for that."""
    need_pointer(out)
    found = call.state.host.find(address)
    if u32(flags) or found is None:
        return CUDA_ERROR_INVALID_VALUE
    item = shared.find(call, address)
    if item is None:
        context = need_current(call)
        item = yield from shared.create(call, context.handle, found.size, at=found.start, managed=False)
    yield write_u64(out, address - item.start + item.device)
    return CUDA_SUCCESS


@client_call("cuMemHostGetFlags")
def get_flags(call: Call, out: int, address: int) -> Steps:
    """As given."""
    need_pointer(out)
    found = call.state.host.find(address)
    if found is None or not found.mapped_bytes:
        return CUDA_ERROR_INVALID_VALUE
    yield write_i32(out, found.flags)
    return CUDA_SUCCESS
