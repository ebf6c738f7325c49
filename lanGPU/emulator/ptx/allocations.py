"""The allocation map: which addresses kernels may touch, as a native table that machine code searches.

Table, u64 words: [0] number of intervals, then pairs (start, end) in ascending order. A changed map is a new table, so that a
kernel which still runs on another thread never sees one half-changed; `hold` keeps a table alive for as long as a launch needs it.
"""

import ctypes
import threading
from array import array
from bisect import bisect_left, bisect_right

from lanGPU.emulator.ptx.textures import ObjectTable


class AllocationMap:
    """Intervals of device-accessible memory; add and remove from any thread."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._words = array("Q", [0])
        """The table itself; copied as a whole when it changed."""
        self._lock = threading.Lock()
        self._table: ctypes.Array[ctypes.c_uint64] | None = None
        self.textures = ObjectTable()
        """Texture and surface objects, the other thing that a kernel's numbers may stand for."""

    def add(self, address: int, size: int) -> None:
        """Makes [address, address + size) known; a size of 0 adds nothing.

        Raises:
            ValueError: it overlaps a known interval.
        """
        if size <= 0:
            return
        with self._lock:
            index = bisect_left(self._starts, address)
            if (index < len(self._starts) and self._starts[index] < address + size) or (index > 0 and self._words[2 * index] > address):
                raise ValueError(f"{address:#x}+{size:#x} overlaps a known interval")
            self._starts.insert(index, address)
            self._words[2 * index + 1 : 2 * index + 1] = array("Q", [address, address + size])
            self._words[0] = len(self._starts)
            self._table = None

    def remove(self, address: int) -> None:
        """Forgets the interval that starts at `address`.

        Raises:
            KeyError: there is none.
        """
        with self._lock:
            index = bisect_left(self._starts, address)
            if index == len(self._starts) or self._starts[index] != address:
                raise KeyError(address)
            del self._starts[index]
            del self._words[2 * index + 1 : 2 * index + 3]
            self._words[0] = len(self._starts)
            self._table = None

    def find(self, address: int) -> tuple[int, int] | None:
        """(start, size) of the interval around `address`."""
        with self._lock:
            index = bisect_right(self._starts, address) - 1
            if index < 0 or address >= self._words[2 * index + 2]:
                return None
            return self._starts[index], self._words[2 * index + 2] - self._starts[index]

    def hold(self) -> "ctypes.Array[ctypes.c_uint64]":
        """The current native table; unchanged and alive as long as the caller keeps it."""
        with self._lock:
            if self._table is None:
                self._table = (ctypes.c_uint64 * len(self._words)).from_buffer_copy(self._words)
            return self._table

    @property
    def address(self) -> int:
        """Address of the current native table."""
        return ctypes.addressof(self.hold())
