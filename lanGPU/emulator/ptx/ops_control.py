"""Branches, calls, ends, and what threads do together: barriers, shuffles, votes, matches, reductions.

Source: PTX ISA, "Control Flow Instructions", "Parallel Synchronization and Communication Instructions".
"""

from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx.lowering import (
    FunctionLowering,
    Modifiers,
    Unsupported,
    check_count,
    is_signed,
    llvm_type,
    operation,
    pair,
    require,
)
from lanGPU.emulator.ptx.syntax import TYPE_BITS, Function, Group, Instruction, Operand, Register, Symbol
from lanGPU.emulator.ptx.system import MAX_PARAMETERS, SystemFunction


@operation("bra")
def branch(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 1)
    m.flag("uni")
    target = i.operands[0]
    if not isinstance(target, Symbol) or target.name not in f.body.labels:
        raise Unsupported("a branch to something that is no label")
    if f.unit.must_yield(f, f.body.labels[target.name]):
        # A backward branch of a loop that watches memory: the other threads must get their turn.
        f.store_field(c.REASON, "i32", str(c.RUN), "%rec")
        f.suspend()
    f.emit(f"br label %{f.block_of(target.name)}")
    f.label(f.fresh("after_bra"))


@operation("brx")
def branch_indexed(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 2)
    m.flag("idx")
    m.flag("uni")
    index, table = i.operands
    if not isinstance(table, Symbol) or table.name not in f.body.targets:
        raise Unsupported("brx without .branchtargets")
    names = f.body.targets[table.name]
    cases = " ".join(f"i32 {n}, label %{f.block_of(name)}" for n, name in enumerate(names))
    f.emit(f"switch i32 {f.value(index, 'u32')}, label %{f.block_of(names[-1])} [{cases}]")
    f.label(f.fresh("after_brx"))


@operation("ret", "exit")
def leave(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 0)
    m.flag("uni")
    if i.parts[0] == "exit" and not f.function.entry:
        raise Unsupported("exit inside a device function")
    f.finish_thread()
    f.label(f.fresh("after_ret"))


