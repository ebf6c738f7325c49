"""A CUDA driver for tests that must hold on any device: the emulated one, or a real GPU."""

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from lanGPU.driverapi.model import CallClass
from lanGPU.driverapi.table import ROWS

ROOT: Final = Path(__file__).resolve().parents[2]
EMULATED: Final = "emulated"
REAL: Final = "real"
GIVEN: Final = "given"
"""Whatever libcuda.so.1 the process finds: under `langpu emulate`, for example."""

PTX_HEADER: Final = ".version 7.0\n.target sm_52\n.address_size 64\n"
"""Old enough for every driver and device that is in use."""

# out[i] = a[i] + b[i] for i < n
ADD: Final = (
    PTX_HEADER
    + """
.visible .entry add(.param .u64 a, .param .u64 b, .param .u64 out, .param .u32 n)
{
    .reg .pred %p<2>;
    .reg .f32 %f<4>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [a];
    ld.param.u64 %rd2, [b];
    ld.param.u64 %rd3, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.s32 %r5, %r2, %r3, %r4;
    setp.ge.u32 %p1, %r5, %r1;
    @%p1 bra DONE;
    mul.wide.u32 %rd4, %r5, 4;
    add.s64 %rd5, %rd1, %rd4;
    add.s64 %rd6, %rd2, %rd4;
    add.s64 %rd7, %rd3, %rd4;
    ld.global.f32 %f1, [%rd5];
    ld.global.f32 %f2, [%rd6];
    add.rn.f32 %f3, %f1, %f2;
    st.global.f32 [%rd7], %f3;
DONE:
    ret;
}
"""
)

# *at += by, once a launch of one thread
BUMP: Final = (
    PTX_HEADER
    + """
.visible .entry bump(.param .u64 at, .param .u32 by)
{
    .reg .b32 %r<4>;
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    ld.param.u32 %r1, [by];
    ld.global.u32 %r2, [%rd1];
    add.u32 %r3, %r2, %r1;
    st.global.u32 [%rd1], %r3;
    ret;
}
"""
)

# two kernels, a global variable with a value, a constant
GLOBALS: Final = (
    PTX_HEADER
    + """
.visible .global .align 4 .u32 counter = 40;
.visible .const .align 4 .u32 step = 2;
.visible .entry count_up()
{
    .reg .b32 %r<4>;
    ld.global.u32 %r1, [counter];
    ld.const.u32 %r2, [step];
    add.u32 %r3, %r1, %r2;
    st.global.u32 [counter], %r3;
    ret;
}
.visible .entry count_to(.param .u32 value)
{
    .reg .b32 %r<2>;
    ld.param.u32 %r1, [value];
    st.global.u32 [counter], %r1;
    ret;
}
"""
)

# each block of 64 threads adds its numbers in shared memory, static and dynamic
SUM: Final = (
    PTX_HEADER
    + """
.extern .shared .align 4 .b8 dynamic[];
.visible .entry sum(.param .u64 in, .param .u64 out)
{
    .shared .align 4 .b8 fixed[256];
    .reg .pred %p<3>;
    .reg .b32 %r<20>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mad.lo.u32 %r3, %r2, 64, %r1;
    mul.wide.u32 %rd3, %r3, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.u32 %r4, [%rd4];
    shl.b32 %r5, %r1, 2;
    mov.u32 %r6, fixed;
    add.u32 %r7, %r6, %r5;
    mov.u32 %r8, dynamic;
    add.u32 %r9, %r8, %r5;
    st.shared.u32 [%r7], %r4;
    mov.u32 %r10, 32;
LOOP:
    bar.sync 0;
    ld.shared.u32 %r11, [%r7];
    st.shared.u32 [%r9], %r11;
    bar.sync 0;
    setp.ge.u32 %p1, %r1, %r10;
    @%p1 bra NEXT;
    shl.b32 %r12, %r10, 2;
    add.u32 %r13, %r9, %r12;
    ld.shared.u32 %r14, [%r13];
    add.u32 %r15, %r11, %r14;
    st.shared.u32 [%r7], %r15;
NEXT:
    shr.u32 %r10, %r10, 1;
    setp.ne.u32 %p2, %r10, 0;
    @%p2 bra LOOP;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra DONE;
    ld.shared.u32 %r16, [%r7];
    mul.wide.u32 %rd5, %r2, 4;
    add.s64 %rd6, %rd2, %rd5;
    st.global.u32 [%rd6], %r16;
DONE:
    ret;
}
"""
)


