"""The driver's linker, for PTX: one image goes in and comes out again, which is what JIT compilers without nvJitLink ask of it."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.driver.cabi import get_bytes, get_cstring, need, put_u64
from lanGPU.emulator.driver.images import ptx_of
from lanGPU.emulator.driver.jit import JitOptions
from lanGPU.emulator.driver.modules import read_file
from lanGPU.emulator.driver.objects import Context
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.ptx import parse_module
from lanGPU.emulator.results import INVALID_VALUE, NO_BINARY_FOR_GPU, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver

_INPUT: Final = {name.removeprefix("CU_JIT_INPUT_"): value for name, value in ENUMS["CUjitInputType"].items()}
_MAX_INPUT_BYTES: Final = 1 << 30


@dataclass(slots=True, eq=False)
class LinkState:
    """A CUlinkState: its inputs, and the result that lives as long as it does."""

    context: Context
    options: JitOptions
    inputs: list[bytes] = field(default_factory=list)
    result: ctypes.Array[ctypes.c_char] | None = None


@in_context("cuLinkCreate_v2")
def link_create(d: Driver, context: Context, count: int, options: int, values: int, state: int) -> None:
    """The options' log buffers stay the program's until the state is destroyed, as in CUDA."""
    need(state)
    created = LinkState(context, JitOptions(count, options, values))
    put_u64(state, d.handles.add(created))


def _add(d: Driver, state: int, kind: int, data: bytes) -> None:
    found = d.handles.get(state, LinkState)
    if found.result is not None:
        raise CuError(INVALID_VALUE)
    with found.options:
        if kind == _INPUT["CUBIN"]:
            raise CuError(NO_BINARY_FOR_GPU, "the linker's input is a cubin; the emulated device runs PTX only")
        if kind not in (_INPUT["PTX"], _INPUT["FATBINARY"]):
            raise CuError(NOT_SUPPORTED, f"linker input of type {kind} is not supported by the emulated driver")
        if found.inputs:
            raise CuError(NOT_SUPPORTED, "linking several images is not supported by the emulated driver")
        text = data.partition(b"\0")[0] if kind == _INPUT["PTX"] else ptx_of(data)
        parse_module(text)  # its errors belong to this call
        found.inputs.append(text)


@in_context("cuLinkAddData_v2")
def link_add_data(
    d: Driver, context: Context, state: int, kind: int, data: int, size: int, name: int, count: int, options: int, values: int
) -> None:
    if not 0 < size <= _MAX_INPUT_BYTES:
        raise CuError(INVALID_VALUE)
    JitOptions(count, options, values)
    _add(d, state, kind, get_bytes(data, size))


@in_context("cuLinkAddFile_v2")
def link_add_file(d: Driver, context: Context, state: int, kind: int, path: int, count: int, options: int, values: int) -> None:
    JitOptions(count, options, values)
    _add(d, state, kind, read_file(get_cstring(path)))


@in_context("cuLinkComplete")
def link_complete(d: Driver, context: Context, state: int, out: int, size: int) -> None:
    """The "cubin" is the PTX text with its NUL, which this driver's module loading takes."""
    found = d.handles.get(state, LinkState)
    if not found.inputs:
        raise CuError(INVALID_VALUE)
    with found.options:
        if found.result is None:
            found.result = ctypes.create_string_buffer(found.inputs[0])
    put_u64(out, ctypes.addressof(found.result))
    if size:
        put_u64(size, len(found.result))


@in_context("cuLinkDestroy")
def link_destroy(d: Driver, context: Context, state: int) -> None:
    d.handles.get(state, LinkState)
    d.handles.remove(state)
