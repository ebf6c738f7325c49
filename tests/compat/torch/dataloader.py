"""A DataLoader with worker processes and pinned batches, after CUDA was used in the parent."""

import torch
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    torch.zeros(1, device="cuda").cpu()
    data = TensorDataset(torch.arange(64, dtype=torch.float32).reshape(32, 2), torch.arange(32))
    seen = []
    for batch, label in DataLoader(data, batch_size=8, num_workers=2, pin_memory=True):
        there = batch.to("cuda", non_blocking=True)
        assert torch.equal(there.cpu(), batch)
        seen += label.tolist()
    assert seen == list(range(32))


if __name__ == "__main__":
    main()
