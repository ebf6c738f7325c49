"""What the emulated machine looks like: devices and their memory, from the environment."""

import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from lanGPU.driverapi.signatures import HEADERS
from lanGPU.errors import ConfigError

DEVICES_VARIABLE: Final = "LANGPU_EMULATE_DEVICES"
MEMORY_VARIABLE: Final = "LANGPU_EMULATE_MEMORY"
TRACE_VARIABLE: Final = "LANGPU_EMULATE_TRACE"
"""The folder that traces are written to; trace mode is on where it is set."""
MAX_DEVICES: Final = 16
MIN_MEMORY_BYTES: Final = 16 * 1024 * 1024
DEVICE_NAME: Final = "lanGPU emulated device"
COMPUTE_CAPABILITY: Final = (7, 5)
"""PTX for 7.5 has no tensor-memory or cluster instructions, and every current compiler still targets it."""
DRIVER_VERSION: Final = max(HEADERS)
"""What cuDriverGetVersion reports: the newest headers that the API table knows. Programs of older versions accept it."""
_UUID_SPACE: Final = uuid.UUID("8c1d7f0e-6a53-4b0e-9d57-2f6f0a5c9e41")


@dataclass(frozen=True, slots=True)
class EmulatorConfig:
    """The emulated machine. `memory_bytes` is the total memory of each device."""

    devices: int
    memory_bytes: int
    multiprocessors: int

    @staticmethod
    def from_environment(environ: Mapping[str, str] = os.environ) -> "EmulatorConfig":
        """Reads LANGPU_EMULATE_DEVICES and LANGPU_EMULATE_MEMORY (bytes); by default one device with half of the host's memory.

        Raises:
            ConfigError: a value is not a number in range.
        """
        devices = _number(environ, DEVICES_VARIABLE, 1, 1, MAX_DEVICES)
        default = _host_memory_bytes() // 2 // devices
        memory = _number(environ, MEMORY_VARIABLE, max(default, MIN_MEMORY_BYTES), MIN_MEMORY_BYTES, 1 << 46)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return EmulatorConfig(devices, memory, cores)


def trace_folder(environ: Mapping[str, str] = os.environ) -> Path | None:
    """Where traces go; None: trace mode is off."""
    text = environ.get(TRACE_VARIABLE, "").strip()
    return Path(text) if text else None


def tracing() -> bool:
    """Whether this process's driver is in trace mode."""
    return trace_folder() is not None


def _number(environ: Mapping[str, str], name: str, default: int, low: int, high: int) -> int:
    text = environ.get(name, "").strip()
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = -1
    if not low <= value <= high:
        raise ConfigError(f"{name}={text}: not a whole number from {low} to {high}")
    return value


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def device_uuid(ordinal: int) -> bytes:
    """The device's UUID: the same in every process of this machine, different between machines."""
    return uuid.uuid5(_UUID_SPACE, f"{_machine_id()}/{ordinal}").bytes


def _machine_id() -> str:
    for path in ("/etc/machine-id", "/var/lib/dbus/machine-id"):
        try:
            with open(path, encoding="ascii", errors="replace") as file:
                text = file.read().strip()
        except OSError:
            continue
        if text:
            return text
    return f"{uuid.getnode():012x}"
