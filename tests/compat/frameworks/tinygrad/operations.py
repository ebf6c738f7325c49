"""tinygrad: its op set on the CUDA device, against NumPy."""

import numpy as np
from tinygrad import Tensor, dtypes

generator = np.random.default_rng(1)
a, b = generator.standard_normal((2, 37, 53), dtype=np.float32)
x, y = Tensor(a), Tensor(b)


def same(got, expected, rtol=1e-5, atol=1e-5):
    np.testing.assert_allclose(got.numpy(), expected, rtol=rtol, atol=atol)


assert x.device.startswith("CUDA"), x.device
same(x * y - 2 / (y * y + 1), a * b - 2 / (b * b + 1))
same(x.exp(), np.exp(a))
same(x.sin(), np.sin(a), atol=1e-4)
same((x > y).where(x, y), np.where(a > b, a, b))
same(x.sum(axis=0), a.sum(axis=0), atol=1e-4)
same(x.max(axis=1), a.max(axis=1))
same(x.mean(), a.mean())
same(x.matmul(y.T), a @ b.T, rtol=1e-4, atol=1e-4)
shifted = np.exp(a - a.max(axis=1, keepdims=True))
same(x.softmax(axis=1), shifted / shifted.sum(axis=1, keepdims=True))
same(x.reshape(53, 37).permute(1, 0).flip(0), a.reshape(53, 37).T[::-1])
same(x.pad(((1, 2), (0, 3))), np.pad(a, ((1, 2), (0, 3))))
same(x[3:30:2, :10], a[3:30:2, :10])
same(x.cumsum(axis=1), a.cumsum(axis=1), atol=1e-4)
same(x[Tensor([3, 1, 3])], a[[3, 1, 3]])
same(x.cast(dtypes.float16).contiguous().cast(dtypes.float32), a.astype(np.float16))
ints = generator.integers(-100, 100, 500).astype(np.int32)
same(Tensor(ints) // 7 * 2 ^ 5, ints // 7 * 2 ^ 5)
same(Tensor(ints).sort()[0], np.sort(ints))

image, weights = generator.standard_normal((2, 3, 12, 12), dtype=np.float32), generator.standard_normal((4, 3, 3, 3), dtype=np.float32)
windows = np.lib.stride_tricks.sliding_window_view(image, (3, 3), axis=(2, 3))
same(Tensor(image).conv2d(Tensor(weights)), np.einsum("nchwij,ocij->nohw", windows, weights), rtol=1e-3, atol=1e-4)

w = Tensor(b.T.copy())
(x.matmul(w) ** 2).sum().backward()
same(w.grad, 2 * a.T @ (a @ b.T), rtol=1e-3, atol=1e-2)
print("ok")
