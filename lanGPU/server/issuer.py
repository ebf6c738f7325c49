"""The record stream of one session, carried out: the executor first, Python where the executor stops.

Used by the issuing thread; waiter threads enter only through `_finish`, under `lock`, which the issuing thread holds except while
it receives.
"""

import logging
import struct
import threading
from collections.abc import Callable, Mapping
from typing import Final, TypeAlias

from lanGPU.constants import CUDA_ERROR_NOT_READY, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS, MAX_RECORD_BYTES
from lanGPU.driverapi import results
from lanGPU.driverapi.model import ApiFunction, ArgKind, HandleType
from lanGPU.errors import DriverError, LocalProtocolError, RemoteProtocolError
from lanGPU.server.call import Call, decode, prepare
from lanGPU.server.callbacks import HostCalls
from lanGPU.server.driver import Driver
from lanGPU.server.reference import Executor, Reason
from lanGPU.server.waiters import Waiters
from lanGPU.wire.connection import Buffer
from lanGPU.wire.frames import FrameType, encode_header
from lanGPU.wire.records import RECORD_HEADER, REPLY_HEADER

_log = logging.getLogger(__name__)
_DIRECT_BYTES: Final = 16 * 1024
"""From here up a reply's outputs are sent from where they lie instead of being copied behind the executor's output."""
_FLUSH_BYTES: Final = 1024 * 1024
"""Replies of hand-written calls wait for the end of their batch only while they are few: what a client can make us keep has a limit."""

_QUERIES: Final = {HandleType.STREAM: "cuStreamQuery", HandleType.EVENT: "cuEventQuery"}
"""What says whether waiting for an object would return at once."""

Answer: TypeAlias = tuple[int, Buffer]
"""CUresult and outputs of a call."""
ServerCall: TypeAlias = Callable[["Issuer", Call], Answer | None]
"""A hand-written server side: the answer, or None if it comes later from a waiter. May raise DriverError."""

SERVER_CALLS: Final[dict[str, ServerCall]] = {}
"""By row name; filled by `lanGPU.server.calls`."""


def server_call(*names: str) -> Callable[[ServerCall], ServerCall]:
    """Registers a hand-written server side for rows."""

    def register(function: ServerCall) -> ServerCall:
        for name in names:
            SERVER_CALLS[name] = function
        return function

    return register


