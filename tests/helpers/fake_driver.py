"""A CUDA driver in Python at the boundary the server calls: symbols with 64-bit integer arguments. Records every call."""

import ctypes
import re
from collections.abc import Callable

from lanGPU.constants import CUDA_ERROR_NOT_SUPPORTED, CUDA_SUCCESS
from lanGPU.driverapi import table
from lanGPU.errors import DriverError


def read(address: int, size: int) -> bytes:
    return ctypes.string_at(address, size)


def write(address: int, data: bytes) -> None:
    ctypes.memmove(address, data, len(data))


def read_u64(address: int) -> int:
    return int.from_bytes(read(address, 8), "little")


def write_u64(address: int, value: int) -> None:
    write(address, value.to_bytes(8, "little"))


class FakeDriver:
    """`functions` by symbol; a symbol that is not there is one that this driver lacks. `log`: (symbol, args) in order."""

    def __init__(self) -> None:
        self.emulated = False
        self.functions: dict[str, Callable[..., int]] = {}
        self.log: list[tuple[str, tuple[int, ...]]] = []
        self.current = 0
        self._next = 0x7000
        self._callbacks: dict[str, Callable[..., int]] = {}
        self.functions["cuCtxSetCurrent"] = self._set_current

    def _set_current(self, context: int) -> int:
        self.current = context
        return CUDA_SUCCESS

    def new_handle(self) -> int:
        self._next += 0x10
        return self._next

    def creates(self, symbol: str, position: int = 0) -> None:
        """`symbol` stores a new handle through its argument at `position`."""

        def function(*args: int) -> int:
            write_u64(args[position], self.new_handle())
            return CUDA_SUCCESS

        self.functions[symbol] = function

    def succeeds(self, *symbols: str) -> None:
        for symbol in symbols:
            self.functions[symbol] = lambda *_: CUDA_SUCCESS

    def resolve(self, symbol: str) -> int:
        return 1 if symbol in self.functions else 0

    def entry_point(self, symbol: str) -> int:
        """Address at which machine code can call `symbol`; looks into `functions` when it is called."""
        if symbol not in self._callbacks:
            row = table.BY_NAME[re.sub("_pt(sz|ds)$", "", symbol)]
            prototype = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_uint64] * len(row.args))
            self._callbacks[symbol] = prototype(lambda *args: self.call(symbol, *args))
        return ctypes.cast(self._callbacks[symbol], ctypes.c_void_p).value or 0

    def call(self, symbol: str, *args: int) -> int:
        function = self.functions.get(symbol)
        if function is None:
            return CUDA_ERROR_NOT_SUPPORTED
        self.log.append((symbol, args))
        return function(*args)

    def check(self, symbol: str, *args: int) -> None:
        result = self.call(symbol, *args)
        if result != CUDA_SUCCESS:
            raise DriverError(symbol, result)

    def calls(self, symbol: str) -> list[tuple[int, ...]]:
        return [args for name, args in self.log if name == symbol]
