"""What kernels printed and nobody has seen yet: CUDA's circular output buffer, and how it gets to the process's standard output.

Source: CUDA C++ Programming Guide, "Formatted Output", "Limitations": the buffer has a fixed size; when it is full the oldest output is
overwritten; it is printed by the calls that synchronise.
"""

import ctypes
import os
from collections import deque
from threading import Lock
from typing import Final

RECORD_BYTES: Final = 16
"""What a record takes in the buffer besides arguments and strings: where its format is, and its own size."""
STDOUT: Final = 1
STDERR: Final = 2


class KernelOutput:
    """One context's buffer. Thread-safe: kernels write on all cores while a thread of the program prints."""

    def __init__(self, capacity_bytes: int) -> None:
        self.capacity_bytes = capacity_bytes
        self._records: deque[tuple[int, bytes, int]] = deque()
        self._used = 0
        self._lock = Lock()

    def add(self, descriptor: int, text: bytes, stored_bytes: int) -> bool:
        """Keeps `text` for a file descriptor; False, and nothing is kept, if it alone is larger than the buffer."""
        size = stored_bytes + RECORD_BYTES
        if size > self.capacity_bytes:
            return False
        with self._lock:
            while self._used + size > self.capacity_bytes:
                self._used -= self._records.popleft()[2]
            self._records.append((descriptor, text, size))
            self._used += size
        return True

    def take(self) -> list[tuple[int, bytes]]:
        """Empties the buffer: (file descriptor, text) in the order of printing, neighbours for one descriptor joined."""
        with self._lock:
            records, self._records, self._used = self._records, deque(), 0
        out: list[tuple[int, bytearray]] = []
        for descriptor, text, _ in records:
            if not out or out[-1][0] != descriptor:
                out.append((descriptor, bytearray()))
            out[-1][1].extend(text)
        return [(descriptor, bytes(text)) for descriptor, text in out]

    def print(self) -> None:
        """Prints and empties the buffer."""
        if self._records:
            for descriptor, text in self.take():
                write(descriptor, text)


def write(descriptor: int, text: bytes) -> None:
    """Prints through the C library, so that what the program printed before comes before it.

    What cannot be written is lost, as it is with printf.
    """
    try:
        library = ctypes.CDLL(None)
        stream = ctypes.c_void_p.in_dll(library, "stdout" if descriptor == STDOUT else "stderr")
    except ValueError:  # a C library that names them otherwise
        try:
            os.write(descriptor, text)
        except OSError:
            return
        return
    library.fwrite(text, ctypes.c_size_t(1), ctypes.c_size_t(len(text)), stream)
    library.fflush(stream)
