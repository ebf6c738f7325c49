"""LLVM IR of the executor: whole records from a buffer to the driver's entry points, replies to a buffer, without Python in between.

It does what `lanGPU.server.reference` does in Python, and returns for everything that needs a decision. Plain IR, no system calls: nothing
here depends on the processor. Every length is checked before it is used, so no record makes it read or write outside its buffers.

State (`executor.State`), 8 bytes each:

| index | field |
| --- | --- |
| 0 | rows: ENTRY_BYTES for each api_id below API_IDS, below |
| 1 | handles: 16 bytes for each index: u64 the driver's handle, u32 next in its bucket, u16 generation, u8 type (0: free), u8 0 |
| 2 | buckets: u32 for each of BUCKETS: index of the newest handle whose driver's value falls there, 0 for none |
| 3 | contexts: u64 for each thread: the driver's context that its calls want |
| 4, 5, 6 | output: address, bytes, bytes used |
| 7 | context that is bound in the issuing thread |
| 8 | cuCtxSetCurrent |
| 9, 10 | api_id and CUresult of the first failed posted call that was not reported yet; 0, 0 for none |
| 11, 12, 13 | failures: address of (u32 api_id, i32 CUresult) each, how many, how many more did not fit |
| 14 | records carried out |
| 15 | bytes consumed by the last `run` |
| 16 | answer of `real` |
| 17, 18, 19, 20 | cuStreamQuery, cuEventQuery, cuStreamIsCapturing, cuStreamSynchronize |
| 21, 22, 23 | streams: address of u64 for each named stream (at most MAX_STREAMS), how many, how many more did not fit |

Entry of a row:

| offset | size | field |
| --- | --- | --- |
| 0 | u64 | entry point; 0: the driver lacks it |
| 8 | u64 | entry point of the per-thread variant (the same, where cuda.h has none) |
| 16 | u8 | 1: there is such a row |
| 17 | u8 | Readiness: what tells whether a call that may block would return at once |
| 18 | u8 | index of the stream or event argument that is asked |
| 19 | u8 | 1: names are made, ended or looked up when the call succeeds |
| 20 | u8 | Shortcut, of hand-written rows |

A call that may block is asked about first, up to POLLS times: a wait that ends soon costs less here than on another thread. If it would
still block, Python gets it. For cuCtxSynchronize every stream is asked, but none while one captures: the question would end the capture.
| 24 | DESCRIPTOR_BYTES | `lanGPU.driverapi.descriptor` |
"""

from enum import IntEnum
from typing import Final

from lanGPU.constants import (
    CUDA_ERROR_INVALID_CONTEXT,
    CUDA_ERROR_INVALID_HANDLE,
    CUDA_ERROR_INVALID_VALUE,
    CUDA_ERROR_NOT_READY,
    CUDA_ERROR_NOT_SUPPORTED,
    MAX_ARGS,
    MAX_CSTRING_BYTES,
    MAX_HANDLES,
    MAX_KERNEL_PARAMS_BYTES,
    MAX_RECORD_BYTES,
    MAX_THREADS,
)
from lanGPU.driverapi.descriptor import DESCRIPTOR_BYTES, FLAG_BLOCKING, FLAG_REPORTS, FLAG_SERVER_PYTHON, NO_ARG
from lanGPU.driverapi.model import ArgKind, HandleType
from lanGPU.driverapi.table import MAX_API_ID
from lanGPU.server.call import UNRULED_BYTES
from lanGPU.server.reference import Reason
from lanGPU.wire.frames import HEADER_BYTES, FrameType, encode_header
from lanGPU.wire.records import (
    FLAG_PER_THREAD,
    FLAG_REPLY,
    HANDLE_GENERATION_SHIFT,
    HANDLE_INDEX_MASK,
    HANDLE_TAG,
    HANDLE_TAG_MASK,
    KNOWN_FLAGS,
    MAX_OUTPUT_BYTES,
    RECORD_HEADER,
    REPLY_HEADER,
)


class Readiness(IntEnum):
    """How the executor learns whether a call would return at once."""

    UNKNOWN = 0
    STREAM = 1
    """cuStreamQuery of an argument."""
    EVENT = 2
    """cuEventQuery of an argument."""
    DEFAULT_STREAM = 3
    """cuStreamQuery of the legacy stream, or of the per-thread one for that variant."""
    ALL = 4
    """cuStreamQuery of every stream of the session."""


class Shortcut(IntEnum):
    """Hand-written rows of which the simplest case is carried out here: up to SHORT_BYTES of outputs, and ready."""

    NONE = 0
    READY = 1
    THEN_WAIT = 2
    """Asynchronous: followed by cuStreamSynchronize, so that the outputs are there; not in a stream that captures."""


FUNCTIONS: Final = ("run", "define", "real", "virtual", "forget", "bind")
API_IDS: Final = MAX_API_ID + 1
DESCRIPTOR_AT: Final = 24
ENTRY_BYTES: Final = DESCRIPTOR_AT + DESCRIPTOR_BYTES
HANDLE_BYTES: Final = 16
BUCKETS_LOG2: Final = 16
BUCKETS: Final = 1 << BUCKETS_LOG2
"""Chains stay short for any session that is not at its limit of handles; the table costs 256 KiB of untouched memory."""
MAX_FAILURES: Final = 256
"""Failed posted calls kept for the log between two visits of Python; more are only counted."""

POLLS: Final = 20
"""Questions of a microsecond or two each: about what the handing over to another thread and back would take."""
MAX_STREAMS: Final = 16
"""With more streams than that, cuCtxSynchronize is left to a waiting thread at once."""
SHORT_BYTES: Final = 64 * 1024
"""Larger outputs are sent from where the driver put them."""

_HELPERS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare {i64, i1} @llvm.umul.with.overflow.i64(i64, i64)

