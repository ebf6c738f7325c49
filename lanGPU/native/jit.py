"""Machine code for this process from LLVM IR text, its object code kept on disk by content so that the next process need not compile.

Everything that decides the outcome is part of the name: the text, LLVM's version, the processor. A kept file is only used if its own digest
is right and nobody else can write where it lies; keeping it is optional, so a full disk or a read-only home costs time and nothing else.
"""

import contextlib
import hashlib
import logging
import os
import stat
import tempfile
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import llvmlite
import platformdirs
from llvmlite import binding as llvm

from lanGPU.errors import LanGPUError

_log = logging.getLogger(__name__)

LIBC: Final = ("memcpy", "memmove", "memset")
"""What LLVM calls for its memory intrinsics, and the only symbols that code may need from outside."""
_DIGEST_BYTES: Final = 32
_MAX_OBJECT_BYTES: Final = 64 * 1024 * 1024
_lock = threading.Lock()
_names = 0


class CompileError(LanGPUError):
    """IR text is wrong, needs a symbol that is not there, or this processor is not one of LLVM's."""

    exit_code = 96


class Code:
    """Loaded functions; the machine code lives as long as this object."""

    def __init__(self, tracker: Any, functions: Sequence[str]) -> None:
        self._tracker = tracker
        self.addresses: dict[str, int] = {name: tracker[name] for name in functions}

    def __getitem__(self, name: str) -> int:
        """Address of a function."""
        return self.addresses[name]


def cache_folder() -> Path:
    """Where object code is kept."""
    return Path(platformdirs.user_cache_dir("langpu")) / "jit"


def machine(optimisation: int = 2, *, image: bool = False) -> Any:
    """LLVM's target machine for this processor: position-independent code, for this process or for an `image` of at most 2 GiB.

    Raises:
        CompileError: LLVM has no code generator for this processor.
    """
    try:
        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        llvm.initialize_native_asmparser()  # for inline assembly
        return llvm.Target.from_default_triple().create_target_machine(
            cpu=llvm.get_host_cpu_name(),
            features=llvm.get_host_cpu_features().flatten(),
            opt=optimisation,
            reloc="pic",
            codemodel="small" if image else "jitdefault",
            jit=not image,
        )
    except RuntimeError as exc:
        raise CompileError(f"no machine code for {llvm.get_default_triple()}: {exc}") from exc


def compile_object(text: str, *, externals: Iterable[str] = LIBC, target: Any = None, optimisation: int = 2) -> bytes:
    """Object code of IR `text`, optimised.

    Raises:
        CompileError: the text is wrong, or declares a function that is not among `externals`.
    """
    target = target or machine(optimisation)
    try:
        module = llvm.parse_assembly(text)
        module.verify()
        allowed = set(externals)
        missing = [f.name for f in module.functions if f.is_declaration and not f.name.startswith("llvm.") and f.name not in allowed]
        if missing:
            raise CompileError(f"machine code needs what is not there: {', '.join(missing)}")
        builder = llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options(speed_level=optimisation))
        builder.getModulePassManager().run(module, builder)
        return bytes(target.emit_object(module))
    except RuntimeError as exc:
        raise CompileError(f"IR text is wrong: {exc}") from exc


def _key(text: str, optimisation: int) -> str:
    parts = (
        text,
        str(optimisation),
        llvmlite.__version__,
        str(llvm.llvm_version_info),
        llvm.get_default_triple(),
        llvm.get_host_cpu_name(),
        llvm.get_host_cpu_features().flatten(),
    )
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _is_private(folder: Path) -> bool:
    """Only we can put files there: code from it is run."""
    if not hasattr(os, "getuid"):
        return True  # Windows: the profile's own permissions
    status = folder.stat()
    return status.st_uid == os.getuid() and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _load_kept(path: Path) -> bytes | None:
    try:
        if not _is_private(path.parent) or path.stat().st_size > _MAX_OBJECT_BYTES:
            return None
        data = path.read_bytes()
    except OSError:
        return None
    digest, code = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return code if hashlib.sha256(code).digest() == digest else None


def _keep(path: Path, code: bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not _is_private(path.parent):
            return
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(hashlib.sha256(code).digest() + code)
            os.replace(name, path)
        except OSError:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise
    except OSError as exc:
        _log.debug("machine code is not kept: %s", exc)


def load_object(code: bytes, functions: Sequence[str]) -> Code:
    """Links object code into this process.

    Raises:
        CompileError: a symbol is missing, or a function is not in it.
    """
    global _names
    with _lock:
        _names += 1
        name = f"langpu-{_names}"
    try:
        compiler = _compiler()
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for function in functions:
            builder.export_symbol(function)
        return Code(builder.link(compiler, name), functions)
    except (RuntimeError, ValueError) as exc:
        raise CompileError(f"machine code cannot be linked: {exc}") from exc


_compilers: list[Any] = []


def _compiler() -> Any:
    with _lock:
        if not _compilers:
            llvm.initialize_native_target()
            llvm.initialize_native_asmprinter()
            _compilers.append(llvm.create_lljit_compiler(machine()))
        return _compilers[0]


def load(text: str, functions: Sequence[str], *, optimisation: int = 2) -> Code:
    """The `functions` of IR `text`, compiled now or at some earlier time.

    Raises:
        CompileError: see `compile_object` and `load_object`.
    """
    path = cache_folder() / f"{_key(text, optimisation)}.o"
    code = _load_kept(path)
    if code is None:
        code = compile_object(text, optimisation=optimisation)
        _keep(path, code)
    return load_object(code, functions)
