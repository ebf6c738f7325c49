"""f32 and f64: PTX ISA, "Floating Point Instructions". Rounded results are compared bit by bit, approximate ones by the ISA's bounds."""

import math
import struct
from collections.abc import Callable, Iterator

import pytest

from tests.helpers import ieee
from tests.helpers.ieee import F32, F64, Format, Number, Round
from tests.helpers.operands import combine, floats, random_bits, random_floats
from tests.helpers.ptx import Case, Group, parameters

MODES = (Round.RN, Round.RZ, Round.RM, Round.RP)
FORMATS = {"f32": F32, "f64": F64}


def same_nan(form: Format) -> Callable[[int, int], bool]:
    """Which NaN an operation returns is only said for some; any will do."""
    return lambda expected, found: form.is_nan(expected) and form.is_nan(found)


def saturated(bits: int, form: Format) -> int | None:
    """.sat: clamp to [0, 1]; NaN becomes +0. Which zero -0 becomes is not said."""
    if bits == form.sign_bit:
        return None
    one = form.bias << form.fraction_bits
    if form.is_nan(bits) or bits & form.sign_bit:
        return 0
    return min(bits, one)


Exact = Callable[..., Number | None]


def rounded_case(name: str, text: str, form: Format, exact: Exact, mode: Round, *, ftz: bool = False, sat: bool = False) -> Case:
    """An operation that is computed exactly and rounded once."""

    def expected(*operands: int) -> int | None:
        bits = ieee.encode(exact(*(ieee.decode(x, form, ftz) for x in operands)), form, mode, ftz)
        return saturated(bits, form) if sat else bits

    return Case(name, form.name, text, expected, same_nan(form))


def arithmetic(kind: str) -> Iterator[Case]:
    """add, sub, mul and fma in all roundings, with .ftz and .sat for f32."""
    form = FORMATS[kind]
    modifiers = [(False, False), (True, False), (False, True), (True, True)] if kind == "f32" else [(False, False)]
    for mode in MODES:
        for ftz, sat in modifiers:
            suffix = f"{'.ftz' if ftz else ''}{'.sat' if sat else ''}.{kind}"
            rules: dict[str, tuple[str, Exact]] = {
                "add": ("{a}, {b}", lambda a, b, c, m=mode: ieee.add(a, b, m)),
                "sub": ("{a}, {b}", lambda a, b, c, m=mode: ieee.add(a, None if b is None else -b, m)),
                "mul": ("{a}, {b}", lambda a, b, c: ieee.mul(a, b)),
                "fma": ("{a}, {b}, {c}", lambda a, b, c, m=mode: ieee.fma(a, b, c, m)),
            }
            for name, (operands, exact) in rules.items():
                full = f"{name}.{mode.value}{suffix}"
                yield rounded_case(full, f"{full} {{d}}, {operands};", form, exact, mode, ftz=ftz, sat=sat)
    # without a rounding modifier add, sub and mul round to nearest; mad.rn is fma
    plain: dict[str, tuple[str, Exact]] = {
        f"add.{kind}": ("{a}, {b}", lambda a, b, c: ieee.add(a, b)),
        f"sub.{kind}": ("{a}, {b}", lambda a, b, c: ieee.add(a, None if b is None else -b)),
        f"mul.{kind}": ("{a}, {b}", lambda a, b, c: ieee.mul(a, b)),
        f"mad.rn.{kind}": ("{a}, {b}, {c}", ieee.fma),
    }
    for name, (operands, exact) in plain.items():
        yield rounded_case(name, f"{name} {{d}}, {operands};", form, exact, Round.RN)


def division(kind: str) -> Iterator[Case]:
    form = FORMATS[kind]
    one = ieee.decode(form.bias << form.fraction_bits, form)
    for mode in MODES:
        for ftz in (False, True) if kind == "f32" else (False,):
            suffix = f".{mode.value}{'.ftz' if ftz else ''}.{kind}"
            yield rounded_case(f"div{suffix}", f"div{suffix} {{d}}, {{a}}, {{b}};", form, ieee.div, mode, ftz=ftz)
            yield rounded_case(f"rcp{suffix}", f"rcp{suffix} {{d}}, {{a}};", form, lambda a, b: ieee.div(one, a), mode, ftz=ftz)
            yield rounded_case(f"sqrt{suffix}", f"sqrt{suffix} {{d}}, {{a}};", form, lambda a, b: ieee.sqrt(a), mode, ftz=ftz)


def flushed(bits: int, form: Format) -> int:
    return bits & form.sign_bit if form.is_subnormal(bits) else bits


