"""LLVM IR of the agent's two short loops: records to the socket, replies to slots, without Python in between.

Both loops do what `session` does in Python for the usual case and return to it for everything else, so they hold no policy.
System calls go through the C library's functions, whose addresses are in the context: nothing here depends on the processor.

Context (`pump.Context`), 8 bytes each:

| index | field |
| --- | --- |
| 0 | address of the shared memory |
| 1 | socket |
| 2 | attention: not 0 when Python has something for the forwarder |
| 3, 4 | receive buffer: address, bytes |
| 5, 6 | first byte not yet looked at, past the last received |
| 7, 8 | bytes sent on the connection, bytes of records |
| 9, 10 | bytes received, replies |
| 11 | replies asked for by the agent's own calls |
| 12, 13 | monotonic ns since something is waited for (0: nothing), ns waited in all |
| 14… | addresses of sendmsg, recv, syscall, __errno_location, clock_gettime |
| 19 | number of the futex system call |
"""

from typing import Final

from lanGPU.client import layout as lay
from lanGPU.constants import MAX_THREADS
from lanGPU.wire.frames import FrameType, encode_header

FORWARD_PYTHON: Final = 0
"""Requests or attention."""
FORWARD_CORRUPT: Final = -100_000
RECEIVE_END: Final = 0
RECEIVE_PYTHON: Final = 1
"""Bytes that are not a short reply to a slot."""
AGENT_TOKEN: Final = 0x8000_0000
"""Bit of the tokens of the agent's own records; slots count from 1 and take two thousand million calls to get here."""

_RECORDS_PREFIX: Final = int.from_bytes(encode_header(FrameType.RECORDS, 0, 0)[:8], "little")
_REPLY_PREFIX: Final = int.from_bytes(encode_header(FrameType.REPLY, 0, 0)[:8], "little")
_MSG_NOSIGNAL: Final = 0x4000
_EINTR: Final = 4

_HELPERS = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)

