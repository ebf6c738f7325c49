"""Rows: Pinned memory, which is ordinary memory of the program."""

from lanGPU.driverapi.rows.build import LOCAL, PURE, bytes_out, host_ptr, row, scalar, size

ROWS = (
    row("cuMemAllocHost_v2", 0x0340, LOCAL, PURE, bytes_out("pp", 8), size("bytesize"), client="memory of the program, from mmap"),
    row(
        "cuMemHostAlloc",
        0x0341,
        LOCAL,
        PURE,
        bytes_out("pp", 8),
        size("bytesize"),
        scalar("Flags"),
        client="memory of the program, from mmap",
    ),
    row("cuMemFreeHost", 0x0342, LOCAL, PURE, host_ptr("p"), client="memory of the program"),
    row(
        "cuMemHostRegister_v2",
        0x0343,
        LOCAL,
        PURE,
        host_ptr("p"),
        size("bytesize"),
        scalar("Flags"),
        aliases=("cuMemHostRegister",),
        client="memory of the program",
    ),
    row("cuMemHostUnregister", 0x0344, LOCAL, PURE, host_ptr("p"), client="memory of the program"),
    row(
        "cuMemHostGetDevicePointer_v2",
        0x0345,
        LOCAL,
        PURE,
        bytes_out("pdptr", 8),
        host_ptr("p"),
        scalar("Flags"),
        client="the memory is kept on the device, too",
    ),
    row("cuMemHostGetFlags", 0x0346, LOCAL, PURE, bytes_out("pFlags", 4), host_ptr("p"), client="the agent keeps the flags"),
)
