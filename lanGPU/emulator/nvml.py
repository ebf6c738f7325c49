"""NVML of the emulated device: what it is, how full it is, and how busy the processor that it runs on.

An emulated device has no thermometer, no power meter, no fan of its own and no clock to set: such questions answer ERROR_NOT_SUPPORTED.
Every process has its own emulated memory, so memory and processes are those of this process. Needs neither cuInit nor a context.
"""

from __future__ import annotations

import os
import re
import struct
import time
import uuid
from collections.abc import Callable
from threading import Lock
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import psutil

from lanGPU import __version__
from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.attributes import pci_bus
from lanGPU.emulator.config import COMPUTE_CAPABILITY, DEVICE_NAME, DRIVER_VERSION
from lanGPU.emulator.driver.objects import Context
from lanGPU.nvml import results
from lanGPU.nvml.functions import FUNCTIONS, given_uuid

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

HANDLE: Final = 0x4C45_0001
"""nvmlDevice_t of device 0; the next ones follow."""
DRIVER_TEXT: Final = f"{__version__}-emulated"
_ATTRIBUTE: Final = ENUMS["CUdevice_attribute"]
_BUS_ID: Final = re.compile(r"(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?", re.IGNORECASE)
_ARCHITECTURE_TURING: Final = 6
"""nvmlDeviceArchitecture_t of compute capability 7.5."""
_BRAND_UNKNOWN: Final = 0
_BUS_PCI: Final = 1
_SAMPLE_S: Final = 1 / 6
"""The shortest sample period that NVML documents for utilisation."""
_NOT_IN_MIG: Final = 0xFFFF_FFFF
_CLOCK_MEMORY, _CLOCK_TYPES = 2, 4
"""nvmlClockType_t: graphics, SM, memory, video."""
_TOPOLOGY_SYSTEM: Final = 50

Result: TypeAlias = "int | str | bytes | list[bytes]"
Body: TypeAlias = Callable[..., tuple[Result, ...]]
"""Called with the library and the values of its inputs; returns what it writes, in order: numbers, bytes, texts, entries of an array."""
_B = TypeVar("_B", bound=Body)
BODIES: Final[dict[str, Body]] = {}


class NvmlError(Exception):
    """A call ends with this nvmlReturn_t."""

    def __init__(self, result: int) -> None:
        super().__init__(results.text(result))
        self.result = result


class Nvml:
    """The library's state. Thread-safe."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        self.users = 0
        self.lock = Lock()
        self._looked = time.monotonic(), *_processor_seconds()
        self._percent: int | None = None

    def device(self, ordinal: int) -> int:
        """A known device's place, or INVALID_ARGUMENT."""
        if not 0 <= ordinal < len(self.driver.devices):
            raise NvmlError(results.ERROR_INVALID_ARGUMENT)
        return ordinal

    def busy_percent(self) -> int:
        """Of the processor, since it was looked at before: _SAMPLE_S ago or longer, else the percentage would be noise. The first
        answer may have to wait for that."""
        with self.lock:
            while True:
                now, (before, busy_before, total_before) = time.monotonic(), self._looked
                if now - before >= _SAMPLE_S:
                    busy, total = _processor_seconds()
                    if total > total_before:
                        self._looked = now, busy, total
                        self._percent = max(0, min(100, round(100 * (busy - busy_before) / (total - total_before))))
                if self._percent is not None:
                    return self._percent
                time.sleep(_SAMPLE_S / 8)


def _processor_seconds() -> tuple[float, float]:
    """Busy and all seconds, of the cores that this process may use, since the machine started."""
    cores = psutil.cpu_times(percpu=True)
    mine = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(len(cores))
    some = [cores[number] for number in mine if number < len(cores)] or cores
    # Guests' time counts in user and nice already.
    total = sum(sum(core) - getattr(core, "guest", 0.0) - getattr(core, "guest_nice", 0.0) for core in some)
    return total - sum(core.idle + getattr(core, "iowait", 0.0) for core in some), total


