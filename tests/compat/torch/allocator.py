"""The caching allocator: statistics, reuse, giving back, running out."""

import torch

assert torch.cuda.memory_allocated() == 0
blocks = [torch.empty(1 << 20, dtype=torch.uint8, device="cuda") for _ in range(8)]
assert torch.cuda.memory_allocated() == 8 << 20
reserved = torch.cuda.memory_reserved()
assert reserved >= 8 << 20
del blocks[::2]
again = torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
assert torch.cuda.memory_reserved() == reserved
del blocks, again
assert torch.cuda.memory_allocated() == 0
torch.cuda.empty_cache()
assert torch.cuda.memory_reserved() == 0
assert torch.cuda.max_memory_allocated() == 8 << 20
torch.cuda.reset_peak_memory_stats()
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.cuda.OutOfMemoryError:
    pass
else:
    raise AssertionError("a petabyte was allocated")
assert torch.empty(1000, device="cuda").numel() == 1000
assert torch.cuda.memory_stats()["num_ooms"] == 1
