"""The shared memory between a program's shim and the agent: one memfd a process, every offset named here.

Written by both sides at once, so each word has one writer (or is changed under `LOCK`). Offsets are bytes from the start of the
mapping; words are little-endian u32 unless marked u64. Words written by different sides lie on different cache lines.

Regions, in this order: header (one page), thread slots, handle generations, free handle indexes, function layouts, parameter
pool, answers of the shim's own, ring data. The ring data is mapped twice in a row by the shim, so that no record ever wraps.
"""

from typing import Final

from lanGPU.constants import MAX_HANDLES, MAX_THREADS

SHIM_ABI: Final = 4
"""Raised with any change in this file or in the descriptor; the agent refuses a shim of another value."""
PAGE: Final = 4096

# --- header ----------------------------------------------------------------------------------------------------------
HEAD: Final = 0
"""u64: bytes of records ever published. Writer: shim, under LOCK, after the record is complete (release store)."""
TAIL: Final = 64
"""u64: bytes of records the agent has taken. Writer: agent. HEAD - TAIL <= RING_BYTES always."""
SPACE_SEQ: Final = 72
"""Futex: the agent adds 1 after moving TAIL if SPACE_WAITERS is not 0, then wakes all."""
SPACE_WAITERS: Final = 128
"""Threads that wait for room in the ring. Writer: shim (atomic add)."""
DOORBELL: Final = 192
"""Futex the agent sleeps on. The shim adds 1 and wakes it if AGENT_SLEEPING was 1 (exchanged to 0)."""
AGENT_SLEEPING: Final = 256
"""1 while the agent sleeps or is about to. The agent: store 1, full fence, look at HEAD and REQUEST_HEAD again, then FUTEX_WAIT."""
LOCK: Final = 320
"""Producer lock, a futex mutex: 0 free, 1 held, 2 held and waited for."""
FLAGS: Final = 384
"""Bit 0 BLOCKING: posted calls wait for their reply. Bit 1 CLOSED: every call returns CLOSED_RESULT at once. Bit 2 READY: cuInit
succeeded; without it posted and waiting calls return CUDA_ERROR_NOT_INITIALIZED. Bit 3 SHARED: the program and the device share memory,
calls that the agent must see then go to it (`lanGPU.driverapi.coherence`). Bit 4 DEVICE_PHASE: the device has all that the program
wrote, so device work need not. Writer: agent."""
FLAG_BLOCKING: Final = 1
FLAG_CLOSED: Final = 2
FLAG_READY: Final = 4
FLAG_SHARED: Final = 8
FLAG_DEVICE_PHASE: Final = 16
CLOSED_RESULT: Final = 388
REQUEST_HEAD: Final = 448
"""Requests ever queued (agent-path calls and READ continuations). Writer: shim, under LOCK."""
REQUEST_TAIL: Final = 512
"""Requests ever taken. Writer: agent."""
NEXT_HANDLE: Final = 576
"""Next never-used handle index, from 1. Changed under LOCK; the agent takes indexes from AGENT_HANDLE_BASE instead."""
FREE_COUNT: Final = 580
"""Entries on the stack of free handle indexes. Changed under LOCK."""
NEXT_SLOT: Final = 584
"""Thread slots ever handed out. Changed under LOCK."""
CAPTURES: Final = 588
"""Stream captures that may be going on: begun and not seen to end. 0: none is. Writer: shim (atomic add)."""
CONTEXT_COUNT: Final = 592
"""Entries of CONTEXTS in use. Writer: agent, after the entries."""
COUNT_POSTED: Final = 640
"""u64 each, changed under LOCK: calls that were posted, that waited for the server, that asked the agent."""
COUNT_SYNC: Final = 648
COUNT_AGENT: Final = 656
REQUESTS: Final = 1024
"""u32[REQUEST_CAPACITY]: slot numbers, at REQUEST_HEAD % REQUEST_CAPACITY. A slot has one outstanding request, so it cannot overflow."""
REQUEST_CAPACITY: Final = MAX_THREADS

