"""The generated shim as the rest of the client sees it: where its file is, and where its entry points are in a program."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


class ShimSymbols:
    """Entry points of a shim loaded at an address."""

    def __init__(self, load_address: int, offsets: Mapping[str, int]) -> None:
        self._load_address = load_address
        self._offsets = offsets

    def address(self, symbol: str) -> int | None:
        """Address of an exported symbol in the program, or None."""
        offset = self._offsets.get(symbol)
        return None if offset is None else self._load_address + offset


@dataclass(frozen=True)
class Shim:
    """A shim file: its folder (for LD_LIBRARY_PATH), content hash (32 bytes) and symbol offsets."""

    folder: Path
    digest: bytes
    offsets: Mapping[str, int]

    def at(self, load_address: int) -> ShimSymbols:
        """Its symbols in a program that loaded it there."""
        return ShimSymbols(load_address, self.offsets)


def ensure() -> Shim:
    """The shim of this release, generated if the cache does not have it."""
    from lanGPU.client import shim

    info = shim.ensure()
    return Shim(info.path.parent, info.digest, info.symbols)
