"""Modules, libraries, functions and their attributes."""

import ctypes
import re
from typing import Any

import pytest

from tests.helpers.device import ADD, BUMP, GLOBALS, PTX_HEADER, SUM, Cuda

LOG_BYTES = 4096


def jit_load(cuda: Cuda, ptx: str) -> tuple[int, str]:
    """The result of loading with an error log, and the log."""
    log = bytearray(LOG_BYTES)
    option = cuda.CUjit_option
    options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
    result = cuda.fails("cuModuleLoadDataEx", ptx.encode() + b"\0", 2, options, [log, LOG_BYTES])
    return result, bytes(log).partition(b"\0")[0].decode()


def test_functions_by_name(cuda: Cuda, context: Any) -> None:
    module = cuda.module(GLOBALS)
    assert cuda.cuFuncGetName(cuda.cuModuleGetFunction(module, b"count_up")) == b"count_up"
    assert cuda.fails("cuModuleGetFunction", module, b"absent") == cuda.CUresult.CUDA_ERROR_NOT_FOUND
    assert cuda.cuModuleGetFunctionCount(module) == 2
    cuda.cuModuleUnload(module)


def test_globals_and_constants(cuda: Cuda, context: Any) -> None:
    module = cuda.module(GLOBALS)
    counter, size = cuda.cuModuleGetGlobal(module, b"counter")
    assert size == 4
    assert cuda.get(counter, 1)[0] == 40
    cuda.launch(cuda.cuModuleGetFunction(module, b"count_up"), 1, 1, ())
    assert cuda.get(counter, 1)[0] == 42
    step, _ = cuda.cuModuleGetGlobal(module, b"step")
    cuda.cuMemsetD32(step, 100, 1)
    cuda.launch(cuda.cuModuleGetFunction(module, b"count_up"), 1, 1, ())
    assert cuda.get(counter, 1)[0] == 142
    assert cuda.fails("cuModuleGetGlobal", module, b"absent") == cuda.CUresult.CUDA_ERROR_NOT_FOUND


def test_each_load_has_globals_of_its_own(cuda: Cuda, context: Any) -> None:
    first, second = cuda.module(GLOBALS), cuda.module(GLOBALS)
    cuda.launch(cuda.cuModuleGetFunction(first, b"count_up"), 1, 1, ())
    assert cuda.get(cuda.cuModuleGetGlobal(second, b"counter")[0], 1)[0] == 40


def test_parameters_are_described(cuda: Cuda, context: Any) -> None:
    function = cuda.function(ADD, "add")
    assert [tuple(map(int, cuda.cuFuncGetParamInfo(function, i))) for i in range(4)] == [(0, 8), (8, 8), (16, 8), (24, 4)]
    assert cuda.fails("cuFuncGetParamInfo", function, 4) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


def test_attributes(cuda: Cuda, context: Any) -> None:
    function = cuda.function(SUM, "sum")
    attribute = cuda.CUfunction_attribute
    assert cuda.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function) == 256
    assert cuda.cuFuncGetAttribute(attribute.CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, function) == 1024
    dynamic = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    cuda.cuFuncSetAttribute(function, dynamic, 60 * 1024)
    assert cuda.cuFuncGetAttribute(dynamic, function) == 60 * 1024
    assert cuda.fails("cuFuncSetAttribute", function, dynamic, 1 << 30) == cuda.CUresult.CUDA_ERROR_INVALID_VALUE


@pytest.mark.parametrize("capability", [60, 75])
def test_a_function_says_what_its_code_was_made_for(cuda: Cuda, context: Any, capability: int) -> None:
    """Libraries choose block sizes by it: CUB sums half of its input if it answers for the device and not for the code."""
    function = cuda.function(re.sub(r"sm_\d+", f"sm_{capability}", ADD), "add")
    assert cuda.cuFuncGetAttribute(cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_PTX_VERSION, function) == capability


def test_ptx_with_a_mistake(cuda: Cuda, context: Any) -> None:
    broken = ADD.replace("add.rn.f32 %f3, %f1, %f2;", "add.rn.f32 %f3, %f1 %f2;;:")
    result, log = jit_load(cuda, broken)
    assert result == cuda.CUresult.CUDA_ERROR_INVALID_PTX
    line = broken[: broken.index("add.rn.f32")].count("\n") + 1
    assert f"line {line}" in log


