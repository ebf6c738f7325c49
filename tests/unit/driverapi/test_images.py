"""Sizes, entries and parameter layouts of images."""

import shutil
import struct
import subprocess
from pathlib import Path

import pytest
import zstandard

from lanGPU.driverapi import images
from lanGPU.driverapi.images import ImageKind, ImageLocation
from lanGPU.driverapi.lz4 import Lz4Error, decompress_block
from lanGPU.errors import ImageError
from tests.helpers.images import LAYOUTS, SOURCE, compiled, fatbin, lz4_literals

PTX = b""".version 7.0
.target sm_75
.address_size 64
// .entry commented_out(.param .u64 a)
/* .entry this_too(
   .param .u64 a) */
.file 1 "/path//.entry quoted"
.visible .entry first(
    .param .u64 first_param_0, // a comment, with (parentheses)
    .param .u8 first_param_1,
    .param .align 16 .b8 first_param_2[24], /* and ) another */
    .param .u64 .ptr .global .align 1 first_param_3,
    .param .v4 .f32 first_param_4,
    .param .f64 first_param_5[2][3]
)
{ ret; }
.entry second { ret; }
.weak .entry $third() { ret; }
.func (.param .b32 result) helper(.param .b64 x) { ret; }
"""


class Memory:
    """Bytes at addresses; reading outside of them is an error, as in a process."""

    def __init__(self, *pieces: tuple[int, bytes]) -> None:
        self.pieces = pieces

    def read(self, address: int, length: int) -> bytes:
        for start, data in self.pieces:
            if start <= address and address + length <= start + len(data):
                return data[address - start : address - start + length]
        raise AssertionError(f"read of {length} bytes at {address:#x}")


class Cut(Memory):
    """Gives less where the bytes end, as a reader of a shorter file does."""

    def read(self, address: int, length: int) -> bytes:
        ((start, data),) = self.pieces
        return data[address - start :][:length]


def locate(memory: Memory, address: int) -> ImageLocation:
    steps = images.locate(address)
    request = next(steps)
    while True:
        try:
            request = steps.send(memory.read(*request))
        except StopIteration as stop:
            found: ImageLocation = stop.value
            return found


def test_ptx_layouts() -> None:
    assert images.ptx_kernel_params(PTX) == {
        "first": [(0, 8), (8, 1), (16, 24), (40, 8), (48, 16), (64, 48)],
        "second": [],
        "$third": [],
    }


@pytest.mark.parametrize(
    "parameters",
    [
        b".param .u64",
        b".param .u65 a",
        b".param a",
        b".reg .u64 a",
        b".param .u64 a,",
        b",",
        b".param .align 3 .b8 a[4]",
        b".param .align 0 .b8 a[4]",
        b".param .align 4096 .b8 a[4]",
        b".param .b8 a[]",
        b".param .b8 a[40000]",
        b".param .b8 a[99999999999]",
        b".param .u64 a .param .u64 b",
    ],
)
def test_ptx_parameters_that_cannot_be_read_are_errors(parameters: bytes) -> None:
    with pytest.raises(ImageError, match="PTX"):
        images.ptx_kernel_params(b".entry k(" + parameters + b") { ret; }")


def test_ptx_that_ends_too_early_is_an_error() -> None:
    with pytest.raises(ImageError, match="not closed"):
        images.ptx_kernel_params(b".entry k(.param .u64 a")
    with pytest.raises(ImageError, match="name"):
        images.ptx_kernel_params(b".visible .entry (")


@pytest.mark.parametrize("arch", ["compute_75", "compute_90"])
def test_layouts_in_nvrtc_ptx(arch: str) -> None:
    assert images.ptx_kernel_params(compiled("ptx", arch)) == LAYOUTS


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_100", "sm_120"])
def test_layouts_in_nvrtc_cubins(arch: str) -> None:
    assert images.cubin_kernel_params(compiled("cubin", arch)) == LAYOUTS


@pytest.mark.parametrize(("kind", "arch"), [("ptx", "compute_75"), ("cubin", "sm_80")])
def test_size_of_nvrtc_output(kind: str, arch: str) -> None:
    image = compiled(kind, arch)
    memory = image + b"\0" * 8192
    assert images.image_size(lambda offset, length: memory[offset : offset + length]) == len(image)
    assert images.image_kind(image) == kind


@pytest.mark.parametrize("length", [0, 1, 3, 60, 4093, 4094, 4095, 4096, 9000])
@pytest.mark.parametrize("place", [0, 1, 4090, 4095])
def test_a_text_is_never_read_beyond_the_page_of_its_nul(length: int, place: int) -> None:
    text = b"/" * (length + 1) + b"\0"
    start = 0x10000 + place
    end = start + len(text)
    memory = Memory((start, text.ljust(len(text) + -end % 4096, b"x")))
    assert locate(memory, start) == ImageLocation(ImageKind.PTX, start, len(text))


def test_a_wrapper_leads_to_its_fatbin() -> None:
    inner = fatbin((1, 75, 0, b".version 7.0\0", 0))
    wrapper = struct.pack("<IIQQ", 0x466243B1, 1, 0x20008, 0)
    memory = Memory((0x1000, wrapper), (0x20008, inner))
    assert locate(memory, 0x1000) == ImageLocation(ImageKind.FATBIN, 0x20008, len(inner))
    assert locate(memory, 0x20008) == ImageLocation(ImageKind.FATBIN, 0x20008, len(inner))
    with pytest.raises(ImageError, match="elsewhere"):
        images.image_size(lambda offset, length: wrapper[offset : offset + length])


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"\x00\x00\x00\x00", "unknown kind"),
        (b"MZ\x90\x00", "unknown kind"),
        (b"\xb1\x00\x00\x00", "unknown kind"),
        (b"\x7fELF" + b"\0" * 60, "64-bit"),
        (b"\x7fELF\x02\x01\x01" + b"\0" * 9 + struct.pack("<HHI", 2, 62, 1) + b"\0" * 40, "64-bit"),
        (b"\x7fELF", "ends after"),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 60), "more than"),
        (struct.pack("<IHHQ", 0xBA55ED50, 1, 8, 16), "header of 8"),
        (struct.pack("<IIQQ", 0x466243B1, 1, 0, 0), "NULL"),
        (b"", "ends after"),
    ],
)
def test_what_is_no_image_is_an_error(bad: bytes, why: str) -> None:
    with pytest.raises(ImageError, match=why):
        locate(Cut((0x1000, bad)), 0x1000)


