"""cvt between all types, with every rounding and saturation that PTX allows: PTX ISA, "Data Movement and Conversion Instructions: cvt"."""

import math
from collections.abc import Callable, Iterator

import pytest

from tests.helpers import ieee
from tests.helpers.ieee import BF16, F16, F32, F64, TF32, Format, Number, Round
from tests.helpers.operands import combine, floats, integers, random_bits, random_floats, to_signed
from tests.helpers.ptx import WIDTHS, Case, Group, parameters

FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
INTEGERS = [f"{sign}{width}" for width in (8, 16, 32, 64) for sign in "us"]
INTEGER_MODES = {"rni": Round.RN, "rzi": Round.RZ, "rmi": Round.RM, "rpi": Round.RP}


def value(kind: str, bits: int) -> int:
    return to_signed(bits, WIDTHS[kind]) if kind[0] == "s" else bits & ((1 << WIDTHS[kind]) - 1)


def low(kind: str) -> int:
    return -(1 << (WIDTHS[kind] - 1)) if kind[0] == "s" else 0


def high(kind: str) -> int:
    return (1 << (WIDTHS[kind] - (kind[0] == "s"))) - 1


def clamp(kind: str, x: int) -> int:
    return max(low(kind), min(high(kind), x))


def same_nan(form: Format) -> Callable[[int, int], bool]:
    return lambda expected, found: form.is_nan(expected) and form.is_nan(found)


def register_result(kind: str, x: int) -> int:
    """What the register holds: 8-bit results are widened to their 32-bit register by their sign."""
    return value(kind, x) & 0xFFFFFFFF if WIDTHS[kind] == 8 else x


def result_type(kind: str) -> str:
    return "b32" if WIDTHS[kind] == 8 else kind


def from_integer(source: str) -> Iterator[Case]:
    for target in INTEGERS:
        for sat in (False, True):
            if sat and clamp(target, low(source)) == low(source) and clamp(target, high(source)) == high(source):
                continue  # not legal where nothing can be clamped
            name = f"cvt{'.sat' if sat else ''}.{target}.{source}"

            def expected(a: int, target: str = target, sat: bool = sat) -> int:
                x = value(source, a)
                return register_result(target, clamp(target, x) if sat else x)

            yield Case(name, result_type(target), f"{name} {{d}}, {{a}};", expected)
    for target in ("f16", "f32", "f64"):
        form = FORMATS[target]
        for mode in (Round.RN, Round.RZ, Round.RM, Round.RP):
            name = f"cvt.{mode.value}.{target}.{source}"

            def real(a: int, form: Format = form, mode: Round = mode) -> int:
                x = value(source, a)
                return ieee.encode(Number(x < 0, ieee.Fraction(abs(x))), form, mode)

            yield Case(name, target, f"{name} {{d}}, {{a}};", real)


def integral(number: Number | None, mode: Round) -> Number | None:
    """A float rounded to an integer that stays a float."""
    if number is None or number.magnitude is None:
        return number
    return Number(number.negative, ieee.Fraction(ieee.round_integer(number.magnitude, mode, number.negative)))


def to_integer(number: Number, target: str, mode: Round) -> int:
    """Out of range values are clamped, with or without .sat."""
    if number.magnitude is None:
        return clamp(target, -(1 << 70) if number.negative else 1 << 70)
    rounded = ieee.round_integer(number.magnitude, mode, number.negative)
    return clamp(target, -rounded if number.negative else rounded)


def from_float(source: str) -> Iterator[Case]:
    form = FORMATS[source]
    for target in INTEGERS:
        for modifier, mode in INTEGER_MODES.items():
            for extra in ("", ".sat", ".ftz") if source == "f32" else ("", ".sat"):
                name = f"cvt.{modifier}{extra}.{target}.{source}"

                def integer(a: int, target: str = target, mode: Round = mode, ftz: bool = extra == ".ftz") -> int | None:
                    number = ieee.decode(a, form, ftz)
                    if number is None and source != "f64" and WIDTHS[target] < 64:
                        return 0
                    if number is None:
                        # the top bit alone; for the short types of f64's NaN we know no authority but the text
                        return 1 << (WIDTHS[target] - 1) if WIDTHS[target] >= 32 else None
                    return register_result(target, to_integer(number, target, mode))

                yield Case(name, result_type(target), f"{name} {{d}}, {{a}};", integer)
    yield from between_floats(source)


