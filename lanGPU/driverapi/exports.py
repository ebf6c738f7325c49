"""Which symbols libcuda.so.1 exports, which row each stands for, and cuGetProcAddress's rule."""

import re
from functools import cache

from lanGPU.driverapi.model import ApiFunction
from lanGPU.driverapi.signatures import SIGNATURES
from lanGPU.driverapi.table import ROWS

PER_THREAD_SUFFIXES = ("_ptsz", "_ptds")
_SUFFIX = re.compile(r"_pt(?:sz|ds)$")
_VERSION = re.compile(r"_v(\d+)$")


@cache
def _by_symbol() -> dict[str, ApiFunction]:
    out = {}
    for row in ROWS:
        out[row.name] = row
        out.update(dict.fromkeys(row.aliases, row))
    return out


@cache
def export_names() -> tuple[str, ...]:
    """Every symbol to export, sorted: all that the headers know, and their per-thread variants."""
    names = set(_by_symbol())
    for signature in SIGNATURES.values():
        names.add(signature.symbol)
        if signature.per_thread:
            names.add(signature.symbol + signature.per_thread)
    return tuple(sorted(names))


def resolve_symbol(name: str) -> tuple[ApiFunction | None, bool]:
    """The row behind an exported symbol (None: not supported) and whether it is the per-thread-default-stream variant."""
    plain = _SUFFIX.sub("", name)
    return _by_symbol().get(plain), plain != name


@cache
def _variants() -> dict[str, tuple[tuple[int, str, int, str], ...]]:
    """Base name -> (since, symbol, since of the per-thread variant, its symbol or ""), newest ABI first."""
    found: dict[str, list[tuple[int, str, int, str]]] = {}
    for s in SIGNATURES.values():
        threaded = s.symbol + s.per_thread if s.per_thread else ""
        found.setdefault(s.base, []).append((s.since, s.symbol, s.since_per_thread, threaded))
    return {base: tuple(sorted(entries, key=_order, reverse=True)) for base, entries in found.items()}


def _order(entry: tuple[int, str, int, str]) -> tuple[int, int]:
    match = _VERSION.search(entry[1])
    return entry[0], int(match.group(1)) if match else 1


def proc_address(name: str, cuda_version: int, per_thread: bool = False) -> str | None:
    """The symbol that cuGetProcAddress answers with: the newest ABI not newer than `cuda_version` (e.g. 12040), or None.

    `name` is a base name, as cuGetProcAddress wants it. With `per_thread` the per-thread-default-stream variant where there is one.
    """
    for since, symbol, since_threaded, threaded in _variants().get(name, ()):
        if since <= cuda_version:
            return threaded if per_thread and threaded and since_threaded <= cuda_version else symbol
    return None
