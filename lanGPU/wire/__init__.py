"""The protocol, sans-IO: bytes in, events out. Imports no sockets, no clocks, no threads."""
