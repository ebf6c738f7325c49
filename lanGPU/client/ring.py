"""The agent's side of the shared memory (`layout`): records out, requests out, answers in.

One thread (the forwarder) may call everything but `answer_record`, which the receiver uses for other slots than those whose
request the forwarder holds. Words are read and written through typed views: one aligned load or store each.
"""

import contextlib
import ctypes
import fcntl
import mmap
import os
import struct
import threading
from collections.abc import Mapping, Sequence
from typing import Final

from lanGPU.client import layout as lay
from lanGPU.client.syscalls import WAKE_ALL, futex_wait, futex_wake
from lanGPU.constants import MAX_HANDLES, MAX_THREADS
from lanGPU.errors import LanGPUError

_MASK32: Final = 0xFFFF_FFFF
_AGENT_RING: Final = 0x1_0000
"""What the receiver adds to DOORBELL. Any change of the word ends the forwarder's sleep, so a lost addition of the shim's does no harm."""
_SEALS: Final = 0x1 | 0x2 | 0x4  # F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW: a program that shrinks it must not kill us with SIGBUS
_F_ADD_SEALS: Final = 1033
_COMMAND: Final = struct.Struct("<II")
_WRITE: Final = struct.Struct("<IIQQ")
_RETURN: Final = struct.Struct("<IIQ")


class RingCorruptError(LanGPUError):
    """The program wrote nonsense into the shared memory; its session ends."""

    exit_code = 92


class Request:
    """One request as the shim queued it."""

    __slots__ = ("api_id", "args", "flags", "position", "slot", "thread_pointer")

    def __init__(self, slot: int, api_id: int, flags: int, position: int, args: tuple[int, ...], thread_pointer: int) -> None:
        self.slot = slot
        self.api_id = api_id
        self.flags = flags
        self.position = position
        self.args = args
        self.thread_pointer = thread_pointer


