"""Cubins in trace mode: what their headers say is enough to load them, to look kernels up and to record launches, not to run anything."""

import logging
import struct
from typing import Final

from lanGPU.driverapi.kernel_params import Section, cubin_kernel_params, elf_sections, section_contents
from lanGPU.emulator.ptx import Fault, GlobalInfo, KernelInfo
from lanGPU.emulator.ptx.allocations import AllocationMap
from lanGPU.emulator.ptx.system import Services
from lanGPU.errors import ImageError

logger = logging.getLogger(__name__)

_SYMBOL: Final = struct.Struct("<IBBHQQ")
_SYMTAB: Final = 2
_OBJECT: Final = 1
_NOBITS: Final = 8
_INFO: Final = ".nv.info."
_SHARED: Final = ".nv.shared."
_SIZED: Final = 4
_MAX_THREADS, _REQNTID = 0x05, 0x10
"""Attributes of .nv.info: three u32 each; names and numbers as `cuobjdump -elf` prints them."""
_DEFAULT_MAX_THREADS: Final = 1024


class RecordedKernel:
    """A kernel of a cubin. It runs nothing, and says so the first time."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._told = False
        self.uses_system = self.uses_heap = False

    def launch(
        self,
        grid: tuple[int, int, int],
        block: tuple[int, int, int],
        dynamic_shared_bytes: int,
        params: bytes,
        allocations: AllocationMap,
        services: Services | None = None,
        *,
        cooperative: bool = False,
    ) -> Fault | None:
        """Nothing happens on the device."""
        if not self._told:
            self._told = True
            logger.warning("trace mode: launches of %s are recorded, NOT EXECUTED; what it should compute is not there", self.name)
        return None


class CubinModule:
    """Has what `PtxModule` has, for a cubin."""

    def __init__(self, image: bytes) -> None:
        """Raises ImageError: the cubin is damaged."""
        sections = list(elf_sections(image))
        sizes = {name: section.size for name, section in sections}
        limits = {
            name.removeprefix(_INFO): _threads(section_contents(image, section)) for name, section in sections if name.startswith(_INFO)
        }
        self.kernels: dict[str, KernelInfo] = {}
        for name, layout in cubin_kernel_params(image).items():
            threads, shape = limits.get(name, (_DEFAULT_MAX_THREADS, None))
            shared = sizes.get(_SHARED + name, 0)
            size = max((offset + length for offset, length in layout), default=0)
            self.kernels[name] = KernelInfo(name, list(layout), size, threads, shape, 0, lambda shared=shared: (shared, 0))  # type: ignore[misc]
        self.globals = {info.name: info for info in _variables(image, sections)}
        self.function_addresses: dict[str, int] = {}
        self._recorded: dict[str, RecordedKernel] = {}

    def bind(self, addresses: dict[str, int]) -> None:
        """Nothing refers to them."""

    def compile(self, name: str) -> RecordedKernel:
        """A kernel that only records."""
        return self._recorded.setdefault(name, RecordedKernel(name))


def _threads(info: bytes) -> tuple[int, tuple[int, int, int] | None]:
    """(threads a block at most, shape that is required or None) from a kernel's .nv.info."""
    threads: int = _DEFAULT_MAX_THREADS
    shape: tuple[int, int, int] | None = None
    pos = 0
    while pos + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, pos)
        pos += 4
        if form != _SIZED:
            continue
        if attribute in (_MAX_THREADS, _REQNTID) and size == 12 and pos + size <= len(info):
            x, y, z = struct.unpack_from("<3I", info, pos)
            threads = max(1, x) * max(1, y) * max(1, z)
            shape = (x, y, z) if attribute == _REQNTID else shape
        pos += size
    return threads, shape


def _variables(image: bytes, sections: list[tuple[str, Section]]) -> list[GlobalInfo]:
    """Module variables: data objects in .nv.global, .nv.global.init and .nv.constant3."""
    by_name = dict(sections)
    table = next((s for _, s in sections if s.type == _SYMTAB), None)
    if table is None or ".strtab" not in by_name:
        return []
    names = section_contents(image, by_name[".strtab"])
    data = section_contents(image, table)
    out = []
    for at in range(0, len(data) - _SYMBOL.size + 1, _SYMBOL.size):
        name_at, info, _, index, value, size = _SYMBOL.unpack_from(data, at)
        if info & 0xF != _OBJECT or not 0 < index < len(sections):
            continue
        where, section = sections[index]
        if not where.startswith((".nv.global", ".nv.constant3")):
            continue
        end = names.find(b"\0", name_at)
        if end < 0 or size > 1 << 30:
            raise ImageError("cubin: a variable's symbol is damaged")
        initial = b"" if section.type == _NOBITS else section_contents(image, section)[value : value + size]
        space = "const" if "constant" in where else "global"
        out.append(GlobalInfo(names[name_at:end].decode("ascii", "replace"), size, 256, space, initial))
    return out
