"""Multiplies matrices on a CUDA device by tiles in shared memory (package numba-cuda; on an emulated device without nvidia-nvjitlink)."""

import numpy as np
from numba import cuda, float32

TILE = 16


@cuda.jit
def multiply(a, b, c):
    """c = a b; sizes are multiples of TILE."""
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


a, b = np.random.default_rng(1).standard_normal((2, 256, 256), dtype=np.float32)
c = cuda.device_array_like(a)
multiply[(256 // TILE, 256 // TILE), (TILE, TILE)](cuda.to_device(a), cuda.to_device(b), c)
if not np.allclose(c.copy_to_host(), a @ b, atol=1e-3):
    raise SystemExit("wrong result")
print("a product of 256 x 256 matrices, all right")
