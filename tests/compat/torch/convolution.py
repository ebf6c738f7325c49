"""A convolution with its gradient: cuDNN or PyTorch's own kernels, as PyTorch chooses."""

import torch

layer = torch.nn.Conv2d(3, 8, 3, padding=1).cuda()
batch = torch.randn(2, 3, 16, 16).cuda()
out = torch.nn.functional.max_pool2d(layer(batch).relu(), 2)
torch.cuda.synchronize()
assert out.shape == (2, 8, 8, 8)
