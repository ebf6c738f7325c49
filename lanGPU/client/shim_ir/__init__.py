"""The IR of the shim, by concern: `attach` (the first call of a process), `slots` (threads), `ring` (lock, room, doorbell, waiting),
`commands` (what the agent asks), `encode` (calls to records), `dispatch` (which way a call takes).

Rules for everything here: raw system calls only, no libc, no Python, no GIL; the program's memory is touched only through its own
arguments; whatever waits looks for the agent's death once a second.
"""
