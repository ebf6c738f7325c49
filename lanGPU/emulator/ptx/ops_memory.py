"""Loads, stores, atomics, fences. Every access is checked: alignment, then the interval that its site hit last, then the map.

Source: PTX ISA, "Data Movement: ld, ldu, st, prefetch", "Parallel Synchronization: atom, red, membar, fence".
"""

from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx.lowering import (
    FunctionLowering,
    Modifiers,
    Unsupported,
    check_count,
    is_float,
    is_signed,
    llvm_type,
    operation,
    require,
)
from lanGPU.emulator.ptx.syntax import TYPE_BITS, Instruction, Memory, Operand, Sink, Symbol, Vector

_SPACES = ("global", "shared", "shared::cta", "local", "const", "param", "param::entry", "param::func")
_ORDERS = ("weak", "relaxed", "acquire", "release", "volatile", "mmio")
_SCOPES = ("cta", "cluster", "gpu", "sys")
_HINTS = (
    "ca", "cg", "cs", "lu", "cv", "wb", "wt", "nc", "L1::evict_normal", "L1::evict_unchanged", "L1::evict_first", "L1::evict_last",
    "L1::no_allocate", "L2::evict_first", "L2::evict_last", "L2::evict_normal", "L2::64B", "L2::128B", "L2::256B",
)  # fmt: skip
"""Cache hints change no result."""


def _access(m: Modifiers) -> tuple[str, str]:
    """(space, order) of a load or store; scopes and hints are read and dropped."""
    order = m.choice(*_ORDERS)
    m.choice(*_SCOPES)
    space = m.choice(*_SPACES).partition("::")[0]
    while m.choice(*_HINTS):
        pass
    return space, order


def checked_pointer(f: FunctionLowering, i: Instruction, space: str, memory: Operand, size: int, *, writes: bool = False) -> str:
    """A pointer to `size` bytes at an address in brackets; a bad one ends the kernel with a fault."""
    if not isinstance(memory, Memory):
        raise Unsupported("expected an address in brackets")
    if isinstance(memory.base, Symbol) and space in ("param", ""):
        parameter = f.find_parameter(memory.base.name)
        if parameter is not None:
            pointer, room = parameter
            if not 0 <= memory.offset <= room - size:
                raise Unsupported("an access beyond the parameter")
            return f.field(memory.offset, pointer)
    address = f.memory_address(memory)
    if space == "param" and (writes or not f.function.entry):
        raise Unsupported("parameter space through a register")
    return checked_address(f, i, space, address, size, writes=writes)


def checked_address(f: FunctionLowering, i: Instruction, space: str, address: str, size: int, *, writes: bool = False) -> str:
    """A pointer to `size` bytes at an address (i64) of `space`; as `checked_pointer`."""
    if size > 1:
        low = f.bin("and", "i64", address, size - 1)
        _require(f, f.bin("icmp eq", "i64", low, 0), c.FAULT_MISALIGNED, address, i.line)
    if space == "shared":
        fine = f.op(f"call i1 @ptx.inside(i64 {address}, i64 {size}, i64 0, i64 {f.load_field(c.SHARED_BYTES, 'i64')})")
        _require(f, fine, c.FAULT_ILLEGAL_ADDRESS, address, i.line)
        return f.op(f"getelementptr i8, ptr {f.load_field(c.SHARED, 'ptr')}, i64 {address}")
    if space == "param":
        fine = f.call("i1", "ptx.in_params", "ptr %ctx", f"i64 {address}", f"i64 {size}")
        _require(f, fine, c.FAULT_ILLEGAL_ADDRESS, address, i.line)
        return f.cast("inttoptr", "i64", address, "ptr")
    if space == "local":
        fine = f.call("i1", "ptx.local", "ptr %ctx", f"i64 {address}", f"i64 {size}")
        _require(f, fine, c.FAULT_ILLEGAL_ADDRESS, address, i.line)
        return f.cast("inttoptr", "i64", address, "ptr")
    site = c.SITES + c.SITE_BYTES * f.unit.new_site(f)
    start, end = f.load_field(site, "i64"), f.load_field(site + 8, "i64")
    hit = f.op(f"call i1 @ptx.inside(i64 {address}, i64 {size}, i64 {start}, i64 {end})")
    slow, good, bad = f.fresh("slow"), f.fresh("good"), f.fresh("bad")
    f.emit(f"br i1 {hit}, label %{good}, label %{slow}, !prof !0")
    f.label(slow)
    window = 0 if space else 1 if writes else 2
    fine = f.call("i1", "ptx.find", "ptr %ctx", f"i64 {address}", f"i64 {size}", f"i64 {site}", f"i32 {window}")
    f.emit(f"br i1 {fine}, label %{good}, label %{bad}, !prof !0")
    f.label(bad)
    f.fault(c.FAULT_ILLEGAL_ADDRESS, address, i.line)
    f.label(good)
    return f.cast("inttoptr", "i64", address, "ptr")


def _require(f: FunctionLowering, condition: str, kind: int, address: str, line: int) -> None:
    good, bad = f.fresh("good"), f.fresh("bad")
    f.emit(f"br i1 {condition}, label %{good}, label %{bad}, !prof !0")
    f.label(bad)
    f.fault(kind, address, line)
    f.label(good)


