"""Pinned memory: asynchronous copies take what lies there, and changes after the event do no harm."""

import torch

source = torch.empty(500_000, dtype=torch.int32).pin_memory()
assert source.is_pinned()
sink = torch.empty_like(source).pin_memory()
done = torch.cuda.Event()
for value in range(5):
    source.fill_(value)
    there = source.to("cuda", non_blocking=True)
    done.record()
    done.synchronize()
    source.fill_(-1)
    sink.copy_(there, non_blocking=True)
    torch.cuda.synchronize()
    assert bool((sink == value).all()), value
