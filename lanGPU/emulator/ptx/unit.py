"""One kernel with the device functions it reaches, as a whole LLVM module."""

from lanGPU.emulator.ptx import (
    context as c,
)
from lanGPU.emulator.ptx import (
    ops_async,
    ops_control,
    ops_convert,
    ops_float,
    ops_integer,
    ops_matrix,
    ops_memory,
    ops_texture,
)
from lanGPU.emulator.ptx.lowering import FunctionLowering, Unsupported
from lanGPU.emulator.ptx.parser import BodyParser, Outline
from lanGPU.emulator.ptx.prelude import HELPERS
from lanGPU.emulator.ptx.scheduler import plain_block, run_blocks, waiting_block
from lanGPU.emulator.ptx.syntax import Body, Function, Instruction, Memory, PtxSyntaxError, Register, Symbol, Variable, Vector
from lanGPU.emulator.ptx.system import HEAP_FUNCTIONS, SYSTEM_FUNCTIONS, SystemFunction
from lanGPU.errors import EmulatorUnsupportedError

OPERATION_MODULES = (ops_async, ops_control, ops_convert, ops_float, ops_integer, ops_matrix, ops_memory, ops_texture)
"""Imported for what they register."""

_AXES = {"x": 0, "y": 4, "z": 8}


