"""NVML's answered functions as data: parameters by kind, sizes of what they point to, and who answers.

Client, server and emulated NVML all work from these rows. Source: NVIDIA's NVML API reference; struct sizes as in
nvml.h for 64 bits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final, TypeAlias
from uuid import UUID


class Kind(Enum):
    """What a parameter is, and which value stands for it in a question."""

    DEVICE = auto()
    """nvmlDevice_t; int: the served device's place."""
    U32 = auto()
    """An unsigned or enum by value; int."""
    LENGTH = auto()
    """Bytes of the TEXT before it; int."""
    STRING = auto()
    """``const char *``; never sent."""
    TEXT = auto()
    """``char *`` to fill, NUL-terminated; its room is the LENGTH behind it, or `size`. None."""
    OUT = auto()
    """Pointer to `size` bytes to fill. None."""
    STRUCT = auto()
    """Pointer to a struct that begins with its version: low 24 bits its size, which is one of `sizes`; read and filled. bytes."""
    COUNT = auto()
    """``unsigned int *``: places on entry, entries on return; int."""
    ARRAY = auto()
    """Pointer to COUNT places of `size` bytes to fill, or NULL where there are none. bool: not NULL."""
    PROCESSES = auto()
    """As ARRAY; every entry begins with a process id."""
    FIELDS = auto()
    """Pointer to as many structs of `size` bytes as the U32 before it says; read and filled. bytes."""


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter; `sizes`: bytes (STRUCT: of every accepted version; others: one)."""

    name: str
    kind: Kind
    sizes: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """The only size; 0 for kinds without."""
        return self.sizes[0] if self.sizes else 0


@dataclass(frozen=True, slots=True)
class Function:
    """A function that is answered. `local`: by the client alone, from what it learned when it connected."""

    params: tuple[Param, ...]
    local: bool = False

    @property
    def about_device(self) -> bool:
        """It takes a device."""
        return any(param.kind is Kind.DEVICE for param in self.params)


Value: TypeAlias = int | bool | bytes | None
MAX_TEXT_BYTES: Final = 4096
"""Longest text asked of a server; NVML's own longest buffer has 256."""
MAX_ENTRIES: Final = 4096
"""Most places of an array that a server fills."""
PROCESS_V1_BYTES, PROCESS_V2_BYTES = 16, 24

_DEVICE: Final = Param("device", Kind.DEVICE)


def _out(name: str, size: int = 4) -> Param:
    return Param(name, Kind.OUT, (size,))


def _u32(name: str) -> Param:
    return Param(name, Kind.U32)


def _text(name: str) -> tuple[Param, ...]:
    return Param(name, Kind.TEXT), Param("length", Kind.LENGTH)


def _ask(*params: Param) -> Function:
    return Function((_DEVICE, *params))


def _local(*params: Param) -> Function:
    return Function(params, local=True)


def _processes(size: int) -> Function:
    return _ask(Param("infoCount", Kind.COUNT), Param("infos", Kind.PROCESSES, (size,)))


def _each(names: str, *params: Param) -> dict[str, Function]:
    """The same question about different things: nvmlDeviceGet + each name."""
    return {f"nvmlDeviceGet{name}": _ask(*params) for name in names.split()}


