"""Parameter layouts of kernels, from PTX text and from cubins.

A layout is one (offset, size) in bytes for each parameter, offsets into the packed parameter buffer.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from lanGPU.constants import MAX_KERNEL_PARAMS_BYTES
from lanGPU.errors import ImageError

Layout = list[tuple[int, int]]

# --- PTX ---------------------------------------------------------------------------------------------------------------
_SCAN = re.compile(rb'"[^"\n]*"|//[^\n]*|/\*.*?(?:\*/|\Z)|\.entry\b', re.DOTALL)
_COMMENT = re.compile(rb"//[^\n]*|/\*.*?\*/", re.DOTALL)
_NAME = re.compile(rb"\s*((?:[A-Za-z]|[_$%](?=[\w$]))[\w$]*)")
_PARAM = re.compile(
    rb"\.param((?:\s*\.\w+|\s+\d+)*)\s+((?:[A-Za-z]|[_$%](?=[\w$]))[\w$]*)((?:\s*\[\s*\d*\s*\])*)\s*",
)
_ALIGN = re.compile(rb"\.align\s+(\d+)")
_TYPE_BYTES = {
    **dict.fromkeys(("b8", "u8", "s8", "e4m3", "e5m2"), 1),
    **dict.fromkeys(("b16", "u16", "s16", "f16", "bf16", "e4m3x2", "e5m2x2"), 2),
    **dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2", "tf32"), 4),
    **dict.fromkeys(("b64", "u64", "s64", "f64", "texref", "samplerref", "surfref"), 8),
    "b128": 16,
}
_VECTOR = {"v2": 2, "v4": 4, "v8": 8}
_MAX_ALIGN = 256


def ptx_kernel_params(text: bytes) -> dict[str, Layout]:
    """Layout of every `.entry` in PTX `text`. Source: PTX ISA, kernel function parameters.

    Raises:
        ImageError: a parameter list cannot be read.
    """
    out: dict[str, Layout] = {}
    for match in _SCAN.finditer(text):
        if match.group() != b".entry":
            continue
        named = _NAME.match(text, match.end())
        if named is None:
            raise ImageError(f"PTX: .entry without a name at byte {match.start()}")
        name = named.group(1).decode("ascii")
        out[name] = _ptx_layout(name, _parameter_list(text, named.end()))
    return out


def _parameter_list(text: bytes, pos: int) -> bytes:
    """What stands between the parentheses that follow, comments removed; empty if none follow."""
    # Comments may stand before the parenthesis too; the list ends at the first ")" outside of comments.
    chunk = 4096
    while True:
        part = _COMMENT.sub(b" ", text[pos : pos + chunk])
        opened = part.lstrip()
        if opened and not opened.startswith(b"("):
            return b""
        end = opened.find(b")")
        if end >= 0:
            return opened[1:end]
        if pos + chunk >= len(text):
            if not opened:
                return b""
            raise ImageError("PTX: a parameter list is not closed")
        chunk *= 4


def _ptx_layout(kernel: str, text: bytes) -> Layout:
    layout: Layout = []
    end = 0
    for part in text.split(b","):
        if not part.strip():
            if layout or b"," in text:
                raise ImageError(f"PTX: empty parameter of {kernel}")
            continue
        match = _PARAM.fullmatch(part.strip())
        if match is None:
            raise ImageError(f"PTX: cannot read a parameter of {kernel}: {part.strip()[:80].decode('ascii', 'replace')}")
        attributes, _, dimensions = match.groups()
        words = re.findall(r"\.(\w+)", attributes.decode("ascii"))
        element = next((_TYPE_BYTES[w] for w in words if w in _TYPE_BYTES), 0)
        if not element:
            raise ImageError(f"PTX: a parameter of {kernel} has no known type")
        element *= next((_VECTOR[w] for w in words if w in _VECTOR), 1)
        # `.ptr .align n` speaks of what a pointer points to, `.align n` alone of the parameter.
        aligned = _ALIGN.search(attributes) if "ptr" not in words else None
        align = int(aligned.group(1)) if aligned else element
        if align & (align - 1) or not 0 < align <= _MAX_ALIGN:
            raise ImageError(f"PTX: a parameter of {kernel} has alignment {align}")
        count = 1
        for dimension in re.findall(rb"\[\s*(\d*)\s*\]", dimensions):
            if not dimension or len(dimension) > 9:
                raise ImageError(f"PTX: a parameter of {kernel} has no usable length")
            count *= int(dimension)
        offset = (end + align - 1) // align * align
        end = offset + element * count
        if end > MAX_KERNEL_PARAMS_BYTES:
            raise ImageError(f"PTX: parameters of {kernel} are over {MAX_KERNEL_PARAMS_BYTES} bytes")
        layout.append((offset, element * count))
    return layout


# --- ELF ---------------------------------------------------------------------------------------------------------------
ELF_MAGIC = b"\x7fELF"
ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
SECTION = struct.Struct("<IIQQQQIIQQ")
PROGRAM_HEADER_BYTES = 56
EM_CUDA = 190
SHT_NOBITS = 8
SHT_PROGBITS = 1
SHN_XINDEX = 0xFFFF
MAX_SECTIONS = 1 << 20
"""A cubin has some five sections for each kernel; the largest of NVIDIA's libraries hold some ten thousand kernels."""


@dataclass(frozen=True, slots=True)
class ElfHeader:
    """What the file header says of the two tables; sections in bytes are read separately."""

    program_offset: int
    program_count: int
    section_offset: int
    section_count: int
    """0 with a non-zero offset: the count stands in section 0."""
    names_index: int


