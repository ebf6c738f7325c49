"""The ring between the shim and its agent: wrapping, full, many threads at once."""

import threading
import time
from collections import defaultdict

import pytest

from lanGPU.client import layout as lay
from lanGPU.client.ring import Request, command_return
from lanGPU.constants import CUDA_ERROR_SYSTEM_NOT_READY, MAX_THREADS
from lanGPU.wire.records import Record
from tests.helpers.fake_agent import FakeAgent, FakeSession
from tests.helpers.server import wait_until
from tests.helpers.shim_program import Program

pytestmark = pytest.mark.slow

SMALL = 16 + 3 * 8
TAG = 1 << 40
"""An address that is not null: a copy to null would be waited for."""
POSTING = """
from tests.helpers import native_loop
result = native_loop.post(cuda.cuMemsetD8_v2, count, tag)
"""


def test_records_across_the_end(agent: FakeAgent, program: Program) -> None:
    sizes = [60_001, 8, 333, 64 * 1024, 1] * 40
    calls = [("cuMemcpyHtoD_v2", [("int", i), ("in", bytes([i]) * n), ("int", n)]) for i, n in enumerate(sizes)]
    assert {result for result, _ in program.calls(calls)} == {0}
    program.call("cuCtxSynchronize")
    records = agent.session.records[:-1]
    assert [(r.words[0], bytes(r.blobs[1] or b"")) for r in records] == [(i, bytes([i]) * n) for i, n in enumerate(sizes)]
    assert agent.session.ring.tail > lay.RING_BYTES


def test_a_full_ring_stops_the_program_until_there_is_room(agent: FakeAgent, program: Program) -> None:
    program.call("cuCtxSynchronize")
    session = agent.session
    session.stalled.set()
    fits = (lay.RING_BYTES - (session.ring.head - session.ring.tail)) // SMALL
    program.send(POSTING, count=fits + 20_000, tag=TAG)
    assert wait_until(lambda: bool(session.ring.bytes[lay.SPACE_WAITERS]))
    assert session.ring.head - session.ring.tail <= lay.RING_BYTES
    session.stalled.clear()
    session.ring.ring_doorbell()
    assert program.receive() == 0
    program.call("cuCtxSynchronize")
    assert [r.words[0] for r in session.records[1:-1]] == [TAG | i for i in range(fits + 20_000)]
    assert not session.ring.bytes[lay.SPACE_WAITERS]


