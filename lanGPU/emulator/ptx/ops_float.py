"""Floating-point arithmetic: f32, f64, f16, bf16 and packed halves.

LLVM's plain operations round to nearest even and are never contracted, which is what .rn asks for. Other roundings go through
helpers that switch the processor's rounding mode around one operation (`prelude`). Halves are computed in f64 with
round-to-odd where one f32 step would round twice.

Source: PTX ISA, "Floating Point Instructions", "Half Precision Floating Point Instructions".
"""

from lanGPU.emulator.ptx.lowering import FunctionLowering, Modifiers, Unsupported, check_count, llvm_type, operation
from lanGPU.emulator.ptx.syntax import Instruction

ROUNDINGS = {"rn": 1, "rz": 0, "rp": 2, "rm": 3}
"""Suffix → argument of llvm.set.rounding (1 nearest, 0 zero, 2 up, 3 down)."""

_PLAIN = {"add": "fadd", "sub": "fsub", "mul": "fmul", "div": "fdiv"}


def float_arithmetic(f: FunctionLowering, i: Instruction, m: Modifiers, kind: str) -> None:
    """add sub mul div fma mad abs neg of any floating-point type."""
    if kind in ("f16", "bf16", "f16x2", "bf16x2"):
        half_arithmetic(f, i, m, kind)
        return
    word = i.parts[0]
    rounding = m.choice("rn", "rz", "rm", "rp")
    approximate = m.flag("approx", "full") if word == "div" else False
    ftz = m.flag("ftz")
    saturate = m.flag("sat")
    if ftz and kind == "f64":
        raise Unsupported(".ftz of f64")
    t = llvm_type(kind)
    d, *sources = i.operands
    check_count(i, {"abs": 2, "neg": 2, "fma": 4, "mad": 4}.get(word, 3))
    values = [f.value(s, kind) for s in sources]
    if ftz:
        values = [f.flush(v) for v in values]
    if word in ("abs", "neg"):
        if rounding or saturate:
            raise Unsupported("rounding of abs or neg")
        bits = 32 if kind == "f32" else 64
        raw = f.op(f"bitcast {t} {values[0]} to i{bits}")
        raw = f.op(f"xor i{bits} {raw}, {1 << bits - 1}" if word == "neg" else f"and i{bits} {raw}, {(1 << bits - 1) - 1}")
        result = f.op(f"bitcast i{bits} {raw} to {t}")
    elif word == "div" and not rounding and not approximate:
        raise Unsupported("div needs a rounding, .approx or .full")
    elif word in ("fma", "mad"):
        if not rounding and word == "fma":
            raise Unsupported("fma needs a rounding")
        result = _rounded(f, "fma", t, values, rounding or "rn")
    else:
        result = _rounded(f, word, t, values, rounding or "rn")
    if ftz:
        result = f.flush(result)
    if saturate:
        if kind != "f32":
            raise Unsupported(".sat of f64")
        result = f.saturate(result)
    f.write(d, kind, result)


def _rounded(f: FunctionLowering, word: str, t: str, values: list[str], rounding: str) -> str:
    short = {"float": "f32", "double": "f64"}[t]
    if rounding != "rn":
        arguments = ", ".join(f"{t} {v}" for v in values)
        return f.op(f"call {t} @ptx.{word}.{short}({arguments}, i32 {ROUNDINGS[rounding]})")
    if word == "fma":
        return f.op(f"call {t} @llvm.fma.{short}({t} {values[0]}, {t} {values[1]}, {t} {values[2]})")
    if word == "sqrt":
        return f.op(f"call {t} @llvm.sqrt.{short}({t} {values[0]})")
    return f.op(f"{_PLAIN[word]} {t} {values[0]}, {values[1]}")


