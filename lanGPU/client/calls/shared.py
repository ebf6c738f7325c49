"""Memory that the program and the device share: managed memory, mapped pinned memory, registered memory whose device pointer was asked for.

Each range lies twice: in the program, which reads and writes it directly, and on the device. A *twin* holds what both had when they were
last made equal. Before device work, what the program changed (program against twin) is sent; after a synchronizing call that succeeded,
what the device changed (device against twin) is fetched. Both compare pages of PAGE bytes; in memory that the program may use while
kernels run (`exact`), single bytes, so that neither side overwrites what the other wrote beside it.

Copies run in a stream of their own in the calling thread's context: they neither wait for other work nor break a stream capture.
"""

import ctypes
import mmap
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from lanGPU.client.calls.effects import CallError, Part, Post, ReadMemory, Request, Steps, Syscall, WriteMemory
from lanGPU.client.calls.registry import Handler, start
from lanGPU.client.calls.state import Call, SharedRange
from lanGPU.client.syscalls import MAP_ANONYMOUS, MAP_PRIVATE, PROT_READ, PROT_WRITE, address_of
from lanGPU.constants import COPY_CHUNK_BYTES, CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY, CUDA_SUCCESS
from lanGPU.driverapi.coherence import OWNED, is_synchronizing, is_work, may_wait
from lanGPU.driverapi.managed import Hints

PAGE: Final = 4096
_MAP_FIXED_NOREPLACE: Final = 0x10_0000
_TRIES: Final = 8
"""Addresses that the server may offer before we give up: each must be free in the program."""
_NON_BLOCKING: Final = 1
_CHANGED: Final = re.compile(rb"[^\0]+")
_memcmp = ctypes.CDLL(None).memcmp
_memcmp.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]


@dataclass(slots=True, eq=False)
class Shared(SharedRange):
    """One range with its twin."""

    base: int
    """What the server allocated: the range, and room to begin it at a page."""
    managed: bool
    exact: bool
    mapped_bytes: int
    """What to unmap in the program when the range ends; 0: nothing."""
    twin: mmap.mmap
    hints: Hints = field(default_factory=Hints)
    attach: int = 1
    owner: int = 0
    """The library whose `__managed__` variable it is; 0: allocated by the program."""


def _differences(now: bytearray | memoryview, twin: mmap.mmap, offset: int, *, exact: bool) -> Iterator[tuple[int, int]]:
    """(start, end) within `now` where it differs from the twin at `offset`; touching pages become one."""
    new, old, total = address_of(now), address_of(memoryview(twin)) + offset, len(now)
    if not _memcmp(new, old, total):
        return
    begin = -1
    for at in range(0, total, PAGE):
        size = min(PAGE, total - at)
        if _memcmp(new + at, old + at, size):
            if exact:
                mixed = int.from_bytes(now[at : at + size], "little") ^ int.from_bytes(twin[offset + at : offset + at + size], "little")
                for found in _CHANGED.finditer(mixed.to_bytes(size, "little")):
                    yield at + found.start(), at + found.end()
            elif begin < 0:
                begin = at
        elif begin >= 0:
            yield begin, at
            begin = -1
    if begin >= 0:
        yield begin, total


def _stream(call: Call) -> Part[int]:
    """Our stream in the calling thread's context; 0: the thread has none."""
    context = call.state.current_context(call.thread)
    if context is None:
        return 0
    streams = call.state.shared.streams
    if context.handle not in streams:
        handle = call.state.names.take()
        reply = yield Request("cuStreamCreate", (handle, _NON_BLOCKING), 0)
        if reply.result:
            call.state.names.give_back(handle)
            raise CallError(reply.result)
        streams[context.handle] = handle
    return streams[context.handle]


