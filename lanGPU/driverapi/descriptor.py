"""A row packed for machine code: what the shim's dispatch and the server's executor read.

| offset | size | field |
| --- | --- | --- |
| 0 | u16 | api_id |
| 2 | u8 | number of arguments |
| 3 | u8 | path: 0 unsupported, 1 post, 2 sync, 3 agent |
| 4 | u8 | flags: 1 blocking, 2 server side hand-written, 4 its reply may report an earlier posted call's failure; 8, 16, 32, 64 below |
| 5 | u8 | index of the CUstream argument whose NULL means the per-thread stream in `_ptsz` variants; 255 none |
| 6 | u16 | 0; the shim's generator puts there what the call asks that it may answer by itself (`lanGPU.client.shim_ir.questions`) |
| 8 | 8 each | arguments: u8 kind, u8 handle type, u8 index of the size argument (255: none), u8 0, u32 size constant |

DESCRIPTOR_BYTES in all, unused arguments zero. Both sides are generated from the same rows of the same release; the format is
internal to a machine and never crosses the wire.
"""

import struct
from enum import IntEnum

from lanGPU.constants import MAX_ARGS
from lanGPU.driverapi.coherence import is_looked_at, is_synchronizing, is_work
from lanGPU.driverapi.model import ApiFunction, ArgKind, CallClass, HandleType

DESCRIPTOR_BYTES = 8 + 8 * MAX_ARGS
QUESTION_OFFSET = 6
FLAG_BLOCKING = 1
FLAG_SERVER_PYTHON = 2
FLAG_REPORTS = 4
FLAG_WORK = 8
FLAG_LOOKED_AT = 16
FLAG_WAITS = 32
"""While memory is shared (`lanGPU.driverapi.coherence`): device work; calls for the agent to see; the program may look at results."""
FLAG_UPLOAD = 64
"""A posted copy from host memory in a stream's order: where a stream captures, the agent must see it, as the copy's source would be read
at some later launch of the graph."""
NO_ARG = 255


class Path(IntEnum):
    """How the shim carries a call."""

    UNSUPPORTED = 0
    POST = 1
    SYNC = 2
    AGENT = 3


def path_of(row: ApiFunction) -> Path:
    """How the shim carries calls of `row`: hand-written and LOCAL calls go to the agent."""
    if row.client or row.call_class is CallClass.LOCAL:
        return Path.AGENT
    if row.call_class is CallClass.SYNC:
        return Path.SYNC
    return Path.POST


def pack(row: ApiFunction) -> bytes:
    """The descriptor of `row`, DESCRIPTOR_BYTES long."""
    flags = (FLAG_BLOCKING if row.blocking else 0) | (FLAG_SERVER_PYTHON if row.server else 0)
    flags |= FLAG_REPORTS if row.reports_earlier else 0
    flags |= (FLAG_WORK if is_work(row) else 0) | (FLAG_LOOKED_AT if is_looked_at(row) else 0)
    flags |= FLAG_WAITS if is_synchronizing(row) else 0
    stream = next(
        (i for i, a in enumerate(row.args) if a.handle is HandleType.STREAM and a.kind is ArgKind.HANDLE),
        NO_ARG,
    )
    posted = row.call_class is CallClass.POST and row.large
    if posted and stream != NO_ARG and any(a.kind is ArgKind.BYTES_IN for a in row.args):
        flags |= FLAG_UPLOAD
    out = struct.pack("<HBBBBH", row.api_id, len(row.args), path_of(row), flags, stream, 0)
    for arg in row.args:
        size_index = row.arg_index[arg.size_from] if arg.size_from else NO_ARG
        out += struct.pack("<BBBBI", arg.kind, arg.handle, size_index, 0, arg.size_const)
    return out.ljust(DESCRIPTOR_BYTES, b"\0")