def test_ptx_with_an_unknown_name(cuda: Cuda, context: Any) -> None:
    result, log = jit_load(cuda, BUMP.replace("%r3, %r2, %r1", "%r3, %r2, %nowhere"))
    assert result == cuda.CUresult.CUDA_ERROR_INVALID_PTX
    assert "nowhere" in log


def test_what_is_no_image(cuda: Cuda, context: Any) -> None:
    assert cuda.fails("cuModuleLoadData", b"\x01\x02\x03\x04" * 64) in (
        cuda.CUresult.CUDA_ERROR_INVALID_IMAGE,
        cuda.CUresult.CUDA_ERROR_INVALID_PTX,
    )
    assert cuda.fails("cuModuleLoad", b"/nowhere/no.ptx") == cuda.CUresult.CUDA_ERROR_FILE_NOT_FOUND


def test_a_library_serves_kernels_and_functions(cuda: Cuda, context: Any) -> None:
    library = cuda.cuLibraryLoadData(GLOBALS.encode() + b"\0", [], [], 0, [], [], 0)
    kernel = cuda.cuLibraryGetKernel(library, b"count_to")
    assert cuda.cuLibraryGetKernelCount(library) == 2
    assert cuda.cuKernelGetName(kernel) == b"count_to"
    function = cuda.cuKernelGetFunction(kernel)
    cuda.launch(function, 1, 1, ((ctypes.c_uint32, 7),))
    counter, _ = cuda.cuLibraryGetGlobal(library, b"counter")
    assert cuda.get(counter, 1)[0] == 7
    cuda.launch(cuda.CUfunction(int(kernel)), 1, 1, ((ctypes.c_uint32, 8),))
    assert cuda.get(counter, 1)[0] == 8
    assert tuple(map(int, cuda.cuKernelGetParamInfo(kernel, 0))) == (0, 4)
    assert cuda.fails("cuLibraryGetKernel", library, b"absent") == cuda.CUresult.CUDA_ERROR_NOT_FOUND
    cuda.cuLibraryUnload(library)


def test_a_kernels_attributes_reach_its_function(cuda: Cuda, context: Any) -> None:
    library = cuda.cuLibraryLoadData(SUM.encode() + b"\0", [], [], 0, [], [], 0)
    kernel = cuda.cuLibraryGetKernel(library, b"sum")
    device = cuda.cuDeviceGet(0)
    dynamic = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    cuda.cuKernelSetAttribute(dynamic, 50 * 1024, kernel, device)
    assert cuda.cuKernelGetAttribute(dynamic, kernel, device) == 50 * 1024
    assert cuda.cuFuncGetAttribute(dynamic, cuda.cuKernelGetFunction(kernel)) == 50 * 1024
    cuda.cuLibraryUnload(library)


def test_the_linker_takes_ptx(cuda: Cuda, context: Any) -> None:
    state = cuda.cuLinkCreate(0, [], [])
    source = BUMP.encode() + b"\0"
    cuda.cuLinkAddData(state, cuda.CUjitInputType.CU_JIT_INPUT_PTX, source, len(source), b"bump.ptx", 0, [], [])
    image, size = cuda.cuLinkComplete(state)
    assert size > 0
    module = cuda.cuModuleLoadData(int(image))
    cuda.cuLinkDestroy(state)
    pointer = cuda.cuMemAlloc(4)
    cuda.cuMemsetD32(pointer, 1, 1)
    bump = cuda.cuModuleGetFunction(module, b"bump")
    cuda.launch(bump, 1, 1, ((ctypes.c_uint64, pointer), (ctypes.c_uint32, 2)))
    assert cuda.get(pointer, 1)[0] == 3


@pytest.mark.parametrize("text", ["", PTX_HEADER], ids=["nothing", "only a header"])
def test_a_module_without_kernels(cuda: Cuda, context: Any, text: str) -> None:
    if text:
        assert cuda.cuModuleGetFunctionCount(cuda.module(text)) == 0
    else:
        assert cuda.fails("cuModuleLoadData", b"\0") != 0
