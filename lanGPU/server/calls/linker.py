"""The driver's linker: its options hold log buffers that the driver may write to until the link is destroyed."""

import ctypes
import struct

from lanGPU.constants import CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS
from lanGPU.driverapi.model import HandleType
from lanGPU.server.call import MAX_OUTPUT_BYTES, Call, address_of
from lanGPU.server.calls.jit import JitOptions
from lanGPU.server.issuer import Answer, Issuer, server_call
from lanGPU.wire.records import pad8


def _links(issuer: Issuer) -> dict[int, JitOptions]:
    links: dict[int, JitOptions] = issuer.state.setdefault("links", {})  # type: ignore[assignment]
    return links


def _options(issuer: Issuer, call: Call, state: int) -> JitOptions:
    options = _links(issuer).get(state)
    if options is None:
        raise call.failed(CUDA_ERROR_INVALID_HANDLE)
    return options


@server_call("cuLinkCreate_v2")
def create(issuer: Issuer, call: Call) -> Answer:
    """Outputs: *JIT outputs*."""
    issuer.executor.ensure_thread(call.thread)
    options = JitOptions(call, "numOptions", "options", "optionValues")
    slot = ctypes.c_uint64()
    result = issuer.driver.call(call.symbol, options.count, *options.args, ctypes.addressof(slot))
    if result == CUDA_SUCCESS:
        issuer.executor.define(call.word("stateOut"), slot.value, HandleType.LINK_STATE)
        _links(issuer)[slot.value] = options
    return CUDA_SUCCESS, options.outputs(result)


@server_call("cuLinkAddData_v2")
def add_data(issuer: Issuer, call: Call) -> Answer:
    """Options of its own, as cuLinkCreate_v2. Outputs: *JIT outputs* of the options given at creation, whose logs grow."""
    issuer.executor.ensure_thread(call.thread)
    state = call.handle(issuer.executor, "state")
    created = _options(issuer, call, state)
    options = JitOptions(call, "numOptions", "options", "optionValues")
    data, name = call.blob("data"), call.blob("name")
    if call.word("size") > len(data) or (len(name) and name[-1]):
        raise call.failed(CUDA_ERROR_INVALID_VALUE, "the data or the name is shorter than announced")
    result = issuer.driver.call(
        call.symbol,
        state,
        call.word("type"),
        address_of(data),
        call.word("size"),
        address_of(name) if len(name) else 0,
        options.count,
        *options.args,
    )
    return CUDA_SUCCESS, created.outputs(result)


@server_call("cuLinkComplete")
def complete(issuer: Issuer, call: Call) -> Answer:
    """Outputs: *JIT outputs*, then u64 bytes of the image and the image (0 bytes if it failed)."""
    issuer.executor.ensure_thread(call.thread)
    state = call.handle(issuer.executor, "state")
    options = _options(issuer, call, state)
    pointer, size = ctypes.c_uint64(), ctypes.c_uint64()
    result = issuer.driver.call(call.symbol, state, ctypes.addressof(pointer), ctypes.addressof(size))
    if result != CUDA_SUCCESS:
        return CUDA_SUCCESS, options.outputs(result, struct.pack("<Q", 0))
    if size.value > MAX_OUTPUT_BYTES - (4 << 20):
        raise call.failed(CUDA_ERROR_INVALID_VALUE, f"a linked image of {size.value} bytes does not fit a reply")
    image = ctypes.string_at(pointer.value, size.value)  # owned by the link state, which lives until cuLinkDestroy
    return CUDA_SUCCESS, options.outputs(result, struct.pack("<Q", len(image)) + image.ljust(pad8(len(image)), b"\0"))


@server_call("cuLinkDestroy")
def destroy(issuer: Issuer, call: Call) -> Answer:
    """Frees the log buffers after the driver let go of them."""
    state = call.handle(issuer.executor, "state")
    answer = issuer.carry_out(call)
    _links(issuer).pop(state, None)
    return answer
