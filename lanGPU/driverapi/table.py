"""The driver API as rows.

`api_id` is permanent: append within an area, never renumber, never reuse. Areas begin at
0x0080 init, 0x0100 device, 0x0140 context, 0x0200 module, 0x0240 library, 0x0280 function, 0x02C0 link, 0x0300 memory, 0x0340 host,
0x0380 copy, 0x03C0 memset, 0x0400 vmm, 0x0440 pool, 0x0480 pointer, 0x0500 stream, 0x0540 capture, 0x0580 event, 0x0600 launch,
0x0640 occupancy, 0x0700 graph, 0x0740 node, 0x0780 exec, 0x07C0 callback, 0x0900 array, 0x0940 texture,
0x0F00 questions that are no driver functions.
"""

from lanGPU.driverapi.model import ApiFunction, Arg, ArgKind, CallClass, Replay
from lanGPU.driverapi.rows import AREAS

MAX_API_ID = 4095

ROWS: tuple[ApiFunction, ...] = tuple(row for _, rows in AREAS for row in rows)
"""The driver's functions, in the order of their api_id."""

QUESTIONS: tuple[ApiFunction, ...] = (
    ApiFunction(
        "langpuNvml",
        0x0F00,
        CallClass.SYNC,
        Replay.PURE,
        (
            Arg("question", ArgKind.BYTES_IN, size_from="questionBytes", size_const=1),
            Arg("questionBytes", ArgKind.SIZE),
            Arg("answer", ArgKind.BYTES_OUT, size_from="answerBytes", size_const=1),
            Arg("answerBytes", ArgKind.SIZE),
        ),
        since=0,
        client="no program calls it: NVML's functions ask it",
        server="NVML is another library",
        note="Formats: lanGPU.nvml.question.",
    ),
)
"""What clients ask of servers beside driver functions: records as of any row, but no symbol, no signature and no place in the driver."""

ALL_ROWS: tuple[ApiFunction, ...] = ROWS + QUESTIONS
"""Every row that a record may be of."""

BY_NAME: dict[str, ApiFunction] = {row.name: row for row in ALL_ROWS}
"""By ABI symbol; aliases are not keys (`lanGPU.driverapi.exports.resolve_symbol` knows them)."""

BY_ID: dict[int, ApiFunction] = {row.api_id: row for row in ALL_ROWS}
"""By api_id: what a record's reader looks up."""
