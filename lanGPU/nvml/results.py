"""nvmlReturn_t values and their texts. Source: NVIDIA's NVML API reference."""

from typing import Final

SUCCESS: Final = 0
ERROR_UNINITIALIZED: Final = 1
ERROR_INVALID_ARGUMENT: Final = 2
ERROR_NOT_SUPPORTED: Final = 3
ERROR_NOT_FOUND: Final = 6
ERROR_INSUFFICIENT_SIZE: Final = 7
ERROR_DRIVER_NOT_LOADED: Final = 9
ERROR_UNKNOWN: Final = 999

_TEXTS: Final = {
    SUCCESS: "Success",
    ERROR_UNINITIALIZED: "Uninitialized",
    ERROR_INVALID_ARGUMENT: "Invalid Argument",
    ERROR_NOT_SUPPORTED: "Not Supported",
    4: "Insufficient Permissions",
    5: "Already Initialized",
    ERROR_NOT_FOUND: "Not Found",
    ERROR_INSUFFICIENT_SIZE: "Insufficient Size",
    8: "Insufficient External Power",
    ERROR_DRIVER_NOT_LOADED: "Driver Not Loaded",
    10: "Timeout",
    13: "Function Not Found",
    15: "GPU is lost",
    25: "Argument version mismatch",
    ERROR_UNKNOWN: "Unknown Error",
}


def text(result: int) -> str:
    """What nvmlErrorString says; values without a text are "Unknown Error"."""
    return _TEXTS.get(result, _TEXTS[ERROR_UNKNOWN])
