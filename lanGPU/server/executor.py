"""The executor of records as machine code: `lanGPU.server.executor_ir` and the memory that it works on.

Loading it costs a millisecond once its object code is on disk. Not thread-safe: the issuer's lock protects it, as it does the reference.
"""

import ctypes
import logging
import mmap
import sys
from collections.abc import Callable, Container, Iterable
from typing import Final

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, MAX_HANDLES, MAX_THREADS
from lanGPU.driverapi import descriptor, table
from lanGPU.driverapi.model import ApiFunction, Arg, ArgKind, HandleType
from lanGPU.errors import DriverError
from lanGPU.native import jit
from lanGPU.server import executor_ir as ir
from lanGPU.server.call import address_of
from lanGPU.server.driver import Driver
from lanGPU.server.reference import Reason, Stop
from lanGPU.wire.frames import HEADER_BYTES, FrameType, encode_header
from lanGPU.wire.records import MAX_OUTPUT_BYTES, REPLY_HEADER

_log = logging.getLogger(__name__)

OUTPUT_BYTES: Final = MAX_OUTPUT_BYTES + ir.REPLY_AT + 2 * 1024 * 1024
"""The largest reply always fits, behind as many small ones as the issuer lets wait."""
_SIZED: Final = frozenset({ArgKind.BYTES_IN, ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT})
_REASONS: Final = tuple(Reason)
_U64 = ctypes.c_uint64


class State(ctypes.Structure):
    """What machine code and Python share; the fields are described in `executor_ir`."""

    _fields_ = (
        ("rows", _U64),
        ("handles", _U64),
        ("buckets", _U64),
        ("contexts", _U64),
        ("output", _U64),
        ("output_capacity", _U64),
        ("output_used", _U64),
        ("bound", _U64),
        ("set_current", _U64),
        ("deferred_api", _U64),
        ("deferred_result", _U64),
        ("failures", _U64),
        ("failure_count", _U64),
        ("failures_lost", _U64),
        ("calls", _U64),
        ("consumed", _U64),
        ("answer", _U64),
        ("stream_query", _U64),
        ("event_query", _U64),
        ("stream_is_capturing", _U64),
        ("stream_synchronize", _U64),
        ("streams", _U64),
        ("stream_count", _U64),
        ("streams_lost", _U64),
    )


