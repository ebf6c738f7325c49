"""Contexts: each thread's stack, primary contexts and their counts. The server learns only which context a thread's calls belong to."""

from lanGPU.client.calls.devices import need_device, need_pointer, write_i32, write_u64
from lanGPU.client.calls.effects import CallError, CallProgram, Part, Post, ReadMemory, Request, Steps
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call, Context, Primary, Thread, i32, u32
from lanGPU.constants import (
    CUDA_ERROR_CONTEXT_IS_DESTROYED,
    CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS,
)

_SCHED_MASK = 0x07
_SCHED_VALUES = (0, 1, 2, 4)
"""CU_CTX_SCHED_AUTO, SPIN, YIELD, BLOCKING_SYNC."""
_FLAGS_MASK = 0xFF


def valid_flags(flags: int) -> bool:
    """Context flags that cuda.h knows."""
    return not flags & ~_FLAGS_MASK and flags & _SCHED_MASK in _SCHED_VALUES


def announce(call: Call, thread: Thread | None = None) -> Part[None]:
    """Tell the server (and the shim) a thread's current context if that changed."""
    thread = thread or call.thread
    call.state.publish_thread(thread)
    current = thread.current if thread.current in call.state.contexts else 0
    if current != thread.announced:
        thread.announced = current
        yield Post("cuCtxSetCurrent", (current,), 0, slot=thread.slot)


def need_current(call: Call) -> Context:
    """The thread's current context. Raises CallError as CUDA does without one, or with a destroyed one."""
    context = call.state.current_context(call.thread)
    if context is None:
        raise CallError(CUDA_ERROR_CONTEXT_IS_DESTROYED if call.thread.current else CUDA_ERROR_INVALID_CONTEXT)
    return context


def need_context(call: Call, handle: int) -> Context:
    """The context with that handle; 0: the current one. Raises CallError INVALID_CONTEXT."""
    if not handle:
        return need_current(call)
    context = call.state.contexts.get(handle)
    if context is None:
        raise CallError(CUDA_ERROR_INVALID_CONTEXT)
    return context


# --- primary contexts --------------------------------------------------------------------------------------------------
def _primary(call: Call, dev: int) -> tuple[int, Primary]:
    need_device(call, dev)
    ordinal = i32(dev)
    return ordinal, call.state.primaries.setdefault(ordinal, Primary())


def name_primary(call: Call, primary: Primary) -> int:
    """The handle of a primary context, active or not."""
    if not primary.handle:
        primary.handle = call.state.names.take()
    return primary.handle


@client_call("cuDevicePrimaryCtxRetain")
def primary_retain(call: Call, out: int, dev: int) -> Steps:
    """The first reference goes to the server; the name of a device's primary context never changes."""
    need_pointer(out)
    ordinal, primary = _primary(call, dev)
    if not primary.active:
        name_primary(call, primary)
        reply = yield Request("cuDevicePrimaryCtxRetain", (primary.handle, ordinal), 0)
        if reply.result:
            return int(reply.result)
        primary.server_retains += 1
        if not primary.active:
            primary.active = True
            call.state.new_context(primary.handle, ordinal, primary.flags, primary=True)
            call.state.publish_primary(ordinal)
            # Threads may have had its name as current context all the time.
            for thread in call.state.all_threads():
                if thread.current == primary.handle:
                    yield from announce(call, thread)
    primary.retains += 1
    yield write_u64(out, primary.handle)
    return CUDA_SUCCESS


@client_call("cuDevicePrimaryCtxRelease_v2")
def primary_release(call: Call, dev: int) -> Steps:
    """The last reference takes the context with it."""
    ordinal, primary = _primary(call, dev)
    if not primary.retains:
        return CUDA_ERROR_INVALID_CONTEXT
    primary.retains -= 1
    if primary.retains:
        return CUDA_SUCCESS
    yield from destroy_storage(call, primary.handle)
    _primary_gone(call, ordinal, primary)
    count, primary.server_retains = primary.server_retains, 0
    result = CUDA_SUCCESS
    for _ in range(count):
        result = (yield Post("cuDevicePrimaryCtxRelease_v2", (ordinal,), 0)) or result
    yield from announce(call)
    return result


