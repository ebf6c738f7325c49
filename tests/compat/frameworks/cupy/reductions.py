"""CuPy: sums, extremes, means and their positions, over all and over axes, by its own kernels and by CUB's."""

import cupy as cp
import numpy as np

generator = np.random.default_rng(2)
a = generator.integers(-50, 50, (64, 33, 17)).astype(np.float32)
x = cp.asarray(a)
for axis in (None, 0, 1, 2, (0, 2)):
    for name in ("sum", "max", "min", "prod" if axis == 2 else "mean"):
        got = cp.asnumpy(getattr(x / 8, name)(axis=axis))
        np.testing.assert_allclose(got, getattr(a / 8, name)(axis=axis), rtol=1e-5, atol=1e-5, err_msg=f"{name} {axis}")
np.testing.assert_array_equal(cp.asnumpy(x.argmax(axis=1)), a.argmax(axis=1))
for size in (1, 31, 512, 513, 4096, 100_003):
    ones = cp.ones(size, dtype=cp.float32)
    assert float(ones.sum()) == size, size  # one CUB kernel for what fits a block, two for more
    values = generator.integers(-9, 9, size)
    assert int(cp.asarray(values).sum()) == values.sum(), size
    assert int(cp.asarray(values).max()) == values.max(), size
assert bool((x < 50).all())
assert not bool((x > 50).any())
np.testing.assert_allclose(float(cp.linalg.norm(x.ravel())), np.linalg.norm(a.ravel()), rtol=1e-6)
print("ok")