def saturated(bits: int, form: Format) -> int:
    return 0 if form.is_nan(bits) or bits & form.sign_bit else min(bits, form.bias << form.fraction_bits)


def float_case(name: str, source: Format, target: Format, mode: Round, *, ftz: bool = False, sat: bool = False, relu: bool = False) -> Case:
    """`ftz` flushes f32 subnormals only, on either side."""

    def expected(a: int) -> int | None:
        number = ieee.decode(a, source, ftz and source is F32)
        bits = ieee.encode(number, target, mode, ftz and target is F32)
        if (sat or relu) and bits == target.sign_bit:
            return None
        if relu and bits & target.sign_bit and number is not None:
            return 0
        return saturated(bits, target) if sat else bits

    kind = {v.name: k for k, v in FORMATS.items()}[target.name]
    return Case(name, kind, f"{name} {{d}}, {{a}};", expected, same_nan(target))


def between_floats(source: str) -> Iterator[Case]:
    form = FORMATS[source]
    modes = {mode.value: mode for mode in (Round.RN, Round.RZ, Round.RM, Round.RP)}
    # to the same format: rounding to an integer
    if source != "bf16":
        for modifier, mode in INTEGER_MODES.items():
            for ftz in (False, True) if source == "f32" else (False,):
                name = f"cvt.{modifier}{'.ftz' if ftz else ''}.{source}.{source}"

                def whole(a: int, mode: Round = mode, ftz: bool = ftz) -> int:
                    return ieee.encode(integral(ieee.decode(a, form, ftz), mode), form)

                yield Case(name, source, f"{name} {{d}}, {{a}};", whole, same_nan(form))
    if source == "f64":
        for word, mode in modes.items():
            yield float_case(f"cvt.{word}.f32.f64", F64, F32, mode)
            yield float_case(f"cvt.{word}.ftz.f32.f64", F64, F32, mode, ftz=True)
            yield float_case(f"cvt.{word}.sat.f32.f64", F64, F32, mode, sat=True)
            yield float_case(f"cvt.{word}.f16.f64", F64, F16, mode)
    if source == "f32":
        for word, mode in modes.items():
            yield float_case(f"cvt.{word}.f16.f32", F32, F16, mode)
        yield float_case("cvt.rn.ftz.f16.f32", F32, F16, Round.RN, ftz=True)
        yield float_case("cvt.rn.sat.f16.f32", F32, F16, Round.RN, sat=True)
        yield float_case("cvt.rn.relu.f16.f32", F32, F16, Round.RN, relu=True)
        yield float_case("cvt.rz.relu.f16.f32", F32, F16, Round.RZ, relu=True)
        yield float_case("cvt.f64.f32", F32, F64, Round.RN)
        yield float_case("cvt.ftz.f64.f32", F32, F64, Round.RN, ftz=True)
        yield float_case("cvt.sat.f32.f32", F32, F32, Round.RN, sat=True)
        yield float_case("cvt.ftz.sat.f32.f32", F32, F32, Round.RN, sat=True, ftz=True)
        for word in ("rn", "rz"):
            yield float_case(f"cvt.{word}.bf16.f32", F32, BF16, modes[word])
            yield float_case(f"cvt.{word}.relu.bf16.f32", F32, BF16, modes[word], relu=True)
        # tf32 has 10 fraction bits in an f32's place; the other 13 mean nothing
        for mode in (Round.RNA, Round.RN, Round.RZ):
            name = f"cvt.{mode.value}.tf32.f32"

            def tensor(a: int, mode: Round = mode) -> int:
                return ieee.encode(ieee.decode(a, F32), TF32, mode) << 13

            def near(expected: int, found: int) -> bool:
                return expected >> 13 == found >> 13 or (F32.is_nan(expected) and F32.is_nan(found))

            yield Case(name, "b32", f"{name} {{d}}, {{a}};", tensor, near)
    if source == "f16":
        yield float_case("cvt.f32.f16", F16, F32, Round.RN)
        yield float_case("cvt.ftz.f32.f16", F16, F32, Round.RN, ftz=True)
        yield float_case("cvt.sat.f32.f16", F16, F32, Round.RN, sat=True)
        yield float_case("cvt.f64.f16", F16, F64, Round.RN)
    if source == "bf16":
        yield float_case("cvt.f32.bf16", BF16, F32, Round.RN)
        for word, mode in modes.items():
            yield float_case(f"cvt.{word}.f16.bf16", BF16, F16, mode)


