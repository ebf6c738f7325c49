"""JIT options and their log buffers."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.driver.cabi import get_u32, get_u64, need, put_bytes, put_f32, put_u32, put_u64
from lanGPU.emulator.ptx import PtxSyntaxError
from lanGPU.emulator.results import INVALID_PTX, INVALID_VALUE, NOT_SUPPORTED, CuError
from lanGPU.errors import EmulatorUnsupportedError

if TYPE_CHECKING:
    from types import TracebackType

logger = logging.getLogger(__name__)

_OPTION: Final = {name.removeprefix("CU_JIT_"): value for name, value in ENUMS["CUjit_option"].items()}
_NAMES: Final = {value: name for name, value in _OPTION.items()}
_MAX_OPTIONS: Final = 256
_UNSUPPORTED: Final = frozenset(
    _OPTION[name]
    for name in (
        "GLOBAL_SYMBOL_NAMES",
        "GLOBAL_SYMBOL_ADDRESSES",
        "GLOBAL_SYMBOL_COUNT",
    )
)
"""They bind a module's names to addresses of the program's."""
_FULL_THREADS: Final = 1024


class JitOptions:
    """The option arrays of one call, as a context: it writes logs when the block ends, and turns its errors into CuError."""

    def __init__(self, count: int, options: int, values: int) -> None:
        if count > _MAX_OPTIONS:
            raise CuError(INVALID_VALUE)
        self._slots: dict[int, int] = {}
        self.values: dict[int, int] = {}
        for i in range(count):
            option, slot = get_u32(need(options) + 4 * i), need(values) + 8 * i
            if option not in _NAMES or _NAMES[option] == "NUM_OPTIONS":
                raise CuError(INVALID_VALUE, f"JIT option {option} is not known")
            self._slots[option] = slot
            self.values[option] = get_u64(slot)
        self.info: list[str] = []
        self.errors: list[str] = []
        self._start = time.perf_counter()

    def __enter__(self) -> JitOptions:
        unsupported = sorted(_UNSUPPORTED & self.values.keys())
        if unsupported:
            raise CuError(NOT_SUPPORTED, f"JIT option CU_JIT_{_NAMES[unsupported[0]]} is not supported by the emulated driver")
        if self.values.get(_OPTION["LTO"], 0) & 0xFFFF_FFFF:
            raise CuError(NOT_SUPPORTED, "link-time optimisation is not supported by the emulated driver")
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        failure: CuError | None = None
        if isinstance(exc, PtxSyntaxError):
            failure = CuError(INVALID_PTX, f"ptx: {exc}")
        elif isinstance(exc, EmulatorUnsupportedError):
            failure = CuError(NOT_SUPPORTED, f"lanGPU emulator: not supported: {exc}")
        elif isinstance(exc, CuError):
            failure = exc
        if failure is not None:
            if failure.detail:
                self.errors.append(failure.detail)
                logger.warning("%s", failure.detail)
            failure.detail = ""  # told already
        self.finish()
        if failure is not None and failure is not exc:
            raise failure from exc

    def finish(self) -> None:
        """Writes what the driver writes through the options."""
        self._log("INFO_LOG_BUFFER", self.info)
        self._log("ERROR_LOG_BUFFER", self.errors)
        slot = self._slots.get(_OPTION["WALL_TIME"])
        if slot is not None:
            put_f32(slot, (time.perf_counter() - self._start) * 1000)
        slot = self._slots.get(_OPTION["THREADS_PER_BLOCK"])
        if slot is not None:
            put_u32(slot, _FULL_THREADS)

    def _log(self, option: str, lines: list[str]) -> None:
        """Fills a log buffer up to its size option's capacity, which then holds the bytes written without the NUL."""
        size_slot = self._slots.get(_OPTION[option + "_SIZE_BYTES"])
        capacity = self.values.get(_OPTION[option + "_SIZE_BYTES"], 0) & 0xFFFF_FFFF
        buffer = self.values.get(_OPTION[option], 0)
        written = b""
        if buffer and capacity:
            written = "\n".join(lines).encode(errors="replace")[: capacity - 1]
            put_bytes(buffer, written + b"\0")
        if size_slot is not None:
            put_u64(size_slot, len(written))
