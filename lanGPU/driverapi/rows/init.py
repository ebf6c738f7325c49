"""Rows: Initialisation, versions, error texts, entry points."""

from lanGPU.driverapi.rows.build import LOCAL, POST, PURE, bytes_in, bytes_out, cstring, host_ptr, row, scalar

ROWS = (
    row("cuInit", 0x0080, LOCAL, PURE, scalar("Flags"), client="decides whether there is a server and devices"),
    row("cuDriverGetVersion", 0x0081, LOCAL, PURE, bytes_out("driverVersion", 4), client="known from the handshake"),
    row("cuGetErrorName", 0x0082, LOCAL, PURE, scalar("error"), host_ptr("pStr"), client="the string must lie in the program's memory"),
    row("cuGetErrorString", 0x0083, LOCAL, PURE, scalar("error"), host_ptr("pStr"), client="the string must lie in the program's memory"),
    row(
        "cuGetProcAddress",
        0x0084,
        LOCAL,
        PURE,
        cstring("symbol"),
        host_ptr("pfn"),
        scalar("cudaVersion"),
        scalar("flags"),
        client="answers with the shim's own entry points",
    ),
    row(
        "cuGetProcAddress_v2",
        0x0085,
        LOCAL,
        PURE,
        cstring("symbol"),
        host_ptr("pfn"),
        scalar("cudaVersion"),
        scalar("flags"),
        bytes_out("symbolStatus", 4),
        client="answers with the shim's own entry points",
    ),
    row(
        "cuGetExportTable",
        0x0086,
        LOCAL,
        PURE,
        host_ptr("ppExportTable"),
        bytes_in("pExportTableId", 16),
        client="private tables are built in the program's memory",
    ),
    row(
        "cuModuleGetLoadingMode",
        0x0087,
        LOCAL,
        PURE,
        bytes_out("mode", 4),
        client="the program's own environment decides",
    ),
    row(
        "cuProfilerStart",
        0x0088,
        POST,
        PURE,
    ),
    row(
        "cuProfilerStop",
        0x0089,
        POST,
        PURE,
    ),
)