def _body(*names: str) -> Callable[[_B], _B]:
    def register(function: _B) -> _B:
        for name in names:
            if name not in FUNCTIONS:
                raise ValueError(f"{name} has no row")
            BODIES[name] = function
        return function

    return register


# --- the library and its devices -----------------------------------------------------------------------------------------
@_body("nvmlInit", "nvmlInit_v2")
def init(n: Nvml) -> tuple[Result, ...]:
    """Counts."""
    with n.lock:
        n.users += 1
    return ()


@_body("nvmlInitWithFlags")
def init_with_flags(n: Nvml, flags: int) -> tuple[Result, ...]:
    """No flag changes anything here."""
    return init(n)


@_body("nvmlShutdown")
def shutdown(n: Nvml) -> tuple[Result, ...]:
    """Undoes one nvmlInit."""
    with n.lock:
        n.users -= 1
    return ()


@_body("nvmlSystemGetDriverVersion")
def driver_version(n: Nvml) -> tuple[Result, ...]:
    """Not a number of NVIDIA's drivers."""
    return (DRIVER_TEXT,)


@_body("nvmlSystemGetNVMLVersion")
def nvml_version(n: Nvml) -> tuple[Result, ...]:
    """As above; NVIDIA's begins with the CUDA version."""
    return (f"{DRIVER_VERSION // 1000}.{DRIVER_TEXT}",)


@_body("nvmlSystemGetCudaDriverVersion", "nvmlSystemGetCudaDriverVersion_v2")
def cuda_driver_version(n: Nvml) -> tuple[Result, ...]:
    """As cuDriverGetVersion."""
    return (DRIVER_VERSION,)


@_body("nvmlSystemGetProcessName")
def process_name(n: Nvml, pid: int) -> tuple[Result, ...]:
    """Of any process of this machine."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            command = file.read().split(b"\0")[0]
    except OSError:
        raise NvmlError(results.ERROR_NOT_FOUND) from None
    return (command.decode(errors="replace"),)


@_body("nvmlDeviceGetCount", "nvmlDeviceGetCount_v2")
def count(n: Nvml) -> tuple[Result, ...]:
    """All of them, whatever CUDA_VISIBLE_DEVICES says."""
    return (len(n.driver.devices),)


@_body("nvmlDeviceGetHandleByIndex", "nvmlDeviceGetHandleByIndex_v2")
def handle_by_index(n: Nvml, index: int) -> tuple[Result, ...]:
    """In CUDA's order."""
    return (HANDLE + n.device(index),)


@_body("nvmlDeviceGetHandleByUUID")
def handle_by_uuid(n: Nvml, text: str) -> tuple[Result, ...]:
    """GPU- and the UUID."""
    for device in n.driver.devices:
        if text.lower() == f"gpu-{uuid.UUID(bytes=device.uuid)}":
            return (HANDLE + device.ordinal,)
    raise NvmlError(results.ERROR_NOT_FOUND)


@_body("nvmlDeviceGetHandleByUUIDV")
def handle_by_given_uuid(n: Nvml, given: bytes) -> tuple[Result, ...]:
    """As text or as bytes."""
    text = given_uuid(given)
    if text is None:
        raise NvmlError(results.ERROR_INVALID_ARGUMENT)
    return given, *handle_by_uuid(n, text)


@_body("nvmlDeviceGetHandleByPciBusId", "nvmlDeviceGetHandleByPciBusId_v2")
def handle_by_pci(n: Nvml, text: str) -> tuple[Result, ...]:
    """DOMAIN:BUS:DEVICE.FUNCTION; domain and function may be missing."""
    match = _BUS_ID.fullmatch(text)
    if match is None:
        raise NvmlError(results.ERROR_INVALID_ARGUMENT)
    place = tuple(int(part or "0", 16) for part in match.groups()[:3])
    for device in n.driver.devices:
        if place == (0, pci_bus(device.ordinal), 0):
            return (HANDLE + device.ordinal,)
    raise NvmlError(results.ERROR_NOT_FOUND)


