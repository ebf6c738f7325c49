"""Offsets of the shim's private page and numbers of the kernel's interface that several modules need."""

from typing import Final

# Private page, one a process, wiped in a forked child (MADV_WIPEONFORK), which therefore attaches anew.
BASE: Final = 0  # ptr: the shared memory
STATE: Final = 8  # i32, futex: below
RESULT: Final = 12  # i32: CUresult of a failed attachment
SOCKET: Final = 16  # i32
TID_IN_TCB: Final = 20  # i32: 1 if glibc's tid field was verified
THREADS: Final = 64  # THREAD_ENTRIES x (u32 tid, u32 slot, u64 thread pointer), open addressing by tid
THREAD_ENTRIES: Final = 2048
"""Power of two, four times MAX_THREADS: searches stay short."""
THREAD_ENTRY_BYTES: Final = 16
TOMBSTONE: Final = 0xFFFF_FFFF
PRIVATE_BYTES: Final = (THREADS + THREAD_ENTRIES * THREAD_ENTRY_BYTES + 4095) // 4096 * 4096

NEW: Final = 0
BUSY: Final = 1
ATTACHED: Final = 2
FAILED: Final = 3

PROT_RW: Final = 3
MAP_SHARED, MAP_PRIVATE, MAP_FIXED, MAP_ANONYMOUS, MAP_NORESERVE = 1, 2, 0x10, 0x20, 0x4000
MADV_DONTFORK, MADV_WIPEONFORK = 10, 18
AF_UNIX, SOCK_SEQPACKET, SOCK_CLOEXEC = 1, 5, 0o2000000
MSG_PEEK, MSG_DONTWAIT, MSG_NOSIGNAL, MSG_CMSG_CLOEXEC = 2, 0x40, 0x4000, 0x40000000
FUTEX_WAIT, FUTEX_WAKE = 0, 1
EAGAIN, ESRCH, EINTR = -11, -3, -4
ALL: Final = 0x7FFFFFFF
