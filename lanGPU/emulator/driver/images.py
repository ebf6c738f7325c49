"""Module images: finding the PTX in what the program hands over, and loading it."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.images import ENTRY_ELF, ENTRY_PTX, ImageKind, image_kind, locate, parse_fatbin
from lanGPU.driverapi.kernel_params import ELF_MAGIC
from lanGPU.driverapi.managed import ATTACH_GLOBAL
from lanGPU.emulator.config import COMPUTE_CAPABILITY, tracing
from lanGPU.emulator.cubin import CubinModule
from lanGPU.emulator.driver.cabi import need
from lanGPU.emulator.memory import Kind
from lanGPU.emulator.ptx import PtxModule, parse_module
from lanGPU.emulator.results import INVALID_IMAGE, NO_BINARY_FOR_GPU, CuError
from lanGPU.errors import EmulatorUnsupportedError, ImageError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.objects import Context
    from lanGPU.emulator.driver.state import Driver
    from lanGPU.emulator.memory import Allocation

_PTX_ONLY: Final = "the emulated device runs PTX only (with --trace it records launches of machine code instead of running them)"
_ARCH: Final = COMPUTE_CAPABILITY[0] * 10 + COMPUTE_CAPABILITY[1]


class LoadedImage:
    """One PTX module (in trace mode also a cubin); in a context its globals have memory."""

    def __init__(self, text: bytes) -> None:
        """Raises CuError INVALID_IMAGE: a damaged cubin."""
        self.text = text
        self.ptx: PtxModule | CubinModule
        if text.startswith(ELF_MAGIC):
            try:
                self.ptx = CubinModule(text)
            except ImageError as exc:
                raise CuError(INVALID_IMAGE, str(exc)) from exc
        else:
            self.ptx = parse_module(text)
        self.globals: dict[str, Allocation] = {}
        self.shared: dict[str, Allocation] = {}
        """Variables that a library has made for all contexts."""

    def load(self, d: Driver, context: Context) -> None:
        """Gives the globals memory, with their initial bytes, and binds the code to it."""
        ordinal = context.device.ordinal
        try:
            for name, info in self.ptx.globals.items():
                size = max(info.size, 1)
                if name in self.shared:
                    self.globals[name] = self.shared[name]
                elif info.managed:
                    self.globals[name] = d.memory.allocate_host(size, ordinal, ATTACH_GLOBAL, context, Kind.MANAGED)
                    self.globals[name].variable = True
                else:
                    self.globals[name] = d.memory.allocate(size, ordinal, context=context)
            addresses = {name: allocation.address for name, allocation in self.globals.items()}
            known = {**self.ptx.function_addresses, **addresses}  # tables of function pointers, tables of pointers
            for name, info in self.ptx.globals.items():
                if name in self.shared:
                    continue
                self._initialise(addresses[name], info.size, info.initial, info.relocations, known)
            self.ptx.bind(addresses)
        except BaseException:
            self.unload(d)
            raise

    def make_managed(self, d: Driver) -> dict[str, Allocation]:
        """Memory for the image's `__managed__` variables, which belong to no context; their initial bytes are there."""
        found = {name: info for name, info in self.ptx.globals.items() if info.managed}
        made = {name: d.memory.allocate_host(max(info.size, 1), 0, ATTACH_GLOBAL, None, Kind.MANAGED) for name, info in found.items()}
        addresses = {name: allocation.address for name, allocation in made.items()}
        for name, info in found.items():
            made[name].variable = True
            self._initialise(addresses[name], info.size, info.initial, info.relocations, addresses)
        return made

    @staticmethod
    def _initialise(
        address: int, size: int, initial: bytes, relocations: list[tuple[int, int, str, int]], addresses: dict[str, int]
    ) -> None:
        ctypes.memset(address, 0, size)
        if initial:
            ctypes.memmove(address, initial, min(len(initial), size))
        for offset, width, name, addend in relocations:
            if name not in addresses:
                raise EmulatorUnsupportedError(
                    f"an initialiser with the address of {name}, which is neither a variable nor a device function"
                )
            value = (addresses[name] + addend) & (1 << 8 * width) - 1
            ctypes.memmove(address + offset, value.to_bytes(width, "little"), width)

    def unload(self, d: Driver) -> None:
        """Gives the globals' memory back; nothing may run any more."""
        for name, allocation in self.globals.items():
            if name not in self.shared and d.memory.allocations.get(allocation.address) is allocation:
                d.memory.forget(allocation)
                d.memory.reclaim(allocation)
        self.globals.clear()


def read_image(pointer: int) -> bytes:
    """The PTX text behind an image pointer: text itself, a fatbin or its wrapper.

    Raises:
        CuError: INVALID_IMAGE, or NO_BINARY_FOR_GPU for an image without PTX.
    """
    need(pointer)
    steps = locate(pointer)
    try:
        request = next(steps)
        while True:
            request = steps.send(ctypes.string_at(*request))
    except StopIteration as stop:
        found = stop.value
    except ImageError as exc:
        raise CuError(INVALID_IMAGE, str(exc)) from exc
    return ptx_of(ctypes.string_at(found.address, found.size))


def ptx_of(image: bytes) -> bytes:
    """The PTX text in a whole image; errors as `read_image`."""
    try:
        kind = image_kind(image)
        if kind is ImageKind.PTX:
            return image.partition(b"\0")[0]
        if kind is ImageKind.CUBIN:
            if not tracing():
                raise CuError(NO_BINARY_FOR_GPU, f"the image is a cubin, machine code of an NVIDIA GPU; {_PTX_ONLY}")
            return image
        found = parse_fatbin(image)
        entries = [entry for entry in found if entry.kind == ENTRY_PTX]
        if not entries and tracing():
            # As the driver chooses: machine code of the same major version and the newest minor one that is not newer.
            code = [e for e in found if e.kind == ENTRY_ELF and e.arch // 10 == _ARCH // 10 and e.arch <= _ARCH]
            if code:
                return max(code, key=lambda e: e.arch).payload()
        if not entries:
            raise CuError(NO_BINARY_FOR_GPU, f"the fatbin holds no PTX, only machine code of NVIDIA GPUs; {_PTX_ONLY}")
        # The newest that the device's capability covers, else the oldest there is: the emulator decides by instruction.
        fitting = [entry for entry in entries if entry.arch <= _ARCH]
        best = max(fitting, key=lambda e: e.arch) if fitting else min(entries, key=lambda e: e.arch)
        return best.payload().partition(b"\0")[0]
    except ImageError as exc:
        raise CuError(INVALID_IMAGE, str(exc)) from exc
