"""A training loop with an optimiser, without matrix products (see docs/compatibility.md for cuBLAS on the emulated device)."""

import torch

torch.manual_seed(0)
weight = torch.nn.Parameter(torch.zeros(256, device="cuda"))
optimiser = torch.optim.AdamW([weight], lr=0.1)
target = torch.linspace(0, 1, 256).cuda()
for _ in range(3):
    optimiser.zero_grad(set_to_none=True)
    loss = torch.nn.functional.mse_loss(weight * 2, target)
    loss.backward()
    torch.nn.utils.clip_grad_norm_([weight], 1.0, foreach=True)
    optimiser.step()
torch.cuda.synchronize()
