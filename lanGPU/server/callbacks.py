"""Functions of the program that the device's work calls: host functions in streams and graphs, destructors of user objects.

The driver gets functions of ours instead, and the callback's number as their argument. They ask the client to call the program's
function and wait until it did, so that work behind them in the stream waits, too. They run on threads of the driver's, while the issuing
thread may be in the driver, waiting for this very function: they take no lock of the issuer's.
"""

import ctypes
import itertools
import logging
import threading
from collections.abc import Callable
from typing import Final

from lanGPU.constants import CUDA_SUCCESS
from lanGPU.wire.frames import encode_host_call

_log = logging.getLogger(__name__)
_HOST_FUNCTION: Final = ctypes.CFUNCTYPE(None, ctypes.c_uint64)
"""CUhostFn: void (void *userData)."""
_STREAM_CALLBACK: Final = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_int, ctypes.c_uint64)
"""CUstreamCallback: void (CUstream, CUresult, void *userData)."""


class HostCalls:
    """The host calls of one session. `send` takes a whole frame, from any thread; `listen` is called once, before the first registration:
    from then on `done` must be called whatever the issuing thread does."""

    def __init__(self, send: Callable[[bytes], None], listen: Callable[[], None]) -> None:
        self._send = send
        self._listen = listen
        self._listening = False
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._waiting: dict[int, threading.Event] = {}
        self._over = False
        # Kept: the driver calls them as long as the process lives.
        self._functions = (
            _HOST_FUNCTION(lambda callback: self._call(callback, CUDA_SUCCESS)),
            _STREAM_CALLBACK(lambda _stream, status, callback: self._call(callback, status)),
            _HOST_FUNCTION(self._tell),
        )
        self.host_function, self.stream_callback, self.destructor = (
            ctypes.cast(function, ctypes.c_void_p).value or 0 for function in self._functions
        )

    def listen(self) -> None:
        """A function is about to be registered."""
        if not self._listening:
            self._listening = True
            self._listen()

    def _call(self, callback: int, status: int) -> None:
        """Has the client call, and waits for it. Must not raise: C code called."""
        returned = threading.Event()
        with self._lock:
            if self._over:
                return
            number = next(self._numbers)
            self._waiting[number] = returned
        try:
            self._send(encode_host_call(number, callback, status))
        except OSError as exc:
            _log.debug("the client is gone: %s", exc)
            return
        returned.wait()

    def _tell(self, callback: int) -> None:
        """Has the client call a destructor; nobody waits for it."""
        try:
            self._send(encode_host_call(0, callback, CUDA_SUCCESS))
        except OSError as exc:
            _log.debug("the client is gone: %s", exc)

    def done(self, number: int) -> None:
        """The client's function returned; a number that nobody waits for is ignored."""
        with self._lock:
            returned = self._waiting.pop(number, None)
        if returned is not None:
            returned.set()

    def end(self) -> None:
        """The client is gone: nobody waits for it any more."""
        with self._lock:
            self._over = True
            waiting, self._waiting = self._waiting, {}
        for returned in waiting.values():
            returned.set()
