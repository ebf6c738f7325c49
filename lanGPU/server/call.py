"""One call record in Python's hands: decoded, its handles translated, its pointers made, its results collected.

The executor does the same in machine code for rows without `server=`; here it is for hand-written rows and for calls that may block.
"""

import ctypes
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from lanGPU.constants import (
    CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS,
    MAX_KERNEL_PARAMS_BYTES,
)
from lanGPU.driverapi.model import ApiFunction, ArgKind, HandleType
from lanGPU.errors import DriverError, LocalProtocolError
from lanGPU.wire import records
from lanGPU.wire.records import BLOB_KINDS, FLAG_PER_THREAD, HANDLE_TAG, HANDLE_TAG_MASK, NULL_WORD, pad8

MAX_OUTPUT_BYTES: Final = records.MAX_OUTPUT_BYTES
UNRULED_BYTES: Final = 64
"""Memory behind an argument of which only the driver knows the size (values of attributes): the largest has 8 bytes."""
SPECIAL_STREAMS: Final = frozenset({1, 2})
"""CU_STREAM_LEGACY and CU_STREAM_PER_THREAD (cuda.h)."""
CU_LAUNCH_PARAM_BUFFER_POINTER: Final = 1
CU_LAUNCH_PARAM_BUFFER_SIZE: Final = 2


class Handles(Protocol):
    """What calls need of the table of handles."""

    def define(self, vh: int, real: int, handle_type: int) -> None:
        """Names `real`."""

    def real(self, vh: int, handle_type: int) -> int | None:
        """The driver's handle of a name."""

    def virtual(self, real: int, handle_type: int) -> int | None:
        """The name of a driver's handle."""

    def forget(self, vh: int) -> None:
        """The name is free again."""


def address_of(view: memoryview | bytearray | Any) -> int:
    """Address of a writable buffer's first byte; valid while the buffer lives. An empty one has some address, too."""
    if not len(view):
        return ctypes.addressof(_EMPTY)
    return ctypes.addressof(ctypes.c_char.from_buffer(view))


_EMPTY = ctypes.create_string_buffer(8)


@dataclass(slots=True)
class Call:
    """A decoded record. `words` as on the wire; `blobs` per argument, views into the buffer it was decoded from (writable)."""

    row: ApiFunction
    flags: int
    thread: int
    token: int
    words: list[int]
    blobs: list[memoryview | None]
    record: memoryview

    @property
    def size(self) -> int:
        """Bytes of the record."""
        return len(self.record)

    def detached(self) -> "Call":
        """The same call in memory of its own: the receive buffer, where a record lies, is overwritten by the next receive."""
        return decode(memoryview(bytearray(self.record)), {self.row.api_id: self.row})

    def replace(self, name: str, data: bytearray) -> None:
        """Puts `data` in place of the bytes of argument `name`."""
        index = self.row.arg_index[name]
        self.blobs[index] = memoryview(data)
        self.words[index] = len(data)

    @property
    def per_thread(self) -> bool:
        """The per-thread-default-stream variant was called."""
        return bool(self.flags & FLAG_PER_THREAD) and bool(self.row.per_thread)

    @property
    def symbol(self) -> str:
        """The driver's entry point."""
        return self.row.name + self.row.per_thread if self.per_thread else self.row.name

    def word(self, name: str) -> int:
        """The word of argument `name`."""
        return self.words[self.row.arg_index[name]]

    def blob(self, name: str) -> memoryview:
        """The bytes of argument `name`; empty if the pointer was NULL."""
        return self.blobs[self.row.arg_index[name]] or memoryview(bytearray())

    def failed(self, result: int, detail: str = "") -> DriverError:
        """The error that ends this call with `result`."""
        return DriverError(self.row.name, result, detail=detail)

    def translate(self, handles: Handles, virtual: int, handle_type: HandleType) -> int:
        """The driver's handle; 0 and special streams pass.

        Raises:
            DriverError: CUDA_ERROR_INVALID_HANDLE (contexts: CUDA_ERROR_INVALID_CONTEXT).
        """
        if not virtual or (handle_type is HandleType.STREAM and virtual in SPECIAL_STREAMS):
            return virtual
        real = handles.real(virtual, handle_type) if virtual & HANDLE_TAG_MASK == HANDLE_TAG else None
        if real is None:
            invalid = CUDA_ERROR_INVALID_CONTEXT if handle_type is HandleType.CONTEXT else CUDA_ERROR_INVALID_HANDLE
            raise self.failed(invalid, f"{virtual:#x} is not a {handle_type.name.lower()} of this session")
        return real

    def handle(self, handles: Handles, name: str) -> int:
        """The driver's handle in argument `name`."""
        index = self.row.arg_index[name]
        return self.translate(handles, self.words[index], self.row.args[index].handle)