def _elements(operand: Operand, vector: str) -> list[Operand]:
    if not vector:
        return [operand]
    if not isinstance(operand, Vector) or len(operand.items) != int(vector[1:]):
        raise Unsupported("the vector's length does not fit")
    return list(operand.items)


@operation("ld", "ldu")
def load(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 3 if m.flag("L2::cache_hint") else 2)
    space, order = _access(m)
    vector = m.choice("v2", "v4", "v8")
    kind = m.type()
    if kind == "b128":
        raise Unsupported("128-bit loads")
    targets = _elements(i.operands[0], vector)
    width = TYPE_BITS[kind] // 8
    pointer = checked_pointer(f, i, space, i.operands[1], width * len(targets))
    t = llvm_type(kind)
    atomic = order in ("relaxed", "acquire", "volatile", "mmio") and len(targets) == 1
    for n, target in enumerate(targets):
        place = f.field(n * width, pointer)
        if atomic:
            value = f.op(f"load atomic {_int(t)}, ptr {place} {'acquire' if order == 'acquire' else 'monotonic'}, align {width}")
            value = f.coerce(value, _int(t), t)
        else:
            value = f.op(f"load {t}, ptr {place}, align {width}")
        if not isinstance(target, Sink):
            f.write(target, kind, value)
    if atomic and f.function.entry and space != "param":
        f.unit.polls(f)


def _int(t: str) -> str:
    return {"float": "i32", "double": "i64"}.get(t, t)


