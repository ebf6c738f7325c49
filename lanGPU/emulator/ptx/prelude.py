"""IR that every kernel is compiled with: address checks, faults, the block scheduler, rounding helpers, warp helpers.

Text, because it is easier to read as what it is. Functions are internal: what a kernel does not use disappears.
"""

from lanGPU.emulator.ptx import context as c


def _rounding_helpers() -> str:
    """Operations under another rounding mode. strictfp and constrained intrinsics keep LLVM from moving them."""
    out = []
    strict = 'metadata !"round.dynamic", metadata !"fpexcept.strict"'

    def function(result: str, name: str, parameters: list[str], call: str) -> None:
        head = ", ".join(f"{t} %a{n}" for n, t in enumerate(parameters))
        out.append(
            f"define internal {result} @{name}({head}, i32 %mode) noinline strictfp {{\n"
            "  call void @llvm.set.rounding(i32 %mode) strictfp\n"
            f"  %r = call {result} {call} strictfp\n"
            "  call void @llvm.set.rounding(i32 1) strictfp\n"
            f"  ret {result} %r\n}}\n"
        )

    for t, s in (("float", "f32"), ("double", "f64")):
        for word in ("add", "sub", "mul", "div"):
            arguments = f"{t} %a0, {t} %a1, {strict}"
            function(t, f"ptx.{word}.{s}", [t, t], f"@llvm.experimental.constrained.f{word}.{s}({arguments})")
        function(t, f"ptx.sqrt.{s}", [t], f"@llvm.experimental.constrained.sqrt.{s}({t} %a0, {strict})")
        arguments = f"{t} %a0, {t} %a1, {t} %a2, {strict}"
        function(t, f"ptx.fma.{s}", [t, t, t], f"@llvm.experimental.constrained.fma.{s}({arguments})")
        for bits in (32, 64):
            for sign in "su":
                name = f"@llvm.experimental.constrained.{sign}itofp.{s}.i{bits}"
                function(t, f"ptx.cvt.{s}.{sign}{bits}", [f"i{bits}"], f"{name}(i{bits} %a0, {strict})")
    function("float", "ptx.cvt.f32.f64", ["double"], f"@llvm.experimental.constrained.fptrunc.f32.f64(double %a0, {strict})")
    return "".join(out)


