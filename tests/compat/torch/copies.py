"""Copies both ways, of every kind of tensor: the bytes come back as they went."""

import torch

for dtype in (
    torch.uint8,
    torch.int16,
    torch.float16,
    torch.bfloat16,
    torch.int32,
    torch.float32,
    torch.float64,
    torch.int64,
    torch.complex64,
):
    for size in (0, 1, 1000, 70_001, 1_000_000):
        here = (torch.arange(size) % 251).to(dtype)
        there = here.to("cuda")
        assert torch.equal(there.cpu(), here), (dtype, size)
        assert torch.equal(there.clone().cpu(), here), (dtype, size)
grid = torch.arange(10_000.0).reshape(100, 100)
assert torch.equal(grid.cuda().cpu(), grid)
assert torch.equal(grid.t().contiguous().cuda().cpu(), grid.t())
target = torch.empty(100, 100, device="cuda")
target.copy_(grid)
target[10:20].copy_(grid[50:60])
assert torch.equal(target[10:20].cpu(), grid[50:60])
assert target[3, 4].item() == grid[3, 4].item()
