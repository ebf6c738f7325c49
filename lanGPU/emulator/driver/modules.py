"""Modules and functions."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.attributes import MAX_THREADS_PER_BLOCK, SHARED_PER_BLOCK, SHARED_PER_BLOCK_OPTIN
from lanGPU.emulator.config import COMPUTE_CAPABILITY
from lanGPU.emulator.driver.cabi import get_cstring, need, put_i32, put_u32, put_u64, static_string
from lanGPU.emulator.driver.images import LoadedImage, ptx_of, read_image
from lanGPU.emulator.driver.jit import JitOptions
from lanGPU.emulator.driver.objects import Context, Function, Kernel, Library, Module
from lanGPU.emulator.driver.registry import in_context
from lanGPU.emulator.results import FILE_NOT_FOUND, INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.cubin import RecordedKernel
    from lanGPU.emulator.driver.state import Driver
    from lanGPU.emulator.memory import Allocation
    from lanGPU.emulator.ptx import CompiledKernel, KernelInfo

logger = logging.getLogger(__name__)

ATTRIBUTE: Final = {name.removeprefix("CU_FUNC_ATTRIBUTE_"): value for name, value in ENUMS["CUfunction_attribute"].items()}
REGISTERS_PER_THREAD: Final = 32
"""What CU_FUNC_ATTRIBUTE_NUM_REGS reports: code for a processor has no such number, and this one never limits a launch."""
_VERSION: Final = COMPUTE_CAPABILITY[0] * 10 + COMPUTE_CAPABILITY[1]


# --- loading -----------------------------------------------------------------------------------------------------------
def load_module(d: Driver, context: Context, image: LoadedImage, library: Library | None = None) -> Module:
    """Loads `image` into `context`. A module with one kernel is compiled now, so that its errors come with the load."""
    image.load(d, context)
    module = Module(context, image, library=library)
    module.handle = d.handles.add(module)
    context.modules[module.handle] = module
    try:
        if len(image.ptx.kernels) == 1:
            compile_function(function_of(d, module, next(iter(image.ptx.kernels))))
    except BaseException:
        unload_module(d, module)
        raise
    return module


def unload_module(d: Driver, module: Module) -> None:
    """Forgets the module, its functions and its globals."""
    for handle in module.functions.values():
        d.handles.remove(handle)
    module.context.modules.pop(module.handle, None)
    d.handles.remove(module.handle)
    module.image.unload(d)


@in_context("cuModuleLoadData", "cuModuleLoadFatBinary", unsafe=True)
def module_load_data(d: Driver, context: Context, module: int, image: int) -> None:
    module_load_data_ex(d, context, module, image, 0, 0, 0)


@in_context("cuModuleLoadDataEx", unsafe=True)
def module_load_data_ex(d: Driver, context: Context, module: int, image: int, count: int, options: int, values: int) -> None:
    need(module)
    with JitOptions(count, options, values):
        put_u64(module, load_module(d, context, LoadedImage(read_image(image))).handle)


def read_file(name: str) -> bytes:
    """The file's bytes, or CUDA_ERROR_FILE_NOT_FOUND."""
    try:
        return Path(name).read_bytes()
    except OSError as exc:
        raise CuError(FILE_NOT_FOUND, str(exc)) from exc


@in_context("cuModuleLoad", unsafe=True)
def module_load(d: Driver, context: Context, module: int, name: int) -> None:
    need(module)
    with JitOptions(0, 0, 0):
        put_u64(module, load_module(d, context, LoadedImage(ptx_of(read_file(get_cstring(name))))).handle)


def _module(d: Driver, handle: int) -> Module:
    return d.handles.get(handle, Module, INVALID_HANDLE)


@in_context("cuModuleUnload", unsafe=True)
def module_unload(d: Driver, context: Context, module: int) -> None:
    """Waits for all work first: kernels of the module may be queued."""
    found = _module(d, module)
    if found.library is not None:
        raise CuError(INVALID_HANDLE)  # owned by its library
    d.queue.drain()
    unload_module(d, found)


# --- functions -----------------------------------------------------------------------------------------------------------
def function_of(d: Driver, module: Module, name: str) -> Function:
    """The function `name` of a module, made at its first use; CUDA_ERROR_NOT_FOUND."""
    handle = module.functions.get(name)
    if handle is None:
        info = module.image.ptx.kernels.get(name)
        if info is None:
            raise CuError(NOT_FOUND, f"the module has no kernel {name}")
        function = Function(module, name, info)
        handle = module.functions[name] = function.handle = d.handles.add(function)
    return d.handles.get(handle, Function)


