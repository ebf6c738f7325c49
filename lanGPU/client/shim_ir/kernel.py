"""System calls in IR."""

from lanGPU.native.irtext import Function
from lanGPU.native.x86_64 import SYSCALLS


def syscall(f: Function, name: str, *arguments: str | int) -> str:
    """The raw result: negative errno on failure."""
    words = [*arguments, *([0] * (6 - len(arguments)))]
    return f.call("i64", "sys", f"i64 {SYSCALLS[name]}", *(f"i64 {w}" for w in words))
