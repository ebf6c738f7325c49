"""Integer arithmetic: PTX ISA, section "Integer Arithmetic Instructions" and "Extended-Precision Integer Arithmetic Instructions"."""

from collections.abc import Callable, Iterator

import pytest

from tests.helpers.operands import combine, integers, random_bits, to_signed
from tests.helpers.ptx import WIDTHS, Case, Group, parameters


def width_of(kind: str) -> int:
    return WIDTHS[kind]


def value(kind: str, bits: int) -> int:
    """What the bits mean to an instruction of that type."""
    width = width_of(kind)
    return to_signed(bits, width) if kind[0] == "s" else bits & ((1 << width) - 1)


def on_values(kind: str, function: Callable[..., int | None]) -> Callable[..., int | None]:
    """The same function, of the bits."""
    return lambda *bits: function(*(value(kind, x) for x in bits))


def quotient(a: int, b: int) -> int:
    """Division that cuts towards zero."""
    magnitude = abs(a) // abs(b)
    return magnitude if (a < 0) == (b < 0) else -magnitude


def divide(kind: str, a: int, b: int) -> int | None:
    """The ISA leaves division by zero open ("unspecified, machine-specific value"), and so the one signed overflow."""
    return None if b == 0 or (kind[0] == "s" and a == -(1 << (width_of(kind) - 1)) and b == -1) else quotient(a, b)


def remainder(kind: str, a: int, b: int) -> int | None:
    return None if divide(kind, a, b) is None else a - b * quotient(a, b)


def saturate(kind: str, x: int) -> int:
    width = width_of(kind)
    low, high = (-(1 << (width - 1)), (1 << (width - 1)) - 1) if kind[0] == "s" else (0, (1 << width) - 1)
    return max(low, min(high, x))


def binary_cases(kind: str) -> Iterator[Case]:
    width = width_of(kind)
    rules: dict[str, Callable[[int, int], int | None]] = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul.lo": lambda a, b: a * b,
        "mul.hi": lambda a, b: a * b >> width,
        "div": lambda a, b: divide(kind, a, b),
        "rem": lambda a, b: remainder(kind, a, b),
        "min": min,
        "max": max,
    }
    for name, rule in rules.items():
        yield Case(f"{name}.{kind}", kind, f"{name}.{kind} {{d}}, {{a}}, {{b}};", on_values(kind, rule))
    if width < 64:
        wide = f"{kind[0]}{2 * width}"
        yield Case(f"mul.wide.{kind}", wide, f"mul.wide.{kind} {{d}}, {{a}}, {{b}};", on_values(kind, lambda a, b: a * b))
    if kind == "s32":
        for name, rule in {"add": lambda a, b: a + b, "sub": lambda a, b: a - b}.items():
            saturating = on_values(kind, lambda a, b, rule=rule: saturate("s32", rule(a, b)))
            yield Case(f"{name}.sat.s32", kind, f"{name}.sat.s32 {{d}}, {{a}}, {{b}};", saturating)
    if width == 32:

        def low24(x: int) -> int:
            return to_signed(x << 8, 32) >> 8 if kind == "s32" else x & 0xFFFFFF

        yield Case(f"mul24.lo.{kind}", kind, f"mul24.lo.{kind} {{d}}, {{a}}, {{b}};", lambda a, b: low24(a) * low24(b))
        yield Case(f"mul24.hi.{kind}", kind, f"mul24.hi.{kind} {{d}}, {{a}}, {{b}};", lambda a, b: low24(a) * low24(b) >> 16)


def unary_cases(kind: str) -> Iterator[Case]:
    if kind[0] == "s":
        yield Case(f"abs.{kind}", kind, f"abs.{kind} {{d}}, {{a}};", on_values(kind, lambda a, b: abs(a)))
        yield Case(f"neg.{kind}", kind, f"neg.{kind} {{d}}, {{a}};", on_values(kind, lambda a, b: -a))