def decode(view: memoryview, rows: Mapping[int, ApiFunction]) -> Call:
    """The record at the start of `view`.

    Raises:
        LocalProtocolError: it breaks the format in `lanGPU.wire.records`.
    """
    record = records.decode(view, rows)
    return Call(record.row, record.flags, record.thread, record.token, record.words, record.blobs, view[: record.size])


@dataclass(slots=True)
class Prepared:
    """Driver arguments made from a call; lives until the driver returned, then `finish`."""

    call: Call
    args: list[int] = field(default_factory=list)
    keep: list[Any] = field(default_factory=list)
    outputs: list[tuple[ArgKind, HandleType, Any]] = field(default_factory=list)
    created: list[tuple[int, HandleType, Any]] = field(default_factory=list)
    destroyed: list[int] = field(default_factory=list)

    def finish(self, handles: Handles, result: int) -> bytes:
        """Binds and forgets names as `result` says; returns the output bytes of the reply (none if it failed)."""
        if result != CUDA_SUCCESS:
            return b""
        for virtual, handle_type, slot in self.created:
            handles.define(virtual, slot.value, handle_type)
        for virtual in self.destroyed:
            handles.forget(virtual)
        parts = []
        for kind, handle_type, data in self.outputs:
            if kind is ArgKind.HANDLE_QUERY:
                parts.append(struct.pack("<Q", name_of(handles, data.value, handle_type)))
            else:
                parts.append(bytes(data).ljust(pad8(len(data)), b"\0"))
        return b"".join(parts)


def name_of(handles: Handles, real: int, handle_type: HandleType) -> int:
    """The session's name for a driver's handle; 0 for none, special streams as they are.

    Raises:
        DriverError: CUDA_ERROR_NOT_SUPPORTED: the session has no name for it, and a made-up one would be a lie.
    """
    if not real or (handle_type is HandleType.STREAM and real in SPECIAL_STREAMS):
        return real
    virtual = handles.virtual(real, handle_type)
    if virtual is None:
        raise DriverError("", CUDA_ERROR_NOT_SUPPORTED, detail=f"the driver reported a {handle_type.name.lower()} that has no name here")
    return virtual


def name_or_none(handles: Handles, real: int, handle_type: HandleType) -> int:
    """As `name_of`, for places where 0 says "none to tell": an object without a name is 0."""
    return handles.virtual(real, handle_type) or 0 if real else 0


def _required_bytes(call: Call, index: int) -> int:
    arg = call.row.args[index]
    if not arg.size_from:
        return arg.size_const
    counter = call.row.arg_index[arg.size_from]
    count = call.words[counter]
    if call.row.args[counter].kind is ArgKind.SCALAR:
        count &= 0xFFFF_FFFF  # an unsigned int of the driver's
    return count * arg.size_const


def _unruled(call: Call, index: int, length: int) -> bool:
    """The row does not tell how many bytes the driver touches. Raises LocalProtocolError if `length` is more than that can be."""
    arg = call.row.args[index]
    if call.row.server or arg.size_from or arg.size_const:
        return False
    if length > UNRULED_BYTES:
        raise LocalProtocolError(f"{call.row.name}: {length} bytes for {arg.name}")
    return True


