"""NVML's functions as LOCAL rows: arguments of those that are answered, by name; all others answer NOT_SUPPORTED by name."""

from functools import cache
from typing import Final

from lanGPU.driverapi.model import ApiFunction, Arg, ArgKind, CallClass, Replay
from lanGPU.nvml.names import NAMES

FIRST_API_ID: Final = 0x2000
"""NVML rows have api_ids of their own above the driver's, which never cross the wire."""

PARAMS: Final[dict[str, tuple[str, ...]]] = {
    "nvmlInit": (),
    "nvmlInit_v2": (),
    "nvmlInitWithFlags": ("flags",),
    "nvmlShutdown": (),
    "nvmlErrorString": ("result",),
    "nvmlSystemGetCudaDriverVersion": ("cudaDriverVersion",),
    "nvmlSystemGetCudaDriverVersion_v2": ("cudaDriverVersion",),
    "nvmlDeviceGetCount": ("deviceCount",),
    "nvmlDeviceGetCount_v2": ("deviceCount",),
    "nvmlDeviceGetHandleByIndex": ("index", "device"),
    "nvmlDeviceGetHandleByIndex_v2": ("index", "device"),
    "nvmlDeviceGetHandleByUUID": ("uuid", "device"),
    "nvmlDeviceGetHandleByPciBusId": ("pciBusId", "device"),
    "nvmlDeviceGetHandleByPciBusId_v2": ("pciBusId", "device"),
    "nvmlDeviceGetIndex": ("device", "index"),
    "nvmlDeviceGetName": ("device", "name", "length"),
    "nvmlDeviceGetUUID": ("device", "uuid", "length"),
    "nvmlDeviceGetCudaComputeCapability": ("device", "major", "minor"),
    "nvmlDeviceGetComputeMode": ("device", "mode"),
}


@cache
def nvml_rows() -> dict[str, ApiFunction]:
    """Rows by symbol, in the order of their api_ids; never sent."""
    rows = {}
    for number, name in enumerate(NAMES):
        args = tuple(Arg(param, ArgKind.HOST_PTR) for param in PARAMS.get(name, ()))
        rows[name] = ApiFunction(name, FIRST_API_ID + number, CallClass.LOCAL, Replay.PURE, args, since=0, client="NVML")
    return rows
