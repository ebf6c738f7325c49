"""Cooperative launches: all blocks are at work at once and may wait for each other."""

import ctypes
from typing import Any

import numpy as np
import pytest

from tests.helpers.device import Cuda, run_alone

U64, U32 = ctypes.c_uint64, ctypes.c_uint32

# Blocks meet `rounds` times at a barrier: that at address `barrier`, or where it is 0 the launch's own, which %envreg1 and %envreg2 tell
# (as cooperative groups have it). Between two meetings each block writes the round to its place in `data`, and counts in *wrong when its
# neighbour has not. Block `stop` traps instead of meeting the others.
MEET = """.version 7.0
.target sm_60
.address_size 64
.visible .entry meet(.param .u64 data, .param .u64 wrong, .param .u64 barrier, .param .u32 rounds, .param .u32 stop)
{
    .reg .pred %p<8>;
    .reg .b32 %r<32>;
    .reg .b64 %rd<16>;
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [wrong];
    ld.param.u64 %rd3, [barrier];
    ld.param.u32 %r1, [rounds];
    ld.param.u32 %r20, [stop];
    setp.ne.s64 %p1, %rd3, 0;
    @%p1 bra GIVEN;
    mov.u32 %r2, %envreg1;
    mov.u32 %r3, %envreg2;
    cvt.u64.u32 %rd4, %r2;
    cvt.u64.u32 %rd5, %r3;
    shl.b64 %rd4, %rd4, 32;
    or.b64 %rd3, %rd4, %rd5;
    setp.ne.s64 %p2, %rd3, 0;
    @%p2 bra OWN;
    trap;
OWN:
    add.s64 %rd3, %rd3, 4;
GIVEN:
    mov.u32 %r4, %ctaid.x;
    mov.u32 %r5, %nctaid.x;
    mov.u32 %r6, %tid.x;
    mul.wide.u32 %rd6, %r4, 4;
    add.s64 %rd7, %rd1, %rd6;
    add.s32 %r7, %r4, 1;
    rem.u32 %r7, %r7, %r5;
    mul.wide.u32 %rd8, %r7, 4;
    add.s64 %rd9, %rd1, %rd8;
    sub.s32 %r8, 0x80000001, %r5;
    setp.eq.s32 %p3, %r4, 0;
    selp.b32 %r8, %r8, 1, %p3;
    setp.eq.s32 %p4, %r6, 0;
    mov.u32 %r9, 0;
ROUND:
    setp.ge.u32 %p5, %r9, %r1;
    @%p5 bra END;
    add.s32 %r9, %r9, 1;
    st.volatile.global.u32 [%rd7], %r9;
    bar.sync 0;
    @!%p4 bra MET;
    membar.gl;
    setp.ne.u32 %p6, %r20, %r4;
    @%p6 bra ON;
    trap;
ON:
    atom.global.add.u32 %r10, [%rd3], %r8;
POLL:
    ld.volatile.global.u32 %r11, [%rd3];
    xor.b32 %r12, %r11, %r10;
    setp.gt.s32 %p7, %r12, -1;
    @%p7 bra POLL;
MET:
    bar.sync 0;
    ld.volatile.global.u32 %r13, [%rd9];
    setp.ge.u32 %p6, %r13, %r9;
    @%p6 bra ROUND;
    atom.global.add.u32 %r14, [%rd2], 1;
    bra ROUND;
END:
    ret;
}
"""
NOBODY = 0xFFFFFFFF


class Meeting:
    """The kernel with its memory."""

    def __init__(self, cuda: Cuda) -> None:
        self.cuda = cuda
        self.function = cuda.function(MEET, "meet")
        per = cuda.cuOccupancyMaxActiveBlocksPerMultiprocessor(self.function, 64, 0)
        count = cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, cuda.cuDeviceGet(0))
        self.most = per * count
        self.blocks = min(self.most, 9)
        self.data = cuda.put(np.zeros(self.most, np.uint32))
        self.wrong = cuda.put(np.zeros(1, np.uint32))

    def arguments(self, rounds: int = 5, barrier: int = 0, stop: int = NOBODY) -> Any:
        values = (int(self.data), int(self.wrong), barrier, rounds, stop)
        return values, (U64, U64, U64, U32, U32)

    def config(self, blocks: int, stream: Any = 0) -> Any:
        cuda = self.cuda
        config, attribute = cuda.CUlaunchConfig(), cuda.CUlaunchAttribute()
        config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = 64, 1, 1
        attribute.id = cuda.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_COOPERATIVE
        attribute.value.cooperative = 1
        config.hStream, config.numAttrs, config.attrs = stream, 1, [attribute]
        return config

    def check(self, blocks: int, rounds: int = 5) -> None:
        assert self.cuda.get(self.wrong, 1)[0] == 0
        assert (self.cuda.get(self.data, blocks) == rounds).all()


