"""Every CUdevice_attribute of the emulated device, as it is or as compute capability 7.5 has it.

Source: CUDA C++ Programming Guide, table of technical specifications by compute capability; cuda.h for the numbers.
"""

from typing import Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.config import COMPUTE_CAPABILITY

_NUMBER: Final = ENUMS["CUdevice_attribute"]
_PREFIX: Final = "CU_DEVICE_ATTRIBUTE_"

WARP_SIZE: Final = 32
MAX_THREADS_PER_BLOCK: Final = 1024
MAX_BLOCK: Final = (1024, 1024, 64)
MAX_GRID: Final = (2**31 - 1, 65535, 65535)
SHARED_PER_BLOCK: Final = 48 * 1024
SHARED_PER_BLOCK_OPTIN: Final = 64 * 1024
SHARED_PER_MULTIPROCESSOR: Final = 64 * 1024
REGISTERS: Final = 65536
THREADS_PER_MULTIPROCESSOR: Final = 1024
BLOCKS_PER_MULTIPROCESSOR: Final = 16

TEXTURE_ALIGNMENT: Final = 512
TEXTURE_PITCH_ALIGNMENT: Final = 32

_VALUES: Final = {
    "MAX_THREADS_PER_BLOCK": MAX_THREADS_PER_BLOCK,
    "MAX_BLOCK_DIM_X": MAX_BLOCK[0],
    "MAX_BLOCK_DIM_Y": MAX_BLOCK[1],
    "MAX_BLOCK_DIM_Z": MAX_BLOCK[2],
    "MAX_GRID_DIM_X": MAX_GRID[0],
    "MAX_GRID_DIM_Y": MAX_GRID[1],
    "MAX_GRID_DIM_Z": MAX_GRID[2],
    "MAX_SHARED_MEMORY_PER_BLOCK": SHARED_PER_BLOCK,
    "TOTAL_CONSTANT_MEMORY": 64 * 1024,
    "WARP_SIZE": WARP_SIZE,
    "MAX_PITCH": 2**31 - 1,
    "MAX_REGISTERS_PER_BLOCK": REGISTERS,
    "CLOCK_RATE": 1_000_000,  # kHz; a round number: what a processor's core does has no counterpart
    "TEXTURE_ALIGNMENT": TEXTURE_ALIGNMENT,
    "GPU_OVERLAP": 0,  # copies and kernels follow each other
    "INTEGRATED": 0,
    "CAN_MAP_HOST_MEMORY": 1,
    "SURFACE_ALIGNMENT": 512,
    "CONCURRENT_KERNELS": 0,
    "PCI_BUS_ID": 0,  # set per device
    "ASYNC_ENGINE_COUNT": 0,
    "UNIFIED_ADDRESSING": 1,
    "MEMORY_CLOCK_RATE": 1_000_000,
    "GLOBAL_MEMORY_BUS_WIDTH": 64,
    "L2_CACHE_SIZE": 4 * 1024 * 1024,
    "MAX_THREADS_PER_MULTIPROCESSOR": THREADS_PER_MULTIPROCESSOR,
    "TEXTURE_PITCH_ALIGNMENT": TEXTURE_PITCH_ALIGNMENT,
    "COMPUTE_CAPABILITY_MAJOR": COMPUTE_CAPABILITY[0],
    "COMPUTE_CAPABILITY_MINOR": COMPUTE_CAPABILITY[1],
    "STREAM_PRIORITIES_SUPPORTED": 1,
    "MANAGED_MEMORY": 1,
    "GLOBAL_L1_CACHE_SUPPORTED": 1,
    "LOCAL_L1_CACHE_SUPPORTED": 1,
    "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR": SHARED_PER_MULTIPROCESSOR,
    "MAX_REGISTERS_PER_MULTIPROCESSOR": REGISTERS,
    "SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO": 2,
    "COOPERATIVE_LAUNCH": 1,
    "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM": 1,
    "HOST_REGISTER_SUPPORTED": 1,
    "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN": SHARED_PER_BLOCK_OPTIN,
    "VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED": 1,
    "MAX_BLOCKS_PER_MULTIPROCESSOR": BLOCKS_PER_MULTIPROCESSOR,
    "MEMORY_POOLS_SUPPORTED": 1,
    "UNIFIED_FUNCTION_POINTERS": 0,
    "HOST_NUMA_ID": -1,
    "NUMA_ID": -1,
    "LOCALITY_DOMAIN_COUNT": 1,
    "GPU_PCI_DEVICE_ID": 0,
    "TENSOR_MAP_LARGE_TENSOR_MIN_SIZE": 2**31 - 1,  # "devices where the selection is a no-op report INT_MAX" (cuda.h)
}
"""All others are 0: a feature that is not there."""

