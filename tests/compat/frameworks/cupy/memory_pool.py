"""CuPy: its pool, the driver's asynchronous pool, managed memory, views, scatter and gather."""

import cupy as cp
import numpy as np

pool = cp.get_default_memory_pool()
before = pool.used_bytes()
a = cp.zeros(1 << 20, dtype=cp.uint8)
assert pool.used_bytes() - before == 1 << 20
address = a.data.ptr
del a
assert cp.zeros(1 << 20, dtype=cp.uint8).data.ptr == address  # from the pool, not from the driver
pool.free_all_blocks()
assert pool.total_bytes() == 0

with cp.cuda.using_allocator(cp.cuda.MemoryAsyncPool().malloc):
    b = cp.arange(10_000) * 2
np.testing.assert_array_equal(cp.asnumpy(b), np.arange(10_000) * 2)
with cp.cuda.using_allocator(cp.cuda.malloc_managed):
    c = cp.arange(10_000, dtype=cp.float32) + 1
np.testing.assert_array_equal(cp.asnumpy(c), np.arange(10_000, dtype=np.float32) + 1)

index = np.random.default_rng(6).integers(0, 100, 1000)
values = np.arange(100, dtype=np.int32)
np.testing.assert_array_equal(cp.asnumpy(cp.asarray(values)[cp.asarray(index)]), values[index])
total, expected = cp.zeros(100, dtype=cp.int32), np.zeros(100, dtype=np.int32)
cp.add.at(total, cp.asarray(index), 1)
np.add.at(expected, index, 1)
np.testing.assert_array_equal(cp.asnumpy(total), expected)
matrix = np.arange(12.0).reshape(3, 4)
np.testing.assert_array_equal(cp.asnumpy(cp.asarray(matrix).T[::-1].copy()), matrix.T[::-1])
try:
    cp.zeros(1 << 46, dtype=cp.uint8)
except cp.cuda.memory.OutOfMemoryError:
    pass
else:
    raise SystemExit("64 TiB were given")
assert float(cp.ones(3).sum()) == 3  # the device goes on
print("ok")