@operation("fma")
def fused(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    float_arithmetic(f, i, m, m.type())


@operation("sqrt", "rcp")
def root(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Exact also where .approx would allow an error; rcp.approx.ftz.f64 keeps its 20 significant bits' contract trivially."""
    check_count(i, 2)
    rounding = m.choice("rn", "rz", "rm", "rp")
    approximate = m.flag("approx")
    ftz = m.flag("ftz")
    kind = m.type()
    if kind not in ("f32", "f64") or bool(rounding) == approximate or (kind == "f64" and approximate and i.parts[0] == "sqrt"):
        raise Unsupported("these modifiers")
    t = llvm_type(kind)
    x = f.value(i.operands[1], kind)
    if ftz and kind == "f32":
        x = f.flush(x)
    result = _rounded(f, "sqrt", t, [x], rounding or "rn") if i.parts[0] == "sqrt" else _rounded(f, "div", t, ["1.0", x], rounding or "rn")
    if ftz:
        result = f.flush(result, kind)
    f.write(i.operands[0], kind, result)


@operation("rsqrt")
def reciprocal_root(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 2)
    if not m.flag("approx"):
        raise Unsupported("rsqrt needs .approx")
    ftz = m.flag("ftz")
    kind = m.type()
    if kind not in ("f32", "f64"):
        raise Unsupported("this type")
    t = llvm_type(kind)
    x = f.value(i.operands[1], kind)
    if ftz:
        x = f.flush(x, kind)
    if kind == "f32":  # one rounding: the quotient is formed in f64
        wide = f.op(f"call double @llvm.sqrt.f64(double {f.op(f'fpext float {x} to double')})")
        result = f.op(f"fptrunc double {f.op(f'fdiv double 1.0, {wide}')} to float")
    else:
        result = f.op(f"fdiv double 1.0, {f.op(f'call {t} @llvm.sqrt.f64({t} {x})')}")
    if ftz:
        result = f.flush(result, kind)
    f.write(i.operands[0], kind, result)


_FUNCTIONS = {"sin": "sinf", "cos": "cosf", "ex2": "exp2f", "lg2": "log2f", "tanh": "tanhf"}


@operation("sin", "cos", "ex2", "lg2", "tanh")
def transcendental(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """The approximate functions of f32 (and ex2, tanh of halves), by libm: nearer to the truth than PTX asks for."""
    check_count(i, 2)
    if not m.flag("approx"):
        raise Unsupported("only .approx is defined")
    ftz = m.flag("ftz")
    kind = m.type()
    name = _FUNCTIONS[i.parts[0]]
    f.unit.external(name, "float", ["float"])
    if kind == "f32":
        x = f.value(i.operands[1], kind)
        result = f.op(f"call float @{name}(float {f.flush(x) if ftz else x})")
        f.write(i.operands[0], kind, f.flush(result) if ftz else result)
        return
    if i.parts[0] not in ("ex2", "tanh") or kind not in ("f16", "bf16", "f16x2", "bf16x2"):
        raise Unsupported("this type")
    if ftz and not kind.startswith("bf16"):
        raise Unsupported(".ftz of halves")
    f.write(
        i.operands[0],
        kind,
        f.map_halves(kind, [i.operands[1]], lambda k, v: f.float_to_half(k, f.op(f"call float @{name}(float {f.half_to_float(k, v[0])})"))),
    )


@operation("testp")
def test_property(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """testp.{finite,infinite,number,notanumber,normal,subnormal}."""
    check_count(i, 2)
    what = m.choice("finite", "infinite", "number", "notanumber", "normal", "subnormal")
    kind = m.type()
    # llvm.is.fpclass bits: 3 NaN, 516 infinity, 264 normal, 144 subnormal, 96 zero
    mask = {"finite": 504, "infinite": 516, "number": 1020, "notanumber": 3, "normal": 264, "subnormal": 144}.get(what)
    if mask is None or kind not in ("f32", "f64"):
        raise Unsupported("these modifiers")
    t = llvm_type(kind)
    f.write(i.operands[0], "pred", f.op(f"call i1 @llvm.is.fpclass.{kind}({t} {f.value(i.operands[1], kind)}, i32 {mask})"))


@operation("copysign")
def copy_sign(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """The sign of a on the magnitude of b."""
    check_count(i, 3)
    kind = m.type()
    if kind not in ("f32", "f64"):
        raise Unsupported("this type")
    t = llvm_type(kind)
    a, b = f.value(i.operands[1], kind), f.value(i.operands[2], kind)
    f.write(i.operands[0], kind, f.op(f"call {t} @llvm.copysign.{kind}({t} {b}, {t} {a})"))


def float_minmax(f: FunctionLowering, i: Instruction, m: Modifiers, kind: str) -> None:
    """min, max: a NaN gives the other operand (both: the canonical NaN); with .NaN a NaN wins; -0 is below +0."""
    ftz = m.flag("ftz")
    propagate = m.flag("NaN")
    xorsign = m.flag("xorsign")
    if m.flag("abs") != xorsign or (xorsign and kind != "f32"):
        raise Unsupported(".xorsign.abs of this type")
    if len(i.operands) != 3:
        raise Unsupported("three inputs")
    d, a, b = i.operands
    name = {"min": "minimum", "max": "maximum"}[i.parts[0]] + ("" if propagate else "num")

    def one(t: str, short: str, x: str, y: str) -> str:
        return f.op(f"call {t} @llvm.{name}.{short}({t} {x}, {t} {y})")

    if kind in ("f32", "f64"):
        t = llvm_type(kind)
        x, y = f.value(a, kind), f.value(b, kind)
        if ftz:
            x, y = f.flush(x, kind), f.flush(y, kind)
        if xorsign:  # the smaller or larger magnitude, with the sign of the product
            sign = f.bin("xor", "i32", f.cast("bitcast", "float", x, "i32"), f.cast("bitcast", "float", y, "i32"))
            x, y = (f.call("float", "llvm.fabs.f32", f"float {v}") for v in (x, y))
            value = one(t, kind, x, y)
            signed = f.call("float", "llvm.copysign.f32", f"float {value}", f"float {f.cast('bitcast', 'i32', sign, 'float')}")
            f.write(d, kind, f.canonical(signed, kind))
            return
        f.write(d, kind, f.canonical(one(t, kind, x, y), kind))
        return
    if ftz and kind.startswith("bf16"):
        raise Unsupported(".ftz of bf16")

    def half(k: str, values: list[str]) -> str:
        x, y = (f.half_to_float(k, v) for v in values)
        if ftz:
            x, y = f.flush_half(x), f.flush_half(y)
        return f.canonical_half(k, one("float", "f32", x, y))

    f.write(d, kind, f.map_halves(kind, [a, b], half))


def half_arithmetic(f: FunctionLowering, i: Instruction, m: Modifiers, kind: str) -> None:
    """add sub mul fma neg abs of f16, bf16 and their pairs."""
    word = i.parts[0]
    m.flag("rn")
    ftz = m.flag("ftz")
    saturate = m.flag("sat")
    relu = m.flag("relu") if word == "fma" else False
    counts = {"neg": 2, "abs": 2, "fma": 4}
    if word not in ("add", "sub", "mul", "fma", "neg", "abs") or ((ftz or saturate) and kind.startswith("bf16")):
        raise Unsupported("this type")
    check_count(i, counts.get(word, 3))
    if word in ("neg", "abs"):

        def sign(k: str, values: list[str]) -> str:
            value = values[0]
            if ftz:
                value = f.float_to_half(k, f.flush_half(f.half_to_float(k, value)))
            return f.op(f"xor i16 {value}, -32768" if word == "neg" else f"and i16 {value}, 32767")

        f.write(i.operands[0], kind, f.map_halves(kind, list(i.operands[1:]), sign))
        return

    def compute(k: str, values: list[str]) -> str:
        x = [f.half_to_float(k, v) for v in values]
        if ftz:
            x = [f.flush_half(v) for v in x]
        if word == "fma" or k == "bf16":
            wide = [f.op(f"fpext float {v} to double") for v in x]
            if word == "fma":
                result = f.op(f"call float @ptx.fma.odd(double {wide[0]}, double {wide[1]}, double {wide[2]})")
            elif word == "mul":
                result = f.op(f"call float @ptx.odd(double {f.op(f'fmul double {wide[0]}, {wide[1]}')})")
            else:
                second = wide[1] if word == "add" else f.op(f"fneg double {wide[1]}")
                result = f.op(f"call float @ptx.fma.odd(double {wide[0]}, double 1.0, double {second})")
        else:
            result = f.op(f"{_PLAIN[word]} float {x[0]}, {x[1]}")
        if saturate:
            result = f.saturate(result)
        if relu:
            zero = f.op(f"fcmp olt float {result}, 0.0")
            result = f.op(f"select i1 {zero}, float 0.0, float {result}")
        half = f.canonical_half(k, result)
        if ftz:
            half = f.float_to_half(k, f.flush_half(f.half_to_float(k, half)))
        return half

    f.write(i.operands[0], kind, f.map_halves(kind, list(i.operands[1:]), compute))
