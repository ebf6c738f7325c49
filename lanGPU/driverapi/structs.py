"""Layouts of the C structs that hand-written calls look into, for 64-bit little-endian machines, without ctypes.

A layout names its fields in the order of cuda.h; offsets follow the C rule (each field at a multiple of its size, the whole
rounded up to the largest). `HANDLES` says which fields name objects, `HOST_POINTERS` which hold addresses of the program.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from lanGPU.driverapi.model import HandleType

Buffer = bytes | bytearray | memoryview

_SIZES = {"B": 1, "H": 2, "I": 4, "i": 4, "Q": 8}


@dataclass(frozen=True, slots=True)
class Field:
    """One integer of a struct: offset in bytes and its `struct` format character."""

    name: str
    offset: int
    format: str


@dataclass(frozen=True, slots=True)
class StructLayout:
    """A C struct: `size` bytes with named integer fields. Arrays are fields named ``name[0]``…"""

    name: str
    spec: str
    """``format name`` pairs separated by commas; ``format*n name`` is an array of n."""
    handles: Mapping[str, HandleType] = field(default_factory=dict)
    host_pointers: tuple[str, ...] = ()
    fields: dict[str, Field] = field(init=False, repr=False, default_factory=dict)
    size: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        end, largest = 0, 1
        for code, name in self._items():
            width = _SIZES[code]
            largest = max(largest, width)
            offset = (end + width - 1) // width * width
            self.fields[name] = Field(name, offset, "<" + code)
            end = offset + width
        object.__setattr__(self, "size", (end + largest - 1) // largest * largest)

    def _items(self) -> Iterator[tuple[str, str]]:
        for part in self.spec.split(","):
            code, name = part.split()
            code, _, count = code.partition("*")
            if count:
                yield from ((code, f"{name}[{i}]") for i in range(int(count)))
            else:
                yield code, name

    def get(self, data: Buffer, name: str, offset: int = 0) -> int:
        """The value of field `name` of the struct at `offset` of `data`.

        Raises:
            struct.error: `data` is too short.
        """
        item = self.fields[name]
        value: int = struct.unpack_from(item.format, data, offset + item.offset)[0]
        return value

    def put(self, data: bytearray | memoryview, name: str, value: int, offset: int = 0) -> None:
        """Store `value` in field `name` of the struct at `offset` of `data`."""
        item = self.fields[name]
        struct.pack_into(item.format, data, offset + item.offset, value)

    def unpack(self, data: Buffer, offset: int = 0) -> dict[str, int]:
        """All fields by name."""
        return {name: self.get(data, name, offset) for name in self.fields}

    def pack(self, **values: int) -> bytes:
        """The struct with these fields, all others 0."""
        out = bytearray(self.size)
        for name, value in values.items():
            self.put(out, name, value)
        return bytes(out)


_KERNEL_NODE = (
    "Q func, I gridDimX, I gridDimY, I gridDimZ, I blockDimX, I blockDimY, I blockDimZ, I sharedMemBytes, Q kernelParams, Q extra"
)
_FUNC = {"func": HandleType.FUNCTION}
_FUNC_KERN = {"func": HandleType.FUNCTION, "kern": HandleType.FUNCTION, "ctx": HandleType.CONTEXT}

KERNEL_NODE_PARAMS_V1 = StructLayout("CUDA_KERNEL_NODE_PARAMS_v1", _KERNEL_NODE, _FUNC, ("kernelParams", "extra"))
KERNEL_NODE_PARAMS_V2 = StructLayout("CUDA_KERNEL_NODE_PARAMS_v2", _KERNEL_NODE + ", Q kern, Q ctx", _FUNC_KERN, ("kernelParams", "extra"))
KERNEL_NODE_PARAMS_V3 = StructLayout("CUDA_KERNEL_NODE_PARAMS_v3", _KERNEL_NODE + ", Q kern, Q ctx", _FUNC_KERN, ("kernelParams", "extra"))
"""As version 2; cuda.h uses it inside CUgraphNodeParams."""

_ARRAYS = {"srcArray": HandleType.ARRAY, "dstArray": HandleType.ARRAY}
_HOSTS = ("srcHost", "dstHost")

MEMCPY2D = StructLayout(
    "CUDA_MEMCPY2D_v2",
    "Q srcXInBytes, Q srcY, I srcMemoryType, Q srcHost, Q srcDevice, Q srcArray, Q srcPitch,"
    "Q dstXInBytes, Q dstY, I dstMemoryType, Q dstHost, Q dstDevice, Q dstArray, Q dstPitch, Q WidthInBytes, Q Height",
    _ARRAYS,
    _HOSTS,
)
MEMCPY3D = StructLayout(
    "CUDA_MEMCPY3D_v2",
    "Q srcXInBytes, Q srcY, Q srcZ, Q srcLOD, I srcMemoryType, Q srcHost, Q srcDevice, Q srcArray, Q reserved0, Q srcPitch, Q srcHeight,"
    "Q dstXInBytes, Q dstY, Q dstZ, Q dstLOD, I dstMemoryType, Q dstHost, Q dstDevice, Q dstArray, Q reserved1, Q dstPitch, Q dstHeight,"
    "Q WidthInBytes, Q Height, Q Depth",
    _ARRAYS,
    _HOSTS,
)
MEMCPY3D_PEER = StructLayout(
    "CUDA_MEMCPY3D_PEER_v1",
    MEMCPY3D.spec.replace("Q reserved0", "Q srcContext").replace("Q reserved1", "Q dstContext"),
    {**_ARRAYS, "srcContext": HandleType.CONTEXT, "dstContext": HandleType.CONTEXT},
    _HOSTS,
)
MEMCPY_ATTRIBUTES = StructLayout(
    "CUmemcpyAttributes_v1",
    "I srcAccessOrder, I srcLocHint_type, i srcLocHint_id, I dstLocHint_type, i dstLocHint_id, I flags",
)
MEMSET_NODE_PARAMS = StructLayout("CUDA_MEMSET_NODE_PARAMS_v1", "Q dst, Q pitch, I value, I elementSize, Q width, Q height")
MEMSET_NODE_PARAMS_V2 = StructLayout("CUDA_MEMSET_NODE_PARAMS_v2", MEMSET_NODE_PARAMS.spec + ", Q ctx", {"ctx": HandleType.CONTEXT})
GRAPH_NODE_PARAMS = StructLayout("CUgraphNodeParams", "I type, I*3 reserved0, Q*29 reserved1, Q reserved2")
"""`reserved1` is a union of the parameters of all kinds of nodes, 16 bytes from the start."""
MEMCPY_NODE_PARAMS = StructLayout(
    "CUDA_MEMCPY_NODE_PARAMS", "I flags, I reserved, Q copyCtx, Q*25 copyParams", {"copyCtx": HandleType.CONTEXT}
)
"""`copyParams` is a CUDA_MEMCPY3D_v2, 16 bytes from the start."""
CHILD_GRAPH_NODE_PARAMS = StructLayout("CUDA_CHILD_GRAPH_NODE_PARAMS", "Q graph, I ownership", {"graph": HandleType.GRAPH})

LAUNCH_CONFIG = StructLayout(
    "CUlaunchConfig",
    "I gridDimX, I gridDimY, I gridDimZ, I blockDimX, I blockDimY, I blockDimZ, I sharedMemBytes, Q hStream, Q attrs, I numAttrs",
    {"hStream": HandleType.STREAM},
    ("attrs",),
)
LAUNCH_ATTRIBUTE = StructLayout("CUlaunchAttribute", "I id, I pad, Q*8 value")
"""`value` is a union of 64 bytes. In attributes 7 and 12 (programmatic event, launch completion event) ``value[0]`` is a CUevent; in
13 (device-updatable node) the driver writes it."""

MEM_LOCATION = StructLayout("CUmemLocation", "I type, i id")
MEM_POOL_PROPS = StructLayout(
    "CUmemPoolProps",
    "I allocType, I handleTypes, I location_type, i location_id, Q win32SecurityAttributes, Q maxSize, H usage, B gpuDirectRDMACapable,"
    "B*53 reserved",
    host_pointers=("win32SecurityAttributes",),
)
MEM_ALLOC_NODE_PARAMS = StructLayout(
    "CUDA_MEM_ALLOC_NODE_PARAMS_v2",
    MEM_POOL_PROPS.spec + ", Q accessDescs, Q accessDescCount, Q bytesize, Q dptr",
    host_pointers=("win32SecurityAttributes", "accessDescs"),
)
"""As version 1. It begins with a CUmemPoolProps."""
MEM_ALLOCATION_PROP = StructLayout(
    "CUmemAllocationProp",
    "I type, I requestedHandleTypes, I location_type, i location_id, Q win32HandleMetaData, B compressionType, B gpuDirectRDMACapable,"
    "H usage, B*4 reserved",
    host_pointers=("win32HandleMetaData",),
)
MEM_ACCESS_DESC = StructLayout("CUmemAccessDesc", "I location_type, i location_id, I flags")

GRAPH_INSTANTIATE_PARAMS = StructLayout(
    "CUDA_GRAPH_INSTANTIATE_PARAMS",
    "Q flags, Q hUploadStream, Q hErrNode_out, I result_out",
    {"hUploadStream": HandleType.STREAM, "hErrNode_out": HandleType.GRAPH_NODE},
)
GRAPH_EXEC_UPDATE_RESULT_INFO = StructLayout(
    "CUgraphExecUpdateResultInfo",
    "I result, Q errorNode, Q errorFromNode",
    {"errorNode": HandleType.GRAPH_NODE, "errorFromNode": HandleType.GRAPH_NODE},
)
DEVPROP = StructLayout(
    "CUdevprop",
    "i maxThreadsPerBlock, i*3 maxThreadsDim, i*3 maxGridSize, i sharedMemPerBlock, i totalConstantMemory, i SIMDWidth, i memPitch,"
    "i regsPerBlock, i clockRate, i textureAlign",
)

ARRAY_DESCRIPTOR = StructLayout("CUDA_ARRAY_DESCRIPTOR_v2", "Q Width, Q Height, I Format, I NumChannels")
ARRAY3D_DESCRIPTOR = StructLayout("CUDA_ARRAY3D_DESCRIPTOR_v2", "Q Width, Q Height, Q Depth, I Format, I NumChannels, I Flags")
RESOURCE_DESC = StructLayout(
    "CUDA_RESOURCE_DESC_v1", "I resType, Q devPtr, I format, I numChannels, Q width, Q height, Q pitchInBytes, Q*11 reserved, I flags"
)
"""The union seen as its largest member; `devPtr` holds the handle of an array, `width` the sizeInBytes of linear memory."""
TEXTURE_DESC = StructLayout(
    "CUDA_TEXTURE_DESC_v1",
    "I*3 addressMode, I filterMode, I flags, I maxAnisotropy, I mipmapFilterMode, I mipmapLevelBias, I minMipmapLevelClamp,"
    "I maxMipmapLevelClamp, I*4 borderColor, I*12 reserved",
)
"""Fields of type float as their bits."""
RESOURCE_VIEW_DESC = StructLayout(
    "CUDA_RESOURCE_VIEW_DESC_v1",
    "I format, Q width, Q height, Q depth, I firstMipmapLevel, I lastMipmapLevel, I firstLayer, I lastLayer, I*16 reserved",
)

LAYOUTS: dict[str, StructLayout] = {
    layout.name: layout
    for layout in (
        KERNEL_NODE_PARAMS_V1,
        KERNEL_NODE_PARAMS_V2,
        KERNEL_NODE_PARAMS_V3,
        MEMCPY2D,
        MEMCPY3D,
        MEMCPY3D_PEER,
        MEMCPY_ATTRIBUTES,
        MEMSET_NODE_PARAMS,
        MEMSET_NODE_PARAMS_V2,
        GRAPH_NODE_PARAMS,
        MEMCPY_NODE_PARAMS,
        CHILD_GRAPH_NODE_PARAMS,
        LAUNCH_CONFIG,
        LAUNCH_ATTRIBUTE,
        MEM_LOCATION,
        MEM_POOL_PROPS,
        MEM_ALLOC_NODE_PARAMS,
        MEM_ALLOCATION_PROP,
        MEM_ACCESS_DESC,
        GRAPH_INSTANTIATE_PARAMS,
        GRAPH_EXEC_UPDATE_RESULT_INFO,
        DEVPROP,
        ARRAY_DESCRIPTOR,
        ARRAY3D_DESCRIPTOR,
        RESOURCE_DESC,
        TEXTURE_DESC,
        RESOURCE_VIEW_DESC,
    )
}
"""By the C name."""