TEXTURE_LIMITS: Final = {
    "1D_WIDTH": 131072,
    "1D_LINEAR_WIDTH": 2**28,
    "1D_LAYERED_WIDTH": 32768,
    "1D_LAYERED_LAYERS": 2048,
    "1D_MIPMAPPED_WIDTH": 32768,
    "2D_WIDTH": 131072,
    "2D_HEIGHT": 65536,
    "2D_LINEAR_WIDTH": 131072,
    "2D_LINEAR_HEIGHT": 65000,
    "2D_LINEAR_PITCH": 2097120,
    "2D_GATHER_WIDTH": 32768,
    "2D_GATHER_HEIGHT": 32768,
    "2D_MIPMAPPED_WIDTH": 32768,
    "2D_MIPMAPPED_HEIGHT": 32768,
    "2D_LAYERED_WIDTH": 32768,
    "2D_LAYERED_HEIGHT": 32768,
    "2D_LAYERED_LAYERS": 2048,
    "3D_WIDTH": 16384,
    "3D_HEIGHT": 16384,
    "3D_DEPTH": 16384,
    "3D_WIDTH_ALTERNATE": 16384,
    "3D_HEIGHT_ALTERNATE": 16384,
    "3D_DEPTH_ALTERNATE": 16384,
    "CUBEMAP_WIDTH": 32768,
    "CUBEMAP_LAYERED_WIDTH": 32768,
    "CUBEMAP_LAYERED_LAYERS": 2046,
}
"""CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE* without its prefix. Source: CUDA C++ Programming Guide, technical specifications of compute
capability 7.5; the alternate 3D shape is not offered and equals the usual one."""
_SURFACES: Final = ("1D", "2D", "3D", "1D_LAYERED", "2D_LAYERED", "CUBEMAP", "CUBEMAP_LAYERED")
"""Shapes of surfaces, whose limits are those of textures except for a 1D width of 32,768."""


def texture_limit(name: str) -> int:
    """A CU_DEVICE_ATTRIBUTE_MAXIMUM_TEXTURE… without its prefix."""
    return TEXTURE_LIMITS[name]


def _texture_attributes() -> dict[str, int]:
    found = {f"MAXIMUM_TEXTURE{name}": value for name, value in TEXTURE_LIMITS.items()}
    for name, value in TEXTURE_LIMITS.items():
        if name.rpartition("_")[0] in _SURFACES:
            found[f"MAXIMUM_SURFACE{name}"] = 32768 if name == "1D_WIDTH" else value
    return found


def device_attributes(ordinal: int, multiprocessors: int) -> dict[int, int]:
    """Attribute number -> value for one device; every attribute that cuda.h names has an entry."""
    values = {number: 0 for name, number in _NUMBER.items() if not name.endswith("_MAX")}
    for name, value in (*_VALUES.items(), *_texture_attributes().items()):
        values[_NUMBER[_PREFIX + name]] = value
    values[_NUMBER[_PREFIX + "MULTIPROCESSOR_COUNT"]] = multiprocessors
    values[_NUMBER[_PREFIX + "LOCALITY_DOMAIN_MULTIPROCESSOR_COUNT"]] = multiprocessors
    values[_NUMBER[_PREFIX + "PCI_BUS_ID"]] = pci_bus(ordinal)
    return values


def pci_bus(ordinal: int) -> int:
    """The PCI bus that the device claims: high numbers, which real machines rarely reach."""
    return 0xE0 + ordinal
