"""numba-cuda: atomics on several types and spaces, warp shuffles and votes, cuda.reduce."""

import numpy as np
from numba import cuda, int32


@cuda.jit
def histogram(data, counts, extremes):
    i = cuda.grid(1)
    if i < data.size:
        cuda.atomic.add(counts, data[i], 1)
        cuda.atomic.max(extremes, 0, data[i])
        cuda.atomic.min(extremes, 1, data[i])


@cuda.jit
def totals(values, out):
    local = cuda.shared.array(1, int32)
    if cuda.threadIdx.x == 0:
        local[0] = 0
    cuda.syncthreads()
    cuda.atomic.add(local, 0, values[cuda.grid(1)])
    cuda.syncthreads()
    if cuda.threadIdx.x == 0:
        out[cuda.blockIdx.x] = local[0]


@cuda.jit
def count_up(total):
    cuda.atomic.add(total, 0, 0.5)


@cuda.jit
def once(state, winners):
    if cuda.atomic.cas(state, 0, 0, 1) == 0:
        cuda.atomic.add(winners, 0, 1)


@cuda.jit
def warp(values, sums, ballots):
    t = cuda.threadIdx.x
    value = values[t]
    ballots[t] = cuda.ballot_sync(0xFFFFFFFF, value > 50)
    for offset in (16, 8, 4, 2, 1):
        value += cuda.shfl_down_sync(0xFFFFFFFF, value, offset)
    if cuda.laneid == 0:
        sums[t // 32] = value


@cuda.reduce
def add(a, b):
    return a + b


generator = np.random.default_rng(3)
data = generator.integers(0, 64, 10_000).astype(np.int32)
counts, extremes = np.zeros(64, dtype=np.int32), np.array([-1, 1000], dtype=np.int32)
histogram[40, 256](data, counts, extremes)
np.testing.assert_array_equal(counts, np.bincount(data, minlength=64))
assert extremes.tolist() == [data.max(), data.min()]
out = np.zeros(8, dtype=np.int32)
totals[8, 128](data[:1024].copy(), out)
np.testing.assert_array_equal(out, data[:1024].reshape(8, 128).sum(axis=1))
for kind in (np.float32, np.float64):
    total = np.zeros(1, dtype=kind)
    count_up[50, 64](total)
    assert total[0] == 1600
state, winners = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.int32)
once[20, 64](state, winners)
assert (state[0], winners[0]) == (1, 1)
values = generator.integers(0, 100, 128).astype(np.int32)
sums, ballots = np.zeros(4, dtype=np.int32), np.zeros(128, dtype=np.uint32)
warp[1, 128](values, sums, ballots)
np.testing.assert_array_equal(sums, values.reshape(4, 32).sum(axis=1))
bits = ((values.reshape(4, 32) > 50) * (1 << np.arange(32, dtype=np.uint64))).sum(axis=1)
np.testing.assert_array_equal(ballots, np.repeat(bits, 32))
numbers = np.arange(5000, dtype=np.float64)
assert add(numbers) == numbers.sum()
print("ok")
