"""IR of what runs a kernel's blocks: the loop over blocks, the loop over threads, and the scheduler of threads that wait for each other.

Scheduler of one block, repeated until all threads are done: let every runnable thread run until it waits or ends; release warps whose
threads of a mask all wait; release barriers that all expected threads reached. No progress: a deadlock, reported as a fault.
A thread that ended no longer counts for masks and barriers.
"""

from lanGPU.emulator.ptx import context as c


def _field(name: str, base: str, offset: int | str) -> str:
    return f"  {name} = getelementptr i8, ptr {base}, i64 {offset}\n"


def run_blocks(kernel: str, block: str) -> str:
    """``run(ctx, next, total, stop, leader)``: takes block numbers in ascending order until there are none or somebody stopped; a
    helper (leader 0) then signs off. ``ptx.wait(active)``: returns when all helpers have."""
    return f"""
define i32 @"{kernel}"(ptr %ctx, ptr %next, i64 %total, ptr %stop, i32 %leader) {{
entry:
  %pn = getelementptr i8, ptr %ctx, i64 {c.NCTAID}
  %nx32 = load i32, ptr %pn
  %pny = getelementptr i8, ptr %ctx, i64 {c.NCTAID + 4}
  %ny32 = load i32, ptr %pny
  %nx = zext i32 %nx32 to i64
  %ny = zext i32 %ny32 to i64
  %px = getelementptr i8, ptr %ctx, i64 {c.CTAID}
  %py = getelementptr i8, ptr %ctx, i64 {c.CTAID + 4}
  %pz = getelementptr i8, ptr %ctx, i64 {c.CTAID + 8}
  br label %loop
loop:
  %halt = load atomic i32, ptr %stop monotonic, align 4
  %halted = icmp ne i32 %halt, 0
  br i1 %halted, label %done, label %take
take:
  %i = atomicrmw add ptr %next, i64 1 seq_cst
  %over = icmp uge i64 %i, %total
  br i1 %over, label %done, label %go
go:
  %x = urem i64 %i, %nx
  %r = udiv i64 %i, %nx
  %y = urem i64 %r, %ny
  %z = udiv i64 %r, %ny
  %x32 = trunc i64 %x to i32
  store i32 %x32, ptr %px
  %y32 = trunc i64 %y to i32
  store i32 %y32, ptr %py
  %z32 = trunc i64 %z to i32
  store i32 %z32, ptr %pz
  %s = call i32 {block}
  %bad = icmp ne i32 %s, 0
  br i1 %bad, label %fault, label %loop
fault:
  store atomic i32 1, ptr %stop seq_cst, align 4
  br label %done
done:
  %result = phi i32 [0, %loop], [0, %take], [1, %fault]
  %isleader = icmp ne i32 %leader, 0
  br i1 %isleader, label %out, label %signoff
signoff:
  %pa = getelementptr i8, ptr %ctx, i64 {c.ACTIVE}
  %active = load ptr, ptr %pa
  %old = atomicrmw sub ptr %active, i32 1 seq_cst
  br label %out
out:
  ret i32 %result
}}
declare i32 @usleep(i32)
define void @ptx.wait(ptr %active) {{
entry:
  br label %spin
spin:
  %n = phi i32 [0, %entry], [%n1, %again]
  %a = load atomic i32, ptr %active seq_cst, align 4
  %some = icmp sgt i32 %a, 0
  br i1 %some, label %wait, label %gone
wait:
  %n1 = add i32 %n, 1
  %long = icmp ugt i32 %n1, 2000
  br i1 %long, label %rest, label %again
rest:
  %r = call i32 @usleep(i32 50)
  br label %again
again:
  br label %spin
gone:
  ret void
}}
"""