def compile_function(function: Function) -> CompiledKernel | RecordedKernel:
    """The compiled kernel; EmulatorUnsupportedError names what the emulator lacks."""
    if function.compiled is None:
        function.compiled = function.module.image.ptx.compile(function.name)
    return function.compiled


def resolve_function(d: Driver, context: Context, handle: int) -> Function:
    """The function behind a CUfunction, or behind a CUkernel cast to one (driver API, cuLaunchKernel)."""
    found = d.handles.get(handle, object)
    if isinstance(found, Kernel):
        return function_in(d, context, found)
    if not isinstance(found, Function):
        raise CuError(INVALID_HANDLE)
    return found


def managed_of(d: Driver, library: Library) -> dict[str, Allocation]:
    """The library's `__managed__` variables, one for all contexts; made at their first use."""
    with d.lock:
        if library.managed is None:
            library.managed = library.image.make_managed(d)
        return library.managed


def module_in(d: Driver, context: Context, library: Library) -> Module:
    """The library's module in `context`, loaded at its first use there."""
    handle = context.libraries.get(library.handle)
    module = context.modules.get(handle) if handle is not None else None
    if module is None:
        with JitOptions(0, 0, 0):
            image = library.make_image()
            image.shared = managed_of(d, library)
            module = load_module(d, context, image, library)
        context.libraries[library.handle] = module.handle
    return module


def function_in(d: Driver, context: Context, kernel: Kernel) -> Function:
    """The kernel's function in `context`; its attributes are those set on the kernel for the device."""
    function = function_of(d, module_in(d, context, kernel.library), kernel.name)
    if function.kernel is None:
        function.kernel = kernel
        function.max_dynamic_shared = kernel.max_dynamic_shared.get(context.device.ordinal, -1)
        function.carveout = kernel.carveout
    return function


@in_context("cuModuleGetFunction")
def module_get_function(d: Driver, context: Context, function: int, module: int, name: int) -> None:
    need(function)
    put_u64(function, function_of(d, _module(d, module), get_cstring(name)).handle)


@in_context("cuModuleGetFunctionCount")
def module_get_function_count(d: Driver, context: Context, count: int, module: int) -> None:
    put_u32(count, len(_module(d, module).image.ptx.kernels))


@in_context("cuModuleEnumerateFunctions")
def module_enumerate_functions(d: Driver, context: Context, functions: int, capacity: int, module: int) -> None:
    found = _module(d, module)
    for i, name in enumerate(list(found.image.ptx.kernels)[:capacity]):
        put_u64(need(functions) + 8 * i, function_of(d, found, name).handle)


def put_global(found: Module, dptr: int, size: int, name: int) -> None:
    """Writes a global's address and bytes where they are asked for; CUDA_ERROR_NOT_FOUND."""
    if not dptr and not size:
        raise CuError(INVALID_VALUE)
    allocation = found.image.globals.get(get_cstring(name))
    if allocation is None:
        raise CuError(NOT_FOUND)
    if dptr:
        put_u64(dptr, allocation.address)
    if size:
        put_u64(size, allocation.size)


@in_context("cuModuleGetGlobal_v2")
def module_get_global(d: Driver, context: Context, dptr: int, size: int, module: int, name: int) -> None:
    put_global(_module(d, module), dptr, size, name)


# --- attributes ------------------------------------------------------------------------------------------------------------
def max_threads(info: KernelInfo) -> int:
    """The largest block that the kernel may be launched with."""
    return min(info.max_threads or MAX_THREADS_PER_BLOCK, MAX_THREADS_PER_BLOCK)


def default_dynamic_shared(info: KernelInfo) -> int:
    """Dynamic shared memory that needs no permission: what the static part leaves of 48 KiB."""
    return max(SHARED_PER_BLOCK - info.shared_bytes, 0)


