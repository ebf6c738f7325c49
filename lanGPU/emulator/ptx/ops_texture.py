"""Texture reads, surface reads and writes, and questions about both, through object handles (bindless, "unified" mode).

Source: PTX ISA, "Texture Instructions" and "Surface Instructions". Texture references (.texref) and separate samplers do not exist here.
"""

from functools import cache
from typing import Final

from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx import textures as t
from lanGPU.emulator.ptx.lowering import FunctionLowering, Modifiers, Unsupported, check_count, llvm_type, operation, require
from lanGPU.emulator.ptx.sampler import functions
from lanGPU.emulator.ptx.syntax import TYPE_BITS, Instruction, Memory, Operand, Sink, Vector

_GEOMETRIES: Final = {
    "1d": (1, False, False),
    "2d": (2, False, False),
    "3d": (3, False, False),
    "a1d": (1, True, False),
    "a2d": (2, True, False),
    "cube": (3, False, True),
    "acube": (3, True, True),
}
"""(coordinates, a layer before them, a direction rather than a place)"""


@cache
def _text() -> str:
    return functions()


def _object(f: FunctionLowering, i: Instruction, operand: Operand, kind: int) -> tuple[str, Operand | None]:
    """(descriptor, coordinates) of ``[object, coordinates]``; a bad handle ends the kernel with a fault."""
    if not isinstance(operand, Memory):
        raise Unsupported("expected an object in brackets")
    f.unit.external("exp2f", "float", ["float"])
    f.unit.external("log2f", "float", ["float"])
    f.unit.externals["ptx.textures"] = _text()
    handle = f.memory_address(Memory(operand.base, operand.offset))
    descriptor = f.call("ptr", "ptx.object", "ptr %ctx", f"i64 {handle}", f"i32 {kind}")
    _require(f, f.bin("icmp ne", "ptr", descriptor, "null"), c.FAULT_BAD_OBJECT, handle, i.line)
    return descriptor, operand.coordinates


def _require(f: FunctionLowering, condition: str, kind: int, address: str, line: int) -> None:
    good, bad = f.fresh("good"), f.fresh("bad")
    f.emit(f"br i1 {condition}, label %{good}, label %{bad}, !prof !0")
    f.label(bad)
    f.fault(kind, address, line)
    f.label(good)


def _texture(f: FunctionLowering, i: Instruction, operand: Operand) -> tuple[str, Operand | None]:
    """As `_object`; memory behind it that was freed is an illegal address."""
    descriptor, coordinates = _object(f, i, operand, t.TEXTURE)
    check, done, bad = f.fresh("check"), f.fresh("there"), f.fresh("freed")
    memory = f.load_field(t.MEMORY, "i32", descriptor)
    f.emit(f"br i1 {f.bin('icmp eq', 'i32', memory, 0)}, label %{done}, label %{check}")
    f.label(check)
    base, size = f.load_field(t.LEVEL_TABLE + t.BASE, "i64", descriptor), f.load_field(t.EXTENT_BYTES, "i64", descriptor)
    site = c.SITES + c.SITE_BYTES * f.unit.new_site(f)
    fine = f.call("i1", "ptx.find", "ptr %ctx", f"i64 {base}", f"i64 {size}", f"i64 {site}", "i32 0")
    f.emit(f"br i1 {fine}, label %{done}, label %{bad}, !prof !0")
    f.label(bad)
    f.fault(c.FAULT_ILLEGAL_ADDRESS, base, i.line)
    f.label(done)
    return descriptor, coordinates


def _items(operand: Operand | None, least: int) -> list[Operand]:
    items: list[Operand] = list(operand.items) if isinstance(operand, Vector) else [] if operand is None else [operand]
    if len(items) < least:
        raise Unsupported("too few coordinates")
    return items


def _geometry(m: Modifiers) -> tuple[int, bool, bool]:
    name = m.choice(*_GEOMETRIES)
    if not name:
        raise Unsupported("this geometry")
    return _GEOMETRIES[name]


def _place(f: FunctionLowering, coordinates: Operand | None, shape: tuple[int, bool, bool], kind: str) -> tuple[str, list[str]]:
    """(layer, three coordinates); a cube's direction has become its face and a place on it."""
    dims, layered, cube = shape
    items = _items(coordinates, dims + layered)
    layer = f.value(items.pop(0), "u32") if layered else "0"
    zero = "0.0" if kind == "f32" else "0"
    values = [f.value(item, kind) for item in items[:dims]] + [zero] * (3 - dims)
    if cube:
        require(kind, "f32")
        out = f.scratch("[4 x i32]")
        f.emit(f"call void @ptx.tex.face(float {values[0]}, float {values[1]}, float {values[2]}, ptr {out})")
        layer = f.bin("add", "i32", f.bin("mul", "i32", layer, 6), f.load_field(0, "i32", out))
        values = [f.load_field(4, "float", out), f.load_field(8, "float", out), "0.0"]
    return layer, values


