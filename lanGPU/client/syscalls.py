"""The few system calls that Python does not offer: futexes and another process's memory. Linux; one place for processor numbers."""

import ctypes
import errno
import os
import platform
from typing import Final

FUTEX_WAIT: Final = 0
FUTEX_WAKE: Final = 1
WAKE_ALL: Final = 0x7FFF_FFFF

# Linux, arch/x86/entry/syscalls/syscall_64.tbl and include/uapi/asm-generic/unistd.h
_NUMBERS: Final = {
    "x86_64": {"futex": 202, "mmap": 9, "munmap": 11, "getpid": 39},
    "aarch64": {"futex": 98, "mmap": 222, "munmap": 215, "getpid": 172},
}
NUMBERS: Final = _NUMBERS.get(platform.machine(), _NUMBERS["x86_64"])
"""System call numbers of this machine; the program runs on the same one."""

PROT_READ: Final = 1
PROT_WRITE: Final = 2
MAP_PRIVATE: Final = 2
MAP_ANONYMOUS: Final = 0x20
MAP_POPULATE: Final = 0x8000


class _Timespec(ctypes.Structure):
    _fields_ = (("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long))


class _Iovec(ctypes.Structure):
    _fields_ = (("iov_base", ctypes.c_void_p), ("iov_len", ctypes.c_size_t))


_FUTEX_ARGTYPES = (ctypes.c_long, ctypes.c_void_p, ctypes.c_int, ctypes.c_uint32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32)
# Two handles of one function: waiting gives the GIL away, waking (a microsecond) keeps it.
_wait_syscall = ctypes.CDLL(None, use_errno=True).syscall
_wait_syscall.argtypes = _FUTEX_ARGTYPES
_wait_syscall.restype = ctypes.c_long
_wake_syscall = ctypes.PyDLL(None).syscall
_wake_syscall.argtypes = _FUTEX_ARGTYPES
_wake_syscall.restype = ctypes.c_long
_FUTEX: Final = NUMBERS["futex"]


def futex_wait(address: int, expected: int, timeout_s: float) -> None:
    """Sleep while the u32 at `address` is `expected`, at most `timeout_s`; may return early."""
    whole = int(timeout_s)
    limit = _Timespec(whole, int((timeout_s - whole) * 1e9))
    _wait_syscall(_FUTEX, address, FUTEX_WAIT, expected, ctypes.addressof(limit), None, 0)


def futex_wake(address: int, count: int = 1) -> None:
    """Wake up to `count` sleepers of the u32 at `address`, in any process."""
    _wake_syscall(_FUTEX, address, FUTEX_WAKE, count, None, None, 0)


def _memory_call(name: str) -> "ctypes._NamedFuncPointer":
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    iovec = ctypes.POINTER(_Iovec)
    function.argtypes = (ctypes.c_int, iovec, ctypes.c_ulong, iovec, ctypes.c_ulong, ctypes.c_ulong)
    function.restype = ctypes.c_ssize_t
    return function  # type: ignore[no-any-return]


_readv = _memory_call("process_vm_readv")
_writev = _memory_call("process_vm_writev")


def _transfer(function: "ctypes._NamedFuncPointer", pid: int, local: int, remote: int, length: int) -> None:
    """Move exactly `length` bytes. Raises OSError: EFAULT where the range is not all there, EPERM, ENOSYS, ESRCH."""
    done = 0
    while done < length:
        here = _Iovec(local + done, length - done)
        there = _Iovec(remote + done, length - done)
        moved = function(pid, ctypes.byref(here), 1, ctypes.byref(there), 1, 0)
        if moved < 0:
            code = ctypes.get_errno()
            if code == errno.EINTR:
                continue
            raise OSError(code, os.strerror(code))
        if moved == 0:
            raise OSError(errno.EFAULT, os.strerror(errno.EFAULT))
        done += moved


def address_of(buffer: bytearray | memoryview) -> int:
    """Where a writable buffer lies; valid while the caller keeps it."""
    return ctypes.addressof(ctypes.c_char.from_buffer(buffer))


def process_read(pid: int, address: int, into: bytearray | memoryview) -> None:
    """Fill `into` from process `pid` at `address`. Raises OSError as `_transfer`."""
    if len(into):
        _transfer(_readv, pid, address_of(into), address, len(into))


def process_write(pid: int, address: int, data: bytes | bytearray | memoryview) -> None:
    """Copy `data` to process `pid` at `address`. Raises OSError as `_transfer`."""
    if not len(data):
        return
    if isinstance(data, bytes) or (isinstance(data, memoryview) and data.readonly):
        kept = ctypes.create_string_buffer(bytes(data), len(data))
        _transfer(_writev, pid, ctypes.addressof(kept), address, len(data))
    else:
        _transfer(_writev, pid, address_of(data), address, len(data))
