"""CUresult: names, numbers, and one plain sentence for each."""

from lanGPU.driverapi.enums import ENUMS

CURESULT: dict[str, int] = ENUMS["CUresult"]
"""Name -> number, of all CUDA versions known."""

_NAMES = {number: name for name, number in CURESULT.items()}

_TEXTS = {
    "SUCCESS": "no error",
    "INVALID_VALUE": "an argument is out of range or does not fit the others",
    "OUT_OF_MEMORY": "not enough memory",
    "NOT_INITIALIZED": "the driver was not initialised: cuInit comes first",
    "DEINITIALIZED": "the driver is shutting down",
    "PROFILER_DISABLED": "the profiler is not available here",
    "PROFILER_NOT_INITIALIZED": "the profiler was not initialised (no longer reported)",
    "PROFILER_ALREADY_STARTED": "the profiler runs already (no longer reported)",
    "PROFILER_ALREADY_STOPPED": "the profiler is stopped already (no longer reported)",
    "STUB_LIBRARY": "the library found is a stub for linking, not a driver",
    "CALL_REQUIRES_NEWER_DRIVER": "the call needs a newer driver",
    "DEVICE_UNAVAILABLE": "the device is busy or in a mode that forbids this context",
    "MULTICAST_RESOURCE_FULL": "no multicast resources are left",
    "NO_DEVICE": "there is no CUDA device",
    "INVALID_DEVICE": "there is no device with this number, or it cannot do this",
    "DEVICE_NOT_LICENSED": "the device has no valid licence",
    "INVALID_IMAGE": "the module image is not valid",
    "INVALID_CONTEXT": "no context is current, or the context is not valid",
    "CONTEXT_ALREADY_CURRENT": "the context is current already (no longer reported)",
    "MAP_FAILED": "mapping failed",
    "UNMAP_FAILED": "unmapping failed",
    "ARRAY_IS_MAPPED": "the array is mapped and cannot be destroyed",
    "ALREADY_MAPPED": "the resource is mapped already",
    "NO_BINARY_FOR_GPU": "the image holds no code for this device",
    "ALREADY_ACQUIRED": "the resource is acquired already",
    "NOT_MAPPED": "the resource is not mapped",
    "NOT_MAPPED_AS_ARRAY": "the resource is not mapped as an array",
    "NOT_MAPPED_AS_POINTER": "the resource is not mapped as a pointer",
    "ECC_UNCORRECTABLE": "device memory had an error that could not be corrected",
    "UNSUPPORTED_LIMIT": "the device has no such limit",
    "CONTEXT_ALREADY_IN_USE": "the context belongs to another thread",
    "PEER_ACCESS_UNSUPPORTED": "these devices cannot access each other",
    "INVALID_PTX": "the PTX could not be compiled",
    "INVALID_GRAPHICS_CONTEXT": "the graphics context is not valid",
    "NVLINK_UNCORRECTABLE": "NVLink had an error that could not be corrected",
    "JIT_COMPILER_NOT_FOUND": "the PTX compiler is missing",
    "UNSUPPORTED_PTX_VERSION": "the PTX is newer than the driver",
    "JIT_COMPILATION_DISABLED": "compiling PTX was switched off",
    "UNSUPPORTED_EXEC_AFFINITY": "the device does not support this execution affinity",
    "UNSUPPORTED_DEVSIDE_SYNC": "the code synchronises on the device, which is not supported",
    "CONTAINED": "a contained error: the device can go on",
    "INSUFFICIENT_LOADER_VERSION": "the loader is too old",
    "INVALID_SOURCE": "the source is not valid",
    "FILE_NOT_FOUND": "file not found",
    "SHARED_OBJECT_SYMBOL_NOT_FOUND": "a shared library lacks a symbol",
    "SHARED_OBJECT_INIT_FAILED": "a shared library could not be initialised",
    "OPERATING_SYSTEM": "a system call failed",
    "INVALID_HANDLE": "the handle is not valid",
    "ILLEGAL_STATE": "a resource is in a state that does not allow this",
    "LOSSY_QUERY": "the answer would lose information",
    "NOT_FOUND": "there is nothing of this name",
    "NOT_READY": "the work has not finished yet",
    "ILLEGAL_ADDRESS": "a kernel accessed memory it may not access; the context is lost",
    "LAUNCH_OUT_OF_RESOURCES": "the launch needs more registers, memory or threads than there are",
    "LAUNCH_TIMEOUT": "a kernel ran longer than is allowed; the context is lost",
    "LAUNCH_INCOMPATIBLE_TEXTURING": "the launch uses texturing in an incompatible way",
    "PEER_ACCESS_ALREADY_ENABLED": "peer access is enabled already",
    "PEER_ACCESS_NOT_ENABLED": "peer access was not enabled",
    "PRIMARY_CONTEXT_ACTIVE": "the primary context is in use already",
    "CONTEXT_IS_DESTROYED": "the context was destroyed or lost",
    "ASSERT": "an assertion in a kernel failed; the context is lost",
    "TOO_MANY_PEERS": "no peer connections are left",
    "HOST_MEMORY_ALREADY_REGISTERED": "the memory is registered already",
    "HOST_MEMORY_NOT_REGISTERED": "the memory was not registered",
    "HARDWARE_STACK_ERROR": "a kernel broke its stack; the context is lost",
    "ILLEGAL_INSTRUCTION": "a kernel met an illegal instruction; the context is lost",
    "MISALIGNED_ADDRESS": "a kernel used an address that is not aligned; the context is lost",
    "INVALID_ADDRESS_SPACE": "an instruction met an address of the wrong space; the context is lost",
    "INVALID_PC": "a kernel jumped to where no code is; the context is lost",
    "LAUNCH_FAILED": "a kernel failed; the context is lost",
    "COOPERATIVE_LAUNCH_TOO_LARGE": "a cooperative launch has more blocks than fit the device at once",
    "TENSOR_MEMORY_LEAK": "a kernel ended without freeing its tensor memory",
    "NOT_PERMITTED": "not permitted",
    "NOT_SUPPORTED": "not supported here",
    "SYSTEM_NOT_READY": "the system is not ready for CUDA work",
    "SYSTEM_DRIVER_MISMATCH": "driver versions do not match",
    "COMPAT_NOT_SUPPORTED_ON_DEVICE": "the device does not support forward compatibility",
    "MPS_CONNECTION_FAILED": "no connection to the MPS server",
    "MPS_RPC_FAILURE": "a call to the MPS server failed",
    "MPS_SERVER_NOT_READY": "the MPS server is not ready",
    "MPS_MAX_CLIENTS_REACHED": "the MPS server has as many clients as it can",
    "MPS_MAX_CONNECTIONS_REACHED": "the MPS server has as many connections as it can",
    "MPS_CLIENT_TERMINATED": "the MPS server ended this client",
    "CDP_NOT_SUPPORTED": "launches from the device are not supported",
    "CDP_VERSION_MISMATCH": "launches from the device: versions do not match",
    "STREAM_CAPTURE_UNSUPPORTED": "not permitted while a stream is being captured",
    "STREAM_CAPTURE_INVALIDATED": "an earlier error made the capture invalid",
    "STREAM_CAPTURE_MERGE": "two captures would become one",
    "STREAM_CAPTURE_UNMATCHED": "the capture was not begun on this stream",
    "STREAM_CAPTURE_UNJOINED": "the capture holds work that was not joined to its first stream",
    "STREAM_CAPTURE_ISOLATION": "the captured work would depend on work outside of the capture",
    "STREAM_CAPTURE_IMPLICIT": "the legacy stream would depend on captured work",
    "CAPTURED_EVENT": "the event was recorded in a capture",
    "STREAM_CAPTURE_WRONG_THREAD": "the capture was begun by another thread",
    "TIMEOUT": "timed out",
    "GRAPH_EXEC_UPDATE_FAILURE": "the change is too large for an executable graph: instantiate it anew",
    "EXTERNAL_DEVICE": "an external device failed",
    "INVALID_CLUSTER_SIZE": "the cluster size is not valid",
    "FUNCTION_NOT_LOADED": "the function was not loaded",
    "INVALID_RESOURCE_TYPE": "the resource has the wrong type",
    "INVALID_RESOURCE_CONFIGURATION": "the resource's configuration is not valid",
    "KEY_ROTATION": "a key is being rotated",
    "STREAM_DETACHED": "the stream is detached",
    "GRAPH_RECAPTURE_FAILURE": "recapturing the graph failed",
    "FABRIC_NOT_READY": "the fabric is not ready",
    "UNKNOWN": "unknown error",
}

