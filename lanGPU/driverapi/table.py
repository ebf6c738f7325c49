"""The driver API as rows.

`api_id` is permanent: append within an area, never renumber, never reuse. Areas begin at
0x0080 init, 0x0100 device, 0x0140 context, 0x0200 module, 0x0240 library, 0x0280 function, 0x02C0 link, 0x0300 memory, 0x0340 host,
0x0380 copy, 0x03C0 memset, 0x0400 vmm, 0x0440 pool, 0x0480 pointer, 0x0500 stream, 0x0540 capture, 0x0580 event, 0x0600 launch,
0x0640 occupancy, 0x0700 graph, 0x0740 node, 0x0780 exec, 0x0900 array, 0x0940 texture.
"""

from lanGPU.driverapi.model import ApiFunction
from lanGPU.driverapi.rows import AREAS

MAX_API_ID = 4095

ROWS: tuple[ApiFunction, ...] = tuple(row for _, rows in AREAS for row in rows)
"""The driver's functions, in the order of their api_id."""

BY_NAME: dict[str, ApiFunction] = {row.name: row for row in ROWS}
"""By ABI symbol; aliases are not keys (`lanGPU.driverapi.exports.resolve_symbol` knows them)."""

BY_ID: dict[int, ApiFunction] = {row.api_id: row for row in ROWS}
"""By api_id: what a record's reader looks up."""
