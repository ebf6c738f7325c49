"""Errors of kernels: they come late, stay, and end with their context."""

import sys

import pytest

from tests.helpers.device import EMULATED, Cuda, run_alone

STORE = """
bad = cuda.function(PTX_HEADER + '''
.visible .entry poke(.param .u64 at) {
    .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [at];
    st.global.u32 [%rd1], 7;
    ret;
}''', "poke")
trap = cuda.function(PTX_HEADER + '''
.visible .entry stop() {
    trap;
    ret;
}''', "stop")
"""

PROLOGUE = "cuda.cuInit(0)\ndevice = cuda.cuDeviceGet(0)\ncontext = cuda.cuCtxCreate(None, 0, device)\nU64 = ctypes.c_uint64\n" + STORE


def results(cuda: Cuda, code: str) -> list[str]:
    """What the code prints, a word each; it runs in a process whose CUDA it may ruin."""
    done = run_alone(cuda.kind, PROLOGUE + code)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@pytest.mark.slow
def test_an_illegal_address_is_reported_late_and_stays(cuda: Cuda) -> None:
    printed = results(
        cuda,
        """
pointer = cuda.cuMemAlloc(4)
cuda.launch(bad, 1, 1, ((U64, 0x10),))
print(cuda.fails("cuCtxSynchronize"), cuda.fails("cuMemAlloc", 4), cuda.fails("cuStreamQuery", 0), cuda.fails("cuMemFree", pointer))
""",
    )
    assert printed == ["700"] * 4


@pytest.mark.slow
def test_a_misaligned_address(cuda: Cuda) -> None:
    printed = results(cuda, 'cuda.launch(bad, 1, 1, ((U64, int(cuda.cuMemAlloc(64)) + 2),))\nprint(cuda.fails("cuCtxSynchronize"))')
    assert printed == ["716"]


@pytest.mark.slow
def test_a_trap(cuda: Cuda) -> None:
    assert results(cuda, 'cuda.launch(trap, 1, 1, ())\nprint(cuda.fails("cuCtxSynchronize"))')[0] in ("715", "719")


@pytest.mark.slow
def test_the_memory_behind_an_allocation_is_not_reachable(cuda: Cuda) -> None:
    if cuda.kind != EMULATED:
        pytest.skip("a GPU checks pages, not allocations")
    printed = results(
        cuda,
        """
pointer = cuda.cuMemAlloc(100)
cuda.launch(bad, 1, 1, ((U64, int(pointer) + 96),))
cuda.cuCtxSynchronize()
cuda.launch(bad, 1, 1, ((U64, int(pointer) + 100),))
print(cuda.fails("cuCtxSynchronize"))
""",
    )
    assert printed == ["700"]


@pytest.mark.slow
def test_another_context_is_not_touched(cuda: Cuda) -> None:
    if cuda.kind != EMULATED:
        pytest.skip("on a GPU the whole process is lost")
    printed = results(
        cuda,
        """
cuda.launch(bad, 1, 1, ((U64, 0),))
print(cuda.fails("cuCtxSynchronize"))
cuda.cuCtxDestroy(context)
second = cuda.cuCtxCreate(None, 0, device)
pointer = cuda.put(np.arange(4, dtype=np.uint32))
print(*cuda.get(pointer, 4))
primary = cuda.cuDevicePrimaryCtxRetain(device)
cuda.cuCtxSetCurrent(primary)
bad = cuda.function(PTX_HEADER + ".visible .entry stop() { trap; ret; }", "stop")
cuda.launch(bad, 1, 1, ())
print(cuda.fails("cuCtxSynchronize") != 0, cuda.fails("cuMemAlloc", 4) != 0)
cuda.cuDevicePrimaryCtxReset(device)
print(cuda.fails("cuMemAlloc", 4))
""",
    )
    assert printed == ["700", "0", "1", "2", "3", "True", "True", "0"]


@pytest.mark.slow
def test_the_log_says_where(cuda: Cuda) -> None:
    if cuda.kind != EMULATED:
        pytest.skip("a GPU's driver logs nothing")
    done = run_alone(cuda.kind, PROLOGUE + "cuda.launch(bad, 1, 1, ((U64, 0xABC0),))\ncuda.fails('cuCtxSynchronize')\n")
    assert "poke" in done.stderr
    assert "0xabc0" in done.stderr


@pytest.mark.slow
def test_before_cuinit(cuda: Cuda) -> None:
    done = run_alone(cuda.kind, "print(cuda.fails('cuDeviceGetCount'), cuda.fails('cuCtxGetCurrent'))")
    assert done.stdout.split() == ["3", "3"], done.stderr


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="fork")
def test_a_forked_child_has_no_cuda(cuda: Cuda) -> None:
    code = """
import os
child = os.fork()
if child == 0:
    os._exit(cuda.fails("cuMemAlloc", 4))
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert results(cuda, code) == ["3"]
