"""Threads that wait in the driver, so that the issuing thread never does."""

import logging
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue

from lanGPU.constants import MAX_THREADS
from lanGPU.errors import RemoteProtocolError

_log = logging.getLogger(__name__)


class _Waiter(threading.Thread):
    def __init__(self, idle: "deque[_Waiter]", number: int) -> None:
        super().__init__(name=f"waiter-{number}", daemon=True)
        self._idle = idle
        self.jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    def run(self) -> None:
        while (job := self.jobs.get()) is not None:
            try:
                job()
            except Exception:
                # A job answers its caller itself; what escapes is a bug, and the thread must live for the next one.
                _log.exception("a waiting call failed")
            self._idle.append(self)


class Waiters:
    """As many threads as calls wait at once; kept for the next call. `submit` is for the issuing thread only."""

    def __init__(self) -> None:
        self._idle: deque[_Waiter] = deque()
        self._all: list[_Waiter] = []

    def submit(self, job: Callable[[], None]) -> None:
        """Runs `job` soon, on a thread that may block.

        Raises:
            RemoteProtocolError: more calls wait than a program can have threads.
        """
        try:
            waiter = self._idle.pop()
        except IndexError:
            if len(self._all) >= MAX_THREADS:
                raise RemoteProtocolError(f"more than {MAX_THREADS} calls wait at once") from None
            waiter = _Waiter(self._idle, len(self._all))
            self._all.append(waiter)
            waiter.start()
        waiter.jobs.put(job)

    def close(self) -> None:
        """Ends the threads that are idle or become so; does not wait for those in the driver."""
        for waiter in self._all:
            waiter.jobs.put(None)
