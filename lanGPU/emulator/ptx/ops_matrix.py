"""Matrices that a warp holds together: mma.sync, wmma, ldmatrix, stmatrix, movmatrix.

Each thread puts its part of A and B into an exchange area of its record, waits for the warp, and computes its own elements of D from all
parts. The area is double: a thread can fill one half for the next product while others still read the other one, and it comes no
further than that before all have read. Sums of halves and tf32 are made in double precision and rounded once, as PTX leaves the order
and the precision of the additions open.

Source: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".
"""

from dataclasses import dataclass
from typing import Final

from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx.lowering import EXCHANGE_HALF, FunctionLowering, Modifiers, Unsupported, check_count, operation
from lanGPU.emulator.ptx.ops_memory import checked_address
from lanGPU.emulator.ptx.syntax import Instruction, Memory, Operand, Register, Vector

ELEMENT_BITS: Final = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "s8": 8, "u8": 8}
B_OFFSET: Final = 64
"""Where B begins in a half of the exchange area; A takes at most 64 bytes (8 f64)."""
FULL_WARP: Final = "-1"
LAYOUTS: Final = ("row", "col")

MMA_SHAPES: Final = {
    "f16": ("m16n8k8", "m16n8k16"),
    "bf16": ("m16n8k8", "m16n8k16"),
    "tf32": ("m16n8k4", "m16n8k8"),
    "f64": ("m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"),
    "s8": ("m8n8k16", "m16n8k16", "m16n8k32"),
    "u8": ("m8n8k16", "m16n8k16", "m16n8k32"),
}
WMMA_SHAPES: Final = {
    **dict.fromkeys(("f16", "bf16", "s8", "u8"), ("m16n16k16", "m32n8k16", "m8n32k16")),
    "tf32": ("m16n16k8",),
    "f64": ("m8n8k4",),
}
_EVERY_SHAPE: Final = tuple({shape: None for table in (MMA_SHAPES, WMMA_SHAPES) for shapes in table.values() for shape in shapes})


@dataclass(frozen=True, slots=True)
class Shape:
    """D (m, n) = A (m, k) times B (k, n) plus C."""

    m: int
    n: int
    k: int


def parse_shape(word: str) -> Shape:
    """``m16n8k16`` as numbers."""
    m, _, rest = word[1:].partition("n")
    n, _, k = rest.partition("k")
    return Shape(int(m), int(n), int(k))


# --- between threads --------------------------------------------------------------------------------------------------------


def meet(f: FunctionLowering, line: int, published: str = "0") -> None:
    """Waits for all 32 threads of the warp; without all of them these instructions have no meaning, and the kernel ends with a fault."""
    f.wait_warp(FULL_WARP, published)
    bad, good = f.fresh("bad"), f.fresh("good")
    everyone = f.bin("icmp eq", "i32", f.load_field(c.RESULT, "i32", "%rec"), -1)
    f.emit(f"br i1 {everyone}, label %{good}, label %{bad}, !prof !0")
    f.label(bad)
    f.fault(c.FAULT_TRAP, "0", line)
    f.label(good)


def _registers(operand: Operand) -> list[Operand]:
    return list(operand.items) if isinstance(operand, Vector) else [operand]


def _exchange(f: FunctionLowering, line: int, parts: list[tuple[int, list[str], str]]) -> None:
    """Publishes registers (offset, values, LLVM type) in this thread's next half of its area and waits for the warp."""
    turn = f.bin("and", "i32", f.bin("add", "i32", f.load_field(0, "i32", "%exchange"), 1), 1)
    f.store_field(0, "i32", turn, "%exchange")
    wide = f.cast("zext", "i32", turn, "i64")
    start = f.bin("add", "i64", f.bin("mul", "i64", wide, EXCHANGE_HALF), 16)
    half = f.op(f"getelementptr i8, ptr %exchange, i64 {start}")
    for offset, values, kind in parts:
        size = 8 if kind == "double" else 4
        for n, value in enumerate(values):
            f.store_field(offset + n * size, kind, value, half)
    meet(f, line, wide)


