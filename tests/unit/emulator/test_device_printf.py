"""What a kernel's printf prints."""

import contextlib
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanGPU.emulator.device_printf import MAX_CONVERSION_BYTES, format_text

BASE = 0x1000


class _Memory:
    """Arguments at BASE; strings wherever `strings` has them. What lies elsewhere cannot be read."""

    def __init__(self, data: bytes, strings: dict[int, bytes] | None = None) -> None:
        self.data = data
        self.strings = strings or {}

    def read(self, address: int, size: int) -> bytes:
        offset = address - BASE
        if not 0 <= offset <= len(self.data) - size:
            raise LookupError(address)
        return self.data[offset : offset + size]

    def string(self, address: int) -> bytes:
        return self.strings[address]


def shown(template: bytes, data: bytes = b"", strings: dict[int, bytes] | None = None) -> bytes:
    memory = _Memory(data, strings)
    return format_text(template, BASE if data else 0, memory.read, memory.string).data


@pytest.mark.parametrize(
    ("template", "data", "expected"),
    [
        (b"%d %lld", struct.pack("<iiq", 1, 0, 2), b"1 2"),  # the second lies at a multiple of 8
        (b"%d %f %d", struct.pack("<iidi", 1, 0, 0.5, 3), b"1 0.500000 3"),
        (b"100%%", b"", b"100%"),
        (b"%k %d", struct.pack("<i", 5), b"%k 5"),  # no conversion of printf's
        (b"%d", b"", b"%d"),  # no arguments at all
        (b"%c%c", struct.pack("<ii", 0, 0x141), b"\0A"),
        (b"%3c|%-3c|", struct.pack("<ii", 65, 66), b"  A|B  |"),
        (b"%zu %jd %td", struct.pack("<QqQ", 1 << 63, -1, 3), b"9223372036854775808 -1 3"),
        (b"%.*s", struct.pack("<iiQ", 2, 0, 7), b"ab"),
        (b"%s", struct.pack("<Q", 0), b"(null)"),
        (b"%.*f", struct.pack("<iid", -1, 0, 1.5), b"1.500000"),
    ],
)
def test_conversions(template: bytes, data: bytes, expected: bytes) -> None:
    assert shown(template, data, {7: b"abc"}) == expected


def test_a_width_beyond_reason_is_cut() -> None:
    text = shown(b"%*d%.2000000000f", struct.pack("<iid", 2_000_000_000, 1, 0.5))
    assert MAX_CONVERSION_BYTES < len(text) < 3 * MAX_CONVERSION_BYTES + 10


def test_arguments_that_cannot_be_read() -> None:
    with pytest.raises(LookupError):
        shown(b"%d %d", struct.pack("<i", 1))


@given(st.binary(max_size=60), st.binary(max_size=64))
def test_any_format_ends_in_text_or_in_a_bad_address(template: bytes, data: bytes) -> None:
    with contextlib.suppress(LookupError):
        assert len(shown(template, data)) <= len(template) * 3 * MAX_CONVERSION_BYTES


@given(st.integers(-(1 << 31), (1 << 31) - 1), st.integers(0, 20), st.sampled_from(["", "-", "0", "+", " "]))
def test_integers_as_python_has_them(value: int, width: int, flag: str) -> None:
    spec = f"%{flag}{width or ''}d"
    assert shown(spec.encode(), struct.pack("<i", value)) == (spec % value).encode()
