"""The device's queue."""

import threading
from collections.abc import Callable, Iterator

import pytest

from lanGPU.emulator.queue import MAX_PENDING, DeviceQueue
from lanGPU.emulator.results import ILLEGAL_ADDRESS, LAUNCH_FAILED, LAUNCH_TIMEOUT, CuError


class Context:
    """Keeps its first error."""

    def __init__(self) -> None:
        self.error = 0

    def fail(self, result: int, detail: str) -> None:
        self.error = self.error or result


class Call:
    """An operation that calls a function."""

    label = "call"

    def __init__(self, function: Callable[[], object]) -> None:
        self.run = function


@pytest.fixture
def queue() -> Iterator[DeviceQueue]:
    made = DeviceQueue()
    yield made
    if not made.hung:
        made.finish()


@pytest.fixture
def gate(queue: DeviceQueue) -> Iterator[threading.Event]:
    """Holds the device until it is set."""
    event = threading.Event()
    yield event
    event.set()


def test_operations_run_in_the_order_of_submission(queue: DeviceQueue) -> None:
    seen: list[int] = []
    contexts = [Context(), Context()]
    for i in range(200):
        operation = Call(lambda i=i: seen.append(i))
        if i % 3:
            queue.submit(contexts[i % 2], operation)
        else:
            queue.run(contexts[i % 2], operation)
    queue.drain()
    assert seen == list(range(200))


def test_an_idle_queue_runs_in_the_callers_thread(queue: DeviceQueue) -> None:
    threads: list[int] = []
    number = queue.run(Context(), Call(lambda: threads.append(threading.get_ident())))
    assert threads == [threading.get_ident()]
    assert queue.done(number)


def test_a_busy_queue_does_not(queue: DeviceQueue, gate: threading.Event) -> None:
    seen: list[str] = []
    queue.submit(Context(), Call(lambda: (gate.wait(10), seen.append("first"))))
    number = queue.run(Context(), Call(lambda: seen.append("second")))
    assert not queue.done(number)
    gate.set()
    queue.wait(number)
    assert seen == ["first", "second"]


def test_submitters_from_many_threads(queue: DeviceQueue) -> None:
    total = [0]
    context = Context()

    def bump() -> None:
        total[0] += 1

    def work() -> None:
        for i in range(300):
            number = (queue.run if i % 2 else queue.submit)(context, Call(bump))
        queue.wait(number)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert total == [1200]
    assert queue.completed == queue.submitted == 1200


def test_an_error_stops_its_context_only(queue: DeviceQueue) -> None:
    broken, healthy = Context(), Context()
    seen: list[str] = []

    def fail() -> None:
        raise CuError(ILLEGAL_ADDRESS)

    queue.submit(broken, Call(fail))
    queue.submit(broken, Call(lambda: seen.append("broken")))
    queue.submit(healthy, Call(lambda: seen.append("healthy")))
    queue.drain()
    assert (broken.error, healthy.error, seen) == (ILLEGAL_ADDRESS, 0, ["healthy"])


def test_a_bug_in_an_operation_is_a_failed_launch(queue: DeviceQueue) -> None:
    context = Context()
    queue.run(context, Call(lambda: 1 // 0))
    assert context.error == LAUNCH_FAILED


def test_the_queue_is_bounded(queue: DeviceQueue, gate: threading.Event) -> None:
    context = Context()
    queue.submit(context, Call(lambda: gate.wait(10)))
    threading.Timer(0.05, gate.set).start()
    for _ in range(MAX_PENDING + 10):
        queue.submit(context, Call(lambda: None))
    assert gate.is_set()  # the last ones had to wait for it
    queue.drain()


def test_giving_up_ends_all_waits(queue: DeviceQueue, gate: threading.Event) -> None:
    number = queue.submit(Context(), Call(lambda: gate.wait(10)))
    results: list[int] = []

    def wait() -> None:
        try:
            queue.wait(number)
        except CuError as exc:
            results.append(exc.result)

    thread = threading.Thread(target=wait)
    thread.start()
    queue.give_up()
    thread.join()
    with pytest.raises(CuError):
        queue.drain()
    assert results == [LAUNCH_TIMEOUT]
    gate.set()
    queue.hung = False
    queue.drain()


def test_after_the_end_operations_run_at_once(queue: DeviceQueue) -> None:
    seen: list[int] = []
    queue.submit(Context(), Call(lambda: seen.append(1)))
    queue.finish()
    queue.submit(Context(), Call(lambda: seen.append(2)))
    assert seen == [1, 2]
