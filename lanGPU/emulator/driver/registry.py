"""The bodies of driver functions and how they become C entry points.

A body takes the Driver, the current Context where it needs one, and the C arguments as integers. It returns a CUresult or None for
CUDA_SUCCESS, and may raise CuError. Nothing else leaves an entry point: exceptions become CUDA_ERROR_UNKNOWN with a logged traceback.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from lanGPU.driverapi.export_tables import PRIVATE_PREFIX
from lanGPU.emulator.driver.interrupt import interrupted
from lanGPU.emulator.results import NOT_SUPPORTED, OUT_OF_MEMORY, UNKNOWN, CuError
from lanGPU.errors import LanGPUError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

logger = logging.getLogger(__name__)

Function = Callable[..., int | None]
EntryPoint = Callable[..., int]


class Needs(Enum):
    """What must be there before a body runs."""

    NOTHING = "nothing"
    INIT = "cuInit"
    CONTEXT = "current context"


@dataclass(frozen=True, slots=True)
class Body:
    """One ABI symbol's implementation."""

    symbol: str
    function: Function
    needs: Needs
    unsafe: bool
    """"Potentially unsafe" during a stream capture (driver API, stream management): it breaks one that is going on."""


BODIES: dict[str, Body] = {}
PRIVATE_BODIES: dict[str, Body] = {}
"""Bodies of `lanGPU.driverapi.export_tables`' functions, which are reached through cuGetExportTable only."""


def _register(symbols: tuple[str, ...], needs: Needs, unsafe: bool) -> Callable[[Function], Function]:
    def decorate(function: Function) -> Function:
        for symbol in symbols:
            bodies = PRIVATE_BODIES if symbol.startswith(PRIVATE_PREFIX) else BODIES
            if symbol in bodies:
                raise ValueError(f"{symbol} has two bodies")
            bodies[symbol] = Body(symbol, function, needs, unsafe)
        return function

    return decorate


def plain(*symbols: str) -> Callable[[Function], Function]:
    """A body that works before cuInit: ``f(driver, …)``."""
    return _register(symbols, Needs.NOTHING, False)


def initialized(*symbols: str) -> Callable[[Function], Function]:
    """A body that needs cuInit: ``f(driver, …)``."""
    return _register(symbols, Needs.INIT, False)


def in_context(*symbols: str, unsafe: bool = False) -> Callable[[Function], Function]:
    """A body that needs a healthy current context: ``f(driver, context, …)``."""
    return _register(symbols, Needs.CONTEXT, unsafe)


_OBJECTS: Final = {
    **dict.fromkeys(("cuEventQuery", "cuEventSynchronize", "cuEventRecord", "cuEventRecordWithFlags", "cuEventDestroy_v2"), 0),
    **dict.fromkeys(("cuStreamQuery", "cuStreamSynchronize", "cuStreamWaitEvent", "cuStreamDestroy_v2", "cuStreamIsCapturing"), 0),
    "cuEventElapsedTime": 1,
    "cuEventElapsedTime_v2": 1,
}
"""Calls about an event or stream that has a context of its own, and the argument that is it: they need no current context. libcudart
makes them in threads that never had one."""


_PRINTING: Final = frozenset(
    (
        *("cuCtxSynchronize", "cuCtxSynchronize_v2", "cuStreamSynchronize", "cuEventSynchronize", "cuLaunchKernel", "cuLaunchKernelEx"),
        *("cuModuleLoad", "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuModuleUnload", "cuCtxDestroy"),
        *("cuMemcpy", "cuMemcpyHtoD_v2", "cuMemcpyDtoH_v2", "cuMemcpyDtoD_v2", "cuMemcpyAtoH_v2", "cuMemcpyHtoA_v2", "cuMemcpyAtoD_v2"),
        *("cuMemcpyDtoA_v2", "cuMemcpyAtoA_v2", "cuMemcpy2D_v2", "cuMemcpy2DUnaligned_v2", "cuMemcpy3D_v2", "cuMemcpyPeer"),
        *("cuMemcpy3DPeer", "cuLaunchCooperativeKernel"),
    )
)
"""Calls that print what kernels wrote (CUDA C++ Programming Guide, "Formatted Output", "Limitations"); ending a context does by itself."""


def entry_point(driver: Driver, body: Body) -> EntryPoint:
    """`body` bound to `driver`, as a function of integers that returns a CUresult and never raises."""
    if body.symbol in _PRINTING:
        return _printing(driver, _bound(driver, body))
    return _bound(driver, body)


def _printing(driver: Driver, function: EntryPoint) -> EntryPoint:
    def call(*args: int) -> int:
        result = function(*args)
        if driver.outputs:
            try:
                driver.print_output()
            except BaseException as exc:
                return _result_of(driver, "printing what kernels wrote", exc)
        return result

    return call


def _bound(driver: Driver, body: Body) -> EntryPoint:
    function, symbol = body.function, body.symbol
    if body.needs is Needs.CONTEXT:
        unsafe = body.unsafe
        place = _OBJECTS.get(symbol, -1)

        def call(*args: int) -> int:
            try:
                context = driver.require_context() if place < 0 else driver.context_for(args[place])
                if unsafe and driver.captures:
                    driver.break_captures(symbol)
                return function(driver, context, *args) or 0
            except BaseException as exc:
                return _result_of(driver, symbol, exc)

    elif body.needs is Needs.INIT:

        def call(*args: int) -> int:
            try:
                driver.require_init()
                return function(driver, *args) or 0
            except BaseException as exc:
                return _result_of(driver, symbol, exc)

    else:

        def call(*args: int) -> int:
            try:
                return function(driver, *args) or 0
            except BaseException as exc:
                return _result_of(driver, symbol, exc)

    return call


def unsupported(symbol: str) -> EntryPoint:
    """An entry point that answers CUDA_ERROR_NOT_SUPPORTED and logs its name the first time."""
    told = False

    def call(*args: Any) -> int:
        nonlocal told
        if not told:
            told = True
            logger.warning("%s is not supported by the emulated driver", symbol)
        return NOT_SUPPORTED

    return call


def _result_of(driver: Driver, symbol: str, exc: BaseException) -> int:
    """The CUresult that stands for an exception; the last frame before C."""
    if isinstance(exc, CuError):
        if exc.detail:
            logger.info("%s: %s", symbol, exc.detail)
        return exc.result
    if isinstance(exc, LanGPUError):
        logger.error("%s: %s", symbol, exc)
        return exc.cu_result
    if isinstance(exc, MemoryError):
        logger.error("%s: out of host memory", symbol)
        return OUT_OF_MEMORY
    if not isinstance(exc, Exception):
        return interrupted(driver, symbol, exc)
    logger.error("the emulated driver failed in %s", symbol, exc_info=exc)
    return UNKNOWN