class Ring:
    """One process's shared memory. The creator owns `fd`; `close` gives everything back."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("langpu-ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, lay.TOTAL_BYTES)
        fcntl.fcntl(self.fd, _F_ADD_SEALS, _SEALS)
        self._map = mmap.mmap(self.fd, lay.TOTAL_BYTES, mmap.MAP_SHARED)
        self.bytes = memoryview(self._map)
        self._u32 = self.bytes.cast("I")
        self._u64 = self.bytes.cast("Q")
        self._anchor: ctypes.c_char | None = ctypes.c_char.from_buffer(self._map)
        self._base = ctypes.addressof(self._anchor)
        self._data = self.bytes[lay.RING : lay.RING + lay.RING_BYTES]
        self._fence_lock = threading.Lock()
        self._params_used = 0
        self._layouts: dict[tuple[tuple[int, int], ...], int] = {}

    def close(self) -> None:
        """Unmap and close. No other thread may use the ring any more."""
        if self.fd < 0:
            return
        self._anchor = None
        for view in (self._data, self._u32, self._u64, self.bytes):
            view.release()
        # A view that somebody still holds keeps the mapping until it goes; the descriptor goes now.
        with contextlib.suppress(BufferError):
            self._map.close()
        os.close(self.fd)
        self.fd = -1

    @property
    def address(self) -> int:
        """Where the shared memory lies in this process."""
        return self._base

    def _fence(self) -> None:
        """Store-load barrier: taking a lock is a locked instruction (x86) or an acquire-release pair."""
        self._fence_lock.acquire()
        self._fence_lock.release()

    # --- records ---------------------------------------------------------------------------------------------------------
    @property
    def head(self) -> int:
        """Bytes of records ever published."""
        return self._u64[lay.HEAD // 8]

    @property
    def tail(self) -> int:
        """Bytes of records ever taken."""
        return self._u64[lay.TAIL // 8]

    def peek(self, limit: int, until: int | None = None) -> list[memoryview]:
        """Up to `limit` bytes of published records (none past position `until`), in up to two views into the ring.

        Raises RingCorruptError: HEAD is not within RING_BYTES of TAIL.
        """
        tail = self._u64[lay.TAIL // 8]
        head = self._u64[lay.HEAD // 8] if until is None else until
        count = head - tail
        if count == 0:
            return []
        if not 0 < count <= lay.RING_BYTES:
            raise RingCorruptError(f"the ring's head is {count} bytes after its tail")
        count = min(count, limit)
        start = tail % lay.RING_BYTES
        first = min(count, lay.RING_BYTES - start)
        if first == count:
            return [self._data[start : start + first]]
        return [self._data[start : start + first], self._data[: count - first]]

    def advance(self, count: int) -> None:
        """Give `count` bytes back to the shim, waking threads that wait for room."""
        self._u64[lay.TAIL // 8] += count
        self._fence()
        if self._u32[lay.SPACE_WAITERS // 4]:
            self._u32[lay.SPACE_SEQ // 4] = (self._u32[lay.SPACE_SEQ // 4] + 1) & _MASK32
            futex_wake(self._base + lay.SPACE_SEQ, WAKE_ALL)

    # --- requests --------------------------------------------------------------------------------------------------------
    def request_waits(self) -> bool:
        """A request is queued."""
        return self._u32[lay.REQUEST_HEAD // 4] != self._u32[lay.REQUEST_TAIL // 4]

    def take_request(self) -> Request | None:
        """The next request, or None.

        Raises RingCorruptError: a slot number or a position that cannot be.
        """
        u32 = self._u32
        taken = u32[lay.REQUEST_TAIL // 4]
        if u32[lay.REQUEST_HEAD // 4] == taken:
            return None
        slot = u32[(lay.REQUESTS + 4 * (taken % lay.REQUEST_CAPACITY)) // 4]
        if slot >= MAX_THREADS:
            raise RingCorruptError(f"request of slot {slot}")
        u32[lay.REQUEST_TAIL // 4] = (taken + 1) & _MASK32
        base = lay.SLOTS + slot * lay.SLOT_BYTES
        args_at = (base + lay.SLOT_ARGS) // 8
        position = self._u64[(base + lay.SLOT_POSITION) // 8]
        if position > self.head:
            raise RingCorruptError(f"request of slot {slot} after position {position}, the ring's head is {self.head}")
        return Request(
            slot,
            u32[(base + lay.SLOT_API_ID) // 4],
            u32[(base + lay.SLOT_FLAGS) // 4],
            position,
            tuple(self._u64[args_at : args_at + 16]),
            self._u64[(base + lay.SLOT_THREAD_POINTER) // 8],
        )

    def token(self, slot: int) -> int:
        """Number of the slot's current waiting call."""
        return self._u32[(lay.SLOTS + slot * lay.SLOT_BYTES + lay.SLOT_TOKEN) // 4]

    def slots_used(self) -> int:
        """Slots ever handed out."""
        return min(self._u32[lay.NEXT_SLOT // 4], MAX_THREADS)

    # --- sleeping --------------------------------------------------------------------------------------------------------
    def doorbell(self) -> int:
        """Value to sleep on; read it before looking for work."""
        return self._u32[lay.DOORBELL // 4]

    def announce_sleep(self) -> None:
        """From here on the shim rings. Look for work once more, then `sleep`, then `awake`."""
        self._u32[lay.AGENT_SLEEPING // 4] = 1
        self._fence()

    def awake(self) -> None:
        """Work was found: the shim need not ring."""
        self._u32[lay.AGENT_SLEEPING // 4] = 0

    def sleep(self, seen: int, timeout_s: float) -> None:
        """Until the doorbell differs from `seen` or the time is over."""
        futex_wait(self._base + lay.DOORBELL, seen, timeout_s)

    def ring_doorbell(self) -> None:
        """Wake the forwarder from another thread of the agent."""
        self._u32[lay.DOORBELL // 4] = (self._u32[lay.DOORBELL // 4] + _AGENT_RING) & _MASK32
        futex_wake(self._base + lay.DOORBELL)

    # --- answers ---------------------------------------------------------------------------------------------------------
    def slot_data(self, slot: int, count: int) -> memoryview:
        """The first `count` bytes at SLOT_DATA."""
        at = lay.SLOTS + slot * lay.SLOT_BYTES + lay.SLOT_DATA
        return self.bytes[at : at + count]

    def slot_reply_bytes(self, slot: int) -> int:
        """How many bytes a READ_STRING left at SLOT_DATA."""
        return min(self._u32[(lay.SLOTS + slot * lay.SLOT_BYTES + lay.SLOT_REPLY_BYTES) // 4], lay.SLOT_DATA_BYTES)

    def _publish(self, base: int, count: int, kind: int) -> None:
        u32 = self._u32
        u32[(base + lay.SLOT_REPLY_BYTES) // 4] = count
        u32[(base + lay.SLOT_REPLY_KIND) // 4] = kind
        at = (base + lay.SLOT_REPLY_SEQ) // 4
        u32[at] = (u32[at] + 1) & _MASK32
        self._fence()
        if u32[(base + lay.SLOT_WAITING) // 4]:
            futex_wake(self._base + base + lay.SLOT_REPLY_SEQ, WAKE_ALL)

    def answer_record(self, slot: int, reply: memoryview | bytes) -> None:
        """Hand a reply record to the slot's thread; at most SLOT_DATA_BYTES."""
        base = lay.SLOTS + slot * lay.SLOT_BYTES
        self.bytes[base + lay.SLOT_DATA : base + lay.SLOT_DATA + len(reply)] = reply
        self._publish(base, len(reply), lay.REPLY_RECORD)

    def answer_commands(self, slot: int, commands: Sequence[bytes]) -> None:
        """Hand commands to the slot's thread; together at most SLOT_DATA_BYTES."""
        base = lay.SLOTS + slot * lay.SLOT_BYTES
        data = b"".join(commands)
        self.bytes[base + lay.SLOT_DATA : base + lay.SLOT_DATA + len(data)] = data
        self._publish(base, len(data), lay.REPLY_COMMANDS)

    # --- functions -------------------------------------------------------------------------------------------------------
    def set_function(self, index: int, generation: int, params: tuple[tuple[int, int], ...], packed_bytes: int) -> bool:
        """Make the parameter layout of a kernel known to the shim; False: the pool is full and launches must not be made."""
        at = self._layouts.get(params)
        if at is None:
            if self._params_used + len(params) > lay.PARAMS_CAPACITY:
                return False
            at = self._params_used
            word = lay.PARAMS // 4 + 2 * at
            for offset, size in params:
                self._u32[word] = offset
                self._u32[word + 1] = size
                word += 2
            self._params_used += len(params)
            self._layouts[params] = at
        if not 0 < index < MAX_HANDLES:
            raise ValueError(f"handle index {index}")
        word = (lay.FUNCTIONS + lay.FUNCTION_BYTES * index) // 4
        self._u32[word + 1] = packed_bytes
        self._u32[word + 2] = at
        self._u32[word + 3] = generation
        self._u32[word + lay.FUNCTION_SHARED // 4] = 0
        self._u32[word] = len(params) + 1
        return True

    # --- answers of the shim's own ---------------------------------------------------------------------------------------
    def current_context(self, slot: int) -> int:
        """The slot's current context: the shim may have replaced it."""
        return self._u64[(lay.SLOTS + slot * lay.SLOT_BYTES + lay.SLOT_CONTEXT) // 8]

    def set_current_context(self, slot: int, context: int) -> None:
        """`context` (0: none) is the thread's current one."""
        self._u64[(lay.SLOTS + slot * lay.SLOT_BYTES + lay.SLOT_CONTEXT) // 8] = context

    def set_contexts(self, contexts: Sequence[tuple[int, int]]) -> None:
        """The contexts that live: (handle, device ordinal)."""
        self._u32[lay.CONTEXT_COUNT // 4] = 0
        known = contexts[: lay.CONTEXTS_CAPACITY]
        for i, (handle, device) in enumerate(known):
            self._u64[lay.CONTEXTS // 8 + 2 * i] = handle
            self._u64[lay.CONTEXTS // 8 + 2 * i + 1] = device
        self._u32[lay.CONTEXT_COUNT // 4] = len(known)

    def set_primary(self, device: int, flags: int, active: bool) -> None:
        """State of a device's primary context."""
        if device < lay.DEVICES_CAPACITY:
            self._u64[lay.PRIMARIES // 8 + device] = flags | lay.PRIMARY_KNOWN | (lay.PRIMARY_ACTIVE if active else 0)

    def set_attributes(self, device: int, attributes: Mapping[int, int]) -> None:
        """A device's attributes: they never change."""
        if device < lay.DEVICES_CAPACITY:
            first = lay.ATTRIBUTES // 8 + device * lay.ATTRIBUTES_CAPACITY
            for number, value in attributes.items():
                if 0 <= number < lay.ATTRIBUTES_CAPACITY:
                    self._u64[first + number] = value & _MASK32 | lay.ATTRIBUTE_KNOWN

    def _storage_entry(self, context: int, key: int) -> tuple[int, int]:
        """(word index of the entry or -1, word index of the first free one before the end of its search or -1)."""
        free = -1
        place = lay.storage_place(context, key)
        for i in range(lay.STORAGE_CAPACITY):
            at = (lay.STORAGE + (place + i) % lay.STORAGE_CAPACITY * lay.STORAGE_ENTRY_BYTES) // 8
            found = self._u64[at]
            if found == key and self._u64[at + 1] == context:
                return at, free
            if free < 0 and found in (0, lay.STORAGE_REMOVED):
                free = at
            if found == 0:
                break
        return -1, free

    def set_storage(self, context: int, key: int, value: int) -> None:
        """An entry of context-local storage; where there is no room the agent is asked for it."""
        at, free = self._storage_entry(context, key)
        if at >= 0:
            self._u64[at + 2] = value
        elif free >= 0 and key not in (0, lay.STORAGE_REMOVED):
            self._u64[free + 2] = value
            self._u64[free + 1] = context
            self._fence()
            self._u64[free] = key

    def remove_storage(self, context: int, key: int) -> None:
        """The entry is gone."""
        at, _ = self._storage_entry(context, key)
        if at >= 0:
            self._u64[at] = lay.STORAGE_REMOVED

    # --- flags and counts ------------------------------------------------------------------------------------------------
    def set_blocking(self, blocking: bool) -> None:
        """Whether posted calls wait for their reply (debugging)."""
        flags = self._u32[lay.FLAGS // 4]
        self._u32[lay.FLAGS // 4] = flags | lay.FLAG_BLOCKING if blocking else flags & ~lay.FLAG_BLOCKING

    def set_ready(self) -> None:
        """cuInit succeeded: the shim posts calls from now on."""
        self._u32[lay.FLAGS // 4] |= lay.FLAG_READY

    def set_shared(self, shared: bool, *, device_phase: bool) -> None:
        """Whether calls that shared memory depends on come to the agent, and whether device work need not."""
        flags = self._u32[lay.FLAGS // 4] & ~(lay.FLAG_SHARED | lay.FLAG_DEVICE_PHASE)
        self._u32[lay.FLAGS // 4] = flags | (lay.FLAG_SHARED if shared else 0) | (lay.FLAG_DEVICE_PHASE if device_phase else 0)
        self._fence()

    def capturing(self) -> bool:
        """A stream capture may be going on."""
        return self._u32[lay.CAPTURES // 4] != 0

    def position(self) -> int:
        """Bytes of records that the program ever made."""
        return self.head

    def set_closed(self, result: int) -> None:
        """Every call of the program returns `result` from now on; threads that wait for room look again."""
        self._u32[lay.CLOSED_RESULT // 4] = result
        self._u32[lay.FLAGS // 4] |= lay.FLAG_CLOSED
        self._fence()
        self._u32[lay.SPACE_SEQ // 4] = (self._u32[lay.SPACE_SEQ // 4] + 1) & _MASK32
        futex_wake(self._base + lay.SPACE_SEQ, WAKE_ALL)

    def count_synchronous(self) -> int:
        """Calls of the shim that waited, or wait, for the server."""
        return self._u64[lay.COUNT_SYNC // 8]

    def counts(self) -> tuple[int, int, int]:
        """Calls that were posted, that waited for the server, that asked the agent."""
        return self._u64[lay.COUNT_POSTED // 8], self._u64[lay.COUNT_SYNC // 8], self._u64[lay.COUNT_AGENT // 8]


def command_return(result: int) -> bytes:
    """The call returns `result`."""
    return _RETURN.pack(lay.CMD_RETURN, _RETURN.size, result & 0xFFFF_FFFF)


def command_write(address: int, data: bytes | bytearray | memoryview) -> bytes:
    """Copy `data` into the program's memory."""
    padded = (len(data) + 7) & ~7
    return _WRITE.pack(lay.CMD_WRITE, _WRITE.size + padded, address, len(data)) + bytes(data).ljust(padded, b"\0")


def command_read(address: int, length: int) -> bytes:
    """Copy program memory to SLOT_DATA and continue."""
    return _WRITE.pack(lay.CMD_READ, _WRITE.size, address, length)


def command_read_string(address: int, maximum: int) -> bytes:
    """Copy a string with its NUL to SLOT_DATA and continue."""
    return _WRITE.pack(lay.CMD_READ_STRING, _WRITE.size, address, maximum)


def command_syscall(number: int, args: Sequence[int]) -> bytes:
    """A system call in the program; its raw result goes to SLOT_DATA."""
    words = [number, *args, *[0] * (6 - len(args))]
    return _COMMAND.pack(lay.CMD_SYSCALL, 8 + 8 * 7) + struct.pack("<7Q", *(w & 0xFFFF_FFFF_FFFF_FFFF for w in words))


def command_thread() -> bytes:
    """Make the thread that calls functions of the program; 0 or an errno goes to SLOT_DATA."""
    return _COMMAND.pack(lay.CMD_THREAD, 8)


def command_call(function: int, args: Sequence[int]) -> bytes:
    """A call into the program; its result goes to SLOT_DATA."""
    words = [function, *args, *[0] * (4 - len(args))]
    return _COMMAND.pack(lay.CMD_CALL, 8 + 8 * 5) + struct.pack("<5Q", *(w & 0xFFFF_FFFF_FFFF_FFFF for w in words))
