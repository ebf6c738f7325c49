"""lanGPU: CUDA driver API remoting for local networks."""

__version__ = "0.1.0"
