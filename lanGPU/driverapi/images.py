"""What a module image is: PTX text, a cubin, a fat binary, or a fat binary's wrapper; how long it is, and what it holds.

Formats (little-endian; shown by `cuobjdump`, and by every program that nvcc makes):

| fatbin wrapper | offset | type | field |
| --- | --- | --- | --- |
| | 0 | u32 | magic 0x466243B1 |
| | 4 | u32 | version |
| | 8 | u64 | address of the fatbin |
| | 16 | u64 | file name or NULL |

| fatbin | offset | type | field |
| --- | --- | --- | --- |
| header | 0 | u32 | magic 0xBA55ED50 |
| | 4 | u16 | version |
| | 6 | u16 | bytes of this header |
| | 8 | u64 | bytes after this header |
| entry | 0 | u16 | kind: 1 PTX, 2 ELF |
| | 4 | u32 | bytes of the entry's header |
| | 8 | u64 | bytes of the payload, padding included |
| | 16 | u32 | bytes of the payload if it is compressed |
| | 28 | u32 | architecture, e.g. 75 |
| | 40 | u64 | flags: 0x2000 LZ4 block, 0x8000 zstd frame |
| | 56 | u64 | bytes of the payload when decompressed |

Everything here is sans-IO: `locate` is a generator that yields (address, length) and is sent the bytes there.
"""

import struct
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum

import zstandard

from lanGPU.constants import MAX_RECORD_BYTES
from lanGPU.driverapi.kernel_params import (
    ELF_HEADER,
    ELF_MAGIC,
    MAX_SECTIONS,
    PROGRAM_HEADER_BYTES,
    SECTION,
    SHT_NOBITS,
    Layout,
    cubin_kernel_params,
    ptx_kernel_params,
    read_elf_header,
    read_section,
)
from lanGPU.driverapi.lz4 import Lz4Error, decompress_block
from lanGPU.errors import ImageError

__all__ = [
    "FatbinEntry",
    "ImageKind",
    "ImageLocation",
    "Layout",
    "cubin_kernel_params",
    "image_kind",
    "image_size",
    "kernel_params",
    "locate",
    "parse_fatbin",
    "ptx_kernel_params",
]

MAX_IMAGE_BYTES = MAX_RECORD_BYTES - 4096
"""An image travels in one record."""
MAX_FATBIN_ENTRIES = 4096
PAGE = 4096
"""A text is read up to a page boundary at a time: beyond its NUL the program may have nothing mapped."""

WRAPPER = struct.Struct("<IIQQ")
WRAPPER_MAGIC = 0x466243B1
FATBIN_HEADER = struct.Struct("<IHHQ")
FATBIN_MAGIC = 0xBA55ED50
FATBIN_ENTRY = struct.Struct("<HHIQIIIIIIQQQ")
ENTRY_PTX = 1
ENTRY_ELF = 2
FLAG_LZ4 = 0x2000
FLAG_ZSTD = 0x8000
_TEXT_STARTS = b"/. \t\r\n"
"""PTX begins with a directive, a comment or white space."""


class ImageKind(StrEnum):
    """The kinds of images."""

    PTX = "ptx"
    CUBIN = "cubin"
    FATBIN = "fatbin"


@dataclass(frozen=True, slots=True)
class ImageLocation:
    """Where an image lies in the program: for a wrapper, the fatbin that it points to. A text's size includes its NUL."""

    kind: ImageKind
    address: int
    size: int


Reads = Generator[tuple[int, int], bytes, ImageLocation]


def locate(address: int) -> Reads:
    """Find the image that a pointer means. Yields (address, length) to read; all of it must be sent back.

    Raises:
        ImageError: it is no image, or a corrupt one.
    """
    head = yield from _exactly(address, min(PAGE - address % PAGE, 4))
    if head[:1] not in (ELF_MAGIC[:1], b"\xb1", b"\x50"):
        return (yield from _locate_text(address, head))
    if len(head) < 4:
        head = yield from _exactly(address, 4)
    magic = int.from_bytes(head, "little")
    if magic == WRAPPER_MAGIC:
        _, _, fatbin, _ = WRAPPER.unpack((yield from _exactly(address, WRAPPER.size)))
        inner = yield from _exactly(fatbin, 4)
        if int.from_bytes(inner, "little") != FATBIN_MAGIC:
            raise ImageError("fatbin wrapper: it does not point to a fatbin")
        return (yield from _locate_fatbin(fatbin))
    if magic == FATBIN_MAGIC:
        return (yield from _locate_fatbin(address))
    if head == ELF_MAGIC:
        return (yield from _locate_elf(address))
    raise ImageError(f"unknown kind of image: it begins with {head.hex()}")