def push(call: Call) -> Part[None]:
    """The device gets what the program changed."""
    shared = call.state.shared
    stream = yield from _stream(call)
    if not stream:
        return
    if not any(item.exact for item in shared) and not call.state.table.capturing():  # captured work is done at some later launch
        call.state.table.set_shared(True, device_phase=True)
    sent = False
    exact = shared.worked or shared.seen != call.state.table.position()  # else the device does nothing just now
    for item in list(shared):
        for offset in range(0, item.size, COPY_CHUNK_BYTES):
            length = min(COPY_CHUNK_BYTES, item.size - offset)
            now = yield ReadMemory(item.start + offset, length)
            for begin, end in list(_differences(now, item.twin, offset, exact=exact and item.exact)):
                data = bytes(now[begin:end])
                result = yield Post("cuMemcpyHtoDAsync_v2", (item.device + offset + begin, data, len(data), stream), 0)
                if result:
                    raise CallError(result)
                item.twin[offset + begin : offset + end] = data
                sent = True
    if sent:
        reply = yield Request("cuStreamSynchronize", (stream,), 0)
        if reply.result:
            raise CallError(reply.result)


def pull(call: Call) -> Part[None]:
    """The program gets what the device changed."""
    shared = call.state.shared
    stream = yield from _stream(call)
    if not stream:
        return
    call.state.table.set_shared(True, device_phase=False)
    shared.seen = call.state.table.position()
    for item in list(shared):
        for offset in range(0, item.size, COPY_CHUNK_BYTES):
            length = min(COPY_CHUNK_BYTES, item.size - offset)
            reply = yield Request("cuMemcpyDtoHAsync_v2", (length, item.device + offset, length, stream), 0)
            if reply.result:
                raise CallError(reply.result)
            now = bytearray(reply.outputs[:length])
            for begin, end in list(_differences(now, item.twin, offset, exact=False)):
                yield from _write_back(item, offset + begin, now[begin:end])


def _write_back(item: Shared, offset: int, data: bytearray) -> Part[None]:
    """Pages that the device changed; where the program changed them, too, only the bytes that the device changed."""
    before = item.twin[offset : offset + len(data)]
    changed = [(0, len(data))]
    if item.exact and bytes((yield ReadMemory(item.start + offset, len(data)))) != before:
        changed = list(_differences(data, item.twin, offset, exact=True))
    for begin, end in changed:
        yield WriteMemory(item.start + offset + begin, data[begin:end], now=True)
    item.twin[offset : offset + len(data)] = bytes(data)


def _owned(call: Call) -> Part[int | None]:
    """Calls about allocations that only we know: their CUresult; None: it is none of ours."""
    name = call.row.name
    if name not in OWNED:
        return None
    address = call.pointer("dptr")
    found = find_managed(call, address)
    if found is None:
        return None
    if name == "cuMemFree_v2" and address == found.start and not found.owner:
        return (yield from destroy(call, found))
    if name != "cuMemGetAddressRange_v2":
        return CUDA_ERROR_INVALID_VALUE
    for out, value in ((call.pointer("pbase"), found.start), (call.pointer("psize"), found.size)):
        if out:
            yield WriteMemory(out, value.to_bytes(8, "little"))
    return CUDA_SUCCESS


def coherent(call: Call, handler: Handler) -> Steps:
    """A call while memory is shared: `push` before device work, `pull` after what synchronizes."""
    state, row = call.state, call.row
    if state.callbacks.pending and may_wait(row) and not state.table.capturing():
        # A host function in progress copies what is shared. The driver must not wait for it in a call that holds up those copies.
        yield Request("cuCtxSynchronize", (), 0)
    owned = yield from _owned(call)
    if owned is not None:
        return owned
    if row.name in ("cuMemcpyHtoD_v2", "cuMemcpyHtoDAsync_v2") and state.shared.find(call.pointer("srcHost")):
        yield from _settle(call)  # the device may have written the source
    if row.name == "cuMemHostUnregister" and state.shared.find(call.pointer("p")):
        yield from _settle(call)
    work = is_work(row)
    if work:
        yield from push(call)
    result = yield from start(call, handler)
    if work:
        state.shared.worked = True
    if result == CUDA_SUCCESS and is_synchronizing(row) and (state.shared.worked or state.shared.seen != state.table.position()):
        state.shared.worked = False
        yield from pull(call)
    return result


def _settle(call: Call) -> Part[None]:
    """Waits for the context's work, and pulls."""
    reply = yield Request("cuCtxSynchronize", (), 0)
    if reply.result:
        raise CallError(reply.result)
    yield from pull(call)