def plain_block(kernel: str) -> str:
    """All threads of a block one after the other, for kernels that do not synchronise; the thread's code is inlined."""
    return f"""
define internal i32 @"{kernel}.block"(ptr %ctx) {{
entry:
  %p0 = getelementptr i8, ptr %ctx, i64 {c.NTID}
  %nx = load i32, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 {c.NTID + 4}
  %ny = load i32, ptr %p1
  %p2 = getelementptr i8, ptr %ctx, i64 {c.NTID + 8}
  %nz = load i32, ptr %p2
  br label %zloop
zloop:
  %z = phi i32 [0, %entry], [%z1, %znext]
  br label %yloop
yloop:
  %y = phi i32 [0, %zloop], [%y1, %ynext]
  br label %xloop
xloop:
  %x = phi i32 [0, %yloop], [%x1, %xnext]
  %s = call i32 @"{kernel}.thread"(ptr %ctx, i32 %x, i32 %y, i32 %z, ptr null) alwaysinline
  %bad = icmp ne i32 %s, 0
  br i1 %bad, label %fault, label %xnext
xnext:
  %x1 = add nuw i32 %x, 1
  %xm = icmp ult i32 %x1, %nx
  br i1 %xm, label %xloop, label %ynext
ynext:
  %y1 = add nuw i32 %y, 1
  %ym = icmp ult i32 %y1, %ny
  br i1 %ym, label %yloop, label %znext
znext:
  %z1 = add nuw i32 %z, 1
  %zm = icmp ult i32 %z1, %nz
  br i1 %zm, label %zloop, label %done
done:
  ret i32 0
fault:
  ret i32 1
}}
"""


