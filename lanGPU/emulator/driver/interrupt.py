"""Ctrl-C while the program waits in a driver call.

An exception cannot cross the C caller. So the wait ends with CUDA_ERROR_LAUNCH_TIMEOUT, sticky in every context ("the device kernel took
too long to execute": the kernel may never end, and nothing waits for it again), and a KeyboardInterrupt comes again as soon as the main
thread is back in the program's own code, before that can act on the result.
"""

from __future__ import annotations

import ctypes
import logging
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from lanGPU.emulator.results import LAUNCH_TIMEOUT

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

logger = logging.getLogger(__name__)

_ENTRY_MODULE: Final = "lanGPU.emulator.driver.registry"
_PENDING_CALL: Final = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
_add_pending_call: Final[Callable[..., int]] = ctypes.pythonapi.Py_AddPendingCall
_set_interrupt: Final = ctypes.cast(ctypes.pythonapi.PyErr_SetInterruptEx, ctypes.c_void_p)
"""``int PyErr_SetInterruptEx(int)``: as a pending call with the signal's number for an argument it needs no bytecode of ours."""
_kept: list[Any] = []
"""Calls that are pending: the interpreter holds bare addresses. A handful in a program's life."""


def interrupted(driver: Driver, symbol: str, exc: BaseException) -> int:
    """Ends all waits and sees to it that `exc` comes back once the calling thread has left the driver; returns the CUresult."""
    running = driver.queue.running
    logger.error("%s was interrupted by %s%s", symbol, type(exc).__name__, f" while {running} ran" if running else "")
    driver.give_up()
    if isinstance(exc, KeyboardInterrupt):  # others, of a program's own signal handlers, end in the result alone
        _interrupt_outside(_entry_frame())
    return LAUNCH_TIMEOUT


def _interrupt_outside(entry: FrameType | None) -> None:
    """Simulates SIGINT at the main thread's first look at pending calls outside the frame `entry`; the program's handler decides."""

    def look(_argument: object) -> int:
        if _contains(sys._getframe(), entry):
            _add_pending_call(call, None)
        else:
            _add_pending_call(_set_interrupt, ctypes.c_void_p(signal.SIGINT))
        return 0

    call = _PENDING_CALL(look)
    _kept.append(call)
    _add_pending_call(call, None)


def _entry_frame() -> FrameType | None:
    """The frame that C called."""
    found: FrameType | None = None
    frame: FrameType | None = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__") == _ENTRY_MODULE:
            found = frame
        elif found is not None:
            break
        frame = frame.f_back
    return found


def _contains(frame: FrameType | None, wanted: FrameType | None) -> bool:
    while frame is not None:
        if frame is wanted:
            return True
        frame = frame.f_back
    return False