# --- thread slots ----------------------------------------------------------------------------------------------------
SLOTS: Final = PAGE
SLOT_BYTES: Final = 128 * 1024
"""One application thread's place. Untouched pages of a memfd cost nothing."""
SLOT_REPLY_SEQ: Final = 0
"""Futex: the answering side adds 1 when the answer for SLOT_TOKEN lies ready."""
SLOT_WAITING: Final = 4
"""1 while the thread sleeps in FUTEX_WAIT (or is about to), so that an answer to a spinning thread costs no system call."""
SLOT_TOKEN: Final = 8
"""Number of the thread's current call that waits, from 1. A reply with another token is a bug and is dropped with a log line."""
SLOT_TID: Final = 12
SLOT_POSITION: Final = 16
"""u64: value of HEAD when the request was queued: everything before must go to the server first."""
SLOT_API_ID: Final = 24
"""u32: api_id of an agent-path call, API_THREAD_ATTACH or API_CONTINUE."""
SLOT_FLAGS: Final = 28
"""u32: FLAG_PER_THREAD as in records."""
SLOT_ARGS: Final = 64
"""u64[16]: the raw arguments of an agent-path call (addresses are the program's)."""
SLOT_THREAD_POINTER: Final = 192
"""u64: fs base of the thread, which is pthread_self() on glibc."""
SLOT_REPLY_BYTES: Final = 200
"""u32: bytes that lie at SLOT_DATA."""
SLOT_REPLY_KIND: Final = 204
"""u32: REPLY_RECORD or REPLY_COMMANDS: what lies at SLOT_DATA."""
SLOT_CONTEXT: Final = 208
"""u64: the thread's current context, 0 for none. Writer: the agent, and the shim where one context that lives replaces another."""
SLOT_DATA: Final = 512
SLOT_DATA_BYTES: Final = SLOT_BYTES - SLOT_DATA

API_THREAD_ATTACH: Final = 0
"""Pseudo api_id of the request a shim makes when a thread gets a slot: the agent forgets the slot's previous thread."""
API_CONTINUE: Final = 0xFFFF
"""Pseudo api_id of the request a shim makes when it has carried out the commands of an answer that did not end in RETURN."""
API_UNSUPPORTED: Final = 0xFFFE
"""Pseudo api_id: a function without a row was called; SLOT_ARGS[0] is its index in ``exports.export_names()``."""

API_CALLBACKS: Final = 0xFFFD
"""Pseudo api_id of the request that the shim's own thread makes: it calls functions of the program for the agent until the session ends."""

REPLY_RECORD: Final = 0
"""SLOT_DATA holds a reply as in wire.records: the shim copies the outputs to where the arguments point."""
REPLY_COMMANDS: Final = 1
"""SLOT_DATA holds commands (below), carried out in order by the calling thread."""

# --- commands: u32 opcode, u32 size of the whole command (multiple of 8), then operands (u64) and data -------------------------
CMD_RETURN: Final = 0
"""u64 CUresult: the call returns it."""
CMD_WRITE: Final = 1
"""u64 address, u64 length, data: copied into the program's memory."""
CMD_READ: Final = 2
"""u64 address, u64 length: copied to the start of SLOT_DATA for the agent; then the shim queues API_CONTINUE. Last command."""
CMD_READ_STRING: Final = 3
"""u64 address, u64 maximum: the bytes up to and with the NUL go to SLOT_DATA, SLOT_REPLY_BYTES says how many; then API_CONTINUE."""
CMD_SYSCALL: Final = 4
"""u64 number, u64[6] arguments: the raw result goes to SLOT_DATA as i64; then API_CONTINUE. Last command. (mmap for pinned memory)"""
CMD_CALL: Final = 5
"""u64 function, u64[4] arguments: a call into the program (host callbacks); result to SLOT_DATA, then API_CONTINUE. Last command."""
CMD_THREAD: Final = 6
"""Make the thread that calls functions of the program (API_CALLBACKS); i64 0 or an errno to SLOT_DATA, then API_CONTINUE. Last."""

# --- handles ---------------------------------------------------------------------------------------------------------
GENERATIONS: Final = SLOTS + MAX_THREADS * SLOT_BYTES
"""u16[MAX_HANDLES]: generation that the next handle with this index gets. Changed under LOCK."""
FREE_HANDLES: Final = GENERATIONS + 2 * MAX_HANDLES
"""u32[MAX_HANDLES]: a stack of indexes of destroyed handles, FREE_COUNT high. Changed under LOCK."""
AGENT_HANDLE_BASE: Final = MAX_HANDLES // 2
"""Indexes from here up are the agent's to give (hand-written creations); it recycles them itself and never writes GENERATIONS below."""