def _primary_gone(call: Call, ordinal: int, primary: Primary) -> None:
    primary.active = False
    primary.flags = 0
    _context_gone(call, primary.handle)
    call.state.publish_primary(ordinal)


def _context_gone(call: Call, handle: int) -> None:
    state = call.state
    threads = list(state.all_threads())
    state.contexts.pop(handle, None)
    state.publish_contexts()
    if stream := state.shared.drop_context(handle):
        state.names.give_back(stream)
    if not state.shared:
        state.publish_looks()
    for thread in threads:
        if thread.announced == handle:
            thread.announced = 0  # the server unbinds threads of a dead context by itself


@client_call("cuDevicePrimaryCtxReset_v2")
def primary_reset(call: Call, dev: int) -> Steps:
    """What lives in the context dies; references stay, and the next retain makes it anew."""
    ordinal, primary = _primary(call, dev)
    yield from destroy_storage(call, primary.handle)
    reply = yield Request("cuDevicePrimaryCtxReset_v2", (ordinal,), 0)
    if not reply.result and primary.active:
        _primary_gone(call, ordinal, primary)
    return int(reply.result)


@client_call("cuDevicePrimaryCtxSetFlags_v2")
def primary_set_flags(call: Call, dev: int, flags: int) -> Steps:
    """Kept here for the next question, and sent."""
    ordinal, primary = _primary(call, dev)
    if not valid_flags(u32(flags)):
        return CUDA_ERROR_INVALID_VALUE
    reply = yield Request("cuDevicePrimaryCtxSetFlags_v2", (ordinal, u32(flags)), 0)
    if not reply.result:
        primary.flags = u32(flags)
        if primary.active:
            call.state.contexts[primary.handle].flags = primary.flags
        call.state.publish_primary(ordinal)
    return int(reply.result)


@client_call("cuDevicePrimaryCtxGetState")
def primary_get_state(call: Call, dev: int, flags: int, active: int) -> Steps:
    """No question to the server: only we change it."""
    _, primary = _primary(call, dev)
    need_pointer(flags, active)
    yield write_i32(flags, primary.flags)
    yield write_i32(active, int(primary.active))
    return CUDA_SUCCESS


# --- creation ----------------------------------------------------------------------------------------------------------
def _create(call: Call, out: int, flags: int, dev: int) -> Steps:
    need_pointer(out)
    need_device(call, dev)
    if not valid_flags(u32(flags)):
        return CUDA_ERROR_INVALID_VALUE
    handle = call.state.names.take()
    reply = yield Request("cuCtxCreate_v2", (handle, u32(flags), i32(dev)), 0)
    if reply.result:
        call.state.names.give_back(handle)
        return int(reply.result)
    call.state.new_context(handle, i32(dev), u32(flags))
    call.thread.stack.append(handle)
    call.thread.announced = handle  # the server makes it current by itself
    call.state.publish_thread(call.thread)
    yield write_u64(out, handle)
    return CUDA_SUCCESS


@client_call("cuCtxCreate_v2")
def create(call: Call, out: int, flags: int, dev: int) -> Steps:
    """The new context is the thread's current one."""
    return (yield from _create(call, out, flags, dev))


@client_call("cuCtxCreate_v3")
def create_v3(call: Call, out: int, affinity: int, count: int, flags: int, dev: int) -> Steps:
    """Execution affinity is not supported."""
    if affinity or i32(count):
        return CUDA_ERROR_NOT_SUPPORTED
    return (yield from _create(call, out, flags, dev))


@client_call("cuCtxCreate_v4")
def create_v4(call: Call, out: int, params: int, flags: int, dev: int) -> Steps:
    """CUctxCreateParams (affinity pointer, count, graphics pointer; 24 bytes) must ask for nothing."""
    if params and any((yield ReadMemory(params, 24))):
        return CUDA_ERROR_NOT_SUPPORTED
    return (yield from _create(call, out, flags, dev))


