"""Memory that compiled kernels work with: the worker's context, a thread's record, a warp's snapshot. Offsets in bytes.

One context a worker (a CPU thread that carries out blocks); one record a CUDA thread of the current block, for kernels that
synchronise.
"""

from typing import Final

# --- context ----------------------------------------------------------------------------------------------------------
PARAMS: Final = 0  # ptr: packed kernel parameters
NTID: Final = 8  # 3 x i32
NCTAID: Final = 20  # 3 x i32
SHARED: Final = 32  # ptr: this worker's shared memory
SHARED_BYTES: Final = 40  # i64: static + dynamic
TABLE: Final = 48  # ptr: allocation table
CTAID: Final = 56  # 3 x i32
DYNAMIC_BYTES: Final = 68  # i32
ARENA: Final = 72  # ptr: local memory of device functions and of kernels that do not synchronise
ARENA_TOP: Final = 80  # ptr: first free byte of it
ARENA_END: Final = 88  # ptr
DEPOT: Final = 96  # ptr: local memory of the running thread, for kernels that synchronise
DEPOT_END: Final = 104  # ptr
RECORDS: Final = 112  # ptr: threads' records
WARPS: Final = 120  # ptr: warps' snapshots
FAULT_KIND: Final = 128  # i32
FAULT_LINE: Final = 132  # i32
FAULT_ADDRESS: Final = 136  # i64
FAULT_THREAD: Final = 144  # 3 x i32
FAULT_BLOCK: Final = 156  # 3 x i32
WORKER: Final = 168  # i32: what %smid answers
WORKERS: Final = 172  # i32: what %nsmid answers
GRIDID: Final = 176  # i64
GLOBALS: Final = 184  # ptr: addresses of the module variables that the kernel uses
BARRIERS: Final = 192  # 16 x (i32 arrived, i32 popc of the last release, i32 participants of it, i32 0)
DEPTH: Final = 448  # i32: calls of recursive functions that are open
PARAM_BYTES: Final = 452  # i32: bytes of the parameter buffer
ACTIVE: Final = 456  # ptr: i32, helpers at work
TEXTURES: Final = 464  # ptr: table of texture and surface objects
SYSTEM: Final = 472  # ptr: C function that carries out system functions
WORKSPACE: Final = 480  # i64: what %envreg1 and %envreg2 answer: the grid's workspace; 0 unless the launch is cooperative
STOP: Final = 488  # ptr: i32, not 0 when another worker of a cooperative launch stopped; null for other launches
SITES: Final = 512  # per access site: (i64 start, i64 end) of the interval last hit
SITE_BYTES: Final = 16

# --- record -----------------------------------------------------------------------------------------------------------
RESUME: Final = 0  # i32: where to go on; 0 the start
REASON: Final = 4  # i32
MASK: Final = 8  # i32: threads of the warp that must come together
BARRIER: Final = 12  # i32
COUNT: Final = 16  # i32: threads the barrier waits for; 0 all
PUBLISHED: Final = 24  # i64: value for the others
RESULT: Final = 32  # i32: lanes that took part
TID: Final = 40  # 3 x i32
LANE: Final = 52  # i32
SPILLS: Final = 64

RUN: Final = 0
DONE: Final = 1
WARP_WAIT: Final = 2
BARRIER_WAIT: Final = 3
ACTIVE_WAIT: Final = 4

# --- warp snapshot ----------------------------------------------------------------------------------------------------
SNAPSHOT: Final = 0  # 32 x i64: PUBLISHED of each lane
BALLOT: Final = 256  # i32: lanes whose PUBLISHED has bit 0
WARP_BYTES: Final = 264

# --- faults -----------------------------------------------------------------------------------------------------------
FAULT_NONE: Final = 0
FAULT_ILLEGAL_ADDRESS: Final = 1
FAULT_MISALIGNED: Final = 2
FAULT_TRAP: Final = 3
FAULT_DEADLOCK: Final = 4
FAULT_LOCAL_OVERFLOW: Final = 5
FAULT_STACK_OVERFLOW: Final = 6
FAULT_BAD_CALL: Final = 7
FAULT_BAD_OBJECT: Final = 8
FAULT_SURFACE_RANGE: Final = 9
FAULT_ASSERT: Final = 10
