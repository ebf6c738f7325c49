"""Names, numbers and texts of CUresult."""

import pytest

from lanGPU import constants
from lanGPU.driverapi import results


@pytest.mark.parametrize(("name", "code"), results.CURESULT.items())
def test_every_result_has_a_name_and_a_text(name: str, code: int) -> None:
    assert results.name(code) == name
    assert results.is_known(code)
    assert 0 < len(results.text(code)) < 100
    assert results.text(code).isascii()


def test_texts_are_of_results_that_exist() -> None:
    short = {name.removeprefix("CUDA_ERROR_").removeprefix("CUDA_") for name in results.CURESULT}
    assert set(results._TEXTS) == short


def test_unknown_codes_are_named_as_such() -> None:
    assert not results.is_known(12345)
    assert "12345" in results.name(12345)
    assert results.text(-1) == results.text(12345) == "unrecognised error code"


def test_constants_agree_with_the_header() -> None:
    named = {name: value for name, value in vars(constants).items() if name.startswith("CUDA_")}
    assert len(named) > 10
    for name, value in named.items():
        assert results.CURESULT[name] == value


def test_sticky_results() -> None:
    assert constants.CUDA_ERROR_ILLEGAL_ADDRESS in results.STICKY
    assert constants.CUDA_ERROR_INVALID_VALUE not in results.STICKY
    assert constants.CUDA_ERROR_OUT_OF_MEMORY not in results.STICKY