@dataclass(frozen=True, slots=True)
class Section:
    """A section header; `name` is an offset into the string table of names."""

    name: int
    type: int
    offset: int
    size: int
    link: int


def read_elf_header(data: bytes) -> ElfHeader:
    """The ELF header of a cubin, from its first 64 bytes.

    Raises:
        ImageError: it is not a 64-bit little-endian ELF file for NVIDIA GPUs.
    """
    if len(data) < ELF_HEADER.size or not data.startswith(ELF_MAGIC):
        raise ImageError("cubin: no ELF header")
    ident, _, machine, _, _, phoff, shoff, _, _, phentsize, phnum, shentsize, shnum, names = ELF_HEADER.unpack_from(data)
    if ident[4] != 2 or ident[5] != 1 or machine != EM_CUDA:
        raise ImageError("cubin: not a 64-bit little-endian ELF file for NVIDIA GPUs")
    if (phnum and phentsize != PROGRAM_HEADER_BYTES) or (shoff and shentsize != SECTION.size):
        raise ImageError("cubin: headers of an unknown size")
    return ElfHeader(phoff, phnum, shoff, shnum, names)


def read_section(data: bytes, index: int = 0) -> Section:
    """Entry `index` of a section table."""
    name, kind, _, _, offset, size, link, _, _, _ = SECTION.unpack_from(data, index * SECTION.size)
    return Section(name, kind, offset, size, link)


def elf_sections(data: bytes) -> Iterator[tuple[str, Section]]:
    """(name, header) of every section of a cubin, in their order. Raises ImageError."""
    header = read_elf_header(data)
    if not header.section_offset:
        return
    table = data[header.section_offset :]
    count, names_index = header.section_count, header.names_index
    if len(table) < SECTION.size:
        raise ImageError("cubin: the section table lies outside of the image")
    first = read_section(table)
    count = count or first.size
    names_index = first.link if names_index == SHN_XINDEX else names_index
    if count > MAX_SECTIONS or len(table) < count * SECTION.size or names_index >= count:
        raise ImageError("cubin: the section table is longer than the image")
    names = section_contents(data, read_section(table, names_index))
    for index in range(count):
        section = read_section(table, index)
        end = names.find(b"\0", section.name)
        if section.name > len(names) or end < 0:
            raise ImageError("cubin: a section's name lies outside of the string table")
        yield names[section.name : end].decode("ascii", "replace"), section


def section_contents(data: bytes, section: Section) -> bytes:
    """The bytes of a section; empty where it has none in the file. Raises ImageError."""
    if section.type == SHT_NOBITS:
        return b""
    if section.offset + section.size > len(data):
        raise ImageError("cubin: a section lies outside of the image")
    return data[section.offset : section.offset + section.size]


# Attributes of .nv.info: u8 format, u8 attribute, then a u16 value, or with format 4 the u16 size of what follows. The names are those
# that `cuobjdump -elf` prints; the numbers and the meaning of the words are checked in the tests with NVRTC's output.
_FORMAT_SIZED = 4
_KPARAM_INFO = 0x17
"""u32 index, u16 ordinal, u16 offset, u32 of which the upper 14 bits are the size."""
_KPARAM_INFO_V2 = 0x45
"""The same with the size in the lower half of the last word (its upper byte tells pointers on sm_100 and later); written where
offsets or sizes do not fit the older form."""
_KPARAM = struct.Struct("<IHHI")
_CBANK_PARAM_SIZE = 0x19
"""u16 value: bytes of the packed parameter buffer."""
_INFO_PREFIX = ".nv.info."


def cubin_kernel_params(data: bytes) -> dict[str, Layout]:
    """Layout of every kernel in a cubin, from its `.nv.info.<kernel>` sections.

    A kernel whose parameters are described in a way unknown here is left out: no layout is better than a wrong one.

    Raises:
        ImageError: the cubin is corrupt.
    """
    out = {}
    for name, section in elf_sections(data):
        if name.startswith(_INFO_PREFIX):
            layout = _info_layout(name, section_contents(data, section))
            if layout is not None:
                out[name[len(_INFO_PREFIX) :]] = layout
    return out


def _info_layout(name: str, info: bytes) -> Layout | None:
    found: dict[int, tuple[int, int]] = {}
    total = 0  # kernels without parameters do not state it
    pos = 0
    while pos < len(info):
        if pos + 4 > len(info):
            raise ImageError(f"cubin: {name} ends in mid-attribute")
        form, attribute, value = info[pos], info[pos + 1], info[pos + 2] | info[pos + 3] << 8
        pos += 4
        if form != _FORMAT_SIZED:
            total = value if attribute == _CBANK_PARAM_SIZE else total
            continue
        if pos + value > len(info):
            raise ImageError(f"cubin: {name} ends in mid-attribute")
        if attribute in (_KPARAM_INFO, _KPARAM_INFO_V2):
            if value != _KPARAM.size:
                raise ImageError(f"cubin: {name} has a parameter record of {value} bytes")
            _, ordinal, offset, word = _KPARAM.unpack_from(info, pos)
            found[ordinal] = (offset, word >> 18 if attribute == _KPARAM_INFO else word & 0xFFFF)
        pos += value
    if sorted(found) != list(range(len(found))):
        raise ImageError(f"cubin: {name} leaves parameters out")
    layout = [found[i] for i in range(len(found))]
    end = max((offset + size for offset, size in layout), default=0)
    if end > MAX_KERNEL_PARAMS_BYTES:
        raise ImageError(f"cubin: {name} has parameters over {MAX_KERNEL_PARAMS_BYTES} bytes")
    if end != total:
        return None
    return layout
