"""Ctrl-C while the program waits in a driver call.

An exception cannot cross the C caller. So the wait ends with CUDA_ERROR_LAUNCH_TIMEOUT, sticky in every context ("the device kernel took
too long to execute": the kernel may never end, and nothing waits for it again), and the exception is raised again in the main thread as
soon as that is back in the program's own code.
"""

from __future__ import annotations

import _thread
import ctypes
import logging
import sys
import threading
import time
from types import FrameType
from typing import TYPE_CHECKING, Final

from lanGPU.emulator.results import LAUNCH_TIMEOUT

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

logger = logging.getLogger(__name__)

_PACKAGE: Final = "lanGPU.emulator."
_POLL_S: Final = 0.002
_GIVE_UP_S: Final = 5.0


def interrupted(driver: Driver, symbol: str, exc: BaseException) -> int:
    """Ends all waits and sees to it that `exc` comes back once the calling thread has left the driver; returns the CUresult."""
    running = driver.queue.running
    logger.error("%s was interrupted by %s%s", symbol, type(exc).__name__, f" while {running} ran" if running else "")
    driver.give_up()
    threading.Thread(target=_raise_again, args=(threading.get_ident(), exc), name="lanGPU-emulator-interrupt", daemon=True).start()
    return LAUNCH_TIMEOUT


def _raise_again(thread: int, exc: BaseException) -> None:
    """Waits until `thread` runs none of the emulator's code, then raises `exc` there."""
    deadline = time.monotonic() + _GIVE_UP_S
    while _inside(sys._current_frames().get(thread)) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    if isinstance(exc, KeyboardInterrupt):
        _thread.interrupt_main()  # as a SIGINT: the program's own handler decides
    else:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(type(exc)))


def _inside(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith(_PACKAGE):
            return True
        frame = frame.f_back
    return False
