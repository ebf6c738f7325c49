"""NVML as data: function names, rows of those that are answered, return codes. Imports no I/O."""
