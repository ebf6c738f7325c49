"""Operands for instructions: the values where mistakes hide, and some at random (always the same ones)."""

import itertools
import random
from collections.abc import Sequence
from typing import Final

from tests.helpers.ieee import Format


def to_signed(bits: int, width: int) -> int:
    """Two's complement."""
    bits &= (1 << width) - 1
    return bits - (1 << width) if bits >> (width - 1) else bits


def integers(width: int) -> list[int]:
    """Edge values of a word, as bit patterns: around 0, the ends of both ranges, alternating bits, half words."""
    top = 1 << (width - 1)
    mask = (1 << width) - 1
    half = width // 2
    near = [0, 1, 2, 3, mask, mask - 1, top, top - 1, top + 1]
    return sorted({x & mask for x in [*near, 0x5555555555555555, 0xAAAAAAAAAAAAAAAA, (1 << half) - 1, 1 << half, 100, -100, 7, -7]})


def floats(form: Format) -> list[int]:
    """Edge values of a float: zeros, subnormals, the smallest and largest normal, 1 and its neighbours, halves, infinity, NaN."""
    fraction = form.fraction_bits
    one = form.bias << fraction
    positive = [
        *(0, 1, 3, (1 << fraction) - 1, 1 << fraction, (1 << fraction) + 1),
        *(one, one + 1, one - 1, one + (1 << (fraction - 1)), one + (1 << fraction), one - (1 << fraction), one + (3 << (fraction - 1))),
        *(form.largest, form.largest - 1, form.infinity, form.infinity | 1 << (fraction - 1)),
    ]
    return [*positive, *(form.sign_bit | bits for bits in positive)]


RANDOM_SEED: Final = 20240229


def random_bits(width: int, count: int, seed: int = 0) -> list[int]:
    """Uniform bit patterns; for floats that is every exponent alike."""
    source = random.Random(RANDOM_SEED + 1000 * width + seed)
    return [source.getrandbits(width) for _ in range(count)]


def random_floats(form: Format, count: int, seed: int = 0, spread: int = 8) -> list[int]:
    """Floats whose exponents lie within `spread` of 1's, so that sums and products of them mean something."""
    source = random.Random(RANDOM_SEED + 1000 * form.bits + form.exponent_bits + seed)
    return [
        source.getrandbits(1) << (form.bits - 1)
        | (form.bias + source.randint(-spread, spread)) << form.fraction_bits
        | source.getrandbits(form.fraction_bits)
        for _ in range(count)
    ]


def columns(rows: Sequence[tuple[int, ...]]) -> list[list[int]]:
    """Rows of operands turned to one list for each operand."""
    return [list(column) for column in zip(*rows, strict=True)]


def combine(values: Sequence[int], arity: int, extra: Sequence[Sequence[int]] = (), limit: int = 640) -> list[list[int]]:
    """Columns of operands: every combination of `values`, thinned to `limit` evenly spread ones, then `extra` columns appended."""
    rows = list(itertools.product(values, repeat=arity))
    if len(rows) > limit:
        rows = random.Random(RANDOM_SEED).sample(rows, limit)
    found = columns(rows)
    return [column + list(more) for column, more in zip(found, extra, strict=True)] if extra else found
