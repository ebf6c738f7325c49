"""Driver calls that the client carries out by hand, as generators: what they need they yield (`effects`), what they return is the CUresult.

Importing the package registers all of them.
"""

from lanGPU.client.calls import (
    arrays,
    capture,
    contexts,
    copies,
    devices,
    entry,
    fallback,
    graphs,
    host,
    images,
    jitlink,
    launch,
    libraries,
    modules,
    nvml,
    pitched,
    pointers,
    pools,
    private,
    strings,
    textures,
)
from lanGPU.client.calls.registry import BEFORE_INIT, HANDLERS, start

__all__ = [
    "BEFORE_INIT",
    "HANDLERS",
    "arrays",
    "capture",
    "contexts",
    "copies",
    "devices",
    "entry",
    "fallback",
    "graphs",
    "host",
    "images",
    "jitlink",
    "launch",
    "libraries",
    "modules",
    "nvml",
    "pitched",
    "pointers",
    "pools",
    "private",
    "start",
    "strings",
    "textures",
]