define internal i64 @get(ptr %c, i64 %i) alwaysinline {
  %p = getelementptr i64, ptr %c, i64 %i
  %v = load i64, ptr %p
  ret i64 %v
}
define internal void @put(ptr %c, i64 %i, i64 %v) alwaysinline {
  %p = getelementptr i64, ptr %c, i64 %i
  store i64 %v, ptr %p
  ret void
}
define internal ptr @getp(ptr %c, i64 %i) alwaysinline {
  %v = call i64 @get(ptr %c, i64 %i)
  %p = inttoptr i64 %v to ptr
  ret ptr %p
}
define internal i64 @pad8(i64 %n) alwaysinline {
  %a = add i64 %n, 7
  %b = and i64 %a, -8
  ret i64 %b
}
; the place of a name in the table; null: not the form of a name
define internal ptr @place(ptr %c, i64 %vh) alwaysinline {
  %tag = and i64 %vh, {HANDLE_TAG_MASK}
  %ours = icmp eq i64 %tag, {HANDLE_TAG}
  %index = and i64 %vh, {HANDLE_INDEX_MASK}
  %below = sub i64 %index, 1
  %fits = icmp ult i64 %below, {LAST_HANDLE}
  %ok = and i1 %ours, %fits
  %at = mul i64 %index, {HANDLE_BYTES}
  %table = call ptr @getp(ptr %c, i64 1)
  %p = getelementptr i8, ptr %table, i64 %at
  %r = select i1 %ok, ptr %p, ptr null
  ret ptr %r
}
define internal i16 @generation(i64 %vh) alwaysinline {
  %s = lshr i64 %vh, {HANDLE_GENERATION_SHIFT}
  %g = trunc i64 %s to i16
  ret i16 %g
}
define internal ptr @bucket(ptr %c, i64 %real) alwaysinline {
  %h = mul i64 %real, -7046029254386353131
  %b = lshr i64 %h, {BUCKET_SHIFT}
  %table = call ptr @getp(ptr %c, i64 2)
  %p = getelementptr i32, ptr %table, i64 %b
  ret ptr %p
}
; the place of a name that is defined; null: it is not
define internal ptr @defined(ptr %c, i64 %vh) alwaysinline {
e:
  %p = call ptr @place(ptr %c, i64 %vh)
  %no = icmp eq ptr %p, null
  br i1 %no, label %none, label %look
look:
  %gp = getelementptr i8, ptr %p, i64 12
  %g = load i16, ptr %gp
  %want = call i16 @generation(i64 %vh)
  %same = icmp eq i16 %g, %want
  %tp = getelementptr i8, ptr %p, i64 14
  %t = load i8, ptr %tp
  %alive = icmp ne i8 %t, 0
  %ok = and i1 %same, %alive
  br i1 %ok, label %found, label %none
found:
  ret ptr %p
none:
  ret ptr null
}
; takes a living entry out of its bucket and frees it
define internal void @unlink(ptr %c, ptr %p) {
e:
  %table = call ptr @getp(ptr %c, i64 1)
  %pi = ptrtoint ptr %p to i64
  %ti = ptrtoint ptr %table to i64
  %off = sub i64 %pi, %ti
  %i64 = udiv i64 %off, {HANDLE_BYTES}
  %index = trunc i64 %i64 to i32
  %real = load i64, ptr %p
  %b = call ptr @bucket(ptr %c, i64 %real)
  br label %walk
walk:
  %link = phi ptr [%b, %e], [%np, %on]
  %i = load i32, ptr %link
  %end = icmp eq i32 %i, 0
  br i1 %end, label %free, label %compare
compare:
  %here = icmp eq i32 %i, %index
  br i1 %here, label %cut, label %on
on:
  %iz = zext i32 %i to i64
  %io = mul i64 %iz, {HANDLE_BYTES}
  %q = getelementptr i8, ptr %table, i64 %io
  %np = getelementptr i8, ptr %q, i64 8
  br label %walk
cut:
  %mine = getelementptr i8, ptr %p, i64 8
  %next = load i32, ptr %mine
  store i32 %next, ptr %link
  br label %free
free:
  %tp = getelementptr i8, ptr %p, i64 14
  %t = load i8, ptr %tp
  store i8 0, ptr %tp
  %stream = icmp eq i8 %t, {STREAM}
  br i1 %stream, label %drop, label %out
drop:
  call void @stream_gone(ptr %c, i64 %real)
  br label %out
out:
  ret void
}
define internal void @stream_new(ptr %c, i64 %real) {
e:
  %n = call i64 @get(ptr %c, i64 22)
  %full = icmp uge i64 %n, {MAX_STREAMS}
  br i1 %full, label %lost, label %keep
lost:
  %l = call i64 @get(ptr %c, i64 23)
  %l2 = add i64 %l, 1
  call void @put(ptr %c, i64 23, i64 %l2)
  ret void
keep:
  %list = call ptr @getp(ptr %c, i64 21)
  %p = getelementptr i64, ptr %list, i64 %n
  store i64 %real, ptr %p
  %n2 = add i64 %n, 1
  call void @put(ptr %c, i64 22, i64 %n2)
  ret void
}
define internal void @stream_gone(ptr %c, i64 %real) {
e:
  %n = call i64 @get(ptr %c, i64 22)
  %list = call ptr @getp(ptr %c, i64 21)
  br label %loop
loop:
  %i = phi i64 [0, %e], [%i2, %on]
  %end = icmp eq i64 %i, %n
  br i1 %end, label %lost, label %look
look:
  %p = getelementptr i64, ptr %list, i64 %i
  %v = load i64, ptr %p
  %same = icmp eq i64 %v, %real
  br i1 %same, label %found, label %on
on:
  %i2 = add i64 %i, 1
  br label %loop
found:
  %last = sub i64 %n, 1
  %lp = getelementptr i64, ptr %list, i64 %last
  %lv = load i64, ptr %lp
  store i64 %lv, ptr %p
  call void @put(ptr %c, i64 22, i64 %last)
  ret void
lost:
  %l = call i64 @get(ptr %c, i64 23)
  %l2 = sub i64 %l, 1
  call void @put(ptr %c, i64 23, i64 %l2)
  ret void
}
"""

_HANDLES = """
; 0: done; 1: not the form of a name
define i64 @define(ptr %c, i64 %vh, i64 %real, i64 %type) {
e:
  %p = call ptr @place(ptr %c, i64 %vh)
  %no = icmp eq ptr %p, null
  br i1 %no, label %bad, label %look
bad:
  ret i64 1
look:
  %tp = getelementptr i8, ptr %p, i64 14
  %t = load i8, ptr %tp
  %used = icmp ne i8 %t, 0
  br i1 %used, label %old, label %new
old:
  call void @unlink(ptr %c, ptr %p)
  br label %new
new:
  store i64 %real, ptr %p
  %g = call i16 @generation(i64 %vh)
  %gp = getelementptr i8, ptr %p, i64 12
  store i16 %g, ptr %gp
  %type8 = trunc i64 %type to i8
  store i8 %type8, ptr %tp
  %b = call ptr @bucket(ptr %c, i64 %real)
  %head = load i32, ptr %b
  %np = getelementptr i8, ptr %p, i64 8
  store i32 %head, ptr %np
  %index = and i64 %vh, {HANDLE_INDEX_MASK}
  %index32 = trunc i64 %index to i32
  store i32 %index32, ptr %b
  %stream = icmp eq i8 %type8, {STREAM}
  br i1 %stream, label %list, label %out
list:
  call void @stream_new(ptr %c, i64 %real)
  br label %out
out:
  ret i64 0
}
; 1: found, the driver's handle is the state's answer; 0: no such name of that type
define i64 @real(ptr %c, i64 %vh, i64 %type) {
e:
  %p = call ptr @defined(ptr %c, i64 %vh)
  %no = icmp eq ptr %p, null
  br i1 %no, label %none, label %look
look:
  %tp = getelementptr i8, ptr %p, i64 14
  %t = load i8, ptr %tp
  %type8 = trunc i64 %type to i8
  %same = icmp eq i8 %t, %type8
  br i1 %same, label %found, label %none
found:
  %v = load i64, ptr %p
  call void @put(ptr %c, i64 16, i64 %v)
  ret i64 1
none:
  ret i64 0
}
; the newest name of a driver's handle; 0: none
define i64 @virtual(ptr %c, i64 %real, i64 %type) {
e:
  %type8 = trunc i64 %type to i8
  %table = call ptr @getp(ptr %c, i64 1)
  %b = call ptr @bucket(ptr %c, i64 %real)
  br label %walk
walk:
  %link = phi ptr [%b, %e], [%np, %on]
  %i = load i32, ptr %link
  %end = icmp eq i32 %i, 0
  br i1 %end, label %none, label %compare
compare:
  %iz = zext i32 %i to i64
  %io = mul i64 %iz, {HANDLE_BYTES}
  %q = getelementptr i8, ptr %table, i64 %io
  %np = getelementptr i8, ptr %q, i64 8
  %v = load i64, ptr %q
  %tp = getelementptr i8, ptr %q, i64 14
  %t = load i8, ptr %tp
  %samev = icmp eq i64 %v, %real
  %samet = icmp eq i8 %t, %type8
  %here = and i1 %samev, %samet
  br i1 %here, label %found, label %on
on:
  br label %walk
found:
  %gp = getelementptr i8, ptr %q, i64 12
  %g = load i16, ptr %gp
  %gz = zext i16 %g to i64
  %gs = shl i64 %gz, {HANDLE_GENERATION_SHIFT}
  %vi = or i64 %gs, %iz
  %vh = or i64 %vi, {HANDLE_TAG}
  ret i64 %vh
none:
  ret i64 0
}
define void @forget(ptr %c, i64 %vh) {
e:
  %p = call ptr @defined(ptr %c, i64 %vh)
  %no = icmp eq ptr %p, null
  br i1 %no, label %none, label %free
free:
  call void @unlink(ptr %c, ptr %p)
  br label %none
none:
  ret void
}
; makes a thread's context current; the CUresult of cuCtxSetCurrent
define i32 @bind(ptr %c, i64 %thread) {
e:
  %cs = call ptr @getp(ptr %c, i64 3)
  %wp = getelementptr i64, ptr %cs, i64 %thread
  %want = load i64, ptr %wp
  %have = call i64 @get(ptr %c, i64 7)
  %same = icmp eq i64 %want, %have
  br i1 %same, label %ok, label %other
ok:
  ret i32 0
other:
  %f = call ptr @getp(ptr %c, i64 8)
  %no = icmp eq ptr %f, null
  br i1 %no, label %lacks, label %set
lacks:
  ret i32 {CUDA_ERROR_NOT_SUPPORTED}
set:
  %r = call i32 %f(i64 %want)
  %bad = icmp ne i32 %r, 0
  br i1 %bad, label %failed, label %bound
failed:
  ret i32 %r
bound:
  call void @put(ptr %c, i64 7, i64 %want)
  ret i32 0
}
"""

_READY = """
; cuStreamQuery or cuEventQuery says that nothing is left to do, or fails; up to {POLLS} questions
define internal i1 @ready(ptr %query, i64 %handle) {
e:
  %none = icmp eq ptr %query, null
  br i1 %none, label %no, label %loop
loop:
  %i = phi i64 [0, %e], [%i2, %again]
  %r = call i32 %query(i64 %handle)
  %busy = icmp eq i32 %r, {CUDA_ERROR_NOT_READY}
  br i1 %busy, label %again, label %yes
again:
  %i2 = add i64 %i, 1
  %more = icmp ult i64 %i2, {POLLS}
  br i1 %more, label %loop, label %no
yes:
  ret i1 true
no:
  ret i1 false
}
; neither captures nor cannot be asked
define internal i1 @plain(ptr %c, i64 %stream) {
e:
  %status = alloca i64
  store i64 0, ptr %status
  %f = call ptr @getp(ptr %c, i64 19)
  %none = icmp eq ptr %f, null
  br i1 %none, label %no, label %ask
ask:
  %r = call i32 %f(i64 %stream, ptr %status)
  %failed = icmp ne i32 %r, 0
  %s = load i32, ptr %status
  %captures = icmp ne i32 %s, 0
  %bad = or i1 %failed, %captures
  br i1 %bad, label %no, label %yes
yes:
  ret i1 true
no:
  ret i1 false
}
; every stream of the session is idle
define internal i1 @all_ready(ptr %c) {
e:
  %lost = call i64 @get(ptr %c, i64 23)
  %some = icmp ne i64 %lost, 0
  br i1 %some, label %no, label %start
start:
  %query = call ptr @getp(ptr %c, i64 17)
  %list = call ptr @getp(ptr %c, i64 21)
  %n = call i64 @get(ptr %c, i64 22)
  br label %capture
capture:
  %i = phi i64 [0, %start], [%i2, %capture.next]
  %end = icmp eq i64 %i, %n
  br i1 %end, label %defaults, label %capture.one
capture.one:
  %p = getelementptr i64, ptr %list, i64 %i
  %s = load i64, ptr %p
  %plain = call i1 @plain(ptr %c, i64 %s)
  br i1 %plain, label %capture.next, label %no
capture.next:
  %i2 = add i64 %i, 1
  br label %capture
defaults:
  %legacy = call i1 @ready(ptr %query, i64 0)
  br i1 %legacy, label %own, label %no
own:
  %per_thread = call i1 @ready(ptr %query, i64 2)
  br i1 %per_thread, label %loop, label %no
loop:
  %k = phi i64 [0, %own], [%k2, %next]
  %done = icmp eq i64 %k, %n
  br i1 %done, label %yes, label %one
one:
  %kp = getelementptr i64, ptr %list, i64 %k
  %ks = load i64, ptr %kp
  %ok = call i1 @ready(ptr %query, i64 %ks)
  br i1 %ok, label %next, label %no
next:
  %k2 = add i64 %k, 1
  br label %loop
yes:
  ret i1 true
no:
  ret i1 false
}
"""

_RUN = """
; carries out records of %base[0..%n); returns a Reason, the consumed bytes are in the state
define i64 @run(ptr %c, ptr %base, i64 %n) {
e:
  %args = alloca [{MAX_ARGS} x i64]
  %slots = alloca [{MAX_ARGS} x i64]
  %places = alloca [{MAX_ARGS} x i64]
  %scratch = alloca [{SCRATCH_WORDS} x i64]
  %extra = alloca [5 x i64]
  %length = alloca i64
  %at.v = alloca i64
  %blob.v = alloca i64
  %out.v = alloca ptr
  %result.v = alloca i32
  %waited.v = alloca i64
  call void @llvm.memset.p0.i64(ptr %args, i8 0, i64 {ARGS_BYTES}, i1 false)
  store i64 0, ptr %at.v
  br label %loop

loop:
  %at = load i64, ptr %at.v
  %left = sub i64 %n, %at
  %nothing = icmp eq i64 %left, 0
  br i1 %nothing, label %done, label %head
done:
  br label %stop
head:
  %short = icmp ult i64 %left, {RECORD_HEADER}
  br i1 %short, label %partial, label %fields
partial:
  br label %stop
corrupt:
  br label %stop
stop:
  %reason = phi i64 [{DONE}, %done], [{PARTIAL}, %partial], [{CORRUPT}, %corrupt], [{PYTHON}, %python], [{BLOCKING}, %blocking.stop],
    [{OUTPUT_FULL}, %full]
  call void @put(ptr %c, i64 15, i64 %at)
  ret i64 %reason

fields:
  %rec = getelementptr i8, ptr %base, i64 %at
  %size32 = load i32, ptr %rec, align 1
  %size = zext i32 %size32 to i64
  %api.p = getelementptr i8, ptr %rec, i64 4
  %api = load i16, ptr %api.p, align 1
  %flags.p = getelementptr i8, ptr %rec, i64 6
  %flags = load i16, ptr %flags.p, align 1
  %thread.p = getelementptr i8, ptr %rec, i64 8
  %thread32 = load i32, ptr %thread.p, align 1
  %thread = zext i32 %thread32 to i64
  %token.p = getelementptr i8, ptr %rec, i64 12
  %token = load i32, ptr %token.p, align 1
  %odd = and i64 %size, 7
  %bad1 = icmp ne i64 %odd, 0
  %bad2 = icmp ugt i64 %size, {MAX_RECORD_BYTES}
  %bad3 = icmp uge i64 %thread, {MAX_THREADS}
  %unknown = and i16 %flags, {UNKNOWN_FLAGS}
  %bad4 = icmp ne i16 %unknown, 0
  %reply.f = and i16 %flags, {FLAG_REPLY}
  %asks = icmp ne i16 %reply.f, 0
  %named = icmp ne i32 %token, 0
  %bad5 = xor i1 %asks, %named
  %bad6 = icmp uge i16 %api, {API_IDS}
  %bad7 = icmp ult i64 %size, {RECORD_HEADER}
  %b1 = or i1 %bad1, %bad2
  %b2 = or i1 %bad3, %bad4
  %b3 = or i1 %bad5, %bad6
  %b4 = or i1 %b1, %b2
  %b5 = or i1 %b3, %bad7
  %bad = or i1 %b4, %b5
  br i1 %bad, label %corrupt, label %row
row:
  %api64 = zext i16 %api to i64
  %entry.o = mul i64 %api64, {ENTRY_BYTES}
  %rows = call ptr @getp(ptr %c, i64 0)
  %entry = getelementptr i8, ptr %rows, i64 %entry.o
  %known.p = getelementptr i8, ptr %entry, i64 16
  %known8 = load i8, ptr %known.p
  %known = icmp ne i8 %known8, 0
  br i1 %known, label %whole, label %corrupt
whole:
  %cut = icmp ult i64 %left, %size
  br i1 %cut, label %partial, label %whose
whose:
  %desc = getelementptr i8, ptr %entry, i64 {DESCRIPTOR_AT}
  %n.p = getelementptr i8, ptr %desc, i64 2
  %n8 = load i8, ptr %n.p
  %nargs = zext i8 %n8 to i64
  %df.p = getelementptr i8, ptr %desc, i64 4
  %df = load i8, ptr %df.p
  %py.f = and i8 %df, {FLAG_SERVER_PYTHON}
  %py = icmp ne i8 %py.f, 0
  %short.p = getelementptr i8, ptr %entry, i64 20
  %short8 = load i8, ptr %short.p
  %long = icmp eq i8 %short8, {SHORTCUT_NONE}
  %py.now = and i1 %py, %long
  br i1 %py.now, label %python, label %shape
python:
  br label %stop

; --- does the record's size fit its arguments, and do the outputs fit a reply? ---
shape:
  %words = getelementptr i8, ptr %rec, i64 {RECORD_HEADER}
  %words.n = mul i64 %nargs, 8
  %blobs = add i64 %words.n, {RECORD_HEADER}
  %few = icmp ult i64 %size, %blobs
  br i1 %few, label %corrupt, label %shape.loop
shape.loop:
  %si = phi i64 [0, %shape], [%si.next, %shape.next]
  %sb = phi i64 [%blobs, %shape], [%sb.next, %shape.next]
  %so = phi i64 [0, %shape], [%so.next, %shape.next]
  %s.end = icmp eq i64 %si, %nargs
  br i1 %s.end, label %shape.end, label %shape.arg
shape.arg:
  %sw.o = mul i64 %si, 8
  %sw.p = getelementptr i8, ptr %words, i64 %sw.o
  %sw = load i64, ptr %sw.p, align 1
  %sd.o = add i64 %sw.o, 8
  %sd = getelementptr i8, ptr %desc, i64 %sd.o
  %s.kind = load i8, ptr %sd
  %s.null = icmp eq i64 %sw, -1
  %s.padded = call i64 @pad8(i64 %sw)
  switch i8 %s.kind, label %shape.next [
    i8 {BYTES_IN}, label %shape.blob
    i8 {CSTRING}, label %shape.blob
    i8 {KERNEL_PARAMS}, label %shape.blob
    i8 {BYTES_INOUT}, label %shape.both
    i8 {BYTES_OUT}, label %shape.out
    i8 {HANDLE_QUERY}, label %shape.query
    i8 {KERNEL_EXTRA}, label %shape.zero
    i8 {NULL_ONLY}, label %shape.zero
  ]
shape.blob:
  br i1 %s.null, label %shape.next, label %shape.blob2
shape.blob2:
  %s.room = sub i64 %size, %sb
  %s.long = icmp ugt i64 %sw, %s.room
  %sb2 = add i64 %sb, %s.padded
  br i1 %s.long, label %corrupt, label %shape.next
shape.both:
  br i1 %s.null, label %shape.next, label %shape.both2
shape.both2:
  %s.room2 = sub i64 %size, %sb
  %s.long2 = icmp ugt i64 %sw, %s.room2
  %sb3 = add i64 %sb, %s.padded
  br i1 %s.long2, label %corrupt, label %shape.both3
shape.both3:
  %so3 = add i64 %so, %s.padded
  br label %shape.next
shape.out:
  br i1 %s.null, label %shape.next, label %shape.out2
shape.out2:
  %s.huge = icmp ugt i64 %sw, {MAX_OUTPUT_BYTES}
  %so2 = add i64 %so, %s.padded
  br i1 %s.huge, label %corrupt, label %shape.next
shape.query:
  %s.asked = icmp ne i64 %sw, 0
  %s.eight = select i1 %s.asked, i64 8, i64 0
  %so4 = add i64 %so, %s.eight
  br label %shape.next
shape.zero:
  %s.not0 = icmp ne i64 %sw, 0
  br i1 %s.not0, label %corrupt, label %shape.next
shape.next:
  %sb.next = phi i64 [%sb, %shape.arg], [%sb, %shape.blob], [%sb2, %shape.blob2], [%sb, %shape.both], [%sb3, %shape.both3],
    [%sb, %shape.out], [%sb, %shape.out2], [%sb, %shape.query], [%sb, %shape.zero]
  %so.next = phi i64 [%so, %shape.arg], [%so, %shape.blob], [%so, %shape.blob2], [%so, %shape.both], [%so3, %shape.both3],
    [%so, %shape.out], [%so2, %shape.out2], [%so4, %shape.query], [%so, %shape.zero]
  %si.next = add i64 %si, 1
  br label %shape.loop
shape.end:
  %s.exact = icmp eq i64 %sb, %size
  %s.fits = icmp ule i64 %so, {MAX_OUTPUT_BYTES}
  %s.ok = and i1 %s.exact, %s.fits
  br i1 %s.ok, label %short.size, label %corrupt
short.size:
  %short.over = icmp ugt i64 %so, {SHORT_BYTES}
  %short.no = and i1 %py, %short.over
  br i1 %short.no, label %python, label %room
room:
  %used = call i64 @get(ptr %c, i64 6)
  %capacity = call i64 @get(ptr %c, i64 5)
  %out.at = add i64 %used, {REPLY_AT}
  %out.end = add i64 %out.at, %so
  %over = icmp ugt i64 %out.end, %capacity
  br i1 %over, label %full, label %prepare
full:
  br label %stop

; --- the driver's arguments ---
prepare:
  %output = call ptr @getp(ptr %c, i64 4)
  %frame = getelementptr i8, ptr %output, i64 %used
  %out.first = getelementptr i8, ptr %output, i64 %out.at
  store ptr %out.first, ptr %out.v
  store i64 %blobs, ptr %blob.v
  br label %arg.loop
arg.loop:
  %i = phi i64 [0, %prepare], [%i.next, %arg.next]
  %i.end = icmp eq i64 %i, %nargs
  br i1 %i.end, label %arg.end, label %arg
arg:
  %w.o = mul i64 %i, 8
  %w.p = getelementptr i8, ptr %words, i64 %w.o
  %w = load i64, ptr %w.p, align 1
  %d.o = add i64 %w.o, 8
  %d = getelementptr i8, ptr %desc, i64 %d.o
  %kind = load i8, ptr %d
  %type.p = getelementptr i8, ptr %d, i64 1
  %type = load i8, ptr %type.p
  %a.p = getelementptr i64, ptr %args, i64 %i
  %slot.p = getelementptr i64, ptr %slots, i64 %i
  %place.p = getelementptr i64, ptr %places, i64 %i
  %null = icmp eq i64 %w, -1
  %zero = icmp eq i64 %w, 0
  %padded = call i64 @pad8(i64 %w)
  switch i8 %kind, label %corrupt [
    i8 {SCALAR}, label %a.plain
    i8 {SIZE}, label %a.plain
    i8 {DPTR}, label %a.plain
    i8 {HANDLE}, label %a.handle
    i8 {HANDLE_DESTROY}, label %a.handle
    i8 {HANDLE_OUT}, label %a.name
    i8 {HANDLE_QUERY}, label %a.query
    i8 {BYTES_IN}, label %a.sized
    i8 {BYTES_OUT}, label %a.sized
    i8 {BYTES_INOUT}, label %a.sized
    i8 {CSTRING}, label %a.string
    i8 {KERNEL_PARAMS}, label %a.params
    i8 {KERNEL_EXTRA}, label %arg.next
    i8 {NULL_ONLY}, label %a.null
  ]
a.plain:
  store i64 %w, ptr %a.p
  br label %arg.next
a.null:
  store i64 0, ptr %a.p
  br label %arg.next

a.handle:
  %h.stream = icmp eq i8 %type, {STREAM}
  %h.special = icmp ule i64 %w, 2
  %h.pass1 = and i1 %h.stream, %h.special
  %h.pass = or i1 %h.pass1, %zero
  br i1 %h.pass, label %a.plain, label %h.look
h.look:
  %h.place = call ptr @defined(ptr %c, i64 %w)
  %h.none = icmp eq ptr %h.place, null
  br i1 %h.none, label %h.invalid, label %h.typed
h.typed:
  %h.tp = getelementptr i8, ptr %h.place, i64 14
  %h.t = load i8, ptr %h.tp
  %h.same = icmp eq i8 %h.t, %type
  br i1 %h.same, label %h.found, label %h.invalid
h.found:
  %h.real = load i64, ptr %h.place
  store i64 %h.real, ptr %a.p
  br label %arg.next
h.invalid:
  %h.ctx = icmp eq i8 %type, {CONTEXT}
  %h.result = select i1 %h.ctx, i32 {CUDA_ERROR_INVALID_CONTEXT}, i32 {CUDA_ERROR_INVALID_HANDLE}
  store i32 %h.result, ptr %result.v
  br label %finish

a.name:
  br i1 %zero, label %a.null, label %n.check
n.check:
  %n.place = call ptr @place(ptr %c, i64 %w)
  %n.none = icmp eq ptr %n.place, null
  br i1 %n.none, label %corrupt, label %a.slot
a.query:
  br i1 %zero, label %a.null, label %q.place
q.place:
  %q.out = load ptr, ptr %out.v
  %q.out.i = ptrtoint ptr %q.out to i64
  store i64 %q.out.i, ptr %place.p
  %q.next = getelementptr i8, ptr %q.out, i64 8
  store ptr %q.next, ptr %out.v
  br label %a.slot
a.slot:
  store i64 0, ptr %slot.p
  %slot.i = ptrtoint ptr %slot.p to i64
  store i64 %slot.i, ptr %a.p
  br label %arg.next

a.sized:
  br i1 %null, label %z.null, label %z.rule
z.null:
  br i1 %py, label %python, label %a.null
; hand-written code has its own answer to what does not fit
z.misfit:
  br i1 %py, label %python, label %corrupt
z.rule:
  %z.from.p = getelementptr i8, ptr %d, i64 2
  %z.from = load i8, ptr %z.from.p
  %z.const.p = getelementptr i8, ptr %d, i64 4
  %z.const32 = load i32, ptr %z.const.p
  %z.const = zext i32 %z.const32 to i64
  %z.fixed = icmp eq i8 %z.from, {NO_ARG}
  br i1 %z.fixed, label %z.fixed.l, label %z.counted
z.fixed.l:
  %z.free = icmp eq i32 %z.const32, 0
  br i1 %z.free, label %z.scratch, label %z.check
z.counted:
  %z.fi = zext i8 %z.from to i64
  %z.fo = mul i64 %z.fi, 8
  %z.fp = getelementptr i8, ptr %words, i64 %z.fo
  %z.fw = load i64, ptr %z.fp, align 1
  %z.fd.o = add i64 %z.fo, 8
  %z.fd = getelementptr i8, ptr %desc, i64 %z.fd.o
  %z.fk = load i8, ptr %z.fd
  %z.narrow = icmp eq i8 %z.fk, {SCALAR}
  %z.low = and i64 %z.fw, 4294967295
  %z.count = select i1 %z.narrow, i64 %z.low, i64 %z.fw
  %z.mul = call {i64, i1} @llvm.umul.with.overflow.i64(i64 %z.count, i64 %z.const)
  %z.product = extractvalue {i64, i1} %z.mul, 0
  %z.wrapped = extractvalue {i64, i1} %z.mul, 1
  br i1 %z.wrapped, label %z.misfit, label %z.check
z.check:
  %z.need = phi i64 [%z.const, %z.fixed.l], [%z.product, %z.counted]
  %z.less = icmp ult i64 %w, %z.need
  br i1 %z.less, label %z.misfit, label %z.kind
z.kind:
  switch i8 %kind, label %z.out [
    i8 {BYTES_IN}, label %z.in
    i8 {BYTES_INOUT}, label %z.both
  ]
z.in:
  %zi.at = load i64, ptr %blob.v
  %zi.p = getelementptr i8, ptr %rec, i64 %zi.at
  %zi.i = ptrtoint ptr %zi.p to i64
  store i64 %zi.i, ptr %a.p
  %zi.next = add i64 %zi.at, %padded
  store i64 %zi.next, ptr %blob.v
  br label %arg.next
z.both:
  %zb.at = load i64, ptr %blob.v
  %zb.p = getelementptr i8, ptr %rec, i64 %zb.at
  %zb.next = add i64 %zb.at, %padded
  store i64 %zb.next, ptr %blob.v
  %zb.out = load ptr, ptr %out.v
  %zb.rest = getelementptr i8, ptr %zb.out, i64 %w
  %zb.pad = sub i64 %padded, %w
  call void @llvm.memcpy.p0.p0.i64(ptr %zb.out, ptr %zb.p, i64 %w, i1 false)
  call void @llvm.memset.p0.i64(ptr %zb.rest, i8 0, i64 %zb.pad, i1 false)
  br label %z.placed
z.out:
  %zo.out = load ptr, ptr %out.v
  call void @llvm.memset.p0.i64(ptr %zo.out, i8 0, i64 %padded, i1 false)
  br label %z.placed
z.placed:
  %zp.out = load ptr, ptr %out.v
  %zp.i = ptrtoint ptr %zp.out to i64
  store i64 %zp.i, ptr %a.p
  %zp.next = getelementptr i8, ptr %zp.out, i64 %padded
  store ptr %zp.next, ptr %out.v
  br label %arg.next
; no rule tells the size: the driver gets memory for the largest value there is
z.scratch:
  %zs.big = icmp ugt i64 %w, {SCRATCH_BYTES}
  br i1 %zs.big, label %corrupt, label %zs.ok
zs.ok:
  call void @llvm.memset.p0.i64(ptr %scratch, i8 0, i64 {SCRATCH_BYTES}, i1 false)
  %zs.i = ptrtoint ptr %scratch to i64
  store i64 %zs.i, ptr %a.p
  %zs.isin = icmp eq i8 %kind, {BYTES_IN}
  br i1 %zs.isin, label %zs.in, label %zs.out
zs.in:
  %zsi.at = load i64, ptr %blob.v
  %zsi.p = getelementptr i8, ptr %rec, i64 %zsi.at
  call void @llvm.memcpy.p0.p0.i64(ptr %scratch, ptr %zsi.p, i64 %w, i1 false)
  %zsi.next = add i64 %zsi.at, %padded
  store i64 %zsi.next, ptr %blob.v
  br label %arg.next
zs.out:
  %zso.out = load ptr, ptr %out.v
  call void @llvm.memset.p0.i64(ptr %zso.out, i8 0, i64 %padded, i1 false)
  %zso.i = ptrtoint ptr %zso.out to i64
  store i64 %zso.i, ptr %place.p
  %zso.next = getelementptr i8, ptr %zso.out, i64 %padded
  store ptr %zso.next, ptr %out.v
  br label %arg.next

a.string:
  br i1 %null, label %a.null, label %t.check
t.check:
  %t.at = load i64, ptr %blob.v
  %t.p = getelementptr i8, ptr %rec, i64 %t.at
  %t.below = sub i64 %w, 1
  %t.fits = icmp ult i64 %t.below, {MAX_CSTRING_BYTES}
  br i1 %t.fits, label %t.last, label %corrupt
t.last:
  %t.lp = getelementptr i8, ptr %t.p, i64 %t.below
  %t.c = load i8, ptr %t.lp
  %t.nul = icmp eq i8 %t.c, 0
  br i1 %t.nul, label %z.in, label %corrupt

a.params:
  %k.next.p = getelementptr i64, ptr %a.p, i64 1
  store i64 0, ptr %k.next.p
  br i1 %null, label %a.null, label %k.size
k.size:
  %k.big = icmp ugt i64 %w, {MAX_KERNEL_PARAMS_BYTES}
  br i1 %k.big, label %k.refuse, label %k.pack
k.refuse:
  store i32 {CUDA_ERROR_INVALID_VALUE}, ptr %result.v
  br label %finish
k.pack:
  %k.at = load i64, ptr %blob.v
  %k.p = getelementptr i8, ptr %rec, i64 %k.at
  %k.next = add i64 %k.at, %padded
  store i64 %k.next, ptr %blob.v
  store i64 %w, ptr %length
  %k.e1 = getelementptr i64, ptr %extra, i64 1
  %k.e2 = getelementptr i64, ptr %extra, i64 2
  %k.e3 = getelementptr i64, ptr %extra, i64 3
  %k.e4 = getelementptr i64, ptr %extra, i64 4
  store i64 1, ptr %extra
  store ptr %k.p, ptr %k.e1
  store i64 2, ptr %k.e2
  store ptr %length, ptr %k.e3
  store i64 0, ptr %k.e4
  %k.extra = ptrtoint ptr %extra to i64
  store i64 %k.extra, ptr %k.next.p
  br label %a.null

arg.next:
  %i.next = add i64 %i, 1
  br label %arg.loop

; --- the call ---
arg.end:
  %bound = call i32 @bind(ptr %c, i64 %thread)
  store i32 %bound, ptr %result.v
  %unbound = icmp ne i32 %bound, 0
  br i1 %unbound, label %finish, label %wait
wait:
  %pt.f = and i16 %flags, {FLAG_PER_THREAD}
  %pt = icmp ne i16 %pt.f, 0
  %bl.f = and i8 %df, {FLAG_BLOCKING}
  %bl = icmp ne i8 %bl.f, 0
  %slow = or i1 %bl, %py
  br i1 %slow, label %may.block, label %go
may.block:
  %ra.p = getelementptr i8, ptr %entry, i64 18
  %ra = load i8, ptr %ra.p
  %ra64 = zext i8 %ra to i64
  %rv.p = getelementptr i64, ptr %args, i64 %ra64
  %rm.p = getelementptr i8, ptr %entry, i64 17
  %rm = load i8, ptr %rm.p
  %own = select i1 %pt, i64 2, i64 0
  %query = call ptr @getp(ptr %c, i64 17)
  switch i8 %rm, label %blocking [
    i8 {READY_STREAM}, label %ready.stream
    i8 {READY_EVENT}, label %ready.event
    i8 {READY_DEFAULT_STREAM}, label %ready.query
    i8 {READY_ALL}, label %ready.all
  ]
ready.all:
  %all = call i1 @all_ready(ptr %c)
  br i1 %all, label %go, label %blocking
ready.event:
  %ev = load i64, ptr %rv.p
  %ev.query = call ptr @getp(ptr %c, i64 18)
  %ev.ok = call i1 @ready(ptr %ev.query, i64 %ev)
  br i1 %ev.ok, label %go, label %blocking
ready.stream:
  %rs0 = load i64, ptr %rv.p
  %rs.null = icmp eq i64 %rs0, 0
  %rs1 = select i1 %rs.null, i64 %own, i64 %rs0
  %rs.guard = icmp eq i8 %short8, {SHORTCUT_THEN_WAIT}
  br i1 %rs.guard, label %ready.capture, label %ready.query
ready.capture:
  %rs.plain = call i1 @plain(ptr %c, i64 %rs1)
  br i1 %rs.plain, label %ready.query, label %blocking
ready.query:
  %waited = phi i64 [%own, %may.block], [%rs1, %ready.stream], [%rs1, %ready.capture]
  %rq.ok = call i1 @ready(ptr %query, i64 %waited)
  store i64 %waited, ptr %waited.v
  br i1 %rq.ok, label %go, label %blocking
blocking:
  br i1 %py, label %python, label %blocking.stop
blocking.stop:
  br label %stop
go:
  %f.o = select i1 %pt, i64 8, i64 0
  %f.p = getelementptr i8, ptr %entry, i64 %f.o
  %f = load ptr, ptr %f.p
  %lacks = icmp eq ptr %f, null
  br i1 %lacks, label %unsupported, label %call
unsupported:
  store i32 {CUDA_ERROR_NOT_SUPPORTED}, ptr %result.v
  br label %finish
call:
{LOADS}
  %called = call i32 %f({ARGUMENTS})
  store i32 %called, ptr %result.v
  %failed = icmp ne i32 %called, 0
  br i1 %failed, label %finish, label %then
then:
  %then.wait = icmp eq i8 %short8, {SHORTCUT_THEN_WAIT}
  br i1 %then.wait, label %join, label %after
join:
  %join.f = call ptr @getp(ptr %c, i64 20)
  %join.none = icmp eq ptr %join.f, null
  br i1 %join.none, label %unsupported, label %join.call
join.call:
  %join.s = load i64, ptr %waited.v
  %join.r = call i32 %join.f(i64 %join.s)
  store i32 %join.r, ptr %result.v
  %join.bad = icmp ne i32 %join.r, 0
  br i1 %join.bad, label %finish, label %after
after:
  %fx.p = getelementptr i8, ptr %entry, i64 19
  %fx8 = load i8, ptr %fx.p
  %fx = icmp ne i8 %fx8, 0
  br i1 %fx, label %fx.loop, label %finish

; --- names made and ended, then names looked up ---
fx.loop:
  %x = phi i64 [0, %after], [%x.next, %fx.next]
  %x.end = icmp eq i64 %x, %nargs
  br i1 %x.end, label %ask.loop, label %fx.arg
fx.arg:
  %xw.o = mul i64 %x, 8
  %xw.p = getelementptr i8, ptr %words, i64 %xw.o
  %xw = load i64, ptr %xw.p, align 1
  %xd.o = add i64 %xw.o, 8
  %xd = getelementptr i8, ptr %desc, i64 %xd.o
  %x.kind = load i8, ptr %xd
  %x.zero = icmp eq i64 %xw, 0
  %x.kind2 = select i1 %x.zero, i8 {SCALAR}, i8 %x.kind
  switch i8 %x.kind2, label %fx.next [
    i8 {HANDLE_OUT}, label %x.made
    i8 {HANDLE_DESTROY}, label %x.ended
  ]
x.made:
  %xt.p = getelementptr i8, ptr %xd, i64 1
  %xt8 = load i8, ptr %xt.p
  %xt = zext i8 %xt8 to i64
  %xs.p = getelementptr i64, ptr %slots, i64 %x
  %xs = load i64, ptr %xs.p
  %x.d = call i64 @define(ptr %c, i64 %xw, i64 %xs, i64 %xt)
  br label %fx.next
x.ended:
  call void @forget(ptr %c, i64 %xw)
  br label %fx.next
fx.next:
  %x.next = add i64 %x, 1
  br label %fx.loop
ask.loop:
  %y = phi i64 [0, %fx.loop], [%y.next, %ask.next]
  %y.end = icmp eq i64 %y, %nargs
  br i1 %y.end, label %finish, label %ask.arg
ask.arg:
  %yw.o = mul i64 %y, 8
  %yw.p = getelementptr i8, ptr %words, i64 %yw.o
  %yw = load i64, ptr %yw.p, align 1
  %yd.o = add i64 %yw.o, 8
  %yd = getelementptr i8, ptr %desc, i64 %yd.o
  %y.kind = load i8, ptr %yd
  %y.to.p = getelementptr i64, ptr %places, i64 %y
  switch i8 %y.kind, label %ask.next [
    i8 {HANDLE_QUERY}, label %y.query
    i8 {BYTES_OUT}, label %y.bytes
  ]
y.query:
  %y.null = icmp eq i64 %yw, 0
  br i1 %y.null, label %ask.next, label %y.asked
y.asked:
  %yt.p = getelementptr i8, ptr %yd, i64 1
  %yt8 = load i8, ptr %yt.p
  %yt = zext i8 %yt8 to i64
  %ys.p = getelementptr i64, ptr %slots, i64 %y
  %ys = load i64, ptr %ys.p
  %y.place = load ptr, ptr %y.to.p
  %y.stream = icmp eq i8 %yt8, {STREAM}
  %y.special = icmp ule i64 %ys, 2
  %y.pass1 = and i1 %y.stream, %y.special
  %y.none = icmp eq i64 %ys, 0
  %y.pass = or i1 %y.pass1, %y.none
  br i1 %y.pass, label %y.store, label %y.find
y.find:
  %y.name = call i64 @virtual(ptr %c, i64 %ys, i64 %yt)
  %y.nameless = icmp eq i64 %y.name, 0
  br i1 %y.nameless, label %unsupported, label %y.store
y.store:
  %y.value = phi i64 [%ys, %y.asked], [%y.name, %y.find]
  store i64 %y.value, ptr %y.place, align 1
  br label %ask.next
y.bytes:
  %yf.p = getelementptr i8, ptr %yd, i64 2
  %yf = load i8, ptr %yf.p
  %yc.p = getelementptr i8, ptr %yd, i64 4
  %yc = load i32, ptr %yc.p
  %y.fixed = icmp eq i8 %yf, {NO_ARG}
  %y.free = icmp eq i32 %yc, 0
  %y.given = icmp ne i64 %yw, -1
  %y.s1 = and i1 %y.fixed, %y.free
  %y.s = and i1 %y.s1, %y.given
  br i1 %y.s, label %y.copy, label %ask.next
y.copy:
  %yc.to = load ptr, ptr %y.to.p
  call void @llvm.memcpy.p0.p0.i64(ptr %yc.to, ptr %scratch, i64 %yw, i1 false)
  br label %ask.next
ask.next:
  %y.next = add i64 %y, 1
  br label %ask.loop

; --- the reply, or a posted call's failure ---
finish:
  %r = load i32, ptr %result.v
  %count = call i64 @get(ptr %c, i64 14)
  %count2 = add i64 %count, 1
  call void @put(ptr %c, i64 14, i64 %count2)
  %at2 = add i64 %at, %size
  store i64 %at2, ptr %at.v
  %ok = icmp eq i32 %r, 0
  br i1 %asks, label %reply, label %posted
posted:
  br i1 %ok, label %loop, label %note
note:
  %deferred = call i64 @get(ptr %c, i64 10)
  %first = icmp eq i64 %deferred, 0
  %r64 = zext i32 %r to i64
  br i1 %first, label %defer, label %queue
defer:
  call void @put(ptr %c, i64 9, i64 %api64)
  call void @put(ptr %c, i64 10, i64 %r64)
  br label %queue
queue:
  %fc = call i64 @get(ptr %c, i64 12)
  %fc.full = icmp uge i64 %fc, {MAX_FAILURES}
  br i1 %fc.full, label %lost, label %keep
lost:
  %lc = call i64 @get(ptr %c, i64 13)
  %lc2 = add i64 %lc, 1
  call void @put(ptr %c, i64 13, i64 %lc2)
  br label %loop
keep:
  %fs = call ptr @getp(ptr %c, i64 11)
  %fq = getelementptr i64, ptr %fs, i64 %fc
  %rs = shl i64 %r64, 32
  %pair = or i64 %rs, %api64
  store i64 %pair, ptr %fq
  %fc2 = add i64 %fc, 1
  call void @put(ptr %c, i64 12, i64 %fc2)
  br label %loop
reply:
  %rp.f = and i8 %df, {FLAG_REPORTS}
  %rp = icmp ne i8 %rp.f, 0
  %may = and i1 %ok, %rp
  br i1 %may, label %owed, label %write
owed:
  %owed.r = call i64 @get(ptr %c, i64 10)
  %owed.none = icmp eq i64 %owed.r, 0
  br i1 %owed.none, label %write, label %pay
pay:
  %owed.api = call i64 @get(ptr %c, i64 9)
  call void @put(ptr %c, i64 9, i64 0)
  call void @put(ptr %c, i64 10, i64 0)
  %owed.r32 = trunc i64 %owed.r to i32
  %owed.api32 = trunc i64 %owed.api to i32
  br label %write
write:
  %told = phi i32 [%r, %reply], [0, %owed], [%owed.r32, %pay]
  %told.api = phi i32 [0, %reply], [0, %owed], [%owed.api32, %pay]
  %good = icmp eq i32 %told, 0
  %bytes = select i1 %good, i64 %so, i64 0
  %bulk = add i64 %bytes, {REPLY_HEADER}
  %bulk.s = shl i64 %bulk, 32
  store i64 {REPLY_PREFIX}, ptr %frame, align 1
  %f8 = getelementptr i8, ptr %frame, i64 8
  store i64 %bulk.s, ptr %f8, align 1
  %f16 = getelementptr i8, ptr %frame, i64 16
  store i32 %thread32, ptr %f16, align 1
  %f20 = getelementptr i8, ptr %frame, i64 20
  store i32 %token, ptr %f20, align 1
  %f24 = getelementptr i8, ptr %frame, i64 24
  store i32 %told, ptr %f24, align 1
  %f28 = getelementptr i8, ptr %frame, i64 28
  store i32 %told.api, ptr %f28, align 1
  %used2 = add i64 %out.at, %bytes
  call void @put(ptr %c, i64 6, i64 %used2)
  br label %loop
}
"""

REPLY_AT: Final = HEADER_BYTES + REPLY_HEADER.size
_NUMBERS: Final[dict[str, int]] = {
    **{kind.name: kind.value for kind in ArgKind},
    **{f"READY_{how.name}": how.value for how in Readiness},
    **{f"SHORTCUT_{how.name}": how.value for how in Shortcut},
    **{reason.name: reason.value for reason in Reason},
    "CONTEXT": HandleType.CONTEXT,
    "STREAM": HandleType.STREAM,
    "CUDA_ERROR_INVALID_CONTEXT": CUDA_ERROR_INVALID_CONTEXT,
    "CUDA_ERROR_INVALID_HANDLE": CUDA_ERROR_INVALID_HANDLE,
    "CUDA_ERROR_INVALID_VALUE": CUDA_ERROR_INVALID_VALUE,
    "CUDA_ERROR_NOT_READY": CUDA_ERROR_NOT_READY,
    "CUDA_ERROR_NOT_SUPPORTED": CUDA_ERROR_NOT_SUPPORTED,
    "MAX_ARGS": MAX_ARGS,
    "ARGS_BYTES": 8 * MAX_ARGS,
    "MAX_CSTRING_BYTES": MAX_CSTRING_BYTES,
    "MAX_KERNEL_PARAMS_BYTES": MAX_KERNEL_PARAMS_BYTES,
    "MAX_RECORD_BYTES": MAX_RECORD_BYTES,
    "MAX_OUTPUT_BYTES": MAX_OUTPUT_BYTES,
    "MAX_THREADS": MAX_THREADS,
    "MAX_FAILURES": MAX_FAILURES,
    "MAX_STREAMS": MAX_STREAMS,
    "POLLS": POLLS,
    "SHORT_BYTES": SHORT_BYTES,
    "LAST_HANDLE": MAX_HANDLES - 1,
    "API_IDS": API_IDS,
    "ENTRY_BYTES": ENTRY_BYTES,
    "DESCRIPTOR_AT": DESCRIPTOR_AT,
    "HANDLE_BYTES": HANDLE_BYTES,
    "BUCKET_SHIFT": 64 - BUCKETS_LOG2,
    "SCRATCH_BYTES": UNRULED_BYTES,
    "SCRATCH_WORDS": UNRULED_BYTES // 8,
    "FLAG_BLOCKING": FLAG_BLOCKING,
    "FLAG_REPORTS": FLAG_REPORTS,
    "FLAG_SERVER_PYTHON": FLAG_SERVER_PYTHON,
    "FLAG_PER_THREAD": FLAG_PER_THREAD,
    "FLAG_REPLY": FLAG_REPLY,
    "UNKNOWN_FLAGS": ~KNOWN_FLAGS & 0xFFFF,
    "HANDLE_TAG": HANDLE_TAG,
    "HANDLE_TAG_MASK": HANDLE_TAG_MASK - (1 << 64),
    "HANDLE_INDEX_MASK": HANDLE_INDEX_MASK,
    "HANDLE_GENERATION_SHIFT": HANDLE_GENERATION_SHIFT,
    "NO_ARG": NO_ARG,
    "RECORD_HEADER": RECORD_HEADER.size,
    "REPLY_HEADER": REPLY_HEADER.size,
    "REPLY_AT": REPLY_AT,
    "REPLY_PREFIX": int.from_bytes(encode_header(FrameType.REPLY, 0, 0)[:8], "little"),
}


def text() -> str:
    """The module's IR, without target triple."""
    out = _HELPERS + _HANDLES + _READY + _RUN
    loads = [f"  %l{i}.p = getelementptr i64, ptr %args, i64 {i}\n  %l{i} = load i64, ptr %l{i}.p" for i in range(MAX_ARGS)]
    # Every entry point gets all of them: in the C calling conventions the caller cleans up, and a callee looks at no more than it declares.
    out = out.replace("{LOADS}", "\n".join(loads)).replace("{ARGUMENTS}", ", ".join(f"i64 %l{i}" for i in range(MAX_ARGS)))
    for name, value in _NUMBERS.items():
        out = out.replace("{" + name + "}", str(value))
    return out
