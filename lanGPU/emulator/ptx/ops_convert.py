"""cvt and cvt.pack: conversions between every pair of types, with roundings and saturation; cvta, isspacep.

Source: PTX ISA, "Data Movement and Conversion Instructions: cvt, cvta, isspacep".
"""

from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx.lowering import FunctionLowering, Modifiers, Unsupported, check_count, is_signed, llvm_type, operation
from lanGPU.emulator.ptx.ops_float import ROUNDINGS
from lanGPU.emulator.ptx.syntax import TYPE_BITS, Instruction

_INTEGRAL = {"rni": "roundeven", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_HALVES = ("f16", "bf16")
_FLOATS = ("f16", "bf16", "f32", "f64")


@operation("cvt")
def convert(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """cvt[.round][.ftz][.sat].dtype.atype."""
    rounding = m.choice("rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi", "rna")
    relu = m.flag("relu")
    ftz = m.flag("ftz")
    saturate = m.flag("sat")
    if m.flag("satfinite", "pack"):
        raise Unsupported(".satfinite and .pack")
    to, source = m.type(), m.type()
    if to in ("f16x2", "bf16x2"):
        _pack_halves(f, i, to, source, rounding, relu=relu, ftz=ftz, saturate=saturate)
        return
    check_count(i, 2)
    if to == "tf32":
        _to_tf32(f, i, source, rounding, plain=not (relu or ftz or saturate))
        return
    if rounding == "rna" or (to[0] == "b" and to != "bf16"):
        raise Unsupported("this conversion")
    d, a = i.operands
    x = f.value(a, source)
    if to in _FLOATS and source in _FLOATS:
        result = _float_to_float(f, to, source, x, rounding, ftz=ftz, saturate=saturate)
        if relu:
            result = _relu(f, to, result)
    elif to in _FLOATS:
        if relu:
            raise Unsupported(".relu from an integer")
        result = _integer_to_float(f, to, source, x, rounding, saturate=saturate)
    elif source in _FLOATS:
        if relu:
            raise Unsupported(".relu to an integer")
        result = _float_to_integer(f, to, source, x, rounding, ftz=ftz)
    else:
        if rounding or ftz or relu:
            raise Unsupported("rounding between integers")
        result = _integer_to_integer(f, to, source, x, saturate=saturate)
    f.write(d, to, result)


def _to_tf32(f: FunctionLowering, i: Instruction, source: str, rounding: str, *, plain: bool) -> None:
    """An f32 with 10 fraction bits: rounded on its bits, the rest zero."""
    if source != "f32" or not plain or rounding not in ("rna", "rn", "rz"):
        raise Unsupported("this conversion to tf32")
    x = f.value(i.operands[1], "f32")
    bits = f.cast("bitcast", "float", x, "i32")
    bias = "0"
    if rounding == "rna":
        bias = "4096"
    elif rounding == "rn":
        bias = f.bin("add", "i32", f.bin("and", "i32", f.bin("lshr", "i32", bits, 13), 1), 4095)
    rounded = f.bin("and", "i32", f.bin("add", "i32", bits, bias), -8192)
    size = f.bin("and", "i32", bits, 0x7FFFFFFF)
    infinite = f.bin("icmp eq", "i32", size, 0x7F800000)
    value = f.select(infinite, "i32", bits, rounded)
    nan = f.bin("fcmp uno", "float", x, x)
    f.write(i.operands[0], "b32", f.select(nan, "i32", str(0x7FFFE000), value))


def _relu(f: FunctionLowering, to: str, x: str) -> str:
    if to not in _HALVES:
        raise Unsupported(".relu of this type")
    negative = f.bin("fcmp olt", "float", f.half_to_float(to, x), "0.0")
    return f.select(negative, "i16", "0", x)


def _pack_halves(
    f: FunctionLowering, i: Instruction, to: str, source: str, rounding: str, *, relu: bool, ftz: bool, saturate: bool
) -> None:
    """cvt.rn.f16x2.f32 d, a, b: a in the upper half."""
    check_count(i, 3)
    if source != "f32" or ftz or saturate:
        raise Unsupported("packed conversion from this type")
    d, a, b = i.operands
    lanes = []
    for operand in (b, a):
        half = _float_to_float(f, to[:-2], "f32", f.value(operand, "f32"), rounding, ftz=False, saturate=False)
        if relu:
            half = _relu(f, to[:-2], half)
        lanes.append(f.cast("zext", "i16", half, "i32"))
    f.write(d, to, f.bin("or", "i32", lanes[0], f.bin("shl", "i32", lanes[1], 16)))


def _integer_to_integer(f: FunctionLowering, to: str, source: str, x: str, *, saturate: bool) -> str:
    have, want = TYPE_BITS[source], TYPE_BITS[to]
    wide = "i128"
    value = f.cast("sext" if is_signed(source) else "zext", f"i{have}", x, wide)
    if saturate:
        low = -(1 << want - 1) if is_signed(to) else 0
        high = (1 << want - 1) - 1 if is_signed(to) else (1 << want) - 1
        value = f.op(f"call {wide} @llvm.smax.{wide}({wide} {value}, {wide} {low})")
        value = f.op(f"call {wide} @llvm.smin.{wide}({wide} {value}, {wide} {high})")
    return f.cast("trunc", wide, value, f"i{want}")


def _integer_to_float(f: FunctionLowering, to: str, source: str, x: str, rounding: str, *, saturate: bool) -> str:
    if rounding not in ROUNDINGS:
        raise Unsupported("a conversion from integer needs a rounding")
    word = "sitofp" if is_signed(source) else "uitofp"
    t, have = "double" if to == "f64" else "float", llvm_type(source)
    if to in _HALVES:
        # 32-bit integers are exact in f64; 64-bit ones are brought there by round-to-odd, which keeps the last rounding right.
        wide = f.cast(word, have, x, "double") if TYPE_BITS[source] <= 32 else f.call("double", f"ptx.odd.{source}", f"i64 {x}")
        result = _half_from_double(f, to, wide, rounding)
        return _saturate_half(f, to, result) if saturate else result
    if rounding == "rn":
        value = f.cast(word, have, x, t)
    else:
        bits = TYPE_BITS[source]
        if bits < 32:
            x = f.cast("sext" if is_signed(source) else "zext", have, x, "i32")
        kind = f"{source[0]}{max(32, bits)}"
        value = f.call(t, f"ptx.cvt.{to}.{kind}", f"i{max(32, bits)} {x}", f"i32 {ROUNDINGS[rounding]}")
    if saturate:
        if to != "f32":
            raise Unsupported(".sat of f64")
        value = f.saturate(value)
    return value


def _saturate_half(f: FunctionLowering, kind: str, half: str) -> str:
    return f.float_to_half(kind, f.saturate(f.half_to_float(kind, half)))


def _float_to_integer(f: FunctionLowering, to: str, source: str, x: str, rounding: str, *, ftz: bool) -> str:
    if rounding not in _INTEGRAL:
        raise Unsupported("a conversion to integer needs an integer rounding")
    t, short = ("double", "f64") if source == "f64" else ("float", "f32")
    if source in _HALVES:
        x = f.half_to_float(source, x)
    elif ftz:
        x = f.flush(x, source)
    x = f.call(t, f"llvm.{_INTEGRAL[rounding]}.{short}", f"{t} {x}")
    bits = TYPE_BITS[to]
    value = f.call(f"i{bits}", f"llvm.fpto{'s' if is_signed(to) else 'u'}i.sat.i{bits}.{short}", f"{t} {x}")
    if source == "f64" or bits == 64:
        # NaN gives 0 except here, where it gives the integer indefinite value of the destination.
        nan = f.bin("fcmp uno", t, x, x)
        value = f.select(nan, f"i{bits}", str(1 << bits - 1), value)
    return value


def _float_to_float(f: FunctionLowering, to: str, source: str, x: str, rounding: str, *, ftz: bool, saturate: bool) -> str:
    if ftz:
        if "f32" not in (to, source):
            raise Unsupported(".ftz without f32")
        if source == "f32":
            x = f.flush(x)
    if to == source:
        if rounding and rounding not in _INTEGRAL:
            raise Unsupported("a rounding to the same type")
        if to in _HALVES:
            y = f.half_to_float(to, x)
            if rounding:
                y = f.call("float", f"llvm.{_INTEGRAL[rounding]}.f32", f"float {y}")
            if saturate:
                y = f.saturate(y)
            return f.float_to_half(to, y) if rounding or saturate else x
        t = llvm_type(to)
        if rounding:
            x = f.call(t, f"llvm.{_INTEGRAL[rounding]}.{to}", f"{t} {x}")
    elif TYPE_BITS[to] > TYPE_BITS[source]:
        if rounding:
            raise Unsupported("a rounding of a widening conversion")
        if source in _HALVES:
            x = f.half_to_float(source, x)
        if to == "f64":
            x = f.cast("fpext", "float", x, "double")
    else:
        if rounding not in ROUNDINGS:
            raise Unsupported("a narrowing conversion needs a rounding")
        if to in _HALVES:
            if source in _HALVES:
                x = f.half_to_float(source, x)
            wide = x if source == "f64" else f.cast("fpext", "float", x, "double")
            half = _half_from_double(f, to, wide, rounding)
            return _saturate_half(f, to, half) if saturate else half
        x = (
            f.cast("fptrunc", "double", x, "float")
            if rounding == "rn"
            else f.call("float", "ptx.cvt.f32.f64", f"double {x}", f"i32 {ROUNDINGS[rounding]}")
        )
    if ftz and to == "f32":
        x = f.flush(x)
    if saturate:
        if to == "f64":
            zero = f.bin("fcmp ogt", "double", x, "0.0")
            x = f.select(zero, "double", x, "0.0")
            return f.select(f.bin("fcmp ogt", "double", x, "1.0"), "double", "1.0", x)
        x = f.saturate(x)
    return x


def _half_from_double(f: FunctionLowering, to: str, x: str, rounding: str) -> str:
    """A double as i16, rounded once."""
    odd = f.call("float", "ptx.odd", f"double {x}")
    if rounding == "rn":
        return f.canonical_half(to, odd)
    return f.call("i16", f"ptx.directed.{to}", f"float {odd}", f"i32 {ROUNDINGS[rounding]}")


# --- address spaces ---------------------------------------------------------------------------------------------------


@operation("cvta")
def convert_address(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Global, constant, local and parameter addresses are generic already; a shared one is an offset into the block's memory."""
    check_count(i, 2)
    back = m.flag("to")
    space = m.choice("global", "const", "local", "param", "shared", "shared::cta")
    kind = m.type()
    if not space or kind not in ("u64", "u32"):
        raise Unsupported("this address space")
    d, a = i.operands
    if not space.startswith("shared"):
        f.write(d, kind, f.value(a, kind))
        return
    base = f.cast("ptrtoint", "ptr", f.load_field(c.SHARED, "ptr"), "i64")
    x = f.value(a, "u64", extend=True)
    value = f.bin("sub" if back else "add", "i64", x, base)
    if kind == "u32":
        raise Unsupported("32-bit generic addresses")
    f.write(d, "u64", value)


@operation("isspacep")
def is_space(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Whether a generic address lies in a state space."""
    check_count(i, 2)
    space = m.choice("global", "const", "local", "shared", "shared::cta")
    p, a = i.operands
    x = f.value(a, "u64")
    shared = _within(f, x, c.SHARED, None)
    local = f.bin("or", "i1", _within(f, x, c.DEPOT, c.DEPOT_END), _within(f, x, c.ARENA, c.ARENA_END))
    if space.startswith("shared"):
        result = shared
    elif space == "local":
        result = local
    elif space == "global":
        params = f.call("i1", "ptx.in_params", "ptr %ctx", f"i64 {x}", "i64 1")
        result = f.bin("xor", "i1", f.bin("or", "i1", f.bin("or", "i1", shared, local), params), "true")
    else:
        raise Unsupported("this address space")
    f.write(p, "pred", result)


def _within(f: FunctionLowering, x: str, low: int, high: int | None) -> str:
    start = f.load_field(low, "i64")
    end = f.load_field(high, "i64") if high is not None else f.bin("add", "i64", start, f.load_field(c.SHARED_BYTES, "i64"))
    return f.bin("and", "i1", f.bin("icmp uge", "i64", x, start), f.bin("icmp ult", "i64", x, end))
