"""A process's first call: find the agent's socket, say hello, receive the shared memory."""

from lanGPU.client import layout as lay
from lanGPU.client.shim_ir import place as pl
from lanGPU.client.shim_ir.kernel import patient, syscall
from lanGPU.constants import CUDA_ERROR_NO_DEVICE
from lanGPU.native.irtext import Function

_ENVIRON_BYTES = 4 * 1024 * 1024
"""Largest environment read: the kernel allows a quarter of the stack limit, 2 MiB by default."""
_PREFIX = (lay.ENV_SOCKET + "=").encode()
_PATH_BYTES = 107
IMPORTS = ("environ", "pthread_create", "pthread_detach")
"""What the shim uses of the C library, where there is one: data, and functions for a thread of its own."""


def _c_string(data: bytes) -> str:
    return "".join(f"\\{b:02X}" for b in data + b"\0")


def globals_ir(digest: bytes) -> str:
    """Module-level data of this part."""
    prefix = _PREFIX
    imports = "".join(f"@import.{name} = external hidden global ptr\n" for name in IMPORTS)
    return imports + (
        "@private = internal global ptr null\n"
        "@image_start = external hidden global i8\n"
        f'@digest = internal constant [33 x i8] c"{_c_string(digest)}"\n'
        f'@proc_environ = internal constant [19 x i8] c"{_c_string(b"/proc/self/environ")}"\n'
        f'@prefix = internal constant [{len(prefix) + 1} x i8] c"{_c_string(prefix)}"\n'
    )


def private_page() -> str:
    """``private_page() -> ptr``: the page, made by whoever comes first; null if there is no memory."""
    f = Function("internal ptr @private_page()", "nounwind noinline")
    old = f.op("load atomic ptr, ptr @private acquire, align 8")
    with f.when(f.op(f"icmp ne ptr {old}, null")):
        f.ret("ptr", old)
    page = syscall(f, "mmap", 0, pl.PRIVATE_BYTES, pl.PROT_RW, pl.MAP_PRIVATE | pl.MAP_ANONYMOUS, -1, 0)
    with f.when(f.cmp("slt", page, 0)):
        f.ret("ptr", "null")
    advice = syscall(f, "madvise", page, pl.PRIVATE_BYTES, pl.MADV_WIPEONFORK)
    with f.when(f.cmp("slt", advice, 0)):  # a kernel before 4.14: a child would write into its parent's ring
        syscall(f, "munmap", page, pl.PRIVATE_BYTES)
        f.ret("ptr", "null")
    pointer = f.pointer(page)
    both = f.op(f"cmpxchg ptr @private, ptr null, ptr {pointer} seq_cst seq_cst")
    won = f.op(f"extractvalue {{ptr, i1}} {both}, 1")
    with f.when(won):
        f.ret("ptr", pointer)
    syscall(f, "munmap", page, pl.PRIVATE_BYTES)
    f.ret("ptr", f.op(f"extractvalue {{ptr, i1}} {both}, 0"))
    return f.text()


def value_of() -> str:
    """``value_of(ptr entry, ptr out) -> i32``: if an environment entry is the socket's, its value to `out`; bytes written, else 0."""
    f = Function("internal i32 @value_of(ptr %entry, ptr %out)", "nounwind noinline")
    with f.count(len(_PREFIX)) as i, f.when(f.cmp("ne", f.load("i8", "%entry", i), f.load("i8", "@prefix", i), "i8")):
        f.ret("i32", 0)
    value = f.at("%entry", len(_PREFIX))
    n = f.var("i64", 0)
    with f.loop():
        i = f.get(n)
        c = f.load("i8", value, i)
        f.leave(f.either(f.cmp("eq", c, 0, "i8"), f.cmp("uge", i, _PATH_BYTES)))
        f.store("i8", c, "%out", i)
        f.set(n, f.add(i, 1))
    f.ret("i32", f.trunc(f.get(n)))
    return f.text()


