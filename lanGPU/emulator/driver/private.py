"""The private tables of cuGetExportTable (`lanGPU.driverapi.export_tables`), as libcudart uses them."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Callable
from threading import Lock, get_ident
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.export_tables import BY_ID, ITERATED, TOOLS_BUFFER_BYTES, UNNAMED, CheckAddresses, CheckedDevice, driver_check
from lanGPU.emulator.config import DRIVER_VERSION
from lanGPU.emulator.driver import general
from lanGPU.emulator.driver.cabi import get_bytes, need, put_bytes, put_u32, put_u64
from lanGPU.emulator.driver.contexts import create_context, primary_of
from lanGPU.emulator.driver.modules import function_of, module_load_data
from lanGPU.emulator.driver.objects import Context, Module
from lanGPU.emulator.driver.registry import initialized, plain
from lanGPU.emulator.results import INVALID_CONTEXT, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

logger = logging.getLogger(__name__)

_ATTRIBUTE: Final = ENUMS["CUdevice_attribute"]
_CALLBACK: Final = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
_MAX_STORED: Final = 4096
"""Entries of one context's storage: each runtime library keeps one or two."""


class _Tables:
    """The tables of this process, built when first asked for; they and their functions stay for good."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._tables: dict[bytes, ctypes.Array[ctypes.c_uint64]] = {}

    def address(self, table_id: bytes) -> int:
        """Where the table lies; 0 if there is none of this id."""
        spec = BY_ID.get(table_id)
        if spec is None:
            return 0
        with self._lock:
            words = self._tables.get(table_id)
            if words is None:
                words = self._tables[table_id] = (ctypes.c_uint64 * spec.slots)()
                for slot in range(spec.slots):
                    found = spec.functions.get(slot)
                    words[slot] = self.function(found.symbol if found else UNNAMED)
                if spec.sized:
                    words[0] = spec.bytes
            return ctypes.addressof(words)

    @staticmethod
    def function(symbol: str) -> int:
        """Address of a private function as C calls it."""
        return general.entry_address(symbol)


_tables: Final = _Tables()


@plain("cuGetExportTable")
def get_export_table(d: Driver, table: int, table_id: int) -> int | None:
    need(table)
    address = _tables.address(get_bytes(need(table_id), 16))
    put_u64(table, address)
    return None if address else NOT_FOUND


@plain(UNNAMED)
def unnamed(d: Driver) -> int:
    return NOT_SUPPORTED


# --- modules and contexts ----------------------------------------------------------------------------------------------
def _load(d: Driver, module: int, image: int) -> None:
    module_load_data(d, d.require_context(), module, image)


@initialized("langpu_cudart_load_module")
def load_module(d: Driver, module: int, wrapper: int) -> None:
    _load(d, module, wrapper)


@initialized("langpu_cudart_load_module_from_wrapper")
def load_module_from_wrapper(d: Driver, module: int, wrapper: int, unused1: int, unused2: int, flags: int) -> None:
    _load(d, module, wrapper)


@initialized("langpu_cudart_load_module_from_fatbin")
def load_module_from_fatbin(d: Driver, fatbin: int, module: int, unused1: int, unused2: int, flags: int) -> None:
    _load(d, module, fatbin)


@initialized("langpu_cudart_primary_context")
def primary_context(d: Driver, context: int, device: int) -> None:
    """Its handle; it need not be active, and is not retained."""
    put_u64(need(context), primary_of(d, d.device(_int(device))).handle)


@plain("langpu_cudart_notice")
def notice(d: Driver, size: int) -> None:
    """The runtime library tells something about itself and expects no answer."""


@plain("langpu_cudart_load_compilers")
def load_compilers(d: Driver) -> None:
    """There is nothing to load."""


@initialized("langpu_context_create_create")
def context_create(d: Driver, context: int, flags: int, device: int) -> None:
    create_context(d, context, flags & 0xFFFFFFFF, _int(device))


@plain("langpu_context_checks_check")
def context_check(d: Driver, context: int, result: int, pointer: int) -> None:
    put_u32(need(result), 0)
    put_u64(need(pointer), 0)


@plain("langpu_context_checks_fine")
def context_fine(d: Driver) -> None:
    """Nothing is wrong with any context."""


# --- contexts and their streams ------------------------------------------------------------------------------------------
@initialized("langpu_contexts_key")
def context_key(d: Driver, context: int, result: int) -> None:
    put_u64(need(result), d.context(context).id)


@initialized("langpu_contexts_stream")
def context_stream(d: Driver, context: int, stream: int, result: int) -> None:
    """Some name of the stream that the next function takes: its handle serves."""
    put_u64(need(result), d.stream(d.context(context), stream).handle)


@initialized("langpu_contexts_stream_id")
def context_stream_id(d: Driver, context: int, stream: int, result: int) -> None:
    put_u64(need(result), d.stream(d.context(context), stream).id)


@initialized("langpu_modules_functions")
def module_functions(d: Driver, context: int, module: int, callback: int, user: int) -> int:
    """Calls ``callback(user, function, module)`` for every function."""
    found = d.handles.get(module, Module, INVALID_HANDLE)
    call = _CALLBACK(need(callback))
    for name in list(found.image.ptx.kernels):
        call(user, function_of(d, found, name).handle, module)
    return ITERATED


# --- tools ---------------------------------------------------------------------------------------------------------------
_buffers: Final = {slot: ctypes.create_string_buffer(size) for slot, size in TOOLS_BUFFER_BYTES.items()}


def _tools_buffer(slot: int) -> Callable[[Driver, int, int], None]:
    def body(d: Driver, buffer: int, size: int) -> None:
        put_u64(need(buffer), ctypes.addressof(_buffers[slot]))
        put_u64(need(size), TOOLS_BUFFER_BYTES[slot])

    return body


plain("langpu_tools_hooks_buffer")(_tools_buffer(2))
plain("langpu_tools_hooks_small_buffer")(_tools_buffer(6))


# --- context-local storage -----------------------------------------------------------------------------------------------
def _context(d: Driver, handle: int) -> Context:
    if handle:
        return d.context(handle)
    stack = d.stack()
    if not stack:
        raise CuError(INVALID_CONTEXT)
    return stack[-1]


@initialized("langpu_storage_put")
def storage_put(d: Driver, context: int, key: int, value: int, destructor: int) -> None:
    found = _context(d, context)
    if len(found.storage) >= _MAX_STORED and key not in found.storage:
        raise CuError(INVALID_VALUE)
    found.storage[key] = (value, destructor)


@initialized("langpu_storage_delete")
def storage_delete(d: Driver, context: int, key: int) -> int | None:
    return None if _context(d, context).storage.pop(key, None) else INVALID_VALUE


@initialized("langpu_storage_get")
def storage_get(d: Driver, value: int, context: int, key: int) -> int | None:
    found = _context(d, context).storage.get(key)
    if found is None:
        return INVALID_VALUE
    put_u64(need(value), found[0])
    return None


# --- the check -----------------------------------------------------------------------------------------------------------
@plain("langpu_driver_check_answer")
def check(d: Driver, version: int, seconds: int, result: int) -> None:
    """See `driver_check`; it is made over addresses of this process."""
    tables = {spec.name: spec.id for spec in BY_ID.values()}
    where = CheckAddresses(
        _tables.address(tables["cudart"]),
        _tables.address(tables["driver_check"]),
        _tables.function("langpu_driver_check_answer"),
    )
    devices = [
        CheckedDevice(
            device.uuid,
            *(device.attributes[_ATTRIBUTE[f"CU_DEVICE_ATTRIBUTE_PCI_{word}_ID"]] for word in ("DOMAIN", "BUS", "DEVICE")),
        )
        for device in d.devices
    ]
    put_bytes(need(result), driver_check(version & 0xFFFFFFFF, seconds, DRIVER_VERSION, os.getpid(), get_ident(), where, devices))


def _int(word: int) -> int:
    word &= 0xFFFFFFFF
    return word - (1 << 32) if word >> 31 else word
