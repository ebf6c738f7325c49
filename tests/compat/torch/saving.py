"""Saving and loading, with devices mapped both ways."""

import io

import torch

model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4))
before = {name: value.clone() for name, value in model.state_dict().items()}
model.cuda()
buffer = io.BytesIO()
torch.save(model.state_dict(), buffer)
for where in ("cpu", "cuda"):
    buffer.seek(0)
    loaded = torch.load(buffer, map_location=where)
    for name, value in before.items():
        assert loaded[name].device.type == where
        assert torch.equal(loaded[name].cpu(), value), name