def test_null_is_no_image() -> None:
    with pytest.raises(ImageError, match="NULL"):
        next(images.locate(0))


def test_fatbin_entries() -> None:
    text = b".version 7.0\n.entry k(.param .u32 a) { ret; }\n" * 30
    image = fatbin(
        (1, 75, 0x11, text, 0),
        (1, 80, 0x8011, zstandard.compress(text), len(text)),
        (1, 86, 0x2011, lz4_literals(text), len(text)),
        (99, 90, 0x11, b"12345678", 0),
    )
    entries = images.parse_fatbin(image)
    assert [(e.kind, e.arch) for e in entries] == [(1, 75), (1, 80), (1, 86), (99, 90)]
    assert [e.payload().rstrip(b"\0") for e in entries] == [text, text, text, b"12345678"]
    assert images.kernel_params(image) == {"k": [(0, 4)]}


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_kernel_params_of_any_image(kind: str) -> None:
    image = compiled(kind, "compute_75" if kind == "ptx" else "sm_80")
    assert images.kernel_params(image) == LAYOUTS
    assert images.kernel_params(fatbin((1 if kind == "ptx" else 2, 80, 0x8000, zstandard.compress(image), len(image)))) == LAYOUTS


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        ((1, 80, 0x8000, b"not zstd", 100), "cannot be decompressed"),
        ((1, 80, 0x8000, zstandard.compress(b"x" * 100), 99), "100 bytes where 99"),
        ((1, 80, 0x8000, zstandard.compress(b"x" * 100), 1 << 62), "more than"),
        ((1, 80, 0x2000, b"\xff\xff", 100), "cannot be decompressed"),
        ((1, 80, 0x2000, lz4_literals(b"x" * 100), 1 << 62), "more than"),
    ],
)
def test_corrupt_payloads_are_errors(entry: tuple[int, int, int, bytes, int], why: str) -> None:
    (parsed,) = images.parse_fatbin(fatbin(entry))
    with pytest.raises(ImageError, match=why):
        parsed.payload()


def test_a_zstd_frame_of_unknown_size_is_bounded() -> None:
    packer = zstandard.ZstdCompressor(write_content_size=False)
    bomb = packer.compress(bytes(1 << 20))
    (entry,) = images.parse_fatbin(fatbin((1, 80, 0x8000, bomb, 1000)))
    with pytest.raises(ImageError):
        entry.payload()
    (entry,) = images.parse_fatbin(fatbin((1, 80, 0x8000, bomb, 1 << 20)))
    assert entry.payload() == bytes(1 << 20)


def test_fatbins_with_wrong_lengths_are_errors() -> None:
    image = fatbin((1, 75, 0, b"x" * 64, 0))
    for cut in range(len(image)):
        with pytest.raises(ImageError):
            images.parse_fatbin(image[:cut])
    broken = bytearray(image)
    struct.pack_into("<I", broken, 16 + 4, 8)
    with pytest.raises(ImageError, match="over the end"):
        images.parse_fatbin(bytes(broken))


def test_lz4_blocks() -> None:
    assert decompress_block(b"\x00", 0) == b""
    assert decompress_block(b"\x30abc", 3) == b"abc"
    # Three literals, then a match of 9 at distance 3, then two literals.
    assert decompress_block(b"\x35abc\x03\x00\x20yz", 14) == b"abcabcabcabcyz"
    # A match length of 15 + 255 + 1 + 4 at distance 1.
    assert decompress_block(b"\x1fa\x01\x00\xff\x01\x00", 1 + 275) == b"a" * 276


@pytest.mark.parametrize(
    "block",
    [b"", b"\x10", b"\x30ab", b"\x10a\x00\x00\x00", b"\x10a\x02\x00\x00", b"\x10a\x01", b"\xf0", b"\x10a\x01\x00\x10b", b"\x10a"],
)
def test_corrupt_lz4_blocks_are_errors(block: bytes) -> None:
    with pytest.raises(Lz4Error):
        decompress_block(block, 5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "speed", "size"])
def test_fatbins_of_nvcc(mode: str, tmp_path: Path) -> None:
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not installed")
    source = tmp_path / "kernels.cu"
    source.write_text(SOURCE, encoding="ascii")
    target = tmp_path / "kernels.fatbin"
    command = [
        nvcc,
        f"-compress-mode={mode}",
        "-gencode=arch=compute_80,code=[compute_80,sm_80]",
        "-fatbin",
        str(source),
        "-o",
        str(target),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    if "Unknown option" in done.stderr:
        pytest.skip("this nvcc has no -compress-mode")
    assert done.returncode == 0, done.stderr
    image = target.read_bytes()
    assert images.image_size(lambda offset, length: image[offset : offset + length]) == len(image)
    assert {(entry.kind, entry.arch) for entry in images.parse_fatbin(image)} == {(1, 80), (2, 80)}
    assert images.kernel_params(image) == LAYOUTS
