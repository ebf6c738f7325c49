"""The CUDA driver of this process: which one, and where its entry points are."""

import ctypes
import os
import sys
from collections.abc import Callable
from typing import Any, Final

from lanGPU.constants import CUDA_ERROR_NO_DEVICE, CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS
from lanGPU.errors import DriverError, NoDeviceError

LIBRARY_NAME: Final = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
CUDA_ERROR_STUB_LIBRARY: Final = 34
CU_GET_PROC_ADDRESS_LEGACY_STREAM: Final = 1
CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM: Final = 2
PER_THREAD_SUFFIXES: Final = ("_ptsz", "_ptds")
NO_DRIVER_HINT: Final = "install the NVIDIA driver, or serve an emulated device with `langpu serve --emulate`"


def _loaded_library() -> ctypes.CDLL | None:
    """The driver library that cuda.bindings (or the emulator) loaded, without loading another; None if the platform cannot tell."""
    if sys.platform == "win32":
        try:
            return ctypes.CDLL(LIBRARY_NAME)  # a DLL of this name that is loaded already is the one returned
        except OSError:
            return None
    try:
        return ctypes.CDLL(LIBRARY_NAME, mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except OSError:
        return None


class Driver:
    """Entry points of the loaded driver by exact ABI symbol. Thread-safe; calls release the GIL.

    Raises:
        NoDeviceError: this machine has no CUDA driver; the message names --emulate.
    """

    def __init__(self, *, emulate: bool = False) -> None:
        self.emulated = emulate
        if emulate:
            from lanGPU.emulator import library

            library.load()  # before cuda.bindings looks for a driver, so that it finds this one
        from cuda.bindings import driver as bindings

        self._bindings: Any = bindings
        try:
            bindings.cuDriverGetVersion()  # makes cuda.bindings load the library; needs neither device nor cuInit
        except RuntimeError as exc:  # the base of what its loader raises, in every release
            raise NoDeviceError(f"this machine has no NVIDIA driver ({LIBRARY_NAME} was not found)", hint=NO_DRIVER_HINT) from exc
        self._library = _loaded_library()
        self._addresses: dict[str, int] = {}
        self._functions: dict[tuple[str, int], Callable[..., int]] = {}

    def resolve(self, symbol: str) -> int:
        """Address of the entry point `symbol` (``cuMemAlloc_v2``, ``cuLaunchKernel_ptsz``); 0: this driver lacks it."""
        address = self._addresses.get(symbol)
        if address is None:
            address = self._find(symbol)
            self._addresses[symbol] = address
        return address

    def _find(self, symbol: str) -> int:
        # The exact symbol first: asked by base name and version, a driver chooses the variant itself.
        if self._library is not None:
            try:
                return ctypes.cast(getattr(self._library, symbol), ctypes.c_void_p).value or 0
            except AttributeError:
                pass
        base, flags = symbol, CU_GET_PROC_ADDRESS_LEGACY_STREAM
        for suffix in PER_THREAD_SUFFIXES:
            if symbol.endswith(suffix):
                base, flags = symbol.removesuffix(suffix), CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM
        from lanGPU.driverapi import table

        row = table.BY_NAME.get(base)
        if row is None:
            return 0
        result = self._bindings.cuGetProcAddress(row.base_name.encode(), row.since, flags)
        return int(result[1] or 0) if int(result[0]) == CUDA_SUCCESS and len(result) > 1 else 0

    def function(self, symbol: str, arguments: int) -> Callable[..., int] | None:
        """`symbol` as a callable of that many 64-bit integers (addresses, handles and counts alike); None: this driver lacks it."""
        key = (symbol, arguments)
        function = self._functions.get(key)
        if function is None:
            address = self.resolve(symbol)
            if not address:
                return None
            prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * arguments)
            function = self._functions[key] = prototype(address)
        return function

    def call(self, symbol: str, *args: int) -> int:
        """CUresult of `symbol`; CUDA_ERROR_NOT_SUPPORTED if this driver lacks it."""
        function = self.function(symbol, len(args))
        return CUDA_ERROR_NOT_SUPPORTED if function is None else function(*args)

    def version(self) -> int:
        """What cuDriverGetVersion reports: 13000 for CUDA 13.0."""
        value = ctypes.c_int()
        self.check("cuDriverGetVersion", ctypes.addressof(value))
        return value.value

    def check(self, symbol: str, *args: int) -> None:
        """Calls `symbol`; DriverError unless it succeeds."""
        result = self.call(symbol, *args)
        if result != CUDA_SUCCESS:
            raise DriverError(symbol, result)

    def initialize(self) -> None:
        """cuInit.

        Raises:
            NoDeviceError: a driver without a device, or one that cannot start; the message says which.
        """
        result = self.call("cuInit", 0)
        if result == CUDA_SUCCESS:
            return
        if result == CUDA_ERROR_NO_DEVICE:
            message = "this machine has an NVIDIA driver but no CUDA device"
        elif result == CUDA_ERROR_STUB_LIBRARY:
            message = f"{LIBRARY_NAME} is only the stub that CUDA's toolkit links against, not a driver"
        else:
            message = f"the NVIDIA driver does not start: cuInit returned {result}"
        raise NoDeviceError(message, hint="see `nvidia-smi`, or serve an emulated device with `langpu serve --emulate`")
