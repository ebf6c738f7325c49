"""Scales a vector on a CUDA device, compiled and launched with cuda.core (packages cuda-core and nvidia-cuda-nvrtc)."""

import numpy as np
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

SOURCE = """
extern "C" __global__ void scale(float *x, float by, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) x[i] *= by;
}
"""
n = 10_000
device = Device()
device.set_current()
stream = device.create_stream()
kernel = Program(SOURCE, code_type="c++", options=ProgramOptions(arch=f"compute_{device.arch}")).compile("ptx").get_kernel("scale")
pinned = LegacyPinnedMemoryResource().allocate(4 * n, stream=stream)
host = np.from_dlpack(pinned).view(np.float32)
host[:] = np.arange(n)
on_device = device.memory_resource.allocate(4 * n, stream=stream)
on_device.copy_from(pinned, stream=stream)
launch(stream, LaunchConfig(grid=(n + 255) // 256, block=256), kernel, on_device, np.float32(3), n)
on_device.copy_to(pinned, stream=stream)
stream.sync()
if not np.array_equal(host, 3 * np.arange(n, dtype=np.float32)):
    raise SystemExit("wrong result")
print(f"{n} values scaled on {device.name}, all right")
