"""The arithmetic that instructions are compared with agrees with the processor's, where the processor has it."""

import itertools

import numpy as np
import pytest

from tests.helpers import ieee
from tests.helpers.ieee import F16, F32, F64, Format, Round

FLOATS = {F16: np.float16, F32: np.float32, F64: np.float64}
WORDS = {F16: np.uint16, F32: np.uint32, F64: np.uint64}


def patterns(form: Format) -> list[int]:
    one = form.bias << form.fraction_bits
    small = [0, 1, 2, (1 << form.fraction_bits) - 1, 1 << form.fraction_bits, form.largest, form.infinity, form.nan]
    numbers = [*small, one, one + 1, one - 1, one + (1 << (form.fraction_bits - 1))]
    rng = np.random.default_rng(form.bits)
    numbers += [int(x) for x in rng.integers(0, form.infinity, 12)]
    return [sign | bits for bits in numbers for sign in (0, form.sign_bit)]


def to_float(bits: list[int], form: Format) -> np.ndarray:
    return np.array(bits, dtype=WORDS[form]).view(FLOATS[form])


def check(form: Format, ours: list[int], theirs: np.ndarray) -> None:
    bits = theirs.view(WORDS[form])
    for mine, other in zip(ours, bits.tolist(), strict=True):
        assert mine == other or (form.is_nan(mine) and form.is_nan(other)), (hex(mine), hex(other))


@pytest.mark.parametrize("form", FLOATS, ids=lambda form: form.name)
def test_add_mul_div_sqrt_round_as_the_processor_does(form: Format) -> None:
    pairs = list(itertools.product(patterns(form), repeat=2))
    a, b = ([pair[i] for pair in pairs] for i in (0, 1))
    numbers = [(ieee.decode(x, form), ieee.decode(y, form)) for x, y in pairs]
    with np.errstate(all="ignore"):
        check(form, [ieee.encode(ieee.add(x, y), form) for x, y in numbers], to_float(a, form) + to_float(b, form))
        check(form, [ieee.encode(ieee.mul(x, y), form) for x, y in numbers], to_float(a, form) * to_float(b, form))
        check(form, [ieee.encode(ieee.div(x, y), form) for x, y in numbers], to_float(a, form) / to_float(b, form))
        check(form, [ieee.encode(ieee.sqrt(x), form) for x, _ in numbers], np.sqrt(to_float(a, form)))


@pytest.mark.parametrize(("source", "target"), [(F64, F32), (F64, F16), (F32, F16), (F16, F64)])
def test_conversion_rounds_as_the_processor_does(source: Format, target: Format) -> None:
    bits = patterns(source)
    with np.errstate(all="ignore"):
        check(target, [ieee.encode(ieee.decode(x, source), target) for x in bits], to_float(bits, source).astype(FLOATS[target]))


@pytest.mark.parametrize("form", FLOATS, ids=lambda form: form.name)
def test_every_pattern_survives_decode_and_encode(form: Format) -> None:
    for bits in patterns(form):
        for mode in Round:
            again = ieee.encode(ieee.decode(bits, form), form, mode)
            assert again == bits or (form.is_nan(bits) and form.is_nan(again))


def test_directed_modes_bracket_the_exact_value() -> None:
    third = ieee.div(ieee.decode(F32.bias << 23, F32), ieee.decode(0x40400000, F32))
    assert ieee.encode(third, F32, Round.RM) == ieee.encode(third, F32, Round.RZ) == 0x3EAAAAAA
    assert ieee.encode(third, F32, Round.RP) == ieee.encode(third, F32, Round.RN) == 0x3EAAAAAB
    assert third is not None
    assert ieee.encode(-third, F32, Round.RM) == 0xBEAAAAAB
    assert ieee.encode(-third, F32, Round.RP) == ieee.encode(-third, F32, Round.RZ) == 0xBEAAAAAA


def test_overflow_goes_where_the_mode_says() -> None:
    largest = ieee.decode(F32.largest, F32)
    twice = ieee.add(largest, largest)
    found = {mode: ieee.encode(twice, F32, mode) for mode in Round}
    assert found == {Round.RN: F32.infinity, Round.RNA: F32.infinity, Round.RZ: F32.largest, Round.RM: F32.largest, Round.RP: F32.infinity}


def test_flushing_keeps_the_sign() -> None:
    assert ieee.decode(0x80000001, F32, ftz=True) == ieee.Number(True, ieee.Fraction(0))
    assert ieee.encode(ieee.decode(0x80000001, F32), F32, ftz=True) == 0x80000000