def minimum(a: int, b: int, form: Format, *, largest: bool, nan: bool, xorsign: bool = False) -> int:
    """min and max: of a NaN and a number the number, unless .NaN; -0 is below +0."""
    sign = (a ^ b) & form.sign_bit
    if xorsign:
        a, b = a & ~form.sign_bit, b & ~form.sign_bit
    if form.is_nan(a) or form.is_nan(b):
        if nan or (form.is_nan(a) and form.is_nan(b)):
            return form.nan
        result = b if form.is_nan(a) else a
    else:
        # bit patterns order like numbers once negative ones are turned round
        def key(bits: int) -> int:
            return -(bits & ~form.sign_bit) - 1 if bits & form.sign_bit else bits

        result = max(a, b, key=key) if largest else min(a, b, key=key)
    return result | sign if xorsign else result


def selection(kind: str) -> Iterator[Case]:
    form = FORMATS[kind]
    for name in ("min", "max"):
        for nan in (False, True) if kind == "f32" else (False,):
            for ftz in (False, True) if kind == "f32" else (False,):
                for xorsign in (False, True) if kind == "f32" else (False,):
                    full = f"{name}{'.ftz' if ftz else ''}{'.NaN' if nan else ''}{'.xorsign.abs' if xorsign else ''}.{kind}"

                    def expected(a: int, b: int, name: str = name, nan: bool = nan, ftz: bool = ftz, xorsign: bool = xorsign) -> int:
                        a, b = (flushed(x, form) if ftz else x for x in (a, b))
                        return minimum(a, b, form, largest=name == "max", nan=nan, xorsign=xorsign)

                    yield Case(full, kind, f"{full} {{d}}, {{a}}, {{b}};", expected, same_nan(form))
    yield Case(f"abs.{kind}", kind, f"abs.{kind} {{d}}, {{a}};", lambda a, b: a & ~form.sign_bit, same_nan(form))
    yield Case(f"neg.{kind}", kind, f"neg.{kind} {{d}}, {{a}};", lambda a, b: a ^ form.sign_bit, same_nan(form))
    if kind == "f32":
        yield Case("abs.ftz.f32", kind, "abs.ftz.f32 {d}, {a};", lambda a, b: flushed(a, form) & ~form.sign_bit, same_nan(form))
        yield Case("neg.ftz.f32", kind, "neg.ftz.f32 {d}, {a};", lambda a, b: flushed(a, form) ^ form.sign_bit, same_nan(form))
    # copysign takes the sign of its first operand
    copied = Case(
        f"copysign.{kind}",
        kind,
        f"copysign.{kind} {{d}}, {{a}}, {{b}};",
        lambda a, b: b & ~form.sign_bit | a & form.sign_bit,
        same_nan(form),
    )
    yield copied
    classes: dict[str, Callable[[int], bool]] = {
        "finite": lambda x: x & ~form.sign_bit < form.infinity,
        "infinite": lambda x: x & ~form.sign_bit == form.infinity,
        "number": lambda x: not form.is_nan(x),
        "notanumber": form.is_nan,
        "normal": lambda x: 1 << form.fraction_bits <= x & ~form.sign_bit < form.infinity,
        "subnormal": form.is_subnormal,
    }
    for name, is_one in classes.items():
        text = f".reg .pred p; testp.{name}.{kind} p, {{a}}; selp.u32 {{d}}, 1, 0, p;"
        yield Case(f"testp.{name}.{kind}", "u32", text, lambda a, b, is_one=is_one: int(is_one(a)))


# --- approximations ---------------------------------------------------------------------------------------------------


def as_float(bits: int) -> float:
    """The value of an f32 pattern."""
    value: float = struct.unpack("<f", struct.pack("<I", bits))[0]
    return value


def within(relative: float, absolute: float = 0.0) -> Callable[[int, int], bool]:
    """The found f32 is the expected one up to an error; infinities and NaN must be themselves."""

    def close(expected: int, found: int) -> bool:
        if F32.is_nan(expected) or F32.is_nan(found):
            return F32.is_nan(expected) and F32.is_nan(found)
        want, have = as_float(expected), as_float(found)
        if math.isinf(want) or math.isinf(have):
            return want == have
        return abs(want - have) <= max(relative * abs(want), absolute)

    return close


def f32(value: float) -> int:
    """The pattern nearest to a value computed in double precision."""
    if math.isnan(value):
        return F32.nan
    if math.isinf(value):
        return F32.infinity | (F32.sign_bit if value < 0 else 0)
    number = ieee.decode(struct.unpack("<Q", struct.pack("<d", value))[0], F64)
    return ieee.encode(number, F32)


def _log2(x: float) -> float:
    if math.isnan(x) or x < 0:
        return math.nan
    return -math.inf if x == 0 else math.log2(x) if not math.isinf(x) else math.inf


def _exp2(x: float) -> float:
    return math.nan if math.isnan(x) else math.inf if x > 1000 else 2.0 ** max(x, -1000.0)


def _inverse_root(x: float) -> float:
    if math.isnan(x) or x < 0:
        return math.nan
    if x == 0:
        return math.copysign(math.inf, x)
    return 0.0 if math.isinf(x) else 1 / math.sqrt(x)


def _inverse(x: float) -> float:
    return math.copysign(math.inf, x) if x == 0 else 1 / x


