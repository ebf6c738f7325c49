"""Logic, shifts and bit fields: PTX ISA, "Logic and Shift Instructions" and the bit instructions among "Integer Arithmetic"."""

import random
from collections.abc import Callable, Iterator

import pytest

from tests.helpers.operands import combine, integers, random_bits, to_signed
from tests.helpers.ptx import Case, Group, parameters

COUNTS = [0, 1, 2, 7, 8, 15, 16, 17, 30, 31, 32, 33, 47, 63, 64, 65, 100, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFFE0]
"""Shift amounts: above the width they are clamped to it, not taken modulo."""


def logic_cases(width: int) -> Iterator[Case]:
    mask = (1 << width) - 1
    for name, rule in {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}.items():
        yield Case(f"{name}.b{width}", f"b{width}", f"{name}.b{width} {{d}}, {{a}}, {{b}};", rule)
    yield Case(f"not.b{width}", f"b{width}", f"not.b{width} {{d}}, {{a}};", lambda a, b: ~a)
    yield Case(f"cnot.b{width}", f"b{width}", f"cnot.b{width} {{d}}, {{a}};", lambda a, b: int(a & mask == 0))


def shift_cases(width: int) -> Iterator[Case]:
    mask = (1 << width) - 1
    yield Case(f"shl.b{width}", f"b{width}", f"shl.b{width} {{d}}, {{a}}, {{b}};", lambda a, b: 0 if b > width else a << b)
    yield Case(f"shr.u{width}", f"u{width}", f"shr.u{width} {{d}}, {{a}}, {{b}};", lambda a, b: 0 if b > width else (a & mask) >> b)
    yield Case(f"shr.b{width}", f"b{width}", f"shr.b{width} {{d}}, {{a}}, {{b}};", lambda a, b: 0 if b > width else (a & mask) >> b)
    yield Case(f"shr.s{width}", f"s{width}", f"shr.s{width} {{d}}, {{a}}, {{b}};", lambda a, b: to_signed(a, width) >> min(b, width))


def count_cases(width: int) -> Iterator[Case]:
    mask = (1 << width) - 1

    def leading(a: int) -> int:
        return width - (a & mask).bit_length()

    def found(a: int, signed: bool) -> int:
        a &= mask
        if signed and a >> (width - 1):
            a = ~a & mask
        return a.bit_length() - 1 if a else 0xFFFFFFFF

    yield Case(f"popc.b{width}", "u32", f"popc.b{width} {{d}}, {{a}};", lambda a: (a & mask).bit_count())
    yield Case(f"clz.b{width}", "u32", f"clz.b{width} {{d}}, {{a}};", leading)
    yield Case(f"brev.b{width}", f"b{width}", f"brev.b{width} {{d}}, {{a}};", lambda a: int(f"{a & mask:0{width}b}"[::-1], 2))
    for kind in "us":
        signed = kind == "s"
        yield Case(f"bfind.{kind}{width}", "u32", f"bfind.{kind}{width} {{d}}, {{a}};", lambda a, s=signed: found(a, s))

        def shift_amount(a: int, signed: bool = signed) -> int:
            position = found(a, signed)
            return position if position == 0xFFFFFFFF else width - 1 - position

        yield Case(f"bfind.shiftamt.{kind}{width}", "u32", f"bfind.shiftamt.{kind}{width} {{d}}, {{a}};", shift_amount)


def extract(a: int, position: int, length: int, width: int, signed: bool) -> int:
    """bfe: fields that reach past the word are filled with the sign of the field's last bit inside it."""
    position, length = position & 0xFF, length & 0xFF
    msb = width - 1
    sign = 0 if not signed or length == 0 else a >> min(position + length - 1, msb) & 1
    result = 0
    for i in range(width):
        bit = a >> (position + i) & 1 if i < length and position + i <= msb else sign
        result |= bit << i
    return result


def insert(a: int, b: int, position: int, length: int, width: int) -> int:
    position, length = position & 0xFF, length & 0xFF
    result = b
    for i in range(length):
        if position + i >= width:
            break
        bit = 1 << (position + i)
        result = result & ~bit | ((a >> i & 1) << (position + i))
    return result


