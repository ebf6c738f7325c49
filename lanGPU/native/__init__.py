"""Machine code and ELF files that lanGPU makes by itself."""
