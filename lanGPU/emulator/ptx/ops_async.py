"""Copies that run beside the thread, and barriers in shared memory: cp.async, mbarrier, griddepcontrol.

A cp.async is carried out where it stands: PTX lets it complete at any time up to the wait. One CPU thread runs all threads of a block,
so a barrier object needs no atomic access.

A barrier object (64 bits, opaque to programs), here:

    Bits       Meaning
    0 to 19   arrivals that a phase takes
    20 to 39  arrivals that the current phase still waits for
    40         parity of the current phase

Source: PTX ISA, "Data Movement and Conversion Instructions: Asynchronous copy", "Parallel Synchronization ... mbarrier".
"""

from typing import Final

from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx.lowering import FunctionLowering, Modifiers, Unsupported, check_count, operation, require
from lanGPU.emulator.ptx.ops_memory import checked_address, checked_pointer
from lanGPU.emulator.ptx.syntax import Float, Instruction, Integer, Memory, Operand, Register, Sink

COUNT_BITS: Final = 20
MAX_COUNT: Final = (1 << COUNT_BITS) - 1
PHASE: Final = 1 << 2 * COUNT_BITS


# --- cp.async -----------------------------------------------------------------------------------------------------------------


@operation("cp")
def copy(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """cp.async.{ca,cg}, .commit_group, .wait_group, .wait_all, .mbarrier.arrive."""
    if not m.flag("async"):
        raise Unsupported("only cp.async")
    if m.flag("commit_group", "wait_all"):
        check_count(i, 0)
        return
    if m.flag("wait_group"):
        check_count(i, 1)
        if not isinstance(i.operands[0], Integer):
            raise Unsupported("a number of groups that is no constant")
        return
    if m.flag("mbarrier"):
        _copy_arrives(f, i, m)
        return
    kind = m.choice("ca", "cg")
    if not kind or not m.flag("shared", "shared::cta") or not m.flag("global"):
        raise Unsupported("only from global to shared memory")
    hint = m.flag("L2::cache_hint")
    m.choice("L2::64B", "L2::128B", "L2::256B")
    operands = list(i.operands[: len(i.operands) - hint])
    if len(operands) not in (3, 4) or not isinstance(operands[2], Integer):
        raise Unsupported("the operands")
    size = operands[2].value
    if size not in ((16,) if kind == "cg" else (4, 8, 16)):
        raise Unsupported(f"{size} bytes")
    target = checked_pointer(f, i, "shared", operands[0], size, writes=True)
    if len(operands) == 4:
        _copy_part(f, i, operands[1], operands[3], size, target)
    else:
        source = checked_pointer(f, i, "global", operands[1], size)
        f.emit(f"store i{8 * size} {f.op(f'load i{8 * size}, ptr {source}, align {size}')}, ptr {target}, align {size}")


def _copy_part(f: FunctionLowering, i: Instruction, memory: Operand, given: Operand, size: int, target: str) -> None:
    """The first bytes of the source, as many as `given` says (none where a predicate says to ignore it), and zeros behind them."""
    f.emit(f"store i{8 * size} 0, ptr {target}, align {size}")
    if not isinstance(memory, Memory) or isinstance(given, Float):
        raise Unsupported("the operands")
    if isinstance(given, Register) and f.body.registers.get(given.name) == "pred":
        count = f.select(f.value(given, "pred"), "i32", "0", str(size))
    else:
        count = f.op(f"call i32 @llvm.umin.i32(i32 {f.value(given, 'u32')}, i32 {size})")
    some, none = f.fresh("some"), f.fresh("none")
    f.emit(f"br i1 {f.bin('icmp ne', 'i32', count, 0)}, label %{some}, label %{none}")
    f.label(some)
    address = f.memory_address(memory)
    bad, good = f.fresh("bad"), f.fresh("good")
    f.emit(f"br i1 {f.bin('icmp eq', 'i64', f.bin('and', 'i64', address, size - 1), 0)}, label %{good}, label %{bad}, !prof !0")
    f.label(bad)
    f.fault(c.FAULT_MISALIGNED, address, i.line)
    f.label(good)
    wide = f.cast("zext", "i32", count, "i64")
    checked_address(f, i, "global", f.bin("add", "i64", address, f.bin("sub", "i64", wide, 1)), 1)
    source = checked_address(f, i, "global", address, 1)
    f.emit(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {wide}, i1 false)")
    f.emit(f"br label %{none}")
    f.label(none)


def _copy_arrives(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """cp.async.mbarrier.arrive: without .noinc the arrival is one more that the phase waits for, so that nothing is left of it."""
    if not m.flag("arrive"):
        raise Unsupported("only .arrive")
    counted = m.flag("noinc")
    m.flag("shared", "shared::cta")
    require(m.type(), "b64")
    check_count(i, 1)
    pointer = checked_pointer(f, i, "shared", i.operands[0], 8, writes=True)
    if counted:
        _arrive(f, i, pointer, "1")


# --- mbarrier -----------------------------------------------------------------------------------------------------------------


@operation("mbarrier")
def barrier_object(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """mbarrier.init, .inval, .arrive, .arrive_drop, .test_wait, .try_wait, .pending_count; without transactions."""
    what = m.choice("init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait", "pending_count")
    parity = what.endswith("wait") and m.flag("parity")
    if m.flag("expect_tx"):
        raise Unsupported("transactions")
    keeps = what.startswith("arrive") and m.flag("noComplete")
    if what.startswith("arrive") or what.endswith("wait"):
        m.choice("release", "acquire", "relaxed")
        m.choice("cta")
    space = m.choice("shared", "shared::cta").partition("::")[0]
    require(m.type(), "b64")
    operands = list(i.operands)
    if what == "pending_count":
        check_count(i, 2)
        pending = f.bin("and", "i64", f.bin("lshr", "i64", f.value(operands[1], "b64"), COUNT_BITS), MAX_COUNT)
        f.write(operands[0], "u32", f.cast("trunc", "i64", pending, "i32"))
    elif what == "init":
        check_count(i, 2)
        count = _count(f, i, operands[1])
        f.store_field(0, "i64", f.bin("or", "i64", count, f.bin("shl", "i64", count, COUNT_BITS)), _object(f, i, space, operands[0]))
    elif what == "inval":
        check_count(i, 1)
        f.store_field(0, "i64", "0", _object(f, i, space, operands[0]))
    elif what.startswith("arrive"):
        check_count(i, *((3,) if keeps else (2, 3)))
        count = _count(f, i, operands[2]) if len(operands) == 3 else "1"
        state = _arrive(f, i, _object(f, i, space, operands[1]), count, drop=what == "arrive_drop")
        if not isinstance(operands[0], Sink):
            f.write(operands[0], "b64", state)
    elif what:
        check_count(i, *((3, 4) if what == "try_wait" else (3,)))
        now = f.bin("and", "i64", f.load_field(0, "i64", _object(f, i, space, operands[1])), PHASE)
        if parity:
            bit = f.cast("zext", "i32", f.bin("and", "i32", f.value(operands[2], "u32"), 1), "i64")
            then = f.bin("shl", "i64", bit, 2 * COUNT_BITS)
        else:
            then = f.bin("and", "i64", f.value(operands[2], "b64"), PHASE)
        f.write(operands[0], "pred", f.bin("icmp ne", "i64", now, then))
    else:
        raise Unsupported("this operation")


def _object(f: FunctionLowering, i: Instruction, space: str, memory: Operand) -> str:
    return checked_pointer(f, i, space, memory, 8, writes=True)


def _count(f: FunctionLowering, i: Instruction, operand: Operand) -> str:
    """A count of arrivals as i64; one that no barrier object can hold is a fault."""
    count = f.cast("zext", "i32", f.value(operand, "u32"), "i64")
    _require(f, i, f.bin("icmp ult", "i64", f.bin("sub", "i64", count, 1), MAX_COUNT))
    return count


def _require(f: FunctionLowering, i: Instruction, condition: str) -> None:
    bad, good = f.fresh("bad"), f.fresh("good")
    f.emit(f"br i1 {condition}, label %{good}, label %{bad}, !prof !0")
    f.label(bad)
    f.fault(c.FAULT_TRAP, "0", i.line)
    f.label(good)


def _arrive(f: FunctionLowering, i: Instruction, pointer: str, count: str, *, drop: bool = False) -> str:
    """Takes arrivals off the phase, which completes at none; returns the object before that. More than it waits for is a fault."""
    state = f.load_field(0, "i64", pointer)
    expected = f.bin("and", "i64", state, MAX_COUNT)
    if drop:
        _require(f, i, f.bin("icmp uge", "i64", expected, count))
        expected = f.bin("sub", "i64", expected, count)
    pending = f.bin("and", "i64", f.bin("lshr", "i64", state, COUNT_BITS), MAX_COUNT)
    _require(f, i, f.bin("icmp uge", "i64", pending, count))
    left = f.bin("sub", "i64", pending, count)
    over = f.bin("icmp eq", "i64", left, 0)
    phase = f.bin("and", "i64", state, PHASE)
    phase = f.select(over, "i64", f.bin("xor", "i64", phase, PHASE), phase)
    left = f.select(over, "i64", expected, left)
    f.store_field(0, "i64", f.bin("or", "i64", phase, f.bin("or", "i64", f.bin("shl", "i64", left, COUNT_BITS), expected)), pointer)
    return state


@operation("griddepcontrol")
def grid_dependency(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Kernels run one after the other: what would be waited for is done."""
    check_count(i, 0)
    if not m.choice("launch_dependents", "wait"):
        raise Unsupported("this form")
