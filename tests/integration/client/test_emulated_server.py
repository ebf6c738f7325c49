"""The agent against `langpu serve --emulate`: every kind of hand-written call that needs both sides, with a shim in Python."""

import os
import re
import struct
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from lanGPU.client import pump
from lanGPU.client.link import open_session
from lanGPU.client.session import Session
from lanGPU.client.symbols import ShimSymbols
from lanGPU.driverapi.structs import KERNEL_NODE_PARAMS_V2, LAUNCH_CONFIG, MEMCPY2D
from tests.helpers.fake_shim import FakeShim

pytestmark = pytest.mark.slow

COUNT = 1 << 18
PTX = b""".version 7.0
.target sm_75
.address_size 64
.visible .entry add(.param .u64 a, .param .u32 n, .param .f32 x)
{
 .reg .pred %p<2>; .reg .b32 %r<6>; .reg .b64 %rd<4>; .reg .f32 %f<4>;
 ld.param.u64 %rd1,[a]; ld.param.u32 %r1,[n]; ld.param.f32 %f1,[x];
 mov.u32 %r2,%ctaid.x; mov.u32 %r3,%ntid.x; mov.u32 %r4,%tid.x; mad.lo.s32 %r5,%r2,%r3,%r4;
 setp.ge.s32 %p1,%r5,%r1; @%p1 bra DONE;
 cvta.to.global.u64 %rd1,%rd1; mul.wide.s32 %rd2,%r5,4; add.s64 %rd3,%rd1,%rd2;
 ld.global.f32 %f2,[%rd3]; add.f32 %f3,%f2,%f1; st.global.f32 [%rd3],%f3;
DONE: ret;
}
\0"""
NOT_FOUND, DESTROYED = 500, 709


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    command = [os.path.join(os.path.dirname(sys.executable), "langpu"), "serve", "--emulate", "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        match = re.search(r":(\d+)", process.stdout.readline())
        assert match is not None
        yield int(match.group(1))
    finally:
        process.terminate()
        process.communicate(timeout=60)


class Program:
    """A program with a context and device memory that holds 0, 1, 2…"""

    def __init__(self, port: int) -> None:
        pump.load()
        self.session = Session(
            os.getpid(), lambda pid, name: open_session("127.0.0.1", port, program=name, pid=pid), ShimSymbols(0, {}), program="test"
        )
        self.shim = FakeShim(self.session.ring.fd)
        self.session.start()
        self.out = self.shim.buffer(8)
        self.agent("cuInit", 0)
        self.agent("cuCtxCreate_v2", self.out.address, 0, 0)
        result, outputs = self.shim.sync("cuMemAlloc_v2", 8, 4 * COUNT)
        assert result == 0
        self.device = int.from_bytes(outputs[:8], "little")
        self.values = np.arange(COUNT, dtype=np.float32)
        self.agent("cuMemcpyHtoD_v2", self.device, self.shim.buffer(self.values.tobytes()).address, 4 * COUNT)
        self.image = self.shim.buffer(PTX + bytes(4096))
        self.params = self.shim.buffer(
            struct.pack(
                "<3Q",
                self.shim.buffer(struct.pack("<Q", self.device)).address,
                self.shim.buffer(struct.pack("<I", COUNT)).address,
                self.shim.buffer(struct.pack("<f", 1.5)).address,
            )
        )

    def agent(self, name: str, *args: int, expect: int = 0) -> None:
        assert self.shim.agent(name, *args) == expect, name

    def function(self) -> int:
        self.agent("cuModuleLoadData", self.out.address, self.image.address)
        self.module = self.out.word
        self.agent("cuModuleGetFunction", self.out.address, self.module, self.shim.buffer(b"add\0").address)
        return self.out.word

    def fetch(self) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
        target = self.shim.buffer(4 * COUNT)
        self.agent("cuMemcpyDtoH_v2", target.address, self.device, 4 * COUNT)
        return np.frombuffer(target.bytes, np.float32)


@pytest.fixture
def program(port: int) -> Iterator[Program]:
    made = Program(port)
    yield made
    made.session.close()


def test_launch_with_a_configuration(program: Program) -> None:
    function = program.function()
    config = LAUNCH_CONFIG.pack(gridDimX=COUNT // 256, gridDimY=1, gridDimZ=1, blockDimX=256, blockDimY=1, blockDimZ=1)
    program.agent("cuLaunchKernelEx", program.shim.buffer(config).address, function, program.params.address, 0)
    assert np.array_equal(program.fetch(), program.values + np.float32(1.5))


def test_kernel_of_a_library(program: Program) -> None:
    out = program.out
    program.agent("cuLibraryLoadData", out.address, program.image.address, 0, 0, 0, 0, 0, 0)
    program.agent("cuLibraryGetKernel", out.address, out.word, program.shim.buffer(b"add\0").address)
    program.agent("cuKernelGetFunction", out.address, out.word)
    config = LAUNCH_CONFIG.pack(gridDimX=COUNT // 256, gridDimY=1, gridDimZ=1, blockDimX=256, blockDimY=1, blockDimZ=1)
    program.agent("cuLaunchKernelEx", program.shim.buffer(config).address, out.word, program.params.address, 0)
    assert np.array_equal(program.fetch(), program.values + np.float32(1.5))


def test_graph_of_a_kernel_node(program: Program) -> None:
    function = program.function()
    names = program.session.state.names
    graph, graph_exec = names.take(), names.take()
    assert program.shim.sync("cuGraphCreate", graph, 0)[0] == 0
    node = KERNEL_NODE_PARAMS_V2.pack(
        func=function,
        gridDimX=COUNT // 256,
        gridDimY=1,
        gridDimZ=1,
        blockDimX=256,
        blockDimY=1,
        blockDimZ=1,
        kernelParams=program.params.address,
    )
    program.agent("cuGraphAddKernelNode_v2", program.out.address, graph, 0, 0, program.shim.buffer(node).address)
    added = program.out.word
    number = program.shim.buffer(8)
    program.agent("cuGraphGetNodes", graph, 0, number.address)
    assert number.word == 1
    program.agent("cuGraphGetNodes", graph, program.out.address, number.address)
    assert program.out.word == added
    assert program.shim.sync("cuGraphInstantiateWithFlags", graph_exec, graph, 0)[0] == 0
    for _ in range(2):
        assert program.shim.sync("cuGraphLaunch", graph_exec, 0)[0] == 0
    assert np.array_equal(program.fetch(), program.values + np.float32(3))


def test_missing_function_and_enumeration(program: Program) -> None:
    function = program.function()
    program.agent("cuModuleGetFunction", program.out.address, program.module, program.shim.buffer(b"nope\0").address, expect=NOT_FOUND)
    program.agent("cuModuleEnumerateFunctions", program.out.address, 1, program.module)
    assert program.out.word == function
    program.agent("cuModuleUnload", program.module)
    assert program.shim.sync("cuCtxSynchronize")[0] == 0


def test_unified_and_pitched_copies(program: Program) -> None:
    target = program.shim.buffer(1000)
    program.agent("cuMemcpy", target.address, program.device, 1000)
    assert target.bytes == program.values.tobytes()[:1000]
    copy = MEMCPY2D.pack(
        srcMemoryType=2,
        srcDevice=program.device,
        srcPitch=256,
        dstMemoryType=1,
        dstHost=target.address,
        dstPitch=100,
        WidthInBytes=64,
        Height=10,
    )
    target.set(b"\xee" * 1000)
    program.agent("cuMemcpy2D_v2", program.shim.buffer(copy).address)
    rows = np.frombuffer(target.bytes, np.uint8).reshape(10, 100)
    assert np.array_equal(rows[:, :64].copy().view(np.float32), program.values[:640].reshape(10, 64)[:, :16])
    assert (rows[:, 64:] == 0xEE).all()
    back = MEMCPY2D.pack(
        srcMemoryType=1,
        srcHost=target.address,
        srcPitch=100,
        dstMemoryType=2,
        dstDevice=program.device + 64,
        dstPitch=256,
        WidthInBytes=64,
        Height=10,
    )
    program.agent("cuMemcpy2D_v2", program.shim.buffer(back).address)
    expected = program.values[:640].copy().reshape(10, 64)
    expected[:, 16:32] = expected[:, :16]
    assert np.array_equal(program.fetch()[:640].reshape(10, 64), expected)


def test_pointer_attributes_name_our_context(program: Program) -> None:
    program.agent("cuPointerGetAttribute", program.out.address, 2, program.device + 5)
    assert program.out.word & 0xFFFF_FFFF == 2
    program.agent("cuPointerGetAttribute", program.out.address, 1, program.device)
    assert program.out.word in program.session.state.contexts


def test_primary_context_dies_and_comes_back(program: Program) -> None:
    program.agent("cuDevicePrimaryCtxRetain", program.out.address, 0)
    first = program.out.word
    program.agent("cuCtxSetCurrent", first)
    assert program.shim.sync("cuCtxSynchronize")[0] == 0
    program.agent("cuDevicePrimaryCtxRelease_v2", 0)
    assert program.shim.sync("cuCtxSynchronize")[0] in (DESTROYED, 201)
    program.agent("cuDevicePrimaryCtxRetain", program.out.address, 0)
    assert program.out.word == first
    assert program.shim.sync("cuCtxSynchronize")[0] == 0