def field_cases(width: int) -> Iterator[Case]:
    for kind in "us":
        signed = kind == "s"
        yield Case(
            f"bfe.{kind}{width}",
            f"{kind}{width}",
            f"bfe.{kind}{width} {{d}}, {{a}}, {{b}}, {{c}};",
            lambda a, b, c, signed=signed: extract(a, b, c, width, signed),
        )
    # the word that is inserted into is the complement of the inserted one
    text = f".reg .b{width} t; not.b{width} t, {{a}}; bfi.b{width} {{d}}, {{a}}, t, {{b}}, {{c}};"
    yield Case(f"bfi.b{width}", f"b{width}", text, lambda a, b, c: insert(a, ~a & ((1 << width) - 1), b, c, width))


def three_word_cases() -> Iterator[Case]:
    generator = random.Random(3)
    for table in sorted({0x00, 0xFF, 0xF0, 0xCC, 0xAA, 0x80, 0xFE, 0x96, 0xE8, 0xCA, *generator.sample(range(256), 12)}):

        def lop3(a: int, b: int, c: int, table: int = table) -> int:
            return sum((table >> (4 * (a >> i & 1) + 2 * (b >> i & 1) + (c >> i & 1)) & 1) << i for i in range(32))

        yield Case(f"lop3.{table:#04x}", "b32", f"lop3.b32 {{d}}, {{a}}, {{b}}, {{c}}, {table:#x};", lop3)

    def pick(a: int, b: int, selector: int) -> int:
        """One byte of prmt's default mode: bit 3 replicates the byte's sign."""
        byte = (b << 32 | a) >> (8 * (selector & 7)) & 0xFF
        return (0xFF if byte >> 7 else 0) if selector & 8 else byte

    yield Case(
        "prmt.b32",
        "b32",
        "prmt.b32 {d}, {a}, {b}, {c};",
        lambda a, b, c: sum(pick(a, b, c >> (4 * i) & 0xF) << (8 * i) for i in range(4)),
    )
    modes: dict[str, Callable[[int], list[int]]] = {
        "f4e": lambda n: [n, n + 1, n + 2, n + 3],
        "b4e": lambda n: [n, (n - 1) % 8, (n - 2) % 8, (n - 3) % 8],
        "rc8": lambda n: [n] * 4,
        "ecl": lambda n: [max(i, n) for i in range(4)],
        "ecr": lambda n: [min(i, n) for i in range(4)],
        "rc16": lambda n: [2 * (n & 1), 2 * (n & 1) + 1] * 2,
    }
    for mode, order in modes.items():

        def permute(a: int, b: int, c: int, order: Callable[[int], list[int]] = order) -> int:
            return sum(pick(a, b, n) << (8 * i) for i, n in enumerate(order(c & 3)))

        yield Case(f"prmt.{mode}", "b32", f"prmt.b32.{mode} {{d}}, {{a}}, {{b}}, {{c}};", permute)
    for side in ("l", "r"):
        for clamp in ("clamp", "wrap"):

            def funnel(a: int, b: int, c: int, side: str = side, clamp: str = clamp) -> int:
                n = min(c, 32) if clamp == "clamp" else c & 31
                both = b << 32 | a
                return (both << n >> 32 if side == "l" else both >> n) & 0xFFFFFFFF

            yield Case(f"shf.{side}.{clamp}", "b32", f"shf.{side}.{clamp}.b32 {{d}}, {{a}}, {{b}}, {{c}};", funnel)
    for immediate in ("0x3210", "0x7654", "0x5410", "0x0123", "0x8888", "0xfedc"):

        def fixed(a: int, b: int, c: int, selectors: int = int(immediate, 16)) -> int:
            return sum(pick(a, b, selectors >> (4 * i) & 0xF) << (8 * i) for i in range(4))

        yield Case(f"prmt.{immediate}", "b32", f"prmt.b32 {{d}}, {{a}}, {{b}}, {immediate};", fixed)