def attribute_value(info: KernelInfo, attribute: int, dynamic: int, carveout: int) -> int:
    """One CUfunction_attribute; INVALID_VALUE for an unknown number."""
    known = {
        "MAX_THREADS_PER_BLOCK": max_threads(info),
        "SHARED_SIZE_BYTES": info.shared_bytes,
        "LOCAL_SIZE_BYTES": info.local_bytes,
        "NUM_REGS": REGISTERS_PER_THREAD,
        # Libraries choose the block size by it, so it must be what the code was compiled for, also where that is newer than the device.
        "PTX_VERSION": info.capability or _VERSION,
        "BINARY_VERSION": _VERSION,
        "MAX_DYNAMIC_SHARED_SIZE_BYTES": default_dynamic_shared(info) if dynamic < 0 else dynamic,
        "PREFERRED_SHARED_MEMORY_CARVEOUT": carveout,
    }
    for name, value in ATTRIBUTE.items():
        if value == attribute and name != "MAX":
            return known.get(name, 0)
    raise CuError(INVALID_VALUE)


def check_dynamic_shared(info: KernelInfo, value: int) -> int:
    """A permitted value of MAX_DYNAMIC_SHARED_SIZE_BYTES, or INVALID_VALUE."""
    if value < 0 or info.shared_bytes + value > SHARED_PER_BLOCK_OPTIN:
        raise CuError(INVALID_VALUE)
    return value


@in_context("cuFuncGetAttribute")
def func_get_attribute(d: Driver, context: Context, value: int, attribute: int, function: int) -> None:
    found = resolve_function(d, context, function)
    put_i32(value, attribute_value(found.info, attribute, found.max_dynamic_shared, found.carveout))


@in_context("cuFuncSetAttribute")
def func_set_attribute(d: Driver, context: Context, function: int, attribute: int, value: int) -> int | None:
    found = resolve_function(d, context, function)
    if attribute == ATTRIBUTE["MAX_DYNAMIC_SHARED_SIZE_BYTES"]:
        found.max_dynamic_shared = check_dynamic_shared(found.info, value)
    elif attribute == ATTRIBUTE["PREFERRED_SHARED_MEMORY_CARVEOUT"]:
        if not -1 <= value <= 100:
            raise CuError(INVALID_VALUE)
        found.carveout = value
    elif attribute in ATTRIBUTE.values() and attribute > ATTRIBUTE["PREFERRED_SHARED_MEMORY_CARVEOUT"]:
        return NOT_SUPPORTED  # clusters
    else:
        raise CuError(INVALID_VALUE)
    return None


@in_context("cuFuncSetCacheConfig")
def func_set_cache_config(d: Driver, context: Context, function: int, config: int) -> None:
    if config not in ENUMS["CUfunc_cache"].values():
        raise CuError(INVALID_VALUE)
    resolve_function(d, context, function).cache_config = config


@in_context("cuFuncSetSharedMemConfig")
def func_set_shared_mem_config(d: Driver, context: Context, function: int, config: int) -> None:
    resolve_function(d, context, function)
    if config not in (0, 1, 2):
        raise CuError(INVALID_VALUE)


@in_context("cuFuncGetModule")
def func_get_module(d: Driver, context: Context, module: int, function: int) -> None:
    found = resolve_function(d, context, function)
    if found.kernel is not None:
        raise CuError(INVALID_HANDLE)  # as the driver API says of functions that come from a library
    put_u64(module, found.module.handle)


@in_context("cuFuncGetName")
def func_get_name(d: Driver, context: Context, name: int, function: int) -> None:
    put_u64(name, static_string(resolve_function(d, context, function).name))


def put_parameter(info: KernelInfo, index: int, offset: int, size: int) -> None:
    """Writes where one parameter lies; INVALID_VALUE behind the last."""
    if index >= len(info.params):
        raise CuError(INVALID_VALUE)
    put_u64(offset, info.params[index][0])
    if size:
        put_u64(size, info.params[index][1])


@in_context("cuFuncGetParamInfo")
def func_get_param_info(d: Driver, context: Context, function: int, index: int, offset: int, size: int) -> None:
    put_parameter(resolve_function(d, context, function).info, index, offset, size)


@in_context("cuFuncGetParamCount")
def func_get_param_count(d: Driver, context: Context, function: int, count: int) -> None:
    put_u64(count, len(resolve_function(d, context, function).info.params))


@in_context("cuFuncIsLoaded")
def func_is_loaded(d: Driver, context: Context, state: int, function: int) -> None:
    put_u32(state, int(resolve_function(d, context, function).compiled is not None))


@in_context("cuFuncLoad")
def func_load(d: Driver, context: Context, function: int) -> None:
    compile_function(resolve_function(d, context, function))
