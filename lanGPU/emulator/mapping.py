"""Host memory at addresses of our choice: what emulated device addresses are.

The region 0x1000_0000_0000…0x4000_0000_0000 lies far from where Linux puts programs, heaps, libraries and stacks (the first and the
last of 128 TiB) and below the numbers that lanGPU uses as handles. Addresses are handed out upwards and not used again before the
48 TiB are used up, so that a stale pointer meets an unmapped page, never another allocation.
"""

import ctypes
import errno
import os
from threading import Lock
from typing import Final

REGION_START: Final = 0x1000_0000_0000
REGION_END: Final = 0x4000_0000_0000
PAGE: Final = 4096
HUGE_PAGE: Final = 2 * 1024 * 1024

_PROT_NONE, _PROT_RW = 0, 3
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS, _MAP_NORESERVE = 0x01, 0x02, 0x10, 0x20, 0x4000
_MAP_FIXED_NOREPLACE = 0x10_0000
_MADV_HUGEPAGE = 14
_FALLOC_PUNCH = 0x01 | 0x02  # FALLOC_FL_KEEP_SIZE | FALLOC_FL_PUNCH_HOLE
_FAILED: Final = 2**64 - 1

_libc = ctypes.CDLL(None, use_errno=True)
_mmap = _libc.mmap
_mmap.restype = ctypes.c_uint64
_mmap.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64]
_munmap = _libc.munmap
_munmap.argtypes = [ctypes.c_uint64, ctypes.c_size_t]
_mprotect = _libc.mprotect
_mprotect.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int]
_madvise = _libc.madvise
_madvise.argtypes = [ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int]
_fallocate = _libc.fallocate
_fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def align_up(value: int, alignment: int) -> int:
    """`value` rounded up to a multiple of `alignment`, a power of two."""
    return (value + alignment - 1) & ~(alignment - 1)


class AddressSpace:
    """Hands out and maps addresses of the region. Thread-safe. Sizes are multiples of PAGE."""

    def __init__(self, start: int = REGION_START, end: int = REGION_END) -> None:
        self._start, self._end = start, end
        self._next = start
        self._hinted: list[tuple[int, int]] = []
        self._lock = Lock()

    def map(self, size: int, *, alignment: int = PAGE, reserve_only: bool = False, hint: int = 0) -> int:
        """Maps `size` zero bytes, or with `reserve_only` addresses without memory; `hint` is used if those addresses are free.

        Raises:
            MemoryError: the machine does not give the memory or the region has no room.
        """
        flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED_NOREPLACE
        protection = _PROT_NONE if reserve_only else _PROT_RW
        with self._lock:
            fits = hint and hint % alignment == 0 and self._start <= hint and hint + size <= self._end
            if fits and self._try(hint, size, protection, flags):
                self._hinted.append((hint, hint + size))
                return hint
            candidate, wrapped = align_up(self._next, alignment), False
            while True:
                if candidate + size > self._end:
                    if wrapped:
                        raise MemoryError(f"no {size} bytes of address space are left")
                    candidate, wrapped = align_up(self._start, alignment), True
                taken = next((end for start, end in self._hinted if start < candidate + size and candidate < end), 0)
                if taken:
                    candidate = align_up(taken, alignment)
                elif self._try(candidate, size, protection, flags):
                    break
                else:
                    candidate += max(alignment, HUGE_PAGE)
            self._next = candidate + size
        if not reserve_only and size >= 2 * HUGE_PAGE:
            _madvise(candidate, size, _MADV_HUGEPAGE)  # a hint: page faults of large buffers are a third of their first use
        return candidate

    @staticmethod
    def _try(address: int, size: int, protection: int, flags: int) -> bool:
        got = _mmap(address, size, protection, flags, -1, 0)
        if got == address:
            return True
        if got != _FAILED:
            _munmap(got, size)  # a kernel older than 4.17 takes the address as a wish
            return False
        code = ctypes.get_errno()
        if code == errno.EEXIST:
            return False
        raise MemoryError(f"mmap of {size} bytes: {os.strerror(code)}")

    @staticmethod
    def unmap(address: int, size: int) -> None:
        """Gives memory and addresses back to the machine."""
        if _munmap(address, size) != 0:
            raise OSError(ctypes.get_errno(), f"munmap({address:#x}, {size})")


class PhysicalMemory:
    """Memory without an address (cuMemCreate): pieces of one sparse anonymous file. Thread-safe."""

    def __init__(self) -> None:
        self._fd = os.memfd_create("langpu-device-memory")
        self._size = 0
        self._lock = Lock()

    def create(self, size: int) -> int:
        """The offset of `size` new zero bytes."""
        with self._lock:
            offset = self._size
            self._size += size
            os.ftruncate(self._fd, self._size)
        return offset

    def release(self, offset: int, size: int) -> None:
        """Gives the pages back."""
        if _fallocate(self._fd, _FALLOC_PUNCH, offset, size) != 0:
            raise OSError(ctypes.get_errno(), "fallocate")

    def map_at(self, address: int, size: int, offset: int) -> None:
        """Maps [offset, offset + size) at `address`, without access rights yet."""
        if _mmap(address, size, _PROT_NONE, _MAP_SHARED | _MAP_FIXED, self._fd, offset) != address:
            raise MemoryError(f"mmap at {address:#x}: {os.strerror(ctypes.get_errno())}")

    def close(self) -> None:
        """Closes the file; mappings stay."""
        os.close(self._fd)


def set_access(address: int, size: int, allowed: bool) -> None:
    """Makes mapped memory readable and writable, or neither."""
    if _mprotect(address, size, _PROT_RW if allowed else _PROT_NONE) != 0:
        raise OSError(ctypes.get_errno(), f"mprotect({address:#x}, {size})")


def reserve_at(address: int, size: int) -> None:
    """Puts a reservation without memory where a mapping was."""
    flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE | _MAP_FIXED
    if _mmap(address, size, _PROT_NONE, flags, -1, 0) != address:
        raise MemoryError(f"mmap at {address:#x}: {os.strerror(ctypes.get_errno())}")
