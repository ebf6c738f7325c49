"""Lock, room, doorbell, requests and waiting: what goes on in the shared memory between the shim and the agent."""

from lanGPU.client import layout as lay
from lanGPU.client.shim_ir import place as pl
from lanGPU.client.shim_ir.kernel import syscall
from lanGPU.constants import CUDA_ERROR_SYSTEM_NOT_READY
from lanGPU.native.irtext import Function

LOCK_SPINS = 64
"""A critical section lasts some 100 ns: about this many pauses."""
REPLY_ROUNDS = 120
"""Looks at the answer before a waiting thread sleeps: some 70 µs, what an answer takes over loopback. After each the core is offered to
others, because the kernel likes to put the agent's thread, which this one has just woken, on this very core."""
PAUSES = 10
"""Pauses between two looks."""


def _futex(f: Function, address: str, operation: int, value: str | int, timeout: str | int = 0) -> str:
    return syscall(f, "futex", f.address(address), operation, value, timeout)


def lock() -> str:
    """``lock(base)``, ``unlock(base)``: a futex mutex (0 free, 1 held, 2 held and waited for)."""
    f = Function("internal void @lock(ptr %base)", "nounwind noinline")
    word = f.at("%base", lay.LOCK)
    with f.when(f.compare_exchange("i32", 0, 1, word)):
        f.ret()
    with f.count(LOCK_SPINS):
        f.call("void", "pause")
        free = f.cmp("eq", f.load_atomic("i32", word), 0, "i32")
        with f.when(free), f.when(f.compare_exchange("i32", 0, 1, word)):
            f.ret()
    with f.loop():
        f.leave(f.cmp("eq", f.exchange("i32", 2, word), 0, "i32"))
        _futex(f, word, pl.FUTEX_WAIT, 2)
    f.ret()
    g = Function("internal void @unlock(ptr %base)")
    word = g.at("%base", lay.LOCK)
    with g.when(g.cmp("eq", g.exchange("i32", 0, word), 2, "i32")):
        _futex(g, word, pl.FUTEX_WAKE, 1)
    g.ret()
    return f.text() + g.text()


def doorbell() -> str:
    """``doorbell(base)``: wakes the agent if it sleeps. Comes after an atomic exchange or addition (`unlock`, for one), whose total
    order puts what was published before the look at AGENT_SLEEPING: no fence of its own."""
    f = Function("internal void @doorbell(ptr %base)")
    sleeping = f.cmp("ne", f.load_atomic("i32", "%base", lay.AGENT_SLEEPING, "seq_cst"), 0, "i32")
    with f.when(sleeping), f.when(f.cmp("ne", f.exchange("i32", 0, "%base", lay.AGENT_SLEEPING), 0, "i32")):
        f.atomic_add("i32", 1, "%base", lay.DOORBELL)
        _futex(f, f.at("%base", lay.DOORBELL), pl.FUTEX_WAKE, 1)
    f.ret()
    return f.text()


def agent_lives() -> str:
    """``agent_lives(page) -> i1``: looks whether the agent's socket hung up; if so every later call fails at once."""
    f = Function("internal i1 @agent_lives(ptr %page)", "nounwind noinline")
    byte = f.array("i8", 8)
    sock = f.op(f"sext i32 {f.load('i32', '%page', pl.SOCKET)} to i64")
    got = syscall(f, "recvfrom", sock, f.address(byte), 1, pl.MSG_PEEK | pl.MSG_DONTWAIT, 0, 0)
    with f.when(f.cmp("eq", got, pl.EAGAIN)):
        f.ret("i1", "true")
    with f.when(f.either(f.cmp("sgt", got, 0), f.cmp("eq", got, pl.EINTR))):
        f.ret("i1", "true")
    f.store("i32", CUDA_ERROR_SYSTEM_NOT_READY, "%page", pl.RESULT)
    f.store_atomic("i32", pl.FAILED, "%page", pl.STATE)
    f.ret("i1", "false")
    return f.text()


def room() -> str:
    """``room(page, base, bytes) -> i1``: under LOCK, waits until the ring has room; false if the session or the agent ended."""
    f = Function("internal i1 @room(ptr %page, ptr %base, i64 %bytes)")
    with f.loop():
        head = f.load("i64", "%base", lay.HEAD)
        used = f.sub(head, f.load_atomic("i64", "%base", lay.TAIL))
        f.leave(f.cmp("ule", f.add(used, "%bytes"), lay.RING_BYTES))
        # Threads that queued for LOCK meanwhile need not find out about a dead agent one second each.
        with f.when(f.cmp("eq", f.load_atomic("i32", "%page", pl.STATE), pl.FAILED, "i32")):
            f.ret("i1", "false")
        seen = f.load_atomic("i32", "%base", lay.SPACE_SEQ)
        f.atomic_add("i32", 1, "%base", lay.SPACE_WAITERS)
        f.call("void", "doorbell", "ptr %base")
        still = f.sub(head, f.load_atomic("i64", "%base", lay.TAIL, "seq_cst"))
        full = f.cmp("ugt", f.add(still, "%bytes"), lay.RING_BYTES)
        waited = f.var("i64", 0)
        with f.when(full):
            f.set(waited, _futex(f, f.at("%base", lay.SPACE_SEQ), pl.FUTEX_WAIT, f.zext(seen, "i32"), _second(f)))
        f.atomic_add("i32", -1, "%base", lay.SPACE_WAITERS)
        closed = f.land(f.load_atomic("i32", "%base", lay.FLAGS), lay.FLAG_CLOSED, "i32")
        with f.when(f.cmp("ne", closed, 0, "i32")):
            f.ret("i1", "false")
        with f.when(_in_vain(f, f.get(waited))), f.unless(f.call("i1", "agent_lives", "ptr %page")):
            f.ret("i1", "false")
    f.ret("i1", "true")
    return f.text()


