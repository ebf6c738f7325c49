"""The PTX engine: text in, machine code out, launches on the CPU's cores.

`parse_module` → `PtxModule.bind` → `PtxModule.compile` → `CompiledKernel.launch`. See docs/internals.md, "Emulator".
"""

import re
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from lanGPU.emulator.ptx.allocations import AllocationMap
from lanGPU.emulator.ptx.parser import Outline, parse_outline
from lanGPU.emulator.ptx.runtime import CompiledKernel, Fault
from lanGPU.emulator.ptx.syntax import Function, PtxSyntaxError, Variable
from lanGPU.emulator.ptx.unit import Unit, function_addresses

__all__ = ["AllocationMap", "CompiledKernel", "Fault", "GlobalInfo", "KernelInfo", "PtxModule", "PtxSyntaxError", "parse_module"]


@dataclass(frozen=True, slots=True)
class KernelInfo:
    """What is known of a kernel before it is compiled. Sizes in bytes."""

    name: str
    params: list[tuple[int, int]]
    """(offset, size) of each parameter in the packed buffer."""
    param_bytes: int
    max_threads: int
    """From .maxntid or .reqntid; 1024 otherwise."""
    reqntid: tuple[int, int, int] | None
    line: int
    measure: Callable[[], tuple[int, int]] = field(repr=False, compare=False)
    """Parses the body for (shared, local) bytes."""
    capability: int | None = None
    """Ten times the compute capability that the code was made for (75); None where that is not known."""

    @property
    def shared_bytes(self) -> int:
        """Static shared memory of the kernel and the functions it calls."""
        return self.measure()[0]

    @property
    def local_bytes(self) -> int:
        """Local memory a thread, of the kernel itself."""
        return self.measure()[1]


@dataclass(frozen=True, slots=True)
class GlobalInfo:
    """A module variable in ``global`` or ``const`` space."""

    name: str
    size: int
    align: int
    space: str
    initial: bytes
    """Shorter than `size` where the rest is zero."""
    relocations: list[tuple[int, int, str, int]] = field(default_factory=list)
    """(offset, width in bytes, variable whose address belongs there, addend)."""
    extern: bool = False
    managed: bool = False


class PtxModule:
    """A parsed module; kernels are compiled when asked for."""

    def __init__(self, outline: Outline) -> None:
        self._outline = outline
        self._addresses: dict[str, int] = {}
        self._compiled: dict[str, CompiledKernel] = {}
        self._measured: dict[str, tuple[int, int]] = {}
        self._lock = threading.Lock()
        self.version = outline.version
        self.target = outline.target
        self.kernels = {n: self._describe(f) for n, f in outline.functions.items() if f.entry and f.text is not None}
        self.globals = {n: _global(v) for n, v in outline.variables.items() if v.space in ("global", "const")}

    def _describe(self, function: Function) -> KernelInfo:
        params = []
        offset = 0
        for variable in function.params:
            offset = -(-offset // variable.align) * variable.align
            params.append((offset, variable.size))
            offset += variable.size
        required = function.directives.get("reqntid")
        limit = required or function.directives.get("maxntid")
        threads = 1
        for n in limit or (1024,):
            threads *= max(1, n)
        shape = None
        if required:
            x, y, z = (*required, 1, 1)[:3]
            shape = (x, y, z)
        measure = partial(self._sizes, function.name)
        return KernelInfo(function.name, params, offset, threads, shape, function.line, measure, _capability(self.target))

    def _sizes(self, name: str) -> tuple[int, int]:
        if name not in self._measured:
            unit = Unit(self._outline, name)
            self._measured[name] = (unit.shared_bytes, unit.kernel_local_bytes)
        return self._measured[name]

    @property
    def function_addresses(self) -> dict[str, int]:
        """Addresses of device functions, for tables of function pointers in module variables."""
        return function_addresses(self._outline)

    def bind(self, addresses: dict[str, int]) -> None:
        """Device addresses of module variables; to be given before the kernels that use them are compiled."""
        self._addresses.update(addresses)

    def compile(self, name: str) -> CompiledKernel:
        """Machine code of a kernel.

        Raises:
            PtxSyntaxError: the body is not PTX.
            EmulatorUnsupportedError: names kernel, line and instruction.
            KeyError: there is no such kernel.
        """
        with self._lock:
            if name not in self._compiled:
                if name not in self.kernels:
                    raise KeyError(name)
                self._compiled[name] = CompiledKernel(Unit(self._outline, name), self._addresses)
            return self._compiled[name]


def _capability(target: str) -> int | None:
    found = re.match(r"sm_(\d+)", target)
    return int(found[1]) if found else None


def _global(variable: Variable) -> GlobalInfo:
    return GlobalInfo(
        variable.name,
        variable.size,
        variable.align,
        variable.space,
        variable.initial,
        variable.relocations,
        variable.extern,
        variable.managed,
    )


def parse_module(text: bytes) -> PtxModule:
    """A module from PTX text; anything from the first NUL on is ignored.

    Raises:
        PtxSyntaxError: not PTX, with the line.
    """
    plain, _, _ = text.partition(b"\0")
    try:
        decoded = plain.decode("utf-8")
    except UnicodeDecodeError as error:
        raise PtxSyntaxError(1, "the text is not UTF-8") from error
    return PtxModule(parse_outline(decoded))
