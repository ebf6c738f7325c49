"""The executor's contract, in plain Python: what machine code must do with the same records, and what runs where it cannot.

An executor carries out whole records from the start of a buffer until it meets one that is not its business.
"""

from collections import defaultdict
from collections.abc import Container, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS, MAX_HANDLES, MAX_RECORD_BYTES, MAX_THREADS
from lanGPU.driverapi.model import ApiFunction
from lanGPU.errors import DriverError, LocalProtocolError
from lanGPU.server.call import decode, prepare
from lanGPU.server.driver import Driver
from lanGPU.wire.frames import FrameType, encode_header
from lanGPU.wire.records import MAX_OUTPUT_BYTES, RECORD_HEADER, REPLY_HEADER


class Reason(IntEnum):
    """Why an executor returned."""

    DONE = 0
    """Everything was carried out."""
    PARTIAL = 1
    """The buffer ends inside a record."""
    PYTHON = 2
    """The next record's row is hand-written on the server."""
    BLOCKING = 3
    """The next record's call may block."""
    CORRUPT = 4
    """The next record breaks the format: the session ends."""
    OUTPUT_FULL = 5
    """Replies wait that must be sent before the next record is carried out."""


@dataclass(slots=True)
class Stop:
    """How far an executor came: `consumed` bytes of whole records, the record in question not among them."""

    consumed: int
    reason: Reason


class Executor(Protocol):
    """What the issuing loop needs. Not thread-safe: one caller at a time."""

    @property
    def calls(self) -> int:
        """Records carried out by `run`; readable from any thread."""

    @property
    def output_bytes(self) -> int:
        """Bytes that `take_output` would return."""

    def run(self, records: memoryview) -> Stop:
        """Carries out records from the start of `records` (writable memory, kept by the caller until the next call)."""

    def take_output(self) -> memoryview:
        """REPLY frames ready to send; valid until the next call of any method."""

    def define(self, vh: int, real: int, handle_type: int) -> None:
        """Names `real`."""

    def real(self, vh: int, handle_type: int) -> int | None:
        """The driver's handle of a name."""

    def virtual(self, real: int, handle_type: int) -> int | None:
        """The newest name of a driver's handle."""

    def forget(self, vh: int) -> None:
        """The name is free again."""

    def set_thread_context(self, thread: int, real_ctx: int) -> None:
        """The context in which the thread's records are carried out; bound when the next one is."""

    def ensure_thread(self, thread: int) -> None:
        """Makes that thread's context current in the calling (issuing) thread."""

    def reply(self, thread: int, token: int, result: int, outputs: bytes | bytearray | memoryview, *, reports: bool = True) -> None:
        """Appends a REPLY frame; with `reports` a success reports the remembered failure of a posted call instead."""

    def post_failed(self, api_id: int, result: int) -> None:
        """A posted call failed: the first is remembered for the next reply, all are queued for the log."""

    def take_deferred(self) -> tuple[int, int] | None:
        """(api_id, CUresult) that the next successful reply would report; forgotten, because the caller reports it itself."""

    def forgive(self, results: Container[int]) -> None:
        """A remembered failure with one of these CUresults is not reported any more."""

    def failures(self) -> list[tuple[int, int]]:
        """(api_id, CUresult) of posted calls that failed since the last call."""


