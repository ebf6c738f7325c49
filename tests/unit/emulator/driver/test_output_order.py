"""Where kernels' output stands among what host functions print."""

from tests.contract.test_device_runtime import SAY
from tests.helpers.device import EMULATED, run_alone


def test_a_host_function_comes_after_what_kernels_before_it_printed() -> None:
    done = run_alone(
        EMULATED,
        SAY
        + r"""
note = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: tell("host function"))
post(b"kernel\n")
cuda.cuLaunchHostFunc(0, cuda.CUhostFn(ctypes.cast(note, ctypes.c_void_p).value), 0)
post(b"later\n")
cuda.cuCtxSynchronize()
""",
    )
    assert done.stdout.splitlines() == ["kernel", "host function", "later"], done.stderr
