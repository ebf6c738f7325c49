"""Compiles CUDA C++ with NVRTC and runs the PTX through the driver API, all by ctypes."""

import ctypes
import sys

SOURCE = b"""
template <typename T> __device__ T square(T x) { return x * x; }
extern "C" __global__ void squares(float *out, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = square((float)i) + 0.5f;
}
"""
N = 1000


def check(result: int, what: str) -> None:
    if result:
        raise SystemExit(f"{what}: {result}")


def compile_ptx(nvrtc: ctypes.CDLL) -> bytes:
    """PTX of SOURCE."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), SOURCE, b"squares.cu", 0, None, None), "nvrtcCreateProgram")
    options = (ctypes.c_char_p * 1)(b"--gpu-architecture=compute_75")
    check(nvrtc.nvrtcCompileProgram(program, 1, options), "nvrtcCompileProgram")
    check(nvrtc.nvrtcGetPTXSize(program, ctypes.byref(size)), "nvrtcGetPTXSize")
    ptx = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetPTX(program, ptx), "nvrtcGetPTX")
    check(nvrtc.nvrtcDestroyProgram(ctypes.byref(program)), "nvrtcDestroyProgram")
    return ptx.raw


def main() -> None:
    """Compile, load, link, launch, compare."""
    ptx = compile_ptx(ctypes.CDLL(sys.argv[1]))
    cuda = ctypes.CDLL("libcuda.so.1")
    device, context = ctypes.c_int(), ctypes.c_void_p()
    check(cuda.cuInit(0), "cuInit")
    check(cuda.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
    check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent")
    link, image, size = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_size_t()
    check(cuda.cuLinkCreate_v2(0, None, None, ctypes.byref(link)), "cuLinkCreate")
    check(cuda.cuLinkAddData_v2(link, 1, ptx, ctypes.c_size_t(len(ptx)), b"squares", 0, None, None), "cuLinkAddData")
    check(cuda.cuLinkComplete(link, ctypes.byref(image), ctypes.byref(size)), "cuLinkComplete")
    for code in (ctypes.c_char_p(ptx), image):
        module, function, memory = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_uint64()
        check(cuda.cuModuleLoadData(ctypes.byref(module), code), "cuModuleLoadData")
        check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"squares"), "cuModuleGetFunction")
        check(cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 * N)), "cuMemAlloc")
        count = ctypes.c_int(N)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(memory), ctypes.addressof(count))
        check(cuda.cuLaunchKernel(function, -(-N // 128), 1, 1, 128, 1, 1, 0, None, values, None), "cuLaunchKernel")
        out = (ctypes.c_float * N)()
        check(cuda.cuMemcpyDtoH_v2(out, memory, ctypes.c_size_t(4 * N)), "cuMemcpyDtoH")
        if list(out) != [i * i + 0.5 for i in range(N)]:
            raise SystemExit("wrong numbers")
        check(cuda.cuModuleUnload(module), "cuModuleUnload")
    check(cuda.cuLinkDestroy(link), "cuLinkDestroy")
    print("ok")


main()