_HALVES = """
; A float to bf16, nearest even; NaN becomes 0x7fff.
define internal i16 @ptx.bf16(float %x) {
  %b = bitcast float %x to i32
  %l = lshr i32 %b, 16
  %lsb = and i32 %l, 1
  %bias = add i32 %lsb, 32767
  %s = add i32 %b, %bias
  %h = lshr i32 %s, 16
  %t = trunc i32 %h to i16
  %nan = fcmp uno float %x, %x
  %r = select i1 %nan, i16 32767, i16 %t
  ret i16 %r
}
; A double to float by round-to-odd: a later rounding to fewer bits is then right.
define internal float @ptx.odd(double %x) {
  %f = fptrunc double %x to float
  %w = fpext float %f to double
  %exact = fcmp ueq double %w, %x
  %bits = bitcast float %f to i32
  %low = and i32 %bits, 1
  %isodd = icmp ne i32 %low, 0
  %keep = or i1 %exact, %isodd
  %aw = call double @llvm.fabs.f64(double %w)
  %ax = call double @llvm.fabs.f64(double %x)
  %over = fcmp ogt double %aw, %ax
  %step = select i1 %over, i32 -1, i32 1
  %moved = add i32 %bits, %step
  %r = select i1 %keep, i32 %bits, i32 %moved
  %o = bitcast i32 %r to float
  ret float %o
}
; a * b + c in round-to-odd, of halves that were widened to double: the product is exact.
define internal float @ptx.fma.odd(double %a, double %b, double %c) {
  %p = fmul double %a, %b
  %s = fadd double %p, %c
  %bb = fsub double %s, %p
  %aa = fsub double %s, %bb
  %ea = fsub double %p, %aa
  %eb = fsub double %c, %bb
  %e = fadd double %ea, %eb
  %exact = fcmp ueq double %e, 0.0
  %bits = bitcast double %s to i64
  %low = and i64 %bits, 1
  %isodd = icmp ne i64 %low, 0
  %keep = or i1 %exact, %isodd
  %spos = fcmp ogt double %s, 0.0
  %epos = fcmp ogt double %e, 0.0
  %away = icmp eq i1 %spos, %epos
  %step = select i1 %away, i64 1, i64 -1
  %moved = add i64 %bits, %step
  %r = select i1 %keep, i64 %bits, i64 %moved
  %o = bitcast i64 %r to double
  %f = call float @ptx.odd(double %o)
  ret float %f
}
; 64-bit integers to double by round-to-odd.
define internal double @ptx.odd.u64(i64 %x) {
  %hi = lshr i64 %x, 11
  %lo = and i64 %x, 2047
  %sticky = icmp ne i64 %lo, 0
  %st = zext i1 %sticky to i64
  %odd = or i64 %hi, %st
  %big = icmp ugt i64 %x, 9007199254740991
  %d1 = uitofp i64 %odd to double
  %d2 = fmul double %d1, 2048.0
  %d3 = uitofp i64 %x to double
  %r = select i1 %big, double %d2, double %d3
  ret double %r
}
define internal double @ptx.odd.s64(i64 %x) {
  %neg = icmp slt i64 %x, 0
  %minus = sub i64 0, %x
  %abs = select i1 %neg, i64 %minus, i64 %x
  %d = call double @ptx.odd.u64(i64 %abs)
  %nd = fneg double %d
  %r = select i1 %neg, double %nd, double %d
  ret double %r
}
; A float to a half in a directed mode: from the nearest one, one step back if that went the wrong way. Modes: 0 zero, 2 up, 3 down.
define internal i16 @ptx.step(i16 %h, float %back, float %x, i32 %mode) {
  %ab = call float @llvm.fabs.f32(float %back)
  %ax = call float @llvm.fabs.f32(float %x)
  %toobig = fcmp ogt float %ab, %ax
  %zero = icmp eq i32 %mode, 0
  %up = icmp eq i32 %mode, 2
  %down = icmp eq i32 %mode, 3
  %cz = and i1 %zero, %toobig
  %below = fcmp olt float %back, %x
  %above = fcmp ogt float %back, %x
  %cu = and i1 %up, %below
  %cd = and i1 %down, %above
  %xneg = fcmp olt float %x, 0.0
  ; magnitude grows when going up from a positive or down from a negative value
  %xpos = xor i1 %xneg, true
  %grow1 = and i1 %cu, %xpos
  %grow2 = and i1 %cd, %xneg
  %grow = or i1 %grow1, %grow2
  %any0 = or i1 %cz, %cu
  %any = or i1 %any0, %cd
  %plus = add i16 %h, 1
  %minus = sub i16 %h, 1
  %moved = select i1 %grow, i16 %plus, i16 %minus
  %r = select i1 %any, i16 %moved, i16 %h
  %nan = fcmp uno float %x, %x
  %q = select i1 %nan, i16 32767, i16 %r
  ret i16 %q
}
define internal i16 @ptx.directed.f16(float %x, i32 %mode) {
  %hh = fptrunc float %x to half
  %h = bitcast half %hh to i16
  %back = fpext half %hh to float
  %r = call i16 @ptx.step(i16 %h, float %back, float %x, i32 %mode)
  ret i16 %r
}
define internal i16 @ptx.directed.bf16(float %x, i32 %mode) {
  %h = call i16 @ptx.bf16(float %x)
  %w = zext i16 %h to i32
  %s = shl i32 %w, 16
  %back = bitcast i32 %s to float
  %r = call i16 @ptx.step(i16 %h, float %back, float %x, i32 %mode)
  ret i16 %r
}
"""