class Unit:
    """Lowers `kernel`; afterwards `ir`, `shared_bytes`, `record_bytes`, `sites`, `global_names` say what a launch needs."""

    def __init__(self, outline: Outline, kernel: str) -> None:
        self.functions = outline.functions
        self.variables = outline.variables
        self.kernel = kernel
        self.externals: dict[str, str] = {}
        self.global_names: list[str] = []
        self.sites = 0
        self._shared: dict[str, int] = {}
        self.shared_bytes = 0
        self._dynamic_offset: int | None = None
        self._bodies: dict[str, Body] = {}
        self.recursive: set[str] = set()
        """Functions that may call themselves, directly or not: their depth is counted."""
        self.uses_system = self.uses_heap = False
        """Whether system functions are called, and whether those of the heap."""
        self.function_addresses = function_addresses(outline)
        self._collect(kernel, ())
        self._lay_out_shared()

    @property
    def kernel_local_bytes(self) -> int:
        """Local memory that the kernel itself declares."""
        return sum(v.size for v in self._bodies[self.kernel].variables.values() if v.space == "local")

    # --- what belongs to the unit -----------------------------------------------------------------------------------------

    def _collect(self, name: str, callers: tuple[str, ...]) -> None:
        if name in callers:
            self.recursive.update(callers[callers.index(name) :])
        if name in self._bodies:
            return
        function = self.functions[name]
        body = BodyParser(function).parse()
        self._bodies[name] = body
        for instruction in body.instructions:
            for symbol in _symbols(instruction):
                if symbol.name not in self.functions:
                    continue
                if self.functions[symbol.name].text is None:
                    if self.system_function(symbol.name) is not None and instruction.parts[0] == "call":
                        self.uses_system = True
                        self.uses_heap |= symbol.name in HEAP_FUNCTIONS
                        continue
                    raise EmulatorUnsupportedError(
                        f"{self.kernel}, PTX line {instruction.line}: {instruction.opcode}: {symbol.name} is not supported"
                    )
                self._collect(symbol.name, (*callers, name))
            if is_indirect(instruction):
                for target in self._tabulated():
                    self._collect(target, ())
                self.recursive.update((*callers, name))

    def _tabulated(self) -> set[str]:
        """Functions whose addresses stand in module variables."""
        names = {r[2] for v in self.variables.values() for r in v.relocations}
        return {n for n in names if n in self.functions and self.functions[n].text is not None}

    def targets(self) -> list[Function]:
        """What an indirect call may reach."""
        return [self.functions[n] for n in self._bodies if not self.functions[n].entry]

    def _lay_out_shared(self) -> None:
        names = {symbol.name for body in self._bodies.values() for i in body.instructions for symbol in _symbols(i)}
        variables = [v for v in self.variables.values() if v.space == "shared" and v.name in names]
        variables += [v for body in self._bodies.values() for v in body.variables.values() if v.space == "shared"]
        for variable in variables:
            if variable.size:
                self.shared_bytes = -(-self.shared_bytes // variable.align) * variable.align
                self._shared[variable.name] = self.shared_bytes
                self.shared_bytes += variable.size
        dynamic = [v for v in variables if not v.size]
        if dynamic:
            align = max(16, *(v.align for v in dynamic))
            self.shared_bytes = -(-self.shared_bytes // align) * align
            for variable in dynamic:
                self._shared[variable.name] = self.shared_bytes

    def add_shared(self, variable: Variable) -> None:
        """Declared in a body; laid out already."""

    def shared_offset(self, variable: Variable) -> int:
        return self._shared[variable.name]

    def global_address(self, f: FunctionLowering, variable: Variable) -> str:
        """The address of a module variable: read from a table, so that compiled code can be kept on disk."""
        if variable.name not in self.global_names:
            self.global_names.append(variable.name)
        index = self.global_names.index(variable.name)
        table = f.load_field(c.GLOBALS, "ptr")
        return f.op(f"load i64, ptr {f.field(8 * index, table)}, align 8, !invariant.load !2")

    def new_site(self, f: FunctionLowering) -> int:
        """Number of an access site, whose last interval is remembered."""
        if f.dry:
            return 0
        self.sites += 1
        return self.sites - 1

    def callee(self, f: FunctionLowering, name: str) -> Function:
        function = self.functions.get(name)
        if function is None:
            raise Unsupported(f"there is no function {name}")
        if name not in self._bodies:
            raise Unsupported(f"{name} has no body")
        return function

    def system_function(self, name: str) -> SystemFunction | None:
        """The function of the device runtime that a module declares under this name."""
        declared, known = self.functions.get(name), SYSTEM_FUNCTIONS.get(name)
        return known if declared is not None and declared.text is None and known is not None and known.matches(declared) else None

    def external(self, name: str, result: str, parameters: list[str]) -> None:
        """Declares a function of the C library."""
        self.externals[name] = f"declare {result} @{name}({', '.join(parameters)})\n"

    # --- special registers --------------------------------------------------------------------------------------------------

    def linear_thread(self, f: FunctionLowering) -> str:
        """The thread's number in its block, as i32."""
        nx, ny = f.load_field(c.NTID, "i32"), f.load_field(c.NTID + 4, "i32")
        return f.bin("add", "i32", "%tx", f.bin("mul", "i32", nx, f.bin("add", "i32", "%ty", f.bin("mul", "i32", ny, "%tz"))))

    def special(self, f: FunctionLowering, name: str) -> tuple[str, str] | None:
        """(value, LLVM type) of a special register; None if `name` is none."""
        base, _, axis = name.partition(".")
        if base == "%tid" and axis in _AXES:
            return f"%t{axis}", "i32"
        for register, offset in (("%ntid", c.NTID), ("%ctaid", c.CTAID), ("%nctaid", c.NCTAID)):
            if base == register and axis in _AXES:
                return f.load_field(offset + _AXES[axis], "i32"), "i32"
        if name.startswith("%lanemask_"):
            return self._lane_mask(f, name[10:]), "i32"
        fields = {"%dynamic_smem_size": c.DYNAMIC_BYTES, "%smid": c.WORKER, "%nsmid": c.WORKERS}
        if name in fields:
            return f.load_field(fields[name], "i32"), "i32"
        if name == "%total_smem_size":
            return f.cast("trunc", "i64", f.load_field(c.SHARED_BYTES, "i64"), "i32"), "i32"
        if name in ("%envreg1", "%envreg2"):  # high and low half of the address that cooperative groups keep their barrier at
            workspace = f.load_field(c.WORKSPACE, "i64")
            half = f.bin("lshr", "i64", workspace, 32) if name == "%envreg1" else workspace
            return f.cast("trunc", "i64", half, "i32"), "i32"
        if name == "%gridid":
            return f.load_field(c.GRIDID, "i64"), "i64"
        if name == "%laneid":
            return f.lane(), "i32"
        if name == "%warpid":
            return f.bin("lshr", "i32", self.linear_thread(f), 5), "i32"
        if name == "%nwarpid":
            return "32", "i32"
        if name in ("%clock", "%clock64", "%clock_hi"):
            cycles = f.op("call i64 @llvm.readcyclecounter()")
            if name == "%clock64":
                return cycles, "i64"
            if name == "%clock_hi":
                cycles = f.bin("lshr", "i64", cycles, 32)
            return f.cast("trunc", "i64", cycles, "i32"), "i32"
        if name in ("%globaltimer", "%globaltimer_lo", "%globaltimer_hi"):
            return self._timer(f, name)
        return None

    def _lane_mask(self, f: FunctionLowering, which: str) -> str:
        bit = f.bin("shl", "i32", "1", f.lane())
        below = f.bin("sub", "i32", bit, 1)
        upto = f.bin("or", "i32", below, bit)
        masks = {"eq": bit, "lt": below, "le": upto}
        if which in masks:
            return masks[which]
        if which == "gt":
            return f.bin("xor", "i32", upto, -1)
        if which == "ge":
            return f.bin("xor", "i32", below, -1)
        raise Unsupported(f"special register %lanemask_{which}")

    def _timer(self, f: FunctionLowering, name: str) -> tuple[str, str]:
        """Nanoseconds of the realtime clock (clock 0)."""
        self.external("clock_gettime", "i32", ["i32", "ptr"])
        place = f.scratch("[2 x i64]")
        f.op(f"call i32 @clock_gettime(i32 0, ptr {place})")
        seconds = f.op(f"load i64, ptr {place}")
        nanos = f.op(f"load i64, ptr {f.field(8, place)}")
        time = f.bin("add", "i64", f.bin("mul", "i64", seconds, 1_000_000_000), nanos)
        if name == "%globaltimer":
            return time, "i64"
        if name == "%globaltimer_hi":
            time = f.bin("lshr", "i64", time, 32)
        return f.cast("trunc", "i64", time, "i32"), "i32"

    # --- loops that wait for other threads ------------------------------------------------------------------------------------

    def polls(self, f: FunctionLowering) -> None:
        """An access that other threads may be meant to see; `must_yield` finds them itself."""

    def must_yield(self, f: FunctionLowering, target: int) -> bool:
        """Whether the branch being lowered closes a loop that may wait for another thread of the block."""
        if not f.function.entry or target > f.index:
            return False
        return any(_watches(i) for i in f.body.instructions[target : f.index + 1])

    # --- the module -----------------------------------------------------------------------------------------------------------

    def lower(self) -> str:
        """The module's IR.

        Raises:
            EmulatorUnsupportedError, PtxSyntaxError
        """
        texts = []
        kernel_lowering: FunctionLowering | None = None
        for name, body in self._bodies.items():
            lowering = FunctionLowering(self, self.functions[name], body)
            texts.append(lowering.lower())
            if name == self.kernel:
                kernel_lowering = lowering
        if kernel_lowering is None:
            raise PtxSyntaxError(0, f"there is no kernel {self.kernel}")
        self.synchronises = kernel_lowering.synchronises
        self.record_bytes = kernel_lowering.record_bytes if self.synchronises else 0
        self.local_bytes = kernel_lowering.local_bytes
        if self.synchronises:
            block = f'@ptx.schedule(ptr %ctx, ptr @"{self.kernel}.thread", i64 {self.record_bytes})'
        else:
            texts.append(plain_block(self.kernel))
            block = f'@"{self.kernel}.block"(ptr %ctx)'
        texts.append(run_blocks(self.kernel, block))
        tail = 'attributes #0 = { nounwind "no-trapping-math"="true" }\n'
        tail += '!0 = !{!"branch_weights", i32 1000, i32 1}\n!1 = !{!"branch_weights", i32 1, i32 1000}\n!2 = !{}\n'
        return HELPERS + waiting_block() + "".join(self.externals.values()) + "".join(texts) + tail


FUNCTION_BASE = 0x7F00_0000_0000_0000
"""Device functions' addresses are mere names from here up: nothing can be read there."""


def function_addresses(outline: Outline) -> dict[str, int]:
    """What a program sees as the address of each device function."""
    return {name: FUNCTION_BASE + 16 * n for n, (name, f) in enumerate(outline.functions.items(), 1) if not f.entry}


def is_indirect(instruction: Instruction) -> bool:
    """Whether the instruction calls through a register."""
    if instruction.parts[0] != "call":
        return False
    return any(isinstance(o, Register) for o in instruction.operands[:2])


def _symbols(instruction: Instruction) -> list[Symbol]:
    found = []
    stack = list(instruction.operands)
    while stack:
        operand = stack.pop()
        if isinstance(operand, Symbol):
            found.append(operand)
        elif isinstance(operand, Memory) and isinstance(operand.base, Symbol):
            found.append(operand.base)
        elif isinstance(operand, Vector):
            stack.extend(operand.items)
    return found


def _watches(instruction: Instruction) -> bool:
    """Whether the instruction's result may be what another thread is waited for."""
    word, *rest = instruction.parts
    if word == "atom":
        return "cas" in rest or "exch" in rest
    if word == "mbarrier":
        return "test_wait" in rest or "try_wait" in rest
    return word == "ld" and any(order in rest for order in ("volatile", "acquire", "relaxed", "mmio"))