@_body("nvmlDeviceGetHandleBySerial")
def handle_by_serial(n: Nvml, text: str) -> tuple[Result, ...]:
    """No emulated device has a serial number."""
    raise NvmlError(results.ERROR_NOT_FOUND)


@_body("nvmlDeviceGetIndex", "nvmlDeviceGetMinorNumber")
def index(n: Nvml, device: int) -> tuple[Result, ...]:
    """Its place."""
    return (device,)


@_body("nvmlDeviceGetName")
def name(n: Nvml, device: int) -> tuple[Result, ...]:
    """As cuDeviceGetName."""
    return (DEVICE_NAME,)


@_body("nvmlDeviceGetUUID")
def device_uuid(n: Nvml, device: int) -> tuple[Result, ...]:
    """As cuDeviceGetUuid."""
    return (f"GPU-{uuid.UUID(bytes=n.driver.devices[device].uuid)}",)


# --- what it is ------------------------------------------------------------------------------------------------------------
def _attribute(n: Nvml, device: int, attribute: str) -> int:
    return n.driver.devices[device].attributes[_ATTRIBUTE["CU_DEVICE_ATTRIBUTE_" + attribute]]


@_body("nvmlDeviceGetCudaComputeCapability")
def compute_capability(n: Nvml, device: int) -> tuple[Result, ...]:
    """As cuDeviceGetAttribute."""
    return COMPUTE_CAPABILITY


@_body("nvmlDeviceGetComputeMode")
def compute_mode(n: Nvml, device: int) -> tuple[Result, ...]:
    """As cuDeviceGetAttribute."""
    return (_attribute(n, device, "COMPUTE_MODE"),)


@_body("nvmlDeviceGetArchitecture")
def architecture(n: Nvml, device: int) -> tuple[Result, ...]:
    """That of its compute capability."""
    return (_ARCHITECTURE_TURING,)


@_body("nvmlDeviceGetBrand")
def brand(n: Nvml, device: int) -> tuple[Result, ...]:
    """NVML_BRAND_UNKNOWN."""
    return (_BRAND_UNKNOWN,)


@_body("nvmlDeviceGetBusType")
def bus_type(n: Nvml, device: int) -> tuple[Result, ...]:
    """It has a PCI address, and no more of a bus than that."""
    return (_BUS_PCI,)


@_body("nvmlDeviceGetMemoryBusWidth")
def memory_bus_width(n: Nvml, device: int) -> tuple[Result, ...]:
    """As cuDeviceGetAttribute."""
    return (_attribute(n, device, "GLOBAL_MEMORY_BUS_WIDTH"),)


@_body("nvmlDeviceGetMultiGpuBoard", "nvmlDeviceGetDisplayMode", "nvmlDeviceGetDisplayActive", "nvmlDeviceGetPersistenceMode")
def no(n: Nvml, device: int) -> tuple[Result, ...]:
    """Nothing of that kind."""
    return (0,)


