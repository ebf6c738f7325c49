"""CuPy: sorting, searching and prefix sums (CUB's and Thrust's kernels)."""

import cupy as cp
import numpy as np

generator = np.random.default_rng(7)
for size in (1, 1000, 20_000):
    ints = generator.integers(-(10**6), 10**6, size)
    floats = generator.standard_normal(size, dtype=np.float32)
    np.testing.assert_array_equal(cp.asnumpy(cp.cumsum(cp.asarray(ints))), np.cumsum(ints))
    np.testing.assert_array_equal(cp.asnumpy(cp.sort(cp.asarray(ints))), np.sort(ints))
    np.testing.assert_array_equal(cp.asnumpy(cp.sort(cp.asarray(floats))), np.sort(floats))
    np.testing.assert_array_equal(floats[cp.asnumpy(cp.argsort(cp.asarray(floats)))], np.sort(floats))
    few = ints % 50
    got, counts = cp.unique(cp.asarray(few), return_counts=True)
    expected, times = np.unique(few, return_counts=True)
    np.testing.assert_array_equal(cp.asnumpy(got), expected)
    np.testing.assert_array_equal(cp.asnumpy(counts), times)
    table = np.sort(floats)
    np.testing.assert_array_equal(cp.asnumpy(cp.searchsorted(cp.asarray(table), cp.asarray(floats))), np.searchsorted(table, floats))
print("ok")
