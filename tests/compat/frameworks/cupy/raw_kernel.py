"""CuPy: kernels in CUDA C++ with shared memory, atomics and templates; ElementwiseKernel, ReductionKernel, fuse."""

import cupy as cp
import numpy as np

HISTOGRAM = cp.RawKernel(
    r"""
extern "C" __global__ void histogram(const unsigned char *data, unsigned int *counts, int n) {
    __shared__ unsigned int local[256];
    local[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&local[data[i]], 1u);
    __syncthreads();
    atomicAdd(&counts[threadIdx.x], local[threadIdx.x]);
}
""",
    "histogram",
)
data = np.random.default_rng(3).integers(0, 256, 50_000).astype(np.uint8)
counts = cp.zeros(256, dtype=cp.uint32)
HISTOGRAM((7,), (256,), (cp.asarray(data), counts, np.int32(data.size)))
np.testing.assert_array_equal(cp.asnumpy(counts), np.bincount(data, minlength=256))

module = cp.RawModule(
    code=r"""
template <typename T> __global__ void twice(T *values, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) values[i] = values[i] + values[i];
}
""",
    name_expressions=["twice<float>", "twice<long long>"],
)
for name, kind in (("twice<float>", np.float32), ("twice<long long>", np.int64)):
    values = np.arange(300, dtype=kind)
    on_device = cp.asarray(values)
    module.get_function(name)((3,), (128,), (on_device, np.int32(values.size)))
    np.testing.assert_array_equal(cp.asnumpy(on_device), 2 * values)

squares = cp.ElementwiseKernel("T x, T y", "T z", "z = (x - y) * (x - y)", "squared_difference")
a, b = np.random.default_rng(4).standard_normal((2, 1000))
np.testing.assert_allclose(cp.asnumpy(squares(cp.asarray(a), cp.asarray(b))), (a - b) ** 2, rtol=1e-14)
norm = cp.ReductionKernel("T x", "T y", "x * x", "a + b", "y = sqrt(a)", "0", "l2norm")
np.testing.assert_allclose(float(norm(cp.asarray(a))), np.linalg.norm(a), rtol=1e-12)


@cp.fuse()
def fused(x, y):
    return cp.sqrt(x * x + y * y)


np.testing.assert_allclose(cp.asnumpy(fused(cp.asarray(a), cp.asarray(b))), np.hypot(a, b), rtol=1e-12)
print("ok")