def _values(f: FunctionLowering, operand: Operand, count: int, kind: str) -> list[str]:
    registers = _registers(operand)
    if len(registers) != count:
        raise Unsupported(f"{len(registers)} registers where the fragment has {count}")
    return [f.value(r, kind) for r in registers]


PEER = """
define internal ptr @ptx.peer(ptr %own, i64 %stride, i32 %lane, ptr %warp, i32 %other) alwaysinline {
  %distance = sub i32 %other, %lane
  %far = sext i32 %distance to i64
  %jump = mul i64 %far, %stride
  %area = getelementptr i8, ptr %own, i64 %jump
  %slot = shl i32 %other, 3
  %place = getelementptr i8, ptr %warp, i32 %slot
  %turn = load i64, ptr %place, align 8
  %bit = and i64 %turn, 1
  %half = mul i64 %bit, HALF
  %start = add i64 %half, 16
  %data = getelementptr i8, ptr %area, i64 %start
  ret ptr %data
}
""".replace("HALF", str(EXCHANGE_HALF))


# --- products ---------------------------------------------------------------------------------------------------------------


class _Product:
    """IR of ``void name(own, stride, lane, warp, acc)``: adds A times B, as the warp has published them, to this thread's elements."""

    def __init__(self, name: str, shape: Shape, kinds: tuple[str, str], *, wmma: bool) -> None:
        self.name = name
        self.shape = shape
        self.kinds = kinds
        self.wmma = wmma
        self.bits = ELEMENT_BITS[kinds[0]]
        self.kind = "i64" if kinds[0] in ("s8", "u8") else "double"
        self.elements = shape.m * shape.n // 32
        self._lines: list[str] = []
        self._count = 0

    def _op(self, text: str) -> str:
        self._count += 1
        self._lines.append(f"  %v{self._count} = {text}")
        return f"%v{self._count}"

    def _div(self, value: str, by: int) -> str:
        return self._op(f"udiv i32 {value}, {by}")

    def _mod(self, value: str, by: int) -> str:
        return self._op(f"urem i32 {value}, {by}")

    def _mad(self, a: str, by: int, b: str) -> str:
        return self._op(f"add i32 {self._op(f'mul i32 {a}, {by}')}, {b}")

    def _place(self, element: str) -> tuple[str, str]:
        """(row, column) in D of one of this thread's elements."""
        if self.wmma:
            index = self._mad("%lane", self.elements, element)
            return self._div(index, self.shape.n), self._mod(index, self.shape.n)
        row = self._mad(self._div(element, 2), 8, self._div("%lane", 4))
        return row, self._mad(self._mod("%lane", 4), 2, self._mod(element, 2))

    def _element(self, line: str, lines: int, k: str, offset: int) -> tuple[str, str]:
        """(lane, byte offset in its data) of element `k` of a row of A or a column of B, which there are `lines` of."""
        size = self.bits // 8
        if self.wmma:
            each = lines * self.shape.k // 32
            index = self._mad(line, self.shape.k, k)
            return self._div(index, each), self._mad(self._mod(index, each), size, str(offset))
        together = max(1, 32 // self.bits)
        lane = self._mad(self._mod(line, 8), 4, self._mod(self._div(k, together), 4))
        register = self._mad(self._div(k, 4 * together), lines // 8, self._div(line, 8))
        inside = self._mad(self._mod(k, together), size, str(offset))
        return lane, self._mad(register, size * together, inside)

    def _number(self, kind: str, lane: str, offset: str) -> str:
        data = self._op(f"call ptr @ptx.peer(ptr %own, i64 %stride, i32 %lane, ptr %warp, i32 {lane})")
        place = self._op(f"getelementptr i8, ptr {data}, i32 {offset}")
        if kind == "f64":
            return self._op(f"load double, ptr {place}, align 8")
        if kind in ("s8", "u8"):
            return self._op(f"{'sext' if kind == 's8' else 'zext'} i8 {self._op(f'load i8, ptr {place}')} to i64")
        if kind == "f16":
            single = self._op(f"fpext half {self._op(f'load half, ptr {place}, align 2')} to float")
        else:
            if kind == "bf16":
                raw = self._op(f"load i16, ptr {place}, align 2")
                word = self._op(f"shl i32 {self._op(f'zext i16 {raw} to i32')}, 16")
            else:  # tf32: the unit does not look at the low 13 bits
                word = self._op(f"and i32 {self._op(f'load i32, ptr {place}, align 4')}, -8192")
            single = self._op(f"bitcast i32 {word} to float")
        return self._op(f"fpext float {single} to double")

    def text(self) -> str:
        """The function."""
        row, column = self._place("%e")
        before, self._lines = self._lines, []
        a = self._number(self.kinds[0], *self._element(row, self.shape.m, "%k", 0))
        b = self._number(self.kinds[1], *self._element(column, self.shape.n, "%k", B_OFFSET))
        if self.kind == "double":
            total = self._op(f"call double @llvm.fma.f64(double {a}, double {b}, double %sum)")
        else:
            total = self._op(f"add i64 {self._op(f'mul i64 {a}, {b}')}, %sum")
        inner = self._lines
        return "\n".join(
            [
                f"define internal void @{self.name}(ptr %own, i64 %stride, i32 %lane, ptr %warp, ptr %acc) noinline {{",
                "entry:",
                "  br label %each",
                "each:",
                "  %e = phi i32 [0, %entry], [%e1, %store]",
                *before,
                f"  %place = getelementptr {self.kind}, ptr %acc, i32 %e",
                f"  %first = load {self.kind}, ptr %place, align 8",
                "  br label %step",
                "step:",
                "  %k = phi i32 [0, %each], [%k1, %step]",
                f"  %sum = phi {self.kind} [%first, %each], [{total}, %step]",
                *inner,
                "  %k1 = add nuw i32 %k, 1",
                f"  %more = icmp ult i32 %k1, {self.shape.k}",
                "  br i1 %more, label %step, label %store",
                "store:",
                f"  store {self.kind} {total}, ptr %place, align 8",
                "  %e1 = add nuw i32 %e, 1",
                f"  %rest = icmp ult i32 %e1, {self.elements}",
                "  br i1 %rest, label %each, label %done",
                "done:",
                "  ret void",
                "}\n",
            ]
        )


def _multiply(
    f: FunctionLowering, i: Instruction, shape: Shape, kinds: tuple[str, str], accumulator: str, result: str, *, wmma: bool, saturate: bool
) -> None:
    """Publishes A and B, waits, and writes D; counts of registers follow from the shape."""
    d, a, b, third = i.operands
    if (kinds[0] in ("s8", "u8")) != (kinds[1] in ("s8", "u8")) or (kinds[0][0] not in "su" and kinds[0] != kinds[1]):
        raise Unsupported("A and B of these types")
    allowed = {"f16": ("f16", "f32"), "bf16": ("f32",), "tf32": ("f32",), "f64": ("f64",)}.get(kinds[0], ("s32",))
    if accumulator not in allowed or result not in allowed:
        raise Unsupported("this type of C or D")
    if saturate and accumulator != "s32":
        raise Unsupported(".satfinite of floating-point values")
    register = "f64" if kinds[0] == "f64" else "b32"
    kind = "double" if kinds[0] == "f64" else "i32"
    a_count, b_count = (fragment_registers(lines * shape.k, kinds[0], wmma=wmma) for lines in (shape.m, shape.n))
    a_values, b_values = _values(f, a, a_count, register), _values(f, b, b_count, register)
    used_a, used_b = (
        max(1, lines * shape.k * ELEMENT_BITS[kinds[0]] // (64 if kind == "double" else 32) // 32) for lines in (shape.m, shape.n)
    )
    _exchange(f, i.line, [(0, a_values[:used_a], kind), (B_OFFSET, b_values[:used_b], kind)])
    product = _Product(f"ptx.{'wmma' if wmma else 'mma'}.m{shape.m}n{shape.n}k{shape.k}.{kinds[0]}.{kinds[1]}", shape, kinds, wmma=wmma)
    f.unit.externals["ptx.peer"] = PEER
    f.unit.externals[product.name] = product.text()
    places = f.scratch(f"[{product.elements} x i64]")
    for n, value in enumerate(_accumulators(f, third, accumulator, product.elements)):
        f.store_field(8 * n, product.kind, value, places)
    f.emit(f"call void @{product.name}(ptr %exchange, i64 %exchange.stride, i32 {f.lane()}, ptr {f.warp()}, ptr {places})")
    results = [f.load_field(8 * n, product.kind, places) for n in range(product.elements)]
    _write_results(f, d, result, results, saturate=saturate)


def fragment_registers(elements: int, kind: str, *, wmma: bool) -> int:
    """Registers of a thread for a matrix of so many elements. wmma's f16 fragments of A and B have 8 always, parts of them copies."""
    if wmma and kind == "f16":
        return 8
    return max(1, elements * ELEMENT_BITS[kind] // 32 // (64 if kind == "f64" else 32))


def _accumulators(f: FunctionLowering, operand: Operand, kind: str, count: int) -> list[str]:
    """The elements of C as double or i64."""
    if kind == "f16":
        values = []
        for packed in _values(f, operand, count // 2, "b32"):
            for n in range(2):
                half = f.cast("trunc", "i32", f.bin("lshr", "i32", packed, 16 * n), "i16")
                values.append(f.cast("fpext", "float", f.half_to_float("f16", half), "double"))
        return values
    values = _values(f, operand, count, kind)
    if kind == "f64":
        return values
    word, have, want = ("fpext", "float", "double") if kind == "f32" else ("sext", "i32", "i64")
    return [f.cast(word, have, value, want) for value in values]


def _write_results(f: FunctionLowering, operand: Operand, kind: str, values: list[str], *, saturate: bool) -> None:
    targets = _registers(operand)
    if len(targets) != len(values) // (2 if kind == "f16" else 1):
        raise Unsupported(f"{len(targets)} registers for D")
    if kind == "f16":
        halves = [f.canonical_half("f16", f.cast("fptrunc", "double", value, "float")) for value in values]
        for n, target in enumerate(targets):
            low, high = (f.cast("zext", "i16", half, "i32") for half in halves[2 * n : 2 * n + 2])
            f.write(target, "b32", f.bin("or", "i32", low, f.bin("shl", "i32", high, 16)))
        return
    for target, value in zip(targets, values, strict=True):
        if kind == "f32":
            f.write(target, "f32", f.canonical(f.cast("fptrunc", "double", value, "float"), "f32"))
        elif kind == "s32":
            if saturate:
                value = f.op(f"call i64 @llvm.smax.i64(i64 {value}, i64 {-(1 << 31)})")
                value = f.op(f"call i64 @llvm.smin.i64(i64 {value}, i64 {(1 << 31) - 1})")
            f.write(target, "s32", f.cast("trunc", "i64", value, "i32"))
        else:
            f.write(target, kind, value)


def _kinds(m: Modifiers, count: int) -> list[str]:
    """The next types among the modifiers, in their order."""
    return [found for _ in range(count) if (found := m.choice("f16", "f32", "bf16", "tf32", "f64", "s8", "u8", "s32"))]


@operation("mma")
def mma(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """mma.sync.aligned.shape.row.col[.satfinite].d.a.b.c for dense f16, bf16, tf32, f64 and 8-bit integers."""
    if not m.flag("sync") or not m.flag("aligned"):
        raise Unsupported("only mma.sync.aligned")
    word = m.choice(*_EVERY_SHAPE)
    if not (m.flag("row") and m.flag("col")) or [p for p in i.parts if p in LAYOUTS] != ["row", "col"]:
        raise Unsupported("only A by rows and B by columns")
    saturate = m.flag("satfinite")
    kinds = _kinds(m, 4)
    check_count(i, 4)
    if len(kinds) != 4:
        raise Unsupported("these types")
    d, a, b, third = kinds
    if word not in MMA_SHAPES.get(a, ()):
        raise Unsupported("this shape for the type of A")
    _multiply(f, i, parse_shape(word), (a, b), third, d, wmma=False, saturate=saturate)


# --- wmma -------------------------------------------------------------------------------------------------------------------
# What a fragment holds is nobody's business but the implementation's: thread t has elements t * n and following of the matrix, A and
# accumulators counted by rows, B by columns.


@operation("wmma")
def wmma(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """wmma.load, wmma.store, wmma.mma."""
    what = m.choice("load", "store", "mma")
    matrix = m.choice("a", "b", "c", "d") if what != "mma" else ""
    if not m.flag("sync") or not m.flag("aligned"):
        raise Unsupported("only .sync.aligned")
    layouts = [m.choice(*LAYOUTS) for _ in range(2 if what == "mma" else 1)]
    word = m.choice(*_EVERY_SHAPE)
    if not word or not all(layouts):
        raise Unsupported("this shape or layout")
    shape = parse_shape(word)
    if what == "mma":
        saturate = m.flag("satfinite")
        m.flag("rn")  # of f64: what the products are rounded to anyway
        kinds = _kinds(m, 4)
        if len(kinds) == 2:  # f16: only the types of D and C are written
            kinds = [kinds[0], "f16", "f16", kinds[1]]
        check_count(i, 4)
        if len(kinds) != 4 or word not in WMMA_SHAPES.get(kinds[1], ()):
            raise Unsupported("these types with this shape")
        _multiply(f, i, shape, (kinds[1], kinds[2]), kinds[3], kinds[0], wmma=True, saturate=saturate)
        return
    space = m.choice("global", "shared", "shared::cta").partition("::")[0]
    kind = m.type() if "tf32" not in i.parts else m.choice("tf32")
    if (what == "load") != (matrix in ("a", "b", "c")) or (what == "store") != (matrix == "d"):
        raise Unsupported("this matrix")
    if matrix in ("c", "d"):
        if kind not in ("f16", "f32", "f64", "s32"):
            raise Unsupported("this type of accumulators")
    elif word not in WMMA_SHAPES.get(kind, ()):
        raise Unsupported("this type with this shape")
    _move_fragment(f, i, matrix, shape, layouts[0], kind, space)


def _move_fragment(f: FunctionLowering, i: Instruction, matrix: str, shape: Shape, layout: str, kind: str, space: str) -> None:
    check_count(i, 2, 3)
    store = matrix == "d"
    fragment, memory = (i.operands[1], i.operands[0]) if store else (i.operands[0], i.operands[1])
    if not isinstance(memory, Memory):
        raise Unsupported("expected an address in brackets")
    rows, columns = {"a": (shape.m, shape.k), "b": (shape.k, shape.n)}.get(matrix, (shape.m, shape.n))
    inner = rows if matrix == "b" else columns  # elements are counted along this
    size = {"s32": 4, "f32": 4}.get(kind) or ELEMENT_BITS[kind] // 8
    each = rows * columns // 32
    meet(f, i.line)  # what the warp stored before is there
    base = f.memory_address(memory)
    leading = f.value(i.operands[2], "u32") if len(i.operands) == 3 else str(columns if layout == "row" else rows)
    values = _elements_of(f, fragment, kind, each) if store else []
    for n in range(each):
        index = f.bin("add", "i32", f.bin("mul", "i32", f.lane(), each), n)
        along, across = f.bin("urem", "i32", index, inner), f.bin("udiv", "i32", index, inner)
        row, column = (along, across) if matrix == "b" else (across, along)
        slow, quick = (row, column) if layout == "row" else (column, row)
        distance = f.bin(
            "add",
            "i64",
            f.bin("mul", "i64", *(f.cast("zext", "i32", x, "i64") for x in (slow, leading))),
            f.cast("zext", "i32", quick, "i64"),
        )
        address = f.bin("add", "i64", base, f.bin("mul", "i64", distance, size))
        pointer = checked_address(f, i, space, address, size, writes=store)
        word = "double" if size == 8 else f"i{8 * size}"
        if store:
            f.emit(f"store {word} {values[n]}, ptr {pointer}, align {size}")
        else:
            values.append(f.op(f"load {word}, ptr {pointer}, align {size}"))
    if not store:
        _write_fragment(f, fragment, matrix, kind, values)
    meet(f, i.line)  # nobody changes what others still read, nobody reads what others still store


def _elements_of(f: FunctionLowering, fragment: Operand, kind: str, count: int) -> list[str]:
    if kind != "f16":
        return _values(f, fragment, count, "f64" if kind == "f64" else "b32")
    packed = _values(f, fragment, count // 2, "b32")
    return [f.cast("trunc", "i32", f.bin("lshr", "i32", word, 16 * n), "i16") for word in packed for n in range(2)]


def _write_fragment(f: FunctionLowering, fragment: Operand, matrix: str, kind: str, values: list[str]) -> None:
    """Elements of memory packed into registers."""
    size = {"s32": 32, "f32": 32}.get(kind) or ELEMENT_BITS[kind]
    if size >= 32:
        words = values
    else:
        together = 32 // size
        words = []
        for n in range(0, len(values), together):
            word = "0"
            for place, value in enumerate(values[n : n + together]):
                word = f.bin("or", "i32", word, f.bin("shl", "i32", f.cast("zext", f"i{size}", value, "i32"), size * place))
            words.append(word)
    targets = _registers(fragment)
    if matrix in ("a", "b") and kind == "f16":
        words = words * (8 // len(words))
    if len(targets) != len(words):
        raise Unsupported(f"{len(targets)} registers where the fragment has {len(words)}")
    for target, word in zip(targets, words, strict=True):
        f.write(target, "f64" if kind == "f64" else "b32", word)


# --- ldmatrix, stmatrix, movmatrix --------------------------------------------------------------------------------------------


def _lane_word(f: FunctionLowering, lane: str) -> str:
    """What `lane` published, as i64."""
    place = f.op(f"getelementptr i8, ptr {f.warp()}, i32 {f.bin('shl', 'i32', lane, 3)}")
    return f.op(f"load i64, ptr {place}, align 8")


def _matrix_form(i: Instruction, m: Modifiers) -> tuple[int, bool, str]:
    """(matrices, transposed, space) of ldmatrix and stmatrix."""
    if not m.flag("sync") or not m.flag("aligned") or not m.flag("m8n8"):
        raise Unsupported("only .sync.aligned.m8n8")
    count = {"x1": 1, "x2": 2, "x4": 4}.get(m.choice("x1", "x2", "x4"))
    transposed = m.flag("trans")
    space = m.choice("shared", "shared::cta").partition("::")[0]
    if not count or not m.flag("b16"):
        raise Unsupported("only .x1, .x2 and .x4 of .b16")
    check_count(i, 2)
    return count, transposed, space


@operation("ldmatrix")
def load_matrix(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """8x8 matrices of 16-bit elements: thread 8 * j + r has the address of row r of matrix j, thread t gets elements 2 * (t % 4) and
    following of row t / 4; with .trans of column t / 4."""
    count, transposed, space = _matrix_form(i, m)
    targets = _registers(i.operands[0])
    if len(targets) != count or not isinstance(i.operands[1], Memory):
        raise Unsupported("the operands")
    meet(f, i.line, f.memory_address(i.operands[1]))
    words = []
    for j in range(count):
        quarter, rest = f.bin("lshr", "i32", f.lane(), 2), f.bin("and", "i32", f.lane(), 3)
        if transposed:
            halves = []
            for n in range(2):
                row = f.bin("add", "i32", f.bin("shl", "i32", rest, 1), 8 * j + n)
                offset = f.cast("zext", "i32", f.bin("shl", "i32", quarter, 1), "i64")
                pointer = _row_pointer(f, i, space, row, offset, 2)
                halves.append(f.cast("zext", "i16", f.op(f"load i16, ptr {pointer}, align 2"), "i32"))
            words.append(f.bin("or", "i32", halves[0], f.bin("shl", "i32", halves[1], 16)))
        else:
            offset = f.cast("zext", "i32", f.bin("shl", "i32", rest, 2), "i64")
            pointer = _row_pointer(f, i, space, f.bin("add", "i32", quarter, 8 * j), offset, 4)
            words.append(f.op(f"load i32, ptr {pointer}, align 4"))
    for target, word in zip(targets, words, strict=True):
        f.write(target, "b32", word)
    meet(f, i.line)


def _row_pointer(f: FunctionLowering, i: Instruction, space: str, lane: str, offset: str, size: int, *, writes: bool = False) -> str:
    """A checked pointer into the row whose address `lane` published; rows begin at multiples of 16 bytes."""
    start = _lane_word(f, lane)
    bad, good = f.fresh("bad"), f.fresh("good")
    f.emit(f"br i1 {f.bin('icmp eq', 'i64', f.bin('and', 'i64', start, 15), 0)}, label %{good}, label %{bad}, !prof !0")
    f.label(bad)
    f.fault(c.FAULT_MISALIGNED, start, i.line)
    f.label(good)
    return checked_address(f, i, space, f.bin("add", "i64", start, offset), size, writes=writes)


@operation("stmatrix")
def store_matrix(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """The other way round."""
    count, transposed, space = _matrix_form(i, m)
    sources = _registers(i.operands[1])
    if len(sources) != count or not isinstance(i.operands[0], Memory):
        raise Unsupported("the operands")
    meet(f, i.line, f.memory_address(i.operands[0]))
    for j, source in enumerate(sources):
        word = f.value(source, "b32")
        quarter, rest = f.bin("lshr", "i32", f.lane(), 2), f.bin("and", "i32", f.lane(), 3)
        if transposed:
            for n in range(2):
                row = f.bin("add", "i32", f.bin("shl", "i32", rest, 1), 8 * j + n)
                offset = f.cast("zext", "i32", f.bin("shl", "i32", quarter, 1), "i64")
                pointer = _row_pointer(f, i, space, row, offset, 2, writes=True)
                f.emit(f"store i16 {f.cast('trunc', 'i32', f.bin('lshr', 'i32', word, 16 * n), 'i16')}, ptr {pointer}, align 2")
        else:
            offset = f.cast("zext", "i32", f.bin("shl", "i32", rest, 2), "i64")
            pointer = _row_pointer(f, i, space, f.bin("add", "i32", quarter, 8 * j), offset, 4, writes=True)
            f.emit(f"store i32 {word}, ptr {pointer}, align 4")
    meet(f, i.line)


@operation("movmatrix")
def move_matrix(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """movmatrix.sync.aligned.m8n8.trans.b16 d, a: an 8x8 matrix in registers, transposed."""
    if not all(m.flag(word) for word in ("sync", "aligned", "m8n8", "trans", "b16")):
        raise Unsupported("only .sync.aligned.m8n8.trans.b16")
    check_count(i, 2)
    if not isinstance(i.operands[1], Register):
        raise Unsupported("the operands")
    meet(f, i.line, f.cast("zext", "i32", f.value(i.operands[1], "b32"), "i64"))
    quarter, rest = f.bin("lshr", "i32", f.lane(), 2), f.bin("and", "i32", f.lane(), 3)
    halves = []
    for n in range(2):
        row = f.bin("add", "i32", f.bin("shl", "i32", rest, 1), n)
        holder = f.bin("add", "i32", f.bin("shl", "i32", row, 2), f.bin("lshr", "i32", quarter, 1))
        word = f.cast("trunc", "i64", _lane_word(f, holder), "i32")
        shift = f.bin("shl", "i32", f.bin("and", "i32", quarter, 1), 4)
        halves.append(f.bin("and", "i32", f.bin("lshr", "i32", word, shift), 0xFFFF))
    f.write(i.operands[0], "b32", f.bin("or", "i32", halves[0], f.bin("shl", "i32", halves[1], 16)))
