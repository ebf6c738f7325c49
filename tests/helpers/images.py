"""Images for tests: NVRTC's output where it is installed, and fat binaries built by hand."""

import struct
from functools import cache

import pytest

SOURCE = """
struct Pair { int a; char b; };
struct Large { int values[1200]; char last; };
extern "C" __global__ void nothing() {}
extern "C" __global__ void mixed(float *a, char b, double c, short d, Pair e) { a[0] = b + c + d + e.a; }
extern "C" __global__ void large(float *a, Large b, int c) { a[0] = b.values[7] + b.last + c; }
template <class T> __global__ void plus(T *a, T b) { a[0] = b; }
template __global__ void plus<double>(double *, double);
"""
LAYOUTS = {
    "nothing": [],
    "mixed": [(0, 8), (8, 1), (16, 8), (24, 2), (28, 8)],
    "large": [(0, 8), (8, 4804), (4812, 4)],
    "_Z4plusIdEvPT_S0_": [(0, 8), (8, 8)],
}
"""By the C++ rules for the parameters above: each at a multiple of its alignment."""


@cache
def compiled(kind: str, arch: str) -> bytes:
    """SOURCE compiled by NVRTC; `kind` is "ptx" (arch compute_…) or "cubin" (arch sm_…). Skips where NVRTC is not installed."""
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    try:
        error, program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"kernels.cu", 0, [], [])
    except RuntimeError as exc:
        pytest.skip(f"NVRTC is not installed: {exc}")
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS
    (error,) = nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture={arch}".encode()])
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS
    size_of, get = (nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX) if kind == "ptx" else (nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN)
    _, size = size_of(program)
    out = b" " * size
    get(program, out)
    nvrtc.nvrtcDestroyProgram(program)
    return out


def fatbin(*entries: tuple[int, int, int, bytes, int]) -> bytes:
    """A fatbin of (kind, arch, flags, stored bytes, uncompressed bytes) entries."""
    body = b""
    for kind, arch, flags, stored, uncompressed in entries:
        padded = stored.ljust((len(stored) + 7) & ~7, b"\0")
        compressed = len(stored) if flags & 0xA000 else 0
        body += struct.pack("<HHIQIIIIIIQQQ", kind, 0x101, 64, len(padded), compressed, 0, 0, arch, 0, 0, flags, 0, uncompressed) + padded
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def lz4_literals(data: bytes) -> bytes:
    """`data` as an LZ4 block of one sequence."""
    length = len(data)
    if length < 15:
        return bytes([length << 4]) + data
    more = length - 15
    return bytes([0xF0]) + b"\xff" * (more // 255) + bytes([more % 255]) + data
