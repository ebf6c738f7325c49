"""tinygrad: TinyJit, which records kernels in a CUDA graph and launches that, and a few training steps of a network."""

import numpy as np
from tinygrad import Context, Tensor, TinyJit
from tinygrad.nn.optim import SGD

generator = np.random.default_rng(2)


@TinyJit
def step(x):
    y = x
    for k in range(4):
        y = (y @ y * 0.1 + k).contiguous()
    return y.realize()


for _ in range(6):  # two calls look, the third one records, the others launch the graph
    a = generator.standard_normal((16, 16), dtype=np.float32)
    expected = a
    for k in range(4):
        expected = expected @ expected * 0.1 + k
    np.testing.assert_allclose(step(Tensor(a).realize()).numpy(), expected, rtol=1e-3, atol=1e-3)

features = generator.standard_normal((64, 8), dtype=np.float32)
target = (features @ np.arange(8, dtype=np.float32))[:, None]
weights = Tensor(np.zeros((8, 1), dtype=np.float32))
optimizer = SGD([weights], lr=0.05)
x, y = Tensor(features).realize(), Tensor(target).realize()


@TinyJit
def train():
    optimizer.zero_grad()
    loss = ((x @ weights - y) ** 2).mean().backward()
    return loss.realize(*optimizer.schedule_step())  # the loss before the step


reference = np.zeros((8, 1), dtype=np.float32)
for _ in range(12):
    error = features @ reference - target
    with Context(TRAINING=1):
        found = train().item()
    np.testing.assert_allclose(found, (error**2).mean(), rtol=1e-3)
    reference -= 0.05 * (2 / 64) * features.T @ error
np.testing.assert_allclose(weights.numpy(), reference, rtol=1e-3, atol=1e-3)
print("ok")