def _checks() -> str:
    return f"""
define internal void @ptx.fault(ptr %ctx, i32 %kind, i32 %line, i64 %address, i32 %tx, i32 %ty, i32 %tz) noinline cold {{
  %k = getelementptr i8, ptr %ctx, i64 {c.FAULT_KIND}
  store i32 %kind, ptr %k
  %l = getelementptr i8, ptr %ctx, i64 {c.FAULT_LINE}
  store i32 %line, ptr %l
  %a = getelementptr i8, ptr %ctx, i64 {c.FAULT_ADDRESS}
  store i64 %address, ptr %a
  %x = getelementptr i8, ptr %ctx, i64 {c.FAULT_THREAD}
  store i32 %tx, ptr %x
  %y = getelementptr i8, ptr %ctx, i64 {c.FAULT_THREAD + 4}
  store i32 %ty, ptr %y
  %z = getelementptr i8, ptr %ctx, i64 {c.FAULT_THREAD + 8}
  store i32 %tz, ptr %z
  %b = getelementptr i8, ptr %ctx, i64 {c.CTAID}
  %fb = getelementptr i8, ptr %ctx, i64 {c.FAULT_BLOCK}
  call void @llvm.memcpy.p0.p0.i64(ptr %fb, ptr %b, i64 12, i1 false)
  ret void
}}
define internal i1 @ptx.inside(i64 %address, i64 %size, i64 %start, i64 %end) alwaysinline {{
  %delta = sub i64 %address, %start
  %length = sub i64 %end, %start
  %low = icmp ult i64 %delta, %length
  %room = sub i64 %length, %delta
  %high = icmp uge i64 %room, %size
  %r = and i1 %low, %high
  ret i1 %r
}}
define internal i1 @ptx.local(ptr %ctx, i64 %address, i64 %size) noinline {{
  %p0 = getelementptr i8, ptr %ctx, i64 {c.DEPOT}
  %s0 = load i64, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 {c.DEPOT_END}
  %e0 = load i64, ptr %p1
  %in0 = call i1 @ptx.inside(i64 %address, i64 %size, i64 %s0, i64 %e0)
  %p2 = getelementptr i8, ptr %ctx, i64 {c.ARENA}
  %s1 = load i64, ptr %p2
  %p3 = getelementptr i8, ptr %ctx, i64 {c.ARENA_TOP}
  %e1 = load i64, ptr %p3
  %in1 = call i1 @ptx.inside(i64 %address, i64 %size, i64 %s1, i64 %e1)
  %r = or i1 %in0, %in1
  ret i1 %r
}}
define internal i1 @ptx.in_params(ptr %ctx, i64 %address, i64 %size) noinline {{
  %p0 = getelementptr i8, ptr %ctx, i64 {c.PARAMS}
  %start = load i64, ptr %p0
  %p1 = getelementptr i8, ptr %ctx, i64 {c.PARAM_BYTES}
  %n = load i32, ptr %p1
  %n64 = zext i32 %n to i64
  %end = add i64 %start, %n64
  %r = call i1 @ptx.inside(i64 %address, i64 %size, i64 %start, i64 %end)
  ret i1 %r
}}
; Space: 0 global, 1 generic to be written, 2 generic to be read.
define internal i1 @ptx.find(ptr %ctx, i64 %address, i64 %size, i64 %site, i32 %space) noinline {{
entry:
  %tp = getelementptr i8, ptr %ctx, i64 {c.TABLE}
  %table = load ptr, ptr %tp
  %count = load i64, ptr %table
  br label %loop
loop:
  %low = phi i64 [0, %entry], [%low2, %next]
  %high = phi i64 [%count, %entry], [%high2, %next]
  %more = icmp ult i64 %low, %high
  br i1 %more, label %probe, label %found
probe:
  %sum = add i64 %low, %high
  %mid = lshr i64 %sum, 1
  %word = shl i64 %mid, 1
  %index = add i64 %word, 1
  %sp = getelementptr i64, ptr %table, i64 %index
  %start = load i64, ptr %sp
  %left = icmp ult i64 %address, %start
  %mid1 = add i64 %mid, 1
  br label %next
next:
  %low2 = select i1 %left, i64 %low, i64 %mid1
  %high2 = select i1 %left, i64 %mid, i64 %high
  br label %loop
found:
  %none = icmp eq i64 %low, 0
  br i1 %none, label %other, label %candidate
candidate:
  %w = shl i64 %low, 1
  %i0 = sub i64 %w, 1
  %q0 = getelementptr i64, ptr %table, i64 %i0
  %s = load i64, ptr %q0
  %q1 = getelementptr i64, ptr %table, i64 %w
  %e = load i64, ptr %q1
  %ok = call i1 @ptx.inside(i64 %address, i64 %size, i64 %s, i64 %e)
  br i1 %ok, label %remember, label %other
remember:
  %c0 = getelementptr i8, ptr %ctx, i64 %site
  store i64 %s, ptr %c0
  %c1 = getelementptr i8, ptr %c0, i64 8
  store i64 %e, ptr %c1
  ret i1 true
other:
  %generic = icmp ne i32 %space, 0
  br i1 %generic, label %windows, label %bad
windows:
  %h0 = getelementptr i8, ptr %ctx, i64 {c.SHARED}
  %hs = load i64, ptr %h0
  %h1 = getelementptr i8, ptr %ctx, i64 {c.SHARED_BYTES}
  %hn = load i64, ptr %h1
  %he = add i64 %hs, %hn
  %inshared = call i1 @ptx.inside(i64 %address, i64 %size, i64 %hs, i64 %he)
  %inlocal = call i1 @ptx.local(ptr %ctx, i64 %address, i64 %size)
  %own = or i1 %inshared, %inlocal
  %inparams = call i1 @ptx.in_params(ptr %ctx, i64 %address, i64 %size)
  %reads = icmp eq i32 %space, 2
  %param = and i1 %reads, %inparams
  %r = or i1 %own, %param
  ret i1 %r
bad:
  ret i1 false
}}
"""


