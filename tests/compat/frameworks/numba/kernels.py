"""numba-cuda: element by element, on a grid of two dimensions, with device functions, math and streams."""

import math

import numpy as np
from numba import cuda, vectorize


@cuda.jit(device=True)
def logistic(x):
    return 1.0 / (1.0 + math.exp(-x))


@cuda.jit
def axpy(a, x, y, out):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = a * x[i] + y[i]


@cuda.jit
def table(out):
    i, j = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = logistic(i - j * 0.5)


@vectorize(["float64(float64, float64)"], target="cuda")
def distance(x, y):
    return math.sqrt(x * x + y * y)


generator = np.random.default_rng(1)
x, y = generator.standard_normal((2, 10_001))
stream = cuda.stream()
on_device = cuda.to_device(x, stream=stream)
out = cuda.device_array_like(x, stream=stream)
axpy[(x.size + 127) // 128, 128, stream](2.5, on_device, cuda.to_device(y, stream=stream), out)
got = out.copy_to_host(stream=stream)
stream.synchronize()
np.testing.assert_allclose(got, 2.5 * x + y, atol=1e-14)  # the device adds without rounding the product

result = np.zeros((70, 45))
table[(5, 3), (16, 16)](result)
i, j = np.indices(result.shape)
np.testing.assert_allclose(result, 1 / (1 + np.exp(-(i - j * 0.5))), rtol=1e-12)
np.testing.assert_allclose(distance(x, y), np.hypot(x, y), rtol=1e-14)
print("ok")
