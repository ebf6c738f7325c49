"""Kernel launches: checking, packing the parameters, queueing."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Final

from lanGPU.constants import MAX_KERNEL_PARAMS_BYTES
from lanGPU.driverapi.enums import ENUMS
from lanGPU.driverapi.structs import LAUNCH_ATTRIBUTE, LAUNCH_CONFIG
from lanGPU.emulator.attributes import MAX_BLOCK, MAX_GRID
from lanGPU.emulator.driver.cabi import get_bytes, get_u64, need
from lanGPU.emulator.driver.events import record
from lanGPU.emulator.driver.modules import compile_function, default_dynamic_shared, max_threads, resolve_function
from lanGPU.emulator.driver.objects import Context, Event, Function, Stream
from lanGPU.emulator.driver.occupancy import active_blocks
from lanGPU.emulator.driver.operations import Launch
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.driver.services import services_of
from lanGPU.emulator.results import COOPERATIVE_LAUNCH_TOO_LARGE, INVALID_HANDLE, INVALID_VALUE, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver
    from lanGPU.emulator.ptx import KernelInfo

# cuda.h: CU_LAUNCH_PARAM_*
_PARAM_END: Final = 0
_PARAM_BUFFER_POINTER: Final = 1
_PARAM_BUFFER_SIZE: Final = 2
_MAX_EXTRA: Final = 8

_ID: Final = {name.removeprefix("CU_LAUNCH_ATTRIBUTE_"): value for name, value in ENUMS["CUlaunchAttributeID"].items()}
_HINTS: Final = frozenset(
    _ID[name]
    for name in (
        "IGNORE",
        "ACCESS_POLICY_WINDOW",
        "SYNCHRONIZATION_POLICY",
        "CLUSTER_SCHEDULING_POLICY_PREFERENCE",
        "PROGRAMMATIC_STREAM_SERIALIZATION",
        "PRIORITY",
        "MEM_SYNC_DOMAIN_MAP",
        "MEM_SYNC_DOMAIN",
        "PREFERRED_SHARED_MEMORY_CARVEOUT",
    )
)
"""Attributes that change when or how fast a kernel runs, not what it computes. Running one kernel after the other satisfies them."""
_EVENTS: Final = frozenset({_ID["PROGRAMMATIC_EVENT"], _ID["LAUNCH_COMPLETION_EVENT"]})
_CLUSTERS: Final = frozenset({_ID["CLUSTER_DIMENSION"], _ID["PREFERRED_CLUSTER_DIMENSION"]})
_MAX_ATTRIBUTES: Final = 64


def pack_parameters(info: KernelInfo, params: int, extra: int) -> bytes:
    """The parameter buffer from `kernelParams` or `extra`; INVALID_VALUE for both, a missing one or a buffer that is too small."""
    if params and extra:
        raise CuError(INVALID_VALUE, "kernelParams and extra are both given")
    if extra:
        return _from_extra(info, extra)
    if not info.params:
        return b""
    if not params:
        raise CuError(INVALID_VALUE, f"the kernel has {len(info.params)} parameters and none are given")
    buffer = bytearray(info.param_bytes)
    pointers = (ctypes.c_uint64 * len(info.params)).from_address(params)
    for (offset, size), pointer in zip(info.params, pointers, strict=True):
        buffer[offset : offset + size] = get_bytes(pointer, size)
    return bytes(buffer)


def _from_extra(info: KernelInfo, extra: int) -> bytes:
    buffer = size_pointer = 0
    for i in range(_MAX_EXTRA):
        key = get_u64(extra + 16 * i)
        if key == _PARAM_END:
            break
        value = get_u64(extra + 16 * i + 8)
        if key == _PARAM_BUFFER_POINTER:
            buffer = value
        elif key == _PARAM_BUFFER_SIZE:
            size_pointer = value
        else:
            raise CuError(INVALID_VALUE, f"extra: {key} is no CU_LAUNCH_PARAM")
    else:
        raise CuError(INVALID_VALUE, "extra does not end")
    size = get_u64(size_pointer) if size_pointer else 0
    if size < info.param_bytes or size > MAX_KERNEL_PARAMS_BYTES:
        raise CuError(INVALID_VALUE, f"extra: {size} bytes where the kernel's parameters take {info.param_bytes}")
    return get_bytes(buffer, size)[: info.param_bytes] if info.param_bytes else b""


def make_launch(
    d: Driver,
    function: Function,
    grid: tuple[int, int, int],
    block: tuple[int, int, int],
    shared: int,
    params: int,
    extra: int,
    *,
    cooperative: bool = False,
) -> Launch:
    """A checked launch with its parameters copied; the kernel is compiled.

    Raises:
        CuError: INVALID_VALUE for sizes over the device's or the kernel's limits; COOPERATIVE_LAUNCH_TOO_LARGE.
        EmulatorUnsupportedError: the kernel uses what the emulator lacks.
    """
    check_sizes(function, grid, block, shared)
    if cooperative:
        check_cooperative(d, function, grid, block, shared)
    parameters = pack_parameters(function.info, params, extra)
    compiled = compile_function(function)
    if compiled.uses_system:
        services_of(d, function.module.context, heap=compiled.uses_heap)
    return Launch(function, grid, block, shared, parameters, d.memory, cooperative)


def check_cooperative(d: Driver, function: Function, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int) -> None:
    """CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE unless the device holds all blocks at once, as the occupancy calculator says."""
    blocks, threads = grid[0] * grid[1] * grid[2], block[0] * block[1] * block[2]
    most = active_blocks(function.info, threads, shared) * d.config.multiprocessors
    if blocks > most:
        raise CuError(COOPERATIVE_LAUNCH_TOO_LARGE, f"{blocks} blocks in a cooperative launch of {function.name}; the device holds {most}")


def check_sizes(function: Function, grid: tuple[int, int, int], block: tuple[int, int, int], shared: int) -> None:
    """CUDA_ERROR_INVALID_VALUE unless the device and the kernel allow these sizes."""
    for name, sizes, limits in (("grid", grid, MAX_GRID), ("block", block, MAX_BLOCK)):
        for size, limit in zip(sizes, limits, strict=True):
            if not 0 < size <= limit:
                raise CuError(INVALID_VALUE, f"{name} {sizes} is not within {limits}")
    threads = block[0] * block[1] * block[2]
    if threads > max_threads(function.info):
        raise CuError(INVALID_VALUE, f"{threads} threads in a block; {function.name} allows {max_threads(function.info)}")
    required = function.info.reqntid
    if required and tuple(required) != block:
        raise CuError(INVALID_VALUE, f"{function.name} requires blocks of {required}")
    allowed = default_dynamic_shared(function.info) if function.max_dynamic_shared < 0 else function.max_dynamic_shared
    if shared > max(allowed, default_dynamic_shared(function.info)):
        raise CuError(INVALID_VALUE, f"{shared} bytes of dynamic shared memory; {function.name} allows {allowed}")


@in_context("cuLaunchKernel")
def launch_kernel(
    d: Driver,
    context: Context,
    f: int,
    grid_x: int,
    grid_y: int,
    grid_z: int,
    block_x: int,
    block_y: int,
    block_z: int,
    shared: int,
    stream: int,
    params: int,
    extra: int,
) -> None:
    queue = d.stream(context, stream)
    function = function_for(d, queue, f)
    launch = make_launch(d, function, (grid_x, grid_y, grid_z), (block_x, block_y, block_z), shared, params, extra)
    d.submit(queue, launch)


def function_for(d: Driver, stream: Stream, handle: int) -> Function:
    """What a launch in `stream` names: a CUkernel runs in the stream's context, a CUfunction must be of it (INVALID_HANDLE)."""
    function = resolve_function(d, stream.context, handle)
    if function.module.context is not stream.context:
        raise CuError(INVALID_HANDLE, f"{function.name} is of another context than the stream")
    return function


