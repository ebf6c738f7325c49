"""Generates the client's ``libcuda.so.1``: every driver function as a trampoline into one dispatch, which the table drives.

Generated on first use and kept in the user's cache under the hash of everything it is made from; no compiler, no linker.
"""

import contextlib
import hashlib
import struct
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import llvmlite
import platformdirs

from lanGPU import __version__
from lanGPU.client.shim_ir import attach, commands, dispatch, encode, questions, ring, slots
from lanGPU.driverapi.descriptor import QUESTION_OFFSET, pack
from lanGPU.driverapi.export_tables import private_rows
from lanGPU.driverapi.exports import export_names, resolve_symbol
from lanGPU.errors import ConfigError
from lanGPU.native import x86_64
from lanGPU.native.elf import shared_object
from lanGPU.native.store import write_whole
from lanGPU.nvml.rows import nvml_rows
from lanGPU.wire.records import FLAG_PER_THREAD

SONAME: Final = "libcuda.so.1"
NVML_SONAME: Final = "libnvidia-ml.so.1"
"""Another name of the same file: one attachment, one set of threads, one end of the process."""
_INDEX = "symbols"
_CHECK_BYTES = 32
"""The index begins with this much of a hash of itself and the library: a cut-off file would end every program that loads it."""


@dataclass(frozen=True)
class ShimInfo:
    """A shim file: where it is, the 32-byte hash it names itself with, and its symbols' offsets from its load address."""

    path: Path
    digest: bytes
    symbols: dict[str, int]


def entry_names() -> tuple[str, ...]:
    """Every entry point of the shim: what it exports, the functions of private tables, reached by address only, then NVML's."""
    return (*export_names(), *private_rows(), *nvml_rows())


@cache
def _tables() -> tuple[bytes, bytes]:
    """(descriptors, symbol table) as the dispatch code reads them."""
    descriptors: list[bytes] = []
    indexes: dict[int, int] = {}
    symbols = b""
    for name in entry_names():
        row, per_thread = resolve_symbol(name)
        row = row or private_rows().get(name) or nvml_rows().get(name)
        if row is None:
            symbols += struct.pack("<HH", dispatch.NO_ROW, 0)
            continue
        if row.api_id not in indexes:
            indexes[row.api_id] = len(descriptors)
            packed = bytearray(pack(row))
            struct.pack_into("<H", packed, QUESTION_OFFSET, questions.question_word(row.name))
            descriptors.append(bytes(packed))
        symbols += struct.pack("<HH", indexes[row.api_id], FLAG_PER_THREAD if per_thread else 0)
    return b"".join(descriptors), symbols


def module_ir(digest: bytes) -> str:
    """The whole shim as LLVM IR."""
    descriptors, symbols = _tables()
    names = entry_names()
    nvml = range(len(names) - len(nvml_rows()), len(names))
    asking = (attach.text(digest), ring.text(), commands.text(), slots.text(), encode.text())
    answering = (questions.text(), dispatch.text(descriptors, symbols, nvml, names.index("nvmlErrorString")))
    return f'target triple = "{x86_64.TRIPLE}"\n' + x86_64.IR + "".join(asking + answering)


@cache
def _digest() -> bytes:
    """Hash of everything the shim is made from."""
    key = hashlib.blake2b(digest_size=32)
    for part in (module_ir(bytes(32)), "\n".join(entry_names()), llvmlite.__version__, __version__):
        key.update(part.encode())
        key.update(b"\0")
    for module in ("elf", "x86_64"):
        key.update(Path(__file__).parent.parent.joinpath("native", f"{module}.py").read_bytes())
    return key.digest()


def compile_object(ir: str) -> bytes:
    """Position-independent object code of an IR module for any x86-64 processor."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    llvm.initialize_native_asmparser()
    machine = llvm.Target.from_triple(x86_64.TRIPLE).create_target_machine(cpu="x86-64", opt=2, reloc="pic", codemodel="small")
    # No loop may become a call of memcpy or memset: there is no libc to call.
    module = llvm.parse_assembly(ir.replace(" nounwind", ' nounwind "no-builtins"'))
    module.verify()
    options = llvm.create_pipeline_tuning_options(speed_level=2)
    llvm.create_pass_builder(machine, options).getModulePassManager().run(module, llvm.create_pass_builder(machine, options))
    return bytes(machine.emit_object(module))


def ensure() -> ShimInfo:
    """The shim of this release, from the cache or made now (under a second).

    Raises:
        ConfigError: this machine's processor is not supported, or there is no place to write it.
    """
    x86_64.require()
    digest = _digest()
    folder = Path(platformdirs.user_cache_dir("langpu")) / "shim" / digest.hex()[:32]
    path = folder / SONAME
    names = entry_names()
    known = _read_index(folder, names)
    if known is not None:
        return ShimInfo(path, digest, known)
    image, symbols = shared_object(SONAME, names, compile_object(module_ir(digest)), "dispatch", imports=attach.IMPORTS)
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        offsets = struct.pack(f"<{len(names)}Q", *(symbols[n] for n in names))
        write_whole(folder / _INDEX, _check(offsets, image) + offsets)
        write_whole(path, image)
        for other in ("libcuda.so", NVML_SONAME):
            with contextlib.suppress(FileExistsError):
                (folder / other).symlink_to(SONAME)
    except OSError as problem:
        raise ConfigError(f"the CUDA library for programs cannot be written to {folder}: {problem.strerror}") from problem
    return ShimInfo(path, digest, symbols)


def _check(offsets: bytes, image: bytes) -> bytes:
    return hashlib.blake2b(offsets + image, digest_size=_CHECK_BYTES).digest()


def _read_index(folder: Path, names: tuple[str, ...]) -> dict[str, int] | None:
    """The symbols of the library in `folder`; None if it is not there as it was written."""
    try:
        data = (folder / _INDEX).read_bytes()
        image = (folder / SONAME).read_bytes()
    except OSError:
        return None
    check, offsets = data[:_CHECK_BYTES], data[_CHECK_BYTES:]
    if len(offsets) != 8 * len(names) or check != _check(offsets, image):
        return None
    return dict(zip(names, struct.unpack(f"<{len(names)}Q", offsets), strict=True))