def find_path() -> str:
    """``find_path(ptr sun_path) -> i32``: length of the agent's socket path from the environment; 0: none.

    First the C library's ``environ``, then the environment that the process started with: a program may have cleared the former, and
    the latter is lost where a program writes its title over it, or may not look into its own /proc.
    """
    f = Function("internal i32 @find_path(ptr %out)", "nounwind noinline")
    length = f.var("i32", 0)
    found = f.load("ptr", "@import.environ")
    entries = f.var("ptr", "null")
    with f.when(f.op(f"icmp ne ptr {found}, null")):
        f.set(entries, f.load("ptr", found))
    with f.when(f.op(f"icmp ne ptr {f.get(entries)}, null")), f.loop():
        entry = f.load("ptr", f.get(entries))
        f.leave(f.op(f"icmp eq ptr {entry}, null"))
        f.set(length, f.call("i32", "value_of", f"ptr {entry}", "ptr %out"))
        with f.when(f.cmp("ne", f.get(length), 0, "i32")):
            f.ret("i32", f.get(length))
        f.set(entries, f.at(f.get(entries), 8))
    file = patient(f, "open", f.op("ptrtoint ptr @proc_environ to i64"), 0o2000000, 0)
    with f.when(f.cmp("slt", file, 0)):
        f.ret("i32", 0)
    buffer = syscall(f, "mmap", 0, _ENVIRON_BYTES, pl.PROT_RW, pl.MAP_PRIVATE | pl.MAP_ANONYMOUS | pl.MAP_NORESERVE, -1, 0)
    with f.when(f.cmp("slt", buffer, 0)):
        syscall(f, "close", file)
        f.ret("i32", 0)
    text = f.pointer(buffer)
    size = f.var("i64", 0)
    with f.loop():
        have = f.get(size)
        room = f.sub(_ENVIRON_BYTES - 256, have)
        f.leave(f.cmp("eq", room, 0))
        got = patient(f, "read", file, f.add(buffer, have), room)
        f.leave(f.cmp("sle", got, 0))
        f.set(size, f.add(have, got))
    syscall(f, "close", file)
    # Entries end with NUL; the buffer behind the text is zero.
    at = f.var("i64", 0)
    with f.loop():
        start = f.get(at)
        f.leave(f.cmp("uge", start, f.get(size)))
        f.set(length, f.call("i32", "value_of", f"ptr {f.at(text, start)}", "ptr %out"))
        f.leave(f.cmp("ne", f.get(length), 0, "i32"))
        with f.loop():
            i = f.get(at)
            f.set(at, f.add(i, 1))
            f.leave(f.cmp("eq", f.load("i8", text, i), 0, "i8"))
    syscall(f, "munmap", buffer, _ENVIRON_BYTES)
    f.ret("i32", f.get(length))
    return f.text()