# --- kernel parameter layouts ------------------------------------------------------------------------------------------
FUNCTIONS: Final = FREE_HANDLES + 4 * MAX_HANDLES
FUNCTION_BYTES: Final = 24
FUNCTION_SHARED: Final = 16
"""Per handle index: u32 number of parameters + 1 (0: not a function), u32 bytes of the packed buffer, u32 index of the first entry in
PARAMS, u32 generation (writer: agent, before the program learns the handle); at FUNCTION_SHARED, u32 dynamic shared memory with which a
launch was accepted (writers: agent, as 0; shim), u32 0."""
PARAMS: Final = FUNCTIONS + FUNCTION_BYTES * MAX_HANDLES
"""Pairs (u32 offset, u32 size in bytes); equal layouts share entries."""
PARAMS_CAPACITY: Final = 1 << 20

# --- answers that the shim gives by itself -----------------------------------------------------------------------------
CONTEXTS: Final = PARAMS + 8 * PARAMS_CAPACITY
CONTEXTS_CAPACITY: Final = 64
"""Entries (u64 handle, u64 device) of the contexts that live. One that is not there is a question for the agent."""
PRIMARIES: Final = CONTEXTS + 16 * CONTEXTS_CAPACITY
DEVICES_CAPACITY: Final = 16
"""u64 per device: flags of its primary context, PRIMARY_ACTIVE, PRIMARY_KNOWN. Writer: agent."""
PRIMARY_ACTIVE: Final = 1 << 32
PRIMARY_KNOWN: Final = 1 << 33
ATTRIBUTES: Final = PRIMARIES + 8 * DEVICES_CAPACITY
ATTRIBUTES_CAPACITY: Final = 256
"""u64[ATTRIBUTES_CAPACITY] per device: a CUdevice_attribute's value and ATTRIBUTE_KNOWN. Writer: agent, once."""
ATTRIBUTE_KNOWN: Final = 1 << 32
STORAGE: Final = ATTRIBUTES + 8 * ATTRIBUTES_CAPACITY * DEVICES_CAPACITY
"""Context-local storage: (u64 key, u64 context, u64 value), open addressing from `storage_place`. Writer: agent; key last when an entry
is made, first when it is removed (STORAGE_REMOVED). Key 0 ends a search: what is not there is a question for the agent."""
STORAGE_CAPACITY: Final = 1024
STORAGE_ENTRY_BYTES: Final = 24
STORAGE_REMOVED: Final = 0xFFFF_FFFF_FFFF_FFFF
STORAGE_MULTIPLIER: Final = 0x9E37_79B9_7F4A_7C15
STORAGE_SHIFT: Final = 64 - (STORAGE_CAPACITY.bit_length() - 1)
_STORAGE_END: Final = STORAGE + STORAGE_CAPACITY * STORAGE_ENTRY_BYTES


def storage_place(context: int, key: int) -> int:
    """Where the search for an entry begins."""
    return ((context ^ key) * STORAGE_MULTIPLIER & 0xFFFF_FFFF_FFFF_FFFF) >> STORAGE_SHIFT


# --- ring ------------------------------------------------------------------------------------------------------------
RING: Final = (_STORAGE_END + PAGE - 1) // PAGE * PAGE
RING_BYTES: Final = 4 * 1024 * 1024
"""Power of two, multiple of the page size: some 30,000 launches, 64 inlined copies."""
TOTAL_BYTES: Final = RING + RING_BYTES

# --- attaching: SOCK_SEQPACKET at $LANGPU_AGENT_SOCKET ----------------------------------------------------------------------
ENV_SOCKET: Final = "LANGPU_AGENT_SOCKET"
HELLO_MAGIC: Final = 0x5550474C
"""``LGPU``. Hello, shim to agent: u32 magic, u32 SHIM_ABI, u32 pid, u32 tid, u64 load address of the shim, 32 bytes content hash of
the shim's file. Answer: u32 magic, u32 CUresult (0: welcome), u64 TOTAL_BYTES, and the memfd as SCM_RIGHTS. The agent trusts
SO_PEERCRED, not the pid in the message. The shim keeps the socket (CLOEXEC): its hang-up tells either side that the other died."""