def packing() -> Iterator[Case]:
    """Two f32 to one packed word: the first operand goes into the upper half."""
    for kind in ("f16", "bf16"):
        form = FORMATS[kind]
        for mode in (Round.RN, Round.RZ):
            for relu in (False, True):
                name = f"cvt.{mode.value}{'.relu' if relu else ''}.{kind}x2.f32"

                def half(x: int, form: Format = form, mode: Round = mode, relu: bool = relu) -> int:
                    bits = ieee.encode(ieee.decode(x, F32), form, mode)
                    return 0 if relu and bits & form.sign_bit else bits

                def close(expected: int, found: int, form: Format = form) -> bool:
                    halves = [(expected >> s & 0xFFFF, found >> s & 0xFFFF) for s in (0, 16)]
                    return all(x == y or (form.is_nan(x) and form.is_nan(y)) or (x, y) == (0, form.sign_bit) for x, y in halves)

                yield Case(name, f"{kind}x2", f"{name} {{d}}, {{a}}, {{b}};", lambda a, b, half=half: half(a) << 16 | half(b), close)


def _float_operands(kind: str) -> list[int]:
    form = FORMATS[kind]
    around = []
    # values around the ends of the integer types, and ties between integers
    for power in (7, 8, 15, 16, 31, 32, 63, 64):
        for delta in (-1.5, -1, -0.5, -0.25, 0, 0.25, 0.5, 1):
            for sign in (1, -1):
                x = ieee.Fraction(sign * (2.0**power)) + ieee.Fraction(sign * delta)
                around.append(ieee.encode(Number(x < 0, abs(x)), form))
    halves = [ieee.encode(Number(s < 0, ieee.Fraction(k, 4)), form) for k in range(14) for s in (1, -1)]
    more = random_bits(WIDTHS[kind], 64, 9) + random_floats(form, 64, 9, min(40, form.bias - 1))
    return list(dict.fromkeys([*floats(form), *around, *halves, *more]))


def _groups() -> Iterator[Group]:
    for source in INTEGERS:
        width = WIDTHS[source]
        operands = list(dict.fromkeys([*integers(width), *(1 << k for k in range(width)), *((1 << k) - 1 for k in range(width))]))
        operands += random_bits(width, 96, 10)
        yield Group(f"from-{source}", {"a": (source, operands)}, list(from_integer(source)))
    for source in FORMATS:
        cases = list(between_floats(source) if source == "bf16" else from_float(source))
        yield Group(f"from-{source}", {"a": (source, _float_operands(source))}, cases)
    a, b = combine(_float_operands("f32"), 2, limit=400)
    yield Group("packing", {"a": ("f32", a), "b": ("f32", b)}, list(packing()))


GROUPS = list(_groups())


@pytest.mark.parametrize(("group", "case"), parameters(*GROUPS))
def test_conversion(group: Group, case: Case) -> None:
    group.check(case)


def test_operands_reach_past_every_integer() -> None:
    """The groups above would prove little if no operand had to be clamped."""
    for kind in ("f32", "f64"):
        numbers = [ieee.decode(bits, FORMATS[kind]) for bits in _float_operands(kind)]
        finite = [float(n.value) for n in numbers if n is not None and n.magnitude is not None]
        assert max(finite) > 2.0**64
        assert min(finite) < -(2.0**63)
        assert not all(math.floor(x) == x for x in finite)
