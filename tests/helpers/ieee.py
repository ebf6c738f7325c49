"""IEEE 754 arithmetic on bit patterns, with fractions and integers only: what floating-point instructions are compared with.

A number is decoded exactly, computed with exactly, and rounded once into the result's format, which is the definition of a
correctly rounded operation (IEEE 754-2019, section 4.3).
"""

import functools
import math
from dataclasses import dataclass
from enum import Enum
from fractions import Fraction
from typing import Final


class Round(Enum):
    """Rounding, by PTX's names: to nearest even, to zero, down, up, to nearest with ties away from zero."""

    RN = "rn"
    RZ = "rz"
    RM = "rm"
    RP = "rp"
    RNA = "rna"


@dataclass(frozen=True)
class Format:
    """A binary interchange format."""

    name: str
    exponent_bits: int
    fraction_bits: int

    @property
    def bits(self) -> int:
        return 1 + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def exponent_mask(self) -> int:
        return (1 << self.exponent_bits) - 1

    @property
    def infinity(self) -> int:
        return self.exponent_mask << self.fraction_bits

    @property
    def nan(self) -> int:
        """PTX's canonical NaN: every bit but the sign."""
        return (1 << (self.bits - 1)) - 1

    @property
    def largest(self) -> int:
        return self.infinity - 1

    @property
    def sign_bit(self) -> int:
        return 1 << (self.bits - 1)

    def is_nan(self, bits: int) -> bool:
        return bits & ~self.sign_bit > self.infinity

    def is_subnormal(self, bits: int) -> bool:
        return 0 < bits & ~self.sign_bit < 1 << self.fraction_bits


F16: Final = Format("f16", 5, 10)
BF16: Final = Format("bf16", 8, 7)
F32: Final = Format("f32", 8, 23)
F64: Final = Format("f64", 11, 52)
TF32: Final = Format("tf32", 8, 10)


@dataclass(frozen=True)
class Number:
    """A value with its sign; `magnitude` None is infinity. NaN is the Python None in place of a Number."""

    negative: bool
    magnitude: Fraction | None

    @property
    def infinite(self) -> bool:
        return self.magnitude is None

    @property
    def zero(self) -> bool:
        return self.magnitude == 0

    @property
    def value(self) -> Fraction:
        """The exact value of a finite number."""
        assert self.magnitude is not None
        return -self.magnitude if self.negative else self.magnitude

    def __neg__(self) -> "Number":
        return Number(not self.negative, self.magnitude)


@functools.lru_cache(maxsize=1 << 16)
def decode(bits: int, form: Format, ftz: bool = False) -> Number | None:
    """The number that `bits` stand for; None for NaN. `ftz`: subnormals are zeros of their sign."""
    negative = bool(bits & form.sign_bit)
    exponent = bits >> form.fraction_bits & form.exponent_mask
    fraction = bits & ((1 << form.fraction_bits) - 1)
    if exponent == form.exponent_mask:
        return None if fraction else Number(negative, None)
    if exponent == 0:
        if ftz:
            fraction = 0
        significand, scale = fraction, 1 - form.bias - form.fraction_bits
    else:
        significand, scale = fraction | 1 << form.fraction_bits, exponent - form.bias - form.fraction_bits
    return Number(negative, significand * Fraction(2) ** scale)


def _floor_log2(value: Fraction) -> int:
    """The exponent e with 2**e <= value < 2**(e + 1)."""
    e = value.numerator.bit_length() - value.denominator.bit_length()
    return e if value >= Fraction(2) ** e else e - 1


