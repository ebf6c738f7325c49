"""Hand-written server sides, by row name. Importing this package registers them all."""

from lanGPU.server.calls import arrays, callbacks, capture, contexts, copies, graphs, launch, linker, modules, nvml, pointers, textures

__all__ = ["arrays", "callbacks", "capture", "contexts", "copies", "graphs", "launch", "linker", "modules", "nvml", "pointers", "textures"]