def prepare(call: Call, handles: Handles) -> Prepared:
    """Driver arguments for `call` by its row's argument kinds.

    Raises:
        DriverError: a handle is not known.
        LocalProtocolError: fewer bytes came than the driver would read or write, or a kind that only hand-written code may see.
    """
    out = Prepared(call)
    for i, arg in enumerate(call.row.args):
        word, kind = call.words[i], arg.kind
        if kind in (ArgKind.SCALAR, ArgKind.SIZE, ArgKind.DPTR) or (kind is ArgKind.HOST_PTR and call.row.server):
            out.args.append(word)
        elif kind in (ArgKind.HANDLE, ArgKind.HANDLE_DESTROY):
            out.args.append(call.translate(handles, word, arg.handle))
            if kind is ArgKind.HANDLE_DESTROY and word:
                out.destroyed.append(word)
        elif kind in (ArgKind.HANDLE_OUT, ArgKind.HANDLE_QUERY):
            slot = ctypes.c_uint64()
            out.keep.append(slot)
            out.args.append(ctypes.addressof(slot) if word else 0)
            if word and kind is ArgKind.HANDLE_OUT:
                out.created.append((word, arg.handle, slot))
            elif word:
                out.outputs.append((kind, arg.handle, slot))
        elif kind is ArgKind.BYTES_OUT:
            _prepare_output(out, i, word)
        elif kind is ArgKind.KERNEL_PARAMS:
            _prepare_kernel_params(out, call.blobs[i])
        elif kind in BLOB_KINDS:
            _prepare_blob(out, i, call.blobs[i])
        elif kind is ArgKind.NULL_ONLY:
            out.args.append(0)
        elif kind is not ArgKind.KERNEL_EXTRA:
            raise LocalProtocolError(f"{call.row.name}: {arg.name} cannot be carried")
    return out


def _prepare_output(out: Prepared, index: int, capacity: int) -> None:
    call = out.call
    if capacity == NULL_WORD:
        out.args.append(0)
        return
    if capacity < _required_bytes(call, index):
        raise LocalProtocolError(f"{call.row.name}: a capacity of {capacity} bytes")
    data = memoryview(bytearray(max(capacity, UNRULED_BYTES)))[:capacity] if _unruled(call, index, capacity) else bytearray(capacity)
    out.args.append(address_of(data))
    out.outputs.append((ArgKind.BYTES_OUT, HandleType.NONE, data))


def _prepare_blob(out: Prepared, index: int, blob: memoryview | None) -> None:
    call = out.call
    arg = call.row.args[index]
    if blob is None:
        out.args.append(0)
        return
    if len(blob) < _required_bytes(call, index):
        raise LocalProtocolError(f"{call.row.name}: {arg.name} has {len(blob)} bytes, the driver would touch more")
    if arg.kind is ArgKind.BYTES_IN and _unruled(call, index, len(blob)):
        data = bytearray(bytes(blob).ljust(UNRULED_BYTES, b"\0"))
        out.keep.append(data)
        out.args.append(address_of(data))
        return
    if arg.kind is ArgKind.BYTES_INOUT:
        data = bytearray(blob)
        out.outputs.append((arg.kind, HandleType.NONE, data))
        out.args.append(address_of(data))
    else:
        out.args.append(address_of(blob))


def _prepare_kernel_params(out: Prepared, blob: memoryview | None) -> None:
    """kernelParams NULL and `extra` with the packed buffer: the driver takes either, and this needs no layout."""
    out.args += pack_extra(out.keep, blob) if blob is not None else (0, 0)


def pack_extra(keep: list[Any], blob: memoryview) -> tuple[int, int]:
    """The arguments kernelParams (NULL) and extra for a packed parameter buffer; `keep` owns what they point to."""
    if len(blob) > MAX_KERNEL_PARAMS_BYTES:
        raise DriverError("cuLaunchKernel", CUDA_ERROR_INVALID_VALUE, detail=f"{len(blob)} bytes of kernel parameters")
    length = ctypes.c_uint64(len(blob))
    extra = (ctypes.c_uint64 * 5)(
        CU_LAUNCH_PARAM_BUFFER_POINTER, address_of(blob), CU_LAUNCH_PARAM_BUFFER_SIZE, ctypes.addressof(length), 0
    )
    keep += [length, extra]
    return 0, ctypes.addressof(extra)