def ternary_cases(kind: str) -> Iterator[Case]:
    width = width_of(kind)
    rules: dict[str, Callable[[int, int, int], int]] = {
        "mad.lo": lambda a, b, c: a * b + c,
        "mad.hi": lambda a, b, c: (a * b >> width) + c,
        "sad": lambda a, b, c: c + abs(a - b),
    }
    for name, rule in rules.items():
        yield Case(f"{name}.{kind}", kind, f"{name}.{kind} {{d}}, {{a}}, {{b}}, {{c}};", on_values(kind, rule))
    if width < 64:
        # the addend is as wide as the result: made from c by extension
        wide = f"{kind[0]}{2 * width}"
        text = f".reg .{wide} w; cvt.{wide}.{kind} w, {{c}}; mad.wide.{kind} {{d}}, {{a}}, {{b}}, w;"
        yield Case(f"mad.wide.{kind}", wide, text, on_values(kind, lambda a, b, c: a * b + c))
    if kind == "s32":
        rule = on_values(kind, lambda a, b, c: saturate("s32", (a * b >> 32) + c))
        yield Case("mad.hi.sat.s32", kind, "mad.hi.sat.s32 {d}, {a}, {b}, {c};", rule)
    if width == 32:

        def low24(x: int) -> int:
            return to_signed(x << 8, 32) >> 8 if kind == "s32" else x & 0xFFFFFF

        yield Case(f"mad24.lo.{kind}", kind, f"mad24.lo.{kind} {{d}}, {{a}}, {{b}}, {{c}};", lambda a, b, c: low24(a) * low24(b) + c)
        yield Case(
            f"mad24.hi.{kind}", kind, f"mad24.hi.{kind} {{d}}, {{a}}, {{b}}, {{c}};", lambda a, b, c: (low24(a) * low24(b) >> 16) + c
        )


def carry_cases(width: int) -> Iterator[Case]:
    """Chains over the condition code; the upper word is looked at, which is where a lost carry shows."""
    kind, mask = f"u{width}", (1 << width) - 1
    s = f"s{width}"

    def case(name: str, text: str, rule: Callable[[int, int, int], int]) -> Case:
        return Case(f"{name}.{width}", kind, f".reg .b{width} low; " + text.replace("TYPE", kind).replace("SIGNED", s), rule)

    # what flows out of the low word: [c : a] + [a : b] and the like
    yield case("add.cc addc", "add.cc.TYPE low, {a}, {b}; addc.TYPE {d}, {c}, {a};", lambda a, b, c: c + a + (a + b > mask))
    yield case("add.cc addc.signed", "add.cc.SIGNED low, {a}, {b}; addc.SIGNED {d}, {c}, {a};", lambda a, b, c: c + a + (a + b > mask))
    yield case("sub.cc subc", "sub.cc.TYPE low, {a}, {b}; subc.TYPE {d}, {c}, {a};", lambda a, b, c: c - a - (a < b))
    yield case(
        "add.cc addc.cc addc",
        "add.cc.TYPE low, {a}, {b}; addc.cc.TYPE low, {c}, {b}; addc.TYPE {d}, {a}, {a};",
        lambda a, b, c: a + a + (c + b + (a + b > mask) > mask),
    )
    yield case(
        "sub.cc subc.cc subc",
        "sub.cc.TYPE low, {a}, {b}; subc.cc.TYPE low, {c}, {b}; subc.TYPE {d}, {a}, {c};",
        lambda a, b, c: a - c - (c - b - (a < b) < 0),
    )
    yield case(
        "mad.lo.cc madc.hi",
        "mad.lo.cc.TYPE low, {a}, {b}, {c}; madc.hi.TYPE {d}, {a}, {b}, {c};",
        lambda a, b, c: (a * b >> width) + c + ((a * b & mask) + c > mask),
    )
    yield case(
        "mad.hi.cc addc",
        "mad.hi.cc.TYPE low, {a}, {b}, {c}; addc.TYPE {d}, {a}, 0;",
        lambda a, b, c: a + ((a * b >> width) + c > mask),
    )
    yield case(
        "mad.lo.cc madc.lo.cc addc",
        "mad.lo.cc.TYPE low, {a}, {b}, {c}; madc.lo.cc.TYPE low, {b}, {c}, {a}; addc.TYPE {d}, 0, 0;",
        lambda a, b, c: int((b * c & mask) + a + ((a * b & mask) + c > mask) > mask),
    )
    # an ordinary add in between leaves the carry alone
    yield case(
        "carry survives add",
        "add.cc.TYPE low, {a}, {b}; add.TYPE low, {c}, {c}; addc.TYPE {d}, {c}, 0;",
        lambda a, b, c: c + (a + b > mask),
    )


