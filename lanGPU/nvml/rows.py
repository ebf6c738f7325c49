"""NVML's functions as LOCAL rows of the shim: those that are answered have arguments, all others answer NOT_SUPPORTED by name."""

from functools import cache
from typing import Final

from lanGPU.driverapi.model import ApiFunction, Arg, ArgKind, CallClass, Replay
from lanGPU.nvml.functions import FUNCTIONS
from lanGPU.nvml.names import NAMES

FIRST_API_ID: Final = 0x2000
"""NVML rows have api_ids of their own above the driver's, which never cross the wire."""

PARAMS: Final = {name: tuple(param.name for param in function.params) for name, function in FUNCTIONS.items()}
"""Parameter names of every answered function."""


@cache
def nvml_rows() -> dict[str, ApiFunction]:
    """Rows by symbol, in the order of their api_ids; never sent."""
    rows = {}
    for number, name in enumerate(NAMES):
        args = tuple(Arg(param, ArgKind.HOST_PTR) for param in PARAMS.get(name, ()))
        rows[name] = ApiFunction(name, FIRST_API_ID + number, CallClass.LOCAL, Replay.PURE, args, since=0, client="NVML")
    return rows