def _exactly(address: int, length: int) -> Generator[tuple[int, int], bytes, bytes]:
    if not 0 < address < 1 << 64:
        raise ImageError("the image's address is NULL or out of range")
    data = yield address, length
    if len(data) != length:
        raise ImageError(f"the image ends after {len(data)} of {length} bytes")
    return data


def _limited(size: int) -> int:
    if size > MAX_IMAGE_BYTES:
        raise ImageError(f"the image states {size} bytes, more than {MAX_IMAGE_BYTES}")
    return size


def _locate_text(address: int, head: bytes) -> Reads:
    if head[:1] not in {_TEXT_STARTS[i : i + 1] for i in range(len(_TEXT_STARTS))}:
        raise ImageError(f"unknown kind of image: it begins with {head.hex()}")
    size = 0
    while True:
        page = yield from _exactly(address + size, PAGE - (address + size) % PAGE)
        end = page.find(b"\0")
        if end >= 0:
            return ImageLocation(ImageKind.PTX, address, size + end + 1)
        size = _limited(size + len(page))


def _locate_fatbin(address: int) -> Reads:
    _, _, header_bytes, size = FATBIN_HEADER.unpack((yield from _exactly(address, FATBIN_HEADER.size)))
    if header_bytes < FATBIN_HEADER.size:
        raise ImageError(f"fatbin: a header of {header_bytes} bytes")
    return ImageLocation(ImageKind.FATBIN, address, _limited(header_bytes + size))


def _locate_elf(address: int) -> Reads:
    header = read_elf_header((yield from _exactly(address, ELF_HEADER.size)))
    size = max(ELF_HEADER.size, header.program_offset + header.program_count * PROGRAM_HEADER_BYTES)
    if header.section_offset:
        _limited(header.section_offset)
        count = header.section_count
        if not count:
            count = read_section((yield from _exactly(address + header.section_offset, SECTION.size))).size
        if count > MAX_SECTIONS:
            raise ImageError(f"cubin: {count} sections")
        table = yield from _exactly(address + header.section_offset, count * SECTION.size)
        size = max(size, header.section_offset + len(table))
        for index in range(count):
            section = read_section(table, index)
            if section.type not in (0, SHT_NOBITS):
                size = max(size, section.offset + section.size)
    return ImageLocation(ImageKind.CUBIN, address, _limited(size))


def image_size(read: Callable[[int, int], bytes]) -> int:
    """Bytes of the image of which `read(offset, length)` gives any part; a text's NUL included.

    Raises:
        ImageError: it is no image, a corrupt one, or a wrapper, which says nothing without its addresses.
    """
    # Offsets become addresses by one page, as 0 is no address.
    steps = locate(PAGE)
    request = next(steps)
    while True:
        address, length = request
        data = read(address - PAGE, length)
        if address == PAGE and data[:4] == WRAPPER_MAGIC.to_bytes(4, "little"):
            raise ImageError("a fatbin wrapper: the image lies elsewhere")
        try:
            request = steps.send(data)
        except StopIteration as stop:
            location: ImageLocation = stop.value
            return location.size


def image_kind(data: bytes) -> ImageKind:
    """What a whole image is.

    Raises:
        ImageError: none of the kinds.
    """
    if data.startswith(ELF_MAGIC):
        return ImageKind.CUBIN
    if data.startswith(FATBIN_MAGIC.to_bytes(4, "little")):
        return ImageKind.FATBIN
    if data[:1] and data[:1] in _TEXT_STARTS:
        return ImageKind.PTX
    raise ImageError(f"unknown kind of image: it begins with {data[:4].hex()}")


