"""f16 and bf16, single and packed: PTX ISA, "Half Precision Floating Point Instructions"."""

import math
import struct
from collections.abc import Callable, Iterator

import pytest

from tests.helpers import ieee
from tests.helpers.ieee import BF16, F16, F64, Format, Number, Round
from tests.helpers.operands import combine, floats, random_bits, random_floats
from tests.helpers.ptx import Case, Group, parameters

FORMATS = {"f16": F16, "bf16": BF16}
Rule = Callable[[int, int, int], int]


def number(bits: int, form: Format, ftz: bool = False) -> Number | None:
    return ieee.decode(bits, form, ftz)


def relu(bits: int, form: Format) -> int:
    """.relu: negative results become +0; NaN stays (the canonical one)."""
    return bits if form.is_nan(bits) or not bits & form.sign_bit else 0


def saturate(bits: int, form: Format) -> int:
    return 0 if form.is_nan(bits) or bits & form.sign_bit else min(bits, form.bias << form.fraction_bits)


def choose(a: int, b: int, form: Format, largest: bool, nan: bool) -> int:
    if form.is_nan(a) or form.is_nan(b):
        return form.nan if nan or (form.is_nan(a) and form.is_nan(b)) else b if form.is_nan(a) else a

    def key(bits: int) -> int:
        return -(bits & ~form.sign_bit) - 1 if bits & form.sign_bit else bits

    return max(a, b, key=key) if largest else min(a, b, key=key)


def rules(kind: str) -> dict[str, tuple[str, Rule]]:
    """Instruction to its operands and its meaning, for one element."""
    form = FORMATS[kind]

    def exact(function: Callable[..., Number | None], after: Callable[[int, Format], int] | None = None, ftz: bool = False) -> Rule:
        def rule(a: int, b: int, c: int) -> int:
            bits = ieee.encode(function(*(number(x, form, ftz) for x in (a, b, c))), form, Round.RN, ftz)
            return after(bits, form) if after else bits

        return rule

    def minus(x: Number | None) -> Number | None:
        return None if x is None else -x

    pair, triple = "{a}, {b}", "{a}, {b}, {c}"
    found: dict[str, tuple[str, Rule]] = {
        "add": (pair, exact(lambda a, b, c: ieee.add(a, b))),
        "add.rn": (pair, exact(lambda a, b, c: ieee.add(a, b))),
        "sub": (pair, exact(lambda a, b, c: ieee.add(a, minus(b)))),
        "sub.rn": (pair, exact(lambda a, b, c: ieee.add(a, minus(b)))),
        "mul": (pair, exact(lambda a, b, c: ieee.mul(a, b))),
        "mul.rn": (pair, exact(lambda a, b, c: ieee.mul(a, b))),
        "fma.rn": (triple, exact(ieee.fma)),
        "fma.rn.relu": (triple, exact(ieee.fma, relu)),
        "neg": ("{a}", lambda a, b, c: a ^ form.sign_bit),
        "abs": ("{a}", lambda a, b, c: a & ~form.sign_bit),
    }
    for name in ("min", "max"):
        for nan in (False, True):
            found[name + (".NaN" if nan else "")] = (
                pair,
                lambda a, b, c, name=name, nan=nan: choose(a, b, form, name == "max", nan),
            )
    if kind == "f16":
        found |= {
            "add.sat": (pair, exact(lambda a, b, c: ieee.add(a, b), saturate)),
            "sub.sat": (pair, exact(lambda a, b, c: ieee.add(a, minus(b)), saturate)),
            "mul.sat": (pair, exact(lambda a, b, c: ieee.mul(a, b), saturate)),
            "fma.rn.sat": (triple, exact(ieee.fma, saturate)),
            "add.ftz": (pair, exact(lambda a, b, c: ieee.add(a, b), ftz=True)),
            "sub.ftz": (pair, exact(lambda a, b, c: ieee.add(a, minus(b)), ftz=True)),
            "mul.ftz": (pair, exact(lambda a, b, c: ieee.mul(a, b), ftz=True)),
            "fma.rn.ftz": (triple, exact(ieee.fma, ftz=True)),
        }
    return found


def same(form: Format) -> Callable[[int, int], bool]:
    """NaN may be any NaN; with .sat and .relu a -0 may stay."""
    return lambda expected, found: (form.is_nan(expected) and form.is_nan(found)) or (expected == 0 and found == form.sign_bit)


def strict(form: Format) -> Callable[[int, int], bool]:
    return lambda expected, found: form.is_nan(expected) and form.is_nan(found)


