"""CuPy: arithmetic, broadcasting, comparisons, math functions and types, against NumPy."""

import cupy as cp
import numpy as np

generator = np.random.default_rng(1)
a, b = generator.standard_normal((2, 301, 77), dtype=np.float32)
x, y = cp.asarray(a), cp.asarray(b)
np.testing.assert_array_equal(cp.asnumpy(x * y + 2), a * b + 2)
np.testing.assert_array_equal(cp.asnumpy(x[:, ::3] - y[0, ::3]), a[:, ::3] - b[0, ::3])
np.testing.assert_array_equal(cp.asnumpy(cp.where(x > y, x, y)), np.where(a > b, a, b))
for name in ("exp", "sin", "tanh", "floor", "rint"):
    np.testing.assert_allclose(cp.asnumpy(getattr(cp, name)(x)), getattr(np, name)(a), rtol=2e-6, atol=2e-6, err_msg=name)
n = generator.integers(-1000, 1000, 5000)
d = generator.integers(1, 50, 5000)
for kind in (np.int8, np.int32, np.int64, np.uint16):
    p, q = n.astype(kind), d.astype(kind)
    np.testing.assert_array_equal(cp.asnumpy(cp.asarray(p) // cp.asarray(q)), p // q)
    np.testing.assert_array_equal(cp.asnumpy(cp.asarray(p) << 2 ^ cp.asarray(q)), p << 2 ^ q)
half = a.astype(np.float16)
np.testing.assert_array_equal(cp.asnumpy(cp.asarray(half) * 2), half * 2)
z = (a + 1j * b).astype(np.complex64)
np.testing.assert_allclose(cp.asnumpy(cp.asarray(z) * cp.asarray(z).conj()), z * z.conj(), rtol=1e-5)
print("ok")
