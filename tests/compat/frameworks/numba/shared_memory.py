"""numba-cuda: shared memory with barriers (tiled product, sum by halves), local and constant arrays, dynamic shared memory."""

import numpy as np
from numba import cuda, float32, float64, int32

TILE = 16
WEIGHTS = np.array([0.25, 0.5, 0.25])


@cuda.jit
def matmul(a, b, c):
    left = cuda.shared.array((TILE, TILE), float32)
    right = cuda.shared.array((TILE, TILE), float32)
    tx, ty = cuda.threadIdx.x, cuda.threadIdx.y
    row, column = cuda.grid(2)
    total = float32(0)
    for step in range(a.shape[1] // TILE):
        left[tx, ty] = a[row, step * TILE + ty]
        right[tx, ty] = b[step * TILE + tx, column]
        cuda.syncthreads()
        for k in range(TILE):
            total += left[tx, k] * right[k, ty]
        cuda.syncthreads()
    c[row, column] = total


@cuda.jit
def block_sums(values, sums):
    local = cuda.shared.array(0, float64)
    t = cuda.threadIdx.x
    i = cuda.grid(1)
    local[t] = values[i] if i < values.size else 0.0
    cuda.syncthreads()
    half = cuda.blockDim.x // 2
    while half > 0:
        if t < half:
            local[t] += local[t + half]
        cuda.syncthreads()
        half //= 2
    if t == 0:
        sums[cuda.blockIdx.x] = local[0]


@cuda.jit
def smooth(values, out):
    weights = cuda.const.array_like(WEIGHTS)
    window = cuda.local.array(3, float64)
    i = cuda.grid(1)
    if 0 < i < values.size - 1:
        for k in range(int32(3)):
            window[k] = values[i + k - 1]
        out[i] = window[0] * weights[0] + window[1] * weights[1] + window[2] * weights[2]


generator = np.random.default_rng(2)
a, b = generator.standard_normal((2, 64, 64), dtype=np.float32)
c = np.zeros_like(a)
matmul[(4, 4), (TILE, TILE)](a, b, c)
np.testing.assert_allclose(c, a @ b, rtol=1e-4, atol=1e-4)

values = generator.standard_normal(5000)
sums = np.zeros(20)
block_sums[20, 256, 0, 256 * 8](values, sums)
np.testing.assert_allclose(sums, np.pad(values, (0, 120)).reshape(20, 256).sum(axis=1), atol=1e-11)

out = np.zeros_like(values)
smooth[20, 256](values, out)
np.testing.assert_allclose(out[1:-1], 0.25 * values[:-2] + 0.5 * values[1:-1] + 0.25 * values[2:], rtol=1e-12)
print("ok")
