"""Any row that needs no hand-written code, carried out from its description: for calls whose bytes do not fit through the shim."""

from lanGPU.client.calls.effects import CallError, Post, ReadMemory, ReadString, Request, Steps, WriteMemory
from lanGPU.client.calls.launch import pack
from lanGPU.client.calls.state import Call
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_UNKNOWN, MAX_BULK_BYTES, MAX_RECORD_BYTES
from lanGPU.driverapi.model import Arg, ArgKind, CallClass, HandleType
from lanGPU.errors import LanGPUError
from lanGPU.wire.records import Value, pad8

_PLAIN = frozenset({ArgKind.SCALAR, ArgKind.SIZE, ArgKind.DPTR, ArgKind.HANDLE, ArgKind.HANDLE_DESTROY, ArgKind.KERNEL_EXTRA})


def _size(call: Call, arg: Arg) -> int:
    """Bytes of a BYTES_* argument by its size rule. Raises CallError."""
    size = arg.size_const
    if arg.size_from:
        size = call.pointer(arg.size_from) * max(arg.size_const, 1)
    elif not size:
        raise CallError(CUDA_ERROR_NOT_SUPPORTED, f"{call.row.name}: the size of {arg.name} is not known")
    limit = MAX_RECORD_BYTES // 2 if arg.kind is ArgKind.BYTES_IN else MAX_BULK_BYTES // 2
    if size > limit:
        raise CallError(CUDA_ERROR_INVALID_VALUE, f"{call.row.name}: {arg.name} of {size} bytes")
    return size


def generic(call: Call, *words: int) -> Steps:
    """Reads what goes in, sends the record, writes what comes out."""
    row = call.row
    values: list[Value] = []
    created: list[tuple[int, int]] = []
    function = next((w for a, w in zip(row.args, words, strict=True) if a.handle is HandleType.FUNCTION), 0)
    params_at = next((i for i, a in enumerate(row.args) if a.kind is ArgKind.KERNEL_PARAMS), None)
    for arg, word in zip(row.args, words, strict=True):
        kind = arg.kind
        if kind in _PLAIN:
            values.append(word)
        elif kind is ArgKind.NULL_ONLY:
            if word:
                return CUDA_ERROR_NOT_SUPPORTED
            values.append(0)
        elif kind is ArgKind.HOST_PTR:
            return CUDA_ERROR_NOT_SUPPORTED
        elif kind is ArgKind.KERNEL_PARAMS:
            assert params_at is not None
            values.append((yield from pack(call, function, word, words[params_at + 1])))
        elif not word:
            values.append(None)
        elif kind is ArgKind.HANDLE_OUT:
            handle = call.state.names.take()
            created.append((word, handle))
            values.append(handle)
        elif kind is ArgKind.HANDLE_QUERY:
            values.append(1)
        elif kind is ArgKind.CSTRING:
            values.append((yield ReadString(word)) + b"\0")
        elif kind is ArgKind.BYTES_OUT:
            values.append(_size(call, arg))
        else:
            values.append((yield ReadMemory(word, _size(call, arg))))
    try:
        if row.call_class is CallClass.SYNC or any(a.kind in (ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT) for a in row.args):
            reply = yield Request(row.name, values)
            result, outputs = reply.result, reply.outputs
        else:
            result, outputs = (yield Post(row.name, values)), b""
    except LanGPUError:
        for _, handle in created:
            call.state.names.give_back(handle)
        raise
    if result:
        for _, handle in created:
            call.state.names.give_back(handle)
        return int(result)
    at = 0
    for arg, word in zip(row.args, words, strict=True):
        if not word:
            continue
        if arg.kind in (ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT):
            size = _size(call, arg)
        elif arg.kind is ArgKind.HANDLE_QUERY:
            size = 8
        else:
            continue
        if at + size > len(outputs):
            return CUDA_ERROR_UNKNOWN
        yield WriteMemory(word, outputs[at : at + size])
        at += pad8(size)
    for word, handle in created:
        yield WriteMemory(word, handle.to_bytes(8, "little"))
    return int(result)
