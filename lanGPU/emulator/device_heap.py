"""The heap that kernels' malloc and free work in: which parts of a fixed range of addresses are taken. It touches no memory.

Source: CUDA C++ Programming Guide, "Dynamic Global Memory Allocation": a heap of fixed size, pointers aligned to 16 bytes, null when
it is full.
"""

from threading import Lock
from typing import Final

ALIGNMENT: Final = 16


class DeviceHeap:
    """Pieces of [address, address + size). Thread-safe.

    A freed piece is given out again for a request of its size; when nothing else is left, neighbouring free pieces are joined.
    """

    def __init__(self, address: int, size: int) -> None:
        self._next = -(-address // ALIGNMENT) * ALIGNMENT
        self._end = address + size
        self._taken: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}
        """Size → addresses of free pieces of that size."""
        self._lock = Lock()

    def allocate(self, size: int) -> int:
        """Address of `size` bytes (0 counts as 1), or 0 where there is no room."""
        size = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        with self._lock:
            address = self._take(size)
            if not address and self._free:
                self._join()
                address = self._take(size) or self._split(size)
            if address:
                self._taken[address] = size
            return address

    def free(self, address: int) -> bool:
        """Gives a piece back; False if `address` is not the start of one that is taken."""
        with self._lock:
            size = self._taken.pop(address, 0)
            if size:
                self._free.setdefault(size, []).append(address)
            return size > 0

    def _take(self, size: int) -> int:
        pieces = self._free.get(size)
        if pieces:
            address = pieces.pop()
            if not pieces:
                del self._free[size]
            return address
        if size > self._end - self._next:
            return 0
        self._next += size
        return self._next - size

    def _split(self, size: int) -> int:
        fitting = [s for s in self._free if s > size]
        if not fitting:
            return 0
        whole = min(fitting)
        address = self._take(whole)
        self._free.setdefault(whole - size, []).append(address + size)
        return address

    def _join(self) -> None:
        """Makes one piece of free ones that touch; the last goes back to the part that was never used."""
        pieces = sorted((address, size) for size, addresses in self._free.items() for address in addresses)
        self._free = {}
        joined: list[tuple[int, int]] = []
        for address, size in pieces:
            if joined and joined[-1][0] + joined[-1][1] == address:
                joined[-1] = (joined[-1][0], joined[-1][1] + size)
            else:
                joined.append((address, size))
        if joined and sum(joined[-1]) == self._next:
            self._next = joined.pop()[0]
        for address, size in joined:
            self._free.setdefault(size, []).append(address)