def mask_cases() -> Iterator[Case]:
    """bmsk and szext, the instructions around variable field widths; fns finds the n-th set bit."""
    for mode in ("clamp", "wrap"):

        def mask(a: int, b: int, mode: str = mode) -> int:
            if mode == "wrap":
                a, b = a & 31, b & 31
            if a >= 32:
                return 0
            return ((1 << min(b, 32)) - 1) << a

        yield Case(f"bmsk.{mode}", "b32", f"bmsk.{mode}.b32 {{d}}, {{a}}, {{b}};", mask)
        for kind in "us":

            def extend(a: int, b: int, mode: str = mode, signed: bool = kind == "s") -> int:
                b = b & 31 if mode == "wrap" else b
                if b >= 32:
                    return a
                if b == 0:
                    return 0
                low = a & ((1 << b) - 1)
                return to_signed(low, b) if signed else low

            yield Case(f"szext.{mode}.{kind}32", f"{kind}32", f"szext.{mode}.{kind}32 {{d}}, {{a}}, {{b}};", extend)


def find_nth(mask: int, base: int, offset: int) -> int:
    if offset == 0:
        return base if mask >> base & 1 else 0xFFFFFFFF
    positions = range(base, 32) if offset > 0 else range(base, -1, -1)
    found = [p for p in positions if mask >> p & 1]
    return found[abs(offset) - 1] if len(found) >= abs(offset) else 0xFFFFFFFF


def _groups() -> Iterator[Group]:
    for width in (16, 32, 64):
        a, b = combine(integers(width), 2, [random_bits(width, 64, 1), random_bits(width, 64, 2)])
        yield Group(f"logic-{width}", {"a": (f"b{width}", a), "b": (f"b{width}", b)}, list(logic_cases(width)))
        words = [*integers(width), *random_bits(width, 6)]
        rows = [(word, count) for word in words for count in COUNTS]
        yield Group(
            f"shift-{width}",
            {"a": (f"b{width}", [r[0] for r in rows]), "b": ("u32", [r[1] for r in rows])},
            list(shift_cases(width)),
        )
    for width in (32, 64):
        singles = [0, *(1 << i for i in range(width)), *(((1 << width) - 1) >> i for i in range(width)), *random_bits(width, 64)]
        yield Group(f"count-{width}", {"a": (f"b{width}", singles)}, list(count_cases(width)))
        rows3 = [
            (word, position, length)
            for word in [*integers(width)[::3], *random_bits(width, 2)]
            for position in (0, 1, 5, 31, 32, 33, 63, 64, 255, 256)
            for length in (0, 1, 4, 16, 31, 32, 33, 64, 255, 256 + 3)
        ]
        kinds = (f"b{width}", "u32", "u32")
        operands = {n: (k, [row[i] for row in rows3]) for i, (n, k) in enumerate(zip("abc", kinds, strict=True))}
        yield Group(f"field-{width}", operands, list(field_cases(width)))
    a, b = random_bits(32, 200, 1), random_bits(32, 200, 2)
    c = [*random_bits(32, 120, 3), *range(16), *COUNTS, *random_bits(32, 41, 4)][:200]
    yield Group("words-3", {"a": ("b32", a), "b": ("b32", b), "c": ("b32", c)}, list(three_word_cases()))
    rows2 = [(x, n) for x in [0, 1, 31, 32, 33, 0xFFFFFFFF, 0x80000000, 0x12345678, 0xFFFF8000, 7] for n in COUNTS]
    yield Group("masks", {"a": ("b32", [r[0] for r in rows2]), "b": ("b32", [r[1] for r in rows2])}, list(mask_cases()))
    rows4 = [
        (m, base, k & 0xFFFFFFFF) for m in (0, 0xFFFFFFFF, 0x80000001, 0x00F0F000, 0xA5A5A5A5) for base in (0, 5, 31) for k in range(-4, 5)
    ]
    operands = {n: ("b32", [row[i] for row in rows4]) for i, n in enumerate("abc")}
    nth = Case("fns.b32", "b32", "fns.b32 {d}, {a}, {b}, {c};", lambda m, base, k: find_nth(m, base, to_signed(k, 32)))
    yield Group("nth", operands, [nth])


GROUPS = list(_groups())


@pytest.mark.parametrize(("group", "case"), parameters(*GROUPS))
def test_bit_instruction(group: Group, case: Case) -> None:
    group.check(case)
