#!/usr/bin/env python3
"""Measure the emulated device itself: compiling PTX, a tiled matrix product, and a saxpy next to NumPy's. No server, no driver.

.venv/bin/python tools/bench_emulator.py           a table for people
.venv/bin/python tools/bench_emulator.py --json    one JSON object

docs/performance.md defines every number.
"""

import argparse
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from lanGPU.emulator.ptx import AllocationMap, CompiledKernel, parse_module  # noqa: E402

HEADER = ".version 8.0\n.target sm_75\n.address_size 64\n"
ROUNDS = 7
SIZE = 512
TILE = 16
ELEMENTS = 1 << 24
LONG_LINES = 300

SAXPY = """
.visible .entry saxpy(.param .u64 x, .param .u64 y, .param .f32 a, .param .u32 n) {
    .reg .pred %p; .reg .b32 %i, %n, %b, %t; .reg .f32 %x, %y, %a; .reg .b64 %px, %py, %o;
    mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x; mov.u32 %t, %tid.x; mad.lo.u32 %i, %b, %n, %t;
    ld.param.u32 %n, [n]; setp.ge.u32 %p, %i, %n; @%p ret;
    mul.wide.u32 %o, %i, 4; ld.param.u64 %px, [x]; add.u64 %px, %px, %o; ld.param.u64 %py, [y]; add.u64 %py, %py, %o;
    ld.param.f32 %a, [a]; ld.global.f32 %x, [%px]; ld.global.f32 %y, [%py];
    fma.rn.f32 %y, %a, %x, %y; st.global.f32 [%py], %y;
    ret;
}
"""


def matmul() -> str:
    """Tiles of 16 by 16 in shared memory, the loop over a tile unrolled as nvcc does."""
    steps = "".join(
        f"ld.shared.f32 %x, [%row+{4 * k}]; ld.shared.f32 %y, [%col+{4 * TILE * k}]; fma.rn.f32 %sum, %x, %y, %sum;\n" for k in range(TILE)
    )
    return f"""
    .visible .entry matmul(.param .u64 a, .param .u64 b, .param .u64 c) {{
        .shared .align 4 .b8 ta[{4 * TILE * TILE}]; .shared .align 4 .b8 tb[{4 * TILE * TILE}];
        .reg .pred %p; .reg .b32 %tx, %ty, %bx, %by, %i, %s, %sa, %sb, %row, %col, %k; .reg .f32 %x, %y, %sum; .reg .b64 %pa, %pb, %pc, %o;
        mov.u32 %tx, %tid.x; mov.u32 %ty, %tid.y; mov.u32 %bx, %ctaid.x; mov.u32 %by, %ctaid.y;
        mad.lo.u32 %i, %by, {TILE}, %ty; mul.lo.u32 %i, %i, {SIZE}; add.u32 %s, %i, %tx; mul.wide.u32 %o, %s, 4;
        ld.param.u64 %pa, [a]; add.u64 %pa, %pa, %o;
        mad.lo.u32 %s, %bx, {TILE}, %tx; add.u32 %k, %i, %s; mul.wide.u32 %o, %k, 4; ld.param.u64 %pc, [c]; add.u64 %pc, %pc, %o;
        mad.lo.u32 %s, %ty, {SIZE}, %s; mul.wide.u32 %o, %s, 4; ld.param.u64 %pb, [b]; add.u64 %pb, %pb, %o;
        mad.lo.u32 %s, %ty, {TILE}, %tx; shl.b32 %s, %s, 2; mov.u32 %sa, ta; add.u32 %sa, %sa, %s; mov.u32 %sb, tb; add.u32 %sb, %sb, %s;
        mov.u32 %row, ta; mad.lo.u32 %row, %ty, {4 * TILE}, %row; mov.u32 %col, tb; mad.lo.u32 %col, %tx, 4, %col;
        mov.f32 %sum, 0f00000000; mov.u32 %k, 0;
    LOOP:
        ld.global.f32 %x, [%pa]; st.shared.f32 [%sa], %x; ld.global.f32 %y, [%pb]; st.shared.f32 [%sb], %y;
        bar.sync 0;
        {steps}
        bar.sync 0;
        add.u64 %pa, %pa, {4 * TILE}; add.u64 %pb, %pb, {4 * TILE * SIZE}; add.u32 %k, %k, {TILE};
        setp.lt.u32 %p, %k, {SIZE}; @%p bra LOOP;
        st.global.f32 [%pc], %sum;
        ret;
    }}
    """