@dataclass(frozen=True, slots=True)
class FatbinEntry:
    """One image in a fatbin, still compressed."""

    kind: int
    """ENTRY_PTX, ENTRY_ELF or a number unknown here (LTO intermediate code, for example)."""
    arch: int
    """Compute capability times 10, e.g. 75."""
    flags: int
    stored: bytes
    uncompressed_bytes: int

    def payload(self) -> bytes:
        """The image, decompressed.

        Raises:
            ImageError: corrupt, or larger than MAX_IMAGE_BYTES.
        """
        if not self.flags & (FLAG_LZ4 | FLAG_ZSTD):
            return self.stored
        _limited(self.uncompressed_bytes)
        try:
            if self.flags & FLAG_LZ4:
                return decompress_block(self.stored, self.uncompressed_bytes)
            return _zstd(self.stored, self.uncompressed_bytes)
        except (Lz4Error, zstandard.ZstdError) as exc:
            raise ImageError(f"fatbin: an entry cannot be decompressed: {exc}") from exc


def _zstd(stored: bytes, size: int) -> bytes:
    # The frame's own size is checked first: the library allocates by it, whatever maximum it is given.
    stated = zstandard.get_frame_parameters(stored).content_size
    if stated not in (size, zstandard.CONTENTSIZE_UNKNOWN):
        raise ImageError(f"fatbin: a frame of {stated} bytes where {size} are stated")
    data = zstandard.ZstdDecompressor().decompress(stored, max_output_size=size)
    if len(data) != size:
        raise ImageError(f"fatbin: {len(data)} bytes where {size} are stated")
    return data


def parse_fatbin(data: bytes) -> list[FatbinEntry]:
    """The entries of a whole fatbin, in order.

    Raises:
        ImageError: a length does not fit.
    """
    return list(_entries(data))


def _entries(data: bytes) -> Iterator[FatbinEntry]:
    if len(data) < FATBIN_HEADER.size:
        raise ImageError("fatbin: shorter than its header")
    magic, _, header_bytes, size = FATBIN_HEADER.unpack_from(data)
    if magic != FATBIN_MAGIC or header_bytes < FATBIN_HEADER.size:
        raise ImageError("fatbin: no header")
    end = header_bytes + size
    if end > len(data):
        raise ImageError(f"fatbin: {end} bytes stated, {len(data)} there")
    pos, count = header_bytes, 0
    while pos < end:
        if end - pos < FATBIN_ENTRY.size:
            raise ImageError("fatbin: it ends in an entry's header")
        kind, _, header, payload, compressed, _, _, arch, _, _, flags, _, uncompressed = FATBIN_ENTRY.unpack_from(data, pos)
        if header < FATBIN_ENTRY.size or payload > end - pos - header:
            raise ImageError("fatbin: an entry reaches over the end")
        packed = flags & (FLAG_LZ4 | FLAG_ZSTD)
        stored = compressed if packed else payload
        if stored > payload:
            raise ImageError("fatbin: an entry is longer than its place")
        count += 1
        if count > MAX_FATBIN_ENTRIES:
            raise ImageError(f"fatbin: more than {MAX_FATBIN_ENTRIES} entries")
        start = pos + header
        yield FatbinEntry(kind, arch, flags, data[start : start + stored], uncompressed if packed else payload)
        pos = start + payload


def kernel_params(image: bytes) -> dict[str, Layout]:
    """Layouts of the kernels in a whole image of any kind; in a fatbin those of all entries together.

    Raises:
        ImageError: the image is corrupt.
    """
    kind = image_kind(image)
    if kind is ImageKind.PTX:
        return ptx_kernel_params(image)
    if kind is ImageKind.CUBIN:
        return cubin_kernel_params(image)
    out: dict[str, Layout] = {}
    for entry in _entries(image):
        if entry.kind == ENTRY_PTX:
            out |= ptx_kernel_params(entry.payload())
        elif entry.kind == ENTRY_ELF:
            out |= cubin_kernel_params(entry.payload())
    return out
