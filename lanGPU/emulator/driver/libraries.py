"""Libraries and their kernels: images that are loaded into each context on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lanGPU.driverapi.enums import ENUMS
from lanGPU.emulator.driver.cabi import get_cstring, get_u32, need, put_i32, put_u32, put_u64, static_string
from lanGPU.emulator.driver.images import LoadedImage, ptx_of, read_image
from lanGPU.emulator.driver.jit import JitOptions
from lanGPU.emulator.driver.modules import (
    ATTRIBUTE,
    attribute_value,
    check_dynamic_shared,
    function_in,
    managed_of,
    module_in,
    put_global,
    put_parameter,
    read_file,
    unload_module,
)
from lanGPU.emulator.driver.objects import Context, Function, Kernel, Library
from lanGPU.emulator.driver.registry import in_context, initialized
from lanGPU.emulator.results import INVALID_HANDLE, INVALID_VALUE, NOT_FOUND, NOT_SUPPORTED, CuError

if TYPE_CHECKING:
    from lanGPU.emulator.driver.state import Driver


def _load(d: Driver, library: int, text: bytes, libraries: tuple[int, int, int]) -> None:
    options, _, count = libraries
    for i in range(count):
        if get_u32(need(options) + 4 * i) not in ENUMS["CUlibraryOption"].values():
            raise CuError(INVALID_VALUE)
    image = LoadedImage(text)
    created = Library(lambda: LoadedImage(text), image)
    created.handle = d.handles.add(created)
    put_u64(library, created.handle)


@initialized("cuLibraryLoadData")
def library_load_data(
    d: Driver, library: int, code: int, jit: int, jit_values: int, jit_count: int, options: int, values: int, count: int
) -> None:
    need(library)
    with JitOptions(jit_count, jit, jit_values):
        _load(d, library, read_image(code), (options, values, count))


@initialized("cuLibraryLoadFromFile")
def library_load_from_file(
    d: Driver, library: int, name: int, jit: int, jit_values: int, jit_count: int, options: int, values: int, count: int
) -> None:
    need(library)
    with JitOptions(jit_count, jit, jit_values):
        _load(d, library, ptx_of(read_file(get_cstring(name))), (options, values, count))


def _library(d: Driver, handle: int) -> Library:
    return d.handles.get(handle, Library, INVALID_HANDLE)


def _kernel(d: Driver, handle: int) -> Kernel:
    return d.handles.get(handle, Kernel, INVALID_HANDLE)


@initialized("cuLibraryUnload")
def library_unload(d: Driver, library: int) -> None:
    """Waits for all work first: its kernels may be queued."""
    found = _library(d, library)
    if not d.queue.hung:
        d.queue.drain()
    for _, context in d.handles.all(Context):
        module = context.libraries.pop(library, None)
        if module is not None and module in context.modules:
            unload_module(d, context.modules[module])
    for allocation in (found.managed or {}).values():
        d.memory.forget(allocation)
        d.memory.reclaim(allocation)
    for handle in found.kernels.values():
        d.handles.remove(handle)
    d.handles.remove(library)


def _kernel_of(d: Driver, library: Library, name: str) -> int:
    handle = library.kernels.get(name)
    if handle is None:
        info = library.image.ptx.kernels.get(name)
        if info is None:
            raise CuError(NOT_FOUND, f"the library has no kernel {name}")
        kernel = Kernel(library, name, info)
        handle = library.kernels[name] = kernel.handle = d.handles.add(kernel)
    return handle


@initialized("cuLibraryGetKernel")
def library_get_kernel(d: Driver, kernel: int, library: int, name: int) -> None:
    need(kernel)
    put_u64(kernel, _kernel_of(d, _library(d, library), get_cstring(name)))


@initialized("cuLibraryGetKernelCount")
def library_get_kernel_count(d: Driver, count: int, library: int) -> None:
    put_u32(count, len(_library(d, library).image.ptx.kernels))


@initialized("cuLibraryEnumerateKernels")
def library_enumerate_kernels(d: Driver, kernels: int, capacity: int, library: int) -> None:
    found = _library(d, library)
    for i, name in enumerate(list(found.image.ptx.kernels)[:capacity]):
        put_u64(need(kernels) + 8 * i, _kernel_of(d, found, name))


@in_context("cuLibraryGetModule")
def library_get_module(d: Driver, context: Context, module: int, library: int) -> None:
    need(module)
    put_u64(module, module_in(d, context, _library(d, library)).handle)


@in_context("cuLibraryGetGlobal")
def library_get_global(d: Driver, context: Context, dptr: int, size: int, library: int, name: int) -> None:
    put_global(module_in(d, context, _library(d, library)), dptr, size, name)


@initialized("cuLibraryGetManaged")
def library_get_managed(d: Driver, dptr: int, size: int, library: int, name: int) -> None:
    """A `__managed__` variable, the same for all contexts."""
    if not dptr and not size:
        raise CuError(INVALID_VALUE)
    allocation = managed_of(d, _library(d, library)).get(get_cstring(name))
    if allocation is None:
        raise CuError(NOT_FOUND)
    if dptr:
        put_u64(dptr, allocation.address)
    if size:
        put_u64(size, allocation.size)


# --- kernels -------------------------------------------------------------------------------------------------------------
@in_context("cuKernelGetFunction")
def kernel_get_function(d: Driver, context: Context, function: int, kernel: int) -> None:
    need(function)
    put_u64(function, function_in(d, context, _kernel(d, kernel)).handle)


@initialized("cuKernelGetLibrary")
def kernel_get_library(d: Driver, library: int, kernel: int) -> None:
    put_u64(library, _kernel(d, kernel).library.handle)


@initialized("cuKernelGetName")
def kernel_get_name(d: Driver, name: int, kernel: int) -> None:
    found = d.handles.get(kernel, object)
    if not isinstance(found, Kernel | Function):
        raise CuError(INVALID_HANDLE)
    put_u64(name, static_string(found.name))


@initialized("cuKernelGetAttribute")
def kernel_get_attribute(d: Driver, value: int, attribute: int, kernel: int, dev: int) -> None:
    found, device = _kernel(d, kernel), d.device(dev)
    put_i32(value, attribute_value(found.info, attribute, found.max_dynamic_shared.get(device.ordinal, -1), found.carveout))


@initialized("cuKernelSetAttribute")
def kernel_set_attribute(d: Driver, attribute: int, value: int, kernel: int, dev: int) -> int | None:
    """Reaches the functions that exist already, too."""
    found, device = _kernel(d, kernel), d.device(dev)
    if attribute == ATTRIBUTE["MAX_DYNAMIC_SHARED_SIZE_BYTES"]:
        found.max_dynamic_shared[device.ordinal] = check_dynamic_shared(found.info, value)
    elif attribute == ATTRIBUTE["PREFERRED_SHARED_MEMORY_CARVEOUT"]:
        if not -1 <= value <= 100:
            raise CuError(INVALID_VALUE)
        found.carveout = value
    elif attribute in ATTRIBUTE.values() and attribute > ATTRIBUTE["PREFERRED_SHARED_MEMORY_CARVEOUT"]:
        return NOT_SUPPORTED
    else:
        raise CuError(INVALID_VALUE)
    for _, function in d.handles.all(Function):
        if function.kernel is found and function.module.context.device is device:
            function.max_dynamic_shared = found.max_dynamic_shared.get(device.ordinal, -1)
            function.carveout = found.carveout
    return None


@initialized("cuKernelSetCacheConfig")
def kernel_set_cache_config(d: Driver, kernel: int, config: int, dev: int) -> None:
    _kernel(d, kernel), d.device(dev)
    if config not in ENUMS["CUfunc_cache"].values():
        raise CuError(INVALID_VALUE)


@initialized("cuKernelGetParamInfo")
def kernel_get_param_info(d: Driver, kernel: int, index: int, offset: int, size: int) -> None:
    put_parameter(_kernel(d, kernel).info, index, offset, size)


@initialized("cuKernelGetParamCount")
def kernel_get_param_count(d: Driver, kernel: int, count: int) -> None:
    put_u64(count, len(_kernel(d, kernel).info.params))
