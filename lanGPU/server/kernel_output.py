"""What the driver prints in this process: kernels' printf on standard output, their assertions on standard error.

Both descriptors are turned to memory files. A pipe would not do: the driver would wait inside a call for somebody to empty it.
"""

import ctypes
import io
import logging
import os
import sys
from typing import Final

from lanGPU.constants import MAX_KERNEL_OUTPUT_BYTES

STDOUT: Final = 1
STDERR: Final = 2
_IONBF: Final = 2  # stdio.h
_PUNCH_HOLE: Final = 0x3  # linux/falloc.h: FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_RELEASE_BYTES: Final = 1 << 20
"""So much is read before its memory is given back."""


def supported() -> bool:
    """Whether this system has what it takes (Linux)."""
    return hasattr(os, "memfd_create")


class _Target:
    """One descriptor's memory file; writers append, `take` reads behind what was read before. Nothing is truncated: that would race."""

    def __init__(self, descriptor: int) -> None:
        import fcntl

        self.descriptor = descriptor
        self._before = os.dup(descriptor)
        self.file = os.memfd_create(f"langpu-output-{descriptor}", os.MFD_CLOEXEC)
        fcntl.fcntl(self.file, fcntl.F_SETFL, os.O_APPEND)
        os.dup2(self.file, descriptor)
        self._taken = 0
        self._released = 0

    def take(self) -> bytes:
        """At most MAX_KERNEL_OUTPUT_BYTES of what was written and not yet taken."""
        size = os.lseek(self.file, 0, os.SEEK_END)  # a third of fstat's time; where writers go on is the end anyway
        if size == self._taken:
            return b""
        data = os.pread(self.file, min(size - self._taken, MAX_KERNEL_OUTPUT_BYTES), self._taken)
        self._taken += len(data)
        if self._taken - self._released >= _RELEASE_BYTES:
            ctypes.CDLL(None).fallocate(
                self.file, _PUNCH_HOLE, ctypes.c_int64(self._released), ctypes.c_int64(self._taken - self._released)
            )
            self._released = self._taken
        return data

    def close(self) -> None:
        """Turns the descriptor back."""
        os.dup2(self._before, self.descriptor)
        os.close(self._before)


class OutputCapture:
    """From `start` on what is printed in this process is kept for the client; what Python itself says still goes to the server's log."""

    def __init__(self) -> None:
        self._targets = [_Target(descriptor) for descriptor in (STDOUT, STDERR)]

    @classmethod
    def start(cls) -> "OutputCapture":
        """Turns the descriptors around; once a process. Afterwards `sys.stderr` and the log's handlers have a descriptor of their own."""
        log = io.TextIOWrapper(io.FileIO(os.dup(STDERR), "w"), write_through=True, errors="backslashreplace")
        for handler in logging.getLogger().handlers:
            if isinstance(handler, logging.StreamHandler) and handler.stream is sys.stderr:
                handler.setStream(log)
        sys.stderr = log
        capture = cls()
        library = ctypes.CDLL(None)
        # The C library must not keep what the driver prints: it is to be there when the driver's call returns.
        library.setvbuf(ctypes.c_void_p.in_dll(library, "stdout"), None, _IONBF, ctypes.c_size_t(0))
        return capture

    def close(self) -> None:
        """The client is gone: what it did not get, and what is still printed while the process ends, belongs into the server's log."""
        for target in self._targets:
            target.close()
        for _, data in self.take():
            os.write(STDERR, data)

    def take(self) -> list[tuple[int, bytes]]:
        """(descriptor, bytes) of what was printed since, in pieces of at most MAX_KERNEL_OUTPUT_BYTES."""
        out = []
        for target in self._targets:
            while data := target.take():
                out.append((target.descriptor, data))
        return out
