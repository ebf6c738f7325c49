"""System calls in IR."""

from lanGPU.client.shim_ir import place as pl
from lanGPU.native.irtext import Function
from lanGPU.native.x86_64 import SYSCALLS


def syscall(f: Function, name: str, *arguments: str | int) -> str:
    """The raw result: negative errno on failure."""
    words = [*arguments, *([0] * (6 - len(arguments)))]
    return f.call("i64", "sys", f"i64 {SYSCALLS[name]}", *(f"i64 {w}" for w in words))


def patient(f: Function, name: str, *arguments: str | int) -> str:
    """As `syscall`, again after a signal: a handler without SA_RESTART (Python's, say) makes any waiting call return EINTR."""
    result = f.var("i64", 0)
    with f.loop():
        f.set(result, syscall(f, name, *arguments))
        f.leave(f.cmp("ne", f.get(result), pl.EINTR))
    return f.get(result)
