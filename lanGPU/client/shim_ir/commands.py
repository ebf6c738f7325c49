"""Asking the agent, and carrying out what it answers."""

import errno

from lanGPU.client import layout as lay
from lanGPU.client.shim_ir import place as pl
from lanGPU.client.shim_ir.kernel import syscall
from lanGPU.constants import CUDA_ERROR_UNKNOWN
from lanGPU.native.irtext import Function

_SIG_SETMASK = 2


def ask() -> str:
    """``ask(page, base, number, api) -> i32``: a request whose arguments lie in the slot; the CUresult."""
    f = Function("internal i32 @ask(ptr %page, ptr %base, i32 %number, i32 %api)", "nounwind noinline")
    slot = f.at("%base", f.add(lay.SLOTS, f.mul(f.zext("%number", "i32"), lay.SLOT_BYTES)))
    api = f.var("i32", "%api")
    with f.loop():
        seen = f.load_atomic("i32", slot, lay.SLOT_REPLY_SEQ)
        f.call("void", "request", "ptr %base", "i32 %number", f"ptr {slot}", f"i32 {f.get(api)}")
        with f.unless(f.call("i1", "wait", "ptr %page", "ptr %base", f"ptr {slot}", f"i32 {seen}")):
            f.ret("i32", f.call("i32", "ended", "ptr %base"))
        with f.when(f.cmp("eq", f.load("i32", slot, lay.SLOT_REPLY_KIND), lay.REPLY_RECORD, "i32")):
            f.ret("i32", f.load("i32", slot, lay.SLOT_DATA + 8))
        outcome = f.call("i64", "obey", f"ptr {slot}")
        with f.when(f.cmp("sge", outcome, 0)):
            f.ret("i32", f.trunc(outcome))
        f.set(api, lay.API_CONTINUE)
    f.ret("i32", CUDA_ERROR_UNKNOWN)
    return f.text()


def obey() -> str:
    """``obey(slot) -> i64``: carries out the commands in the slot; the CUresult of RETURN, or -1 if the agent wants to go on."""
    f = Function("internal i64 @obey(ptr %slot)", "nounwind noinline")
    data = f.at("%slot", lay.SLOT_DATA)
    size = f.zext(f.load("i32", "%slot", lay.SLOT_REPLY_BYTES), "i32")
    at = f.var("i64", 0)
    with f.loop():
        f.leave(f.cmp("uge", f.get(at), size))
        command = f.at(data, f.get(at))
        code = f.load("i32", command)
        length = f.zext(f.load("i32", command, 4), "i32")
        with f.when(f.cmp("eq", code, lay.CMD_RETURN, "i32")):
            f.ret("i64", f.zext(f.load("i32", command, 8), "i32"))
        with f.when(f.cmp("ult", length, 8)):  # damaged: no way to find the next
            f.ret("i64", CUDA_ERROR_UNKNOWN)
        first, second = f.load("i64", command, 8), f.load("i64", command, 16)
        with f.when(f.cmp("eq", code, lay.CMD_WRITE, "i32")):
            f.call("void", "copy", f"ptr {f.pointer(first)}", f"ptr {f.at(command, 24)}", f"i64 {second}")
        with f.when(f.cmp("eq", code, lay.CMD_READ, "i32")):
            f.call("void", "copy", f"ptr {data}", f"ptr {f.pointer(first)}", f"i64 {second}")
            f.ret("i64", -1)
        with f.when(f.cmp("eq", code, lay.CMD_READ_STRING, "i32")):
            _read_string(f, data, first, second)
            f.ret("i64", -1)
        with f.when(f.cmp("eq", code, lay.CMD_SYSCALL, "i32")):
            words = [f.load("i64", command, 8 * (i + 1)) for i in range(7)]
            f.store("i64", f.call("i64", "sys", *(f"i64 {w}" for w in words)), data)
            f.ret("i64", -1)
        with f.when(f.cmp("eq", code, lay.CMD_CALL, "i32")):
            words = [f.load("i64", command, 8 * (i + 2)) for i in range(4)]
            result = f.op(f"call i64 {f.pointer(first)}({', '.join(f'i64 {w}' for w in words)})")
            f.store("i64", result, data)
            f.ret("i64", -1)
        with f.when(f.cmp("eq", code, lay.CMD_THREAD, "i32")):
            f.store("i64", f.call("i64", "start_thread"), data)
            f.ret("i64", -1)
        f.set(at, f.add(f.get(at), length))
    f.ret("i64", -1)
    return f.text()


def start_thread() -> str:
    """``start_thread() -> i64``: makes the thread that runs `call_back`, all signals blocked: they are the program's. 0 or an errno."""
    f = Function("internal i64 @start_thread()", "nounwind noinline")
    create, detach = f.load("ptr", "@import.pthread_create"), f.load("ptr", "@import.pthread_detach")
    with f.when(f.either(f.op(f"icmp eq ptr {create}, null"), f.op(f"icmp eq ptr {detach}, null"))):
        f.ret("i64", errno.ENOSYS)
    every, before, thread = f.array("i64", 1), f.array("i64", 1), f.array("i64", 1)
    f.store("i64", -1, every)
    syscall(f, "rt_sigprocmask", _SIG_SETMASK, f.address(every), f.address(before), 8)
    failure = f.op(f"call i32 {create}(ptr {thread}, ptr null, ptr @call_back, ptr null)")
    syscall(f, "rt_sigprocmask", _SIG_SETMASK, f.address(before), 0, 8)
    with f.when(f.cmp("eq", failure, 0, "i32")):
        f.op(f"call i32 {detach}(i64 {f.load('i64', thread)})")
    f.ret("i64", f.zext(failure, "i32"))
    g = Function("internal ptr @call_back(ptr %unused)", "nounwind noinline")
    page = g.load("ptr", "@private")
    base = g.load("ptr", page, pl.BASE)
    number = g.call("i32", "find_slot", f"ptr {page}", f"ptr {base}")
    with g.when(g.cmp("sge", number, 0, "i32")):
        g.call("i32", "ask", f"ptr {page}", f"ptr {base}", f"i32 {number}", f"i32 {lay.API_CALLBACKS}")
    g.ret("ptr", "null")
    return f.text() + g.text()


def _read_string(f: Function, data: str, address: str, limit: str) -> None:
    source = f.pointer(address)
    n = f.var("i64", 0)
    with f.loop():
        i = f.get(n)
        f.leave(f.cmp("uge", i, limit))
        byte = f.load("i8", source, i)
        f.store("i8", byte, data, i)
        f.set(n, f.add(i, 1))
        f.leave(f.cmp("eq", byte, 0, "i8"))
    f.store("i32", f.trunc(f.get(n)), "%slot", lay.SLOT_REPLY_BYTES)


def text() -> str:
    """This part's IR."""
    return ask() + obey() + start_thread()