STICKY = frozenset(
    CURESULT[f"CUDA_ERROR_{name}"]
    for name in (
        "ILLEGAL_ADDRESS",
        "LAUNCH_TIMEOUT",
        "ASSERT",
        "HARDWARE_STACK_ERROR",
        "ILLEGAL_INSTRUCTION",
        "MISALIGNED_ADDRESS",
        "INVALID_ADDRESS_SPACE",
        "INVALID_PC",
        "LAUNCH_FAILED",
        "CONTAINED",
        "TENSOR_MEMORY_LEAK",
        "EXTERNAL_DEVICE",
    )
)
"""Results after which every call answers the same: cuda.h says of each that the process is left in an inconsistent state."""


def is_known(code: int) -> bool:
    """Whether `code` is a CUresult; for others cuGetErrorName answers CUDA_ERROR_INVALID_VALUE."""
    return code in _NAMES


def name(code: int) -> str:
    """`CUDA_ERROR_…`, or the number in words if it is none."""
    return _NAMES.get(code, f"CUresult {code}")


def text(code: int) -> str:
    """What the result means, in a few words; what cuGetErrorString returns."""
    known = _NAMES.get(code)
    if known is None:
        return "unrecognised error code"
    return _TEXTS[known.removeprefix("CUDA_ERROR_").removeprefix("CUDA_")]
