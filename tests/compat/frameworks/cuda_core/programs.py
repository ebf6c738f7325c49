"""cuda.core: compile to PTX, launch on a stream, buffers from the default memory resource, events; against NumPy."""

import ctypes

import numpy as np
from cuda.core import Device, EventOptions, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

SOURCE = """
template <typename T> __global__ void axpy(T a, const T *x, T *y, size_t n) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x) y[i] += a * x[i];
}
"""
device = Device()
device.set_current()
stream = device.create_stream()
program = Program(SOURCE, code_type="c++", options=ProgramOptions(std="c++17", arch=f"compute_{device.arch}"))
module = program.compile("ptx", name_expressions=("axpy<float>", "axpy<double>"))
pinned = LegacyPinnedMemoryResource()


def upload(values):
    """A device buffer with these values, by way of pinned memory."""
    staging = pinned.allocate(values.nbytes, stream=stream)
    ctypes.memmove(int(staging.handle), values.ctypes.data, values.nbytes)
    buffer = device.memory_resource.allocate(values.nbytes, stream=stream)
    buffer.copy_from(staging, stream=stream)
    return buffer


def download(buffer, like):
    """What is in a device buffer."""
    staging = pinned.allocate(like.nbytes, stream=stream)
    buffer.copy_to(staging, stream=stream)
    stream.sync()
    result = np.empty_like(like)
    ctypes.memmove(result.ctypes.data, int(staging.handle), like.nbytes)
    return result


generator = np.random.default_rng(1)
for name, kind in (("axpy<float>", np.float32), ("axpy<double>", np.float64)):
    x, y = generator.standard_normal((2, 5000)).astype(kind)
    on_device = upload(x), upload(y)
    kernel = module.get_kernel(name)
    start = stream.record(options=EventOptions(timing_enabled=True))
    launch(stream, LaunchConfig(grid=8, block=128), kernel, kind(3), on_device[0], on_device[1], x.size)
    stop = stream.record(options=EventOptions(timing_enabled=True))
    np.testing.assert_allclose(download(on_device[1], y), y + 3 * x, atol=2e-6 if kind is np.float32 else 1e-14)
    assert stop - start >= 0
print("ok")
