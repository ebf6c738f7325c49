"""Fails a test that leaves a thread, a child process or a listening socket behind. Fixtures come from tests/helpers, not from here."""

import os
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import pytest

GRACE_S: Final = 2.0
"""What is on its way out when a test ends (a joined pool, a child that was told to stop) has this long to be gone."""
PROCESS_LIFETIME_THREADS: Final = ("lanGPU-emulator", "langpu-kernel", "asyncio_")
"""Names of threads that rightly live as long as the process: of a loaded driver, its kernels, asyncio's default executor."""
PROCESS_LIFETIME_CHILDREN: Final = (b"multiprocessing.resource_tracker", b"multiprocessing.forkserver")


# A shell's background jobs ignore Ctrl-C, and what they start inherits that: the programs under test would, too.
signal.signal(signal.SIGINT, signal.default_int_handler)


def _children() -> set[int]:
    """Process ids of this process's children, from Linux's proc file system."""
    found: set[int] = set()
    for task in Path("/proc/self/task").iterdir():
        try:
            found.update(int(pid) for pid in (task / "children").read_text().split())
        except OSError:
            continue  # the thread ended meanwhile
    return found


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").strip() or b"(ended, not waited for)"
    except OSError:
        return b"(gone)"


def _listeners() -> set[str]:
    """Addresses of this process's listening sockets."""
    found: set[str] = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            with socket.socket(fileno=os.dup(int(name))) as probe:
                if probe.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
                    found.add(f"{probe.getsockname()} (inode {os.fstat(probe.fileno()).st_ino})")
        except OSError:
            continue  # closed since it was listed
    return found


@dataclass
class Leftovers:
    """What a process has now, and what of it was not there before."""

    threads: set[threading.Thread] = field(default_factory=lambda: set(threading.enumerate()))
    children: set[int] = field(default_factory=_children)
    listeners: set[str] = field(default_factory=_listeners)

    def since(self, before: "Leftovers") -> list[str]:
        """One line for each thing that is new and not allowed to stay."""
        threads = [t.name for t in self.threads - before.threads if t.is_alive() and not t.name.startswith(PROCESS_LIFETIME_THREADS)]
        children = {pid: _command(pid) for pid in self.children - before.children}
        return [
            *(f"thread {name}" for name in threads),
            *(
                f"child process {pid}: {command.decode(errors='replace')}"
                for pid, command in children.items()
                if command != b"(gone)" and not any(part in command for part in PROCESS_LIFETIME_CHILDREN)
            ),
            *(f"listening socket {address}" for address in self.listeners - before.listeners),
        ]


@pytest.fixture(autouse=True)
def _nothing_left_behind() -> Iterator[None]:
    before = Leftovers()
    yield
    deadline_s = time.monotonic() + GRACE_S
    while left := Leftovers().since(before):
        if time.monotonic() > deadline_s:
            for pid in _children() - before.children:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            pytest.fail("the test left behind: " + "; ".join(left))
        time.sleep(0.01)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What was skipped and why, a line a reason: one missing device skips a hundred tests."""
    reasons: Counter[str] = Counter()
    for report in terminalreporter.stats.get("skipped", []):
        words = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        reasons[words.removeprefix("Skipped: ")] += 1
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count}: {reason}")
