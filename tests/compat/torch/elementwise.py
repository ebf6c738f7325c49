"""Kernels of PyTorch's own, forward and backward: launches of machine code, recorded on the emulated device."""

import torch

x = torch.linspace(-3, 3, 10_000, device="cuda", requires_grad=True)
y = (x.sin() * x.exp()).relu().pow(2) + torch.where(x > 0, x, -x)
y.sum().backward()
assert x.grad.shape == x.shape
z = torch.stack([x.detach(), x.detach() * 2]).softmax(dim=1)
index = torch.arange(0, 10_000, 7, device="cuda")
picked = x.detach()[index]
torch.cuda.synchronize()
assert picked.shape == index.shape
assert z.max(dim=1).values.shape == (2,)
