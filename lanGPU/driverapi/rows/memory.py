"""Rows: Device memory."""

from lanGPU.driverapi.rows.build import MEM_POOL, POST, PURE, RECREATE, STREAM, SYNC, bytes_out, dptr, handle, row, scalar, size

ROWS = (
    row("cuMemGetInfo_v2", 0x0300, SYNC, PURE, bytes_out("free", 8), bytes_out("total", 8)),
    row("cuMemAlloc_v2", 0x0301, SYNC, RECREATE, bytes_out("dptr", 8), size("bytesize")),
    row(
        "cuMemAllocPitch_v2",
        0x0302,
        SYNC,
        RECREATE,
        bytes_out("dptr", 8),
        bytes_out("pPitch", 8),
        size("WidthInBytes"),
        size("Height"),
        scalar("ElementSizeBytes"),
    ),
    row("cuMemFree_v2", 0x0303, POST, RECREATE, dptr("dptr")),
    row("cuMemGetAddressRange_v2", 0x0304, SYNC, PURE, bytes_out("pbase", 8), bytes_out("psize", 8), dptr("dptr")),
    row("cuMemAllocAsync", 0x0305, SYNC, RECREATE, bytes_out("dptr", 8), size("bytesize"), handle("hStream", STREAM)),
    row(
        "cuMemAllocFromPoolAsync",
        0x0306,
        SYNC,
        RECREATE,
        bytes_out("dptr", 8),
        size("bytesize"),
        handle("pool", MEM_POOL),
        handle("hStream", STREAM),
    ),
    row("cuMemFreeAsync", 0x0307, POST, RECREATE, dptr("dptr"), handle("hStream", STREAM)),
)