class Issuer:
    """Carries out records and sends replies. `send` takes buffers, in order, and returns when they are no longer needed."""

    def __init__(
        self,
        driver: Driver,
        executor: Executor,
        rows: Mapping[int, ApiFunction],
        *,
        send: Callable[[list[Buffer]], None],
        log: Callable[[str, str], None],
        host_calls: HostCalls | None = None,
    ) -> None:
        self.driver = driver
        self.host_calls = host_calls
        """How functions of the program are called; None: there is no client that could."""
        self.executor = executor
        self.lock = threading.Lock()
        self.contexts: dict[int, int] = {}
        """Application thread -> the driver's context that is current for it."""
        self.state: dict[str, object] = {}
        """What hand-written calls keep for the session, by their own keys."""
        self.python_calls = 0
        self._rows = rows
        self._send = send
        self._send_log = log
        self._printed: Callable[[], list[tuple[int, bytes]]] | None = None
        self._send_printed: Callable[[list[tuple[int, bytes]]], None] = lambda _: None
        self._printed_lock = threading.Lock()
        self._waiters = Waiters()
        self._partial = bytearray()
        self._partial_size = 0

    @property
    def calls(self) -> int:
        """Records carried out so far."""
        return self.executor.calls + self.python_calls

    def print_from(self, printed: Callable[[], list[tuple[int, bytes]]], send: Callable[[list[tuple[int, bytes]]], None]) -> None:
        """From now on what `printed` gives, (descriptor, bytes) of the driver's own output, is sent by `send` ahead of replies."""
        self._printed, self._send_printed = printed, send

    def flush_printed(self) -> None:
        """Sends what the driver printed; from any thread."""
        if self._printed is not None:
            with self._printed_lock:
                if printed := self._printed():
                    self._send_printed(printed)

    # --- the stream ----------------------------------------------------------------------------------------------
    def feed(self, data: memoryview) -> None:
        """The next bytes of the record stream, carried out and answered. Call under `lock`.

        Raises:
            RemoteProtocolError: the client sent what is no record.
        """
        try:
            if self._partial:
                data = self._join(data)
            if len(data) and not self._partial:
                self._execute(data)
        except LocalProtocolError as exc:
            raise RemoteProtocolError(str(exc)) from exc
        self.flush()

    def _join(self, data: memoryview) -> memoryview:
        """Completes the record that earlier frames began; returns what follows it."""
        if not self._partial_size:
            missing = RECORD_HEADER.size - len(self._partial)
            self._partial += data[:missing]
            data = data[missing:]
            if len(self._partial) < RECORD_HEADER.size:
                return data
            self._set_partial_size()
        missing = self._partial_size - len(self._partial)
        self._partial += data[:missing]
        if len(self._partial) == self._partial_size:
            record, self._partial, self._partial_size = self._partial, bytearray(), 0
            self._execute(memoryview(record))
        return data[missing:]

    def _set_partial_size(self) -> None:
        (size,) = struct.unpack_from("<I", self._partial)
        # The limit bounds what one record can make us keep.
        if size % 8 or not RECORD_HEADER.size <= size <= MAX_RECORD_BYTES:
            raise LocalProtocolError(f"a record of {size} bytes")
        self._partial_size = size

    def _keep(self, rest: memoryview) -> None:
        self._partial = bytearray(rest)
        if len(rest) >= RECORD_HEADER.size:
            self._set_partial_size()

    def _execute(self, view: memoryview) -> None:
        while len(view):
            stop = self.executor.run(view)
            view = view[stop.consumed :]
            if stop.reason == Reason.DONE:
                return
            if stop.reason == Reason.PARTIAL:
                self._keep(view)
                return
            if stop.reason == Reason.OUTPUT_FULL:
                self.flush()
                continue
            if stop.reason == Reason.CORRUPT:
                decode(view, self._rows)  # says what is wrong with it, if it is wrong to Python, too
                raise LocalProtocolError("a record is corrupt")
            call = decode(view, self._rows)
            self._issue(call)
            view = view[call.size :]

    def _issue(self, call: Call) -> None:
        self.python_calls += 1
        function = SERVER_CALLS.get(call.row.name)
        try:
            if function is not None:
                answer = function(self, call)
            elif call.row.server:
                _log.error("%s has no server side", call.row.name)
                answer = (CUDA_ERROR_NOT_SUPPORTED, b"")
            else:
                answer = self._generic(call)
        except DriverError as exc:
            _log.debug("%s", exc)
            answer = (exc.result, b"")
        if answer is not None:
            self.answer(call, *answer)

    # --- answers -------------------------------------------------------------------------------------------------
    def answer(self, call: Call, result: int, outputs: Buffer) -> None:
        """Replies to `call`, or remembers its failure if nobody waits."""
        if not call.token:
            if result != CUDA_SUCCESS:
                self.executor.post_failed(call.row.api_id, result)
        elif len(outputs) < _DIRECT_BYTES or result != CUDA_SUCCESS:
            if self.executor.output_bytes > _FLUSH_BYTES:
                self.flush()
            self.executor.reply(call.thread, call.token, result, outputs, reports=call.row.reports_earlier)
        else:
            self.flush()
            failed_api, result = (self.executor.take_deferred() if call.row.reports_earlier else None) or (0, CUDA_SUCCESS)
            if result != CUDA_SUCCESS:
                outputs = b""
            header = encode_header(FrameType.REPLY, 0, REPLY_HEADER.size + len(outputs))
            self._send([header + REPLY_HEADER.pack(call.thread, call.token, result, failed_api, 0), outputs])

    def flush(self) -> None:
        """Sends what the executor has to say, and log lines for posted calls that failed.

        What the driver printed meanwhile goes first: a reply lets the program go on.
        """
        self.flush_printed()
        output = self.executor.take_output()
        if len(output):
            self._send([output])
        for api_id, result in self.executor.failures():
            row = self._rows.get(api_id)
            self._send_log("error", f"{row.name if row else hex(api_id)}, which had been posted, failed with {results.name(result)}")

    # --- calls that may block ------------------------------------------------------------------------------------
    def carry_out(self, call: Call) -> Answer:
        """`call` by its row's argument kinds, on this thread."""
        self.executor.ensure_thread(call.thread)
        prepared = prepare(call, self.executor)
        result = self.driver.call(call.symbol, *prepared.args)
        return result, prepared.finish(self.executor, result)

    def _generic(self, call: Call) -> Answer | None:
        """A row without a hand-written side that the executor handed back: one that may block."""
        self.executor.ensure_thread(call.thread)
        if len(call.words) == 1 and call.row.args[0].kind is ArgKind.HANDLE:
            return self._synchronize(call, call.row.args[0].handle)
        ready = self.is_ready(call)
        if not ready:
            call = call.detached()
        prepared = prepare(call, self.executor)
        return self.wait(
            call,
            ready,
            lambda: self.driver.call(call.symbol, *prepared.args),
            lambda result: prepared.finish(self.executor, result),
        )

    def _synchronize(self, call: Call, handle_type: HandleType) -> Answer | None:
        """cuStreamSynchronize, cuEventSynchronize and their like: one handle, no outputs. The call that programs wait for most."""
        real = call.translate(self.executor, call.words[0], handle_type)
        query = _QUERIES.get(handle_type)
        ready = query is not None and self.driver.call(query, real) != CUDA_ERROR_NOT_READY
        return self.wait(call, ready, lambda: self.driver.call(call.symbol, real), lambda _: b"")

    def is_ready(self, call: Call) -> bool:
        """Whether `call` would return at once: its stream or event has nothing left to do (or fails, which is also at once)."""
        for word, arg in zip(call.words, call.row.args, strict=True):
            if arg.kind is ArgKind.HANDLE and arg.handle is HandleType.STREAM:
                return self.stream_ready(call.translate(self.executor, word, arg.handle))
            if arg.kind is ArgKind.HANDLE and arg.handle is HandleType.EVENT:
                return self.driver.call("cuEventQuery", call.translate(self.executor, word, arg.handle)) != CUDA_ERROR_NOT_READY
        return False

    def stream_ready(self, stream: int) -> bool:
        """Whether everything in the driver's `stream` is done (or waiting for it would fail)."""
        return self.driver.call("cuStreamQuery", stream) != CUDA_ERROR_NOT_READY

    def wait(self, call: Call, ready: bool, work: Callable[[], int], finish: Callable[[int], Buffer]) -> Answer | None:
        """Calls the driver (`work`) here if it is `ready`, else on a waiter thread; then `finish` makes the outputs, under the lock.

        Per-thread default streams belong to the operating system's thread that used them, so such calls stay on this one.
        """
        if ready or call.per_thread:
            self.flush()
            result = work()
            return result, finish(result)
        context = self.contexts.get(call.thread, 0)

        def job() -> None:
            try:
                self.bind(context)
                result = work()
            except DriverError as exc:
                result = exc.result
            with self.lock:
                self._finish(call, result, finish)

        self._waiters.submit(job)
        return None

    def aside(self, call: Call, work: Callable[[], Buffer]) -> None:
        """Has a waiter thread make the outputs of `call`, which is no driver function: no context is bound, none can be in its way."""

        def job() -> None:
            outputs = work()
            with self.lock:
                self._finish(call, CUDA_SUCCESS, lambda _: outputs)

        self._waiters.submit(job)

    def bind(self, context: int) -> None:
        """Makes `context` current in the calling waiter thread; always, because a handle may come back for another context."""
        self.driver.check("cuCtxSetCurrent", context)

    def _finish(self, call: Call, result: int, finish: Callable[[int], Buffer]) -> None:
        outputs: Buffer = b""
        try:
            outputs = finish(result)
        except DriverError as exc:
            result = exc.result
        try:
            self.answer(call, result, outputs)
            self.flush()
        except OSError as exc:
            _log.debug("the client is gone: %s", exc)

    def close(self) -> None:
        """Ends idle waiter threads."""
        self._waiters.close()