def _in_vain(f: Function, slept: str) -> str:
    """Nobody woke this sleep. Its time was over, or a signal came: where those come often, no second is ever over."""
    return f.both(f.cmp("slt", slept, 0), f.cmp("ne", slept, pl.EAGAIN))


def _second(f: Function) -> str:
    """Address of a struct timespec of one second."""
    spec = f.array("i64", 2)
    f.store("i64", 1, spec)
    f.store("i64", 0, spec, 8)
    return f.address(spec)


def request() -> str:
    """``request(base, slot number, slot, api)``: queues what the slot holds for the agent."""
    f = Function("internal void @request(ptr %base, i32 %number, ptr %slot, i32 %api)")
    f.call("void", "lock", "ptr %base")
    f.store("i32", "%api", "%slot", lay.SLOT_API_ID)
    f.store("i64", f.load("i64", "%base", lay.HEAD), "%slot", lay.SLOT_POSITION)
    head = f.load("i32", "%base", lay.REQUEST_HEAD)
    index = f.land(head, lay.REQUEST_CAPACITY - 1, "i32")
    f.store("i32", "%number", "%base", f.add(lay.REQUESTS, f.mul(f.zext(index, "i32"), 4)))
    # Not what the shim itself has to say: a thread's first request, a continuation, an unsupported function, a thread of its own.
    with f.when(f.cmp("ult", f.sub("%api", lay.API_THREAD_ATTACH + 1, "i32"), lay.API_CALLBACKS - 1, "i32")):
        f.store("i64", f.add(f.load("i64", "%base", lay.COUNT_AGENT), 1), "%base", lay.COUNT_AGENT)
    f.store_atomic("i32", f.add(head, 1, "i32"), "%base", lay.REQUEST_HEAD)
    f.call("void", "unlock", "ptr %base")
    f.call("void", "doorbell", "ptr %base")
    f.ret()
    return f.text()


def ended() -> str:
    """``ended(base) -> i32``: what a call returns that got no answer."""
    f = Function("internal i32 @ended(ptr %base)", "nounwind noinline")
    closed = f.land(f.load_atomic("i32", "%base", lay.FLAGS), lay.FLAG_CLOSED, "i32")
    with f.when(f.cmp("ne", closed, 0, "i32")):
        f.ret("i32", f.load("i32", "%base", lay.CLOSED_RESULT))
    f.ret("i32", CUDA_ERROR_SYSTEM_NOT_READY)
    return f.text()


def wait() -> str:
    """``wait(page, base, slot, seen) -> i1``: until SLOT_REPLY_SEQ is no longer `seen`; false if the agent died or the session ended."""
    f = Function("internal i1 @wait(ptr %page, ptr %base, ptr %slot, i32 %seen)")
    word = f.at("%slot", lay.SLOT_REPLY_SEQ)
    with f.count(REPLY_ROUNDS):
        with f.when(f.cmp("ne", f.load_atomic("i32", word), "%seen", "i32")):
            f.ret("i1", "true")
        for _ in range(PAUSES):
            f.call("void", "pause")
        syscall(f, "sched_yield")
    timeout = _second(f)
    with f.loop():
        f.store_atomic("i32", 1, "%slot", lay.SLOT_WAITING, "seq_cst")
        f.emit("fence seq_cst")
        f.leave(f.cmp("ne", f.load_atomic("i32", word, 0, "seq_cst"), "%seen", "i32"))
        slept = _futex(f, word, pl.FUTEX_WAIT, f.zext("%seen", "i32"), timeout)
        f.leave(f.cmp("ne", f.load_atomic("i32", word), "%seen", "i32"))
        with f.when(_in_vain(f, slept)):
            # Whoever closes the session answers those who wait, unless it broke itself.
            closed = f.land(f.load_atomic("i32", "%base", lay.FLAGS), lay.FLAG_CLOSED, "i32")
            with f.when(f.cmp("ne", closed, 0, "i32")):
                f.ret("i1", "false")
            with f.unless(f.call("i1", "agent_lives", "ptr %page")):
                f.ret("i1", "false")
    f.store_atomic("i32", 0, "%slot", lay.SLOT_WAITING)
    f.ret("i1", "true")
    return f.text()


def text() -> str:
    """This part's IR."""
    return lock() + doorbell() + agent_lives() + room() + request() + ended() + wait()


assert lay.REQUEST_CAPACITY & (lay.REQUEST_CAPACITY - 1) == 0