FUNCTIONS: Final[dict[str, Function]] = {
    # The library and the devices that it knows.
    "nvmlInit": _local(),
    "nvmlInit_v2": _local(),
    "nvmlInitWithFlags": _local(_u32("flags")),
    "nvmlShutdown": _local(),
    "nvmlErrorString": _local(_u32("result")),
    "nvmlSystemGetCudaDriverVersion": _local(_out("cudaDriverVersion")),
    "nvmlSystemGetCudaDriverVersion_v2": _local(_out("cudaDriverVersion")),
    "nvmlSystemGetDriverVersion": Function(_text("version")),
    "nvmlSystemGetNVMLVersion": Function(_text("version")),
    "nvmlSystemGetProcessName": _local(_u32("pid"), *_text("name")),
    "nvmlDeviceGetCount": _local(_out("deviceCount")),
    "nvmlDeviceGetCount_v2": _local(_out("deviceCount")),
    "nvmlDeviceGetHandleByIndex": _local(_u32("index"), _out("device", 8)),
    "nvmlDeviceGetHandleByIndex_v2": _local(_u32("index"), _out("device", 8)),
    "nvmlDeviceGetHandleByUUID": _local(Param("uuid", Kind.STRING), _out("device", 8)),
    "nvmlDeviceGetHandleByUUIDV": _local(Param("uuid", Kind.STRUCT, (52,)), _out("device", 8)),
    "nvmlDeviceGetHandleByPciBusId": _local(Param("pciBusId", Kind.STRING), _out("device", 8)),
    "nvmlDeviceGetHandleByPciBusId_v2": _local(Param("pciBusId", Kind.STRING), _out("device", 8)),
    "nvmlDeviceGetHandleBySerial": _local(Param("serial", Kind.STRING), _out("device", 8)),
    "nvmlDeviceGetIndex": _local(_DEVICE, _out("index")),
    "nvmlDeviceGetName": _local(_DEVICE, *_text("name")),
    "nvmlDeviceGetUUID": _local(_DEVICE, *_text("uuid")),
    "nvmlDeviceGetCudaComputeCapability": _local(_DEVICE, _out("major"), _out("minor")),
    "nvmlDeviceGetComputeMode": _local(_DEVICE, _out("mode")),
    # Memory and processes.
    "nvmlDeviceGetMemoryInfo": _ask(_out("memory", 24)),
    "nvmlDeviceGetMemoryInfo_v2": _ask(Param("memory", Kind.STRUCT, (40,))),
    "nvmlDeviceGetBAR1MemoryInfo": _ask(_out("bar1Memory", 24)),
    "nvmlDeviceGetComputeRunningProcesses": _processes(PROCESS_V1_BYTES),
    "nvmlDeviceGetComputeRunningProcesses_v2": _processes(PROCESS_V2_BYTES),
    "nvmlDeviceGetComputeRunningProcesses_v3": _processes(PROCESS_V2_BYTES),
    "nvmlDeviceGetGraphicsRunningProcesses": _processes(PROCESS_V1_BYTES),
    "nvmlDeviceGetGraphicsRunningProcesses_v2": _processes(PROCESS_V2_BYTES),
    "nvmlDeviceGetGraphicsRunningProcesses_v3": _processes(PROCESS_V2_BYTES),
    "nvmlDeviceGetMPSComputeRunningProcesses_v2": _processes(PROCESS_V2_BYTES),
    "nvmlDeviceGetMPSComputeRunningProcesses_v3": _processes(PROCESS_V2_BYTES),
    # What changes while the device works.
    "nvmlDeviceGetUtilizationRates": _ask(_out("utilization", 8)),
    **_each("EncoderUtilization DecoderUtilization JpgUtilization OfaUtilization", _out("utilization"), _out("samplingPeriodUs")),
    "nvmlDeviceGetTemperature": _ask(_u32("sensorType"), _out("temp")),
    "nvmlDeviceGetTemperatureV": _ask(Param("temperature", Kind.STRUCT, (12,))),
    "nvmlDeviceGetTemperatureThreshold": _ask(_u32("thresholdType"), _out("temp")),
    "nvmlDeviceGetMarginTemperature": _ask(Param("marginTempInfo", Kind.STRUCT, (8,))),
    **_each("PowerUsage", _out("power")),
    **_each("PowerManagementLimit PowerManagementDefaultLimit EnforcedPowerLimit", _out("limit")),
    "nvmlDeviceGetPowerManagementLimitConstraints": _ask(_out("minLimit"), _out("maxLimit")),
    "nvmlDeviceGetTotalEnergyConsumption": _ask(_out("energy", 8)),
    **_each("ClockInfo MaxClockInfo ApplicationsClock DefaultApplicationsClock MaxCustomerBoostClock", _u32("clockType"), _out("clockMHz")),
    "nvmlDeviceGetClock": _ask(_u32("clockType"), _u32("clockId"), _out("clockMHz")),
    "nvmlDeviceGetSupportedMemoryClocks": _ask(Param("count", Kind.COUNT), Param("clocksMHz", Kind.ARRAY, (4,))),
    "nvmlDeviceGetSupportedGraphicsClocks": _ask(_u32("memoryClockMHz"), Param("count", Kind.COUNT), Param("clocksMHz", Kind.ARRAY, (4,))),
    **_each(
        "CurrentClocksEventReasons CurrentClocksThrottleReasons SupportedClocksEventReasons SupportedClocksThrottleReasons",
        _out("reasons", 8),
    ),
    "nvmlDeviceGetViolationStatus": _ask(_u32("perfPolicyType"), _out("violTime", 16)),
    "nvmlDeviceGetFanSpeed": _ask(_out("speed")),
    "nvmlDeviceGetFanSpeed_v2": _ask(_u32("fan"), _out("speed")),
    "nvmlDeviceGetTargetFanSpeed": _ask(_u32("fan"), _out("targetSpeed")),
    "nvmlDeviceGetMinMaxFanSpeed": _ask(_out("minSpeed"), _out("maxSpeed")),
    "nvmlDeviceGetPcieThroughput": _ask(_u32("counter"), _out("value")),
    "nvmlDeviceGetFieldValues": _ask(_u32("valuesCount"), Param("values", Kind.FIELDS, (40,))),
    # Modes, states and plain facts of one number each.
    **_each("PersistenceMode DisplayMode DisplayActive AccountingMode PowerManagementMode DefaultEccMode", _out("mode")),
    **_each("EccMode GpuOperationMode GspFirmwareMode AutoBoostedClocksEnabled", _out("current"), _out("other")),
    **_each("PerformanceState PowerState VirtualizationMode RetiredPagesPendingStatus AdaptiveClockInfoStatus", _out("state")),
    **_each(
        "Architecture Brand MemoryBusWidth NumGpuCores NumFans BoardId MultiGpuBoard ModuleId PowerSource BusType IrqNum", _out("value")
    ),
    **_each("MinorNumber PcieLinkMaxSpeed PcieSpeed CurrPcieLinkGeneration CurrPcieLinkWidth PcieReplayCounter", _out("value")),
    **_each("MaxPcieLinkGeneration MaxPcieLinkWidth GpuMaxPcieLinkGeneration AccountingBufferSize", _out("value")),
    "nvmlDeviceGetTotalEccErrors": _ask(_u32("errorType"), _u32("counterType"), _out("eccCounts", 8)),
    "nvmlDeviceGetMemoryErrorCounter": _ask(_u32("errorType"), _u32("counterType"), _u32("locationType"), _out("count", 8)),
    "nvmlDeviceGetRemappedRows": _ask(_out("corrRows"), _out("uncRows"), _out("isPending"), _out("failureOccurred")),
    "nvmlDeviceGetNvLinkState": _ask(_u32("link"), _out("isActive")),
    "nvmlDeviceGetNvLinkVersion": _ask(_u32("link"), _out("version")),
    "nvmlDeviceGetNvLinkCapability": _ask(_u32("link"), _u32("capability"), _out("capResult")),
    # Names and places.
    "nvmlDeviceGetPciInfo": _ask(_out("pci", 32)),
    "nvmlDeviceGetPciInfo_v2": _ask(_out("pci", 52)),
    "nvmlDeviceGetPciInfo_v3": _ask(_out("pci", 68)),
    "nvmlDeviceGetPciInfoExt": _ask(Param("pci", Kind.STRUCT, (64,))),
    **{f"nvmlDeviceGet{name}": _ask(*_text("text")) for name in ("Serial", "BoardPartNumber", "VbiosVersion", "InforomImageVersion")},
    "nvmlDeviceGetInforomVersion": _ask(_u32("object"), *_text("version")),
    "nvmlDeviceGetGspFirmwareVersion": _ask(Param("version", Kind.TEXT, (64,))),
    # Two devices.
    "nvmlDeviceGetTopologyCommonAncestor": _ask(Param("device2", Kind.DEVICE), _out("pathInfo")),
    "nvmlDeviceOnSameBoard": _ask(Param("device2", Kind.DEVICE), _out("onSameBoard")),
    "nvmlDeviceGetP2PStatus": _ask(Param("device2", Kind.DEVICE), _u32("p2pIndex"), _out("p2pStatus")),
}
"""By exported name. What is not here answers ERROR_NOT_SUPPORTED and is named in the log once."""