def _zeroed(size: int) -> mmap.mmap:
    """Zeroed memory of its own; pages that nobody touches cost nothing."""
    if sys.platform == "win32":
        return mmap.mmap(-1, size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _unruled(arg: Arg) -> bool:
    """Only the driver knows how many bytes it touches."""
    return arg.kind in _SIZED and not arg.size_from and not arg.size_const


SHORTCUTS: Final = {"cuMemcpyDtoH_v2": ir.Shortcut.READY, "cuMemcpyDtoHAsync_v2": ir.Shortcut.THEN_WAIT}
"""Hand-written rows whose simplest case machine code carries out as their server function would."""


def _readiness(row: ApiFunction) -> tuple[ir.Readiness, int]:
    """How to learn whether a call of `row` would return at once, and which argument is asked."""
    for i, arg in enumerate(row.args):
        if arg.kind is ArgKind.HANDLE and arg.handle is HandleType.STREAM:
            return ir.Readiness.STREAM, i
        if arg.kind is ArgKind.HANDLE and arg.handle is HandleType.EVENT:
            return ir.Readiness.EVENT, i
    if row.name in SHORTCUTS:
        return ir.Readiness.DEFAULT_STREAM, 0
    return (ir.Readiness.UNKNOWN if row.args else ir.Readiness.ALL), 0


def row_entry(row: ApiFunction, resolve: Callable[[str], int]) -> bytes:
    """The row's entry in the table of `executor_ir`; hand-written rows need no entry point, but for their shortcuts.

    Raises:
        ValueError: machine code has no way to carry such a row.
    """
    unruled = [arg for arg in row.args if _unruled(arg)]
    if not row.server and (len(unruled) > 1 or any(arg.kind is ArgKind.BYTES_INOUT for arg in unruled)):
        raise ValueError(f"{row.name}: {', '.join(arg.name for arg in unruled)} need a size")
    shortcut = SHORTCUTS.get(row.name, ir.Shortcut.NONE)
    entry = per_thread = 0
    if not row.server or shortcut:
        entry = resolve(row.name)
        per_thread = resolve(row.name + row.per_thread) if row.per_thread else entry
    names = any(arg.kind in (ArgKind.HANDLE_OUT, ArgKind.HANDLE_DESTROY, ArgKind.HANDLE_QUERY) for arg in row.args)
    head = entry.to_bytes(8, "little") + per_thread.to_bytes(8, "little")
    head += bytes([1, *_readiness(row), names or bool(unruled), shortcut])
    return head.ljust(ir.DESCRIPTOR_AT, b"\0") + descriptor.pack(row)


class MachineExecutor:
    """`lanGPU.server.reference.Executor` in machine code. `resolve`: address of a symbol, 0 if the driver lacks it; asked at once."""

    def __init__(self, resolve: Callable[[str], int], rows: Iterable[ApiFunction]) -> None:
        self._code = jit.load(ir.text(), ir.FUNCTIONS)
        self._output = _zeroed(OUTPUT_BYTES)
        self._failures = (_U64 * ir.MAX_FAILURES)()
        self._contexts = (_U64 * MAX_THREADS)()
        self._streams = (_U64 * ir.MAX_STREAMS)()
        self._memory = [_zeroed(ir.API_IDS * ir.ENTRY_BYTES), _zeroed(MAX_HANDLES * ir.HANDLE_BYTES), _zeroed(4 * ir.BUCKETS)]
        entries, handles, buckets = self._memory
        for row in rows:
            at = row.api_id * ir.ENTRY_BYTES
            entries[at : at + ir.ENTRY_BYTES] = row_entry(row, resolve)
        self._state = State(
            rows=address_of(entries),
            handles=address_of(handles),
            buckets=address_of(buckets),
            contexts=ctypes.addressof(self._contexts),
            output=address_of(self._output),
            output_capacity=OUTPUT_BYTES,
            failures=ctypes.addressof(self._failures),
            set_current=resolve("cuCtxSetCurrent"),
            stream_query=resolve("cuStreamQuery"),
            event_query=resolve("cuEventQuery"),
            stream_is_capturing=resolve("cuStreamIsCapturing"),
            stream_synchronize=resolve("cuStreamSynchronize"),
            streams=ctypes.addressof(self._streams),
        )
        self._address = ctypes.addressof(self._state)
        # What may enter the driver gives the GIL away: a callback of the emulated driver takes it again.
        self._run = ctypes.CFUNCTYPE(_U64, _U64, _U64, _U64)(self._code["run"])
        self._bind = ctypes.CFUNCTYPE(ctypes.c_int, _U64, _U64)(self._code["bind"])
        self._define = ctypes.PYFUNCTYPE(_U64, _U64, _U64, _U64, _U64)(self._code["define"])
        self._real = ctypes.PYFUNCTYPE(_U64, _U64, _U64, _U64)(self._code["real"])
        self._virtual = ctypes.PYFUNCTYPE(_U64, _U64, _U64, _U64)(self._code["virtual"])
        self._forget = ctypes.PYFUNCTYPE(None, _U64, _U64)(self._code["forget"])

    @property
    def calls(self) -> int:
        """Records carried out by `run`; readable from any thread."""
        return int(self._state.calls)

    @property
    def output_bytes(self) -> int:
        """Bytes that `take_output` would return."""
        return int(self._state.output_used)

    def run(self, records: memoryview) -> Stop:
        """Carries out records from the start of `records` (writable memory, kept by the caller until the next call)."""
        reason = self._run(self._address, address_of(records), len(records))
        return Stop(self._state.consumed, _REASONS[reason])

    def take_output(self) -> memoryview:
        """REPLY frames ready to send; valid until the next call of any method."""
        used, self._state.output_used = self._state.output_used, 0
        return memoryview(self._output)[:used]

    # --- names -----------------------------------------------------------------------------------------------------------
    def define(self, vh: int, real: int, handle_type: int) -> None:
        """Names `real`. Raises DriverError (CUDA_ERROR_INVALID_VALUE) if `vh` has not the form of a name."""
        if self._define(self._address, vh, real, handle_type):
            raise DriverError("", CUDA_ERROR_INVALID_VALUE, detail=f"{vh:#x} is no name for a handle")

    def real(self, vh: int, handle_type: int) -> int | None:
        """The driver's handle of a name."""
        return int(self._state.answer) if self._real(self._address, vh, handle_type) else None

    def virtual(self, real: int, handle_type: int) -> int | None:
        """The newest name of a driver's handle."""
        return self._virtual(self._address, real, handle_type) or None

    def forget(self, vh: int) -> None:
        """The name is free again."""
        self._forget(self._address, vh)

    # --- contexts --------------------------------------------------------------------------------------------------------
    def set_thread_context(self, thread: int, real_ctx: int) -> None:
        """The context in which the thread's records are carried out; bound when the next one is."""
        self._contexts[thread] = real_ctx

    def ensure_thread(self, thread: int) -> None:
        """Makes that thread's context current in the calling (issuing) thread. Raises DriverError."""
        if self._contexts[thread] == self._state.bound:
            return
        result = self._bind(self._address, thread)
        if result != CUDA_SUCCESS:
            raise DriverError("cuCtxSetCurrent", result)

    # --- replies and failures --------------------------------------------------------------------------------------------
    def reply(self, thread: int, token: int, result: int, outputs: bytes | bytearray | memoryview, *, reports: bool = True) -> None:
        """Appends a REPLY frame; with `reports` a success reports the remembered failure of a posted call instead."""
        failed_api = 0
        if reports and result == CUDA_SUCCESS and (deferred := self.take_deferred()) is not None:
            failed_api, result = deferred
        if result != CUDA_SUCCESS:
            outputs = b""
        end = HEADER_BYTES + REPLY_HEADER.size + len(outputs)
        used = self._state.output_used
        if used + end > OUTPUT_BYTES:
            raise ValueError("the output was not taken in time")
        frame = encode_header(FrameType.REPLY, 0, REPLY_HEADER.size + len(outputs))
        frame += REPLY_HEADER.pack(thread, token, result, failed_api, 0)
        self._output[used : used + len(frame)] = frame
        self._output[used + len(frame) : used + end] = bytes(outputs)
        self._state.output_used = used + end

    def post_failed(self, api_id: int, result: int) -> None:
        """A posted call failed: the first is remembered for the next reply, all are queued for the log."""
        state = self._state
        if not state.deferred_result:
            state.deferred_api, state.deferred_result = api_id, result
        if state.failure_count == ir.MAX_FAILURES:
            state.failures_lost += 1
            return
        self._failures[state.failure_count] = result << 32 | api_id
        state.failure_count += 1

    def take_deferred(self) -> tuple[int, int] | None:
        """(api_id, CUresult) that the next successful reply would report; forgotten, because the caller reports it itself."""
        state = self._state
        if not state.deferred_result:
            return None
        deferred = int(state.deferred_api), int(state.deferred_result)
        state.deferred_api = state.deferred_result = 0
        return deferred

    def forgive(self, results: Container[int]) -> None:
        """A remembered failure with one of these CUresults is not reported any more."""
        if int(self._state.deferred_result) in results:
            self.take_deferred()

    def failures(self) -> list[tuple[int, int]]:
        """(api_id, CUresult) of posted calls that failed since the last call."""
        state = self._state
        if not state.failure_count:
            return []
        failed = [(pair & 0xFFFF_FFFF, pair >> 32) for pair in self._failures[: state.failure_count]]
        if state.failures_lost:
            _log.warning("%d more posted calls failed", state.failures_lost)
        state.failure_count = state.failures_lost = 0
        return failed


def make_executor(driver: Driver) -> MachineExecutor:
    """The machine-code executor of this process for `driver` and the whole table."""
    return MachineExecutor(driver.resolve, table.ALL_ROWS)