class Cuda:
    """cuda.bindings.driver with checked results: ``cuda.cuMemAlloc(64)`` is the pointer; `fails` gives the CUresult of a call."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        if kind == EMULATED:
            from lanGPU.emulator import library

            library.load()
        from cuda.bindings import driver

        self.driver: Any = driver

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self.driver, name)
        if not name.startswith("cu"):
            return attribute

        def call(*args: Any) -> Any:
            result, *values = attribute(*args)
            if int(result) != 0:
                raise AssertionError(f"{name} returned {result!r}")
            return None if not values else values[0] if len(values) == 1 else tuple(values)

        return call

    def fails(self, name: str, *args: Any) -> int:
        """The CUresult of a call, whatever it is; a posted call's may come with the next one that waits, as asynchronous errors do."""
        result = int(getattr(self.driver, name)(*args)[0])
        if result == 0 and self.kind == GIVEN and _is_posted(name):
            result = int(self.driver.cuCtxSynchronize()[0])
        return result

    def module(self, ptx: str) -> Any:
        """A module loaded from PTX text."""
        return self.cuModuleLoadData(ptx.encode() + b"\0")

    def function(self, ptx: str, name: str) -> Any:
        """A kernel of a module of its own, which lives until the context's end."""
        return self.cuModuleGetFunction(self.module(ptx), name.encode())

    def put(self, array: np.ndarray) -> Any:
        """Device memory with the array's bytes."""
        pointer = self.cuMemAlloc(array.nbytes)
        self.cuMemcpyHtoD(pointer, array.ctypes.data, array.nbytes)
        return pointer

    def get(self, pointer: Any, count: int, dtype: Any = np.uint32) -> np.ndarray:
        """`count` elements of device memory."""
        array = np.empty(count, dtype)
        self.cuMemcpyDtoH(array.ctypes.data, pointer, array.nbytes)
        return array

    def launch(self, function: Any, grid: int, block: int, arguments: tuple[Any, ...], *, stream: Any = 0, shared: int = 0) -> None:
        """Launches with kernelParams made of (ctypes type, value) pairs."""
        self.cuLaunchKernel(function, grid, 1, 1, block, 1, 1, shared, stream, pack(arguments), 0)


def _is_posted(name: str) -> bool:
    """Whether a program on a remote device goes on before the call is carried out."""
    rows = [row for row in ROWS if row.base_name == name]
    return bool(rows) and all(row.call_class in (CallClass.POST, CallClass.POST_NAMED) for row in rows)


def pack(arguments: tuple[Any, ...]) -> Any:
    """What cuda.bindings takes as kernelParams: values, and their types."""
    return (tuple(int(v) if t is not ctypes.c_float else v for t, v in arguments), tuple(t for t, _ in arguments)) if arguments else 0


class Buffer:
    """Kernel parameters in the `extra` form."""

    def __init__(self, data: bytes, size: int | None = None) -> None:
        self.data = ctypes.create_string_buffer(data, max(len(data), 1))
        self.size = ctypes.c_size_t(len(data) if size is None else size)
        self.array = (ctypes.c_void_p * 5)(1, ctypes.addressof(self.data), 2, ctypes.addressof(self.size), 0)

    @property
    def address(self) -> int:
        """The void ** to pass; valid while this object lives."""
        return ctypes.addressof(self.array)


def open_cuda(kind: str) -> Cuda:
    """The driver of that kind in this process; skips where it cannot be had."""
    library: Any = sys.modules.get("lanGPU.emulator.library")
    emulator_loaded = library is not None and library._library is not None
    if kind == REAL:
        if emulator_loaded:
            pytest.skip("the emulated driver is loaded in this process: run tests/gpu by itself")
        try:
            ctypes.CDLL("libcuda.so.1")
        except OSError:
            pytest.skip("no NVIDIA driver (libcuda.so.1) on this machine")
    cuda = Cuda(kind)
    if kind == REAL and (result := cuda.fails("cuInit", 0)) != 0:
        pytest.skip(f"cuInit returned {result}")
    cuda.cuInit(0)
    return cuda


def run_alone(kind: str, code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs Python code in a process of its own, with `cuda` open there: for what ends a process's CUDA."""
    prologue = f"from tests.helpers.device import *\ncuda = Cuda({kind!r})\n"
    return subprocess.run(
        [sys.executable, "-c", prologue + code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
