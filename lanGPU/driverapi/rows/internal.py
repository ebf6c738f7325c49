"""Records that lanGPU's hand-written calls exchange and no program can make."""

from lanGPU.driverapi.rows.build import LINK_STATE, bytes_out, handle, internal, scalar, size

ROWS = (
    internal(
        "langpuJitLog",
        0x0040,
        handle("state", LINK_STATE),
        scalar("which"),
        bytes_out("buffer", size_from="size"),
        size("size"),
        server="reads the log that the worker keeps",
        note="state 0: the calling thread's last module or library load; which 0: info log, 1: error log; NUL-terminated, cut to size",
    ),
    internal(
        "langpuLinkRead",
        0x0041,
        handle("state", LINK_STATE),
        scalar("offset"),
        bytes_out("buffer", size_from="size"),
        size("size"),
        server="reads the result that the worker keeps",
        note="bytes [offset, offset + size) of cuLinkComplete's result; CUDA_ERROR_INVALID_VALUE outside of it",
    ),
)