@_body("nvmlDeviceGetMaxClockInfo", "nvmlDeviceGetClockInfo")
def clock_info(n: Nvml, device: int, clock: int) -> tuple[Result, ...]:
    """MHz, as cuDeviceGetAttribute says in kHz: the device's nominal clocks."""
    if clock >= _CLOCK_TYPES:
        raise NvmlError(results.ERROR_INVALID_ARGUMENT)
    return (_attribute(n, device, "MEMORY_CLOCK_RATE" if clock == _CLOCK_MEMORY else "CLOCK_RATE") // 1000,)


def _pci(device: int) -> tuple[bytes, tuple[int, int, int, int, int]]:
    """Bus id as text, then domain, bus, device, device id and subsystem id; ids of 0 are nobody's."""
    return b"0000:%02X:00.0" % pci_bus(device), (0, pci_bus(device), 0, 0, 0)


@_body("nvmlDeviceGetPciInfo")
def pci_info(n: Nvml, device: int) -> tuple[Result, ...]:
    """busId[16], domain, bus, device, pciDeviceId."""
    text, numbers = _pci(device)
    return (struct.pack("<16s4I", text, *numbers[:4]),)


@_body("nvmlDeviceGetPciInfo_v2")
def pci_info_v2(n: Nvml, device: int) -> tuple[Result, ...]:
    """busId[16], domain, bus, device, pciDeviceId, pciSubSystemId, reserved[4]."""
    text, numbers = _pci(device)
    return (struct.pack("<16s5I16x", text, *numbers),)


@_body("nvmlDeviceGetPciInfo_v3")
def pci_info_v3(n: Nvml, device: int) -> tuple[Result, ...]:
    """busIdLegacy[16], domain, bus, device, pciDeviceId, pciSubSystemId, busId[32]."""
    text, numbers = _pci(device)
    return (struct.pack("<16s5I32s", text, *numbers, b"0000" + text),)


@_body("nvmlDeviceGetPciInfoExt")
def pci_info_ext(n: Nvml, device: int, given: bytes) -> tuple[Result, ...]:
    """version, domain, bus, device, pciDeviceId, pciSubSystemId, baseClass (3: display controller), subClass (2: 3D), busId[32]."""
    text, numbers = _pci(device)
    return (given[:4] + struct.pack("<7I32s", *numbers, 3, 2, b"0000" + text),)


@_body("nvmlDeviceGetTopologyCommonAncestor")
def common_ancestor(n: Nvml, device: int, other: int) -> tuple[Result, ...]:
    """All are on the one processor."""
    if device == other:
        raise NvmlError(results.ERROR_INVALID_ARGUMENT)
    return (_TOPOLOGY_SYSTEM,)


@_body("nvmlDeviceOnSameBoard")
def on_same_board(n: Nvml, device: int, other: int) -> tuple[Result, ...]:
    """A device with itself."""
    return (int(device == other),)


# --- what changes ------------------------------------------------------------------------------------------------------------
def _memory(n: Nvml, device: int) -> tuple[int, int, int]:
    free, total = n.driver.memory.info(device)
    return total, free, total - free


@_body("nvmlDeviceGetMemoryInfo")
def memory_info(n: Nvml, device: int) -> tuple[Result, ...]:
    """total, free, used: of this process's emulated memory."""
    return (struct.pack("<3Q", *_memory(n, device)),)


@_body("nvmlDeviceGetMemoryInfo_v2")
def memory_info_v2(n: Nvml, device: int, given: bytes) -> tuple[Result, ...]:
    """version, total, reserved, free, used; nothing is reserved."""
    total, free, used = _memory(n, device)
    return (given[:4] + struct.pack("<4x4Q", total, 0, free, used),)


@_body("nvmlDeviceGetUtilizationRates")
def utilization(n: Nvml, device: int) -> tuple[Result, ...]:
    """Per cent, of the processor, which is the device; for its memory there is no other measure."""
    busy = n.busy_percent()
    return (struct.pack("<2I", busy, busy),)


def _has_context(n: Nvml, device: int) -> bool:
    return any(c.alive and c.device.ordinal == device for _, c in n.driver.handles.all(Context))


def _processes(n: Nvml, device: int, entry: Callable[[int, int], bytes]) -> tuple[Result, ...]:
    return ([entry(os.getpid(), _memory(n, device)[2])] if _has_context(n, device) else [],)


@_body("nvmlDeviceGetComputeRunningProcesses")
def processes(n: Nvml, device: int) -> tuple[Result, ...]:
    """pid, usedGpuMemory: this process once it has a context; no other one uses this device."""
    return _processes(n, device, lambda pid, used: struct.pack("<I4xQ", pid, used))


@_body("nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses_v3")
def processes_v2(n: Nvml, device: int) -> tuple[Result, ...]:
    """pid, usedGpuMemory, gpuInstanceId, computeInstanceId."""
    return _processes(n, device, lambda pid, used: struct.pack("<I4xQII", pid, used, _NOT_IN_MIG, _NOT_IN_MIG))


@_body(
    "nvmlDeviceGetGraphicsRunningProcesses",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
)
def no_processes(n: Nvml, device: int) -> tuple[Result, ...]:
    """Neither graphics nor MPS exist here."""
    return ([],)