def _trigonometric(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: math.nan if math.isinf(x) or math.isnan(x) else function(x)


SMALL = 2.0**-120
"""Results below this may be flushed by an approximation."""


def approximations() -> Iterator[Case]:
    """Bounds from the ISA's text of each instruction, a little widened where it gives an absolute error on a part of the range only."""
    one_operand: dict[str, tuple[Callable[[float], float], Callable[[int, int], bool]]] = {
        "rcp.approx.f32": (_inverse, within(2**-22, SMALL)),
        "rcp.approx.ftz.f32": (_inverse, within(2**-22, SMALL)),
        "sqrt.approx.f32": (lambda x: math.nan if x < 0 or math.isnan(x) else math.sqrt(x), within(2**-22)),
        "sqrt.approx.ftz.f32": (lambda x: math.nan if x < 0 or math.isnan(x) else math.sqrt(x), within(2**-22)),
        "rsqrt.approx.f32": (_inverse_root, within(2**-22)),
        "rsqrt.approx.ftz.f32": (_inverse_root, within(2**-22)),
        "lg2.approx.f32": (_log2, within(2**-21, 2**-21)),
        "lg2.approx.ftz.f32": (_log2, within(2**-21, 2**-21)),
        "ex2.approx.f32": (_exp2, within(2**-21, SMALL)),
        "ex2.approx.ftz.f32": (_exp2, within(2**-21, SMALL)),
        "tanh.approx.f32": (math.tanh, within(2**-10.9, SMALL)),
    }
    for name, (function, close) in one_operand.items():
        ftz = ".ftz" in name

        def expected(a: int, function: Callable[[float], float] = function, ftz: bool = ftz) -> int:
            return f32(function(as_float(flushed(a, F32) if ftz else a)))

        yield Case(name, "f32", f"{name} {{d}}, {{a}};", expected, close)
    for name, function in {"sin": math.sin, "cos": math.cos}.items():
        # the bound holds in [-pi, pi]; outside it only the range of the result is checked
        def bounded(a: int, function: Callable[[float], float] = function) -> int | None:
            x = as_float(a)
            return f32(_trigonometric(function)(x)) if not abs(x) > math.pi or math.isinf(x) else None

        yield Case(f"{name}.approx.f32", "f32", f"{name}.approx.f32 {{d}}, {{a}};", bounded, within(0, 2**-20))
        yield Case(f"{name}.approx.ftz.f32", "f32", f"{name}.approx.ftz.f32 {{d}}, {{a}};", bounded, within(0, 2**-20))


def approximate_division() -> Iterator[Case]:
    for name in ("div.full.f32", "div.approx.f32", "div.full.ftz.f32", "div.approx.ftz.f32"):
        ftz = ".ftz" in name

        def expected(a: int, b: int, ftz: bool = ftz, full: bool = "full" in name) -> int | None:
            if not ftz and (F32.is_subnormal(a) or F32.is_subnormal(b)):
                return None  # the ISA gives no bound there
            if not full and 0x7E800000 < b & ~F32.sign_bit < F32.infinity:
                return None  # |b| beyond 2**126: 0, or NaN for an infinite a
            quotient = ieee.div(ieee.decode(a, F32, ftz), ieee.decode(b, F32, ftz))
            bits = ieee.encode(quotient, F32)
            return None if F32.is_subnormal(bits) else bits

        yield Case(name, "f32", f"{name} {{d}}, {{a}}, {{b}};", expected, within(2**-21, SMALL))


def _groups() -> Iterator[Group]:
    for kind, form in FORMATS.items():
        columns = combine(floats(form), 3, [random_floats(form, 64, seed) + random_bits(form.bits, 16, seed) for seed in (1, 2, 3)], 420)
        operands = dict(zip("abc", ((kind, c) for c in columns), strict=True))
        yield Group(f"arithmetic-{kind}", operands, list(arithmetic(kind)))
        columns = combine(floats(form), 2, [random_floats(form, 64, seed) + random_bits(form.bits, 32, seed) for seed in (4, 5)], 400)
        pair = {"a": (kind, columns[0]), "b": (kind, columns[1])}
        yield Group(f"division-{kind}", pair, list(division(kind)))
        yield Group(f"selection-{kind}", pair, list(selection(kind)))
    values = [*floats(F32), *random_floats(F32, 160, 6), *random_bits(32, 64, 6)]
    yield Group("approximate", {"a": ("f32", values)}, list(approximations()))
    columns = combine(floats(F32), 2, [random_floats(F32, 100, seed) for seed in (7, 8)], 400)
    yield Group("approximate-division", {"a": ("f32", columns[0]), "b": ("f32", columns[1])}, list(approximate_division()))


GROUPS = list(_groups())


@pytest.mark.parametrize(("group", "case"), parameters(*GROUPS))
def test_float_instruction(group: Group, case: Case) -> None:
    group.check(case)
