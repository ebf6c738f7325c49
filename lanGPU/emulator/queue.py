"""The device's queue: operations of all streams, carried out one after the other in the order of submission.

That order is one that CUDA's streams and events allow. One thread carries operations out; kernels use all cores by themselves. An
operation that its caller waits for anyway runs in the caller's thread when nothing is queued: no thread switch for a small copy.
"""

import logging
from queue import SimpleQueue
from threading import Condition, Lock, Thread
from typing import Final, Protocol

from lanGPU.emulator.results import LAUNCH_FAILED, LAUNCH_TIMEOUT, CuError

logger = logging.getLogger(__name__)

MAX_PENDING: Final = 4096
"""Operations that may be queued; a submitter waits beyond. NVIDIA's drivers stop near 1,024 launches."""

FINISH_S: Final = 1.0


class Program:
    """What the device knows of the program that it calls."""

    called = False
    """A function of the program is running; one device thread calls them, one at a time."""


class Failing(Protocol):
    """A context as the queue sees it: it keeps the first sticky error."""

    error: int

    def fail(self, result: int, detail: str) -> None: ...


class Operation(Protocol):
    """Something for the device to do. `run` is called once a submission, on the device thread or inline."""

    @property
    def label(self) -> str: ...

    def run(self) -> None:
        """Does it; CuError becomes the context's sticky error."""


class DeviceQueue:
    """Thread-safe. Sequence numbers count operations from 1; `completed` is the last one that is done."""

    def __init__(self) -> None:
        self.submitted = 0
        self.completed = 0
        self.hung = False
        """A wait for the running operation was interrupted: it may never end, and nothing waits for it again."""
        self.running = ""
        self._items: SimpleQueue[tuple[int, Failing, Operation] | None] = SimpleQueue()
        self._submit_lock = Lock()
        self._execute_lock = Lock()
        self._beside_lock = Lock()
        self._changed = Condition()
        self._waiting = 0
        self._thread: Thread | None = None
        self._finished = False

    def submit(self, context: Failing, operation: Operation) -> int:
        """Queues `operation` and returns its number."""
        if self.submitted - self.completed >= MAX_PENDING:
            self.wait(self.submitted - MAX_PENDING + 1)
        with self._submit_lock:
            if self._finished:
                # The interpreter ends: no other thread will run again.
                self.submitted = number = self.submitted + 1
                self._execute(context, operation)
                self._finish(number)
                return number
            if self._thread is None:
                self._thread = Thread(target=self._work, name="lanGPU-emulator-device", daemon=True)
                self._thread.start()
            self.submitted = number = self.submitted + 1
            self._items.put((number, context, operation))
        return number

    def run(self, context: Failing, operation: Operation) -> int:
        """Carries `operation` out before returning where nothing is queued, else queues it; returns its number."""
        if self.completed == self.submitted and self._submit_lock.acquire(blocking=False):
            inline = False
            try:
                inline = self.completed == self.submitted and self._execute_lock.acquire(blocking=False)
                if inline:
                    self.submitted = number = self.submitted + 1
            finally:
                self._submit_lock.release()
            if inline:
                try:
                    self._execute(context, operation)
                finally:
                    self._finish(number)
                    self._execute_lock.release()
                return number
        return self.submit(context, operation)

    def run_beside(self, context: Failing, operation: Operation) -> None:
        """Carries `operation` out at once, beside the running one, which must not mind."""
        with self._beside_lock:
            running = self.running
            self._execute(context, operation)
            self.running = running

    def done(self, number: int) -> bool:
        """Whether operation `number` and all before it were carried out."""
        return self.completed >= number

    def wait(self, number: int, timeout_s: float | None = None) -> None:
        """Returns when `number` is done, or after `timeout_s`.

        Raises:
            CuError: LAUNCH_TIMEOUT once a wait was interrupted.
        """
        if self.completed >= number:
            return
        with self._changed:
            self._waiting += 1
            try:
                while self.completed < number:
                    if self.hung:
                        raise CuError(LAUNCH_TIMEOUT)
                    if not self._changed.wait(timeout_s):
                        return
            finally:
                self._waiting -= 1

    def drain(self) -> None:
        """Waits for everything submitted so far."""
        self.wait(self.submitted)

    def give_up(self) -> None:
        """Ends all waits, now and later, because the running operation may never end."""
        with self._changed:
            self.hung = True
            self._changed.notify_all()

    def finish(self) -> None:
        """Ends the device thread after what is queued; what is submitted later runs in its submitter's thread.

        A kernel that runs longer than FINISH_S counts as one that never ends, as nobody waits for it any more.
        """
        if self.hung:
            return
        self.wait(self.submitted, FINISH_S)
        if not self.done(self.submitted):
            self.give_up()
            return
        with self._submit_lock:
            self._finished = True
            thread, self._thread = self._thread, None
        if thread is not None:
            self._items.put(None)
            thread.join()

    def _work(self) -> None:
        while (item := self._items.get()) is not None:
            number, context, operation = item
            with self._execute_lock:
                self._execute(context, operation)
                self._finish(number)
            del item, operation, context  # what an operation refers to does not outlive it here

    def _execute(self, context: Failing, operation: Operation) -> None:
        if context.error or self.hung:
            return
        self.running = operation.label
        try:
            operation.run()
        except CuError as exc:
            context.fail(exc.result, f"{operation.label}: {exc}")
        except Exception:
            logger.exception("the emulated device failed in %s", operation.label)
            context.fail(LAUNCH_FAILED, f"{operation.label}: internal error")
        finally:
            self.running = ""

    def _finish(self, number: int) -> None:
        self.completed = number
        if self._waiting:
            with self._changed:
                self._changed.notify_all()
