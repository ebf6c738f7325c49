"""Writes what kernels printed to the program's own standard output and error, wherever the program has turned them."""

import contextlib
import ctypes
import errno
import logging
import os
import select
from collections.abc import Callable
from typing import Final

_log = logging.getLogger(__name__)

_PIDFD_GETFD: Final = 438  # asm-generic/unistd.h
_PIECE_BYTES: Final = 4096
"""A pipe that poll calls writable takes this much without blocking (PIPE_BUF)."""
_POLL_MS: Final = 200


def borrow(pid: int, descriptor: int) -> int:
    """A descriptor of ours for the open file that is `descriptor` in process `pid`; the caller closes it.

    Its position and flags are shared with the program's, as with dup. Where the system does not allow that, it is the agent's own, which is
    what the program started with.

    Raises:
        OSError: the program has closed it, or neither is there.
    """
    closed = False
    if pid != os.getpid():
        with contextlib.suppress(OSError):
            process = os.pidfd_open(pid)
            try:
                found = ctypes.CDLL(None, use_errno=True).syscall(_PIDFD_GETFD, process, descriptor, 0)
            finally:
                os.close(process)
            if found >= 0:
                return int(found)
            code = ctypes.get_errno()
            closed = code == errno.EBADF
            _log.debug("no access to descriptor %d of process %d: %s", descriptor, pid, os.strerror(code))
    if closed:
        raise OSError(errno.EBADF, "the program closed it")
    return os.dup(descriptor)


def write_for(pid: int, descriptor: int, data: bytes, given_up: Callable[[], bool]) -> None:
    """Writes all of `data` as the program would, waiting while its reader is slow; `given_up` is asked meanwhile.

    What the program could not write either (a closed descriptor, a pipe without reader) is lost.
    """
    try:
        target = borrow(pid, descriptor)
    except OSError as exc:
        _log.debug("kernel output is lost: %s", exc)
        return
    try:
        poll = select.poll()
        poll.register(target, select.POLLOUT)
        rest = memoryview(data)
        while len(rest) and not given_up():
            if not poll.poll(_POLL_MS):
                continue
            with contextlib.suppress(BlockingIOError):
                rest = rest[os.write(target, rest[:_PIECE_BYTES]) :]
    except OSError as exc:
        _log.debug("kernel output is lost: %s", exc)
    finally:
        os.close(target)
