"""Whatever the bytes, image code answers or raises ImageError."""

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from lanGPU.driverapi import images
from lanGPU.driverapi.lz4 import Lz4Error, decompress_block
from lanGPU.errors import ImageError
from tests.helpers.images import LAYOUTS, compiled, fatbin, lz4_literals


def survives(image: bytes) -> None:
    """Look into `image` in every way; only ImageError may come out."""
    try:
        images.image_size(lambda offset, length: image[offset : offset + length])
        images.kernel_params(image)
    except ImageError:
        return


@given(st.binary(max_size=300))
def test_any_bytes(data: bytes) -> None:
    for start in (b"", b"\x7fELF\x02\x01\x01", b"\x50\xed\x55\xba\x01\x00\x10\x00", b".entry k(.param "):
        survives(start + data)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_damaged_cubins(data: st.DataObject) -> None:
    image = bytearray(compiled("cubin", "sm_80"))
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.one_of(st.integers(0, 63), st.integers(0, len(image) - 1)))
        image[place] = data.draw(st.integers(0, 255))
    survives(bytes(image))
    survives(bytes(image[: data.draw(st.integers(0, len(image)))]))


@given(st.data())
def test_damaged_fatbins(data: st.DataObject) -> None:
    text = b".version 7.0\n.entry k(.param .u32 a) { ret; }\n"
    image = bytearray(fatbin((1, 75, 0x8000, zstandard.compress(text), len(text)), (1, 75, 0x2000, lz4_literals(text), len(text))))
    for _ in range(data.draw(st.integers(1, 4))):
        image[data.draw(st.integers(0, len(image) - 1))] = data.draw(st.integers(0, 255))
    survives(bytes(image))


@given(st.binary(max_size=200), st.integers(0, 400))
def test_lz4_gives_the_size_asked_for_or_an_error(block: bytes, size: int) -> None:
    try:
        assert len(decompress_block(block, size)) == size
    except Lz4Error:
        return


@given(st.binary(max_size=2000))
def test_lz4_literals_come_back(data: bytes) -> None:
    assert decompress_block(lz4_literals(data), len(data)) == data


@given(st.lists(st.tuples(st.binary(max_size=40), st.integers(1, 60), st.integers(4, 300)), max_size=8), st.binary(max_size=20))
def test_lz4_matches_repeat_what_went_before(sequences: list[tuple[bytes, int, int]], tail: bytes) -> None:
    """Against the plainest reading of the format: one byte at a time."""
    block, expected = b"", bytearray()
    for literals, distance, length in sequences:
        expected += literals
        if not expected:
            continue
        offset = min(distance, len(expected))
        token = (min(len(literals), 15) << 4) | min(length - 4, 15)
        block += bytes([token]) + extra(len(literals)) + literals + offset.to_bytes(2, "little") + extra(length - 4)
        for _ in range(length):
            expected.append(expected[-offset])
    block += bytes([min(len(tail), 15) << 4]) + extra(len(tail)) + tail
    expected += tail
    assert decompress_block(block, len(expected)) == bytes(expected)


def extra(length: int) -> bytes:
    """The bytes that follow a nibble of 15."""
    return b"" if length < 15 else b"\xff" * ((length - 15) // 255) + bytes([(length - 15) % 255])


SCALARS = {"u8": 1, "s8": 1, "b16": 2, "f16": 2, "u32": 4, "f32": 4, "s64": 8, "f64": 8, "b64": 8}


@given(
    st.lists(st.one_of(st.sampled_from(sorted(SCALARS)), st.tuples(st.sampled_from([1, 2, 4, 8, 16]), st.integers(1, 200))), max_size=20)
)
def test_ptx_layouts_follow_alignment(parameters: list[str | tuple[int, int]]) -> None:
    declared, expected, end = [], [], 0
    for number, parameter in enumerate(parameters):
        if isinstance(parameter, str):
            align = size = SCALARS[parameter]
            declared.append(f"\t.param .{parameter} k_param_{number}")
        else:
            align, size = parameter
            declared.append(f"\t.param .align {align} .b8 k_param_{number}[{size}]")
        offset = -(-end // align) * align
        expected.append((offset, size))
        end = offset + size
    text = ".visible .entry k(\n" + ",\n".join(declared) + "\n)\n{ ret; }"
    assert images.ptx_kernel_params(text.encode()) == {"k": expected}


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_the_undamaged_image_is_understood(kind: str) -> None:
    assert images.kernel_params(compiled(kind, "compute_75" if kind == "ptx" else "sm_80")) == LAYOUTS
