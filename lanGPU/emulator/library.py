"""The emulated libcuda.so.1 of this process.

The library is a generated jump table (`lanGPU.native.jump_table`): every exported name jumps through a slot, and `load` fills the slots
with callbacks into `lanGPU.emulator.driver`. Once it is loaded, a dlopen("libcuda.so.1") of cuda.bindings, libcudart or anybody else in
this process gets it, because glibc knows it by its SONAME.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import hashlib
import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any, Final

import platformdirs

from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.export_tables import PRIVATE_PREFIX, private_rows
from lanGPU.driverapi.exports import PER_THREAD_SUFFIXES, export_names, resolve_symbol
from lanGPU.driverapi.signatures import SIGNATURES
from lanGPU.emulator import nvml_library
from lanGPU.emulator.config import EmulatorConfig, trace_folder
from lanGPU.emulator.driver import Driver, bodies, general
from lanGPU.emulator.driver.registry import PRIVATE_BODIES, Body, entry_point, unsupported
from lanGPU.emulator.results import DEINITIALIZED
from lanGPU.emulator.trace import Tracer
from lanGPU.errors import ConfigError
from lanGPU.native import jump_table
from lanGPU.native.store import write_whole
from lanGPU.nvml.names import NAMES

logger = logging.getLogger(__name__)

SONAME: Final = "libcuda.so.1"
LINK_NAME: Final = "libcuda.so"
"""What `-lcuda` and lookups by bare name find beside it."""

_SIGNED_32: Final = frozenset({"int", "CUdevice", "CUdevice_v1"})
_UNSIGNED_32: Final = frozenset(
    {
        "unsigned int",
        "unsigned",
        "cuuint32_t",
        "CUstreamAttrID",
        "CUkernelNodeAttrID",
        "CUexecAffinityType",
        "CUmem_advise",
        "CUmem_range_attribute",
    }
) | frozenset(ENUMS)
_SMALL: Final = {"unsigned short": ctypes.c_uint16, "unsigned char": ctypes.c_uint8}
_STREAM: Final = "CUstream"


def entry_names() -> tuple[str, ...]:
    """Every entry point: what is exported as the driver's, then the functions of private tables. All of them have slots, because all
    may be called when the interpreter behind the callbacks is gone: libcudart does, at the process's end."""
    return (*export_names(), *private_rows())


class Library:
    """The loaded library: its file, its slots, and the driver behind them. It stays loaded until the process ends."""

    def __init__(self, path: Path, driver: Driver) -> None:
        self.path = path
        self.driver = driver
        folder = trace_folder()
        self._tracer = Tracer(folder, driver) if folder else None
        self.handle = ctypes.CDLL(str(path), mode=os.RTLD_NOW | ctypes.RTLD_GLOBAL)
        self._names = entry_names()
        self._callbacks: list[Any] = []
        """The slots hold bare addresses: these references keep the code behind them alive."""
        self._fill()

    def address(self, symbol: str) -> int:
        """Address of the exported `symbol`; 0 if there is none."""
        try:
            return ctypes.cast(self.handle[symbol], ctypes.c_void_p).value or 0
        except AttributeError:
            return 0

    def _fill(self) -> None:
        slots = (ctypes.c_uint64 * len(self._names)).in_dll(self.handle, jump_table.SLOTS_SYMBOL)
        found = bodies()
        nameless = ctypes.CFUNCTYPE(ctypes.c_int)
        for index, name in enumerate(self._names):
            body = body_of(name, found)
            if name.startswith(PRIVATE_PREFIX):
                callback = self._private_callback(name)
            elif body is None:
                callback = nameless(self._traced(name, unsupported(name)))
            else:
                callback = self._callback(name, body)
            self._callbacks.append(callback)
            slots[index] = ctypes.cast(callback, ctypes.c_void_p).value or 0

    def _private_callback(self, name: str) -> Any:
        params = private_rows()[name].args
        return ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(params))(entry_point(self.driver, PRIVATE_BODIES[name]))

    def _traced(self, name: str, function: Callable[..., int]) -> Callable[..., int]:
        return self._tracer.wrap(name, function) if self._tracer else function

    def _callback(self, name: str, body: Body) -> Any:
        plain = name
        for suffix in PER_THREAD_SUFFIXES:
            plain = plain.removesuffix(suffix)
        signature = SIGNATURES.get(plain) or SIGNATURES[body.symbol]
        function = entry_point(self.driver, body)
        if plain != name:
            function = _per_thread(function, [c_type for c_type, _ in signature.params])
        function = self._traced(name, function)
        return ctypes.CFUNCTYPE(ctypes.c_int, *(argument_type(c_type) for c_type, _ in signature.params))(function)


