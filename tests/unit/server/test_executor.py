"""The machine-code executor by itself: what its entry points are called with, compared with the reference over every row; limits."""

import ctypes
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lanGPU.constants import (
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_READY,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS,
    MAX_ARGS,
    MAX_HANDLES,
    MAX_KERNEL_PARAMS_BYTES,
    MAX_THREADS,
)
from lanGPU.driverapi import table
from lanGPU.driverapi.model import ApiFunction, Arg, ArgKind, CallClass, HandleType, Replay
from lanGPU.errors import DriverError
from lanGPU.server import executor_ir as ir
from lanGPU.server.executor import OUTPUT_BYTES, MachineExecutor, row_entry
from lanGPU.server.reference import Executor, Reason, ReferenceExecutor, Stop
from lanGPU.wire.records import FLAG_PER_THREAD, MAX_OUTPUT_BYTES, NULL_WORD, RECORD_HEADER, Value, encode, make_handle
from tests.helpers.fake_driver import FakeDriver, read, read_u64, write
from tests.helpers.record_values import sized_values_of

ROOT = Path(__file__).resolve().parents[3]
GENERIC = [row for row in table.ROWS if not row.server]
HOST_PTR = [row for row in GENERIC if any(arg.kind is ArgKind.HOST_PTR for arg in row.args)]
CARRIED = [row for row in GENERIC if row not in HOST_PTR and not row.blocking]
"""Those that may block are handed back by the reference, and tested with the issuer and below."""


