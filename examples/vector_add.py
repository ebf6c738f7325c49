"""Adds two vectors on a CUDA device, with nothing between the reader and the driver API (package cuda-bindings)."""

import numpy as np
from cuda.bindings import driver, nvrtc

SOURCE = rb"""
extern "C" __global__ void add(const float *a, const float *b, float *sum, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) sum[i] = a[i] + b[i];
}
"""


def check(answer):
    """Raise if a call failed, else hand on what it returned besides the error code."""
    error, *values = answer
    if error:
        raise RuntimeError(f"{error.name} ({int(error)})")
    return values[0] if len(values) == 1 else tuple(values)


def compile_ptx(source: bytes, architecture: str) -> bytes:
    """CUDA C++ to PTX, with NVRTC."""
    program = check(nvrtc.nvrtcCreateProgram(source, b"add.cu", 0, None, None))
    options = [f"--gpu-architecture={architecture}".encode()]
    (error,) = nvrtc.nvrtcCompileProgram(program, len(options), options)
    if error:
        log = bytearray(check(nvrtc.nvrtcGetProgramLogSize(program)))
        check(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(log.decode())
    ptx = bytearray(check(nvrtc.nvrtcGetPTXSize(program)))
    check(nvrtc.nvrtcGetPTX(program, ptx))
    return bytes(ptx)


def main() -> None:
    """Compile, allocate, copy in, launch, copy back, compare."""
    n = 1 << 20
    a, b = (np.random.default_rng(seed).random(n, dtype=np.float32) for seed in (1, 2))
    result = np.empty_like(a)

    check(driver.cuInit(0))
    device = check(driver.cuDeviceGet(0))
    print("device:", check(driver.cuDeviceGetName(256, device)).split(b"\0")[0].decode())
    context = check(driver.cuDevicePrimaryCtxRetain(device))
    check(driver.cuCtxSetCurrent(context))

    attribute = driver.CUdevice_attribute
    major = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device))
    minor = check(driver.cuDeviceGetAttribute(attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device))
    module = check(driver.cuModuleLoadData(compile_ptx(SOURCE, f"compute_{major}{minor}")))
    kernel = check(driver.cuModuleGetFunction(module, b"add"))

    on_device = [check(driver.cuMemAlloc(a.nbytes)) for _ in range(3)]
    check(driver.cuMemcpyHtoD(on_device[0], a.ctypes.data, a.nbytes))
    check(driver.cuMemcpyHtoD(on_device[1], b.ctypes.data, b.nbytes))

    # a launch takes an array of pointers, one to each argument's value
    arguments = [np.array([int(pointer)], dtype=np.uint64) for pointer in on_device] + [np.array([n], dtype=np.uint64)]
    pointers = np.array([argument.ctypes.data for argument in arguments], dtype=np.uint64)
    threads = 256
    check(driver.cuLaunchKernel(kernel, (n + threads - 1) // threads, 1, 1, threads, 1, 1, 0, 0, pointers.ctypes.data, 0))
    check(driver.cuMemcpyDtoH(result.ctypes.data, on_device[2], result.nbytes))

    for pointer in on_device:
        check(driver.cuMemFree(pointer))
    check(driver.cuModuleUnload(module))
    check(driver.cuDevicePrimaryCtxRelease(device))

    if not np.array_equal(result, a + b):
        raise SystemExit("wrong result")
    print(f"{n} sums, all right")


if __name__ == "__main__":
    main()
