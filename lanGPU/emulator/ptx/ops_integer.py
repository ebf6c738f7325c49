"""Integer arithmetic, logic, shifts, bit fields and comparisons.

Source: PTX ISA, "Integer Arithmetic Instructions", "Extended-Precision Integer Arithmetic Instructions", "Logic and Shift
Instructions", "Comparison and Selection Instructions".
"""

from lanGPU.emulator.ptx.lowering import (
    FunctionLowering,
    Modifiers,
    Unsupported,
    check_count,
    is_float,
    is_signed,
    llvm_type,
    operation,
    pair,
    require,
)
from lanGPU.emulator.ptx.ops_float import float_arithmetic, float_minmax
from lanGPU.emulator.ptx.syntax import TYPE_BITS, Instruction, Register

_INTEGERS = ("u16", "u32", "u64", "s16", "s32", "s64")


@operation("add", "sub")
def add_sub(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """add, sub with .sat (s32), .cc (carry out)."""
    check_count(i, 3)
    word = i.parts[0]
    carry = m.flag("cc")
    kind = m.type()
    if is_float(kind):
        float_arithmetic(f, i, m, kind)
        return
    require(kind, *_INTEGERS, "u16x2", "s16x2")
    d, a, b = i.operands
    x, y = f.value(a, kind), f.value(b, kind)
    t = llvm_type(kind)
    if kind in ("u16x2", "s16x2"):
        halves = f.op(f"bitcast i32 {x} to <2 x i16>"), f.op(f"bitcast i32 {y} to <2 x i16>")
        f.write(d, "b32", f.op(f"bitcast <2 x i16> {f.op(f'{word} <2 x i16> {halves[0]}, {halves[1]}')} to i32"))
        return
    if m.flag("sat"):
        if kind != "s32" or carry:
            raise Unsupported(".sat is only defined for s32")
        f.write(d, kind, f.op(f"call i32 @llvm.s{word}.sat.i32(i32 {x}, i32 {y})"))
        return
    if carry:
        both = f.op(f"call {{{t}, i1}} @llvm.u{word}.with.overflow.{t}({t} {x}, {t} {y})")
        f.write(d, kind, f.op(f"extractvalue {{{t}, i1}} {both}, 0"))
        f.store_carry(f.op(f"extractvalue {{{t}, i1}} {both}, 1"))
        return
    f.write(d, kind, f.op(f"{word} {t} {x}, {y}"))


@operation("addc", "subc")
def add_with_carry(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """addc, subc: with the carry (borrow) of the instruction before."""
    check_count(i, 3)
    out = m.flag("cc")
    kind = m.type()
    require(kind, "u32", "s32", "u64", "s64")
    d, a, b = i.operands
    _carry_chain(f, i.parts[0][:3], kind, f.value(a, kind), f.value(b, kind), d, out)


def _carry_chain(f: FunctionLowering, word: str, kind: str, x: str, y: str, d: object, out: bool) -> None:
    bits = TYPE_BITS[kind]
    wide = f"i{bits + 1}"
    xw, yw = f.op(f"zext i{bits} {x} to {wide}"), f.op(f"zext i{bits} {y} to {wide}")
    carry = f.op(f"zext i1 {f.load_carry()} to {wide}")
    total = f.op(f"{word} {wide} {f.op(f'{word} {wide} {xw}, {yw}')}, {carry}")
    f.write(d, kind, f.op(f"trunc {wide} {total} to i{bits}"))  # type: ignore[arg-type]
    if out:
        top = f.op(f"lshr {wide} {total}, {bits}")
        f.store_carry(f.op(f"trunc {wide} {top} to i1"))


@operation("mul", "mad")
def multiply(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """mul, mad: .lo, .hi, .wide; mad with .cc and .hi.sat.s32."""
    mad = i.parts[0] == "mad"
    check_count(i, 4 if mad else 3)
    carry = m.flag("cc")
    part = m.choice("lo", "hi", "wide")
    saturate = bool(part) and m.flag("sat")
    kind = m.type()
    if is_float(kind):
        float_arithmetic(f, i, m, kind)
        return
    require(kind, *_INTEGERS)
    if carry and kind not in ("u32", "s32", "u64", "s64"):
        raise Unsupported(".cc of this type")
    if not part:
        raise Unsupported("an integer product needs .lo, .hi or .wide")
    d, a, b = i.operands[:3]
    product, result = _product(f, kind, part, f.value(a, kind), f.value(b, kind))
    if mad:
        c = f.value(i.operands[3], result)
        t = llvm_type(result)
        if saturate:
            if part != "hi" or kind != "s32":
                raise Unsupported(".sat is only defined for mad.hi.s32")
            product = f.op(f"call i32 @llvm.sadd.sat.i32(i32 {product}, i32 {c})")
        elif carry:
            both = f.op(f"call {{{t}, i1}} @llvm.uadd.with.overflow.{t}({t} {product}, {t} {c})")
            product = f.op(f"extractvalue {{{t}, i1}} {both}, 0")
            f.store_carry(f.op(f"extractvalue {{{t}, i1}} {both}, 1"))
        else:
            product = f.op(f"add {t} {product}, {c}")
    f.write(d, result, product)


def _product(f: FunctionLowering, kind: str, part: str, x: str, y: str) -> tuple[str, str]:
    """(value, type) of a .lo, .hi or .wide product."""
    bits = TYPE_BITS[kind]
    if part == "lo":
        return f.op(f"mul i{bits} {x}, {y}"), kind
    extend = "sext" if is_signed(kind) else "zext"
    wide = f"i{2 * bits}"
    product = f.op(f"mul {wide} {f.op(f'{extend} i{bits} {x} to {wide}')}, {f.op(f'{extend} i{bits} {y} to {wide}')}")
    if part == "wide":
        if bits > 32:
            raise Unsupported(".wide is only defined up to 32 bits")
        return product, f"{kind[0]}{2 * bits}"
    return f.op(f"trunc {wide} {f.op(f'lshr {wide} {product}, {bits}')} to i{bits}"), kind


@operation("madc")
def multiply_with_carry(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """madc: product plus addend plus carry."""
    check_count(i, 4)
    out = m.flag("cc")
    part = m.choice("lo", "hi")
    if not part:
        raise Unsupported("madc needs .lo or .hi")
    kind = m.type()
    require(kind, "u32", "s32", "u64", "s64")
    d, a, b, c = i.operands
    product, _ = _product(f, kind, part, f.value(a, kind), f.value(b, kind))
    _carry_chain(f, "add", kind, product, f.value(c, kind), d, out)


@operation("mul24", "mad24")
def multiply24(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """24-bit products: low or high 32 bits of the 48-bit product."""
    mad = i.parts[0] == "mad24"
    check_count(i, 4 if mad else 3)
    part = m.choice("lo", "hi")
    kind = m.type()
    if not part or kind not in ("u32", "s32"):
        raise Unsupported("only .lo and .hi of 32-bit types")
    shift = "ashr" if is_signed(kind) else "lshr"
    wide = []
    for operand in i.operands[1:3]:
        x = f.op(f"shl i32 {f.value(operand, kind)}, 8")
        wide.append(f.op(f"{'sext' if is_signed(kind) else 'zext'} i32 {f.op(f'{shift} i32 {x}, 8')} to i64"))
    product = f.op(f"mul i64 {wide[0]}, {wide[1]}")
    if part == "hi":
        product = f.op(f"lshr i64 {product}, 16")
    value = f.op(f"trunc i64 {product} to i32")
    if mad:
        value = f.op(f"add i32 {value}, {f.value(i.operands[3], kind)}")
    f.write(i.operands[0], kind, value)


@operation("div", "rem")
def divide(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Integer division. By zero, which PTX leaves open, as the code of NVIDIA's assembler for sm_80: all ones for quotient and
    remainder; the 16-bit remainder is a - q * b, so the dividend."""
    check_count(i, 3)
    kind = m.type()
    if is_float(kind):
        float_arithmetic(f, i, m, kind)
        return
    require(kind, *_INTEGERS)
    d, a, b = i.operands
    t = llvm_type(kind)
    x, y = f.value(a, kind), f.value(b, kind)
    zero = f.op(f"icmp eq {t} {y}, 0")
    word = i.parts[0]
    safe = zero
    if is_signed(kind):
        lowest = f.op(f"icmp eq {t} {x}, {1 << TYPE_BITS[kind] - 1}")
        overflow = f.op(f"and i1 {lowest}, {f.op(f'icmp eq {t} {y}, -1')}")
        safe = f.op(f"or i1 {zero}, {overflow}")
    divisor = f.op(f"select i1 {safe}, {t} 1, {t} {y}")
    value = f.op(f"{'s' if is_signed(kind) else 'u'}{word} {t} {x}, {divisor}")
    f.write(d, kind, f.op(f"select i1 {zero}, {t} {x if word == 'rem' and TYPE_BITS[kind] == 16 else '-1'}, {t} {value}"))


@operation("abs", "neg")
def absolute(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 2)
    kind = m.type()
    if is_float(kind):
        float_arithmetic(f, i, m, kind)
        return
    require(kind, "s16", "s32", "s64")
    d, a = i.operands
    t, x = llvm_type(kind), f.value(a, kind)
    f.write(d, kind, f.op(f"sub {t} 0, {x}" if i.parts[0] == "neg" else f"call {t} @llvm.abs.{t}({t} {x}, i1 false)"))


@operation("min", "max")
def minmax(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    kind = m.type()
    if is_float(kind):
        float_minmax(f, i, m, kind)
        return
    require(kind, *_INTEGERS, "u16x2", "s16x2")
    check_count(i, 3)
    d, a, b = i.operands
    relu = m.flag("relu")
    name = ("s" if is_signed(kind) else "u") + i.parts[0]
    if kind in ("u16x2", "s16x2"):
        x, y = (f.op(f"bitcast i32 {f.value(o, kind)} to <2 x i16>") for o in (a, b))
        v = f.op(f"call <2 x i16> @llvm.{name}.v2i16(<2 x i16> {x}, <2 x i16> {y})")
        if relu:
            v = f.op(f"call <2 x i16> @llvm.smax.v2i16(<2 x i16> {v}, <2 x i16> zeroinitializer)")
        f.write(d, "b32", f.op(f"bitcast <2 x i16> {v} to i32"))
        return
    t = llvm_type(kind)
    value = f.op(f"call {t} @llvm.{name}.{t}({t} {f.value(a, kind)}, {t} {f.value(b, kind)})")
    if relu:
        if kind != "s32":
            raise Unsupported(".relu is only defined for signed types")
        value = f.op(f"call {t} @llvm.smax.{t}({t} {value}, {t} 0)")
    f.write(d, kind, value)


@operation("sad")
def sum_of_differences(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """d = c + |a - b|."""
    check_count(i, 4)
    kind = m.type()
    require(kind, *_INTEGERS)
    d, a, b, c = i.operands
    t, x, y = llvm_type(kind), f.value(a, kind), f.value(b, kind)
    s = "s" if is_signed(kind) else "u"
    high = f.op(f"call {t} @llvm.{s}max.{t}({t} {x}, {t} {y})")
    low = f.op(f"call {t} @llvm.{s}min.{t}({t} {x}, {t} {y})")
    f.write(d, kind, f.op(f"add {t} {f.op(f'sub {t} {high}, {low}')}, {f.value(c, kind)}"))


@operation("and", "or", "xor")
def logic(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 3)
    kind = m.type()
    require(kind, "pred", "b16", "b32", "b64")
    d, a, b = i.operands
    f.write(d, kind, f.op(f"{i.parts[0]} {llvm_type(kind)} {f.value(a, kind)}, {f.value(b, kind)}"))


@operation("not", "cnot")
def invert(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 2)
    kind = m.type()
    require(kind, "b16", "b32", "b64", *(["pred"] if i.parts[0] == "not" else []))
    d, a = i.operands
    t, x = llvm_type(kind), f.value(a, kind)
    if i.parts[0] == "not":
        f.write(d, kind, f.op(f"xor {t} {x}, {'true' if t == 'i1' else '-1'}"))
    else:
        f.write(d, kind, f.op(f"zext i1 {f.op(f'icmp eq {t} {x}, 0')} to {t}"))


@operation("shl", "shr")
def shift(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Shifts by u32; amounts beyond the width give 0 or the sign."""
    check_count(i, 3)
    kind = m.type()
    require(kind, "b16", "b32", "b64", *(_INTEGERS if i.parts[0] == "shr" else ()))
    d, a, b = i.operands
    bits, t = TYPE_BITS[kind], llvm_type(kind)
    x, amount = f.value(a, kind), f.value(b, "u32")
    far = f.op(f"icmp uge i32 {amount}, {bits}")
    near = f.op(f"select i1 {far}, i32 {bits - 1}, i32 {amount}")
    near = near if bits == 32 else f.op(f"{'trunc' if bits < 32 else 'zext'} i32 {near} to {t}")
    if i.parts[0] == "shr" and is_signed(kind):
        f.write(d, kind, f.op(f"ashr {t} {x}, {near}"))
        return
    value = f.op(f"{'shl' if i.parts[0] == 'shl' else 'lshr'} {t} {x}, {near}")
    f.write(d, kind, f.op(f"select i1 {far}, {t} 0, {t} {value}"))


@operation("shf")
def funnel_shift(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """shf.{l,r}.{wrap,clamp}.b32."""
    check_count(i, 4)
    direction, mode = m.choice("l", "r"), m.choice("wrap", "clamp")
    require(m.type(), "b32")
    if not direction or not mode:
        raise Unsupported("shf needs a direction and a mode")
    d, a, b, c = i.operands
    low, high, amount = (f.value(o, "b32") for o in (a, b, c))
    amount = f.op(f"and i32 {amount}, 31") if mode == "wrap" else f.op(f"call i32 @llvm.umin.i32(i32 {amount}, i32 32)")
    both = f.join64(low, high)
    wide = f.cast("zext", "i32", amount, "i64")
    if direction == "r":
        f.write(d, "b32", f.op(f"trunc i64 {f.op(f'lshr i64 {both}, {wide}')} to i32"))
    else:
        top = f.op(f"lshr i64 {f.op(f'shl i64 {both}, {wide}')}, 32")
        f.write(d, "b32", f.op(f"trunc i64 {top} to i32"))


@operation("popc", "clz", "brev")
def count_bits(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 2)
    kind = m.type()
    require(kind, "b32", "b64")
    d, a = i.operands
    t, x = llvm_type(kind), f.value(a, kind)
    if i.parts[0] == "brev":
        f.write(d, kind, f.op(f"call {t} @llvm.bitreverse.{t}({t} {x})"))
        return
    value = f.op(f"call {t} @llvm.ctpop.{t}({t} {x})" if i.parts[0] == "popc" else f"call {t} @llvm.ctlz.{t}({t} {x}, i1 false)")
    f.write(d, "u32", value if t == "i32" else f.op(f"trunc {t} {value} to i32"))


@operation("bfind")
def find_bit(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Position of the highest set bit (for signed types: that differs from the sign); 0xffffffff if none."""
    check_count(i, 2)
    amount = m.flag("shiftamt")
    kind = m.type()
    require(kind, "u32", "u64", "s32", "s64")
    d, a = i.operands
    bits, t, x = TYPE_BITS[kind], llvm_type(kind), f.value(a, kind)
    if is_signed(kind):
        x = f.op(f"xor {t} {x}, {f.op(f'ashr {t} {x}, {bits - 1}')}")
    zeros = f.op(f"call {t} @llvm.ctlz.{t}({t} {x}, i1 false)")
    value = zeros if amount else f.op(f"sub {t} {bits - 1}, {zeros}")
    value = f.op(f"select i1 {f.op(f'icmp eq {t} {x}, 0')}, {t} -1, {t} {value}")
    f.write(d, "u32", value if t == "i32" else f.op(f"trunc {t} {value} to i32"))


@operation("fns")
def find_nth(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """n-th set bit from a base."""
    check_count(i, 4)
    require(m.type(), "b32")
    d, mask, base, offset = i.operands
    value = f.op(f"call i32 @ptx.fns(i32 {f.value(mask, 'b32')}, i32 {f.value(base, 'b32')}, i32 {f.value(offset, 's32')})")
    f.write(d, "b32", value)


@operation("bfe")
def extract_field(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Bit field extract; position and length are the low 8 bits of b and c."""
    check_count(i, 4)
    kind = m.type()
    require(kind, "u32", "u64", "s32", "s64")
    d, a, b, c = i.operands
    bits, t = TYPE_BITS[kind], llvm_type(kind)
    x = f.value(a, kind)
    position, length = (f.bin("and", "i32", f.value(o, "u32"), 255) for o in (b, c))
    wide = "i512"  # position + length reach 510: computed without any clamping
    signed = is_signed(kind)
    value = f.cast("sext" if signed else "zext", t, x, wide)
    value = f.bin("ashr" if signed else "lshr", wide, value, f.cast("zext", "i32", position, wide))
    mask = f.bin("sub", wide, f.bin("shl", wide, "1", f.cast("zext", "i32", length, wide)), 1)
    field = f.bin("and", wide, value, mask)
    if signed:
        # The sign is bit min(position + length - 1, msb) of the source; zero length gives 0.
        last = f.bin("sub", "i32", f.bin("add", "i32", position, length), 1)
        last = f.op(f"call i32 @llvm.umin.i32(i32 {last}, i32 {bits - 1})")
        moved = f.bin("lshr", wide, f.cast("zext", t, x, wide), f.cast("zext", "i32", last, wide))
        sign = f.cast("trunc", wide, moved, "i1")
        filled = f.bin("or", wide, field, f.bin("xor", wide, mask, -1))
        field = f.select(sign, wide, filled, field)
        field = f.select(f.bin("icmp eq", "i32", length, 0), wide, "0", field)
    f.write(d, kind, f.cast("trunc", wide, field, t))


@operation("bfi")
def insert_field(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Bit field insert of a into b."""
    check_count(i, 5)
    kind = m.type()
    require(kind, "b32", "b64")
    d, a, b, c, e = i.operands
    t, wide = llvm_type(kind), "i512"
    x, y = (f.cast("zext", t, f.value(o, kind), wide) for o in (a, b))
    position, length = (f.cast("zext", "i32", f.bin("and", "i32", f.value(o, "u32"), 255), wide) for o in (c, e))
    mask = f.bin("sub", wide, f.bin("shl", wide, "1", length), 1)
    shifted = f.bin("shl", wide, f.bin("and", wide, x, mask), position)
    hole = f.bin("xor", wide, f.bin("shl", wide, mask, position), -1)
    f.write(d, kind, f.cast("trunc", wide, f.bin("or", wide, f.bin("and", wide, y, hole), shifted), t))


@operation("bmsk")
def bit_mask(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """A mask of b bits from position a."""
    check_count(i, 3)
    mode = m.choice("clamp", "wrap")
    require(m.type(), "b32")
    d, a, b = i.operands
    x, y = f.value(a, "b32"), f.value(b, "b32")
    if mode == "wrap":
        x, y = f.op(f"and i32 {x}, 31"), f.op(f"and i32 {y}, 31")
    elif mode == "clamp":
        x, y = (f.op(f"call i32 @llvm.umin.i32(i32 {v}, i32 32)") for v in (x, y))
    else:
        raise Unsupported("bmsk needs a mode")
    ones = f.bin("sub", "i128", f.bin("shl", "i128", "1", f.cast("zext", "i32", y, "i128")), 1)
    f.write(d, "b32", f.cast("trunc", "i128", f.bin("shl", "i128", ones, f.cast("zext", "i32", x, "i128")), "i32"))


@operation("szext")
def sign_zero_extend(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Keeps the low b bits of a, extended by type."""
    check_count(i, 3)
    mode = m.choice("clamp", "wrap")
    kind = m.type()
    require(kind, "u32", "s32")
    d, a, b = i.operands
    x, n = f.value(a, kind), f.value(b, "u32")
    if mode == "wrap":
        n = f.op(f"and i32 {n}, 31")
    elif mode == "clamp":
        n = f.op(f"call i32 @llvm.umin.i32(i32 {n}, i32 32)")
    else:
        raise Unsupported("szext needs a mode")
    amount = f.op(f"zext i32 {f.op(f'sub i32 32, {n}')} to i64")
    wide = f.op(f"shl i64 {f.op(f'zext i32 {x} to i64')}, 32")
    wide = f.op(f"shl i64 {wide}, {amount}")
    shift_word = "ashr" if is_signed(kind) else "lshr"
    wide = f.op(f"{shift_word} i64 {f.op(f'{shift_word} i64 {wide}, {amount}')}, 32")
    value = f.op(f"trunc i64 {wide} to i32")
    f.write(d, kind, f.op(f"select i1 {f.op(f'icmp eq i32 {n}, 0')}, i32 0, i32 {value}"))


@operation("lop3")
def logic3(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Any function of three bits, by its truth table."""
    combine = m.choice("or", "and")
    require(m.type(), "b32")
    check_count(i, 6 if combine else 5)
    d, p = pair(i.operands[0])
    a, b, c = (f.value(o, "b32") for o in i.operands[1:4])
    table = i.operands[4]
    number = getattr(table, "value", None)
    if not isinstance(number, int) or not 0 <= number <= 255:
        raise Unsupported("the truth table is not a constant of 8 bits")
    value = "0"
    for row in range(8):
        if number >> row & 1:
            terms = [v if row >> bit & 1 else f.op(f"xor i32 {v}, -1") for v, bit in ((a, 2), (b, 1), (c, 0))]
            term = f.op(f"and i32 {f.op(f'and i32 {terms[0]}, {terms[1]}')}, {terms[2]}")
            value = f.op(f"or i32 {value}, {term}")
    f.write(d, "b32", value)
    if combine:
        if p is None:
            raise Unsupported("a predicate destination is missing")
        q = f.value(i.operands[5], "pred")
        f.write(p, "pred", f.op(f"{combine} i1 {f.op(f'icmp ne i32 {value}, 0')}, {q}"))


@operation("prmt")
def permute(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Byte permutation of the eight bytes of a and b; modes f4e b4e rc8 ecl ecr rc16."""
    check_count(i, 4)
    mode = m.choice("f4e", "b4e", "rc8", "ecl", "ecr", "rc16")
    require(m.type(), "b32")
    d, a, b, c = i.operands
    x, y, selector = (f.value(o, "b32") for o in (a, b, c))
    both = f.join64(x, y)
    value = "0"
    for n in range(4):
        if mode:
            index, sign = _permute_index(f, mode, n, selector), None
        else:
            nibble = f.op(f"and i32 {f.op(f'lshr i32 {selector}, {4 * n}')}, 15")
            index, sign = f.op(f"and i32 {nibble}, 7"), f.op(f"icmp uge i32 {nibble}, 8")
        shift_by = f.op(f"zext i32 {f.op(f'mul i32 {index}, 8')} to i64")
        byte = f.op(f"trunc i64 {f.op(f'lshr i64 {both}, {shift_by}')} to i8")
        if sign is not None:
            byte = f.op(f"select i1 {sign}, i8 {f.op(f'ashr i8 {byte}, 7')}, i8 {byte}")
        value = f.bin("or", "i32", value, f.bin("shl", "i32", f.cast("zext", "i8", byte, "i32"), 8 * n))
    f.write(d, "b32", value)


def _permute_index(f: FunctionLowering, mode: str, n: int, selector: str) -> str:
    """Which of the eight bytes goes to byte `n` in a named mode; the selector's low two bits say where it starts."""
    start = f.bin("and", "i32", selector, 3)
    if mode == "f4e":
        return f.bin("add", "i32", start, n)
    if mode == "b4e":
        return f.bin("and", "i32", f.bin("add", "i32", start, 8 - n), 7)
    if mode == "rc8":
        return start
    if mode == "ecl":
        return f.op(f"call i32 @llvm.umax.i32(i32 {start}, i32 {n})")
    if mode == "ecr":
        return f.op(f"call i32 @llvm.umin.i32(i32 {start}, i32 {n})")
    return f.bin("add", "i32", f.bin("shl", "i32", f.bin("and", "i32", selector, 1), 1), n & 1)


@operation("dp4a", "dp2a")
def dot_product(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Dot product of four bytes (dp4a), or of two halves with two bytes (dp2a), plus c."""
    check_count(i, 4)
    which = m.choice("lo", "hi") if i.parts[0] == "dp2a" else ""
    types = [m.choice("u32", "s32"), m.choice("u32", "s32")]
    if not all(types) or (i.parts[0] == "dp2a") != bool(which):
        raise Unsupported("dp4a needs two types, dp2a a half")
    types = [p for p in i.parts if p in ("u32", "s32")]
    d, a, b, c = i.operands
    x, y, value = f.value(a, types[0]), f.value(b, types[1]), f.value(c, "b32")

    def lane(word: str, kind: str, bits: int, index: int) -> str:
        piece = f.op(f"trunc i32 {f.op(f'lshr i32 {word}, {bits * index}')} to i{bits}")
        return f.op(f"{'sext' if is_signed(kind) else 'zext'} i{bits} {piece} to i32")

    for n in range(2 if which else 4):
        left = lane(x, types[0], 16 if which else 8, n)
        right = lane(y, types[1], 8, n + (2 if which == "hi" else 0))
        value = f.op(f"add i32 {value}, {f.op(f'mul i32 {left}, {right}')}")
    f.write(d, "b32", value)


# --- comparisons ------------------------------------------------------------------------------------------------------

_INTEGER = {"eq": "eq", "ne": "ne", "lt": "lt", "le": "le", "gt": "gt", "ge": "ge", "lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
_FLOAT = {
    "eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge",
    "equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge", "num": "ord", "nan": "uno",
}  # fmt: skip


def compare(f: FunctionLowering, word: str, kind: str, x: str, y: str, *, ftz: bool) -> str:
    """An i1."""
    if kind in ("f16", "bf16", "f32", "f64"):
        if word not in _FLOAT:
            raise Unsupported(f"comparison .{word} of floating-point values")
        if ftz and kind not in ("f16", "f32"):
            raise Unsupported(f".ftz of {kind}")
        if kind in ("f16", "bf16"):
            x, y = f.half_to_float(kind, x), f.half_to_float(kind, y)
            if ftz:
                x, y = f.flush_half(x), f.flush_half(y)
            kind = "f32"
        elif ftz:
            x, y = f.flush(x), f.flush(y)
        return f.op(f"fcmp {_FLOAT[word]} {llvm_type(kind)} {x}, {y}")
    name = _INTEGER.get(word)
    if name is None or ftz:
        raise Unsupported(f"comparison .{word}{'.ftz' if ftz else ''} of integers")
    unsigned_only = word in ("lo", "ls", "hi", "hs")
    require(kind, *_INTEGERS, "b16", "b32", "b64")
    if unsigned_only and kind[0] != "u":
        raise Unsupported(f"comparison .{word} of this type")
    if name not in ("eq", "ne"):
        if kind[0] == "b":
            raise Unsupported(f"comparison .{word} of untyped bits")
        name = ("s" if is_signed(kind) else "u") + name
    return f.op(f"icmp {name} {llvm_type(kind)} {x}, {y}")


@operation("setp")
def set_predicate(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """setp.cmp[.boolop]: p = (a cmp b) op c, q = !(a cmp b) op c."""
    word = m.choice(*_INTEGER, *_FLOAT)
    combine = m.choice("and", "or", "xor")
    ftz = m.flag("ftz")
    kind = m.type()
    check_count(i, 4 if combine else 3)
    p, q = pair(i.operands[0])
    a, b = i.operands[1:3]
    if kind in ("f16x2", "bf16x2"):
        x, y = f.value(a, kind), f.value(b, kind)
        for n, target in enumerate((p, q)):
            lanes = [f.op(f"trunc i32 {f.op(f'lshr i32 {v}, {16 * n}')} to i16") for v in (x, y)]
            result = compare(f, word, kind[:-2], lanes[0], lanes[1], ftz=ftz)
            if combine:
                result = f.op(f"{combine} i1 {result}, {f.value(i.operands[3], 'pred')}")
            if target is not None:
                f.write(target, "pred", result)
        return
    result = compare(f, word, kind, f.value(a, kind), f.value(b, kind), ftz=ftz)
    inverse = f.op(f"xor i1 {result}, true")
    if combine:
        c = f.value(i.operands[3], "pred")
        result, inverse = f.op(f"{combine} i1 {result}, {c}"), f.op(f"{combine} i1 {inverse}, {c}")
    f.write(p, "pred", result)
    if q is not None:
        f.write(q, "pred", inverse)


_ONES = {"f32": "1.0", "f16": "15360", "bf16": "16256"}
"""1.0 of each floating-point result, as LLVM writes it."""


@operation("set")
def set_value(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """set.cmp[.boolop].dtype.stype: all ones or 1.0 where true."""
    word = m.choice(*_INTEGER, *_FLOAT)
    combine = m.choice("and", "or", "xor")
    ftz = m.flag("ftz")
    result_kind, kind = m.type(), m.type()
    check_count(i, 4 if combine else 3)
    a, b = i.operands[1:3]
    packed = kind in ("f16x2", "bf16x2")
    require(result_kind, *((kind, "u32", "s32") if packed else ("u32", "s32", "f32", "u16", "s16", "f16", "bf16")))
    if result_kind in ("u16", "s16") and kind not in ("f16", "bf16"):
        raise Unsupported("a 16-bit result of this comparison")

    def lane(k: str, values: list[str]) -> str:
        result = compare(f, word, k, values[0], values[1], ftz=ftz)
        if combine:
            result = f.op(f"{combine} i1 {result}, {f.value(i.operands[3], 'pred')}")
        one = _ONES.get(result_kind.removesuffix("x2"))
        t = "i16" if packed else llvm_type(result_kind)
        if one is None:
            return f.cast("sext", "i1", result, t)
        return f.select(result, t, one, "0.0" if t == "float" else "0")

    if packed:
        f.write(i.operands[0], "b32", f.map_halves(kind, [a, b], lane))
    else:
        f.write(i.operands[0], result_kind, lane(kind, [f.value(a, kind), f.value(b, kind)]))


@operation("selp")
def select(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 4)
    kind = m.type()
    require(kind, *_INTEGERS, "b16", "b32", "b64", "f32", "f64")
    d, a, b, c = i.operands
    t = llvm_type(kind)
    f.write(d, kind, f.op(f"select i1 {f.value(c, 'pred')}, {t} {f.value(a, kind)}, {t} {f.value(b, kind)}"))


@operation("slct")
def select_by_sign(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """d = c >= 0 ? a : b."""
    check_count(i, 4)
    ftz = m.flag("ftz")
    kind, test = m.type(), m.type()
    require(kind, *_INTEGERS, "b16", "b32", "b64", "f32", "f64")
    d, a, b, c = i.operands
    t, x = llvm_type(kind), f.value(c, test)
    if test == "f32":
        condition = f.op(f"fcmp oge float {f.flush(x) if ftz else x}, 0.0")
    elif test == "s32":
        condition = f.op(f"icmp sge i32 {x}, 0")
    else:
        raise Unsupported("slct tests s32 or f32")
    f.write(d, kind, f.op(f"select i1 {condition}, {t} {f.value(a, kind)}, {t} {f.value(b, kind)}"))


@operation("mov")
def move(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """mov: registers, constants, addresses, packing and unpacking."""
    check_count(i, 2)
    kind = m.type()
    require(kind, *_INTEGERS, "pred", "b16", "b32", "b64", "b128", "f32", "f64")
    d, a = i.operands
    if isinstance(a, Register) and a.name in f.body.registers and f.width_of(a) != TYPE_BITS[kind]:
        raise Unsupported("a source of another width")
    if isinstance(d, Register) and f.width_of(d) != TYPE_BITS[kind]:
        raise Unsupported("a destination of another width")
    widen = isinstance(a, Register) and a.name.startswith("%") and a.name not in f.body.registers
    f.write(d, kind, f.value(a, kind, extend=widen))
