"""Trace mode: every driver call that reaches the emulated driver, as lines of JSON in one file per process.

What differs from one run to the next has names of its own: objects are called by kind and order of appearance (``stream#1``), device
memory likewise (``mem#2+0x100``), addresses of the host are just ``host``. So the traces of two runs of a program can be compared
(`tools/trace_diff.py`), be it in its own process or behind a network. Bytes that a call reads stand there as length and hash.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from threading import Lock, get_native_id
from typing import IO, TYPE_CHECKING, Any, Final

from lanGPU.driverapi.exports import resolve_symbol
from lanGPU.driverapi.model import ApiFunction, ArgKind
from lanGPU.driverapi.signatures import SIGNATURES
from lanGPU.driverapi.structs import LAYOUTS, StructLayout
from lanGPU.emulator.driver.cabi import get_bytes, get_cstring, get_u64
from lanGPU.emulator.driver.launches import pack_parameters
from lanGPU.emulator.driver.objects import Function, Kernel
from lanGPU.emulator.memory import Kind
from lanGPU.emulator.results import CuError
from lanGPU.errors import ConfigError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver
    from lanGPU.emulator.ptx import KernelInfo

_SUFFIX: Final = ".trace.jsonl"
_HASH_BYTES: Final = 8
_MAX_SHOWN_BYTES: Final = 1 << 26
"""Longer arguments are told by their length alone: hashing must not become what a program spends its time on."""
_SPECIAL_STREAMS: Final = {0: "default", 1: "legacy", 2: "per-thread"}
_BEFORE_USE: Final = frozenset({"cuGetProcAddress", "cuGetProcAddress_v2", "cuGetExportTable", "cuDriverGetVersion", "cuInit"})
"""A file begins with the first call that is none of these: looking for a driver is not using one."""

Value = int | str | list[Any] | dict[str, Any] | None


class Tracer:
    """Writes this process's trace. Thread-safe."""

    def __init__(self, folder: Path, driver: Driver) -> None:
        """Raises ConfigError: the folder cannot be made."""
        self._folder = folder
        self._driver = driver
        self._lock = Lock()
        self._file: IO[str] | None = None
        self._pid = 0
        self._names: dict[int, str] = {}
        self._memory: dict[int, str] = {}
        self._counts: dict[str, int] = {}
        self._threads: dict[int, int] = {}
        self._order = itertools.count(1)
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise ConfigError(f"traces cannot be written to {folder}: {exc.strerror}") from exc

    def wrap(self, symbol: str, function: Callable[..., int]) -> Callable[..., int]:
        """`function`, the entry point of exported `symbol`, with every call of it written down."""
        row, per_thread = resolve_symbol(symbol)
        name = row.name if row else symbol
        signature = SIGNATURES.get(name)
        params = signature.params if signature else ()
        quiet = name in _BEFORE_USE

        def call(*args: int) -> int:
            order = next(self._order)
            thread = get_native_id()
            before = self._arguments(row, params, args, per_thread)
            result = function(*args)
            if not quiet or self._file is not None:
                outputs = self._outputs(row, args) if not result else {}
                self._write({"n": order, "thread": self._thread(thread), "call": name, "args": before, "out": outputs, "result": result})
            return result

        return call

    def _write(self, entry: dict[str, Any]) -> None:
        with self._lock:
            if self._file is None or self._pid != os.getpid():
                self._pid = os.getpid()
                self._file = open(self._folder / f"{self._pid}{_SUFFIX}", "w", encoding="utf-8", buffering=1)  # noqa: SIM115
            self._file.write(json.dumps(entry, separators=(",", ":")) + "\n")

    def _thread(self, thread: int) -> int:
        with self._lock:
            return self._threads.setdefault(thread, len(self._threads) + 1)

    # --- names -------------------------------------------------------------------------------------------------------------
    def _new_name(self, kind: str) -> str:
        self._counts[kind] = number = self._counts.get(kind, 0) + 1
        return f"{kind}#{number}"

    def name(self, value: int) -> str | None:
        """What a 64-bit word is called if it is a handle or lies in device memory."""
        with self._lock:
            thing = self._driver.handles.peek(value)
            if thing is not None:
                if value not in self._names:
                    self._names[value] = self._new_name(type(thing).__name__.lower())
                return self._names[value]
            allocation = self._driver.memory.find(value)
            if allocation is None:
                return self._names.get(value)
            if allocation.kind in (Kind.HOST, Kind.REGISTERED):
                return "host"
            if allocation.address not in self._memory:
                self._memory[allocation.address] = self._new_name("mem")
            return f"{self._memory[allocation.address]}+{value - allocation.address:#x}"

    def _word(self, value: int) -> str | int:
        return self.name(value) or value

    # --- arguments ---------------------------------------------------------------------------------------------------------
    def _arguments(
        self, row: ApiFunction | None, params: tuple[tuple[str, str], ...], args: tuple[int, ...], per_thread: bool
    ) -> dict[str, Value]:
        out: dict[str, Value] = {}
        kinds = {arg.name: arg for arg in row.args} if row else {}
        for (c_type, name), value in zip(params, args, strict=False):
            arg = kinds.get(name)
            kind = arg.kind if arg else None
            if c_type == "CUstream" and value in _SPECIAL_STREAMS:
                out[name] = _SPECIAL_STREAMS[2 if per_thread and not value else value]
            elif kind in (ArgKind.KERNEL_PARAMS, ArgKind.KERNEL_EXTRA):
                continue
            elif not c_type.endswith("*"):
                out[name] = self._word(value) if value > 0xFFFF else value
            elif not value:
                out[name] = None
            elif layout := LAYOUTS.get(c_type.removeprefix("const ").removesuffix("*").strip()):
                out[name] = self._struct(layout, value)
            elif kind is ArgKind.CSTRING or c_type == "const char*":
                out[name] = get_cstring(value)
            elif arg and row and kind in (ArgKind.BYTES_IN, ArgKind.BYTES_INOUT):
                out[name] = self._bytes(row, arg.size_from, arg.size_const, value, args)
            elif kind is not ArgKind.HANDLE_OUT and kind is not ArgKind.BYTES_OUT:
                out[name] = self.name(value) or "host"
        function = next((v for (t, _), v in zip(params, args, strict=False) if t in ("CUfunction", "CUkernel")), 0)
        if row and any(arg.kind is ArgKind.KERNEL_PARAMS for arg in row.args):
            at = row.arg_index["kernelParams"]
            out["parameters"] = self._parameters(function, args[at], args[at + 1])
        return out

    def _bytes(self, row: ApiFunction, size_from: str, size_const: int, address: int, args: tuple[int, ...]) -> Value:
        size = args[row.arg_index[size_from]] * size_const if size_from else size_const
        if not size or not address:
            return "host"
        if size % 8 == 0 and size <= 64 and (words := [self.name(get_u64(address + at)) for at in range(0, size, 8)]) and any(words):
            return [word or "?" for word in words]
        return f"{size} bytes {self._hash(address, size)}"

    @staticmethod
    def _hash(address: int, size: int) -> str:
        if size > _MAX_SHOWN_BYTES:
            return ""
        return hashlib.blake2b(get_bytes(address, size), digest_size=_HASH_BYTES).hexdigest()

    def _struct(self, layout: StructLayout, address: int) -> dict[str, Value]:
        fields = layout.unpack(get_bytes(address, layout.size))
        out: dict[str, Value] = {}
        for name, value in fields.items():
            if name in ("kernelParams", "extra"):
                continue
            if layout.handles.get(name) and name.endswith("Stream") and value in _SPECIAL_STREAMS:
                out[name] = _SPECIAL_STREAMS[value]
            elif name in layout.host_pointers:
                out[name] = "host" if value else None
            elif value:
                out[name] = self._word(value) if value > 0xFFFF else value
        if "kernelParams" in fields:
            function = fields.get("func") or fields.get("kern") or 0
            out["parameters"] = self._parameters(function, fields["kernelParams"], fields["extra"])
        return out

    def _parameters(self, function: int, params: int, extra: int) -> Value:
        thing = self._driver.handles.peek(function)
        if not isinstance(thing, Function | Kernel):
            return None
        try:
            data = pack_parameters(thing.info, params, extra)
        except CuError:
            return "wrong"
        return [self._parameter(data[offset : offset + size]) for offset, size in _layout(thing.info)]

    def _parameter(self, data: bytes) -> Value:
        """One parameter: its words, those that are names by their names."""
        if len(data) < 8:
            return data.hex()
        places = range(0, len(data) - 7, 8)
        found = [self.name(struct.unpack_from("<Q", data, at)[0]) or data[at : at + 8].hex() for at in places]
        rest = data[len(data) & -8 :]
        return found[0] if len(data) == 8 else [*found, *([rest.hex()] if rest else [])]

    def _outputs(self, row: ApiFunction | None, args: tuple[int, ...]) -> dict[str, Value]:
        """Handles and addresses that the call gave."""
        out: dict[str, Value] = {}
        for arg, value in zip(row.args if row else (), args, strict=False):
            if not value:
                continue
            if arg.kind in (ArgKind.HANDLE_OUT, ArgKind.HANDLE_QUERY):
                out[arg.name] = self.name(get_u64(value)) or "none"
            elif arg.kind is ArgKind.BYTES_OUT and arg.size_const == 8 and not arg.size_from and (name := self.name(get_u64(value))):
                out[arg.name] = name
        return out


def _layout(info: KernelInfo) -> list[tuple[int, int]]:
    return info.params