@client_call("cuCtxDestroy_v2")
def destroy(call: Call, handle: int) -> Steps:
    """Popped from the calling thread if current there; other threads keep a dead name, as in CUDA."""
    context = call.state.contexts.get(handle)
    if context is None or context.primary:
        return CUDA_ERROR_INVALID_CONTEXT
    yield from destroy_storage(call, handle)
    if call.thread.current == handle:
        call.thread.stack.pop()
        call.state.publish_thread(call.thread)  # before anybody asks the slot, which would bring the dead context back
    _context_gone(call, handle)
    call.state.names.give_back(handle)
    result = yield Post("cuCtxDestroy_v2", (handle,), 0)
    yield from announce(call)
    return int(result)


def destroy_storage(call: Call, handle: int) -> Part[None]:
    """Runtime libraries learn here that what they kept for the context is of no use any more: their destructors run in this thread."""
    state = call.state
    for context, key in [entry for entry in state.storage if entry[0] == handle]:
        value, destructor = state.storage.pop((context, key), (0, 0))
        state.table.remove_storage(context, key)
        if destructor:
            yield CallProgram(destructor, (context, key, value))


# --- the stack ---------------------------------------------------------------------------------------------------------
@client_call("cuCtxSetCurrent")
def set_current(call: Call, handle: int) -> Steps:
    """Replaces the top of the stack; NULL pops it (cuda.h, cuCtxSetCurrent)."""
    stack = call.thread.stack
    if handle and not _bindable(call, handle):
        return CUDA_ERROR_INVALID_CONTEXT
    if stack:
        stack.pop()
    if handle:
        stack.append(handle)
    yield from announce(call)
    return CUDA_SUCCESS


def _bindable(call: Call, handle: int) -> bool:
    """A primary context may be made current before it is active: libcudart does so and retains it then."""
    return handle in call.state.contexts or any(primary.handle == handle for primary in call.state.primaries.values())


@client_call("cuCtxPushCurrent_v2")
def push_current(call: Call, handle: int) -> Steps:
    """The same context may lie on several stacks."""
    if not _bindable(call, handle):
        return CUDA_ERROR_INVALID_CONTEXT
    call.thread.stack.append(handle)
    yield from announce(call)
    return CUDA_SUCCESS


@client_call("cuCtxPopCurrent_v2")
def pop_current(call: Call, out: int) -> Steps:
    """An empty stack is INVALID_CONTEXT; `out` may be NULL."""
    if not call.thread.stack:
        return CUDA_ERROR_INVALID_CONTEXT
    handle = call.thread.stack.pop()
    yield from announce(call)
    if out:
        yield write_u64(out, handle)
    return CUDA_SUCCESS


@client_call("cuCtxGetCurrent")
def get_current(call: Call, out: int) -> Steps:
    """NULL where there is none."""
    need_pointer(out)
    yield write_u64(out, call.thread.current)
    return CUDA_SUCCESS


# --- questions ---------------------------------------------------------------------------------------------------------
@client_call("cuCtxGetDevice", "cuCtxGetDevice_v2")
def get_device(call: Call, out: int, handle: int = 0) -> Steps:
    """Of the current context, or of `handle`."""
    need_pointer(out)
    yield write_i32(out, need_context(call, handle).device)
    return CUDA_SUCCESS


@client_call("cuCtxGetFlags")
def get_flags(call: Call, out: int) -> Steps:
    """As given at creation or by cuCtxSetFlags."""
    need_pointer(out)
    yield write_i32(out, need_current(call).flags)
    return CUDA_SUCCESS


@client_call("cuCtxSetFlags")
def set_flags(call: Call, flags: int) -> Steps:
    """Kept here for the next question, and sent."""
    context = need_current(call)
    if not valid_flags(u32(flags)):
        return CUDA_ERROR_INVALID_VALUE
    context.flags = u32(flags)
    return int((yield Post("cuCtxSetFlags", (u32(flags),), 0)))


@client_call("cuCtxGetId")
def get_id(call: Call, handle: int, out: int) -> Steps:
    """Unique in the process, never used again."""
    need_pointer(out)
    yield write_u64(out, need_context(call, handle).id)
    return CUDA_SUCCESS


@client_call("cuCtxGetApiVersion")
def get_api_version(call: Call, handle: int, out: int) -> Steps:
    """3020 for contexts of cuCtxCreate_v2 and later."""
    need_pointer(out)
    yield write_i32(out, need_context(call, handle).api_version)
    return CUDA_SUCCESS
