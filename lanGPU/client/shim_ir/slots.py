"""Threads' places in the shared memory."""

from lanGPU.client import layout as lay
from lanGPU.client.shim_ir import place as pl
from lanGPU.client.shim_ir.kernel import syscall
from lanGPU.constants import CUDA_SUCCESS, MAX_THREADS
from lanGPU.native.irtext import Function

NO_SLOT = -1
"""There are MAX_THREADS living threads with a slot."""
NO_AGENT = -2
"""The agent did not answer a thread's greeting."""


def _entry(f: Function, index: str) -> str:
    masked = f.land(index, pl.THREAD_ENTRIES - 1)
    return f.at("%page", f.add(pl.THREADS, f.mul(masked, pl.THREAD_ENTRY_BYTES)))


def _slot(f: Function, number: str) -> str:
    return f.at("%base", f.add(lay.SLOTS, f.mul(f.zext(number, "i32"), lay.SLOT_BYTES)))


def find_slot() -> str:
    """``find_slot(page, base) -> i32``: the calling thread's slot, NO_SLOT or NO_AGENT."""
    f = Function("internal i32 @find_slot(ptr %page, ptr %base)")
    tid = f.var("i32", 0)
    quick = f.cmp("eq", f.load("i32", "%page", pl.TID_IN_TCB), 1, "i32")
    with f.when(quick):
        f.set(tid, f.call("i32", "thread_word"))
    with f.unless(quick):
        f.set(tid, f.trunc(syscall(f, "gettid")))
    me = f.get(tid)
    pointer = f.call("i64", "thread_pointer")
    with f.count(pl.THREAD_ENTRIES) as i:
        entry = _entry(f, f.add(f.call("i64", "thread_hash", f"i32 {me}"), i))
        found = f.load_atomic("i32", entry)
        with f.when(f.cmp("eq", found, me, "i32")):
            number = f.load("i32", entry, 4)
            # A tid is used again some day: by a thread whose control block lies elsewhere, mostly.
            with f.unless(f.cmp("eq", f.load("i64", entry, 8), pointer)):
                f.store("i64", pointer, entry, 8)
                f.ret("i32", f.call("i32", "greet_thread", "ptr %page", "ptr %base", f"i32 {number}"))
            f.ret("i32", number)
        f.leave(f.cmp("eq", found, 0, "i32"))
    f.ret("i32", f.call("i32", "new_slot", "ptr %page", "ptr %base", f"i32 {me}"))
    g = Function("internal i64 @thread_hash(i32 %tid)")
    spread = g.mul("%tid", 0x9E3779B1 - (1 << 32), "i32")
    g.ret("i64", g.zext(g.bin("lshr", "i32", spread, 32 - pl.THREAD_ENTRIES.bit_length() + 1), "i32"))
    return g.text() + f.text()


def greet_thread() -> str:
    """``greet_thread(page, base, number) -> i32``: tells the agent that another thread uses the slot now; the number, or NO_AGENT."""
    f = Function("internal i32 @greet_thread(ptr %page, ptr %base, i32 %number)", "nounwind noinline")
    slot = _slot(f, "%number")
    f.store("i64", f.call("i64", "thread_pointer"), slot, lay.SLOT_THREAD_POINTER)
    f.store("i32", f.trunc(syscall(f, "gettid")), slot, lay.SLOT_TID)
    result = f.call("i32", "ask", "ptr %page", "ptr %base", "i32 %number", f"i32 {lay.API_THREAD_ATTACH}")
    f.ret("i32", f.select(f.cmp("eq", result, CUDA_SUCCESS, "i32"), "i32", "%number", NO_AGENT))
    return f.text()


def new_slot() -> str:
    """``new_slot(page, base, tid) -> i32``: a slot for a thread's first call: a fresh one, else a dead thread's."""
    f = Function("internal i32 @new_slot(ptr %page, ptr %base, i32 %tid)", "nounwind noinline")
    number = f.var("i32", -1)
    f.call("void", "lock", "ptr %base")
    following = f.load("i32", "%base", lay.NEXT_SLOT)
    fresh = f.cmp("ult", following, MAX_THREADS, "i32")
    with f.when(fresh):
        f.set(number, following)
        f.store("i32", f.add(following, 1, "i32"), "%base", lay.NEXT_SLOT)
    with f.unless(fresh):
        group = syscall(f, "getpid")
        with f.count(pl.THREAD_ENTRIES) as i:
            entry = _entry(f, i)
            tid = f.load("i32", entry)
            used = f.both(f.cmp("ne", tid, 0, "i32"), f.cmp("ne", tid, pl.TOMBSTONE - (1 << 32), "i32"))
            with f.when(used):
                alive = syscall(f, "tgkill", group, f.zext(tid, "i32"), 0)
                with f.when(f.cmp("eq", alive, pl.ESRCH)):
                    f.set(number, f.load("i32", entry, 4))
                    f.store_atomic("i32", pl.TOMBSTONE - (1 << 32), entry)
            f.leave(f.cmp("sge", f.get(number), 0, "i32"))
    got = f.get(number)
    with f.when(f.cmp("sge", got, 0, "i32")):
        start = f.call("i64", "thread_hash", "i32 %tid")
        with f.count(pl.THREAD_ENTRIES) as i:
            entry = _entry(f, f.add(start, i))
            old = f.load("i32", entry)
            free = f.either(f.cmp("eq", old, 0, "i32"), f.cmp("eq", old, pl.TOMBSTONE - (1 << 32), "i32"))
            with f.when(free):
                f.store("i32", got, entry, 4)
                f.store("i64", f.call("i64", "thread_pointer"), entry, 8)
                f.store_atomic("i32", "%tid", entry)
            f.leave(free)
    f.call("void", "unlock", "ptr %base")
    with f.when(f.cmp("sge", got, 0, "i32")):
        f.ret("i32", f.call("i32", "greet_thread", "ptr %page", "ptr %base", f"i32 {got}"))
    f.ret("i32", NO_SLOT)
    return f.text()


def text() -> str:
    """This part's IR."""
    return find_slot() + greet_thread() + new_slot()
