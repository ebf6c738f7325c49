"""The emulated driver's start inside a program that `langpu emulate` runs."""

import ctypes.util
import logging
import os
import sys
from typing import Final

from lanGPU.errors import LanGPUError

LOG_LEVEL_VARIABLE: Final = "LANGPU_LOG_LEVEL"
_NAMES: Final = {
    "cuda": "libcuda.so.1",
    "libcuda.so": "libcuda.so.1",
    "libcuda.so.1": "libcuda.so.1",
    "nvidia-ml": "libnvidia-ml.so.1",
    "libnvidia-ml.so.1": "libnvidia-ml.so.1",
}


def start() -> None:
    """Loads the driver; where that fails the program does not start, with the reason on stderr."""
    from lanGPU.emulator import library

    _log_to_stderr()
    try:
        library.load()
    except LanGPUError as exc:
        sys.stderr.write(f"langpu: {exc}\n" + (f"hint: {exc.hint}\n" if exc.hint else ""))
        raise SystemExit(exc.exit_code) from None
    _help_find_library()


def _log_to_stderr() -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("langpu: %(message)s"))
    logger = logging.getLogger("lanGPU")
    logger.addHandler(handler)
    level = os.environ.get(LOG_LEVEL_VARIABLE, "WARNING").upper()
    logger.setLevel(level if level in logging.getLevelNamesMapping() else "WARNING")
    logger.propagate = False


def _help_find_library() -> None:
    """Lets ctypes.util.find_library("cuda") answer even where neither ldconfig nor a compiler can: the libraries are loaded already."""
    original = ctypes.util.find_library

    def find_library(name: str) -> str | None:
        return original(name) or _NAMES.get(name)

    ctypes.util.find_library = find_library
