"""State of a thread that belongs to stream capture."""

from lanGPU.client.calls.devices import need_pointer, write_i32
from lanGPU.client.calls.effects import ReadMemory, Steps
from lanGPU.client.calls.registry import client_call
from lanGPU.client.calls.state import Call
from lanGPU.constants import CUDA_ERROR_INVALID_VALUE, CUDA_SUCCESS

_MODES = 3
"""CU_STREAM_CAPTURE_MODE_GLOBAL, THREAD_LOCAL, RELAXED."""


@client_call("cuThreadExchangeStreamCaptureMode")
def exchange_mode(call: Call, mode: int) -> Steps:
    """Swaps the thread's mode with the program's word."""
    need_pointer(mode)
    wanted = int.from_bytes((yield ReadMemory(mode, 4)), "little")
    if wanted >= _MODES:
        return CUDA_ERROR_INVALID_VALUE
    yield write_i32(mode, call.thread.capture_mode)
    call.thread.capture_mode = wanted
    return CUDA_SUCCESS
