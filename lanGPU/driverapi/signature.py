"""The shape of a generated signature (`lanGPU.driverapi.signatures`)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Signature:
    """One ABI symbol that a CUDA header declares."""

    symbol: str
    """The exported name with its version suffix, without per-thread suffix."""
    base: str
    """The name that cuGetProcAddress is asked for."""
    params: tuple[tuple[str, str], ...]
    """(C type, name) of each parameter, from the newest header that declares the symbol."""
    per_thread: str
    """Suffix of the per-thread-default-stream variant: "_ptsz", "_ptds" or empty."""
    since: int
    """CUDA version that introduced the symbol (cudaTypedefs.h); 0 where no typedef names it."""
    since_per_thread: int
    """The same for the per-thread variant."""
    headers: tuple[int, ...]
    """CUDA_VERSION of the headers that declare it."""
