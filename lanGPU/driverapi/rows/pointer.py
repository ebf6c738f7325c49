"""Rows: Pointer attributes."""

from lanGPU.driverapi.rows.build import LOCAL, POST, PURE, RECREATE, SYNC, bytes_in, bytes_out, dptr, host_ptr, row, scalar

ROWS = (
    row(
        "cuPointerGetAttribute",
        0x0480,
        SYNC,
        PURE,
        bytes_out("data"),
        scalar("attribute"),
        dptr("ptr"),
        client="the value's size depends on the attribute; host addresses are answered by the agent",
        server="some attributes are handles",
    ),
    row(
        "cuPointerGetAttributes",
        0x0481,
        LOCAL,
        PURE,
        scalar("numAttributes"),
        bytes_in("attributes", 4, size_from="numAttributes"),
        host_ptr("data"),
        dptr("ptr"),
        client="asked one by one with cuPointerGetAttribute",
    ),
    row("cuPointerSetAttribute", 0x0482, POST, RECREATE, bytes_in("value", 4), scalar("attribute"), dptr("ptr")),
)
