"""Numbers that both sides agree on, and every limit put on what a peer may send.

Each value carries its unit in its name and its reason in a comment. Leaf module: imports nothing of lanGPU.
"""

from typing import Final

# --- protocol -----------------------------------------------------------------------------------------------------
PROTOCOL_VERSION: Final = 1
"""Raised when a peer of the previous version could misread us; apart from the package version."""
PROTOCOL_VERSION_MIN: Final = 1

DEFAULT_PORT: Final = 47627
"""TCP port of ``langpu serve``; from the dynamic range's lower neighbour, not registered with IANA."""

# --- limits on what is read from a peer ---------------------------------------------------------------------------
MAX_BODY_BYTES: Final = 256 * 1024
"""msgpack body of one frame: a WELCOME with 16 devices and all attributes is below 64 KiB."""
MAX_BULK_BYTES: Final = 8 * 1024 * 1024
"""Bulk bytes of one frame: the whole ring (4 MiB) in one frame, with room to grow."""
MAX_KERNEL_OUTPUT_BYTES: Final = 64 * 1024
"""What kernels printed, in one frame: more is sent in several."""
MAX_RECORD_BYTES: Final = 1024 * 1024 * 1024
"""One call record, over several frames: the largest module images shipped by NVIDIA's libraries are some 600 MB."""
MAX_HANDLES: Final = 1 << 20
"""Live handles of one session."""
MAX_THREADS: Final = 512
"""Application threads of one process that make driver calls at the same time."""

# --- sizes that shape the data path -------------------------------------------------------------------------------
INLINE_MAX_BYTES: Final = 64 * 1024
"""Up to here the shim copies host bytes into the ring itself; above, the agent reads the program's memory."""
REPLY_INLINE_MAX_BYTES: Final = 64 * 1024
"""Up to here a reply's bytes pass through the caller's slot; above, the agent writes the program's memory."""
COPY_CHUNK_BYTES: Final = 1024 * 1024
"""Large copies are cut into pieces of this size, so that neither side stages more than a few of them."""
MAX_ARGS: Final = 15
"""Arguments of one driver function (cuLaunchKernel has 11)."""
MAX_CSTRING_BYTES: Final = 4096
"""Longest C string argument, its NUL included (mangled C++ kernel names reach about 2,000)."""
MAX_KERNEL_PARAMS_BYTES: Final = 32764
"""Kernel parameters of one launch (CUDA C++ Programming Guide, function parameters, sm_70 and later)."""
LAUNCH_GRID: Final = (2**31 - 1, 65535, 65535)
LAUNCH_BLOCK: Final = (1024, 1024, 64)
LAUNCH_THREADS: Final = 1024
LAUNCH_SHARED_BYTES: Final = 48 << 10
"""What every device allows a launch (CUDA C++ Programming Guide, technical specifications per compute capability), and dynamic shared
memory without CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES. A launch beyond is not posted but waited for."""

# --- time ---------------------------------------------------------------------------------------------------------
CONNECT_TIMEOUT_S: Final = 10.0
HANDSHAKE_TIMEOUT_S: Final = 10.0
"""A peer that has not finished its HELLO by then is disconnected (slow-loris)."""

# --- CUresult values that product code names; the full list is driverapi.results --------------------------------------
CUDA_SUCCESS: Final = 0
CUDA_ERROR_INVALID_VALUE: Final = 1
CUDA_ERROR_OUT_OF_MEMORY: Final = 2
CUDA_ERROR_NOT_INITIALIZED: Final = 3
CUDA_ERROR_DEINITIALIZED: Final = 4
CUDA_ERROR_NO_DEVICE: Final = 100
CUDA_ERROR_INVALID_DEVICE: Final = 101
CUDA_ERROR_INVALID_IMAGE: Final = 200
CUDA_ERROR_INVALID_CONTEXT: Final = 201
CUDA_ERROR_INVALID_HANDLE: Final = 400
CUDA_ERROR_NOT_FOUND: Final = 500
CUDA_ERROR_NOT_READY: Final = 600
CUDA_ERROR_ILLEGAL_ADDRESS: Final = 700
CUDA_ERROR_CONTEXT_IS_DESTROYED: Final = 709
CUDA_ERROR_NOT_PERMITTED: Final = 800
CUDA_ERROR_NOT_SUPPORTED: Final = 801
CUDA_ERROR_SYSTEM_NOT_READY: Final = 802
CUDA_ERROR_SYSTEM_DRIVER_MISMATCH: Final = 803
CUDA_ERROR_STREAM_CAPTURE_INVALIDATED: Final = 901
CUDA_ERROR_UNKNOWN: Final = 999
