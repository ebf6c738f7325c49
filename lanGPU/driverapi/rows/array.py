"""Rows: CUDA arrays and mipmapped arrays. Creation waits for its answer: a descriptor that does not fit must fail there."""

from lanGPU.driverapi.model import HandleType
from lanGPU.driverapi.rows.build import (
    PURE,
    RECREATE,
    SYNC,
    bytes_in,
    bytes_out,
    handle,
    handle_destroy,
    handle_out,
    row,
    scalar,
)

ARRAY = HandleType.ARRAY
MIPMAPPED = HandleType.MIPMAPPED_ARRAY

ROWS = (
    row("cuArrayCreate_v2", 0x0900, SYNC, RECREATE, handle_out("pHandle", ARRAY), bytes_in("pAllocateArray", 24)),
    row("cuArray3DCreate_v2", 0x0901, SYNC, RECREATE, handle_out("pHandle", ARRAY), bytes_in("pAllocateArray", 40)),
    row("cuArrayGetDescriptor_v2", 0x0902, SYNC, PURE, bytes_out("pArrayDescriptor", 24), handle("hArray", ARRAY)),
    row("cuArray3DGetDescriptor_v2", 0x0903, SYNC, PURE, bytes_out("pArrayDescriptor", 40), handle("hArray", ARRAY)),
    row("cuArrayDestroy", 0x0904, SYNC, RECREATE, handle_destroy("hArray", ARRAY)),
    row(
        "cuArrayGetPlane",
        0x0905,
        SYNC,
        RECREATE,
        handle_out("pPlaneArray", ARRAY),
        handle("hArray", ARRAY),
        scalar("planeIdx"),
        note="the plane gets a name of its own each time it is asked for",
    ),
    row("cuArrayGetMemoryRequirements", 0x0906, SYNC, PURE, bytes_out("memoryRequirements", 32), handle("array", ARRAY), scalar("device")),
    row("cuArrayGetSparseProperties", 0x0907, SYNC, PURE, bytes_out("sparseProperties", 48), handle("array", ARRAY)),
    row(
        "cuMipmappedArrayCreate",
        0x0908,
        SYNC,
        RECREATE,
        handle_out("pHandle", MIPMAPPED),
        bytes_in("pMipmappedArrayDesc", 40),
        scalar("numMipmapLevels"),
    ),
    row(
        "cuMipmappedArrayGetLevel",
        0x0909,
        SYNC,
        RECREATE,
        handle_out("pLevelArray", ARRAY),
        handle("hMipmappedArray", MIPMAPPED),
        scalar("level"),
        note="the level gets a name of its own each time it is asked for",
    ),
    row("cuMipmappedArrayDestroy", 0x090A, SYNC, RECREATE, handle_destroy("hMipmappedArray", MIPMAPPED)),
    row(
        "cuMipmappedArrayGetMemoryRequirements",
        0x090B,
        SYNC,
        PURE,
        bytes_out("memoryRequirements", 32),
        handle("mipmap", MIPMAPPED),
        scalar("device"),
    ),
    row("cuMipmappedArrayGetSparseProperties", 0x090C, SYNC, PURE, bytes_out("sparseProperties", 48), handle("mipmap", MIPMAPPED)),
)
