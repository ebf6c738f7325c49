"""A CUDA graph captured, replayed, fed with new input."""

import torch

static = torch.zeros(1000, device="cuda")
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        out = (static + 1) * 2
torch.cuda.current_stream().wait_stream(side)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    out = (static + 1) * 2
    copy = out.clone()
for step in range(4):
    static.copy_(torch.full((1000,), float(step)))
    graph.replay()
torch.cuda.synchronize()
copy.cpu()
graph.reset()