def both(rule: Rule) -> Rule:
    return lambda a, b, c: rule(a & 0xFFFF, b & 0xFFFF, c & 0xFFFF) & 0xFFFF | (rule(a >> 16, b >> 16, c >> 16) & 0xFFFF) << 16


def both_close(close: Callable[[int, int], bool]) -> Callable[[int, int], bool]:
    def each(expected: int, found: int) -> bool:
        halves = ((expected >> s & 0xFFFF, found >> s & 0xFFFF) for s in (0, 16))
        return all(x == y or close(x, y) for x, y in halves)

    return each


def cases(kind: str, packed: bool) -> Iterator[Case]:
    form = FORMATS[kind]
    suffix = kind + ("x2" if packed else "")
    for name, (operands, rule) in rules(kind).items():
        close = same(form) if ".sat" in name or ".relu" in name else strict(form)
        full = f"{name}.{suffix}"
        text = f"{full} {{d}}, {operands};"
        yield Case(full, suffix, text, both(rule) if packed else rule, both_close(close) if packed else close)


def to_float(bits: int, form: Format) -> float:
    found: float = struct.unpack("<d", struct.pack("<Q", ieee.encode(ieee.decode(bits, form), F64)))[0]
    return found


def from_float(value: float, form: Format) -> int:
    return ieee.encode(ieee.decode(struct.unpack("<Q", struct.pack("<d", value))[0], F64), form)


def approximate(kind: str) -> Iterator[Case]:
    """ex2 and tanh; the ISA bounds their relative error by some 2**-10 (f16) and 2**-7 or 2**-8 (bf16)."""
    form = FORMATS[kind]
    relative = 2**-9.5 if kind == "f16" else 2**-7
    functions: dict[str, Callable[[float], float]] = {
        "ex2.approx": lambda x: math.inf if x > 1000 else 2.0 ** max(x, -1000.0) if not math.isnan(x) else x,
        "tanh.approx": math.tanh,
    }
    for name, function in functions.items():
        full = f"{name}{'.ftz' if kind == 'bf16' and name == 'ex2.approx' else ''}.{kind}"

        def close(expected: int, found: int) -> bool:
            want, have = to_float(expected, form), to_float(found, form)
            if math.isnan(want) or math.isnan(have):
                return math.isnan(want) and math.isnan(have)
            smallest = 2.0 ** (2 - form.bias - form.fraction_bits) if kind == "f16" else 2.0**-125
            return want == have or abs(want - have) <= max(relative * abs(want), smallest)

        yield Case(full, kind, f"{full} {{d}}, {{a}};", lambda a, b, c, f=function: from_float(f(to_float(a, form)), form), close)


def comparisons(kind: str) -> Iterator[Case]:
    form = FORMATS[kind]
    orders: dict[str, Callable[[int], bool]] = {
        "eq": lambda o: o == 0,
        "ne": lambda o: o != 0,
        "lt": lambda o: o < 0,
        "le": lambda o: o <= 0,
        "gt": lambda o: o > 0,
        "ge": lambda o: o >= 0,
    }
    for name, holds in orders.items():
        for unordered in (False, True):
            full = f"setp.{name}{'u' if unordered else ''}.{kind}"

            def expected(a: int, b: int, c: int, holds: Callable[[int], bool] = holds, unordered: bool = unordered) -> int:
                x, y = ieee.decode(a, form), ieee.decode(b, form)
                return int(unordered) if x is None or y is None else int(holds(ieee.compare(x, y)))

            yield Case(full, "u32", f".reg .pred p; {full} p, {{a}}, {{b}}; selp.u32 {{d}}, 1, 0, p;", expected)


def _groups() -> Iterator[Group]:
    for kind, form in FORMATS.items():
        extra = [random_floats(form, 64, seed, 4) + random_bits(16, 32, seed) for seed in (1, 2, 3)]
        columns = combine(floats(form), 3, extra, 480)
        operands = dict(zip("abc", ((kind, c) for c in columns), strict=True))
        yield Group(kind, operands, [*cases(kind, False), *comparisons(kind), *approximate(kind)])
        # the other half is the same list backwards
        words = [[low | high << 16 for low, high in zip(column, reversed(column), strict=True)] for column in columns]
        yield Group(f"{kind}x2", dict(zip("abc", ((f"{kind}x2", c) for c in words), strict=True)), list(cases(kind, True)))


GROUPS = list(_groups())


@pytest.mark.parametrize(("group", "case"), parameters(*GROUPS))
def test_half_instruction(group: Group, case: Case) -> None:
    group.check(case)
