"""Rows: Virtual memory management."""

from lanGPU.driverapi.rows.build import (
    MEM_ALLOCATION,
    POST,
    PURE,
    RECREATE,
    SYNC,
    bytes_in,
    bytes_out,
    dptr,
    handle,
    handle_destroy,
    handle_out,
    row,
    scalar,
    size,
)

ROWS = (
    row("cuMemAddressReserve", 0x0400, SYNC, RECREATE, bytes_out("ptr", 8), size("size"), size("alignment"), dptr("addr"), scalar("flags")),
    row("cuMemAddressFree", 0x0401, POST, RECREATE, dptr("ptr"), size("size")),
    row("cuMemCreate", 0x0402, SYNC, RECREATE, handle_out("handle", MEM_ALLOCATION), size("size"), bytes_in("prop", 32), scalar("flags")),
    row("cuMemRelease", 0x0403, POST, RECREATE, handle_destroy("handle", MEM_ALLOCATION)),
    row("cuMemMap", 0x0404, POST, RECREATE, dptr("ptr"), size("size"), size("offset"), handle("handle", MEM_ALLOCATION), scalar("flags")),
    row("cuMemUnmap", 0x0405, POST, RECREATE, dptr("ptr"), size("size")),
    row("cuMemSetAccess", 0x0406, POST, RECREATE, dptr("ptr"), size("size"), bytes_in("desc", 12, size_from="count"), size("count")),
    row("cuMemGetAccess", 0x0407, SYNC, PURE, bytes_out("flags", 8), bytes_in("location", 8), dptr("ptr")),
    row("cuMemGetAllocationGranularity", 0x0408, SYNC, PURE, bytes_out("granularity", 8), bytes_in("prop", 32), scalar("option")),
    row("cuMemGetAllocationPropertiesFromHandle", 0x0409, SYNC, PURE, bytes_out("prop", 32), handle("handle", MEM_ALLOCATION)),
    row(
        "cuMemRetainAllocationHandle",
        0x040A,
        SYNC,
        RECREATE,
        handle_out("handle", MEM_ALLOCATION),
        dptr("addr"),
        note="the new name is a reference of its own, so that each cuMemRelease drops one",
    ),
)
