"""Comparison and selection: PTX ISA, "Comparison and Selection Instructions"."""

from collections.abc import Callable, Iterator

import pytest

from tests.helpers import ieee
from tests.helpers.ieee import F32, F64, Format
from tests.helpers.operands import combine, floats, integers, random_bits, random_floats, to_signed
from tests.helpers.ptx import WIDTHS, Case, Group, parameters

FORMATS = {"f32": F32, "f64": F64}
ORDER: dict[str, Callable[[int], bool]] = {
    "eq": lambda o: o == 0,
    "ne": lambda o: o != 0,
    "lt": lambda o: o < 0,
    "le": lambda o: o <= 0,
    "gt": lambda o: o > 0,
    "ge": lambda o: o >= 0,
}
UNSIGNED = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}
COMBINE: dict[str, Callable[[bool, bool], bool]] = {
    "and": lambda x, y: x and y,
    "or": lambda x, y: x or y,
    "xor": lambda x, y: x != y,
}


def as_predicate(text: str, instruction: str) -> str:
    return f".reg .pred p; {text.replace('INSTRUCTION', instruction)} selp.u32 {{d}}, 1, 0, p;"


def integer_order(kind: str, a: int, b: int) -> int:
    if kind[0] == "s":
        a, b = to_signed(a, WIDTHS[kind]), to_signed(b, WIDTHS[kind])
    return (a > b) - (a < b)


def comparisons(kind: str) -> dict[str, Callable[[int, int], bool]]:
    """Name to meaning, over bits, of every comparison of that type."""
    found: dict[str, Callable[[int, int], bool]] = {}
    if kind in FORMATS:
        form = FORMATS[kind]
        for name, holds in ORDER.items():
            for unordered in (False, True):

                def float_holds(a: int, b: int, holds: Callable[[int], bool] = holds, unordered: bool = unordered) -> bool:
                    x, y = ieee.decode(a, form), ieee.decode(b, form)
                    return unordered if x is None or y is None else holds(ieee.compare(x, y))

                found[name + ("u" if unordered else "")] = float_holds
        found["num"] = lambda a, b: not (form.is_nan(a) or form.is_nan(b))
        found["nan"] = lambda a, b: form.is_nan(a) or form.is_nan(b)
        return found
    for name, holds in ORDER.items():
        if kind[0] == "b" and name not in ("eq", "ne"):
            continue
        found[name] = lambda a, b, holds=holds: holds(integer_order(kind, a, b))
        if kind[0] == "u":
            found |= {other: found[name] for other, same in UNSIGNED.items() if same == name}
    return found


def cases(kind: str) -> Iterator[Case]:
    every = comparisons(kind)
    for name, holds in every.items():
        text = f".reg .pred p; setp.{name}.{kind} p, {{a}}, {{b}}; selp.u32 {{d}}, 1, 0, p;"
        yield Case(f"setp.{name}.{kind}", "u32", text, lambda a, b, holds=holds: int(holds(a, b)))
        # both destinations: the second is the negation of the comparison
        text = (
            f".reg .pred p, q; .reg .b32 x, y; setp.{name}.{kind} p|q, {{a}}, {{b}};"
            " selp.u32 x, 1, 0, p; selp.u32 y, 2, 0, q; or.b32 {d}, x, y;"
        )
        yield Case(f"setp.{name}.{kind} p|q", "u32", text, lambda a, b, holds=holds: 1 if holds(a, b) else 2)
        if WIDTHS[kind] >= 32 or kind in FORMATS:
            text = f"set.{name}.u32.{kind} {{d}}, {{a}}, {{b}};"
            yield Case(f"set.{name}.u32.{kind}", "u32", text, lambda a, b, holds=holds: 0xFFFFFFFF if holds(a, b) else 0)
            text = f"set.{name}.f32.{kind} {{d}}, {{a}}, {{b}};"
            yield Case(f"set.{name}.f32.{kind}", "f32", text, lambda a, b, holds=holds: 0x3F800000 if holds(a, b) else 0)
    first, second = list(every)[:2]
    for word, rule in COMBINE.items():
        for negated in (False, True):
            # the third operand is the second comparison's result
            source = "!r" if negated else "r"
            text = (
                f".reg .pred p, q, r; .reg .b32 x, y; setp.{second}.{kind} r, {{b}}, {{a}};"
                f" setp.{first}.{word}.{kind} p|q, {{a}}, {{b}}, {source};"
                " selp.u32 x, 1, 0, p; selp.u32 y, 2, 0, q; or.b32 {d}, x, y;"
            )

            def combined(a: int, b: int, rule: Callable[[bool, bool], bool] = rule, negated: bool = negated) -> int:
                third = every[second](b, a) != negated
                one = every[first](a, b)
                return rule(one, third) + 2 * rule(not one, third)

            yield Case(f"setp.{first}.{word}.{kind}{' !r' if negated else ''}", "u32", text, combined)
    if kind == "f32":
        for name, holds in every.items():

            def flushed(a: int, b: int, holds: Callable[[int, int], bool] = holds) -> int:
                return int(holds(*(x & F32.sign_bit if F32.is_subnormal(x) else x for x in (a, b))))

            text = f".reg .pred p; setp.{name}.ftz.f32 p, {{a}}, {{b}}; selp.u32 {{d}}, 1, 0, p;"
            yield Case(f"setp.{name}.ftz.f32", "u32", text, flushed)


