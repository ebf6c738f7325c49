"""Contexts: the driver's stack of the issuing thread is never deeper than one, and which context is current is the executor's business."""

import ctypes

from lanGPU.constants import CUDA_SUCCESS
from lanGPU.driverapi.results import STICKY
from lanGPU.server.call import Call, prepare
from lanGPU.server.issuer import Answer, Issuer, server_call


@server_call("cuCtxCreate_v2", "cuCtxCreate_v3", "cuCtxCreate_v4")
def create(issuer: Issuer, call: Call) -> Answer:
    """Creation pushes the new context on the calling thread's stack: it is taken off again, and is the sending thread's current one."""
    prepared = prepare(call, issuer.executor)
    result = issuer.driver.call(call.symbol, *prepared.args)
    if result == CUDA_SUCCESS:
        popped = ctypes.c_uint64()
        issuer.driver.check("cuCtxPopCurrent_v2", ctypes.addressof(popped))
        for _, _, slot in prepared.created:
            _set(issuer, call.thread, slot.value)
    return result, prepared.finish(issuer.executor, result)


@server_call("cuDevicePrimaryCtxRetain")
def retain(issuer: Issuer, call: Call) -> Answer:
    """Names the primary context; the same name may be given again. It is not made current."""
    prepared = prepare(call, issuer.executor)
    result = issuer.driver.call(call.symbol, *prepared.args)
    return result, prepared.finish(issuer.executor, result)


@server_call("cuDevicePrimaryCtxReset_v2")
def reset(issuer: Issuer, call: Call) -> Answer:
    """The context's objects die; the client forgets their names. The context itself keeps its name."""
    issuer.executor.ensure_thread(call.thread)
    result = issuer.driver.call(call.symbol, call.word("dev"))
    if result == CUDA_SUCCESS:
        issuer.executor.forgive(STICKY)  # it ended with the context; another context's would be met again
    return result, b""


@server_call("cuCtxSetCurrent")
def set_current(issuer: Issuer, call: Call) -> Answer:
    """Remembers the sending thread's context; the executor binds it before that thread's next call. No driver call."""
    _set(issuer, call.thread, call.handle(issuer.executor, "ctx"))
    return CUDA_SUCCESS, b""


@server_call("cuCtxDestroy_v2")
def destroy(issuer: Issuer, call: Call) -> Answer:
    """Threads that had the context current have none afterwards, the issuing thread included: its address may come back for another."""
    real = call.handle(issuer.executor, "ctx")
    own = issuer.contexts.get(call.thread, 0)
    for thread, current in list(issuer.contexts.items()):
        if current == real:
            _set(issuer, thread, 0)
    issuer.executor.set_thread_context(call.thread, 0)
    issuer.executor.ensure_thread(call.thread)
    result = issuer.driver.call(call.symbol, real)
    if own != real:
        _set(issuer, call.thread, own)
    if result == CUDA_SUCCESS:
        issuer.executor.forget(call.word("ctx"))
        issuer.executor.forgive(STICKY)
    return result, b""


def _set(issuer: Issuer, thread: int, real: int) -> None:
    issuer.contexts[thread] = real
    issuer.executor.set_thread_context(thread, real)