UUID_ASCII, UUID_BINARY = 1, 2
_UUID_AT, _UUID_TEXT_BYTES, _UUID_BYTES = 8, 41, 16


def given_uuid(data: bytes) -> str | None:
    """The UUID in an nvmlUUID_t (version, type, text or bytes) as text that begins with GPU-; None: the type is unknown."""
    kind = int.from_bytes(data[4:8], "little")
    if kind == UUID_ASCII:
        return data[_UUID_AT : _UUID_AT + _UUID_TEXT_BYTES].split(b"\0")[0].decode(errors="replace")
    return f"GPU-{UUID(bytes=data[_UUID_AT : _UUID_AT + _UUID_BYTES])}" if kind == UUID_BINARY else None


def output_sizes(function: Function, values: Sequence[Value]) -> list[int]:
    """Bytes that each parameter brings back, in order; 0 for those that bring nothing. `values` are a question's.

    Raises:
        ValueError: a value is not what its kind wants, or wants more than the limits allow. Values may come from another machine.
    """
    if len(values) != len(function.params):
        raise ValueError(f"{len(values)} values for {len(function.params)} parameters")
    sizes = []
    for place, (param, value) in enumerate(zip(function.params, values, strict=True)):
        kind, size = param.kind, 0
        if kind in (Kind.DEVICE, Kind.U32, Kind.LENGTH, Kind.COUNT):
            if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 32:
                raise ValueError(f"{param.name} is no 32-bit number")
            size = 4 if kind is Kind.COUNT else 0
        elif kind is Kind.OUT:
            size = param.size
        elif kind is Kind.TEXT:
            size = param.size or min(_number(values[place + 1]), MAX_TEXT_BYTES)
        elif kind is Kind.STRUCT:
            if not isinstance(value, bytes) or len(value) not in param.sizes or int.from_bytes(value[:3], "little") != len(value):
                raise ValueError(f"{param.name} is no struct of a known version")
            size = len(value)
        elif kind in (Kind.ARRAY, Kind.PROCESSES):
            if not isinstance(value, bool):
                raise ValueError(f"{param.name} is there or not")
            size = min(_number(values[place - 1]), MAX_ENTRIES) * param.size if value else 0
        elif kind is Kind.FIELDS:
            count = _number(values[place - 1])
            if not isinstance(value, bytes) or count > MAX_ENTRIES or len(value) != count * param.size:
                raise ValueError(f"{param.name} has not {count} entries")
            size = len(value)
        else:
            raise ValueError(f"{param.name} cannot be sent")
        sizes.append(size)
    return sizes


def _number(value: Value) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ValueError("a count is no number")
    return value
