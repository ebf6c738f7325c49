"""Fits a line by gradient descent on a CUDA device, its steps recorded in a CUDA graph (package tinygrad). Run with DEV=CUDA."""

import numpy as np
from tinygrad import Context, Tensor, TinyJit
from tinygrad.nn.optim import SGD

generator = np.random.default_rng(1)
features = generator.standard_normal((256, 4), dtype=np.float32)
truth = np.array([[1.0], [-2.0], [3.0], [0.5]], dtype=np.float32)
x, y = Tensor(features).realize(), Tensor(features @ truth).realize()
weights = Tensor(np.zeros((4, 1), dtype=np.float32))
optimizer = SGD([weights], lr=0.2)


@TinyJit
def step():
    """One step; the loss before it."""
    optimizer.zero_grad()
    loss = ((x @ weights - y) ** 2).mean().backward()
    return loss.realize(*optimizer.schedule_step())


with Context(TRAINING=1):
    losses = [step().item() for _ in range(40)]
if not np.allclose(weights.numpy(), truth, atol=1e-2):
    raise SystemExit("wrong result")
print(f"on {x.device}: the loss fell from {losses[0]:.2f} to {losses[-1]:.1e}")
