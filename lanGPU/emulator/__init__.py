"""The emulated CUDA driver: a libcuda.so.1 whose device is this machine's processor."""
