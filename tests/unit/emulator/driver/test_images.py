"""Which PTX the emulated driver takes out of an image."""

import ctypes
import struct

import pytest
import zstandard

from lanGPU.emulator.driver.images import ptx_of, read_image
from lanGPU.emulator.results import INVALID_IMAGE, NO_BINARY_FOR_GPU, CuError
from tests.helpers.images import fatbin, lz4_literals

PTX, ELF = 1, 2
CUBIN = b"\x7fELF\x02\x01\x01" + bytes(57)


def text(arch: int) -> bytes:
    return f".version 7.0\n.target sm_{arch}\n.address_size 64\n".encode()


def entry(kind: int, arch: int, data: bytes = b"") -> tuple[int, int, int, bytes, int]:
    data = data or text(arch) + b"\0"
    return kind, arch, 0, data, len(data)


def failure(image: bytes) -> int:
    with pytest.raises(CuError) as raised:
        ptx_of(image)
    return raised.value.result


def test_text_ends_at_its_nul() -> None:
    assert ptx_of(text(75) + b"\0garbage") == text(75)


@pytest.mark.parametrize(("archs", "chosen"), [((50, 75, 90), 75), ((50, 70), 70), ((80, 90), 80), ((90,), 90)])
def test_the_newest_that_fits_or_else_the_oldest(archs: tuple[int, ...], chosen: int) -> None:
    assert ptx_of(fatbin(entry(ELF, 75, CUBIN), *(entry(PTX, arch) for arch in archs))) == text(chosen)


def test_compressed_entries() -> None:
    data = text(75) + b"\0"
    assert ptx_of(fatbin((PTX, 75, 0x8000, zstandard.compress(data), len(data)))) == text(75)
    assert ptx_of(fatbin((PTX, 75, 0x2000, lz4_literals(data), len(data)))) == text(75)


def test_machine_code_is_not_for_this_device() -> None:
    assert failure(CUBIN) == failure(fatbin(entry(ELF, 75, CUBIN))) == failure(fatbin()) == NO_BINARY_FOR_GPU


def test_what_is_no_image() -> None:
    assert failure(b"\x01\x02\x03\x04") == failure(fatbin(entry(PTX, 75))[:-20]) == INVALID_IMAGE


def test_a_wrapper_is_followed() -> None:
    image = ctypes.create_string_buffer(fatbin(entry(PTX, 75)))
    wrapper = ctypes.create_string_buffer(struct.pack("<IIQQ", 0x466243B1, 1, ctypes.addressof(image), 0))
    assert read_image(ctypes.addressof(wrapper)) == text(75)