class Recorder:
    """A driver that notes what each argument was when it was called (not where it lay), fills outputs with a pattern, answers `result`."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []
        self.result = CUDA_SUCCESS
        self.sizes: dict[int, int] = {}
        """Argument index -> bytes behind it, for the call to come."""
        self.driver = FakeDriver()
        self.driver.functions["cuStreamQuery"] = self.driver.functions["cuEventQuery"] = lambda *_: CUDA_SUCCESS
        self.driver.functions["cuStreamQuery_ptsz"] = lambda *_: CUDA_SUCCESS
        self.handles = 0

    def learn(self, row: ApiFunction) -> None:
        for symbol in (row.name, row.name + row.per_thread):
            self.driver.functions[symbol] = lambda *args, symbol=symbol: self._called(row, symbol, args)

    def _called(self, row: ApiFunction, symbol: str, args: tuple[int, ...]) -> int:
        seen: list[Any] = []
        self.handles += 1
        for i, (arg, value) in enumerate(zip(row.args, args, strict=True)):
            match arg.kind:
                case ArgKind.BYTES_IN | ArgKind.BYTES_OUT | ArgKind.BYTES_INOUT | ArgKind.CSTRING if value:
                    seen.append(read(value, self.sizes[i]))
                    if arg.kind in (ArgKind.BYTES_OUT, ArgKind.BYTES_INOUT):
                        write(value, bytes((7 * k + i) & 0xFF for k in range(self.sizes[i])))
                case ArgKind.HANDLE_OUT | ArgKind.HANDLE_QUERY if value:
                    seen.append(("slot", read_u64(value)))
                    write(value, (0x70_0000 + self.handles if arg.kind is ArgKind.HANDLE_OUT else QUERIED).to_bytes(8, "little"))
                case ArgKind.KERNEL_EXTRA if value:
                    one, buffer, two, size, end = struct.unpack("<5Q", read(value, 40))
                    seen.append((one, two, end, read(buffer, read_u64(size))))
                case _:
                    seen.append(value)
        self.calls.append((symbol, self.driver.current, *seen))
        return self.result


QUERIED = 0x55_0000
"""What the recording driver answers where an existing handle is asked for."""


TYPES = [handle_type for handle_type in HandleType if handle_type]


def name_all(executor: Executor) -> None:
    """Two names of each type; the second is for what the driver answers a query with."""
    for handle_type in TYPES:
        executor.define(make_handle(handle_type, 3), 0x9000 + handle_type, handle_type)
        executor.define(make_handle(100 + handle_type, 0), QUERIED, handle_type)


def executors() -> list[tuple[Recorder, Executor]]:
    """The reference and the machine code, each over its own driver."""
    made: list[tuple[Recorder, Executor]] = []
    for kind in ("reference", "machine"):
        recorder = Recorder()
        if kind == "reference":
            executor: Executor = ReferenceExecutor(recorder.driver, table.BY_ID)  # type: ignore[arg-type]
        else:
            executor = MachineExecutor(recorder.driver.entry_point, table.ROWS)
        for row in GENERIC:
            recorder.learn(row)
        name_all(executor)
        executor.set_thread_context(5, 0xC0)
        made.append((recorder, executor))
    return made


PAIR = executors()


def sizes_of(row: ApiFunction, values: tuple[Value, ...]) -> dict[int, int]:
    return {i: value if isinstance(value, int) else len(value) for i, value in enumerate(values) if value is not None}


def run(executor: Executor, *records: bytes) -> tuple[Stop, bytes]:
    """The stop and the output."""
    buffer = bytearray(b"".join(records))
    stop = executor.run(memoryview(buffer))
    return stop, bytes(executor.take_output())


def values_with_names(draw: st.DrawFn, row: ApiFunction) -> tuple[Value, ...]:
    """Values whose handles mostly exist; new ones are named make_handle(1000 + index, 7)."""
    values = list(draw(sized_values_of(row)))
    for i, arg in enumerate(row.args):
        good = make_handle(arg.handle, 3)
        if arg.kind in (ArgKind.HANDLE, ArgKind.HANDLE_DESTROY):
            values[i] = draw(st.sampled_from([good, good, good, good, 0, 1, 2, 3, 0x7F00_1234_5678, good + (1 << 24), make_handle(23, 0)]))
        elif arg.kind is ArgKind.HANDLE_OUT:
            values[i] = draw(st.sampled_from([make_handle(1000 + i, 7), make_handle(1000 + i, 7), 0]))
    return tuple(values)


@pytest.mark.parametrize("row", CARRIED, ids=lambda row: row.name)
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_every_generic_row_does_what_the_reference_does(row: ApiFunction, data: st.DataObject) -> None:
    values = values_with_names(data.draw, row)
    token, thread = data.draw(st.integers(0, 2)), data.draw(st.sampled_from([0, 5]))
    record = encode(row, values, thread=thread, token=token, flags=data.draw(st.sampled_from([0, FLAG_PER_THREAD])))
    result = data.draw(st.sampled_from([CUDA_SUCCESS, CUDA_SUCCESS, CUDA_ERROR_INVALID_VALUE]))
    seen = []
    for recorder, executor in PAIR:
        recorder.calls.clear()
        recorder.sizes, recorder.result = sizes_of(row, values), result
        stop, output = run(executor, record)
        names = [
            executor.real(word, arg.handle) for arg, word in zip(row.args, values, strict=True) if isinstance(word, int) and arg.handle
        ]
        made = [executor.virtual(0x70_0000 + recorder.handles, handle_type) for handle_type in TYPES]
        seen.append((stop, output, list(recorder.calls), names, made, executor.take_deferred(), executor.failures()))
        for i in range(len(row.args)):
            executor.forget(make_handle(1000 + i, 7))
        recorder.handles = 0
        executor.set_thread_context(0, 0)
        executor.ensure_thread(0)
        name_all(executor)
    reference, machine = seen
    assert machine == reference
    assert machine[0].reason is Reason.DONE


@pytest.mark.parametrize("row", HOST_PTR, ids=lambda row: row.name)
def test_rows_that_only_hand_written_code_understands_are_corrupt(row: ApiFunction) -> None:
    values: list[Value] = [b"\0" if a.kind is ArgKind.CSTRING else bytes(64) if a.kind is ArgKind.BYTES_IN else 64 for a in row.args]
    record = encode(row, values, thread=0, token=1)
    for recorder, executor in PAIR:
        recorder.calls.clear()
        assert run(executor, record) == (Stop(0, Reason.CORRUPT), b"")
        assert recorder.calls == []


@pytest.fixture
def recorder() -> Recorder:
    return Recorder()


@pytest.fixture
def executor(recorder: Recorder) -> MachineExecutor:
    return MachineExecutor(recorder.driver.entry_point, table.ROWS)


def record(name: str, *values: Value, thread: int = 0, token: int = 0, flags: int = 0) -> bytes:
    return encode(table.BY_NAME[name], values, thread=thread, token=token, flags=flags)


def replies(output: bytes) -> list[tuple[int, int, int, int, bytes]]:
    """(thread, token, result, failed api, outputs) of each REPLY frame."""
    out = []
    while output:
        magic, kind, flags, stream, body, bulk = struct.unpack_from("<HBBIII", output)
        assert (magic, kind, flags, stream, body) == (0x474C, 5, 0, 1, 0)
        thread, token, result, failed, zero = struct.unpack_from("<IIiHH", output, 16)
        assert zero == 0
        out.append((thread, token, result, failed, output[32 : 16 + bulk]))
        output = output[16 + bulk :]
    return out


def test_a_batch_is_carried_out_in_order_up_to_the_first_incomplete_record(recorder: Recorder, executor: MachineExecutor) -> None:
    recorder.learn(table.BY_NAME["cuMemsetD8_v2"])
    batch = b"".join(record("cuMemsetD8_v2", i, 0, 1) for i in range(50))
    for end in (0, 8, 16, 39, 40, 41, 79, len(batch)):
        recorder.calls.clear()
        stop, _ = run(executor, batch[:end])
        assert stop == Stop(end // 40 * 40, Reason.PARTIAL if end % 40 else Reason.DONE)
        assert [call[2] for call in recorder.calls] == list(range(end // 40))


def test_unaligned_batches(recorder: Recorder, executor: MachineExecutor) -> None:
    recorder.sizes = {1: 4}
    recorder.learn(table.BY_NAME["cuMemcpyHtoD_v2"])
    for shift in range(8):
        buffer = bytearray(bytes(shift) + record("cuMemcpyHtoD_v2", 7, b"abcd", 4, token=1))
        assert executor.run(memoryview(buffer)[shift:]).reason is Reason.DONE
        assert len(replies(bytes(executor.take_output()))) == 1
    assert [call[2:] for call in recorder.calls] == [(7, b"abcd", 4)] * 8


def test_stops_for_python_blocking_and_corrupt_records(recorder: Recorder, executor: MachineExecutor) -> None:
    recorder.learn(table.BY_NAME["cuMemsetD8_v2"])
    first = record("cuMemsetD8_v2", 1, 2, 3)
    busy = CUDA_ERROR_NOT_READY
    recorder.driver.functions["cuStreamQuery"] = lambda _: busy
    recorder.driver.functions["cuStreamSynchronize"] = lambda _: 0
    for then, reason in (
        (record("cuModuleLoadData", make_handle(1, 0), b"image", token=1), Reason.PYTHON),
        (record("cuCtxSynchronize", token=1), Reason.BLOCKING),
        (record("cuStreamSynchronize", 0, token=1), Reason.BLOCKING),
        (RECORD_HEADER.pack(16, 0xFFF, 0, 0, 0), Reason.CORRUPT),
        (RECORD_HEADER.pack(16, 0xFFFF, 0, 0, 0), Reason.CORRUPT),
    ):
        recorder.calls.clear()
        assert run(executor, first, then, first) == (Stop(len(first), reason), b"")
        assert len(recorder.calls) == 1
    busy = CUDA_SUCCESS
    stop, output = run(executor, record("cuStreamSynchronize", 0, token=9))
    assert (stop.reason, replies(output)) == (Reason.DONE, [(0, 9, 0, 0, b"")])


class Streams:
    """Streams of a driver that are idle, busy for a number of questions, or capturing."""

    def __init__(self, recorder: Recorder) -> None:
        self.busy: dict[int, int] = {}
        self.capturing: set[int] = set()
        self.asked: list[int] = []
        self.calls: list[str] = []
        driver = recorder.driver
        driver.functions["cuStreamQuery"] = self._query
        driver.functions["cuStreamIsCapturing"] = lambda stream, out: write(out, bytes([stream in self.capturing, 0, 0, 0])) or 0
        for name in ("cuCtxSynchronize", "cuStreamSynchronize", "cuEventSynchronize"):
            driver.functions[name] = lambda *_, name=name: self.calls.append(name) or 0
        for name in ("cuMemcpyDtoH_v2", "cuMemcpyDtoHAsync_v2"):
            driver.functions[name] = lambda dst, _, n, *__, name=name: self.calls.append(name) or write(dst, b"x" * n) or 0

    def _query(self, stream: int) -> int:
        self.asked.append(stream)
        left = self.busy.get(stream, 0)
        self.busy[stream] = left - 1
        return CUDA_ERROR_NOT_READY if left > 0 else CUDA_SUCCESS


FOREVER = 1 << 40


def test_a_wait_that_ends_soon_is_waited_for_here(recorder: Recorder, executor: MachineExecutor) -> None:
    streams = Streams(recorder)
    streams.busy[0] = ir.POLLS - 1
    assert run(executor, record("cuStreamSynchronize", 0, token=1))[0].reason is Reason.DONE
    streams.busy[0] = FOREVER
    streams.asked.clear()
    assert run(executor, record("cuStreamSynchronize", 0, token=1))[0].reason is Reason.BLOCKING
    assert (streams.asked, streams.calls) == ([0] * ir.POLLS, ["cuStreamSynchronize"])


def test_the_per_thread_variant_asks_for_the_per_thread_stream(recorder: Recorder, executor: MachineExecutor) -> None:
    streams = Streams(recorder)
    recorder.driver.functions["cuStreamSynchronize_ptsz"] = lambda _: 0
    run(executor, record("cuStreamSynchronize", 0, token=1, flags=FLAG_PER_THREAD))
    assert streams.asked == [2]


def test_a_context_is_synchronized_here_if_every_stream_is_idle(recorder: Recorder, executor: MachineExecutor) -> None:
    streams = Streams(recorder)
    names = [make_handle(10 + i, 0) for i in range(3)]
    for i, name in enumerate(names):
        executor.define(name, 0x100 + i, HandleType.STREAM)
    synchronize = record("cuCtxSynchronize", token=1)

    def reason() -> Reason:
        streams.asked.clear()
        return run(executor, synchronize)[0].reason

    assert reason() is Reason.DONE
    assert sorted(streams.asked) == [0, 2, 0x100, 0x101, 0x102]
    for stream in (0, 2, 0x100, 0x102):
        streams.busy[stream] = FOREVER
        assert reason() is Reason.BLOCKING
        streams.busy[stream] = 0
    streams.capturing.add(0x101)
    assert reason() is Reason.BLOCKING
    assert streams.asked == []  # a question would end the capture
    executor.forget(names[1])
    assert reason() is Reason.DONE
    executor.define(names[0], 0x200, HandleType.STREAM)
    assert reason() is Reason.DONE
    assert sorted(streams.asked) == [0, 2, 0x102, 0x200]
    assert len(streams.calls) == 3


def test_a_context_with_many_streams_is_left_to_a_waiting_thread(recorder: Recorder, executor: MachineExecutor) -> None:
    streams = Streams(recorder)
    names = [make_handle(10 + i, 0) for i in range(ir.MAX_STREAMS + 2)]
    for i, name in enumerate(names):
        executor.define(name, 0x100 + i, HandleType.STREAM)
    assert run(executor, record("cuCtxSynchronize", token=1))[0].reason is Reason.BLOCKING
    executor.forget(names[-1])
    assert run(executor, record("cuCtxSynchronize", token=1))[0].reason is Reason.BLOCKING
    executor.forget(names[0])
    assert run(executor, record("cuCtxSynchronize", token=1))[0].reason is Reason.BLOCKING
    executor.forget(names[-2])
    assert run(executor, record("cuCtxSynchronize", token=1))[0].reason is Reason.DONE
    assert len(streams.asked) == 2 + ir.MAX_STREAMS - 1


def test_small_copies_to_the_host_are_made_here_if_their_stream_is_idle(recorder: Recorder, executor: MachineExecutor) -> None:
    streams = Streams(recorder)
    stream = make_handle(7, 0)
    executor.define(stream, 0x70, HandleType.STREAM)
    copy, copy_async = record("cuMemcpyDtoH_v2", 5, 0x1000, 4, token=1), record("cuMemcpyDtoHAsync_v2", 4, 0x1000, 4, stream, token=1)
    assert replies(run(executor, copy)[1]) == [(0, 1, 0, 0, b"xxxx" + bytes(4))]
    assert streams.calls == ["cuMemcpyDtoH_v2"]
    streams.calls.clear()
    assert replies(run(executor, copy_async)[1]) == [(0, 1, 0, 0, b"xxxx" + bytes(4))]
    assert streams.calls == ["cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"]
    streams.calls.clear()
    for stop in (
        run(executor, record("cuMemcpyDtoH_v2", 3, 0x1000, 4, token=1)),
        run(executor, record("cuMemcpyDtoH_v2", None, 0x1000, 4, token=1)),
        run(executor, record("cuMemcpyDtoH_v2", ir.SHORT_BYTES + 1, 0x1000, 4, token=1)),
    ):
        assert stop == (Stop(0, Reason.PYTHON), b"")
    streams.capturing.add(0x70)
    assert run(executor, copy_async)[0].reason is Reason.PYTHON
    streams.capturing.clear()
    streams.busy = {0: FOREVER, 0x70: FOREVER}
    assert run(executor, copy)[0].reason is Reason.PYTHON
    assert run(executor, copy_async)[0].reason is Reason.PYTHON
    assert streams.calls == []


def test_a_full_output_stops_before_the_call_is_made(recorder: Recorder, executor: MachineExecutor) -> None:
    row = table.BY_NAME["cuMemGetInfo_v2"]
    recorder.learn(row)
    recorder.sizes = {0: 8, 1: 8}
    large = record("cuMemGetInfo_v2", MAX_OUTPUT_BYTES - 8, 8, token=1)
    stop, output = run(executor, large, large)
    assert stop == Stop(len(large), Reason.OUTPUT_FULL)
    assert len(recorder.calls) == 1
    assert len(output) == MAX_OUTPUT_BYTES + 32
    recorder.sizes = {0: 8, 1: 8}
    rest = record("cuMemGetInfo_v2", 65528, 8, token=2) * 500
    frames = []
    while rest:
        stop, output = run(executor, rest)
        assert len(output) <= OUTPUT_BYTES
        frames.append(len(output) // (65536 + 32))
        rest = rest[stop.consumed :]
    assert sum(frames) == 500
    assert len(frames) > 1


def test_outputs_are_zeroed_before_the_driver_sees_them(recorder: Recorder, executor: MachineExecutor) -> None:
    recorder.driver.functions["cuMemGetInfo_v2"] = lambda a, b: write(a, b"\xff" * 40) or write(b, b"\xff" * 8) or 0
    run(executor, record("cuMemGetInfo_v2", 40, 8, token=1))
    recorder.driver.functions["cuMemGetInfo_v2"] = lambda *_: 0
    _, output = run(executor, record("cuMemGetInfo_v2", 13, 8, token=1))
    assert replies(output) == [(0, 1, 0, 0, bytes(24))]


def test_an_entry_point_that_the_driver_lacks(recorder: Recorder) -> None:
    executor = MachineExecutor(lambda symbol: 0, table.ROWS)
    _, output = run(executor, record("cuMemGetInfo_v2", 8, 8, token=1), record("cuStreamQuery", 0, token=2))
    assert [reply[2] for reply in replies(output)] == [CUDA_ERROR_NOT_SUPPORTED] * 2
    executor.set_thread_context(1, 0x10)
    with pytest.raises(DriverError):
        executor.ensure_thread(1)


def test_kernel_parameters_over_cudas_limit(recorder: Recorder, executor: MachineExecutor) -> None:
    recorder.learn(table.BY_NAME["cuLaunchKernel"])
    for size, result in ((MAX_KERNEL_PARAMS_BYTES, CUDA_SUCCESS), (MAX_KERNEL_PARAMS_BYTES + 1, CUDA_ERROR_INVALID_VALUE)):
        _, output = run(executor, record("cuLaunchKernel", 0, 1, 1, 1, 1, 1, 1, 0, 0, bytes(size), None, token=1))
        assert replies(output)[0][2] == result
    assert len(recorder.calls) == 1


def test_a_thread_whose_context_cannot_be_bound_makes_no_call(recorder: Recorder, executor: MachineExecutor) -> None:
    recorder.learn(table.BY_NAME["cuMemsetD8_v2"])
    recorder.driver.functions["cuCtxSetCurrent"] = lambda _: 709
    executor.set_thread_context(MAX_THREADS - 1, 0x10)
    run(executor, record("cuMemsetD8_v2", 1, 1, 1, thread=MAX_THREADS - 1))
    assert recorder.calls == []
    assert executor.failures() == [(table.BY_NAME["cuMemsetD8_v2"].api_id, 709)]
    recorder.driver.functions["cuCtxSetCurrent"] = lambda _: 0
    run(executor, record("cuMemsetD8_v2", 1, 1, 1, thread=MAX_THREADS - 1))
    assert len(recorder.calls) == 1


def test_failures_are_bounded_and_the_first_is_told(recorder: Recorder, executor: MachineExecutor) -> None:
    results = iter(range(1, 1000))
    recorder.driver.functions["cuMemsetD8_v2"] = lambda *_: next(results)
    api_id = table.BY_NAME["cuMemsetD8_v2"].api_id
    run(executor, record("cuMemsetD8_v2", 0, 0, 1) * (ir.MAX_FAILURES + 10))
    executor.post_failed(api_id, 999)
    assert executor.failures() == [(api_id, i + 1) for i in range(ir.MAX_FAILURES)]
    assert executor.failures() == []
    _, output = run(executor, record("cuStreamQuery", 0, token=1) * 2)
    assert [reply[2:4] for reply in replies(output)] == [(1, api_id), (0, 0)]


def test_names(executor: MachineExecutor) -> None:
    stream, event = HandleType.STREAM, HandleType.EVENT
    one, two = make_handle(1, 0), make_handle(MAX_HANDLES - 1, 0xFFFF)
    executor.define(one, 0x10, stream)
    executor.define(two, 0x10, stream)
    assert (executor.real(one, stream), executor.real(one, event)) == (0x10, None)
    assert (executor.virtual(0x10, stream), executor.virtual(0x10, event), executor.virtual(0x11, stream)) == (two, None, None)
    executor.forget(two)
    executor.forget(two)
    assert (executor.real(two, stream), executor.virtual(0x10, stream)) == (None, one)
    executor.define(make_handle(1, 1), 0x20, event)
    assert (executor.real(one, stream), executor.virtual(0x10, stream)) == (None, None)
    assert executor.virtual(0x20, event) == make_handle(1, 1)
    for word in (0, 1, make_handle(0, 0), make_handle(MAX_HANDLES, 0), one | 1 << 50):
        assert executor.real(word, stream) is None
        executor.forget(word)
        with pytest.raises(DriverError):
            executor.define(word, 1, stream)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["define", "forget"]),
            st.integers(1, 6),
            st.integers(0, 1),
            st.sampled_from([8, 16, 1 << 63]),
            st.integers(4, 5),
        ),
        max_size=60,
    )
)
def test_any_run_of_names_agrees_with_a_dictionary(steps: list[tuple[str, int, int, int, int]]) -> None:
    executor = MachineExecutor(lambda _: 0, ())
    model: dict[int, tuple[int, int, int]] = {}  # index -> generation, real, type; insertion order is age
    for what, index, generation, real, handle_type in steps:
        vh = make_handle(index, generation)
        if what == "define":
            executor.define(vh, real, handle_type)
            model.pop(index, None)
            model[index] = (generation, real, handle_type)
        else:
            executor.forget(vh)
            if index in model and model[index][0] == generation:
                del model[index]
        for i in range(1, 7):
            for g in (0, 1):
                known = model.get(i)
                expected = known[1] if known and (known[0], known[2]) == (g, 4) else None
                assert executor.real(make_handle(i, g), 4) == expected
        for r in (8, 16, 1 << 63):
            names = [make_handle(i, g) for i, (g, value, t) in model.items() if (value, t) == (r, 5)]
            assert executor.virtual(r, 5) == (names[-1] if names else None)


def test_rows_that_machine_code_cannot_carry_are_refused_when_the_table_is_made() -> None:
    def made(*args: Arg) -> ApiFunction:
        return ApiFunction("cuNew", 1, CallClass.SYNC, Replay.PURE, args, since=12000)

    unruled = Arg("value", ArgKind.BYTES_OUT)
    assert len(row_entry(made(unruled), lambda _: 1)) == ir.ENTRY_BYTES
    for args in ((unruled, Arg("other", ArgKind.BYTES_IN)), (Arg("value", ArgKind.BYTES_INOUT),)):
        with pytest.raises(ValueError, match="need a size"):
            row_entry(made(*args), lambda _: 1)
    with pytest.raises(ValueError, match="the descriptor holds"):
        made(*[Arg(f"a{i}", ArgKind.SCALAR) for i in range(MAX_ARGS + 1)])


def test_values_of_attributes_get_memory_for_the_largest(recorder: Recorder, executor: MachineExecutor) -> None:
    pool = make_handle(4, 0)
    executor.define(pool, 0x40, HandleType.MEM_POOL)
    recorder.driver.functions["cuMemPoolGetAttribute"] = lambda _, __, value: write(value, bytes(range(1, 9))) or 0
    seen: list[bytes] = []
    recorder.driver.functions["cuMemPoolSetAttribute"] = lambda _, __, value: seen.append(read(value, 16)) or 0
    _, output = run(executor, record("cuMemPoolGetAttribute", pool, 1, 4, token=1), record("cuMemPoolSetAttribute", pool, 1, b"abcd"))
    assert replies(output) == [(0, 1, 0, 0, bytes([1, 2, 3, 4, 0, 0, 0, 0]))]
    assert seen == [b"abcd" + bytes(12)]
    stop, _ = run(executor, record("cuMemPoolSetAttribute", pool, 1, bytes(65)))
    assert stop.reason is Reason.CORRUPT


def test_counts_of_32_bits_ignore_the_upper_half_of_their_word(recorder: Recorder, executor: MachineExecutor) -> None:
    row = table.BY_NAME["cuStreamBatchMemOp_v2"]
    recorder.learn(row)
    recorder.sizes = {2: 96}
    assert run(executor, record(row.name, 0, 0xDEAD_0000_0002, bytes(96), 0))[0].reason is Reason.DONE
    assert run(executor, record(row.name, 0, 0xDEAD_0000_0003, bytes(96), 0))[0].reason is Reason.CORRUPT
    assert len(recorder.calls) == 1


def test_a_product_that_wraps_is_corrupt(recorder: Recorder, executor: MachineExecutor) -> None:
    rows = [row for row in CARRIED for arg in row.args if arg.size_const > 1 and arg.size_from and _is_size(row, arg)]
    for row in rows:
        values: list[Value] = []
        for arg in row.args:
            counts = any(other.size_from == arg.name for other in row.args)
            values.append(
                b"" if arg.kind is ArgKind.BYTES_IN else 0 if arg.kind is ArgKind.BYTES_OUT or not counts else (1 << 63) + (1 << 62)
            )
        assert run(executor, encode(row, values, thread=0))[0].reason is Reason.CORRUPT


def _is_size(row: ApiFunction, arg: Arg) -> bool:
    return row.args[row.arg_index[arg.size_from]].kind is ArgKind.SIZE


def test_an_invalid_handle_makes_no_call(recorder: Recorder, executor: MachineExecutor) -> None:
    recorder.learn(table.BY_NAME["cuStreamGetFlags"])
    for word in (3, NULL_WORD, make_handle(9, 0), make_handle(0, 0)):
        _, output = run(executor, record("cuStreamGetFlags", word, 4, token=1))
        assert replies(output) == [(0, 1, CUDA_ERROR_INVALID_HANDLE, 0, b"")]
    assert recorder.calls == []


def test_calls_are_counted(recorder: Recorder, executor: MachineExecutor) -> None:
    recorder.learn(table.BY_NAME["cuMemsetD8_v2"])
    run(executor, record("cuMemsetD8_v2", 0, 0, 1) * 5)
    assert executor.calls == 5
    assert ctypes.sizeof(executor._state) == 8 * 24


@pytest.mark.slow
def test_no_record_makes_it_crash() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.helpers.fuzz_executor", "4000"], capture_output=True, text=True, timeout=100, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {reason.name for reason in Reason}
