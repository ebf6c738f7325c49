"""Counts bytes on a CUDA device with a kernel in CUDA C++ (package cupy-cuda13x). On an emulated device, set CUPY_COMPILE_WITH_PTX=1."""

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

data = np.random.default_rng(1).integers(0, 256, 1_000_000).astype(np.uint8)
counts = cp.zeros(256, dtype=cp.uint32)
HISTOGRAM((16,), (256,), (cp.asarray(data), counts, np.int32(data.size)))
if not np.array_equal(cp.asnumpy(counts), np.bincount(data, minlength=256)):
    raise SystemExit("wrong result")
print(f"{data.size} bytes counted, all right; the most frequent is {int(counts.argmax())}")
