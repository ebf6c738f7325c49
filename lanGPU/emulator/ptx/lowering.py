"""One PTX function to LLVM IR text: registers, operands, control flow, synchronisation points.

A register is an alloca, which LLVM promotes; an instruction is lowered by the function that its first word names in OPERATIONS
(modules ``ops_*``). Each takes its modifiers out of a `Modifiers`, which refuses what is left over, so that no suffix is
accepted unread.

Kernels that synchronise use a resume switch: at a synchronisation point the live registers are stored to the thread's record
and the function returns; called again it jumps behind that point. (LLVM's own coroutines would do the same; the switch needs
no allocation per thread and was measured at a tenth of their cost.) What is live is found by lowering the body twice: the first pass only
notes which registers each instruction reads and writes.
"""

import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx.helpers import Helpers
from lanGPU.emulator.ptx.syntax import (
    TYPE_BITS,
    Body,
    Float,
    Function,
    Instruction,
    Integer,
    Memory,
    Operand,
    Pair,
    PtxSyntaxError,
    Register,
    Sink,
    Symbol,
    Variable,
    Vector,
)
from lanGPU.errors import EmulatorUnsupportedError

if TYPE_CHECKING:
    from lanGPU.emulator.ptx.unit import Unit

Operation = Callable[["FunctionLowering", Instruction, "Modifiers"], None]
OPERATIONS: Final[dict[str, Operation]] = {}
"""First word of the opcode → how it is lowered."""


MAX_DEPTH: Final = 1024
"""Open calls of recursive functions: a worker's native stack of 8 MiB holds that many frames of 8 KiB."""


EXCHANGE_HALF: Final = 128
"""Bytes that a thread shows the others of its warp in one matrix instruction."""
EXCHANGE_BYTES: Final = 16 + 2 * EXCHANGE_HALF
"""A thread's exchange area: i32 whose turn it is, padding, two halves. See ops_matrix."""


def operation(*names: str) -> Callable[[Operation], Operation]:
    """Registers a lowering function."""

    def register(function: Operation) -> Operation:
        for name in names:
            OPERATIONS[name] = function
        return function

    return register


class Unsupported(Exception):
    """What stands behind the refusal of one instruction."""


class Modifiers:
    """The dotted suffixes of an opcode; each must be taken."""

    def __init__(self, parts: tuple[str, ...]) -> None:
        self._left = list(parts)

    def flag(self, *names: str) -> bool:
        """Takes one of `names` if it is there."""
        for name in names:
            if name in self._left:
                self._left.remove(name)
                return True
        return False

    def choice(self, *names: str) -> str:
        """Takes the first of the suffixes that is one of `names`; empty if there is none."""
        for part in self._left:
            if part in names:
                self._left.remove(part)
                return part
        return ""

    def type(self) -> str:
        """Takes the next type."""
        for part in self._left:
            if part in TYPE_BITS:
                self._left.remove(part)
                return part
        raise Unsupported("the instruction has no type")

    def finish(self) -> None:
        """Refuses what nobody took."""
        if self._left:
            raise Unsupported(f"modifier .{self._left[0]} is not supported here")


def llvm_type(kind: str) -> str:
    """The LLVM type that values of a PTX type have in registers; halves are integers."""
    if kind == "pred":
        return "i1"
    if kind == "f32":
        return "float"
    if kind == "f64":
        return "double"
    return f"i{TYPE_BITS[kind]}"


def llvm_bits(kind: str) -> int:
    """Width of an LLVM scalar type."""
    return {"float": 32, "double": 64}.get(kind) or int(kind[1:])


def is_float(kind: str) -> bool:
    return kind in ("f16", "bf16", "f32", "f64", "f16x2", "bf16x2")


def is_signed(kind: str) -> bool:
    return kind[0] == "s"


