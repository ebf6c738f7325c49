"""Initialisation, versions, error texts, entry points, profiler control."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi import results as texts
from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.exports import proc_address
from lanGPU.emulator.config import DRIVER_VERSION
from lanGPU.emulator.driver.cabi import get_cstring, need, put_i32, put_u32, put_u64, static_string
from lanGPU.emulator.driver.registry import initialized, plain
from lanGPU.emulator.results import INVALID_VALUE, NOT_FOUND, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

logger = logging.getLogger(__name__)

_QUERY: Final = ENUMS["CUdriverProcAddressQueryResult"]
_PER_THREAD: Final = ENUMS["CUdriverProcAddress_flags"]["CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM"]
_FIRST_VERSION: Final = 2000


def _no_entry(symbol: str) -> int:
    return 0


entry_address: Callable[[str], int] = _no_entry
"""Exported symbol -> address of its trampoline, 0 for none; set by `lanGPU.emulator.library`."""


@plain("cuInit")
def init(d: Driver, flags: int) -> None:
    if flags:
        raise CuError(INVALID_VALUE)
    if d.forked:
        d.require_init()
    d.ready = True


@plain("cuDriverGetVersion")
def driver_get_version(d: Driver, version: int) -> None:
    put_i32(version, DRIVER_VERSION)


@plain("cuGetErrorName")
def get_error_name(d: Driver, error: int, text: int) -> int | None:
    return _error_text(texts.name(error) if texts.is_known(error) else None, text)


@plain("cuGetErrorString")
def get_error_string(d: Driver, error: int, text: int) -> int | None:
    return _error_text(texts.text(error) if texts.is_known(error) else None, text)


def _error_text(known: str | None, text: int) -> int | None:
    put_u64(text, static_string(known) if known else 0)
    return None if known else INVALID_VALUE


def _find_entry(symbol: int, pfn: int, version: int, flags: int, status: int) -> bool:
    name = get_cstring(symbol)
    need(pfn)
    found = proc_address(name, version, bool(flags & _PER_THREAD))
    address = entry_address(found) if found else 0
    if status:
        if address:
            answer = "CU_GET_PROC_ADDRESS_SUCCESS"
        elif proc_address(name, 1 << 30):
            answer = "CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT"
        else:
            answer = "CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND"
        put_u32(status, _QUERY[answer])
    put_u64(pfn, address)
    return bool(address)


@plain("cuGetProcAddress")
def get_proc_address(d: Driver, symbol: int, pfn: int, version: int, flags: int) -> int | None:
    return None if _find_entry(symbol, pfn, version, flags, 0) else NOT_FOUND


@plain("cuGetProcAddress_v2")
def get_proc_address_v2(d: Driver, symbol: int, pfn: int, version: int, flags: int, status: int) -> None:
    _find_entry(symbol, pfn, version, flags, status)  # a symbol that is not there is no error (cuda.h): the status says so


@initialized("cuModuleGetLoadingMode")
def module_get_loading_mode(d: Driver, mode: int) -> None:
    eager = os.environ.get("CUDA_MODULE_LOADING", "").strip().upper() == "EAGER"
    put_u32(mode, ENUMS["CUmoduleLoadingMode"]["CU_MODULE_EAGER_LOADING" if eager else "CU_MODULE_LAZY_LOADING"])


@initialized("cuProfilerStart", "cuProfilerStop")
def profiler_control(d: Driver) -> None:
    """Success: collection is on or off for a profiler that is attached, and none is."""