def open_agent() -> str:
    """``open_agent(ptr page) -> i32``: attaches; 0, or the CUresult of every call to come."""
    f = Function("internal i32 @open_agent(ptr %page)", "nounwind noinline")
    address = f.array("i8", 112)
    for i in range(14):
        f.store("i64", 0, address, 8 * i)
    f.store("i16", pl.AF_UNIX, address)
    length = f.call("i32", "find_path", f"ptr {f.at(address, 2)}")
    with f.when(f.cmp("eq", length, 0, "i32")):
        f.ret("i32", CUDA_ERROR_NO_DEVICE)
    sock = syscall(f, "socket", pl.AF_UNIX, pl.SOCK_SEQPACKET | pl.SOCK_CLOEXEC, 0)
    with f.when(f.cmp("slt", sock, 0)):
        f.ret("i32", CUDA_ERROR_NO_DEVICE)
    size = f.add(f.zext(length, "i32"), 3)
    connected = patient(f, "connect", sock, f.address(address), size)

    def give_up(result: str | int) -> None:
        syscall(f, "close", sock)
        f.ret("i32", result)

    with f.when(f.cmp("slt", connected, 0)):
        give_up(CUDA_ERROR_NO_DEVICE)
    tid = f.trunc(syscall(f, "gettid"))
    hello = f.array("i8", 56)
    f.store("i32", lay.HELLO_MAGIC, hello)
    f.store("i32", lay.SHIM_ABI, hello, 4)
    f.store("i32", f.trunc(syscall(f, "getpid")), hello, 8)
    f.store("i32", tid, hello, 12)
    f.store("i64", f.op("ptrtoint ptr @image_start to i64"), hello, 16)
    f.call("void", "copy", f"ptr {f.at(hello, 24)}", "ptr @digest", "i64 32")
    sent = patient(f, "sendto", sock, f.address(hello), 56, pl.MSG_NOSIGNAL, 0, 0)
    with f.when(f.cmp("ne", sent, 56)):
        give_up(CUDA_ERROR_NO_DEVICE)
    answer, part, control, message = f.array("i8", 16), f.array("i8", 16), f.array("i8", 32), f.array("i8", 56)
    f.store("i64", f.address(answer), part)
    f.store("i64", 16, part, 8)
    for i in range(4):
        f.store("i64", 0, control, 8 * i)
    for offset, value in ((0, 0), (8, 0), (16, f.address(part)), (24, 1), (32, f.address(control)), (40, 32), (48, 0)):
        f.store("i64", value, message, offset)
    got = patient(f, "recvmsg", sock, f.address(message), pl.MSG_CMSG_CLOEXEC)
    good = f.both(f.cmp("eq", got, 16), f.cmp("eq", f.load("i32", answer), lay.HELLO_MAGIC, "i32"))
    with f.unless(good):
        give_up(CUDA_ERROR_NO_DEVICE)
    refusal = f.load("i32", answer, 4)
    with f.when(f.cmp("ne", refusal, 0, "i32")):
        give_up(refusal)
    # struct cmsghdr: length, level SOL_SOCKET, type SCM_RIGHTS, then the descriptor.
    fits = f.cmp("eq", f.load("i64", answer, 8), lay.TOTAL_BYTES)
    rights = f.both(f.cmp("uge", f.load("i64", control), 20), f.cmp("eq", f.load("i64", control, 8), 1 | 1 << 32))
    with f.unless(f.both(fits, rights)):
        give_up(CUDA_ERROR_NO_DEVICE)
    memory = f.op(f"sext i32 {f.load('i32', control, 16)} to i64")
    whole = lay.TOTAL_BYTES + lay.RING_BYTES
    area = syscall(f, "mmap", 0, whole, 0, pl.MAP_PRIVATE | pl.MAP_ANONYMOUS | pl.MAP_NORESERVE, -1, 0)
    with f.when(f.cmp("slt", area, 0)):
        give_up(CUDA_ERROR_NO_DEVICE)
    first = syscall(f, "mmap", area, lay.TOTAL_BYTES, pl.PROT_RW, pl.MAP_SHARED | pl.MAP_FIXED, memory, 0)
    again = f.add(area, lay.TOTAL_BYTES)
    second = syscall(f, "mmap", again, lay.RING_BYTES, pl.PROT_RW, pl.MAP_SHARED | pl.MAP_FIXED, memory, lay.RING)
    syscall(f, "close", memory)
    with f.when(f.either(f.cmp("slt", first, 0), f.cmp("slt", second, 0))):
        syscall(f, "munmap", area, whole)
        give_up(CUDA_ERROR_NO_DEVICE)
    syscall(f, "madvise", area, whole, pl.MADV_DONTFORK)
    # May this thread's tid be read from its control block? Ask the kernel to look, since the place may not even exist (other libcs).
    word, local, remote = f.array("i32", 1), f.array("i8", 16), f.array("i8", 16)
    f.store("i64", f.address(word), local)
    f.store("i64", 4, local, 8)
    f.store("i64", f.add(f.call("i64", "thread_pointer"), 0x2D0), remote)
    f.store("i64", 4, remote, 8)
    read = syscall(f, "process_vm_readv", syscall(f, "getpid"), f.address(local), 1, f.address(remote), 1, 0)
    verified = f.both(f.cmp("eq", read, 4), f.cmp("eq", f.load("i32", word), tid, "i32"))
    f.store("i32", f.zext(verified, "i1", "i32"), "%page", pl.TID_IN_TCB)
    f.store("i32", f.trunc(sock), "%page", pl.SOCKET)
    f.store("i64", area, "%page", pl.BASE)
    f.ret("i32", 0)
    return f.text()


def attach() -> str:
    """``attach() -> ptr``: the private page of an attached process, or null; one thread attaches, others wait for it."""
    f = Function("internal ptr @attach(ptr %result)", "nounwind noinline")
    page = f.call("ptr", "private_page")
    with f.when(f.op(f"icmp eq ptr {page}, null")):
        f.store("i32", CUDA_ERROR_NO_DEVICE, "%result")
        f.ret("ptr", "null")
    with f.loop():
        state = f.load_atomic("i32", page, pl.STATE)
        with f.when(f.cmp("eq", state, pl.ATTACHED, "i32")):
            f.ret("ptr", page)
        with f.when(f.cmp("eq", state, pl.FAILED, "i32")):
            f.store("i32", f.load("i32", page, pl.RESULT), "%result")
            f.ret("ptr", "null")
        with f.when(f.cmp("eq", state, pl.BUSY, "i32")):
            syscall(f, "futex", f.address(f.at(page, pl.STATE)), pl.FUTEX_WAIT, pl.BUSY, 0)
        with f.when(f.cmp("eq", state, pl.NEW, "i32")), f.when(f.compare_exchange("i32", pl.NEW, pl.BUSY, page, pl.STATE)):
            failure = f.call("i32", "open_agent", f"ptr {page}")
            f.store("i32", failure, page, pl.RESULT)
            fine = f.cmp("eq", failure, 0, "i32")
            f.store_atomic("i32", f.select(fine, "i32", pl.ATTACHED, pl.FAILED), page, pl.STATE)
            syscall(f, "futex", f.address(f.at(page, pl.STATE)), pl.FUTEX_WAKE, pl.ALL)
    return f.text()


def text(digest: bytes) -> str:
    """This part's IR."""
    return globals_ir(digest) + private_page() + value_of() + find_path() + open_agent() + attach()