@pytest.fixture
def meeting(cuda: Cuda, context: Any) -> Meeting:
    device = cuda.cuDeviceGet(0)
    if not cuda.cuDeviceGetAttribute(cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device):
        pytest.skip("the device has no cooperative launch")
    return Meeting(cuda)


def test_blocks_wait_for_each_other(cuda: Cuda, meeting: Meeting) -> None:
    cuda.cuLaunchCooperativeKernel(meeting.function, meeting.blocks, 1, 1, 64, 1, 1, 0, 0, meeting.arguments())
    meeting.check(meeting.blocks)


def test_as_many_blocks_as_the_device_holds_and_again(cuda: Cuda, meeting: Meeting) -> None:
    for rounds in (1, 3):
        cuda.cuLaunchCooperativeKernel(meeting.function, meeting.most, 1, 1, 64, 1, 1, 0, 0, meeting.arguments(rounds))
        meeting.check(meeting.most, rounds)


def test_the_barrier_may_lie_in_the_programs_own_memory(cuda: Cuda, meeting: Meeting) -> None:
    barrier = cuda.put(np.zeros(1, np.uint32))
    cuda.cuLaunchCooperativeKernel(meeting.function, meeting.blocks, 1, 1, 64, 1, 1, 0, 0, meeting.arguments(4, int(barrier)))
    meeting.check(meeting.blocks, 4)


def test_one_block_too_many(cuda: Cuda, meeting: Meeting) -> None:
    result = cuda.fails("cuLaunchCooperativeKernel", meeting.function, meeting.most + 1, 1, 1, 64, 1, 1, 0, 0, meeting.arguments())
    assert result == cuda.CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
    cuda.cuLaunchCooperativeKernel(meeting.function, meeting.blocks, 1, 1, 64, 1, 1, 0, 0, meeting.arguments())  # that was no sticky error
    meeting.check(meeting.blocks)


def test_the_launch_attribute(cuda: Cuda, meeting: Meeting) -> None:
    config = meeting.config(meeting.blocks)
    cuda.cuLaunchKernelEx(config, meeting.function, meeting.arguments(), 0)
    meeting.check(meeting.blocks)
    result = cuda.fails("cuLaunchKernelEx", meeting.config(meeting.most + 1), meeting.function, meeting.arguments(), 0)
    assert result == cuda.CUresult.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE


def result_alone(cuda: Cuda, launch: str) -> int:
    """What the context answers after the launch, in a process whose CUDA it ruins."""
    code = (
        "from tests.contract.test_cooperative import Meeting\ncuda.cuInit(0)\n"
        "context = cuda.cuCtxCreate(None, 0, cuda.cuDeviceGet(0))\nmeeting = Meeting(cuda)\n"
        f"{launch}\nprint(cuda.fails('cuCtxSynchronize'))\n"
    )
    done = run_alone(cuda.kind, code)
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


def test_a_usual_launch_has_no_barrier(cuda: Cuda, meeting: Meeting) -> None:
    assert result_alone(cuda, "cuda.cuLaunchKernel(meeting.function, 1, 1, 1, 64, 1, 1, 0, 0, meeting.arguments(), 0)") != 0


def test_a_block_that_stops_does_not_leave_the_others_waiting(cuda: Cuda, meeting: Meeting) -> None:
    launch = "cuda.cuLaunchCooperativeKernel(meeting.function, meeting.blocks, 1, 1, 64, 1, 1, 0, 0, meeting.arguments(stop=1))"
    assert result_alone(cuda, launch) != 0


def test_a_captured_launch_stays_cooperative(cuda: Cuda, meeting: Meeting) -> None:
    stream = cuda.cuStreamCreate(0)
    cuda.cuStreamBeginCapture(stream, cuda.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_GLOBAL)
    cuda.cuLaunchCooperativeKernel(meeting.function, meeting.blocks, 1, 1, 64, 1, 1, 0, stream, meeting.arguments(3))
    executable = cuda.cuGraphInstantiate(cuda.cuStreamEndCapture(stream), 0)
    for _ in range(2):
        cuda.cuGraphLaunch(executable, stream)
        cuda.cuStreamSynchronize(stream)
        meeting.check(meeting.blocks, 3)
