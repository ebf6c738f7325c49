"""The record stream on the server: order, joining, contexts, waiting calls, deferred failures, bad records."""

import struct
import threading
from collections.abc import Iterator

import pytest

from lanGPU.constants import (
    CUDA_ERROR_ILLEGAL_ADDRESS,
    CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_READY,
    CUDA_ERROR_NOT_SUPPORTED,
    CUDA_SUCCESS,
)
from lanGPU.driverapi import table
from lanGPU.errors import RemoteProtocolError
from lanGPU.wire.records import RECORD_HEADER, make_handle
from tests.helpers.fake_driver import read, write, write_u64
from tests.helpers.issuing import Bench


@pytest.fixture(params=["reference", "machine code"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(machine_code=request.param == "machine code")
    yield bench
    bench.close()


def test_posted_and_answered_calls_reach_the_driver_in_order(bench: Bench) -> None:
    bench.driver.creates("cuStreamCreate")
    bench.driver.succeeds("cuStreamWaitEvent", "cuStreamSynchronize", "cuMemsetD8_v2")
    stream = bench.name()
    bench.post("cuStreamCreate", stream, 1)
    bench.post("cuMemsetD8_v2", 0x1000, 7, 64)
    assert bench.ask("cuStreamSynchronize", stream).result == CUDA_SUCCESS
    names = [name for name, _ in bench.driver.log if name != "cuStreamQuery"]
    assert names == ["cuStreamCreate", "cuMemsetD8_v2", "cuStreamSynchronize"]
    real = bench.executor.real(stream, 4)
    assert bench.driver.calls("cuStreamSynchronize") == [(real,)]


@pytest.mark.parametrize("step", [1, 3, 8, 16, 24, 1000])
def test_records_join_across_frames(bench: Bench, step: int) -> None:
    bench.driver.succeeds("cuMemsetD8_v2")
    seen: list[bytes] = []
    bench.driver.functions["cuMemcpyHtoD_v2"] = lambda dst, src, n: seen.append(read(src, n)) or 0
    stream = b"".join(
        bench.record("cuMemcpyHtoD_v2", 0x1000, bytes([i]) * (100 * i), 100 * i) + bench.record("cuMemsetD8_v2", i, 0, 1)
        for i in range(1, 5)
    )
    for at in range(0, len(stream), step):
        bench.feed(stream[at : at + step])
    assert seen == [bytes([i]) * (100 * i) for i in range(1, 5)]
    assert [args[0] for args in bench.driver.calls("cuMemsetD8_v2")] == [1, 2, 3, 4]


def corrupt(bench: Bench) -> dict[str, bytes]:
    good = bench.record("cuMemcpyHtoD_v2", 0x1000, b"12345678", 8)
    return {
        "size 0": struct.pack("<IHHII", 0, 1, 0, 0, 0),
        "odd size": struct.pack("<IHHII", 21, table.BY_NAME["cuInit"].api_id, 0, 0, 0) + bytes(8),
        "size over the limit": struct.pack("<IHHII", 0xFFFF_FFF8, table.BY_NAME["cuInit"].api_id, 0, 0, 0),
        "unknown api_id": RECORD_HEADER.pack(16, 0xFFF0, 0, 0, 0),
        "thread": RECORD_HEADER.pack(24, table.BY_NAME["cuCtxSetCurrent"].api_id, 0, 1 << 20, 0) + bytes(8),
        "blob past the end": good[:24] + struct.pack("<Q", 1 << 20) + good[32:],
        "driver would read more than came": bench.record("cuMemcpyHtoD_v2", 0x1000, b"12345678", 9),
        "no NUL in a string": bench.record("cuModuleGetGlobal_v2", 8, 8, 0, b"name"),
        "outputs that fit no reply": bench.record("cuMemGetInfo_v2", 1 << 40, 8),
        "a name that is none": bench.record("cuStreamCreate", 0x1234, 0),
        "hand-written, too short": RECORD_HEADER.pack(16, table.BY_NAME["cuModuleLoadData"].api_id, 0, 0, 0),
    }


@pytest.mark.parametrize("which", list(corrupt(Bench())))
def test_corrupt_records_end_the_session_with_a_named_error(bench: Bench, which: str) -> None:
    bench.driver.succeeds("cuMemcpyHtoD_v2", "cuModuleGetGlobal_v2", "cuMemGetInfo_v2", "cuStreamCreate", "cuModuleLoadData")
    with pytest.raises(RemoteProtocolError):
        bench.feed(corrupt(bench)[which])
    assert bench.driver.log == []


def test_a_failed_posted_call_is_logged_and_reported_once_by_the_next_success(bench: Bench) -> None:
    bench.driver.functions["cuMemsetD8_v2"] = lambda *_: CUDA_ERROR_ILLEGAL_ADDRESS
    bench.driver.functions["cuMemsetD16_v2"] = lambda *_: CUDA_ERROR_INVALID_VALUE
    bench.driver.functions["cuMemGetInfo_v2"] = lambda a, b: write_u64(a, 5) or write_u64(b, 6) or 0
    bench.post("cuMemsetD8_v2", 0, 0, 1)
    bench.post("cuMemsetD16_v2", 0, 0, 1)
    first, second = bench.ask("cuMemGetInfo_v2", 8, 8), bench.ask("cuMemGetInfo_v2", 8, 8)
    assert (first.result, first.failed_api, first.outputs) == (CUDA_ERROR_ILLEGAL_ADDRESS, table.BY_NAME["cuMemsetD8_v2"].api_id, b"")
    assert (second.result, second.failed_api, second.outputs) == (CUDA_SUCCESS, 0, struct.pack("<QQ", 5, 6))
    assert [("cuMemsetD8_v2" in text, "cuMemsetD16_v2" in text) for _, text in bench.logged] == [(True, False), (False, True)]
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in bench.logged[0][1]


def test_a_call_that_made_something_does_not_report_an_earlier_failure(bench: Bench) -> None:
    """Its caller would believe that it failed, and the memory or the object would be lost."""
    bench.driver.functions["cuMemsetD8_v2"] = lambda *_: CUDA_ERROR_ILLEGAL_ADDRESS
    bench.driver.functions["cuMemAlloc_v2"] = lambda place, _: write_u64(place, 0x1000) or 0
    bench.driver.succeeds("cuMemGetInfo_v2", "cuStreamQuery")
    bench.driver.creates("cuStreamCreate")
    bench.post("cuMemsetD8_v2", 0, 0, 1)
    made = bench.ask("cuMemAlloc_v2", 8, 64)
    assert (made.result, made.failed_api, made.outputs) == (CUDA_SUCCESS, 0, struct.pack("<Q", 0x1000))
    assert bench.ask("cuStreamCreate", bench.name(), 0).result == CUDA_SUCCESS
    assert bench.ask("cuMemGetInfo_v2", 8, 8).result == CUDA_ERROR_ILLEGAL_ADDRESS


def test_a_sticky_failure_ends_with_the_context(bench: Bench) -> None:
    """Reported after cudaDeviceReset it would fail a program that has recovered."""
    bench.driver.functions["cuMemsetD8_v2"] = lambda *_: CUDA_ERROR_ILLEGAL_ADDRESS
    bench.driver.functions["cuMemsetD16_v2"] = lambda *_: CUDA_ERROR_INVALID_VALUE
    bench.driver.succeeds("cuDevicePrimaryCtxReset_v2", "cuStreamQuery")
    bench.post("cuMemsetD8_v2", 0, 0, 1)
    assert bench.ask("cuDevicePrimaryCtxReset_v2", 0).result == CUDA_SUCCESS
    assert bench.ask("cuStreamQuery", 0).result == CUDA_SUCCESS
    bench.post("cuMemsetD16_v2", 0, 0, 1)
    assert bench.ask("cuDevicePrimaryCtxReset_v2", 0).result == CUDA_SUCCESS
    assert bench.ask("cuStreamQuery", 0).result == CUDA_ERROR_INVALID_VALUE


def test_a_large_reply_reports_the_deferred_failure_too(bench: Bench) -> None:
    bench.driver.functions["cuMemsetD8_v2"] = lambda *_: CUDA_ERROR_ILLEGAL_ADDRESS
    bench.driver.functions["cuMemcpyDtoH_v2"] = lambda dst, src, n: write(dst, b"x" * n) or 0
    bench.post("cuMemsetD8_v2", 0, 0, 1)
    reply = bench.ask("cuMemcpyDtoH_v2", 100_000, 0x1000, 100_000)
    assert (reply.result, reply.failed_api, reply.outputs) == (CUDA_ERROR_ILLEGAL_ADDRESS, table.BY_NAME["cuMemsetD8_v2"].api_id, b"")
    assert bench.ask("cuMemcpyDtoH_v2", 100_000, 0x1000, 100_000).outputs == b"x" * 100_000


def test_unknown_and_foreign_handles_never_reach_the_driver(bench: Bench) -> None:
    bench.driver.creates("cuStreamCreate")
    bench.driver.succeeds("cuStreamSynchronize", "cuEventSynchronize")
    stream = bench.name()
    bench.post("cuStreamCreate", stream, 0)
    assert bench.ask("cuStreamSynchronize", bench.name()).result == CUDA_ERROR_INVALID_HANDLE
    assert bench.ask("cuStreamSynchronize", 0x7F0012345678).result == CUDA_ERROR_INVALID_HANDLE
    assert bench.ask("cuStreamSynchronize", stream + (1 << 24)).result == CUDA_ERROR_INVALID_HANDLE
    assert bench.ask("cuEventSynchronize", stream).result == CUDA_ERROR_INVALID_HANDLE
    assert bench.ask("cuCtxSetCurrent", stream).result == CUDA_ERROR_INVALID_CONTEXT
    assert bench.driver.calls("cuStreamSynchronize") == bench.driver.calls("cuEventSynchronize") == []


def test_what_the_driver_lacks_is_not_supported(bench: Bench) -> None:
    assert bench.ask("cuMemGetInfo_v2", 8, 8).result == CUDA_ERROR_NOT_SUPPORTED
    assert bench.ask("cuGraphInstantiateWithParams", bench.name(), 0, bytes(32)).result == CUDA_ERROR_NOT_SUPPORTED


def test_each_thread_has_its_own_context(bench: Bench) -> None:
    bench.driver.creates("cuDevicePrimaryCtxRetain")
    bench.driver.creates("cuCtxCreate_v2")
    bench.driver.functions["cuCtxPopCurrent_v2"] = lambda out: write_u64(out, 0) or 0
    currents: list[int] = []
    bench.driver.functions["cuMemsetD8_v2"] = lambda *_: currents.append(bench.driver.current) or 0
    bench.driver.succeeds("cuCtxDestroy_v2")
    one, two = bench.name(), bench.name()
    assert bench.ask("cuDevicePrimaryCtxRetain", one, 0).result == CUDA_SUCCESS
    assert bench.ask("cuCtxCreate_v2", two, 0, 0, thread=2).result == CUDA_SUCCESS
    bench.post("cuCtxSetCurrent", one, thread=1)
    for thread in (1, 2, 1, 3):
        bench.post("cuMemsetD8_v2", 0, 0, 1, thread=thread)
    real_one, real_two = bench.executor.real(one, 1), bench.executor.real(two, 1)
    assert currents == [real_one, real_two, real_one, 0]
    bench.post("cuCtxDestroy_v2", two, thread=1)
    assert bench.driver.calls("cuCtxDestroy_v2") == [(real_two,)]
    assert bench.ask("cuCtxSetCurrent", two, thread=1).result == CUDA_ERROR_INVALID_CONTEXT
    for thread in (1, 2):
        bench.post("cuMemsetD8_v2", 0, 0, 1, thread=thread)
    assert currents[4:] == [real_one, 0]


def test_a_call_that_must_wait_lets_other_threads_go_on(bench: Bench) -> None:
    bench.driver.creates("cuStreamCreate")
    release, entered = threading.Event(), threading.Event()
    done: list[str] = []
    bench.driver.functions["cuStreamQuery"] = lambda _: CUDA_ERROR_NOT_READY

    def synchronize(_: int) -> int:
        entered.set()
        assert release.wait(10)
        done.append("waited")
        return CUDA_ERROR_ILLEGAL_ADDRESS

    bench.driver.functions["cuStreamSynchronize"] = synchronize
    bench.driver.functions["cuMemsetD8_v2"] = lambda *_: done.append("memset") or 0
    stream = bench.name()
    bench.post("cuStreamCreate", stream, 0)
    waiting = bench.record("cuStreamSynchronize", stream, thread=1, token=77)
    bench.feed(waiting + bench.record("cuMemsetD8_v2", 0, 0, 1, thread=2))
    assert entered.wait(10)
    assert done == ["memset"]
    assert bench.ask("cuCtxSetCurrent", 0, thread=2).result == CUDA_SUCCESS
    release.set()
    assert (bench.wait(77).result, bench.wait(77).thread) == (CUDA_ERROR_ILLEGAL_ADDRESS, 1)


def test_more_waiting_calls_than_threads_end_the_session(bench: Bench) -> None:
    release = threading.Event()
    bench.driver.functions["cuStreamQuery"] = lambda _: CUDA_ERROR_NOT_READY
    bench.driver.functions["cuCtxSynchronize"] = lambda: release.wait(10) and 0
    try:
        with pytest.raises(RemoteProtocolError):
            bench.feed(bench.record("cuCtxSynchronize", token=1) * 513)
    finally:
        release.set()


def test_a_partial_record_cannot_grow_past_its_announced_size(bench: Bench) -> None:
    head = bench.record("cuMemcpyHtoD_v2", 0x1000, bytes(1000), 1000)[:20]
    bench.feed(head)
    for _ in range(100):
        bench.feed(b"")
    with pytest.raises(RemoteProtocolError):
        bench.feed(bytes(2000))


def test_a_hand_written_row_is_refused_if_nobody_wrote_it(bench: Bench) -> None:
    assert bench.ask("cuModuleLoad", bench.name(), b"/etc/passwd\0").result == CUDA_ERROR_NOT_SUPPORTED


def test_creation_and_destruction_of_names(bench: Bench) -> None:
    bench.driver.creates("cuEventCreate")
    bench.driver.succeeds("cuEventDestroy_v2", "cuEventQuery")
    event = bench.name()
    bench.post("cuEventCreate", event, 0)
    assert bench.ask("cuEventQuery", event).result == CUDA_SUCCESS
    bench.post("cuEventDestroy_v2", event)
    assert bench.ask("cuEventQuery", event).result == CUDA_ERROR_INVALID_HANDLE
    again = make_handle(1, 1)
    bench.post("cuEventCreate", again, 0)
    assert bench.ask("cuEventQuery", again).result == CUDA_SUCCESS


@pytest.mark.parametrize("ready", [True, False])
def test_what_the_driver_printed_goes_before_the_reply_of_the_call_that_printed_it(bench: Bench, ready: bool) -> None:
    printed: list[tuple[int, bytes]] = []
    seen: list[tuple[list[tuple[int, bytes]], int]] = []

    def synchronize() -> int:
        printed.append((1, b"from a kernel\n"))
        return CUDA_SUCCESS

    def take() -> list[tuple[int, bytes]]:
        out = list(printed)
        printed.clear()
        return out

    bench.driver.functions["cuStreamQuery"] = lambda _: CUDA_SUCCESS if ready else CUDA_ERROR_NOT_READY
    bench.driver.functions["cuStreamSynchronize"] = lambda _: synchronize()
    bench.issuer.print_from(take, lambda pieces: seen.append((pieces, len(bench.replies))))
    assert bench.ask("cuStreamSynchronize", 0).result == CUDA_SUCCESS
    assert seen == [([(1, b"from a kernel\n")], 0)]