@operation("trap", "brkpt")
def trap(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    if i.parts[0] == "brkpt":
        raise Unsupported("breakpoints")
    f.fault(c.FAULT_TRAP, "0", i.line)
    f.label(f.fresh("after_trap"))


@operation("pmevent")
def performance_event(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Triggers a profiler's counter; there is none."""
    m.flag("mask")


@operation("nanosleep")
def sleep(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """May return at once (PTX: suspends for a time in [0, 2t])."""
    check_count(i, 1)
    m.type()


@operation("call")
def call(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """A direct call; arguments and results are parameter arrays or registers of the caller."""
    m.flag("uni")
    operands = list(i.operands)
    returns: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], Group):
        returns = operands.pop(0).items  # type: ignore[union-attr]
    if not operands:
        raise Unsupported("a call without a target")
    target = operands.pop(0)
    arguments: tuple[Operand, ...] = ()
    if operands and isinstance(operands[0], Group):
        arguments = operands[0].items
    if isinstance(target, Symbol):
        system = f.unit.system_function(target.name)
        if system is not None:
            _call_system(f, system, i, returns, arguments)
            return
        _call_one(f, f.unit.callee(f, target.name), returns, arguments)
        return
    if not isinstance(target, Register):
        raise Unsupported("this target of a call")
    # Through a pointer: function addresses are numbers, so the call is a choice among the functions that fit.
    address = f.value(target, "u64")
    done = f.fresh("called")
    for function in f.unit.targets():
        if not _fits(f, function, returns, arguments):
            continue
        this, other = f.fresh("this"), f.fresh("other")
        same = f.bin("icmp eq", "i64", address, f.unit.function_addresses[function.name])
        f.emit(f"br i1 {same}, label %{this}, label %{other}")
        f.label(this)
        _call_one(f, function, returns, arguments)
        f.emit(f"br label %{done}")
        f.label(other)
    f.fault(c.FAULT_BAD_CALL, address, i.line)
    f.label(done)


def _fits(f: FunctionLowering, callee: Function, returns: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> bool:
    if len(callee.params) != len(arguments) or len(callee.returns) != len(returns):
        return False
    for operand, variable in zip((*returns, *arguments), (*callee.returns, *callee.params), strict=True):
        if isinstance(operand, Symbol):
            found = f.find_parameter(operand.name)
            if found is None or found[1] != variable.size:
                return False
        elif f.width_of(operand) != TYPE_BITS[variable.type]:
            return False
    return True


def _call_one(f: FunctionLowering, callee: Function, returns: tuple[Operand, ...], arguments: tuple[Operand, ...]) -> None:
    if len(callee.params) != len(arguments) or len(callee.returns) != len(returns):
        raise Unsupported(f"{callee.name} with another number of parameters than it declares")
    pointers = []
    results = []
    for operand, variable in zip((*returns, *arguments), (*callee.returns, *callee.params), strict=True):
        if isinstance(operand, Symbol):
            found = f.find_parameter(operand.name)
            if found is None or found[1] < variable.size:
                raise Unsupported(f"{operand.name} does not fit the parameter {variable.name}")
            pointers.append(found[0])
            continue
        kind = llvm_type(variable.type)
        place = f.scratch(kind)
        if operand in returns and isinstance(operand, Register):
            results.append((operand, variable.type, place))
        else:
            f.emit(f"store {kind} {f.value(operand, variable.type)}, ptr {place}")
        pointers.append(place)
    text = "".join(f", ptr {p}" for p in pointers)
    status = f.op(f'call i32 @"{callee.name}"(ptr %ctx, i32 %tx, i32 %ty, i32 %tz, ptr %rec{text})')
    bad, good = f.fresh("fault"), f.fresh("returned")
    f.emit(f"br i1 {f.bin('icmp ne', 'i32', status, 0)}, label %{bad}, label %{good}, !prof !1")
    f.label(bad)
    f.emit("ret i32 1")
    f.label(good)
    for operand, type_name, place in results:
        f.write(operand, type_name, f.op(f"load {llvm_type(type_name)}, ptr {place}"))


def _call_system(
    f: FunctionLowering, function: SystemFunction, i: Instruction, returns: tuple[Operand, ...], arguments: tuple[Operand, ...]
) -> None:
    """A call of what has no PTX: arguments as an array of 64-bit words; the result, or a fault's address, comes back in the first."""
    if len(arguments) != len(function.parameters) or len(returns) != bool(function.result):
        raise Unsupported("another number of parameters than the function has")
    words = f.scratch(f"[{MAX_PARAMETERS} x i64]")
    for n, (operand, size) in enumerate(zip(arguments, function.parameters, strict=True)):
        kind = f"i{8 * size}"
        if isinstance(operand, Symbol):
            value = f.op(f"load {kind}, ptr {_argument_place(f, operand, size)}")
        else:
            value = f.value(operand, f"b{8 * size}")
        f.emit(f"store i64 {value if size == 8 else f.cast('zext', kind, value, 'i64')}, ptr {f.field(8 * n, words)}")
    serve = f.load_field(c.SYSTEM, "ptr")
    status = f.op(f"call i32 {serve}(ptr %ctx, i32 {function.number}, ptr {words}, i32 %tx, i32 %ty, i32 %tz)")
    bad, good = f.fresh("fault"), f.fresh("served")
    f.emit(f"br i1 {f.bin('icmp ne', 'i32', status, 0)}, label %{bad}, label %{good}, !prof !1")
    f.label(bad)
    address = f.op(f"load i64, ptr {words}")
    f.emit(f"call void @ptx.fault(ptr %ctx, i32 {status}, i32 {i.line}, i64 {address}, i32 %tx, i32 %ty, i32 %tz)")
    f.emit("ret i32 1")
    f.label(good)
    if returns:
        kind = f"i{8 * function.result}"
        result = f.op(f"load {kind}, ptr {words}")
        if isinstance(returns[0], Symbol):
            f.emit(f"store {kind} {result}, ptr {_argument_place(f, returns[0], function.result)}")
        else:
            f.write(returns[0], f"b{8 * function.result}", result)


def _argument_place(f: FunctionLowering, operand: Symbol, size: int) -> str:
    found = f.find_parameter(operand.name)
    if found is None or found[1] < size:
        raise Unsupported(f"{operand.name} does not fit the parameter")
    return found[0]


# --- barriers -----------------------------------------------------------------------------------------------------------


@operation("bar", "barrier")
def barrier(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """bar.sync, bar.arrive, bar.red, bar.warp.sync, barrier.*."""
    if m.flag("warp"):
        m.flag("sync")
        check_count(i, 1)
        f.wait_warp(f.value(i.operands[0], "b32"), "0")
        return
    if m.flag("cluster"):
        raise Unsupported("clusters")
    m.flag("cta")
    what = m.choice("sync", "arrive", "red")
    reduction = m.choice("popc", "and", "or") if what == "red" else ""
    m.flag("aligned")
    kind = m.choice("u32", "pred")
    operands = list(i.operands)
    if what == "red":
        d, number, *count, predicate = operands
        value = f.value(predicate, "pred")
    else:
        number, *count = operands
        value = "false"
        if kind:
            raise Unsupported("a type on this barrier")
    if not what or ((what == "arrive") != bool(count) and what == "arrive") or len(count) > 1:
        raise Unsupported("this form of barrier")
    index = f.value(number, "u32")
    _check_barrier(f, index, i.line)
    threads = f.value(count[0], "u32") if count else "0"
    if what == "arrive":
        f.emit(f"call void @ptx.arrive(ptr %ctx, i32 {index}, i32 {threads})")
        return
    f.store_field(c.BARRIER, "i32", index, "%rec")
    f.store_field(c.COUNT, "i32", threads, "%rec")
    f.store_field(c.PUBLISHED, "i64", f.cast("zext", "i1", value, "i64"), "%rec")
    f.store_field(c.REASON, "i32", str(c.BARRIER_WAIT), "%rec")
    f.suspend()
    if what == "red":
        place = f.op(f"getelementptr i8, ptr %ctx, i32 {f.bin('add', 'i32', f.bin('shl', 'i32', f.value(number, 'u32'), 4), c.BARRIERS)}")
        popc = f.load_field(4, "i32", place)
        everyone = f.load_field(8, "i32", place)
        if reduction == "popc":
            f.write(d, "u32", popc)
        elif reduction == "and":
            f.write(d, "pred", f.bin("icmp eq", "i32", popc, everyone))
        elif reduction == "or":
            f.write(d, "pred", f.bin("icmp ne", "i32", popc, 0))
        else:
            raise Unsupported("this reduction")


def _check_barrier(f: FunctionLowering, index: str, line: int) -> None:
    if index.isdigit():
        if int(index) > 15:
            raise Unsupported("there are 16 barriers")
        return
    bad, good = f.fresh("bad"), f.fresh("good")
    f.emit(f"br i1 {f.bin('icmp ult', 'i32', index, 16)}, label %{good}, label %{bad}, !prof !0")
    f.label(bad)
    f.fault(c.FAULT_TRAP, "0", line)
    f.label(good)


# --- warps ----------------------------------------------------------------------------------------------------------------


def _snapshot_lane(f: FunctionLowering, lane: str) -> str:
    """What lane `lane` (i32) of the warp published, as i64."""
    offset = f.bin("shl", "i32", f.bin("and", "i32", lane, 31), 3)
    return f.op(f"load i64, ptr {f.op(f'getelementptr i8, ptr {f.warp()}, i32 {offset}')}, align 8")


@operation("shfl")
def shuffle(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """shfl[.sync].{up,down,bfly,idx}.b32 d|p, a, b, c[, membermask]; a lane that does not take part gives the own value."""
    synchronised = m.flag("sync")
    mode = m.choice("up", "down", "bfly", "idx")
    require(m.type(), "b32")
    check_count(i, 5 if synchronised else 4)
    d, p = pair(i.operands[0])
    a, b, clamp = i.operands[1:4]
    mask = f.value(i.operands[4], "b32") if synchronised else "-1"
    f.wait_warp(mask, f.cast("zext", "i32", f.value(a, "b32"), "i64"))
    lane = f.lane()
    bval = f.bin("and", "i32", f.value(b, "b32"), 31)
    cval = f.value(clamp, "b32")
    segment = f.bin("and", "i32", f.bin("lshr", "i32", cval, 8), 31)
    cval = f.bin("and", "i32", cval, 31)
    inverse = f.bin("xor", "i32", segment, 31)
    max_lane = f.bin("or", "i32", f.bin("and", "i32", lane, segment), f.bin("and", "i32", cval, inverse))
    if mode == "up":
        j = f.bin("sub", "i32", lane, bval)
        inside = f.bin("icmp sge", "i32", j, max_lane)
    elif mode == "down":
        j = f.bin("add", "i32", lane, bval)
        inside = f.bin("icmp sle", "i32", j, max_lane)
    elif mode == "bfly":
        j = f.bin("xor", "i32", lane, bval)
        inside = f.bin("icmp sle", "i32", j, max_lane)
    elif mode == "idx":
        minimum = f.bin("and", "i32", lane, segment)
        j = f.bin("or", "i32", minimum, f.bin("and", "i32", bval, inverse))
        inside = f.bin("icmp sle", "i32", j, max_lane)
    else:
        raise Unsupported("this mode")
    source = f.select(inside, "i32", j, lane)
    f.write(d, "b32", f.cast("trunc", "i64", _snapshot_lane(f, source), "i32"))
    if p is not None:
        f.write(p, "pred", inside)


@operation("vote")
def vote(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """vote[.sync].{all,any,uni,ballot}."""
    synchronised = m.flag("sync")
    mode = m.choice("all", "any", "uni", "ballot")
    m.choice("pred", "b32")
    check_count(i, 3 if synchronised else 2)
    d, a = i.operands[:2]
    mask = f.value(i.operands[2], "b32") if synchronised else "-1"
    f.wait_warp(mask, f.cast("zext", "i1", f.value(a, "pred"), "i64"))
    present = f.load_field(c.RESULT, "i32", "%rec")
    ballot = f.bin("and", "i32", f.load_field(c.BALLOT, "i32", f.warp()), present)
    if mode == "ballot":
        f.write(d, "b32", ballot)
        return
    everyone = f.bin("icmp eq", "i32", ballot, present)
    someone = f.bin("icmp ne", "i32", ballot, 0)
    if mode == "all":
        f.write(d, "pred", everyone)
    elif mode == "any":
        f.write(d, "pred", someone)
    elif mode == "uni":
        f.write(d, "pred", f.bin("or", "i1", everyone, f.bin("xor", "i1", someone, "true")))
    else:
        raise Unsupported("this mode")


@operation("match")
def match(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """match.{any,all}.sync: lanes whose value equals this one's."""
    mode = m.choice("any", "all")
    m.flag("sync")
    kind = m.type()
    require(kind, "b32", "b64")
    check_count(i, 3)
    d, p = pair(i.operands[0])
    value = f.value(i.operands[1], kind)
    wide = value if TYPE_BITS[kind] == 64 else f.cast("zext", llvm_type(kind), value, "i64")
    f.wait_warp(f.value(i.operands[2], "b32"), wide)
    value = f.value(i.operands[1], kind)
    wide = value if TYPE_BITS[kind] == 64 else f.cast("zext", llvm_type(kind), value, "i64")
    present = f.load_field(c.RESULT, "i32", "%rec")
    same = f.call("i32", "ptx.match", f"ptr {f.warp()}", f"i32 {present}", f"i64 {wide}")
    if mode == "any":
        f.write(d, "b32", same)
        return
    agree = f.bin("icmp eq", "i32", same, present)
    f.write(d, "b32", f.select(agree, "i32", present, "0"))
    if p is not None:
        f.write(p, "pred", agree)


@operation("redux")
def reduce(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """redux.sync.{add,min,max,and,or,xor} over 32-bit integers."""
    m.flag("sync")
    word = m.choice("add", "min", "max", "and", "or", "xor")
    kind = m.type()
    check_count(i, 3)
    if kind not in ("u32", "s32", "b32") or not word:
        raise Unsupported("this type")
    value = f.value(i.operands[1], kind)
    f.wait_warp(f.value(i.operands[2], "b32"), f.cast("zext", "i32", value, "i64"))
    present = f.load_field(c.RESULT, "i32", "%rec")
    name = ("s" if is_signed(kind) else "u") + word if word in ("min", "max") else word
    f.write(i.operands[0], kind, f.call("i32", f"ptx.redux.{name}", f"ptr {f.warp()}", f"i32 {present}"))


@operation("activemask")
def active_mask(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """The lanes that are at this instruction together."""
    check_count(i, 1)
    m.type()
    f.store_field(c.REASON, "i32", str(c.ACTIVE_WAIT), "%rec")
    f.suspend()
    f.write(i.operands[0], "b32", f.load_field(c.RESULT, "i32", "%rec"))


@operation("elect")
def elect(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """elect.sync: the lowest lane that takes part is the leader."""
    m.flag("sync")
    check_count(i, 2)
    d, p = pair(i.operands[0])
    f.wait_warp(f.value(i.operands[1], "b32"), "0")
    present = f.load_field(c.RESULT, "i32", "%rec")
    leader = f.op(f"call i32 @llvm.cttz.i32(i32 {present}, i1 false)")
    f.write(d, "b32", leader)
    if p is not None:
        f.write(p, "pred", f.bin("icmp eq", "i32", leader, f.lane()))