def waiting_block() -> str:
    """``ptx.schedule(ctx, thread, record bytes)``: a block of threads that wait for each other."""
    return f"""
declare i32 @sched_yield()
define internal i32 @ptx.schedule(ptr %ctx, ptr %thread, i64 %size) noinline {{
entry:
  %p0 = getelementptr i8, ptr %ctx, i64 {c.NTID}
  %nx = load i32, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 {c.NTID + 4}
  %ny = load i32, ptr %p1
  %p2 = getelementptr i8, ptr %ctx, i64 {c.NTID + 8}
  %nz = load i32, ptr %p2
  %nxy = mul i32 %nx, %ny
  %n = mul i32 %nxy, %nz
  %rp = getelementptr i8, ptr %ctx, i64 {c.RECORDS}
  %recs = load ptr, ptr %rp
  %wp = getelementptr i8, ptr %ctx, i64 {c.WARPS}
  %warps = load ptr, ptr %wp
  %bars = getelementptr i8, ptr %ctx, i64 {c.BARRIERS}
  call void @llvm.memset.p0.i64(ptr %bars, i8 0, i64 256, i1 false)
  %nw0 = add i32 %n, 31
  %nw = lshr i32 %nw0, 5
  br label %init
init:
  %i = phi i32 [0, %entry], [%i1, %init]
  %i64 = zext i32 %i to i64
  %off = mul i64 %i64, %size
  %r = getelementptr i8, ptr %recs, i64 %off
  call void @llvm.memset.p0.i64(ptr %r, i8 0, i64 {c.SPILLS}, i1 false)
  %ix = urem i32 %i, %nx
  %iq = udiv i32 %i, %nx
  %iy = urem i32 %iq, %ny
  %iz = udiv i32 %iq, %ny
{_field("%rx", "%r", c.TID)}  store i32 %ix, ptr %rx
{_field("%ry", "%r", c.TID + 4)}  store i32 %iy, ptr %ry
{_field("%rz", "%r", c.TID + 8)}  store i32 %iz, ptr %rz
  %i1 = add nuw i32 %i, 1
  %im = icmp ult i32 %i1, %n
  br i1 %im, label %init, label %round

; --- let everybody run ---------------------------------------------------------------------------------------------
round:
  br label %each
each:
  %t = phi i32 [0, %round], [%t1, %enext]
  %alive = phi i32 [0, %round], [%alive2, %enext]
  %ran = phi i1 [false, %round], [%ran2, %enext]
  %used = phi i32 [0, %round], [%used2, %enext]
  %t64 = zext i32 %t to i64
  %toff = mul i64 %t64, %size
  %tr = getelementptr i8, ptr %recs, i64 %toff
{_field("%rea", "%tr", c.REASON)}  %reason = load i32, ptr %rea
  %runnable = icmp eq i32 %reason, {c.RUN}
  br i1 %runnable, label %step, label %estate
step:
{_field("%sx", "%tr", c.TID)}  %tx = load i32, ptr %sx
{_field("%sy", "%tr", c.TID + 4)}  %ty = load i32, ptr %sy
{_field("%sz", "%tr", c.TID + 8)}  %tz = load i32, ptr %sz
  %st = call i32 %thread(ptr %ctx, i32 %tx, i32 %ty, i32 %tz, ptr %tr)
  %bad = icmp eq i32 %st, 1
  br i1 %bad, label %fault, label %estate2
estate:
  br label %estate2
estate2:
  %ranhere = phi i1 [true, %step], [false, %estate]
  %after = load i32, ptr %rea
  %isdone = icmp eq i32 %after, {c.DONE}
  %one = select i1 %isdone, i32 0, i32 1
  %alive2 = add i32 %alive, %one
  %atbar = icmp eq i32 %after, {c.BARRIER_WAIT}
{_field("%ebp", "%tr", c.BARRIER)}  %ebar = load i32, ptr %ebp
  %ebit = shl i32 1, %ebar
  %eset = select i1 %atbar, i32 %ebit, i32 0
  %used2 = or i32 %used, %eset
  %ran2 = or i1 %ran, %ranhere
  br label %enext
enext:
  %t1 = add nuw i32 %t, 1
  %tm = icmp ult i32 %t1, %n
  br i1 %tm, label %each, label %settle
settle:
  %finished = icmp eq i32 %alive2, 0
  br i1 %finished, label %done, label %wloop

; --- warps ---------------------------------------------------------------------------------------------------------
wloop:
  %w = phi i32 [0, %settle], [%w1, %wnext]
  %wprog = phi i1 [%ran2, %settle], [%wprog2, %wnext]
  %rel = call i1 @ptx.release_warp(ptr %recs, i64 %size, i32 %w, i32 %n, ptr %warps)
  %wprog2 = or i1 %wprog, %rel
  br label %wnext
wnext:
  %w1 = add nuw i32 %w, 1
  %wm = icmp ult i32 %w1, %nw
  br i1 %wm, label %wloop, label %bloop

; --- barriers --------------------------------------------------------------------------------------------------------
bloop:
  %b = phi i32 [0, %wnext], [%b1, %bnext]
  %bprog = phi i1 [%wprog2, %wnext], [%bprog2, %bnext]
  %bsh = lshr i32 %used2, %b
  %bin = trunc i32 %bsh to i1
  br i1 %bin, label %btry, label %bnext
btry:
  %brel = call i1 @ptx.release_barrier(ptr %recs, i64 %size, i32 %b, i32 %n, i32 %alive2, ptr %bars)
  br label %bnext
bnext:
  %bgot = phi i1 [false, %bloop], [%brel, %btry]
  %bprog2 = or i1 %bprog, %bgot
  %b1 = add nuw i32 %b, 1
  %bm = icmp ult i32 %b1, 16
  br i1 %bm, label %bloop, label %judge
judge:
  br i1 %bprog2, label %again, label %deadlock
again:
  ; a block of a cooperative launch may be waiting for another one, which needs the processor, or has stopped
  %stp = getelementptr i8, ptr %ctx, i64 {c.STOP}
  %stop = load ptr, ptr %stp
  %alone = icmp eq ptr %stop, null
  br i1 %alone, label %round, label %others
others:
  %halt = load atomic i32, ptr %stop seq_cst, align 4
  %halted = icmp ne i32 %halt, 0
  br i1 %halted, label %fault, label %yield
yield:
  %yielded = call i32 @sched_yield()
  br label %round
deadlock:
  call void @ptx.fault(ptr %ctx, i32 {c.FAULT_DEADLOCK}, i32 0, i64 0, i32 0, i32 0, i32 0)
  ret i32 1
fault:
  ret i32 1
done:
  ret i32 0
}}

; Releases the groups of a warp that are complete. Lanes are visited in order; the first waiting lane of a group decides.
define internal i1 @ptx.release_warp(ptr %recs, i64 %size, i32 %w, i32 %n, ptr %warps) {{
entry:
  %first = shl i32 %w, 5
  %left = sub i32 %n, %first
  %few = icmp ult i32 %left, 32
  %lanes = select i1 %few, i32 %left, i32 32
  %woff = mul i32 %w, {c.WARP_BYTES}
  %warp = getelementptr i8, ptr %warps, i32 %woff
  br label %scan
scan:
  %l = phi i32 [0, %entry], [%l1, %scan]
  %waiting = phi i32 [0, %entry], [%waiting1, %scan]
  %gone = phi i32 [0, %entry], [%gone1, %scan]
  %active = phi i32 [0, %entry], [%active1, %scan]
  %running = phi i32 [0, %entry], [%running1, %scan]
  %ti = add i32 %first, %l
  %t64 = zext i32 %ti to i64
  %off = mul i64 %t64, %size
  %r = getelementptr i8, ptr %recs, i64 %off
{_field("%rea", "%r", c.REASON)}  %reason = load i32, ptr %rea
  %bit = shl i32 1, %l
  %isw = icmp eq i32 %reason, {c.WARP_WAIT}
  %bw = select i1 %isw, i32 %bit, i32 0
  %waiting1 = or i32 %waiting, %bw
  %isd = icmp eq i32 %reason, {c.DONE}
  %bd = select i1 %isd, i32 %bit, i32 0
  %gone1 = or i32 %gone, %bd
  %isa = icmp eq i32 %reason, {c.ACTIVE_WAIT}
  %ba = select i1 %isa, i32 %bit, i32 0
  %active1 = or i32 %active, %ba
  %isr = icmp eq i32 %reason, {c.RUN}
  %br = select i1 %isr, i32 %bit, i32 0
  %running1 = or i32 %running, %br
  %l1 = add nuw i32 %l, 1
  %lm = icmp ult i32 %l1, %lanes
  br i1 %lm, label %scan, label %groups
groups:
  ; lanes beyond the block's end count as gone
  %full = icmp eq i32 %lanes, 32
  %sh = shl i32 1, %lanes
  %have0 = sub i32 %sh, 1
  %have = select i1 %full, i32 -1, i32 %have0
  %there = xor i32 %gone1, -1
  %present = and i32 %have, %there
  br label %gloop
gloop:
  %todo = phi i32 [%waiting1, %groups], [%todo2, %gnext]
  %prog = phi i1 [false, %groups], [%prog2, %gnext]
  %none = icmp eq i32 %todo, 0
  br i1 %none, label %actives, label %leader
leader:
  %g = call i32 @llvm.cttz.i32(i32 %todo, i1 true)
  %gi = add i32 %first, %g
  %g64 = zext i32 %gi to i64
  %goff = mul i64 %g64, %size
  %gr = getelementptr i8, ptr %recs, i64 %goff
{_field("%gm", "%gr", c.MASK)}  %mask0 = load i32, ptr %gm
  %mask = and i32 %mask0, %present
  %arrived = and i32 %mask, %waiting1
  %complete = icmp eq i32 %arrived, %mask
  %gbit = shl i32 1, %g
  %self = and i32 %mask, %gbit
  %isin = icmp ne i32 %self, 0
  %ok = and i1 %complete, %isin
  br i1 %ok, label %release, label %skip
skip:
  %nbit = xor i32 %gbit, -1
  %todos = and i32 %todo, %nbit
  br label %gnext
release:
  br label %rl
rl:
  %k = phi i32 [%mask, %release], [%k1, %rl]
  %ballot = phi i32 [0, %release], [%ballot1, %rl]
  %j = call i32 @llvm.cttz.i32(i32 %k, i1 true)
  %ji = add i32 %first, %j
  %j64 = zext i32 %ji to i64
  %joff = mul i64 %j64, %size
  %jr = getelementptr i8, ptr %recs, i64 %joff
{_field("%jp", "%jr", c.PUBLISHED)}  %pub = load i64, ptr %jp
  %slot = getelementptr i64, ptr %warp, i32 %j
  store i64 %pub, ptr %slot
  %low = trunc i64 %pub to i32
  %low1 = and i32 %low, 1
  %lowj = shl i32 %low1, %j
  %ballot1 = or i32 %ballot, %lowj
{_field("%jres", "%jr", c.RESULT)}  store i32 %mask, ptr %jres
{_field("%jrea", "%jr", c.REASON)}  store i32 {c.RUN}, ptr %jrea
  %km1 = sub i32 %k, 1
  %k1 = and i32 %k, %km1
  %kz = icmp eq i32 %k1, 0
  br i1 %kz, label %rdone, label %rl
rdone:
  %bp = getelementptr i8, ptr %warp, i64 {c.BALLOT}
  %oldballot = load i32, ptr %bp
  %nmask = xor i32 %mask, -1
  %kept = and i32 %oldballot, %nmask
  %newballot = or i32 %kept, %ballot1
  store i32 %newballot, ptr %bp
  %todor = and i32 %todo, %nmask
  br label %gnext
gnext:
  %todo2 = phi i32 [%todos, %skip], [%todor, %rdone]
  %done = phi i1 [false, %skip], [true, %rdone]
  %prog2 = or i1 %prog, %done
  br label %gloop

; activemask: when no lane of the warp can run, lanes at the same place form the mask
actives:
  %noact = icmp eq i32 %active1, 0
  %isrun = icmp ne i32 %running1, 0
  %b1 = or i1 %noact, %isrun
  %b2 = or i1 %b1, %prog
  br i1 %b2, label %out, label %aleader
aleader:
  %a = call i32 @llvm.cttz.i32(i32 %active1, i1 true)
  %ai = add i32 %first, %a
  %a64 = zext i32 %ai to i64
  %aoff = mul i64 %a64, %size
  %ar = getelementptr i8, ptr %recs, i64 %aoff
{_field("%ap", "%ar", c.RESUME)}  %place = load i32, ptr %ap
  br label %acollect
acollect:
  %ak = phi i32 [%active1, %aleader], [%ak1, %acollect]
  %amask = phi i32 [0, %aleader], [%amask1, %acollect]
  %aj = call i32 @llvm.cttz.i32(i32 %ak, i1 true)
  %aji = add i32 %first, %aj
  %aj64 = zext i32 %aji to i64
  %ajoff = mul i64 %aj64, %size
  %ajr = getelementptr i8, ptr %recs, i64 %ajoff
{_field("%ajp", "%ajr", c.RESUME)}  %ajplace = load i32, ptr %ajp
  %asame = icmp eq i32 %ajplace, %place
  %abit = shl i32 1, %aj
  %aset = select i1 %asame, i32 %abit, i32 0
  %amask1 = or i32 %amask, %aset
  %akm = sub i32 %ak, 1
  %ak1 = and i32 %ak, %akm
  %akz = icmp eq i32 %ak1, 0
  br i1 %akz, label %arelease, label %acollect
arelease:
  %rk = phi i32 [%amask1, %acollect], [%rk1, %arelease]
  %rj = call i32 @llvm.cttz.i32(i32 %rk, i1 true)
  %rji = add i32 %first, %rj
  %rj64 = zext i32 %rji to i64
  %rjoff = mul i64 %rj64, %size
  %rjr = getelementptr i8, ptr %recs, i64 %rjoff
{_field("%rjres", "%rjr", c.RESULT)}  store i32 %amask1, ptr %rjres
{_field("%rjrea", "%rjr", c.REASON)}  store i32 {c.RUN}, ptr %rjrea
  %rkm = sub i32 %rk, 1
  %rk1 = and i32 %rk, %rkm
  %rkz = icmp eq i32 %rk1, 0
  br i1 %rkz, label %aout, label %arelease
aout:
  ret i1 true
out:
  ret i1 %prog
}}

; Releases barrier %b if enough threads wait there.
define internal i1 @ptx.release_barrier(ptr %recs, i64 %size, i32 %b, i32 %n, i32 %alive, ptr %bars) {{
entry:
  %bo = shl i32 %b, 4
  %bar = getelementptr i8, ptr %bars, i32 %bo
  %arrived = load i32, ptr %bar
  br label %scan
scan:
  %t = phi i32 [0, %entry], [%t1, %snext]
  %count = phi i32 [0, %entry], [%count1, %snext]
  %popc = phi i32 [0, %entry], [%popc1, %snext]
  %expect = phi i32 [0, %entry], [%expect1, %snext]
  %t64 = zext i32 %t to i64
  %off = mul i64 %t64, %size
  %r = getelementptr i8, ptr %recs, i64 %off
{_field("%rea", "%r", c.REASON)}  %reason = load i32, ptr %rea
  %isb = icmp eq i32 %reason, {c.BARRIER_WAIT}
{_field("%bp", "%r", c.BARRIER)}  %which = load i32, ptr %bp
  %same = icmp eq i32 %which, %b
  %here = and i1 %isb, %same
  %one = zext i1 %here to i32
  %count1 = add i32 %count, %one
{_field("%pp", "%r", c.PUBLISHED)}  %pub = load i64, ptr %pp
  %low = trunc i64 %pub to i32
  %val = select i1 %here, i32 %low, i32 0
  %popc1 = add i32 %popc, %val
{_field("%cp", "%r", c.COUNT)}  %cnt = load i32, ptr %cp
  %ask = select i1 %here, i32 %cnt, i32 0
  %expect1 = call i32 @llvm.umax.i32(i32 %expect, i32 %ask)
  br label %snext
snext:
  %t1 = add nuw i32 %t, 1
  %tm = icmp ult i32 %t1, %n
  br i1 %tm, label %scan, label %decide
decide:
  %empty = icmp eq i32 %count1, 0
  br i1 %empty, label %no, label %enough
enough:
  %all = icmp eq i32 %expect1, 0
  %need = select i1 %all, i32 %alive, i32 %expect1
  %sum = add i32 %count1, %arrived
  %ok = icmp uge i32 %sum, %need
  br i1 %ok, label %release, label %no
no:
  ret i1 false
release:
  store i32 0, ptr %bar
  %q1 = getelementptr i8, ptr %bar, i64 4
  store i32 %popc1, ptr %q1
  %q2 = getelementptr i8, ptr %bar, i64 8
  store i32 %count1, ptr %q2
  br label %free
free:
  %f = phi i32 [0, %release], [%f1, %fnext]
  %f64 = zext i32 %f to i64
  %foff = mul i64 %f64, %size
  %fr = getelementptr i8, ptr %recs, i64 %foff
{_field("%frea", "%fr", c.REASON)}  %freason = load i32, ptr %frea
  %fisb = icmp eq i32 %freason, {c.BARRIER_WAIT}
{_field("%fbp", "%fr", c.BARRIER)}  %fwhich = load i32, ptr %fbp
  %fsame = icmp eq i32 %fwhich, %b
  %fhere = and i1 %fisb, %fsame
  br i1 %fhere, label %wake, label %fnext
wake:
  store i32 {c.RUN}, ptr %frea
  br label %fnext
fnext:
  %f1 = add nuw i32 %f, 1
  %fm = icmp ult i32 %f1, %n
  br i1 %fm, label %free, label %yes
yes:
  ret i1 true
}}
"""
