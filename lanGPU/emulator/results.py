"""CUresults of the emulated driver, as an exception."""

from typing import Final

from lanGPU.driverapi.enums import ENUMS

CURESULT: Final = ENUMS["CUresult"]


def result(name: str) -> int:
    """The value of `name`, given without its CUDA_ERROR_ prefix."""
    return CURESULT[f"CUDA_ERROR_{name}"]


INVALID_VALUE: Final = result("INVALID_VALUE")
OUT_OF_MEMORY: Final = result("OUT_OF_MEMORY")
NOT_INITIALIZED: Final = result("NOT_INITIALIZED")
DEINITIALIZED: Final = result("DEINITIALIZED")
NO_DEVICE: Final = result("NO_DEVICE")
INVALID_DEVICE: Final = result("INVALID_DEVICE")
INVALID_IMAGE: Final = result("INVALID_IMAGE")
INVALID_CONTEXT: Final = result("INVALID_CONTEXT")
NO_BINARY_FOR_GPU: Final = result("NO_BINARY_FOR_GPU")
INVALID_PTX: Final = result("INVALID_PTX")
FILE_NOT_FOUND: Final = result("FILE_NOT_FOUND")
INVALID_HANDLE: Final = result("INVALID_HANDLE")
ILLEGAL_STATE: Final = result("ILLEGAL_STATE")
NOT_FOUND: Final = result("NOT_FOUND")
NOT_READY: Final = result("NOT_READY")
ILLEGAL_ADDRESS: Final = result("ILLEGAL_ADDRESS")
LAUNCH_OUT_OF_RESOURCES: Final = result("LAUNCH_OUT_OF_RESOURCES")
LAUNCH_TIMEOUT: Final = result("LAUNCH_TIMEOUT")
PEER_ACCESS_ALREADY_ENABLED: Final = result("PEER_ACCESS_ALREADY_ENABLED")
PEER_ACCESS_NOT_ENABLED: Final = result("PEER_ACCESS_NOT_ENABLED")
PRIMARY_CONTEXT_ACTIVE: Final = result("PRIMARY_CONTEXT_ACTIVE")
CONTEXT_IS_DESTROYED: Final = result("CONTEXT_IS_DESTROYED")
HOST_MEMORY_ALREADY_REGISTERED: Final = result("HOST_MEMORY_ALREADY_REGISTERED")
HOST_MEMORY_NOT_REGISTERED: Final = result("HOST_MEMORY_NOT_REGISTERED")
ILLEGAL_INSTRUCTION: Final = result("ILLEGAL_INSTRUCTION")
HARDWARE_STACK_ERROR: Final = result("HARDWARE_STACK_ERROR")
INVALID_PC: Final = result("INVALID_PC")
MISALIGNED_ADDRESS: Final = result("MISALIGNED_ADDRESS")
LAUNCH_FAILED: Final = result("LAUNCH_FAILED")
ASSERT: Final = result("ASSERT")
COOPERATIVE_LAUNCH_TOO_LARGE: Final = result("COOPERATIVE_LAUNCH_TOO_LARGE")
NOT_PERMITTED: Final = result("NOT_PERMITTED")
NOT_SUPPORTED: Final = result("NOT_SUPPORTED")
STREAM_CAPTURE_UNSUPPORTED: Final = result("STREAM_CAPTURE_UNSUPPORTED")
STREAM_CAPTURE_INVALIDATED: Final = result("STREAM_CAPTURE_INVALIDATED")
STREAM_CAPTURE_MERGE: Final = result("STREAM_CAPTURE_MERGE")
STREAM_CAPTURE_UNMATCHED: Final = result("STREAM_CAPTURE_UNMATCHED")
STREAM_CAPTURE_UNJOINED: Final = result("STREAM_CAPTURE_UNJOINED")
STREAM_CAPTURE_ISOLATION: Final = result("STREAM_CAPTURE_ISOLATION")
STREAM_CAPTURE_IMPLICIT: Final = result("STREAM_CAPTURE_IMPLICIT")
CAPTURED_EVENT: Final = result("CAPTURED_EVENT")
STREAM_CAPTURE_WRONG_THREAD: Final = result("STREAM_CAPTURE_WRONG_THREAD")
UNKNOWN: Final = result("UNKNOWN")


class CuError(Exception):
    """A driver call ends with `result`; `detail` is logged where it says more than the result's name."""

    def __init__(self, result: int, detail: str = "") -> None:
        super().__init__(detail or f"CUresult {result}")
        self.result = result
        self.detail = detail
