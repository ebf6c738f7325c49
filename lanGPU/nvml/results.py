"""nvmlReturn_t values and their texts. Source: NVIDIA's NVML API reference."""

from typing import Final

SUCCESS: Final = 0
ERROR_UNINITIALIZED: Final = 1
ERROR_INVALID_ARGUMENT: Final = 2
ERROR_NOT_SUPPORTED: Final = 3
ERROR_NOT_FOUND: Final = 6
ERROR_INSUFFICIENT_SIZE: Final = 7
ERROR_DRIVER_NOT_LOADED: Final = 9
ERROR_LIBRARY_NOT_FOUND: Final = 12
ERROR_FUNCTION_NOT_FOUND: Final = 13
ERROR_GPU_IS_LOST: Final = 15
ERROR_ARGUMENT_VERSION_MISMATCH: Final = 25
LAST_KNOWN: Final = ERROR_ARGUMENT_VERSION_MISMATCH
"""The highest value but ERROR_UNKNOWN."""
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
    11: "Interrupt Request Issue",
    ERROR_LIBRARY_NOT_FOUND: "NVML Shared Library Not Found",
    ERROR_FUNCTION_NOT_FOUND: "Function Not Found",
    14: "Corrupted infoROM",
    ERROR_GPU_IS_LOST: "GPU is lost",
    16: "GPU requires restart",
    17: "The operating system has blocked the request.",
    18: "RM has detected an NVML/RM version mismatch.",
    19: "An operation cannot be performed because the GPU is currently in use",
    20: "Insufficient Memory",
    21: "No data",
    22: "The requested vgpu operation is not available on target device, because ECC is enabled",
    23: "Insufficient Resources",
    24: "Frequency Not Supported",
    ERROR_ARGUMENT_VERSION_MISMATCH: "Argument version mismatch",
    ERROR_UNKNOWN: "Unknown Error",
}


def text(result: int) -> str:
    """What nvmlErrorString says; values without a text are "Unknown Error"."""
    return _TEXTS.get(result, _TEXTS[ERROR_UNKNOWN])
