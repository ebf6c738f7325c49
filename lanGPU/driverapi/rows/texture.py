"""Rows: texture and surface objects.

Their handles travel inside kernel parameters, also through device memory, so the client cannot name them: creation waits and
returns the driver's own 64-bit value, which every later call carries as a number.
"""

from lanGPU.driverapi.rows.build import PURE, RECREATE, SYNC, bytes_in, bytes_out, row, scalar

_SERVER = "handles in the struct, both ways"

ROWS = (
    row(
        "cuTexObjectCreate",
        0x0940,
        SYNC,
        RECREATE,
        bytes_out("pTexObject", 8),
        bytes_in("pResDesc", 144),
        bytes_in("pTexDesc", 104),
        bytes_in("pResViewDesc", 112),
        server=_SERVER,
    ),
    row("cuTexObjectDestroy", 0x0941, SYNC, RECREATE, scalar("texObject")),
    row("cuTexObjectGetResourceDesc", 0x0942, SYNC, PURE, bytes_out("pResDesc", 144), scalar("texObject"), server=_SERVER),
    row("cuTexObjectGetTextureDesc", 0x0943, SYNC, PURE, bytes_out("pTexDesc", 104), scalar("texObject")),
    row("cuTexObjectGetResourceViewDesc", 0x0944, SYNC, PURE, bytes_out("pResViewDesc", 112), scalar("texObject")),
    row("cuSurfObjectCreate", 0x0948, SYNC, RECREATE, bytes_out("pSurfObject", 8), bytes_in("pResDesc", 144), server=_SERVER),
    row("cuSurfObjectDestroy", 0x0949, SYNC, RECREATE, scalar("surfObject")),
    row("cuSurfObjectGetResourceDesc", 0x094A, SYNC, PURE, bytes_out("pResDesc", 144), scalar("surfObject"), server=_SERVER),
)