def long_kernel() -> str:
    """About 300 lines of loads, arithmetic and stores."""
    arithmetic = "fma.rn.f32 %s, %x, %s, %x;\nmul.rn.f32 %y, %s, %x;\nadd.rn.f32 %s, %y, %s;\n"
    body = "".join(f"ld.global.f32 %x, [%p+{4 * n}];\n{arithmetic}st.global.f32 [%p+{4 * n}], %s;\n" for n in range(LONG_LINES // 5))
    return f"""
    .visible .entry long(.param .u64 data) {{
        .reg .f32 %x, %y, %s; .reg .b64 %p; ld.param.u64 %p, [data]; mov.f32 %s, 0f3F800000;
        {body}
        ret;
    }}
    """


def compile_kernel(source: str, name: str) -> CompiledKernel:
    """The kernel, compiled or out of the cache."""
    return parse_module((HEADER + source).encode()).compile(name)


def time_of(work: Callable[[], object]) -> float:
    """Seconds that `work` takes: the median of some rounds."""
    seconds = []
    for _ in range(ROUNDS):
        start_s = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - start_s)
    return statistics.median(seconds)


def first_compile(cache: str) -> float:
    """Seconds for the long kernel in a new process with this cache folder, imports and LLVM's own start not counted."""
    code = f"""
import sys, time
sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / "tools")!r}]
import bench_emulator as b
b.compile_kernel(b.SAXPY.replace("saxpy", "warm"), "warm")
source = b.long_kernel()
start = time.perf_counter()
b.compile_kernel(source, "long")
print(time.perf_counter() - start)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "XDG_CACHE_HOME": cache}, stdout=subprocess.PIPE, text=True, check=True
    )
    return float(done.stdout)


def run_kernel(
    kernel: CompiledKernel, grid: tuple[int, int, int], block: tuple[int, int, int], arrays: list[np.ndarray], more: bytes = b""
) -> None:
    """One launch over arrays as they are; SystemExit if it ends with a fault."""
    allocations = AllocationMap()
    for array in arrays:
        allocations.add(array.ctypes.data, array.nbytes)
    fault = kernel.launch(grid, block, 0, struct.pack(f"<{len(arrays)}Q", *(a.ctypes.data for a in arrays)) + more, allocations)
    if fault is not None:
        raise SystemExit(f"the kernel ended with {fault}")


def measure() -> dict[str, float]:
    """All numbers; results are checked before they count."""
    with tempfile.TemporaryDirectory(prefix="langpu-bench-") as cache:
        numbers = {"compile_s": first_compile(cache), "compile_cached_s": first_compile(cache)}
    generator = np.random.default_rng(1)
    a, b = generator.standard_normal((2, SIZE, SIZE), dtype=np.float32)
    c = np.zeros_like(a)
    product = compile_kernel(matmul(), "matmul")
    numbers["matmul_s"] = time_of(lambda: run_kernel(product, (SIZE // TILE, SIZE // TILE, 1), (TILE, TILE, 1), [a, b, c]))
    np.testing.assert_allclose(c, a @ b, rtol=1e-3, atol=1e-3)
    x, y = generator.standard_normal((2, ELEMENTS), dtype=np.float32)
    before = y.copy()
    saxpy = compile_kernel(SAXPY, "saxpy")
    more = struct.pack("<fI", 2.0, ELEMENTS)
    run_kernel(saxpy, (ELEMENTS // 256, 1, 1), (256, 1, 1), [x, y], more)
    np.testing.assert_allclose(y, 2 * x + before, rtol=1e-5, atol=1e-5)
    numbers["saxpy_s"] = time_of(lambda: run_kernel(saxpy, (ELEMENTS // 256, 1, 1), (256, 1, 1), [x, y], more))
    scratch = np.empty_like(x)

    def numpy_saxpy() -> None:
        np.multiply(x, np.float32(2), out=scratch)
        np.add(scratch, before, out=before)

    def plain_saxpy() -> None:
        nonlocal before
        before = np.float32(2) * x + before

    numbers["numpy_in_place_s"] = time_of(numpy_saxpy)
    numbers["numpy_s"] = time_of(plain_saxpy)
    return numbers


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    numbers = measure()
    if options.json:
        print(json.dumps(numbers))
        return 0
    for name, seconds in numbers.items():
        print(f"{name:18} {seconds * 1000:9.1f} ms")
    plain, in_place = (numbers["saxpy_s"] / numbers[name] for name in ("numpy_s", "numpy_in_place_s"))
    print(f"saxpy takes {plain:.2f} times NumPy's time, {in_place:.2f} times that without temporary arrays")
    return 0


if __name__ == "__main__":
    sys.exit(main())