class FunctionLowering(Helpers):
    """The IR of one function; `text` after `lower`."""

    def __init__(self, unit: "Unit", function: Function, body: Body) -> None:
        self.unit = unit
        self.function = function
        self.body = body
        self.lines: list[str] = []
        self._counter = 0
        self._uses: list[set[str]] = [set() for _ in body.instructions]
        self._defs: list[set[str]] = [set() for _ in body.instructions]
        self.index = 0
        self._spill_at: dict[int, set[str]] = {}
        self._written: set[str] = set()
        """Registers that the instruction being lowered has written: they must outlive a suspension inside it."""
        self._slots: dict[str, int] = {}
        self._resumes: list[tuple[str, set[str]]] = []
        self.synchronises = False
        self.local_bytes = 0
        self._local_offsets: dict[str, int] = {}
        self._param_arrays: dict[str, Variable] = {v.name: v for v in body.variables.values() if v.space == "param"}
        for variable in body.variables.values():
            if variable.space == "local":
                self.local_bytes = -(-self.local_bytes // max(16, variable.align)) * max(16, variable.align)
                self._local_offsets[variable.name] = self.local_bytes
                self.local_bytes += variable.size
            elif variable.space == "shared":
                unit.add_shared(variable)
        self.dry = True

    # --- emitting -----------------------------------------------------------------------------------------------------

    def fresh(self, stem: str = "t") -> str:
        self._counter += 1
        return f"{stem}{self._counter}"

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def op(self, text: str) -> str:
        """An instruction with a result; returns its name."""
        name = "%" + self.fresh()
        self.lines.append(f"  {name} = {text}")
        return name

    def scratch(self, kind: str) -> str:
        """A place in the stack frame, made once however often the instruction runs."""
        name = "%" + self.fresh("scratch")
        self._scratch.append((name, kind))
        return name

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")

    def field(self, offset: int, base: str = "%ctx") -> str:
        """Address of a field of the context or a record."""
        return base if offset == 0 else self.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def load_field(self, offset: int, kind: str, base: str = "%ctx") -> str:
        return self.op(f"load {kind}, ptr {self.field(offset, base)}, align {min(8, max(1, llvm_size(kind)))}")

    def store_field(self, offset: int, kind: str, value: str, base: str = "%ctx") -> None:
        self.emit(f"store {kind} {value}, ptr {self.field(offset, base)}, align {min(8, max(1, llvm_size(kind)))}")

    # --- lowering -----------------------------------------------------------------------------------------------------

    def lower(self) -> str:
        """The function's IR.

        Raises:
            EmulatorUnsupportedError: names kernel, line and instruction.
        """
        self._pass()
        self._find_live()
        self.dry = False
        self._counter = 0
        self._resumes = []
        return self._pass()

    def _pass(self) -> str:
        self.lines = []
        self._scratch: list[tuple[str, str]] = []
        instructions = self.body.instructions
        at: dict[int, list[str]] = {}
        for name, index in self.body.labels.items():
            at.setdefault(index, []).append(name)
        for index, instruction in enumerate(instructions):
            self.index = index
            for name in at.get(index, ()):
                block = self.block_of(name)
                self.emit(f"br label %{block}")
                self.label(block)
            self._instruction(instruction)
        for name in at.get(len(instructions), ()):
            block = self.block_of(name)
            self.emit(f"br label %{block}")
            self.label(block)
        self.finish_thread()
        return self._assemble()

    def block_of(self, name: str) -> str:
        return '"L' + name.replace('"', "") + '"'

    def _instruction(self, instruction: Instruction) -> None:
        handler = OPERATIONS.get(instruction.parts[0])
        self._written = set()
        try:
            if handler is None:
                raise Unsupported("the instruction is not supported")
            modifiers = Modifiers(instruction.parts[1:])
            if instruction.predicate is None:
                handler(self, instruction, modifiers)
            else:
                condition = self.value(instruction.predicate, "pred")
                do, skip = self.fresh("do"), self.fresh("skip")
                self.emit(f"br i1 {condition}, label %{do}, label %{skip}")
                self.label(do)
                handler(self, instruction, modifiers)
                self.emit(f"br label %{skip}")
                self.label(skip)
            modifiers.finish()
        except Unsupported as problem:
            raise EmulatorUnsupportedError(
                f"{self.function.name}, PTX line {instruction.line}: {instruction.opcode}: {problem}"
            ) from problem

    def _assemble(self) -> str:
        head: list[str] = []
        for name, kind in self.body.registers.items():
            if any(name in s for s in self._uses) or any(name in s for s in self._defs):
                head.append(f"  {self._place(name)} = alloca {llvm_type(kind)}")
        head.extend(f"  {name} = alloca {kind}, align 8" for name, kind in self._scratch)
        for name, variable in self._param_arrays.items():
            head.append(f'  %"p.{name}" = alloca [{max(1, variable.size)} x i8], align {max(8, variable.align)}')
        if self.uses_carry:
            head.append("  %carry = alloca i1")
        head.extend(self._prologue())
        return self._signature() + " {\nentry:\n" + "\n".join(head) + "\n" + "\n".join(self.lines) + "\n}\n"

    def _signature(self) -> str:
        if self.function.entry:
            return f'define internal i32 @"{self.function.name}.thread"(ptr %ctx, i32 %tx, i32 %ty, i32 %tz, ptr %rec) #0'
        arguments = "".join(f', ptr %"a.{v.name}"' for v in (*self.function.returns, *self.function.params))
        return f'define internal i32 @"{self.function.name}"(ptr %ctx, i32 %tx, i32 %ty, i32 %tz, ptr %rec{arguments}) #0'

    def _prologue(self) -> list[str]:
        body, self.lines = self.lines, []
        if not self.function.entry:
            for variable in (*self.function.params, *self.function.returns):
                if variable.space == "reg" and variable in self.function.params:
                    value = self.op(f'load {llvm_type(variable.type)}, ptr %"a.{variable.name}"')
                    if any(variable.name in s for s in (*self._uses, *self._defs)):
                        self.emit(f"store {llvm_type(variable.type)} {value}, ptr {self._place(variable.name)}")
        if not self.function.entry and self.function.name in self.unit.recursive:
            depth = self.bin("add", "i32", self.load_field(c.DEPTH, "i32"), 1)
            self.store_field(c.DEPTH, "i32", depth)
            bad, good = self.fresh("deep"), self.fresh("shallow")
            self.emit(f"br i1 {self.bin('icmp ugt', 'i32', depth, MAX_DEPTH)}, label %{bad}, label %{good}")
            self.label(bad)
            self.fault(c.FAULT_STACK_OVERFLOW, "0", self.function.line)
            self.label(good)
        if self.local_bytes and not self.synchronises:
            # Local memory lies in the worker's arena; the caller's part ends where ours begins.
            bottom = self.load_field(c.ARENA_TOP, "ptr")
            top = self.op(f"getelementptr i8, ptr {bottom}, i64 {self._local_size()}")
            end = self.load_field(c.ARENA_END, "ptr")
            over = self.op(f"icmp ugt ptr {top}, {end}")
            bad, good = self.fresh("over"), self.fresh("room")
            self.emit(f"br i1 {over}, label %{bad}, label %{good}")
            self.label(bad)
            self.fault(c.FAULT_LOCAL_OVERFLOW, "0", self.function.line)
            self.label(good)
            self.store_field(c.ARENA_TOP, "ptr", top)
            self.emit(f"%depot = getelementptr i8, ptr {bottom}, i64 0")
        if self.synchronises:
            if self.local_bytes:
                self.emit(f"%depot = getelementptr i8, ptr %rec, i64 {self.depot_offset}")
                self.store_field(c.DEPOT, "ptr", "%depot")
                self.store_field(c.DEPOT_END, "ptr", self.op(f"getelementptr i8, ptr %depot, i64 {self.local_bytes}"))
            if self.uses_exchange:
                self.emit(f"%exchange = getelementptr i8, ptr %rec, i64 {self.exchange_offset}")
                self.emit(f"%exchange.stride = add i64 {self.record_bytes}, 0")
            resume = self.load_field(c.RESUME, "i32", "%rec")
            cases = " ".join(f"i32 {i}, label %{name}" for i, (name, _) in enumerate(self._resumes, 1))
            self.emit(f"switch i32 {resume}, label %start [{cases}]")
            for i, (name, live) in enumerate(self._resumes, 1):
                self.label(name)
                for register in sorted(live):
                    kind = llvm_type(self.body.registers[register])
                    value = self.load_field(c.SPILLS + 8 * self._slots[register], kind, "%rec")
                    self.emit(f"store {kind} {value}, ptr {self._place(register)}")
                self.emit(f"br label %after{i}")
            self.label("start")
        prologue, self.lines = self.lines, body
        return prologue

    def _local_size(self) -> int:
        return -(-self.local_bytes // 16) * 16

    @property
    def depot_offset(self) -> int:
        """Where a thread's local memory begins in its record."""
        return -(-(c.SPILLS + 8 * len(self._slots)) // 16) * 16

    @property
    def record_bytes(self) -> int:
        return -(-(self.exchange_offset + (EXCHANGE_BYTES if self.uses_exchange else 0)) // 64) * 64

    @property
    def exchange_offset(self) -> int:
        """Where a thread's exchange area begins in its record, if it has one."""
        return self.depot_offset + self._local_size()

    @property
    def uses_exchange(self) -> bool:
        return any(i.parts[0] == "mma" or i.parts[:2] == ("wmma", "mma") for i in self.body.instructions)

    # --- registers and operands -----------------------------------------------------------------------------------------

    def _place(self, name: str) -> str:
        return f'%"r.{name}"'

    def _register_type(self, register: Register) -> str:
        kind = self.body.registers.get(register.name)
        if kind is None:
            raise Unsupported(f"special register {register.name} is not supported")
        return kind

    def width_of(self, operand: Operand) -> int:
        """Declared width of a register operand in bits; 64 for everything else."""
        if isinstance(operand, Register) and operand.name in self.body.registers:
            return TYPE_BITS[self.body.registers[operand.name]]
        return 64

    def _read(self, register: Register) -> tuple[str, str]:
        special = self.unit.special(self, register.name)
        if special is not None:
            return special
        kind = llvm_type(self._register_type(register))
        self._uses[self.index].add(register.name)
        return self.op(f"load {kind}, ptr {self._place(register.name)}"), kind

    def value(self, operand: Operand, kind: str, *, extend: bool = False) -> str:
        """`operand` as a value of PTX type `kind`; a wider register is cut (as st and cvt allow), `extend` widens a narrower one."""
        wanted = llvm_type(kind)
        if isinstance(operand, Register):
            name, have = self._read(operand)
            value = self.coerce(name, have, wanted, signed=is_signed(kind), widen=extend)
            return self.op(f"xor i1 {value}, true") if operand.negated else value
        if isinstance(operand, Integer):
            return self._integer(operand.value, kind)
        if isinstance(operand, Float):
            return self._float(operand, kind)
        if isinstance(operand, Symbol):
            address = self.address_of(operand)
            return self.coerce(address, "i64", wanted)
        if isinstance(operand, Vector):
            return self.pack(operand, kind)
        raise Unsupported(f"operand {operand} is not supported")

    def _integer(self, value: int, kind: str) -> str:
        if kind == "pred":
            return "true" if value else "false"
        if kind in ("f32", "f64"):
            if value:
                raise Unsupported("an integer where a floating-point constant is wanted")
            return "0.0"
        return str(value & (1 << TYPE_BITS[kind]) - 1)

    def _float(self, constant: Float, kind: str) -> str:
        plain: float
        raw = constant.bits.to_bytes(4 if constant.single else 8, "little")
        plain = struct.unpack("<f" if constant.single else "<d", raw)[0]
        bits = TYPE_BITS[kind]
        if (constant.single and bits == 32) or (not constant.single and bits == 64):
            word = constant.bits
        elif bits == 32:
            try:
                word = int.from_bytes(struct.pack("<f", plain), "little")
            except OverflowError as error:
                raise Unsupported("a constant beyond the type's range") from error
        elif bits == 64:
            word = int.from_bytes(struct.pack("<d", plain), "little")
        else:
            raise Unsupported("a floating-point constant of this type is not supported")
        if kind in ("f32", "f64"):
            return self.op(f"bitcast i{bits} {word} to {llvm_type(kind)}")
        return str(word)

    def coerce(self, value: str, have: str, want: str, *, signed: bool = False, widen: bool = False) -> str:
        """Bits of `value` as another LLVM type."""
        if have == want:
            return value
        if (have == "i1") != (want == "i1"):
            raise Unsupported("a predicate where a value is wanted, or the other way round")
        have_bits, want_bits = llvm_bits(have), llvm_bits(want)
        if have_bits == want_bits:
            return self.op(f"bitcast {have} {value} to {want}")
        if have[0] != "i":
            value, have = self.op(f"bitcast {have} {value} to i{have_bits}"), f"i{have_bits}"
        if want[0] != "i":
            raise Unsupported("the register's width does not fit the type")
        if have_bits > want_bits:
            return self.op(f"trunc {have} {value} to {want}")
        if not widen:
            raise Unsupported("the register is narrower than the type")
        return self.op(f"{'sext' if signed else 'zext'} {have} {value} to {want}")

    def write(self, operand: Operand, kind: str, value: str) -> None:
        """Puts a value of PTX type `kind` into a register; a wider register gets it extended by the type's sign."""
        if isinstance(operand, Sink):
            return
        if isinstance(operand, Vector):
            self.unpack(operand, kind, value)
            return
        if not isinstance(operand, Register) or operand.negated:
            raise Unsupported("the destination is not a register")
        have = llvm_type(self._register_type(operand))
        value = self.coerce(value, llvm_type(kind), have, signed=is_signed(kind), widen=True)
        self._defs[self.index].add(operand.name)
        self._written.add(operand.name)
        self.emit(f"store {have} {value}, ptr {self._place(operand.name)}")

    def pack(self, vector: Vector, kind: str) -> str:
        """``{a, b}`` as one wider value (mov)."""
        total = TYPE_BITS[kind]
        part = _part(total, vector)
        whole = f"i{total}"
        value = "0"
        for i, item in enumerate(vector.items):
            piece = self.value(item, f"b{part}")
            wide = self.op(f"zext i{part} {piece} to {whole}")
            if i:
                wide = self.op(f"shl {whole} {wide}, {part * i}")
            value = self.op(f"or {whole} {value}, {wide}")
        return self.coerce(value, whole, llvm_type(kind))

    def unpack(self, vector: Vector, kind: str, value: str) -> None:
        total = TYPE_BITS[kind]
        part = _part(total, vector)
        whole = self.coerce(value, llvm_type(kind), f"i{total}")
        for i, item in enumerate(vector.items):
            piece = self.op(f"lshr i{total} {whole}, {part * i}") if i else whole
            self.write(item, f"b{part}", self.op(f"trunc i{total} {piece} to i{part}"))

    def address_of(self, symbol: Symbol) -> str:
        """A symbol's address as i64: an offset for shared variables, a generic address for the others."""
        name = symbol.name
        variable = self.body.variables.get(name) or self.unit.variables.get(name)
        if variable is None:
            if name in self.unit.function_addresses:
                return str(self.unit.function_addresses[name])
            parameter = self.find_parameter(name)
            if parameter is not None:
                return self._plus(self.op(f"ptrtoint ptr {parameter[0]} to i64"), symbol.offset)
            raise PtxSyntaxError(self.body.instructions[self.index].line, f"{name} is not declared")
        if variable.space == "shared":
            return str(self.unit.shared_offset(variable) + symbol.offset)
        if variable.space == "local":
            return self._plus(self.op("ptrtoint ptr %depot to i64"), self._local_offsets[name] + symbol.offset)
        if variable.space == "param":
            return self._plus(self.op(f'ptrtoint ptr %"p.{name}" to i64'), symbol.offset)
        return self._plus(self.unit.global_address(self, variable), symbol.offset)

    def _plus(self, value: str, offset: int) -> str:
        return self.op(f"add i64 {value}, {offset}") if offset else value

    def find_parameter(self, name: str) -> tuple[str, int] | None:
        """(pointer, size in bytes) of a kernel parameter, an argument of this function, or a parameter array of a call."""
        if name in self._param_arrays:
            return f'%"p.{name}"', self._param_arrays[name].size
        offset = 0
        for variable in self.function.params if self.function.entry else ():
            offset = -(-offset // variable.align) * variable.align
            if variable.name == name:
                return self.field(offset, self.load_field(c.PARAMS, "ptr")), variable.size
            offset += variable.size
        if not self.function.entry:
            for variable in (*self.function.returns, *self.function.params):
                if variable.name == name and variable.space == "param":
                    return f'%"a.{name}"', variable.size
        return None

    def memory_address(self, memory: Memory) -> str:
        """The address in brackets as i64."""
        base = memory.base
        if isinstance(base, Integer):
            return str(base.value + memory.offset)
        if isinstance(base, Symbol):
            return self.address_of(Symbol(base.name, memory.offset))
        name, have = self._read(base)
        if have[0] != "i" or llvm_bits(have) < 32:
            raise Unsupported("an address in a register of this type")
        if have == "i32":
            # 32-bit addresses are shared offsets: the sum wraps at 32 bits.
            if memory.offset:
                name = self.op(f"add i32 {name}, {memory.offset}")
            return self.op(f"zext i32 {name} to i64")
        return self._plus(name, memory.offset)

    # --- ends, faults, synchronisation ------------------------------------------------------------------------------------

    def fault(self, kind: int, address: str, line: int) -> None:
        """Ends the block's execution with a fault; closes the current basic block."""
        self.emit(f"call void @ptx.fault(ptr %ctx, i32 {kind}, i32 {line}, i64 {address}, i32 %tx, i32 %ty, i32 %tz)")
        self.emit("ret i32 1")

    def finish_thread(self) -> None:
        """Return from the function; closes the current basic block."""
        if self.function.entry and self.synchronises:
            self.store_field(c.REASON, "i32", str(c.DONE), "%rec")
        if not self.function.entry:
            for variable in self.function.returns:
                if variable.space == "reg":
                    kind = llvm_type(variable.type)
                    self._uses[min(self.index, len(self._uses) - 1)].add(variable.name)
                    value = self.op(f"load {kind}, ptr {self._place(variable.name)}")
                    self.emit(f'store {kind} {value}, ptr %"a.{variable.name}"')
            if self.function.name in self.unit.recursive:
                self.store_field(c.DEPTH, "i32", self.bin("sub", "i32", self.load_field(c.DEPTH, "i32"), 1))
        if self.local_bytes and not self.synchronises:
            self.store_field(c.ARENA_TOP, "ptr", "%depot")
        self.emit("ret i32 0")

    def suspend(self) -> None:
        """Leaves the thread here, its REASON set by the caller; execution goes on behind this point."""
        if not self.function.entry:
            raise Unsupported("synchronisation inside a device function is not supported")
        self.synchronises = True
        live = self._spill_at.get(self.index, set()) | self._written
        for register in sorted(live):
            kind = llvm_type(self.body.registers[register])
            slot = self._slots.setdefault(register, len(self._slots))
            value = self.op(f"load {kind}, ptr {self._place(register)}")
            self.store_field(c.SPILLS + 8 * slot, kind, value, "%rec")
        number = len(self._resumes) + 1
        self._resumes.append((f"resume{number}", live))
        self.store_field(c.RESUME, "i32", str(number), "%rec")
        self.emit("ret i32 2")
        self.label(f"after{number}")

    def wait_warp(self, mask: str, published: str) -> None:
        """Waits until the threads of `mask` (i32) are here; `published` (i64) is what they see of this one."""
        self.store_field(c.MASK, "i32", mask, "%rec")
        self.store_field(c.PUBLISHED, "i64", published, "%rec")
        self.store_field(c.REASON, "i32", str(c.WARP_WAIT), "%rec")
        self.suspend()

    def warp(self) -> str:
        """Pointer to the warp's snapshot."""
        thread = self.unit.linear_thread(self)
        warp = self.op(f"lshr i32 {thread}, 5")
        offset = self.op(f"mul i32 {warp}, {c.WARP_BYTES}")
        return self.op(f"getelementptr i8, ptr {self.load_field(c.WARPS, 'ptr')}, i32 {offset}")

    def lane(self) -> str:
        return self.op(f"and i32 {self.unit.linear_thread(self)}, 31")

    # --- liveness -------------------------------------------------------------------------------------------------------

    def _successors(self, index: int) -> list[int]:
        instruction = self.body.instructions[index]
        following = [index + 1]
        word = instruction.parts[0]
        if word in ("bra", "brx"):
            names: list[str] = []
            for operand in instruction.operands:
                if isinstance(operand, Symbol):
                    names += self.body.targets.get(operand.name, [operand.name])
            targets = [self.body.labels[n] for n in names if n in self.body.labels]
            return targets + (following if instruction.predicate else [])
        if word in ("ret", "exit", "trap"):
            return following if instruction.predicate else []
        return following

    def _find_live(self) -> None:
        count = len(self.body.instructions)
        live_in: list[set[str]] = [set() for _ in range(count + 1)]
        for index, instruction in enumerate(self.body.instructions):
            if instruction.predicate is not None:
                self._uses[index] |= self._defs[index]
        successors = [self._successors(i) for i in range(count)]
        predecessors: list[list[int]] = [[] for _ in range(count + 1)]
        for index, following in enumerate(successors):
            for target in following:
                predecessors[target].append(index)
        pending = list(range(count))
        while pending:
            index = pending.pop()
            out: set[str] = set()
            for target in successors[index]:
                out |= live_in[target]
            new = self._uses[index] | (out - self._defs[index])
            if new != live_in[index]:
                live_in[index] = new
                pending.extend(predecessors[index])
        for index in range(count):
            out = set()
            for target in successors[index]:
                out |= live_in[target]
            self._spill_at[index] = live_in[index] | (out - self._defs[index])


def _part(total: int, vector: Vector) -> int:
    """Width of one element when `total` bits are packed."""
    count = len(vector.items)
    if count not in (2, 4, 8) or total // count not in (8, 16, 32, 64):
        raise Unsupported(f"{count} elements in {total} bits")
    return total // count


def llvm_size(kind: str) -> int:
    """Bytes of an LLVM scalar type in memory."""
    return 8 if kind == "ptr" else max(1, llvm_bits(kind) // 8)


def pair(operand: Operand) -> tuple[Operand, Operand | None]:
    """The halves of ``d|p``."""
    return (operand.first, operand.second) if isinstance(operand, Pair) else (operand, None)


def require(kind: str, *allowed: str) -> None:
    """Refuses a type that the instruction does not have."""
    if kind not in allowed:
        raise Unsupported(f"type .{kind} is not supported here")


def check_count(instruction: Instruction, *counts: int) -> None:
    """Refuses a wrong number of operands."""
    if len(instruction.operands) not in counts:
        raise PtxSyntaxError(instruction.line, f"{instruction.opcode} with {len(instruction.operands)} operands")