def selections(kind: str) -> Iterator[Case]:
    """selp by a predicate that depends on the data, slct by a sign."""
    width = WIDTHS[kind]
    word = f"{kind}"
    text = f".reg .pred p; .reg .b{width} t; and.b{width} t, {{b}}, 1; setp.ne.b{width} p, t, 0; selp.{word} {{d}}, {{a}}, {{b}}, p;"
    yield Case(f"selp.{kind}", kind, text, lambda a, b: a if b & 1 else b)
    if width >= 32:
        text = f".reg .s32 t; cvt.u32.u{width} t, {{b}}; slct.{word}.s32 {{d}}, {{a}}, {{b}}, t;"
        yield Case(f"slct.{kind}.s32", kind, text, lambda a, b: a if to_signed(b, 32) >= 0 else b)
        # -0 counts as zero, NaN selects the second
        for ftz in (False, True):
            slct = f"slct{'.ftz' if ftz else ''}.{word}.f32"
            text = f".reg .b32 t; .reg .f32 f; cvt.u32.u{width} t, {{b}}; mov.b32 f, t; {slct} {{d}}, {{a}}, {{b}}, f;"

            def by_float(a: int, b: int, ftz: bool = ftz) -> int:
                bits = b & 0xFFFFFFFF
                if F32.is_nan(bits):
                    return b
                negative = bits >> 31 and bits != F32.sign_bit and not (ftz and F32.is_subnormal(bits))
                return b if negative else a

            yield Case(slct, kind, text, by_float)


def _groups() -> Iterator[Group]:
    for kind in ("b16", "u16", "s16", "b32", "u32", "s32", "b64", "u64", "s64"):
        width = WIDTHS[kind]
        a, b = combine(integers(width), 2, [random_bits(width, 32, 1), random_bits(width, 32, 2)])
        yield Group(f"compare-{kind}", {"a": (kind, a), "b": (kind, b)}, list(cases(kind)))
        special = [0, F32.sign_bit, F32.nan, 1, F32.sign_bit | 1, 0x3F800000, 0xBF800000, F32.infinity, F32.sign_bit | F32.infinity]
        more = [x & ((1 << width) - 1) for x in special]
        yield Group(f"select-{kind}", {"a": (kind, a + [7] * len(more)), "b": (kind, b + more)}, list(selections(kind)))
    for kind, form in FORMATS.items():
        a, b = combine(floats(form), 2, [random_floats(form, 32, 1), random_floats(form, 32, 2)])
        yield Group(f"compare-{kind}", {"a": (kind, a), "b": (kind, b)}, list(cases(kind)))


GROUPS = list(_groups())


@pytest.mark.parametrize(("group", "case"), parameters(*GROUPS))
def test_comparison(group: Group, case: Case) -> None:
    group.check(case)


LOGIC = """
.visible .entry k(.param .u64 out) {
    .reg .pred p, q, r; .reg .b32 x, y, t; .reg .b64 a, o;
    ld.param.u64 a, [out]; mov.u32 t, %tid.x; mul.wide.u32 o, t, 4; add.u64 a, a, o;
    and.b32 x, t, 1; setp.ne.u32 p, x, 0; and.b32 x, t, 2; setp.ne.u32 q, x, 0;
    OPERATION
    selp.u32 y, 1, 0, r;
    st.global.u32 [a], y;
    ret;
}
"""


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        ("and.pred r, p, q;", lambda p, q: p and q),
        ("or.pred r, p, q;", lambda p, q: p or q),
        ("xor.pred r, p, q;", lambda p, q: p != q),
        ("not.pred r, p;", lambda p, q: not p),
        ("mov.pred r, q;", lambda p, q: q),
        ("setp.eq.u32 r, 1, 1; @p setp.ne.u32 r, 1, 1;", lambda p, q: not p),
        ("setp.eq.u32 r, 1, 1; @!q setp.ne.u32 r, 1, 1;", lambda p, q: q),
        ("setp.ne.u32 r, 1, 1; @p mov.pred r, q;", lambda p, q: p and q),
    ],
)
def test_predicate_logic(operation: str, rule: Callable[[bool, bool], bool]) -> None:
    import numpy as np

    from tests.helpers.ptx import launch

    out = np.full(4, 9, dtype=np.uint32)
    launch(LOGIC.replace("OPERATION", operation), "k", 1, 4, [out])
    assert out.tolist() == [int(rule(bool(t & 1), bool(t & 2))) for t in range(4)]


def test_formats_are_those_of_the_registers() -> None:
    assert all(isinstance(form, Format) and form.bits == WIDTHS[kind] for kind, form in FORMATS.items())