def body_of(name: str, found: dict[str, Body]) -> Body | None:
    """The body behind an exported name: by itself, by the row it stands for, or by its plain name if it is a per-thread variant."""
    if name in found:
        return found[name]
    row, _ = resolve_symbol(name)
    if row is not None:
        return next((found[symbol] for symbol in (row.name, *row.aliases) if symbol in found), None)
    for suffix in PER_THREAD_SUFFIXES:
        if name.endswith(suffix):
            return found.get(name.removesuffix(suffix))
    return None


def argument_type(c_type: str) -> Any:
    """The ctypes type that takes an argument of `c_type` from its register: pointers and handles are 64-bit integers."""
    if c_type.endswith("*"):
        return ctypes.c_uint64
    if c_type in _SIGNED_32:
        return ctypes.c_int32
    if c_type in _UNSIGNED_32:
        return ctypes.c_uint32
    return _SMALL.get(c_type, ctypes.c_uint64)


def _per_thread(function: Callable[..., int], types: list[str]) -> Callable[..., int]:
    """`function` with NULL streams standing for the calling thread's stream. _ptds variants have no such argument: they wait anyway."""
    places = [i for i, c_type in enumerate(types) if c_type == _STREAM]
    if not places:
        return function

    def call(*args: int) -> int:
        values = list(args)
        for place in places:
            values[place] = values[place] or 2  # CU_STREAM_PER_THREAD
        return function(*values)

    return call


# --- the file ------------------------------------------------------------------------------------------------------------
def ensure() -> Path:
    """The generated library, made if it is not in the cache; `libcuda.so` and `libnvidia-ml.so.1` lie beside it.

    Raises:
        ConfigError: the cache folder cannot be written.
    """
    names = entry_names()
    digest = hashlib.sha256("\n".join([jump_table.VERSION, str(DEINITIALIZED), *names, *NAMES]).encode()).hexdigest()[:16]
    folder = Path(platformdirs.user_cache_dir("langpu")) / "emulator" / digest
    path = folder / SONAME
    files: dict[str, Callable[[], bytes]] = {
        nvml_library.SONAME: nvml_library.image,
        SONAME: lambda: jump_table.build(SONAME, names, DEINITIALIZED),
    }
    if all((folder / name).exists() for name in (*files, LINK_NAME)):
        return path
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, build in files.items():
            write_whole(folder / name, build())
        with contextlib.suppress(FileExistsError):
            (folder / LINK_NAME).symlink_to(SONAME)
    except OSError as exc:
        raise ConfigError(
            f"the emulated driver cannot be put into {folder}: {exc}", hint="set XDG_CACHE_HOME to a folder that is writable"
        ) from exc
    return path


# --- loading ---------------------------------------------------------------------------------------------------------------
_lock = Lock()
_library: Library | None = None


def load(config: EmulatorConfig | None = None) -> Library:
    """Loads the emulated driver into this process, once; later calls return the same. `config` None reads the environment.

    Raises:
        ConfigError: another libcuda.so.1 or libnvidia-ml.so.1 is loaded already, the environment asks for an
            impossible device, or the cache cannot be written.
    """
    global _library
    with _lock:
        if _library is None:
            for soname in (SONAME, nvml_library.SONAME):
                if _loaded(soname):
                    raise ConfigError(f"another {soname} is loaded in this process already")
            library = Library(path := ensure(), Driver(config or EmulatorConfig.from_environment()))
            general.entry_address = library.address
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(library))  # the slots outlive every module's dictionary
            ctypes.pythonapi.Py_AtExit(ctypes.c_void_p(library.address(jump_table.CLOSE_SYMBOL)))
            atexit.register(_finish, library.driver)
            os.register_at_fork(after_in_child=lambda: _after_fork(library.driver))
            nvml_library.load(path.with_name(nvml_library.SONAME), library.driver)
            _library = library
        return _library


def _loaded(soname: str) -> bool:
    try:
        ctypes.CDLL(soname, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return False
    return True


def _finish(driver: Driver) -> None:
    """At the interpreter's end: nothing is queued any more, and what objects still do while they are torn down runs in their thread."""
    try:
        driver.queue.finish()
    except KeyboardInterrupt:
        driver.queue.give_up()
    if driver.queue.hung:
        driver.give_up()


def _after_fork(driver: Driver) -> None:
    """CUDA does not survive fork: a child of a process that called cuInit gets CUDA_ERROR_NOT_INITIALIZED."""
    if driver.ready:
        driver.forked = True