@operation("st")
def store(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    check_count(i, 3 if m.flag("L2::cache_hint") else 2)
    space, order = _access(m)
    vector = m.choice("v2", "v4", "v8")
    kind = m.type()
    if kind == "b128":
        raise Unsupported("128-bit stores")
    if space == "const":
        raise Unsupported("a store to constant memory")
    sources = _elements(i.operands[1], vector)
    width = TYPE_BITS[kind] // 8
    values = [f.value(source, kind) for source in sources]
    pointer = checked_pointer(f, i, space, i.operands[0], width * len(sources), writes=True)
    t = llvm_type(kind)
    for n, value in enumerate(values):
        place = f.field(n * width, pointer)
        if order in ("relaxed", "release", "volatile", "mmio") and len(sources) == 1:
            word = f.coerce(value, t, _int(t))
            f.emit(f"store atomic {_int(t)} {word}, ptr {place} {'release' if order == 'release' else 'monotonic'}, align {width}")
        else:
            f.emit(f"store {t} {value}, ptr {place}, align {width}")


@operation("prefetch", "prefetchu")
def prefetch(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Changes nothing that a program sees."""
    check_count(i, 1)
    m.choice("global", "local")
    m.choice("L1", "L2")
    while m.choice("L2::evict_last", "L2::evict_normal"):
        pass


@operation("createpolicy")
def create_policy(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """A cache policy is opaque and changes no result: 0."""
    if not m.flag("fractional"):
        raise Unsupported("only .fractional")
    for _ in range(2):
        m.choice("L2::evict_last", "L2::evict_normal", "L2::evict_first", "L2::evict_unchanged")
    require(m.type(), "b64")
    check_count(i, 1, 2)
    f.write(i.operands[0], "b64", "0")


@operation("membar", "fence")
def fence(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    if m.flag("proxy") and not m.choice("alias"):
        raise Unsupported("this proxy fence")
    m.choice("sc", "acq_rel", "acquire", "release")
    m.choice("cta", "gl", "sys", "gpu", "cluster")
    f.emit("fence seq_cst")


_ATOMIC = {"and": "and", "or": "or", "xor": "xor", "exch": "xchg", "inc": "uinc_wrap", "dec": "udec_wrap"}


@operation("atom", "red")
def atomic(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Atomic read-modify-write; carried out sequentially consistent, which every order and scope allows."""
    returns = i.parts[0] == "atom"
    m.choice("relaxed", "acquire", "release", "acq_rel")
    m.choice(*_SCOPES)
    space = m.choice("global", "shared", "shared::cta").partition("::")[0]
    word = m.choice("add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec")
    noftz = m.flag("noftz")
    if m.choice("v2", "v4", "v8"):
        raise Unsupported("vector atomics")
    kind = m.type()
    operands = list(i.operands)
    target: Operand = operands.pop(0) if returns else Sink()
    if m.flag("L2::cache_hint"):
        operands.pop()
    if len(operands) != (3 if word == "cas" else 2):
        raise Unsupported("the number of operands")
    bits = TYPE_BITS[kind]
    if bits > 64 or bits < 16 or (bits == 16 and word not in ("add", "cas")):
        raise Unsupported("this type")
    if is_float(kind) and word != "add":
        raise Unsupported("this operation on floating-point values")
    if noftz and kind not in ("f16", "bf16", "f16x2", "bf16x2"):
        raise Unsupported(".noftz")
    if word in ("and", "or", "xor", "exch", "cas"):
        allowed = ["b32", "b64"] + (["b16"] if word == "cas" else [])
    elif word in ("inc", "dec"):
        allowed = ["u32"]
    elif word == "add":
        allowed = ["u32", "s32", "u64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2"]
    else:
        allowed = ["u32", "s32", "u64", "s64"]
    require(kind, *allowed)
    if not returns and word in ("exch", "cas"):
        raise Unsupported("this operation without a result")
    values = [f.value(o, kind) for o in operands[1:]]
    pointer = checked_pointer(f, i, space, operands[0], bits // 8, writes=True)
    t = llvm_type(kind)
    if word == "cas":
        both = f.op(f"cmpxchg ptr {pointer}, {t} {values[0]}, {t} {values[1]} seq_cst seq_cst, align {bits // 8}")
        old = f.op(f"extractvalue {{{t}, i1}} {both}, 0")
    elif word == "add" and kind == "f32" and space != "shared":
        old = _flushing_add(f, pointer, values[0], generic=not space)
    elif word == "add" and kind in ("f32", "f64"):
        old = f.op(f"atomicrmw fadd ptr {pointer}, {t} {values[0]} seq_cst, align {bits // 8}")
    elif word == "add" and is_float(kind):
        old = _half_add(f, kind, pointer, values[0])
    else:
        if word in ("min", "max"):
            if kind[0] == "b":
                raise Unsupported("this type")
            name = word if is_signed(kind) else "u" + word
        elif word == "add":
            name = "add"
        elif word in _ATOMIC:
            name = _ATOMIC[word]
        else:
            raise Unsupported("this operation")
        old = f.op(f"atomicrmw {name} ptr {pointer}, {t} {values[0]} seq_cst, align {bits // 8}")
    if not isinstance(target, Sink):
        f.write(target, kind, old)
    if f.function.entry:
        f.unit.polls(f)


def _flushing_add(f: FunctionLowering, pointer: str, value: str, *, generic: bool) -> str:
    """atom.add.f32, which flushes subnormals in global memory and keeps them in shared memory; returns the old value."""
    keep = "false"
    if generic:
        address = f.cast("ptrtoint", "ptr", pointer, "i64")
        size = f.load_field(c.SHARED_BYTES, "i64")
        start = f.load_field(c.SHARED, "i64")
        keep = f.bin("icmp ult", "i64", f.bin("sub", "i64", address, start), size)
    before, again, done = f.fresh("before"), f.fresh("again"), f.fresh("done")
    first = f.op(f"load atomic i32, ptr {pointer} monotonic, align 4")
    f.emit(f"br label %{before}")
    f.label(before)
    f.emit(f"br label %{again}")
    f.label(again)
    retry = "%" + f.fresh()
    old = f.op(f"phi i32 [{first}, %{before}], [{retry}, %{again}]")
    have = f.cast("bitcast", "i32", old, "float")
    flushed = f.flush(f.bin("fadd", "float", f.flush(have), f.flush(value)))
    total = f.select(keep, "float", f.bin("fadd", "float", have, value), flushed) if generic else flushed
    both = f.op(f"cmpxchg ptr {pointer}, i32 {old}, i32 {f.cast('bitcast', 'float', total, 'i32')} seq_cst seq_cst, align 4")
    f.emit(f"{retry} = extractvalue {{i32, i1}} {both}, 0")
    f.emit(f"br i1 {f.op(f'extractvalue {{i32, i1}} {both}, 1')}, label %{done}, label %{again}")
    f.label(done)
    return f.cast("bitcast", "i32", old, "float")


def _half_add(f: FunctionLowering, kind: str, pointer: str, value: str) -> str:
    """atom.add of halves by compare and swap; returns the old value."""
    t = llvm_type(kind)
    before, again, done = f.fresh("before"), f.fresh("again"), f.fresh("done")
    first = f.op(f"load atomic {t}, ptr {pointer} monotonic, align {2 if t == 'i16' else 4}")
    f.emit(f"br label %{before}")
    f.label(before)
    f.emit(f"br label %{again}")
    f.label(again)
    retry = "%" + f.fresh()
    old = f.op(f"phi {t} [{first}, %{before}], [{retry}, %{again}]")

    def one(k: str, x: str, y: str) -> str:
        return f.float_to_half(k, f.bin("fadd", "float", f.half_to_float(k, x), f.half_to_float(k, y)))

    if t == "i16":
        new = one(kind, old, value)
    else:
        lanes = []
        for n in range(2):
            x, y = (f.cast("trunc", "i32", f.bin("lshr", "i32", v, 16 * n), "i16") for v in (old, value))
            lanes.append(f.cast("zext", "i16", one(kind[:-2], x, y), "i32"))
        new = f.bin("or", "i32", lanes[0], f.bin("shl", "i32", lanes[1], 16))
    both = f.op(f"cmpxchg ptr {pointer}, {t} {old}, {t} {new} seq_cst seq_cst")
    f.emit(f"{retry} = extractvalue {{{t}, i1}} {both}, 0")
    swapped = f.op(f"extractvalue {{{t}, i1}} {both}, 1")
    f.emit(f"br i1 {swapped}, label %{done}, label %{again}")
    f.label(done)
    return old
