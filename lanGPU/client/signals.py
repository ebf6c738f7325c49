"""Signals as file descriptor events that tell who sent them: Python's own handlers do not say whether the terminal did."""

import asyncio
import ctypes
import os
import signal
import struct
from collections.abc import Callable, Iterable
from typing import Final

_SIGNALFD_SIGINFO_BYTES: Final = 128
_HEAD: Final = struct.Struct("<IiiI")  # signo, errno, code, pid
_SFD_CLOEXEC: Final = 0o2000000
_SFD_NONBLOCK: Final = 0o4000
_SIGSET_BYTES: Final = 128
SI_KERNEL: Final = 0x80
"""si_code of a signal from the terminal (Ctrl-C): it went to the whole foreground group, the program included."""

PASSED_ON: Final = (signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


class SignalEvents:
    """Blocks `signals` in this thread (and those it starts) and reports them as (number, from the terminal) on the event loop."""

    def __init__(self, signals: Iterable[signal.Signals], on_signal: Callable[[signal.Signals, bool], None]) -> None:
        wanted = set(signals)
        self._on_signal = on_signal
        self.previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, wanted)
        mask = sum(1 << (s - 1) for s in wanted)
        sigset = (ctypes.c_ubyte * _SIGSET_BYTES).from_buffer_copy(mask.to_bytes(_SIGSET_BYTES, "little"))
        libc = ctypes.CDLL(None, use_errno=True)
        self._fd = libc.signalfd(-1, ctypes.byref(sigset), _SFD_CLOEXEC | _SFD_NONBLOCK)
        if self._fd < 0:
            code = ctypes.get_errno()
            signal.pthread_sigmask(signal.SIG_SETMASK, self.previous_mask)
            raise OSError(code, os.strerror(code))
        asyncio.get_running_loop().add_reader(self._fd, self._read)

    def _read(self) -> None:
        try:
            data = os.read(self._fd, _SIGNALFD_SIGINFO_BYTES * 8)
        except BlockingIOError:
            return
        for at in range(0, len(data), _SIGNALFD_SIGINFO_BYTES):
            number, _, code, _ = _HEAD.unpack_from(data, at)
            self._on_signal(signal.Signals(number), code == SI_KERNEL)

    def close(self) -> None:
        """Signals act as before again."""
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)
        signal.pthread_sigmask(signal.SIG_SETMASK, self.previous_mask)