def test_a_program_that_waits_for_room_sees_the_end(agent: FakeAgent, program: Program) -> None:
    program.call("cuCtxSynchronize")
    session = agent.session
    session.stalled.set()
    program.send(POSTING, count=lay.RING_BYTES // SMALL + 10, tag=TAG)
    assert wait_until(lambda: bool(session.ring.bytes[lay.SPACE_WAITERS]))
    session.ring.set_closed(709)
    assert program.receive() & 709 == 709


def test_threads_that_wait_for_room_see_a_dead_agent_together(agent: FakeAgent, program: Program) -> None:
    program.call("cuCtxSynchronize")
    session = agent.session
    session.stalled.set()
    source = """
import threading, time
from tests.helpers import native_loop
result = []
def one(tag):
    result.append(native_loop.post(cuda.cuMemsetD8_v2, count, tag))
threads = [threading.Thread(target=one, args=((i + 1) << 32,)) for i in range(6)]
for t in threads: t.start()
for t in threads: t.join()
"""
    program.send(source, count=lay.RING_BYTES // SMALL)
    assert wait_until(lambda: bool(session.ring.bytes[lay.SPACE_WAITERS]))
    start = time.monotonic()
    agent.hang_up()
    assert all(r & CUDA_ERROR_SYSTEM_NOT_READY == CUDA_ERROR_SYSTEM_NOT_READY for r in program.receive())
    assert time.monotonic() - start < 4


THREADS = """
import threading
from tests.helpers import native_loop
failures = []
def work(number):
    value = ctypes.c_uint64()
    tag = number << 40
    for turn in range(rounds):
        if native_loop.post(cuda.cuMemsetD8_v2, posts, tag | turn * posts):
            failures.append((number, turn, "post"))
        ctypes.memset(ctypes.addressof(value), 0, 8)
        if cuda.cuMemcpyDtoH_v2(ctypes.byref(value), ctypes.c_uint64(tag | turn), ctypes.c_uint64(8)) or value.value != tag | turn:
            failures.append((number, turn, value.value))
        if cuda.cuModuleLoadData(ctypes.c_uint64(tag | turn), ctypes.c_uint64(0)) != turn % 7:
            failures.append((number, turn, "asked"))
threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(count)]
for t in threads: t.start()
for t in threads: t.join()
result = failures
"""


def test_ten_threads_post_wait_and_ask(agent: FakeAgent, program: Program) -> None:
    def on_record(session: FakeSession, record: Record) -> None:
        outputs = [record.words[1].to_bytes(8, "little")] if record.row.name == "cuMemcpyDtoH_v2" else []
        session.reply(record, 0, outputs)

    def on_request(session: FakeSession, request: Request) -> list[bytes]:
        return [command_return((request.args[0] & 0xFF_FFFF_FFFF) % 7 if request.api_id not in (0, lay.API_CONTINUE) else 0)]

    agent.on_record, agent.on_request = on_record, on_request
    rounds, posts, count = 30, 100, 10
    assert program.run(THREADS, rounds=rounds, posts=posts, count=count) == []
    session = agent.session
    posted, waited = defaultdict(list), defaultdict(list)
    slots = defaultdict(set)
    for r in session.records:
        tag = r.words[0] if r.row.name == "cuMemsetD8_v2" else r.words[1]
        slots[tag >> 40].add(r.thread)
        (posted if r.row.name == "cuMemsetD8_v2" else waited)[tag >> 40].append(tag & 0xFF_FFFF_FFFF)
    for number in range(1, count + 1):
        # `post` or-s its counter into the tag: the numbers of one loop of 100 starting at turn * 100.
        assert posted[number] == [turn * posts | i for turn in range(rounds) for i in range(posts)]
        assert waited[number] == list(range(rounds))
        assert len(slots[number]) == 1
    assert len(set().union(*slots.values())) == count
    assert session.ring.counts() == (rounds * posts * count, rounds * count, rounds * count)


ONE_AFTER_THE_OTHER = """
import threading
result = []
def one():
    result.append((threading.get_native_id(), cuda.cuCtxSynchronize()))
for i in range(count):
    t = threading.Thread(target=one); t.start(); t.join()
"""


def test_more_threads_than_slots_one_after_the_other(agent: FakeAgent, program: Program) -> None:
    program.call("cuCtxSynchronize")
    results = program.run(ONE_AFTER_THE_OTHER, count=MAX_THREADS + 40)
    assert {result for _, result in results} == {0}
    greetings = [r for r in agent.session.requests if r.api_id == lay.API_THREAD_ATTACH]
    assert len(greetings) == MAX_THREADS + 41
    assert {r.slot for r in greetings} == set(range(MAX_THREADS))
    assert [r.thread for r in agent.session.records] == [g.slot for g in greetings]
    assert sum(g.slot == 0 for g in greetings) == 1  # the main thread's, which lives


AT_ONCE = """
import threading
threading.stack_size(65536)
barrier = threading.Barrier(count + 1)
go = threading.Event()
result = []
def one():
    result.append(cuda.cuCtxSynchronize())
    barrier.wait()
    go.wait()
threads = [threading.Thread(target=one) for i in range(count)]
for t in threads: t.start()
barrier.wait()
last = []
t = threading.Thread(target=lambda: last.append(cuda.cuCtxSynchronize())); t.start(); t.join()
go.set()
for t in threads: t.join()
later = cuda.cuCtxSynchronize()
t = threading.Thread(target=lambda: last.append(cuda.cuCtxSynchronize())); t.start(); t.join()
result = (set(result), last, later)
"""


def test_more_threads_than_slots_at_once(agent: FakeAgent, program: Program) -> None:
    assert program.run("result = cuda.cuCtxSynchronize()") == 0
    assert program.run(AT_ONCE, count=MAX_THREADS - 1) == ({0}, [2, 0], 0)


def test_an_answer_that_comes_late(agent: FakeAgent, program: Program) -> None:
    waiting: list[object] = []
    came = threading.Event()

    def keep(session: FakeSession, record: object) -> None:
        waiting.append(record)
        came.set()

    agent.on_record = keep
    program.send("result = cuda.cuCtxSynchronize()")
    assert came.wait(10)
    slept = lay.SLOTS + lay.SLOT_WAITING
    assert wait_until(lambda: agent.session.ring.bytes[slept] == 1)
    agent.session.reply(waiting[0], 5)  # type: ignore[arg-type]
    assert program.receive() == 5
    assert agent.session.ring.bytes[slept] == 0
