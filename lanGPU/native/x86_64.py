"""What is particular to x86-64 Linux: system calls, the thread pointer, bulk copies, trampolines, relocations.

Sources: AMD64 psABI (calling convention, relocation types), Linux asm/unistd_64.h (system call numbers).
"""

import platform
import struct
from typing import Final

from lanGPU.errors import ConfigError

TRIPLE: Final = "x86_64-unknown-linux-gnu"
ELF_MACHINE: Final = 62
TRAMPOLINE_BYTES: Final = 16
MAX_REGISTER_ARGS: Final = 6
R_GLOB_DAT: Final = 6
"""Relocation type: the loader stores a symbol's address."""

SYSCALLS: Final = {
    "read": 0,
    "open": 2,
    "close": 3,
    "rt_sigprocmask": 14,
    "mmap": 9,
    "munmap": 11,
    "sched_yield": 24,
    "madvise": 28,
    "getpid": 39,
    "socket": 41,
    "connect": 42,
    "recvfrom": 45,
    "sendmsg": 46,
    "sendto": 44,
    "recvmsg": 47,
    "gettid": 186,
    "futex": 202,
    "tgkill": 234,
    "process_vm_readv": 310,
}

TID_OFFSET: Final = 0x2D0
"""Where glibc keeps a thread's tid relative to its thread pointer; used only after it was compared with gettid()."""

_SHORT_COPY_BYTES: Final = 128
"""Below this ``rep movsb`` costs more to start than words cost to copy."""

IR: Final = f"""
define internal i64 @sys(i64 %n, i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f) alwaysinline nounwind {{
  %r = call i64 asm sideeffect "syscall", "={{rax}},{{rax}},{{rdi}},{{rsi}},{{rdx}},{{r10}},{{r8}},{{r9}},~{{rcx}},~{{r11}},~{{memory}}"(
    i64 %n, i64 %a, i64 %b, i64 %c, i64 %d, i64 %e, i64 %f)
  ret i64 %r
}}
define internal i64 @thread_pointer() alwaysinline nounwind {{
  %r = call i64 asm sideeffect "movq %fs:0, $0", "=r"()
  ret i64 %r
}}
define internal i32 @thread_word() alwaysinline nounwind {{
  %r = call i32 asm sideeffect "movl %fs:{TID_OFFSET}, $0", "=r"()
  ret i32 %r
}}
define internal void @copy(ptr %to, ptr %from, i64 %n) nounwind {{
  %short = icmp ult i64 %n, {_SHORT_COPY_BYTES}
  br i1 %short, label %words, label %bulk
words:
  %w = phi i64 [0, %0], [%w.next, %word]
  %w.next = add i64 %w, 8
  %w.fits = icmp ule i64 %w.next, %n
  br i1 %w.fits, label %word, label %rest
word:
  %w.from = getelementptr i8, ptr %from, i64 %w
  %w.to = getelementptr i8, ptr %to, i64 %w
  %w.value = load i64, ptr %w.from, align 1
  store i64 %w.value, ptr %w.to, align 1
  br label %words
rest:
  %b = phi i64 [%w, %words], [%b.next, %byte]
  %b.left = icmp ult i64 %b, %n
  br i1 %b.left, label %byte, label %done
byte:
  %b.from = getelementptr i8, ptr %from, i64 %b
  %b.to = getelementptr i8, ptr %to, i64 %b
  %b.value = load i8, ptr %b.from, align 1
  store i8 %b.value, ptr %b.to, align 1
  %b.next = add i64 %b, 1
  br label %rest
done:
  ret void
bulk:
  %r = call {{ptr, ptr, i64}} asm sideeffect "rep movsb", "={{rdi}},={{rsi}},={{rcx}},0,1,2,~{{memory}}"(ptr %to, ptr %from, i64 %n)
  ret void
}}
define internal void @pause() alwaysinline nounwind {{
  call void asm sideeffect "pause", "~{{memory}}"()
  ret void
}}
"""
"""Functions of the processor for IR modules. ``rep movsb``: code of ours must not need anybody's memcpy."""


def require() -> None:
    """Refuses other machines.

    Raises:
        ConfigError: this is not x86-64 Linux.
    """
    if platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux":
        raise ConfigError(
            f"programs on {platform.system()} {platform.machine()} cannot use a remote GPU yet: lanGPU's machine code is for x86-64 Linux",
            hint="run the program on an x86-64 Linux machine",
        )


def trampolines(base: int, count: int, dispatch: int) -> bytes:
    """`count` entry points of TRAMPOLINE_BYTES from address `base`, then the code they share.

    Entry i calls ``dispatch(i, registers, stack)``: `registers` points to the six integer argument registers in order, `stack`
    to the arguments on the caller's stack.
    """
    shared = base + count * TRAMPOLINE_BYTES
    out = bytearray()
    for index in range(count):
        at = base + index * TRAMPOLINE_BYTES
        # mov eax, index; jmp shared; padding of int3
        out += (b"\xb8" + struct.pack("<I", index) + b"\xe9" + struct.pack("<i", shared - (at + 10))).ljust(TRAMPOLINE_BYTES, b"\xcc")
    code = bytes.fromhex(
        "4151 4150 51 52 56 57"  # push r9, r8, rcx, rdx, rsi, rdi
        "89c7"  # mov edi, eax
        "4889e6"  # mov rsi, rsp
        "488d542438"  # lea rdx, [rsp + 56]: behind six pushes and the return address
        "4883ec08"  # sub rsp, 8: aligned to 16 at the call
    )
    code += b"\xe8" + struct.pack("<i", dispatch - (shared + len(code) + 5)) + bytes.fromhex("4883c438 c3")  # call; add rsp, 56; ret
    return bytes(out) + code


def shared_code_bytes() -> int:
    """Size of what follows the entry points."""
    return len(trampolines(0, 0, 0))


def relocate(kind: int, code: bytearray, place: int, place_address: int, symbol_address: int, addend: int) -> None:
    """Apply a relocation inside one image.

    Raises:
        ConfigError: a relocation that code of ours should not have.
    """
    if kind in (2, 4):  # R_X86_64_PC32, R_X86_64_PLT32
        value = symbol_address + addend - place_address
        if not -(1 << 31) <= value < 1 << 31:
            raise ConfigError("generated code is too far apart for a 32-bit displacement")
        struct.pack_into("<i", code, place, value)
        return
    raise ConfigError(f"generated code has a relocation of type {kind}, which is not handled", hint="this is a bug in lanGPU")
