"""A shared object whose exported functions jump through a table of slots that the process fills after loading it.

Every slot starts at a stub that returns one constant. Written by hand as bytes: x86-64 ELF with PT_DYNAMIC, SONAME, SysV hash table and
relative relocations; no sections, no versions, no libraries needed (System V gABI; AMD64 psABI for relocations and instructions).

| segment | content |
| --- | --- |
| R | headers, .dynsym, .dynstr, .hash, .rela.dyn |
| RX | the stub, `CLOSE_SYMBOL`, one 8-byte trampoline for each name |
| RW | .dynamic, the slots |
"""

import struct
from collections.abc import Sequence
from typing import Final

from lanGPU.native.elf import align, hash_table, string_table

VERSION: Final = "1"
"""Changes with every change of what `build` writes: part of the names of cached files."""
SLOTS_SYMBOL: Final = "langpu_slots"
"""Data symbol: u64 for each name, in their order: the address that calls of it go to."""
CLOSE_SYMBOL: Final = "langpu_close"
"""``void langpu_close(void)``: points every slot back to the stub. For the end of an interpreter whose callbacks the slots hold."""

_PAGE: Final = 4096
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELOCATION: Final = struct.Struct("<QQq")
_PROGRAM_HEADER: Final = struct.Struct("<IIQQQQQQ")
_ELF_HEADER: Final = struct.Struct("<16sHHIQQQIHHHHHH")
_DYNAMIC: Final = struct.Struct("<QQ")

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK = 1, 2, 0x6474E551
_R, _W, _X = 4, 2, 1
_DT_NULL, _DT_HASH, _DT_STRTAB, _DT_SYMTAB, _DT_RELA, _DT_RELASZ, _DT_RELAENT, _DT_STRSZ, _DT_SYMENT, _DT_SONAME = (
    0,
    4,
    5,
    6,
    7,
    8,
    9,
    10,
    11,
    14,
)
_GLOBAL_FUNCTION, _GLOBAL_OBJECT = 0x12, 0x11
_R_X86_64_RELATIVE = 8
_TEXT_SECTION, _DATA_SECTION = 2, 3
"""st_shndx of defined symbols: any number that is not SHN_UNDEF; there are no sections."""
_STUB_BYTES = 8
_CLOSE_BYTES = 24
_TRAMPOLINE_BYTES = 8


def build(soname: str, names: Sequence[str], default_result: int) -> bytes:
    """The shared object. `names` are unique; slots return `default_result` until they are filled."""
    strings, offsets = string_table([soname, *names, SLOTS_SYMBOL, CLOSE_SYMBOL])
    count, symbols = len(names), len(names) + 3

    # Read-only part: headers first, then the tables one behind the other.
    dynsym = align(_ELF_HEADER.size + 5 * _PROGRAM_HEADER.size, 8)
    dynstr = dynsym + symbols * _SYMBOL.size
    hash_at = align(dynstr + len(strings), 8)
    hashes = hash_table([*names, SLOTS_SYMBOL, CLOSE_SYMBOL])
    rela = align(hash_at + len(hashes), 8)
    read_only_end = rela + count * _RELOCATION.size

    text = align(read_only_end, _PAGE)
    close = text + _STUB_BYTES
    trampolines = close + _CLOSE_BYTES
    text_end = trampolines + count * _TRAMPOLINE_BYTES

    dynamic = align(text_end, _PAGE)
    entries = (
        (_DT_SONAME, offsets[soname]),
        (_DT_HASH, hash_at),
        (_DT_STRTAB, dynstr),
        (_DT_SYMTAB, dynsym),
        (_DT_STRSZ, len(strings)),
        (_DT_SYMENT, _SYMBOL.size),
        (_DT_RELA, rela),
        (_DT_RELASZ, count * _RELOCATION.size),
        (_DT_RELAENT, _RELOCATION.size),
        (_DT_NULL, 0),
    )
    slots = dynamic + len(entries) * _DYNAMIC.size
    end = slots + 8 * count

    out = bytearray(end)
    out[: _ELF_HEADER.size] = _ELF_HEADER.pack(
        b"\x7fELF\x02\x01\x01".ljust(16, b"\0"), 3, 62, 1, 0, _ELF_HEADER.size, 0, 0, _ELF_HEADER.size, _PROGRAM_HEADER.size, 5, 64, 0, 0
    )
    segments = (
        (_PT_LOAD, _R, 0, read_only_end, _PAGE),
        (_PT_LOAD, _R | _X, text, text_end - text, _PAGE),
        (_PT_LOAD, _R | _W, dynamic, end - dynamic, _PAGE),
        (_PT_DYNAMIC, _R | _W, dynamic, len(entries) * _DYNAMIC.size, 8),
        (_PT_GNU_STACK, _R | _W, 0, 0, 16),
    )
    for i, (kind, flags, at, size, alignment) in enumerate(segments):
        _PROGRAM_HEADER.pack_into(out, _ELF_HEADER.size + i * _PROGRAM_HEADER.size, kind, flags, at, at, at, size, size, alignment)

    defined = [(name, _GLOBAL_FUNCTION, _TEXT_SECTION, trampolines + i * _TRAMPOLINE_BYTES, 8) for i, name in enumerate(names)]
    defined.append((SLOTS_SYMBOL, _GLOBAL_OBJECT, _DATA_SECTION, slots, 8 * count))
    defined.append((CLOSE_SYMBOL, _GLOBAL_FUNCTION, _TEXT_SECTION, close, _CLOSE_BYTES))
    for i, (name, info, section, value, size) in enumerate(defined, 1):
        _SYMBOL.pack_into(out, dynsym + i * _SYMBOL.size, offsets[name], info, 0, section, value, size)
    out[dynstr : dynstr + len(strings)] = strings
    out[hash_at : hash_at + len(hashes)] = hashes
    for i in range(count):
        _RELOCATION.pack_into(out, rela + i * _RELOCATION.size, slots + 8 * i, _R_X86_64_RELATIVE, text)
    for i, entry in enumerate(entries):
        _DYNAMIC.pack_into(out, dynamic + i * _DYNAMIC.size, *entry)

    out[text : text + 6] = b"\xb8" + struct.pack("<i", default_result) + b"\xc3"  # mov eax, result; ret
    out[close : close + 23] = (
        b"\x48\x8d\x3d" + struct.pack("<i", slots - (close + 7))  # lea rdi, [slots]
        + b"\x48\x8d\x05" + struct.pack("<i", text - (close + 14))  # lea rax, [stub]
        + b"\xb9" + struct.pack("<I", count)  # mov ecx, count
        + b"\xf3\x48\xab\xc3"  # rep stosq; ret
    )  # fmt: skip
    for i in range(count):
        at = trampolines + i * _TRAMPOLINE_BYTES
        out[at : at + 6] = b"\xff\x25" + struct.pack("<i", slots + 8 * i - (at + 6))  # jmp [slot]
    return bytes(out)