define internal i64 @get(ptr %c, i64 %i) alwaysinline {
  %p = getelementptr i64, ptr %c, i64 %i
  %v = load volatile i64, ptr %p
  ret i64 %v
}
define internal void @put(ptr %c, i64 %i, i64 %v) alwaysinline {
  %p = getelementptr i64, ptr %c, i64 %i
  store volatile i64 %v, ptr %p
  ret void
}
define internal void @add(ptr %c, i64 %i, i64 %n) alwaysinline {
  %v = call i64 @get(ptr %c, i64 %i)
  %s = add i64 %v, %n
  call void @put(ptr %c, i64 %i, i64 %s)
  ret void
}
define internal ptr @getp(ptr %c, i64 %i) alwaysinline {
  %v = call i64 @get(ptr %c, i64 %i)
  %p = inttoptr i64 %v to ptr
  ret ptr %p
}
define internal i32 @errno(ptr %c) {
  %f = call ptr @getp(ptr %c, i64 17)
  %p = call ptr %f()
  %v = load i32, ptr %p
  ret i32 %v
}
define internal i64 @now(ptr %c) {
  %t = alloca [2 x i64]
  %f = call ptr @getp(ptr %c, i64 18)
  %r = call i32 %f(i32 1, ptr %t)
  %s = load i64, ptr %t
  %np = getelementptr i64, ptr %t, i64 1
  %n = load i64, ptr %np
  %m = mul i64 %s, 1000000000
  %v = add i64 %m, %n
  ret i64 %v
}
define internal void @wake(ptr %c, ptr %word, i64 %count) {
  %f = call ptr @getp(ptr %c, i64 16)
  %n = call i64 @get(ptr %c, i64 19)
  %r = call i64 (i64, ...) %f(i64 %n, ptr %word, i64 1, i64 %count, i64 0, i64 0, i64 0)
  ret void
}
define internal i64 @expected(ptr %c, ptr %b) alwaysinline {
  %p = getelementptr i8, ptr %b, i64 {COUNT_SYNC}
  %s = load atomic i64, ptr %p monotonic, align 8
  %a = call i64 @get(ptr %c, i64 11)
  %v = add i64 %s, %a
  ret i64 %v
}
define internal void @asked(ptr %c, ptr %b) {
  %since = call i64 @get(ptr %c, i64 12)
  %idle = icmp eq i64 %since, 0
  br i1 %idle, label %look, label %out
look:
  %e = call i64 @expected(ptr %c, ptr %b)
  %r = call i64 @get(ptr %c, i64 10)
  %more = icmp ugt i64 %e, %r
  br i1 %more, label %begin, label %out
begin:
  %n = call i64 @now(ptr %c)
  call void @put(ptr %c, i64 12, i64 %n)
  br label %out
out:
  ret void
}
define internal void @arrived(ptr %c, ptr %b) {
  call void @add(ptr %c, i64 10, i64 1)
  %since = call i64 @get(ptr %c, i64 12)
  %idle = icmp eq i64 %since, 0
  br i1 %idle, label %out, label %look
look:
  %e = call i64 @expected(ptr %c, ptr %b)
  %r = call i64 @get(ptr %c, i64 10)
  %all = icmp uge i64 %r, %e
  br i1 %all, label %end, label %out
end:
  %n = call i64 @now(ptr %c)
  %d = sub i64 %n, %since
  call void @add(ptr %c, i64 13, i64 %d)
  call void @put(ptr %c, i64 12, i64 0)
  br label %out
out:
  ret void
}
"""

_FORWARD = """
; 1: Python is needed
define internal i1 @wanted(ptr %c, ptr %b) alwaysinline {
  %att = call i64 @get(ptr %c, i64 2)
  %hp = getelementptr i8, ptr %b, i64 {REQUEST_HEAD}
  %h = load atomic i32, ptr %hp acquire, align 4
  %tp = getelementptr i8, ptr %b, i64 {REQUEST_TAIL}
  %t = load atomic i32, ptr %tp monotonic, align 4
  %q = icmp ne i32 %h, %t
  %a = icmp ne i64 %att, 0
  %r = or i1 %q, %a
  ret i1 %r
}
; all of iov[0..2] to the socket; 0 or -errno
define internal i64 @send_all(ptr %c, ptr %iov, i64 %total) {
e:
  %msg = alloca [7 x i64]
  br label %again
again:
  %at = phi i64 [0, %e], [%at, %interrupted], [%at2, %moved]
  %left = phi i64 [%total, %e], [%left, %interrupted], [%left2, %moved]
  store [7 x i64] zeroinitializer, ptr %msg
  %iov_at = getelementptr [2 x i64], ptr %iov, i64 %at
  %m2 = getelementptr i64, ptr %msg, i64 2
  store ptr %iov_at, ptr %m2
  %m3 = getelementptr i64, ptr %msg, i64 3
  %count = sub i64 3, %at
  store i64 %count, ptr %m3
  %f = call ptr @getp(ptr %c, i64 14)
  %fd64 = call i64 @get(ptr %c, i64 1)
  %fd = trunc i64 %fd64 to i32
  %r = call i64 %f(i32 %fd, ptr %msg, i32 {MSG_NOSIGNAL})
  %bad = icmp slt i64 %r, 0
  br i1 %bad, label %error, label %sent
error:
  %no = call i32 @errno(ptr %c)
  %intr = icmp eq i32 %no, {EINTR}
  br i1 %intr, label %interrupted, label %fail
interrupted:
  br label %again
fail:
  %no64 = zext i32 %no to i64
  %neg = sub i64 0, %no64
  ret i64 %neg
sent:
  %left2 = sub i64 %left, %r
  %done = icmp eq i64 %left2, 0
  br i1 %done, label %ok, label %skip
ok:
  ret i64 0
skip:
  %at2 = phi i64 [%at, %sent], [%next, %whole]
  %rest = phi i64 [%r, %sent], [%rest2, %whole]
  %v = getelementptr [2 x i64], ptr %iov, i64 %at2
  %lp = getelementptr i64, ptr %v, i64 1
  %len = load i64, ptr %lp
  %over = icmp uge i64 %rest, %len
  br i1 %over, label %whole, label %moved
whole:
  %rest2 = sub i64 %rest, %len
  %next = add i64 %at2, 1
  br label %skip
moved:
  %bp = load i64, ptr %v
  %bp2 = add i64 %bp, %rest
  store i64 %bp2, ptr %v
  %len2 = sub i64 %len, %rest
  store i64 %len2, ptr %lp
  br label %again
}
define i64 @forward(ptr %c) {
e:
  %iov = alloca [6 x i64]
  %header = alloca [2 x i64]
  %limit = alloca [2 x i64]
  %b = call ptr @getp(ptr %c, i64 0)
  %headp = getelementptr i8, ptr %b, i64 {HEAD}
  %tailp = getelementptr i8, ptr %b, i64 {TAIL}
  %bellp = getelementptr i8, ptr %b, i64 {DOORBELL}
  %sleepp = getelementptr i8, ptr %b, i64 {AGENT_SLEEPING}
  br label %loop
loop:
  %seen = load atomic i32, ptr %bellp acquire, align 4
  %w = call i1 @wanted(ptr %c, ptr %b)
  br i1 %w, label %python, label %look
python:
  ret i64 {FORWARD_PYTHON}
look:
  %head = load atomic i64, ptr %headp acquire, align 8
  %tail = load atomic i64, ptr %tailp monotonic, align 8
  %n = sub i64 %head, %tail
  %none = icmp eq i64 %n, 0
  br i1 %none, label %idle, label %check
check:
  %toomuch = icmp ugt i64 %n, {RING_BYTES}
  br i1 %toomuch, label %corrupt, label %send
corrupt:
  ret i64 {FORWARD_CORRUPT}
send:
  call void @asked(ptr %c, ptr %b)
  store i64 {RECORDS_PREFIX}, ptr %header
  %h1 = getelementptr i64, ptr %header, i64 1
  %bulk = shl i64 %n, 32
  store i64 %bulk, ptr %h1
  store ptr %header, ptr %iov
  %i1 = getelementptr i64, ptr %iov, i64 1
  store i64 16, ptr %i1
  %start = and i64 %tail, {RING_MASK}
  %to_end = sub i64 {RING_BYTES}, %start
  %fits = icmp ule i64 %n, %to_end
  %first = select i1 %fits, i64 %n, i64 %to_end
  %ring = getelementptr i8, ptr %b, i64 {RING}
  %from = getelementptr i8, ptr %ring, i64 %start
  %i2 = getelementptr i64, ptr %iov, i64 2
  store ptr %from, ptr %i2
  %i3 = getelementptr i64, ptr %iov, i64 3
  store i64 %first, ptr %i3
  %i4 = getelementptr i64, ptr %iov, i64 4
  store ptr %ring, ptr %i4
  %second = sub i64 %n, %first
  %i5 = getelementptr i64, ptr %iov, i64 5
  store i64 %second, ptr %i5
  %total = add i64 %n, 16
  %r = call i64 @send_all(ptr %c, ptr %iov, i64 %total)
  %failed = icmp ne i64 %r, 0
  br i1 %failed, label %fail, label %sent
fail:
  ret i64 %r
sent:
  call void @add(ptr %c, i64 7, i64 %total)
  call void @add(ptr %c, i64 8, i64 %n)
  store atomic i64 %head, ptr %tailp release, align 8
  fence seq_cst
  %waitp = getelementptr i8, ptr %b, i64 {SPACE_WAITERS}
  %waiters = load atomic i32, ptr %waitp monotonic, align 4
  %nobody = icmp eq i32 %waiters, 0
  br i1 %nobody, label %loop, label %room
room:
  %seqp = getelementptr i8, ptr %b, i64 {SPACE_SEQ}
  %s = load atomic i32, ptr %seqp monotonic, align 4
  %s2 = add i32 %s, 1
  store atomic i32 %s2, ptr %seqp release, align 4
  call void @wake(ptr %c, ptr %seqp, i64 2147483647)
  br label %loop
idle:
  store atomic i32 1, ptr %sleepp release, align 4
  fence seq_cst
  %w2 = call i1 @wanted(ptr %c, ptr %b)
  %head2 = load atomic i64, ptr %headp acquire, align 8
  %more = icmp ne i64 %head2, %tail
  %busy = or i1 %w2, %more
  br i1 %busy, label %awake, label %sleep
sleep:
  store i64 1, ptr %limit
  %l1 = getelementptr i64, ptr %limit, i64 1
  store i64 0, ptr %l1
  %f = call ptr @getp(ptr %c, i64 16)
  %no = call i64 @get(ptr %c, i64 19)
  %seen64 = zext i32 %seen to i64
  %x = call i64 (i64, ...) %f(i64 %no, ptr %bellp, i64 0, i64 %seen64, ptr %limit, i64 0, i64 0)
  br label %awake
awake:
  store atomic i32 0, ptr %sleepp release, align 4
  br label %loop
}
"""

_RECEIVE = """
define i64 @receive(ptr %c) {
e:
  %b = call ptr @getp(ptr %c, i64 0)
  %buf = call ptr @getp(ptr %c, i64 3)
  %size = call i64 @get(ptr %c, i64 4)
  br label %parse
parse:
  %start = call i64 @get(ptr %c, i64 5)
  %end = call i64 @get(ptr %c, i64 6)
  %have = sub i64 %end, %start
  %short = icmp ult i64 %have, 16
  br i1 %short, label %read, label %header
header:
  %p = getelementptr i8, ptr %buf, i64 %start
  %prefix = load i64, ptr %p, align 1
  %isreply = icmp eq i64 %prefix, {REPLY_PREFIX}
  br i1 %isreply, label %sizes, label %python
python:
  ret i64 {RECEIVE_PYTHON}
sizes:
  %p8 = getelementptr i8, ptr %p, i64 8
  %body = load i32, ptr %p8, align 1
  %p12 = getelementptr i8, ptr %p, i64 12
  %bulk32 = load i32, ptr %p12, align 1
  %bulk = zext i32 %bulk32 to i64
  %nobody = icmp eq i32 %body, 0
  %atleast = icmp uge i64 %bulk, 16
  %atmost = icmp ule i64 %bulk, {SLOT_DATA_BYTES}
  %ok1 = and i1 %nobody, %atleast
  %ok2 = and i1 %ok1, %atmost
  br i1 %ok2, label %complete, label %python
complete:
  %total = add i64 %bulk, 16
  %part = icmp ult i64 %have, %total
  br i1 %part, label %read, label %reply
reply:
  %data = getelementptr i8, ptr %p, i64 16
  %thread32 = load i32, ptr %data, align 1
  %thread = zext i32 %thread32 to i64
  %tokp = getelementptr i8, ptr %data, i64 4
  %token = load i32, ptr %tokp, align 1
  %zerop = getelementptr i8, ptr %data, i64 14
  %zero = load i16, ptr %zerop, align 1
  %ours = icmp slt i32 %token, 0
  %z = icmp ne i16 %zero, 0
  %far = icmp uge i64 %thread, {MAX_THREADS}
  %odd1 = or i1 %ours, %z
  %odd = or i1 %odd1, %far
  br i1 %odd, label %python, label %slot
slot:
  %so = mul i64 %thread, {SLOT_BYTES}
  %so2 = add i64 %so, {SLOTS}
  %s = getelementptr i8, ptr %b, i64 %so2
  %stp = getelementptr i8, ptr %s, i64 {SLOT_TOKEN}
  %st = load atomic i32, ptr %stp acquire, align 4
  %same = icmp eq i32 %st, %token
  br i1 %same, label %deliver, label %python
deliver:
  call void @arrived(ptr %c, ptr %b)
  %sd = getelementptr i8, ptr %s, i64 {SLOT_DATA}
  call void @llvm.memcpy.p0.p0.i64(ptr %sd, ptr %data, i64 %bulk, i1 false)
  %nbp = getelementptr i8, ptr %s, i64 {SLOT_REPLY_BYTES}
  store atomic i32 %bulk32, ptr %nbp monotonic, align 4
  %kp = getelementptr i8, ptr %s, i64 {SLOT_REPLY_KIND}
  store atomic i32 {REPLY_RECORD}, ptr %kp monotonic, align 4
  %sqp = getelementptr i8, ptr %s, i64 {SLOT_REPLY_SEQ}
  %sq = load atomic i32, ptr %sqp monotonic, align 4
  %sq2 = add i32 %sq, 1
  store atomic i32 %sq2, ptr %sqp release, align 4
  fence seq_cst
  %wp = getelementptr i8, ptr %s, i64 {SLOT_WAITING}
  %w = load atomic i32, ptr %wp monotonic, align 4
  %start2 = add i64 %start, %total
  call void @put(ptr %c, i64 5, i64 %start2)
  %spins = icmp eq i32 %w, 0
  br i1 %spins, label %parse, label %wakeup
wakeup:
  call void @wake(ptr %c, ptr %sqp, i64 2147483647)
  br label %parse
read:
  %src = getelementptr i8, ptr %buf, i64 %start
  call void @llvm.memmove.p0.p0.i64(ptr %buf, ptr %src, i64 %have, i1 false)
  call void @put(ptr %c, i64 5, i64 0)
  call void @put(ptr %c, i64 6, i64 %have)
  %to = getelementptr i8, ptr %buf, i64 %have
  %room = sub i64 %size, %have
  %f = call ptr @getp(ptr %c, i64 15)
  %fd64 = call i64 @get(ptr %c, i64 1)
  %fd = trunc i64 %fd64 to i32
  %r = call i64 %f(i32 %fd, ptr %to, i64 %room, i32 0)
  %bad = icmp slt i64 %r, 0
  br i1 %bad, label %error, label %got
got:
  %eof = icmp eq i64 %r, 0
  br i1 %eof, label %finish, label %some
finish:
  ret i64 {RECEIVE_END}
some:
  call void @add(ptr %c, i64 9, i64 %r)
  %end2 = add i64 %have, %r
  call void @put(ptr %c, i64 6, i64 %end2)
  br label %parse
error:
  %no = call i32 @errno(ptr %c)
  %intr = icmp eq i32 %no, {EINTR}
  br i1 %intr, label %parse, label %fail
fail:
  %no64 = zext i32 %no to i64
  %neg = sub i64 0, %no64
  ret i64 %neg
}
"""

_LAYOUT_NAMES: Final = """
HEAD TAIL SPACE_SEQ SPACE_WAITERS DOORBELL AGENT_SLEEPING REQUEST_HEAD REQUEST_TAIL COUNT_SYNC RING RING_BYTES
SLOTS SLOT_BYTES SLOT_REPLY_SEQ SLOT_WAITING SLOT_TOKEN SLOT_REPLY_BYTES SLOT_REPLY_KIND SLOT_DATA SLOT_DATA_BYTES REPLY_RECORD
"""
_NUMBERS: Final[dict[str, int]] = {name: getattr(lay, name) for name in _LAYOUT_NAMES.split()} | {
    "RING_MASK": lay.RING_BYTES - 1,
    "MAX_THREADS": MAX_THREADS,
    "MSG_NOSIGNAL": _MSG_NOSIGNAL,
    "EINTR": _EINTR,
    "RECORDS_PREFIX": _RECORDS_PREFIX,
    "REPLY_PREFIX": _REPLY_PREFIX,
    "FORWARD_PYTHON": FORWARD_PYTHON,
    "FORWARD_CORRUPT": FORWARD_CORRUPT,
    "RECEIVE_END": RECEIVE_END,
    "RECEIVE_PYTHON": RECEIVE_PYTHON,
}


def text() -> str:
    """The module's IR, without target triple."""
    out = _HELPERS + _FORWARD + _RECEIVE
    for name, value in _NUMBERS.items():
        out = out.replace("{" + name + "}", str(value))
    return out