def _gradient_level(f: FunctionLowering, descriptor: str, dims: int, steps: tuple[list[str], list[str]]) -> str:
    """log2 of the longer of both gradients in texels of the largest level. Source: OpenGL 4.6, 8.14.1 (isotropic)."""
    sizes = [f.load_field(t.LEVEL_TABLE + t.SIZES + 4 * axis, "i32", descriptor) for axis in range(dims)]
    normalized = f.bin("icmp ne", "i32", f.load_field(t.NORMALIZED, "i32", descriptor), 0)
    lengths = []
    for step in steps:
        total = "0.0"
        for value, size in zip(step, sizes, strict=True):
            scale = f.select(normalized, "float", f.cast("sitofp", "i32", size, "float"), "1.0")
            texels = f.bin("fmul", "float", value, scale)
            total = f.bin("fadd", "float", total, f.bin("fmul", "float", texels, texels))
        lengths.append(total)
    longest = f.call("float", "llvm.maxnum.f32", f"float {lengths[0]}", f"float {lengths[1]}")
    return f.bin("fmul", "float", f.call("float", "log2f", f"float {longest}"), "0.5")


@operation("tex")
def texture(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    mode = m.choice("level", "grad", "base")
    shape = _geometry(m)
    if not m.flag("v4"):
        raise Unsupported("only .v4")
    kind = m.type()
    require(kind, "u32", "s32", "f32")
    coordinate = m.type()
    require(coordinate, "s32", "f32")
    extra = {"level": 1, "grad": 2}.get(mode, 0)
    check_count(i, 2 + extra)  # offsets and depth comparisons would follow
    targets = _items(i.operands[0], 4)
    descriptor, where = _texture(f, i, i.operands[1])
    dims, _, cube = shape
    layer, values = _place(f, where, shape, coordinate)
    out = f.scratch("[4 x i32]")
    taken = 2 if cube else dims
    if coordinate == "s32":
        if mode == "grad":
            raise Unsupported("gradients with integer coordinates")
        level = f.value(i.operands[2], "s32") if mode == "level" else "0"
        places = ", ".join(f"i32 {v}" for v in values)
        f.emit(f"call void @ptx.tex.fetch(ptr {descriptor}, i32 {taken}, i32 {layer}, {places}, i32 {level}, ptr {out})")
    else:
        lod = "0.0"
        if mode == "level":
            lod = f.value(i.operands[2], "f32")
        elif mode == "grad":
            if cube:
                raise Unsupported("gradients of cubemaps")
            steps = [[f.value(item, "f32") for item in _items(operand, dims)[:dims]] for operand in i.operands[2:4]]
            lod = _gradient_level(f, descriptor, dims, (steps[0], steps[1]))
        places = ", ".join(f"float {v}" for v in values)
        arguments = f"i32 {taken}, i32 {layer}, {places}, i32 {int(cube)}, float {lod}"
        f.emit(f"call void @ptx.tex.sample(ptr {descriptor}, {arguments}, ptr {out})")
    _store(f, targets, kind, out)


def _store(f: FunctionLowering, targets: list[Operand], kind: str, out: str) -> None:
    for n, target in enumerate(targets):
        if not isinstance(target, Sink):
            f.write(target, kind, f.load_field(4 * n, llvm_type(kind), out))


@operation("tld4")
def gather(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    channel = "rgba".find(m.choice("r", "g", "b", "a") or "x")
    if channel < 0:
        raise Unsupported("no channel")
    shape = _geometry(m)
    if shape[0] == 1 or (shape[0] == 3 and not shape[2]) or not m.flag("v4"):
        raise Unsupported("this shape")
    kind = m.type()
    require(kind, "u32", "s32", "f32")
    require(m.type(), "f32")
    check_count(i, 2)
    targets = _items(i.operands[0], 4)
    descriptor, where = _texture(f, i, i.operands[1])
    layer, values = _place(f, where, shape, "f32")
    out = f.scratch("[4 x i32]")
    arguments = f"i32 {channel}, i32 {layer}, float {values[0]}, float {values[1]}, i32 {int(shape[2])}"
    f.emit(f"call void @ptx.tex.gather(ptr {descriptor}, {arguments}, ptr {out})")
    _store(f, targets, kind, out)


# --- surfaces ---------------------------------------------------------------------------------------------------------------
def _surface(f: FunctionLowering, i: Instruction, operand: Operand, shape: tuple[int, bool, bool], size: int, policy: str) -> str:
    """Address (i64) of `size` bytes of a surface; 0 where .zero stands for them."""
    if shape[2]:
        raise Unsupported("this geometry")
    descriptor, where = _object(f, i, operand, t.SURFACE)
    layer, (x, y, z) = _place(f, where, shape, "s32")
    if size > 1:
        low = f.bin("and", "i32", x, size - 1)
        _require(f, f.bin("icmp eq", "i32", low, 0), c.FAULT_MISALIGNED, f.cast("sext", "i32", x, "i64"), i.line)
    arguments = (f"ptr {descriptor}", f"i32 {shape[0]}", f"i32 {layer}", f"i32 {x}", f"i32 {y}", f"i32 {z}")
    address = f.call("i64", "ptx.surf", *arguments, f"i32 {size}", f"i32 {int(policy == 'clamp')}")
    if policy != "zero":
        _require(f, f.bin("icmp ne", "i64", address, 0), c.FAULT_SURFACE_RANGE, f.cast("sext", "i32", x, "i64"), i.line)
    return address


def _access(f: FunctionLowering, m: Modifiers) -> tuple[tuple[int, bool, bool], int, str, str]:
    """(shape, elements, type, policy) of suld and sust."""
    if not m.flag("b"):
        raise Unsupported("only .b")
    shape = _geometry(m)
    m.choice("ca", "cg", "cs", "cv", "wb", "wt")
    count = int((m.choice("v2", "v4") or "v1")[1:])
    kind = m.type()
    require(kind, "b8", "b16", "b32", "b64")
    policy = m.choice("trap", "clamp", "zero") or "trap"
    return shape, count, kind, policy


@operation("suld")
def load_surface(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    shape, count, kind, policy = _access(f, m)
    check_count(i, 2)
    targets = _items(i.operands[0], count)
    size = TYPE_BITS[kind] // 8
    address = _surface(f, i, i.operands[1], shape, size * count, policy)
    out = f.scratch("[4 x i64]")
    f.emit(f"store [4 x i64] zeroinitializer, ptr {out}, align 8")
    pointer = f.cast("inttoptr", "i64", address, "ptr")
    source = f.select(f.bin("icmp eq", "i64", address, 0), "ptr", out, pointer)
    word = llvm_type(kind)
    for n, target in enumerate(targets):
        value = f.op(f"load {word}, ptr {f.field(n * size, source)}, align {size}")
        if not isinstance(target, Sink):
            f.write(target, kind, value)


@operation("sust")
def store_surface(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    shape, count, kind, policy = _access(f, m)
    check_count(i, 2)
    size = TYPE_BITS[kind] // 8
    values = [f.value(item, kind) for item in _items(i.operands[1], count)]
    address = _surface(f, i, i.operands[0], shape, size * count, policy)
    waste = f.scratch("[4 x i64]")
    pointer = f.cast("inttoptr", "i64", address, "ptr")
    target = f.select(f.bin("icmp eq", "i64", address, 0), "ptr", waste, pointer)
    for n, value in enumerate(values):
        f.emit(f"store {llvm_type(kind)} {value}, ptr {f.field(n * size, target)}, align {size}")


@operation("sured")
def reduce_surface(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    if not m.flag("b"):
        raise Unsupported("only .b")
    word = m.choice("add", "min", "max", "and", "or")
    shape = _geometry(m)
    kind = m.type()
    policy = m.choice("trap", "clamp", "zero") or "trap"
    check_count(i, 2)
    allowed = {"add": ("u32", "s32", "u64"), "min": ("u32", "s32"), "max": ("u32", "s32"), "and": ("b32",), "or": ("b32",)}
    require(kind, *allowed.get(word, ()))
    size = TYPE_BITS[kind] // 8
    (value,) = (f.value(item, kind) for item in _items(i.operands[1], 1)[:1])
    address = _surface(f, i, i.operands[0], shape, size, policy)
    waste = f.scratch("[4 x i64]")
    target = f.select(f.bin("icmp eq", "i64", address, 0), "ptr", waste, f.cast("inttoptr", "i64", address, "ptr"))
    name = "u" + word if word in ("min", "max") and kind[0] == "u" else word
    f.op(f"atomicrmw {name} ptr {target}, i{8 * size} {value} seq_cst, align {size}")


# --- questions -------------------------------------------------------------------------------------------------------------
@operation("txq", "suq")
def query(f: FunctionLowering, i: Instruction, m: Modifiers) -> None:
    """Sizes are those of the largest level. Formats and orders have no documented numbers."""
    kind = t.TEXTURE if i.parts[0] == "txq" else t.SURFACE
    fields = {"width": t.LEVEL_TABLE + t.SIZES, "height": t.LEVEL_TABLE + t.SIZES + 4, "depth": t.LEVEL_TABLE + t.SIZES + 8}
    fields["array_size"] = t.LAYERS
    if kind == t.TEXTURE:
        fields |= {"num_mipmap_levels": t.LEVELS, "normalized_coords": t.NORMALIZED}
    name = m.choice(*fields)
    if not name:
        raise Unsupported("this question")
    require(m.type(), "b32")
    check_count(i, 2)
    descriptor, _ = _object(f, i, i.operands[1], kind)
    value = f.load_field(fields[name], "i32", descriptor)
    if name == "depth":
        # The slices of a layered array are no depth.
        value = f.select(f.bin("icmp ne", "i32", f.load_field(t.LAYERS, "i32", descriptor), 0), "i32", "1", value)
    elif name == "normalized_coords":
        value = f.select(f.bin("icmp ne", "i32", value, 0), "i32", "-1", "0")
    f.write(i.operands[0], "b32", value)
