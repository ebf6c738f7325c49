"""The threads that carry out blocks: daemon threads made once, which never keep the interpreter from ending.

The caller of a launch works too and is enough alone: a helper that does not come in time (at the interpreter's end none does) is
struck off the task. A helper signs on in Python and signs off in machine code, so the caller's wait needs no Python of the
helper's.
"""

import ctypes
import os
import queue
import threading
from collections.abc import Callable


def cores() -> int:
    """CPU cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Task:
    """One launch that helpers may join. `active` counts those at work; the native code subtracts itself when it ends."""

    def __init__(self, work: Callable[[int], object]) -> None:
        self.active = ctypes.c_int32(0)
        self._work = work
        self._lock = threading.Lock()
        self._open = True

    def join(self, number: int) -> None:
        """A helper's share."""
        with self._lock:
            if not self._open:
                return
            self.active.value += 1
        self._work(number)

    def close(self) -> None:
        """Nobody may join any more."""
        with self._lock:
            self._open = False


class Team:
    """Helpers for as many launches as there are at a time."""

    def __init__(self, size: int) -> None:
        self._queue: queue.SimpleQueue[tuple[Task, int]] = queue.SimpleQueue()
        self._size = size
        self._started = False
        self._lock = threading.Lock()

    def offer(self, task: Task, number: int) -> None:
        """Asks for one helper, as worker `number` of the task."""
        with self._lock:
            if not self._started:
                self._started = True
                for n in range(self._size):
                    threading.Thread(target=self._help, name=f"lanGPU-emulator-kernel-{n}", daemon=True).start()
        self._queue.put((task, number))

    def _help(self) -> None:
        while True:
            task, number = self._queue.get()
            task.join(number)
            del task


_team: Team | None = None


def team() -> Team:
    """This process's helpers; a forked child gets its own."""
    global _team
    if _team is None:
        _team = Team(max(0, cores() - 1))
    return _team


def _forget() -> None:
    global _team
    _team = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
