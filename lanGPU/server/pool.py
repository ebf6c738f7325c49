"""Worker processes as the daemon sees them, and the pool of one that waits warm."""

import asyncio
import contextlib
import logging
import sys
import time
from collections.abc import Mapping
from typing import Any, Final

from lanGPU import errors
from lanGPU.errors import DriverError, LanGPUError, TransportTimeoutError
from lanGPU.server.control import ControlPair, MessageReader, pack_message, session_message

_log = logging.getLogger(__name__)

START_TIMEOUT_S: Final = 60.0
"""Imports, loading the driver and generating machine code on a slow, busy machine."""
STOP_TIMEOUT_S: Final = 2.0
"""A worker that was told to stop gets this long before SIGKILL."""
_RESTART_DELAY_S: Final = 1.0
"""Between attempts to warm a worker that dies at its start, so that a broken driver does not become a fork loop."""


def _error_class(name: str) -> type[LanGPUError]:
    """The error that a worker named, where it is made from a message."""
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, LanGPUError) and not issubclass(kind, DriverError):
        return kind
    return LanGPUError


class WorkerProcess:
    """One worker: started by `start`, gone when `exited` is set."""

    def __init__(self, process: asyncio.subprocess.Process, pair: ControlPair) -> None:
        self._process = process
        self._pair = pair
        self._first: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._stats: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._stats_id = 0
        self.end_reason = ""
        self.exited = asyncio.Event()
        self.returncode: int | None = None
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._wait())]

    @classmethod
    async def start(cls, arguments: list[str]) -> "WorkerProcess":
        """Starts ``python -m lanGPU.server.worker`` with `arguments`; OSError if the system refuses."""
        pair = ControlPair()
        options, keywords = pair.child_options()
        stdin = asyncio.subprocess.PIPE if sys.platform == "win32" else asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                # -P: a file in the current directory must not stand in for one of the worker's modules
                *(sys.executable, "-P", "-m", "lanGPU.server.worker", *options, *arguments),
                stdin=stdin,
                stdout=sys.stderr.fileno(),
                **keywords,
            )
        except OSError:
            pair.close()
            raise
        data = pair.hand_over(process.pid)
        if process.stdin is not None:
            process.stdin.write(data)
        return cls(process, pair)

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        reader = MessageReader()
        while True:
            try:
                data = await loop.sock_recv(self._pair.daemon, 65536)
            except OSError:
                return
            if not data:
                return
            for message in reader.feed(data):
                self._on_message(message)

    def _on_message(self, message: dict[str, Any]) -> None:
        kind = message["type"]
        if kind == "stats":
            waiter = self._stats.pop(message["id"], None)
            if waiter is not None and not waiter.done():
                waiter.set_result(message)
        elif kind == "ended":
            self.end_reason = message["reason"]
        elif not self._first.done():
            self._first.set_result(message)

    async def _wait(self) -> None:
        self.returncode = await self._process.wait()
        # What it said before it ended comes first.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._tasks[0]), 1)
        self._tasks[0].cancel()
        if not self._first.done():
            self._first.set_result({"type": "died"})
        for waiter in self._stats.values():
            waiter.cancel()
        self._pair.daemon.close()
        self.exited.set()

    async def first_message(self) -> dict[str, Any]:
        """What the worker said when it was ready.

        Raises:
            LanGPUError: it failed, with the worker's own error; or it died or did not answer.
        """
        try:
            message = await asyncio.wait_for(asyncio.shield(self._first), START_TIMEOUT_S)
        except TimeoutError as exc:
            self.kill()
            raise TransportTimeoutError(f"the worker process did not start within {START_TIMEOUT_S:.0f} s") from exc
        if message["type"] == "failed":
            raise _error_class(str(message["error"]))(message["message"], hint=message["hint"])
        if message["type"] == "died":
            raise LanGPUError(f"the worker process ended at its start (status {self.returncode})", hint="its own words are above")
        return message

    def give(self, sock: Any, message: Mapping[str, Any]) -> None:
        """Hands a session's socket over; OSError if the worker is gone."""
        data, fds = session_message(sock, self.pid, message)
        if fds:
            import socket

            sent = socket.send_fds(self._pair.daemon, [data], fds)
        else:
            sent = self._pair.daemon.send(data)
        if sent != len(data):  # a message of a few KiB into an empty socket buffer
            raise BlockingIOError("the control channel is full")

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a small message; a worker that is gone is no error."""
        with contextlib.suppress(OSError):
            self._pair.daemon.send(pack_message(message))

    async def stats(self, timeout_s: float) -> dict[str, Any]:
        """The session's counters; empty if the worker does not answer in time."""
        self._stats_id += 1
        waiter: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._stats[self._stats_id] = waiter
        self.send({"type": "stats", "id": self._stats_id})
        try:
            return await asyncio.wait_for(waiter, timeout_s)
        except (TimeoutError, asyncio.CancelledError):
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise
            return {}
        finally:
            self._stats.pop(self._stats_id, None)

    def kill(self) -> None:
        """SIGKILL."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self, reason: str) -> None:
        """Ends the worker: by word, then by force; returns when it is gone."""
        self.send({"type": "stop", "reason": reason})
        try:
            await asyncio.wait_for(self.exited.wait(), STOP_TIMEOUT_S)
        except TimeoutError:
            self.kill()
            await self.exited.wait()


class Pool:
    """Keeps one worker warm: imports done, driver library loaded, machine code ready."""

    def __init__(self, arguments: list[str]) -> None:
        self._arguments = arguments
        self._warming: asyncio.Task[WorkerProcess] | None = None
        self._watchers: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begins to warm a worker."""
        self._warming = asyncio.create_task(self._warm())

    async def _warm(self) -> WorkerProcess:
        while True:
            started = time.monotonic()
            worker = None
            try:
                worker = await WorkerProcess.start(self._arguments)
                await worker.first_message()
            except (LanGPUError, OSError) as exc:
                _log.error("no worker process: %s", exc)
                await asyncio.sleep(_RESTART_DELAY_S)
                continue
            except asyncio.CancelledError:
                if worker is not None:
                    worker.kill()
                    await worker.exited.wait()
                raise
            _log.debug("worker %d is warm after %.2f s", worker.pid, time.monotonic() - started)
            watcher = asyncio.create_task(self._replace_when_dead(worker, self._warming))
            self._watchers.add(watcher)
            watcher.add_done_callback(self._watchers.discard)
            return worker

    async def _replace_when_dead(self, worker: WorkerProcess, task: "asyncio.Task[WorkerProcess] | None") -> None:
        await worker.exited.wait()
        if self._warming is task:
            _log.warning("the waiting worker %d died (status %s); starting another", worker.pid, worker.returncode)
            self.start()

    async def take(self, timeout_s: float) -> WorkerProcess:
        """A warm worker, now the caller's; TimeoutError if none gets ready."""
        async with asyncio.timeout(timeout_s):
            while True:
                task = self._warming
                if task is None:
                    raise TimeoutError
                worker = await asyncio.shield(task)
                if self._warming is task:
                    self.start()
                    if not worker.exited.is_set():
                        return worker

    async def close(self) -> None:
        """Ends the warm worker and warms no other."""
        task, self._warming = self._warming, None
        if task is None:
            return
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            worker = await task
            worker.kill()
            await worker.exited.wait()
