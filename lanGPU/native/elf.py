"""Reads the object files LLVM emits and writes shared objects: no linker, no section headers.

Sources: System V gABI (object files, dynamic linking); AMD64 psABI.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from lanGPU.errors import LanGPUError
from lanGPU.native import x86_64

PAGE: Final = 4096
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELA = struct.Struct("<QQq")
_SHF_ALLOC, _SHF_WRITE, _SHF_EXEC = 2, 1, 4
_SHT_RELA, _SHT_NOBITS, _SHT_SYMTAB = 4, 8, 2


class LinkError(LanGPUError):
    """Generated code does not fit into a shared object; a bug of ours."""

    exit_code = 97


@dataclass(slots=True)
class Section:
    """A section that takes part in the image; `address` is set when it is placed."""

    name: str
    data: bytearray
    size: int
    align: int
    writable: bool
    executable: bool
    address: int = 0


@dataclass(frozen=True, slots=True)
class Relocation:
    section: int
    offset: int
    kind: int
    symbol: int
    addend: int


@dataclass(frozen=True, slots=True)
class Symbol:
    name: str
    section: int
    value: int


class ObjectFile:
    """A relocatable object: allocated sections, symbols, relocations."""

    def __init__(self, data: bytes) -> None:
        (table,) = struct.unpack_from("<Q", data, 40)
        count, names_index = struct.unpack_from("<HH", data, 60)
        headers = [_SECTION.unpack_from(data, table + _SECTION.size * i) for i in range(count)]
        names = headers[names_index]
        self.sections: dict[int, Section] = {}
        self.symbols: list[Symbol] = []
        self.relocations: list[Relocation] = []
        for index, (name, kind, flags, _, offset, size, _, _, align, _) in enumerate(headers):
            if flags & _SHF_ALLOC and size and not _string(data, names[4] + name).startswith(".eh_frame"):
                raw = bytearray() if kind == _SHT_NOBITS else bytearray(data[offset : offset + size])
                text = _string(data, names[4] + name)
                self.sections[index] = Section(text, raw, size, max(1, align), bool(flags & _SHF_WRITE), bool(flags & _SHF_EXEC))
        for header in headers:
            if header[1] == _SHT_SYMTAB:
                strings = headers[header[6]]
                for i in range(header[5] // _SYMBOL.size):
                    name, _, _, section, value, _ = _SYMBOL.unpack_from(data, header[4] + i * _SYMBOL.size)
                    self.symbols.append(Symbol(_string(data, strings[4] + name), section, value))
        for header in headers:
            if header[1] == _SHT_RELA and header[7] in self.sections:
                for i in range(header[5] // _RELA.size):
                    offset, info, addend = _RELA.unpack_from(data, header[4] + i * _RELA.size)
                    self.relocations.append(Relocation(header[7], offset, info & 0xFFFF_FFFF, info >> 32, addend))


def _string(data: bytes, at: int) -> str:
    return data[at : data.index(b"\0", at)].decode()


def shared_object(
    soname: str, names: Sequence[str], code: bytes, dispatch: str, imports: Sequence[str] = ()
) -> tuple[bytes, dict[str, int]]:
    """A shared object that exports `names` as trampolines into the function `dispatch` of the object file `code`.

    The undefined symbol ``image_start`` of the object means the address at which the image is loaded; ``import.NAME`` for NAME among
    `imports` a u64 that holds the address of the process's data symbol NAME, 0 where there is none.

    Returns:
        The file, and each exported name's offset from the load address.

    Raises:
        LinkError: the object needs something from outside.
    """
    unit = ObjectFile(code)
    strings, offsets = string_table([soname, *names, *imports])
    symbols_at = align(64 + 5 * 56, 8)
    strings_at = symbols_at + _SYMBOL.size * (len(names) + len(imports) + 1)
    hash_at = align(strings_at + len(strings), 8)
    hashes = hash_table([*names, *imports])
    relocations_at = align(hash_at + len(hashes), 8)
    position = relocations_at + _RELA.size * len(imports)
    read_only = [s for s in unit.sections.values() if not s.writable and not s.executable]
    position = _place(read_only, position)
    read_only_end = position
    text_at = align(position, PAGE)
    position = text_at + x86_64.TRAMPOLINE_BYTES * len(names) + x86_64.shared_code_bytes()
    position = _place([s for s in unit.sections.values() if s.executable], position)
    text_end = position
    data_at = align(position, PAGE)
    dynamic = (
        (14, offsets[soname]),  # DT_SONAME
        (4, hash_at),  # DT_HASH
        (5, strings_at),  # DT_STRTAB
        (6, symbols_at),  # DT_SYMTAB
        (10, len(strings)),  # DT_STRSZ
        (11, _SYMBOL.size),  # DT_SYMENT
        (7, relocations_at),  # DT_RELA
        (8, _RELA.size * len(imports)),  # DT_RELASZ
        (9, _RELA.size),  # DT_RELAENT
        # DT_FLAGS_1, DF_1_NODELETE: code that threads may wait in, and whose data says what the process is attached to, stays.
        (0x6FFFFFFB, 8),
        (0, 0),
    )
    writable = sorted((s for s in unit.sections.values() if s.writable), key=lambda s: not s.data)
    imported_at = data_at + 16 * len(dynamic)
    outside = {"image_start": 0} | {f"import.{name}": imported_at + 8 * i for i, name in enumerate(imports)}
    data_file_end = _place([s for s in writable if s.data], imported_at + 8 * len(imports))
    data_end = _place([s for s in writable if not s.data], data_file_end)
    image = bytearray(data_file_end)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01".ljust(16, b"\0"), 3, x86_64.ELF_MACHINE, 1, 0, 64, 0, 0, 64, 56, 5, 64, 0, 0
    )
    image[:64] = header
    segments = (
        (1, 4, 0, read_only_end, read_only_end, PAGE),
        (1, 5, text_at, text_end - text_at, text_end - text_at, PAGE),
        (1, 6, data_at, data_file_end - data_at, data_end - data_at, PAGE),
        (2, 6, data_at, 16 * len(dynamic), 16 * len(dynamic), 8),
        (0x6474E551, 6, 0, 0, 0, 16),  # PT_GNU_STACK
    )
    for i, (kind, flags, at, file_bytes, memory_bytes, alignment) in enumerate(segments):
        struct.pack_into("<IIQQQQQQ", image, 64 + 56 * i, kind, flags, at, at, at, file_bytes, memory_bytes, alignment)
    for i, entry in enumerate(dynamic):
        struct.pack_into("<QQ", image, data_at + 16 * i, *entry)
    image[strings_at : strings_at + len(strings)] = strings
    image[hash_at : hash_at + len(hashes)] = hashes
    exported = {name: text_at + x86_64.TRAMPOLINE_BYTES * i for i, name in enumerate(names)}
    for i, name in enumerate(names, 1):
        # Type FUNC, binding GLOBAL; section index 1 says "defined", as there are no section headers.
        _SYMBOL.pack_into(image, symbols_at + _SYMBOL.size * i, offsets[name], 0x12, 0, 1, exported[name], x86_64.TRAMPOLINE_BYTES)
    for i, name in enumerate(imports):
        # Type OBJECT, binding WEAK, undefined; R_X86_64_GLOB_DAT fills in its address.
        number = len(names) + 1 + i
        _SYMBOL.pack_into(image, symbols_at + _SYMBOL.size * number, offsets[name], 0x21, 0, 0, 0, 0)
        _RELA.pack_into(image, relocations_at + _RELA.size * i, imported_at + 8 * i, number << 32 | x86_64.R_GLOB_DAT, 0)
    _relocate(unit, outside)
    for section in unit.sections.values():
        image[section.address : section.address + len(section.data)] = section.data
    entry_points = x86_64.trampolines(text_at, len(names), _address(unit, dispatch))
    image[text_at : text_at + len(entry_points)] = entry_points
    return bytes(image), exported


def _place(sections: Sequence[Section], position: int) -> int:
    for section in sections:
        position = align(position, section.align)
        section.address = position
        position += section.size
    return position


def _address(unit: ObjectFile, name: str) -> int:
    for symbol in unit.symbols:
        if symbol.name == name and symbol.section in unit.sections:
            return unit.sections[symbol.section].address + symbol.value
    raise LinkError(f"generated code has no function {name}")


def _relocate(unit: ObjectFile, outside: dict[str, int]) -> None:
    for relocation in unit.relocations:
        symbol = unit.symbols[relocation.symbol]
        section = unit.sections[relocation.section]
        if symbol.section in unit.sections:
            target = unit.sections[symbol.section].address + symbol.value
        elif symbol.name in outside:
            target = outside[symbol.name]
        else:
            raise LinkError(f"generated code needs {symbol.name or 'something'} from outside")
        x86_64.relocate(relocation.kind, section.data, relocation.offset, section.address + relocation.offset, target, relocation.addend)


def align(value: int, alignment: int) -> int:
    """`value` rounded up."""
    return -(-value // alignment) * alignment


def string_table(names: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """A string table and each name's offset in it."""
    table, offsets = bytearray(b"\0"), {}
    for name in names:
        offsets[name] = len(table)
        table += name.encode() + b"\0"
    return bytes(table), offsets


def hash_table(names: Sequence[str]) -> bytes:
    """DT_HASH for symbols 1… in the order of `names`."""
    buckets = [0] * max(1, len(names) // 2)
    chain = [0] * (len(names) + 1)
    for index, name in enumerate(names, 1):
        bucket = _hash(name) % len(buckets)
        chain[index] = buckets[bucket]
        buckets[bucket] = index
    return struct.pack(f"<{2 + len(buckets) + len(chain)}I", len(buckets), len(chain), *buckets, *chain)


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        value = (value ^ (value >> 24 & 0xF0)) & 0x0FFF_FFFF
    return value
