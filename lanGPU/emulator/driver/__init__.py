"""The emulated driver: one Python function per API symbol, on raw integers.

`bodies` has them all; `Driver` is the state that they work on. Streams are ordered queues carried out in submission order.
"""

from lanGPU.emulator.driver import (
    any_nodes,
    arrays,
    capture,
    contexts,
    copies,
    devices,
    events,
    general,
    graph_dot,
    graph_exec,
    graph_nodes,
    graphs,
    launches,
    libraries,
    links,
    managed,
    memories,
    memory_nodes,
    modules,
    occupancy,
    pitched,
    pools,
    private,
    streams,
    textures,
    user_objects,
    virtual_memory,
)
from lanGPU.emulator.driver.registry import BODIES, Body
from lanGPU.emulator.driver.state import Driver

__all__ = ["BODIES", "Body", "Driver", "bodies", "coverage"]

_MODULES = (
    any_nodes,
    arrays,
    capture,
    contexts,
    copies,
    devices,
    events,
    general,
    graph_dot,
    graph_exec,
    graph_nodes,
    graphs,
    launches,
    libraries,
    links,
    managed,
    memories,
    memory_nodes,
    modules,
    occupancy,
    pitched,
    pools,
    private,
    streams,
    textures,
    user_objects,
    virtual_memory,
)
"""Their import registers the bodies."""


def bodies() -> dict[str, Body]:
    """ABI symbol -> body, of every module."""
    return BODIES


def coverage() -> dict[str, bool]:
    """Row of the API table -> whether the emulated driver has a body for it."""
    from lanGPU.driverapi.table import ROWS

    return {row.name: row.name in BODIES or any(alias in BODIES for alias in row.aliases) for row in ROWS}
