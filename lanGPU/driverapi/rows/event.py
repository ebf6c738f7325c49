"""Rows: Events."""

from lanGPU.driverapi.rows.build import (
    EVENT,
    POST,
    POST_NAMED,
    PURE,
    RECREATE,
    STREAM,
    SYNC,
    bytes_out,
    handle,
    handle_destroy,
    handle_out,
    row,
    scalar,
)

ROWS = (
    row("cuEventCreate", 0x0580, POST_NAMED, RECREATE, handle_out("phEvent", EVENT), scalar("Flags")),
    row("cuEventDestroy_v2", 0x0581, POST, RECREATE, handle_destroy("hEvent", EVENT), aliases=("cuEventDestroy",)),
    row("cuEventRecord", 0x0582, POST, RECREATE, handle("hEvent", EVENT), handle("hStream", STREAM)),
    row("cuEventRecordWithFlags", 0x0583, POST, RECREATE, handle("hEvent", EVENT), handle("hStream", STREAM), scalar("flags")),
    row("cuEventQuery", 0x0584, SYNC, PURE, handle("hEvent", EVENT)),
    row("cuEventSynchronize", 0x0585, SYNC, PURE, handle("hEvent", EVENT), blocking=True),
    row("cuEventElapsedTime", 0x0586, SYNC, PURE, bytes_out("pMilliseconds", 4), handle("hStart", EVENT), handle("hEnd", EVENT)),
    row("cuEventElapsedTime_v2", 0x0587, SYNC, PURE, bytes_out("pMilliseconds", 4), handle("hStart", EVENT), handle("hEnd", EVENT)),
)