class ReferenceExecutor:
    """Executor in Python over `lanGPU.server.call`."""

    def __init__(self, driver: Driver, rows: Mapping[int, ApiFunction]) -> None:
        self.calls = 0
        self.output_bytes = 0
        self._driver = driver
        self._rows = rows
        self._real: dict[tuple[int, int], int] = {}
        self._types: dict[int, int] = {}
        self._virtual: dict[tuple[int, int], int] = {}
        self._contexts: defaultdict[int, int] = defaultdict(int)
        self._bound = 0
        self._output = bytearray()
        self._deferred: tuple[int, int] | None = None
        self._failures: list[tuple[int, int]] = []

    def run(self, records: memoryview) -> Stop:
        at = 0
        while at < len(records):
            rest = records[at:]
            if len(rest) < RECORD_HEADER.size:
                return Stop(at, Reason.PARTIAL)
            size, api_id, _, thread, _ = RECORD_HEADER.unpack_from(rest)
            row = self._rows.get(api_id)
            if row is None or size % 8 or not RECORD_HEADER.size <= size <= MAX_RECORD_BYTES or thread >= MAX_THREADS:
                return Stop(at, Reason.CORRUPT)
            if len(rest) < size:
                return Stop(at, Reason.PARTIAL)
            if row.server:
                return Stop(at, Reason.PYTHON)
            if row.blocking:
                return Stop(at, Reason.BLOCKING)
            if self.output_bytes >= MAX_OUTPUT_BYTES:
                return Stop(at, Reason.OUTPUT_FULL)
            try:
                self._carry_out(rest[:size])
                self.calls += 1
            except LocalProtocolError:
                return Stop(at, Reason.CORRUPT)
            at += size
        return Stop(at, Reason.DONE)

    def _carry_out(self, record: memoryview) -> None:
        call = decode(record, self._rows)
        outputs = b""
        try:
            prepared = prepare(call, self)
            self.ensure_thread(call.thread)
            result = self._driver.call(call.symbol, *prepared.args)
            outputs = prepared.finish(self, result)
        except DriverError as exc:
            result = exc.result
        if call.token:
            self.reply(call.thread, call.token, result, outputs, reports=call.row.reports_earlier)
        elif result != CUDA_SUCCESS:
            self.post_failed(call.row.api_id, result)

    def take_output(self) -> memoryview:
        out, self._output, self.output_bytes = self._output, bytearray(), 0
        return memoryview(out)

    def define(self, vh: int, real: int, handle_type: int) -> None:
        if len(self._types) >= MAX_HANDLES:
            raise DriverError("", CUDA_ERROR_INVALID_VALUE, detail="too many handles")
        self.forget(vh)
        self._real[vh, handle_type] = real
        self._types[vh] = handle_type
        self._virtual[real, handle_type] = vh

    def real(self, vh: int, handle_type: int) -> int | None:
        return self._real.get((vh, handle_type))

    def virtual(self, real: int, handle_type: int) -> int | None:
        return self._virtual.get((real, handle_type))

    def forget(self, vh: int) -> None:
        handle_type = self._types.pop(vh, None)
        if handle_type is not None:
            real = self._real.pop((vh, handle_type))
            if self._virtual.get((real, handle_type)) == vh:
                del self._virtual[real, handle_type]

    def set_thread_context(self, thread: int, real_ctx: int) -> None:
        self._contexts[thread] = real_ctx

    def ensure_thread(self, thread: int) -> None:
        context = self._contexts[thread]
        if context != self._bound:
            self._driver.check("cuCtxSetCurrent", context)
            self._bound = context

    def reply(self, thread: int, token: int, result: int, outputs: bytes | bytearray | memoryview, *, reports: bool = True) -> None:
        failed_api = 0
        if reports and result == CUDA_SUCCESS and (deferred := self.take_deferred()) is not None:
            failed_api, result = deferred
        if result != CUDA_SUCCESS:
            outputs = b""
        self._output += encode_header(FrameType.REPLY, 0, REPLY_HEADER.size + len(outputs))
        self._output += REPLY_HEADER.pack(thread, token, result, failed_api, 0)
        self._output += outputs
        self.output_bytes = len(self._output)

    def post_failed(self, api_id: int, result: int) -> None:
        if self._deferred is None:
            self._deferred = (api_id, result)
        self._failures.append((api_id, result))

    def take_deferred(self) -> tuple[int, int] | None:
        deferred, self._deferred = self._deferred, None
        return deferred

    def forgive(self, results: Container[int]) -> None:
        if self._deferred is not None and self._deferred[1] in results:
            self._deferred = None

    def failures(self) -> list[tuple[int, int]]:
        failed, self._failures = self._failures, []
        return failed
