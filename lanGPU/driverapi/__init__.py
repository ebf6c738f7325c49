"""The CUDA driver API as data: one row per function, from which everything else is derived."""