def encode(number: Number | None, form: Format, mode: Round = Round.RN, ftz: bool = False) -> int:
    """The bits of `number` rounded once to `form`; NaN becomes the canonical one. `ftz`: subnormal results are zeros."""
    if number is None:
        return form.nan
    sign = form.sign_bit if number.negative else 0
    if number.magnitude is None:
        return sign | form.infinity
    if number.magnitude == 0:
        return sign
    lowest = 1 - form.bias
    exponent = max(_floor_log2(number.magnitude), lowest)
    scaled = number.magnitude / Fraction(2) ** (exponent - form.fraction_bits)
    significand = round_integer(scaled, mode, number.negative)
    # a carry into the next power of two, or out of the subnormals, comes out right in this sum
    result = ((exponent + form.bias) << form.fraction_bits) + significand - (1 << form.fraction_bits)
    if result >= form.infinity:
        saturates = mode is Round.RZ or (mode is Round.RM and not number.negative) or (mode is Round.RP and number.negative)
        result = form.largest if saturates else form.infinity
    if ftz and result < 1 << form.fraction_bits:
        result = 0
    return sign | result


def round_integer(magnitude: Fraction, mode: Round, negative: bool = False) -> int:
    """The integer that a magnitude rounds to; `negative` turns the directed modes round."""
    floor = math.floor(magnitude)
    rest = magnitude - floor
    if rest == 0:
        return floor
    if mode is Round.RZ:
        up = False
    elif mode is Round.RM:
        up = negative
    elif mode is Round.RP:
        up = not negative
    elif rest == Fraction(1, 2):
        up = mode is Round.RNA or floor % 2 == 1
    else:
        up = rest > Fraction(1, 2)
    return floor + up


def _finite(value: Fraction, zero_is_negative: bool) -> Number:
    return Number(zero_is_negative if value == 0 else value < 0, abs(value))


def add(a: Number | None, b: Number | None, mode: Round = Round.RN) -> Number | None:
    """a + b; an exact zero is negative if both were, or of unlike signs when rounding down (section 6.3)."""
    if a is None or b is None:
        return None
    if a.infinite or b.infinite:
        if a.infinite and b.infinite and a.negative != b.negative:
            return None
        return a if a.infinite else b
    both = a.negative and b.negative
    same = a.negative == b.negative
    return _finite(a.value + b.value, both if same else mode is Round.RM)


def mul(a: Number | None, b: Number | None) -> Number | None:
    """a * b, exact."""
    if a is None or b is None:
        return None
    negative = a.negative != b.negative
    if a.infinite or b.infinite:
        return None if a.zero or b.zero else Number(negative, None)
    return Number(negative, abs(a.value * b.value))


def fma(a: Number | None, b: Number | None, c: Number | None, mode: Round = Round.RN) -> Number | None:
    """a * b + c with no rounding in between."""
    return add(mul(a, b), c, mode)


def div(a: Number | None, b: Number | None) -> Number | None:
    """a / b, exact."""
    if a is None or b is None or (a.infinite and b.infinite) or (a.zero and b.zero):
        return None
    negative = a.negative != b.negative
    if a.infinite or b.zero:
        return Number(negative, None)
    if b.infinite:
        return Number(negative, Fraction(0))
    return Number(negative, abs(a.value / b.value))


def sqrt(a: Number | None) -> Number | None:
    """The root of a, exact enough that any rounding to 53 bits or fewer is the root's own."""
    if a is None or (a.negative and not a.zero):
        return None
    if a.infinite or a.zero:
        return a
    # an integer root with 128 bits to spare, and a sticky bit below them if it was not exact
    magnitude = a.value
    shift = 2 * (256 - _floor_log2(magnitude) // 2)
    scaled = magnitude * Fraction(2) ** shift
    floor = math.floor(scaled)
    root = math.isqrt(floor)
    exact = root * root == scaled
    return Number(False, (Fraction(root) + (0 if exact else Fraction(1, 4))) / Fraction(2) ** (shift // 2))


def compare(a: Number, b: Number) -> int:
    """-1, 0 or 1; zeros are equal."""
    left, right = (
        math.inf if n.infinite and not n.negative else -math.inf if n.infinite else n.value  # a Fraction compares with infinities
        for n in (a, b)
    )
    return (left > right) - (left < right)