@in_context("cuLaunchCooperativeKernel")
def launch_cooperative_kernel(
    d: Driver,
    context: Context,
    f: int,
    grid_x: int,
    grid_y: int,
    grid_z: int,
    block_x: int,
    block_y: int,
    block_z: int,
    shared: int,
    stream: int,
    params: int,
) -> None:
    queue = d.stream(context, stream)
    grid, block = (grid_x, grid_y, grid_z), (block_x, block_y, block_z)
    d.submit(queue, make_launch(d, function_for(d, queue, f), grid, block, shared, params, 0, cooperative=True))


@in_context("cuLaunchKernelEx")
def launch_kernel_ex(d: Driver, context: Context, config: int, f: int, params: int, extra: int) -> None:
    fields = LAUNCH_CONFIG.unpack(get_bytes(config, LAUNCH_CONFIG.size))
    events, cooperative = _attributes(fields["attrs"], fields["numAttrs"])
    grid = (fields["gridDimX"], fields["gridDimY"], fields["gridDimZ"])
    block = (fields["blockDimX"], fields["blockDimY"], fields["blockDimZ"])
    stream = d.stream(context, fields["hStream"])
    function = function_for(d, stream, f)
    launch = make_launch(d, function, grid, block, fields["sharedMemBytes"], params, extra, cooperative=cooperative)
    found = [d.handles.get(event, Event) for event in events]
    d.submit(stream, launch)
    for event in found:  # recorded after the kernel, which is later than either attribute asks for, and so right
        record(d, stream, event)


def _attributes(pointer: int, count: int) -> tuple[list[int], bool]:
    """The events that attributes want recorded, and whether the launch is cooperative; NOT_SUPPORTED for what would change the result."""
    if count > _MAX_ATTRIBUTES:
        raise CuError(INVALID_VALUE)
    events, cooperative = [], False
    for i in range(count):
        data = get_bytes(need(pointer) + i * LAUNCH_ATTRIBUTE.size, LAUNCH_ATTRIBUTE.size)
        kind, value = LAUNCH_ATTRIBUTE.get(data, "id"), data[8:]
        number = int.from_bytes(value[:4], "little")
        if kind in _EVENTS:
            events.append(int.from_bytes(value[:8], "little"))
        elif kind in _CLUSTERS:
            if any(int.from_bytes(value[j : j + 4], "little") > 1 for j in (0, 4, 8)):
                raise CuError(NOT_SUPPORTED, "thread block clusters are not supported by the emulated driver")
        elif kind == _ID["COOPERATIVE"]:
            cooperative = number != 0
        elif kind not in _HINTS:
            raise CuError(NOT_SUPPORTED, f"launch attribute {kind} is not supported by the emulated driver")
    return events, cooperative