def _warps() -> str:
    out = [
        f"""
define internal i32 @ptx.match(ptr %warp, i32 %present, i64 %value) {{
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%i1, %loop]
  %acc = phi i32 [0, %entry], [%acc1, %loop]
  %p = getelementptr i64, ptr %warp, i32 %i
  %v = load i64, ptr %p
  %same = icmp eq i64 %v, %value
  %bit = shl i32 1, %i
  %set = select i1 %same, i32 %bit, i32 0
  %acc1 = or i32 %acc, %set
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, 32
  br i1 %more, label %loop, label %done
done:
  %r = and i32 %acc1, %present
  ret i32 %r
}}
define internal i32 @ptx.fns(i32 %mask, i32 %base, i32 %offset) {{
entry:
  %here = icmp eq i32 %offset, 0
  %up = icmp sgt i32 %offset, 0
  %step = select i1 %up, i32 1, i32 -1
  %neg = sub i32 0, %offset
  %mag = select i1 %up, i32 %offset, i32 %neg
  %want = select i1 %here, i32 1, i32 %mag
  br label %loop
loop:
  %pos = phi i32 [%base, %entry], [%pos1, %next]
  %left = phi i32 [%want, %entry], [%left1, %next]
  %out = icmp ugt i32 %pos, 31
  br i1 %out, label %none, label %look
look:
  %m = lshr i32 %mask, %pos
  %b = and i32 %m, 1
  %left1 = sub i32 %left, %b
  %hit = icmp eq i32 %left1, 0
  br i1 %hit, label %found, label %cont
cont:
  br i1 %here, label %none, label %next
next:
  %pos1 = add i32 %pos, %step
  br label %loop
found:
  ret i32 %pos
none:
  ret i32 -1
}}
define internal void @ptx.arrive(ptr %ctx, i32 %index, i32 %threads) noinline {{
  %o = shl i32 %index, 4
  %p0 = getelementptr i8, ptr %ctx, i64 {c.BARRIERS}
  %p = getelementptr i8, ptr %p0, i32 %o
  %n = load i32, ptr %p
  %n1 = add i32 %n, 1
  store i32 %n1, ptr %p
  ret void
}}
"""
    ]
    start = {"umin": "-1", "smin": "2147483647", "umax": "0", "smax": "-2147483648", "add": "0", "and": "-1", "or": "0", "xor": "0"}
    for name, neutral in start.items():
        step = f"call i32 @llvm.{name}.i32(i32 %acc, i32 %u)" if name[1:] in ("min", "max") else f"{name} i32 %acc, %u"
        out.append(
            f"""
define internal i32 @ptx.redux.{name}(ptr %warp, i32 %present) {{
entry:
  br label %loop
loop:
  %i = phi i32 [0, %entry], [%i1, %loop]
  %acc = phi i32 [{neutral}, %entry], [%acc2, %loop]
  %p = getelementptr i64, ptr %warp, i32 %i
  %v = load i64, ptr %p
  %u = trunc i64 %v to i32
  %acc1 = {step}
  %m = lshr i32 %present, %i
  %b = trunc i32 %m to i1
  %acc2 = select i1 %b, i32 %acc1, i32 %acc
  %i1 = add i32 %i, 1
  %more = icmp ult i32 %i1, 32
  br i1 %more, label %loop, label %done
done:
  ret i32 %acc2
}}
"""
        )
    return "".join(out)


HELPERS = _rounding_helpers() + _HALVES + _checks() + _warps()
