"""What PyTorch tells of the device."""

import torch

assert torch.cuda.is_available()
assert torch.cuda.device_count() == 1
properties = torch.cuda.get_device_properties(0)
assert properties.total_memory > 0
assert torch.cuda.get_device_capability() == (properties.major, properties.minor)
assert torch.cuda.current_device() == 0
torch.cuda.init()
free, total = torch.cuda.mem_get_info()
assert 0 < free <= total
print(torch.cuda.get_device_name(), properties.multi_processor_count)
