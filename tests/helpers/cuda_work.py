"""Imported by programs under test, which run with the generated shim: a little computing on CUDA. No numpy, nothing of lanGPU."""

import ctypes
from typing import Any

from cuda.bindings import driver

PTX = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 data, .param .u32 factor, .param .u32 n)
{
.reg .pred %p<2>;
.reg .b32 %r<8>;
.reg .b64 %rd<4>;
ld.param.u64 %rd1, [data];
ld.param.u32 %r1, [factor];
ld.param.u32 %r2, [n];
mov.u32 %r3, %ctaid.x;
mov.u32 %r4, %ntid.x;
mov.u32 %r5, %tid.x;
mad.lo.s32 %r6, %r3, %r4, %r5;
setp.ge.u32 %p1, %r6, %r2;
@%p1 ret;
mul.wide.u32 %rd2, %r6, 4;
add.s64 %rd3, %rd1, %rd2;
ld.global.u32 %r7, [%rd3];
mul.lo.u32 %r7, %r7, %r1;
st.global.u32 [%rd3], %r7;
ret;
}
.visible .entry endless(.param .u64 flag)
{
.reg .pred %q<2>;
.reg .b32 %s<2>;
.reg .b64 %sd<2>;
ld.param.u64 %sd1, [flag];
AGAIN:
ld.volatile.global.u32 %s1, [%sd1];
setp.eq.u32 %q1, %s1, 0;
@%q1 bra AGAIN;
ret;
}
\0"""


def check(answer: tuple[Any, ...]) -> Any:
    """Raise if a call failed, else what it returned besides the error code."""
    error, *values = answer
    if error:
        raise RuntimeError(f"{error!r}")
    return values[0] if len(values) == 1 else tuple(values)


class Device:
    """The first device, its primary context current in the calling thread."""

    def __init__(self) -> None:
        check(driver.cuInit(0))
        self.context = check(driver.cuDevicePrimaryCtxRetain(check(driver.cuDeviceGet(0))))
        self.enter()
        self.module = check(driver.cuModuleLoadData(PTX))

    def enter(self) -> None:
        """Make the context current."""
        check(driver.cuCtxSetCurrent(self.context))

    def launch(self, name: bytes, grid: int, *arguments: Any, stream: Any = 0) -> None:
        """Start a kernel."""
        function = check(driver.cuModuleGetFunction(self.module, name))
        pointers = (ctypes.c_void_p * len(arguments))(*[ctypes.addressof(a) for a in arguments])
        check(driver.cuLaunchKernel(function, grid, 1, 1, 64, 1, 1, 0, stream, ctypes.addressof(pointers), 0))

    def compute(self, factor: int, n: int = 1000, stream: Any = 0) -> int:
        """The sum of 1…n, times `factor`, by way of the device."""
        values = (ctypes.c_uint32 * n)(*range(1, n + 1))
        data = check(driver.cuMemAlloc(4 * n))
        check(driver.cuMemcpyHtoD(data, ctypes.addressof(values), 4 * n))
        self.launch(b"scale", (n + 63) // 64, ctypes.c_uint64(int(data)), ctypes.c_uint32(factor), ctypes.c_uint32(n), stream=stream)
        check(driver.cuCtxSynchronize())
        check(driver.cuMemcpyDtoH(ctypes.addressof(values), data, 4 * n))
        check(driver.cuMemFree(data))
        return sum(values)

    def start_endless(self) -> None:
        """A kernel that waits for memory which nobody will change."""
        flag = check(driver.cuMemAlloc(8))
        check(driver.cuMemsetD8(flag, 0, 8))
        self.launch(b"endless", 1, ctypes.c_uint64(int(flag)))


def expected(factor: int, n: int = 1000) -> int:
    """What `compute` must return."""
    return sum(i * factor & 0xFFFF_FFFF for i in range(1, n + 1))
