"""Rows: Functions."""

from lanGPU.driverapi.rows.build import (
    FUNCTION,
    LOCAL,
    MODULE,
    POST,
    PURE,
    RECREATE,
    SYNC,
    bytes_out,
    handle,
    handle_query,
    host_ptr,
    row,
    scalar,
)

ROWS = (
    row("cuFuncGetAttribute", 0x0280, SYNC, PURE, bytes_out("pi", 4), scalar("attrib"), handle("hfunc", FUNCTION)),
    row("cuFuncSetAttribute", 0x0281, POST, RECREATE, handle("hfunc", FUNCTION), scalar("attrib"), scalar("value")),
    row("cuFuncSetCacheConfig", 0x0282, POST, RECREATE, handle("hfunc", FUNCTION), scalar("config")),
    row("cuFuncSetSharedMemConfig", 0x0283, POST, RECREATE, handle("hfunc", FUNCTION), scalar("config")),
    row("cuFuncGetModule", 0x0284, SYNC, PURE, handle_query("hmod", MODULE), handle("hfunc", FUNCTION)),
    row(
        "cuFuncGetName",
        0x0285,
        LOCAL,
        PURE,
        host_ptr("name"),
        handle("hfunc", FUNCTION),
        client="the string must lie in the program's memory",
    ),
    row(
        "cuFuncGetParamInfo",
        0x0286,
        SYNC,
        PURE,
        handle("func", FUNCTION),
        scalar("paramIndex"),
        bytes_out("paramOffset", 8),
        bytes_out("paramSize", 8),
    ),
    row("cuFuncGetParamCount", 0x0287, SYNC, PURE, handle("func", FUNCTION), bytes_out("paramCount", 8)),
    row("cuFuncIsLoaded", 0x0288, SYNC, PURE, bytes_out("state", 4), handle("function", FUNCTION)),
    row("cuFuncLoad", 0x0289, POST, PURE, handle("function", FUNCTION)),
)
