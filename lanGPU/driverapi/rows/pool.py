"""Rows: Memory pools."""

from lanGPU.driverapi.rows.build import (
    MEM_POOL,
    POST,
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
    size,
)

ROWS = (
    row("cuMemPoolCreate", 0x0440, SYNC, RECREATE, handle_out("pool", MEM_POOL), bytes_in("poolProps", 88)),
    row("cuMemPoolDestroy", 0x0441, POST, RECREATE, handle_destroy("pool", MEM_POOL)),
    row("cuMemPoolTrimTo", 0x0442, POST, PURE, handle("pool", MEM_POOL), size("minBytesToKeep")),
    row(
        "cuMemPoolSetAttribute",
        0x0443,
        POST,
        RECREATE,
        handle("pool", MEM_POOL),
        scalar("attr"),
        bytes_in("value"),
        client="the value's size depends on the attribute",
    ),
    row(
        "cuMemPoolGetAttribute",
        0x0444,
        SYNC,
        PURE,
        handle("pool", MEM_POOL),
        scalar("attr"),
        bytes_out("value"),
        client="the value's size depends on the attribute",
    ),
    row("cuMemPoolSetAccess", 0x0445, POST, RECREATE, handle("pool", MEM_POOL), bytes_in("map", 12, size_from="count"), size("count")),
    row("cuMemPoolGetAccess", 0x0446, SYNC, PURE, bytes_out("flags", 4), handle("memPool", MEM_POOL), bytes_in("location", 8)),
)