def create(call: Call, context: int, size: int, *, at: int = 0, managed: bool) -> Part[Shared]:
    """A range of zeros on both sides; with `at` the program's memory that lies there, contents and all. Raises CallError.

    Without `at` program and device have it at the same address, which the server chooses and the program must have free.
    """
    length = (size + PAGE - 1) & -PAGE
    refused: list[int] = []
    made: Shared | None = None
    while made is None and len(refused) < _TRIES:
        # With two pages more there are whole pages that belong to nobody else on either side.
        reply = yield Request("cuMemAlloc_v2", (8, length + 2 * PAGE), 0)
        if reply.result:
            break
        base = int.from_bytes(reply.outputs[:8], "little")
        device = (base + PAGE - 1) & -PAGE
        if at:
            made = Shared(at, size, device, context, base, managed, True, 0, mmap.mmap(-1, length))
            break
        flags = MAP_PRIVATE | MAP_ANONYMOUS | _MAP_FIXED_NOREPLACE
        got = yield Syscall("mmap", (device, length, PROT_READ | PROT_WRITE, flags, -1, 0))
        if got == device:
            made = Shared(device, size, device, context, base, managed, not managed, length, mmap.mmap(-1, length))
            break
        if got > 0:
            yield Syscall("munmap", (got, length))  # a kernel older than 4.17 takes the address as a wish
        refused.append(base)
    for base in refused:
        yield Post("cuMemFree_v2", (base,), 0)
    if made is None:
        raise CallError(reply.result or CUDA_ERROR_OUT_OF_MEMORY, f"no {size} bytes at an address that is free on both sides")
    # The twin says zeros, so the device must have them.
    stream = yield from _stream(call)
    yield Post("cuMemsetD8Async", (made.device, 0, size, stream), 0)
    reply = yield Request("cuStreamSynchronize", (stream,), 0)
    if reply.result:
        raise CallError(reply.result)
    call.state.shared.add(made)
    call.state.table.set_shared(True, device_phase=False)
    return made


def adopt(call: Call, address: int, data: bytes, owner: int) -> Part[Shared]:
    """Managed memory of the server's driver that holds `data`, shown to the program at the same address. Raises CallError.

    Variables may share pages; a page that was mapped for one of them stays until the process ends.
    """
    pages, size = call.state.shared.pages, len(data)
    for page in range(address & -PAGE, address + size, PAGE):
        if page in pages:
            continue
        flags = MAP_PRIVATE | MAP_ANONYMOUS | _MAP_FIXED_NOREPLACE
        got = yield Syscall("mmap", (page, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0))
        if got != page:
            if got > 0:
                yield Syscall("munmap", (got, PAGE))
            raise CallError(CUDA_ERROR_OUT_OF_MEMORY, f"{page:#x}, where the server has a managed variable, is not free in the program")
        pages.add(page)
    twin = mmap.mmap(-1, (size + PAGE - 1) & -PAGE)
    twin[:size] = data
    yield WriteMemory(address, data, now=True)
    made = Shared(address, size, address, 0, address, True, True, 0, twin, owner=owner)
    call.state.shared.add(made)
    call.state.table.set_shared(True, device_phase=False)
    return made


def destroy(call: Call, item: Shared) -> Steps:
    """Ends the range on the device, and in the program what was mapped for it."""
    call.state.shared.remove(item)
    if not call.state.shared:
        call.state.publish_looks()
    result = CUDA_SUCCESS
    if item.context in call.state.contexts and not item.owner:
        result = yield Post("cuMemFree_v2", (item.base,), 0)
    if item.mapped_bytes:
        yield Syscall("munmap", (item.start, item.mapped_bytes))
    item.twin.close()
    return int(result)


def find(call: Call, address: int) -> Shared | None:
    """The shared range that holds a program address."""
    found = call.state.shared.find(address)
    assert found is None or isinstance(found, Shared)
    return found


def find_managed(call: Call, address: int) -> Shared | None:
    """The managed allocation that holds an address."""
    found = find(call, address)
    return found if found is not None and found.managed else None