def _groups() -> Iterator[Group]:
    for kind in ("u16", "s16", "u32", "s32", "u64", "s64"):
        width = width_of(kind)
        a, b = combine(integers(width), 2, [random_bits(width, 64, 1), random_bits(width, 64, 2)])
        yield Group(f"{kind}-2", {"a": (kind, a), "b": (kind, b)}, [*binary_cases(kind), *unary_cases(kind)])
        extra = [random_bits(width, 64, seed) for seed in (3, 4, 5)]
        columns = combine(integers(width), 3, extra, limit=400)
        yield Group(f"{kind}-3", dict(zip("abc", ((kind, c) for c in columns), strict=True)), list(ternary_cases(kind)))
    for width in (32, 64):
        columns = combine(integers(width), 3, limit=400)
        operands = dict(zip("abc", ((f"u{width}", c) for c in columns), strict=True))
        yield Group(f"carry-{width}", operands, list(carry_cases(width)))


def dot_cases() -> Iterator[Case]:
    """dp4a and dp2a: sums of products of bytes, or of half words and bytes, each operand signed or not."""

    def parts(x: int, width: int, signed: bool) -> list[int]:
        pieces = [x >> shift & ((1 << width) - 1) for shift in range(0, 32, width)]
        return [to_signed(p, width) for p in pieces] if signed else pieces

    for ta in ("u32", "s32"):
        for tb in ("u32", "s32"):
            sa, sb = ta == "s32", tb == "s32"

            def four(a: int, b: int, c: int, sa: bool = sa, sb: bool = sb) -> int:
                return c + sum(x * y for x, y in zip(parts(a, 8, sa), parts(b, 8, sb), strict=True))

            yield Case(f"dp4a.{ta}.{tb}", "b32", f"dp4a.{ta}.{tb} {{d}}, {{a}}, {{b}}, {{c}};", four)
            for half, first in (("lo", 0), ("hi", 2)):

                def two(a: int, b: int, c: int, sa: bool = sa, sb: bool = sb, first: int = first) -> int:
                    return c + sum(x * y for x, y in zip(parts(a, 16, sa), parts(b, 8, sb)[first : first + 2], strict=True))

                yield Case(f"dp2a.{half}.{ta}.{tb}", "b32", f"dp2a.{half}.{ta}.{tb} {{d}}, {{a}}, {{b}}, {{c}};", two)


def packed_cases() -> Iterator[Case]:
    """Two 16-bit integers in a word (sm_90)."""
    for kind in ("u16", "s16"):
        for name, rule in {"add": lambda a, b: a + b, "min": min, "max": max}.items():

            def both(a: int, b: int, kind: str = kind, rule: Callable[[int, int], int] = rule) -> int:
                halves = [rule(value(kind, a >> shift), value(kind, b >> shift)) & 0xFFFF for shift in (0, 16)]
                return halves[0] | halves[1] << 16

            yield Case(f"{name}.{kind}x2", "b32", f"{name}.{kind}x2 {{d}}, {{a}}, {{b}};", both)


_words = combine(integers(32), 3, [random_bits(32, 128, seed) for seed in (6, 7, 8)], limit=256)
GROUPS = [
    *_groups(),
    Group("dot", {"a": ("b32", _words[0]), "b": ("b32", _words[1]), "c": ("b32", _words[2])}, list(dot_cases())),
    Group("packed", {"a": ("b32", _words[0]), "b": ("b32", _words[1])}, list(packed_cases())),
]


@pytest.mark.parametrize(("group", "case"), parameters(*GROUPS))
def test_integer_instruction(group: Group, case: Case) -> None:
    group.check(case)
