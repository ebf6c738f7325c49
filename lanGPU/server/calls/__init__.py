"""Hand-written server sides, by row name. Importing this package registers them all."""

from lanGPU.server.calls import arrays, capture, contexts, copies, graphs, launch, linker, modules, nvml, pointers, textures

__all__ = ["arrays", "capture", "contexts", "copies", "graphs", "launch", "linker", "modules", "nvml", "pointers", "textures"]
