"""Streams and events: order, waiting, timing."""

import torch

here = torch.arange(100_000, dtype=torch.float32)
first, second = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
ready = torch.cuda.Event()
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
with torch.cuda.stream(first):
    begin.record()
    there = here.pin_memory().to("cuda", non_blocking=True)
    ready.record()
with torch.cuda.stream(second):
    ready.wait()
    copy = there.clone()
    copy.record_stream(second)
    end.record()
second.synchronize()
torch.cuda.synchronize()
assert first.query()
assert end.query()
assert begin.elapsed_time(end) >= 0
assert torch.equal(copy.cpu(), here)
assert torch.cuda.current_stream() == torch.cuda.default_stream()
first.wait_stream(second)
del first, second
