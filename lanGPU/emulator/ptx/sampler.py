"""IR functions that read textures and address surfaces, over the descriptors of `textures`. A kernel gets them if it uses one.

Filtering is that of the CUDA Programming Guide, "Texture Fetching": a coordinate x picks texel floor(x); with linear filtering
floor(x - 0.5) and the next one, weighted by the fraction in fixed point with 8 fractional bits (rounded to nearest here: the guide
does not say how). Source also of address modes and cube faces. Channels that a texture lacks read as 0.
"""

import struct
from collections.abc import Callable

from lanGPU.emulator.ptx import context as c
from lanGPU.emulator.ptx import textures as t
from lanGPU.emulator.ptx.helpers import Helpers
from lanGPU.emulator.ptx.syntax import Operand


class _Function(Helpers):
    """Builds one function's text."""

    def __init__(self, head: str) -> None:
        self._lines = [f"define internal {head} noinline {{", "entry:"]
        self._counter = 0

    def fresh(self, stem: str = "t") -> str:
        self._counter += 1
        return f"{stem}{self._counter}"

    def op(self, text: str) -> str:
        name = "%" + self.fresh()
        self._lines.append(f"  {name} = {text}")
        return name

    def emit(self, line: str) -> None:
        self._lines.append("  " + line)

    def value(self, operand: Operand, kind: str, *, extend: bool = False) -> str:
        raise NotImplementedError

    def label(self, name: str) -> None:
        self._lines.append(f"{name}:")

    def branch(self, condition: str, then: Callable[[], None], otherwise: Callable[[], None] | None = None) -> None:
        """Runs `then` if the condition holds; both may return from the function by `done`."""
        yes, no, end = self.fresh("yes"), self.fresh("no"), self.fresh("end")
        self.emit(f"br i1 {condition}, label %{yes}, label %{no}")
        for name, body in ((yes, then), (no, otherwise)):
            self.label(name)
            if body is not None:
                body()
            self.emit(f"br label %{end}")
        self.label(end)

    def at(self, base: str, offset: int | str) -> str:
        return self.op(f"getelementptr i8, ptr {base}, i64 {offset}")

    def field(self, base: str, offset: int, kind: str = "i32") -> str:
        """A field of a descriptor or level."""
        return self.op(f"load {kind}, ptr {self.at(base, offset)}, align 4")

    def variable(self, kind: str, first: str) -> str:
        name = self.op(f"alloca {kind}")
        self.emit(f"store {kind} {first}, ptr {name}")
        return name

    def get(self, kind: str, place: str) -> str:
        return self.op(f"load {kind}, ptr {place}, align 4")

    def put(self, kind: str, value: str, place: str) -> None:
        self.emit(f"store {kind} {value}, ptr {place}, align 4")

    def floor(self, value: str) -> str:
        return self.call("float", "llvm.floor.f32", f"float {value}")

    def integer(self, value: str) -> str:
        """A whole float as i32; out of range the nearest, NaN 0."""
        return self.call("i32", "llvm.fptosi.sat.i32.f32", f"float {value}")

    def clamp(self, value: str, low: str, high: str, kind: str = "i32") -> str:
        lowest = self.call(kind, f"llvm.smax.{kind}", f"{kind} {value}", f"{kind} {low}")
        return self.call(kind, f"llvm.smin.{kind}", f"{kind} {lowest}", f"{kind} {high}")

    def text(self, end: str) -> str:
        self.emit(end)
        return "\n".join([*self._lines, "}"]) + "\n"


def _object() -> str:
    return f"""
define internal ptr @ptx.object(ptr %ctx, i64 %handle, i32 %kind) noinline {{
entry:
  %tp = getelementptr i8, ptr %ctx, i64 {c.TEXTURES}
  %table = load ptr, ptr %tp
  %slot = and i64 %handle, 65535
  %sp = getelementptr ptr, ptr %table, i64 %slot
  %d = load ptr, ptr %sp
  %none = icmp eq ptr %d, null
  br i1 %none, label %bad, label %look
look:
  %have = load i64, ptr %d
  %kp = getelementptr i8, ptr %d, i64 {t.KIND}
  %k = load i32, ptr %kp
  %same = icmp eq i64 %have, %handle
  %fits = icmp eq i32 %k, %kind
  %good = and i1 %same, %fits
  %r = select i1 %good, ptr %d, ptr null
  ret ptr %r
bad:
  ret ptr null
}}
"""


def _index() -> str:
    """The texel that index %i of %n stands for under an address mode; -1 for the border."""
    f = _Function("i32 @ptx.tex.index(i32 %i, i32 %n, i32 %mode)")

    def modulo(n: str) -> str:
        rest = f.bin("srem", "i32", "%i", n)
        return f.select(f.bin("icmp slt", "i32", rest, 0), "i32", f.bin("add", "i32", rest, n), rest)

    wrapped = modulo("%n")
    twice = f.bin("shl", "i32", "%n", 1)
    back = modulo(twice)
    mirrored = f.select(f.bin("icmp slt", "i32", back, "%n"), "i32", back, f.bin("sub", "i32", f.bin("sub", "i32", twice, 1), back))
    clamped = f.clamp("%i", "0", f.bin("sub", "i32", "%n", 1))
    bordered = f.select(f.bin("icmp ult", "i32", "%i", "%n"), "i32", "%i", "-1")
    result = clamped
    for mode, value in ((t.WRAP, wrapped), (t.MIRROR, mirrored), (t.BORDER_MODE, bordered)):
        result = f.select(f.bin("icmp eq", "i32", "%mode", mode), "i32", value, result)
    return f.text(f"ret i32 {result}")


def _texel() -> str:
    """One texel as four i32 of bits: integers, or floats."""
    f = _Function("void @ptx.tex.texel(ptr %d, ptr %level, i32 %x, i32 %y, i32 %z, ptr %out)")
    f.emit("store <4 x i32> zeroinitializer, ptr %out, align 4")
    outside = f.bin("icmp slt", "i32", f.bin("or", "i32", f.bin("or", "i32", "%x", "%y"), "%z"), 0)

    def border() -> None:
        value = f.op(f"load <4 x i32>, ptr {f.at('%d', t.BORDER)}, align 4")
        f.emit(f"store <4 x i32> {value}, ptr %out, align 4")

    def read() -> None:
        element, channels = f.field("%d", t.ELEMENT_BYTES), f.field("%d", t.CHANNELS)
        x, y, z = (f.cast("zext", "i32", v, "i64") for v in ("%x", "%y", "%z"))
        place = f.bin("mul", "i64", z, f.field("%level", t.SLICE, "i64"))
        place = f.bin("add", "i64", place, f.bin("mul", "i64", y, f.field("%level", t.PITCH, "i64")))
        place = f.bin("add", "i64", place, f.bin("mul", "i64", x, f.cast("zext", "i32", element, "i64")))
        address = f.bin("add", "i64", place, f.field("%level", t.BASE, "i64"))
        size = f.bin("udiv", "i32", element, channels)
        mode, srgb = f.field("%d", t.READ), f.field("%d", t.SRGB)
        for n in range(4):
            step = f.cast("zext", "i32", f.bin("mul", "i32", size, n), "i64")
            pointer = f.cast("inttoptr", "i64", f.bin("add", "i64", address, step), "ptr")
            target = f.at("%out", 4 * n)

            def channel(pointer: str = pointer, target: str = target, n: int = n) -> None:
                f.put("i32", f.call("i32", "ptx.tex.channel", f"ptr {pointer}", f"i32 {size}", f"i32 {mode}"), target)
                if n < 3:

                    def decode() -> None:
                        f.put("float", f.call("float", "ptx.tex.srgb", f"float {f.get('float', target)}"), target)

                    f.branch(f.bin("icmp ne", "i32", srgb, 0), decode)

            f.branch(f.bin("icmp slt", "i32", str(n), channels), channel)

    f.branch(outside, border, read)
    return f.text("ret void")


def _channel() -> str:
    """The bits that a channel of %size bytes reads as."""
    f = _Function("i32 @ptx.tex.channel(ptr %p, i32 %size, i32 %mode)")
    raw = f.variable("i32", "0")
    for size, kind in ((1, "i8"), (2, "i16"), (4, "i32")):

        def load(kind: str = kind) -> None:
            value = f.op(f"load {kind}, ptr %p, align 1")
            f.put("i32", value if kind == "i32" else f.cast("zext", kind, value, "i32"), raw)

        f.branch(f.bin("icmp eq", "i32", "%size", size), load)
    value = f.get("i32", raw)
    unused = f.bin("sub", "i32", "32", f.bin("shl", "i32", "%size", 3))
    signed = f.bin("ashr", "i32", f.bin("shl", "i32", value, unused), unused)
    # Divided by the largest value, 2^n - 1 or 2^(n-1) - 1; the smallest signed one is -1, too.
    largest = f.bin("lshr", "i32", "-1", unused)
    unorm = f.bin("fdiv", "float", f.cast("uitofp", "i32", value, "float"), f.cast("uitofp", "i32", largest, "float"))
    half = f.cast("uitofp", "i32", f.bin("lshr", "i32", largest, 1), "float")
    ratio = f.bin("fdiv", "float", f.cast("sitofp", "i32", signed, "float"), half)
    snorm = f.select(f.bin("fcmp olt", "float", ratio, "-1.0"), "float", "-1.0", ratio)
    wide = f.half_to_float("f16", f.cast("trunc", "i32", value, "i16"))
    result = value
    choices = [(t.Read.SIGNED, signed)]
    choices += [
        (mode, f.cast("bitcast", "float", v, "i32")) for mode, v in ((t.Read.UNORM, unorm), (t.Read.SNORM, snorm), (t.Read.HALF, wide))
    ]
    for mode, bits in choices:
        result = f.select(f.bin("icmp eq", "i32", "%mode", int(mode)), "i32", bits, result)
    return f.text(f"ret i32 {result}")


def _srgb() -> str:
    """From sRGB to linear (IEC 61966-2-1)."""
    f = _Function("float @ptx.tex.srgb(float %v)")
    low = f.bin("fdiv", "float", "%v", _constant(12.92))
    base = f.bin("fdiv", "float", f.bin("fadd", "float", "%v", _constant(0.055)), _constant(1.055))
    power = f.bin("fmul", "float", f.call("float", "log2f", f"float {base}"), _constant(2.4))
    high = f.call("float", "exp2f", f"float {power}")
    return f.text(f"ret float {f.select(f.bin('fcmp ole', 'float', '%v', _constant(0.04045)), 'float', low, high)}")


def _constant(value: float) -> str:
    """A float constant as LLVM writes it: the bits of the double of the same value."""
    (rounded,) = struct.unpack("<f", struct.pack("<f", value))
    (bits,) = struct.unpack("<Q", struct.pack("<d", rounded))
    return f"0x{bits:016X}"


def _scaled(f: _Function, axis: int, cube: str) -> tuple[str, str, str]:
    """(coordinate in texels, size, address mode) of one axis."""
    coordinate = f"%{'xyz'[axis]}"
    size = f.field("%level", t.SIZES + 4 * axis)
    mode = f.select(cube, "i32", str(t.CLAMP), f.field("%d", t.ADDRESS_MODES + 4 * axis))
    place = f.variable("float", coordinate)
    normalized = f.bin("or", "i1", cube, f.bin("icmp ne", "i32", f.field("%d", t.NORMALIZED), 0))

    def scale() -> None:
        # Whole periods are taken off first, while the coordinate is exact.
        once = f.bin("fsub", "float", coordinate, f.floor(coordinate))
        half = f.floor(f.bin("fmul", "float", coordinate, "0.5"))
        twice = f.bin("fsub", "float", coordinate, f.bin("fmul", "float", half, "2.0"))
        value = f.select(f.bin("icmp eq", "i32", mode, t.WRAP), "float", once, coordinate)
        value = f.select(f.bin("icmp eq", "i32", mode, t.MIRROR), "float", twice, value)
        f.put("float", f.bin("fmul", "float", value, f.cast("sitofp", "i32", size, "float")), place)

    f.branch(normalized, scale)
    return f.get("float", place), size, mode


def _layer(f: _Function) -> str:
    """The slice of a layered texture, clamped; 0 without layers."""
    last = f.bin("sub", "i32", f.call("i32", "llvm.smax.i32", f"i32 {f.field('%d', t.LAYERS)}", "i32 1"), 1)
    return f.call("i32", "llvm.umin.i32", "i32 %layer", f"i32 {last}")


def _level() -> str:
    """One level sampled at float coordinates."""
    f = _Function("void @ptx.tex.level(ptr %d, ptr %level, i32 %dims, i32 %layer, float %x, float %y, float %z, i32 %cube, ptr %out)")
    cube = f.bin("icmp ne", "i32", "%cube", 0)
    axes = [_scaled(f, axis, cube) for axis in range(3)]
    used = ["true", f.bin("icmp sge", "i32", "%dims", 2), f.bin("icmp sge", "i32", "%dims", 3)]
    layer = _layer(f)
    unused = ["0", "0", layer]

    def nearest() -> None:
        index = []
        for axis, (coordinate, size, mode) in enumerate(axes):
            found = f.call("i32", "ptx.tex.index", f"i32 {f.integer(f.floor(coordinate))}", f"i32 {size}", f"i32 {mode}")
            index.append(f.select(used[axis], "i32", found, unused[axis]))
        f.emit(f"call void @ptx.tex.texel(ptr %d, ptr %level, i32 {index[0]}, i32 {index[1]}, i32 {index[2]}, ptr %out)")

    def linear() -> None:
        pairs, weights = [], []
        for axis, (coordinate, size, mode) in enumerate(axes):
            index, fraction = _footprint(f, coordinate)
            following = f.call("i32", "llvm.sadd.sat.i32", f"i32 {index}", "i32 1")
            found = [f.call("i32", "ptx.tex.index", f"i32 {i}", f"i32 {size}", f"i32 {mode}") for i in (index, following)]
            pairs.append([f.select(used[axis], "i32", i, unused[axis]) for i in found])
            fraction = f.select(used[axis], "float", fraction, "0.0")
            weights.append([f.bin("fsub", "float", "1.0", fraction), fraction])
        f.emit("store <4 x float> zeroinitializer, ptr %out, align 4")
        texel = f.op("alloca <4 x float>")
        for corner in range(8):
            bits = [corner >> axis & 1 for axis in range(3)]
            weight = f.bin("fmul", "float", f.bin("fmul", "float", weights[0][bits[0]], weights[1][bits[1]]), weights[2][bits[2]])
            x, y, z = (pairs[axis][bits[axis]] for axis in range(3))

            def add(weight: str = weight, x: str = x, y: str = y, z: str = z) -> None:
                f.emit(f"call void @ptx.tex.texel(ptr %d, ptr %level, i32 {x}, i32 {y}, i32 {z}, ptr {texel})")
                _add_scaled(f, texel, weight, "%out")

            f.branch(f.bin("fcmp one", "float", weight, "0.0"), add)

    f.branch(f.bin("icmp ne", "i32", f.field("%d", t.LINEAR), 0), linear, nearest)
    return f.text("ret void")


def _footprint(f: _Function, coordinate: str) -> tuple[str, str]:
    """(first texel, weight of the second) of linear filtering."""
    moved = f.bin("fsub", "float", coordinate, "0.5")
    whole = f.floor(moved)
    steps = f.floor(f.bin("fadd", "float", f.bin("fmul", "float", f.bin("fsub", "float", moved, whole), "256.0"), "0.5"))
    return f.integer(whole), f.bin("fmul", "float", steps, _constant(1 / 256))


def _add_scaled(f: _Function, source: str, weight: str, target: str) -> None:
    for n in range(4):
        place = f.at(target, 4 * n)
        scaled = f.bin("fmul", "float", f.get("float", f.at(source, 4 * n)), weight)
        f.put("float", f.bin("fadd", "float", f.get("float", place), scaled), place)


def _sample() -> str:
    """A texture sampled at a level of detail."""
    head = "void @ptx.tex.sample(ptr %d, i32 %dims, i32 %layer, float %x, float %y, float %z, i32 %cube, float %lod, ptr %out)"
    f = _Function(head)
    first = f.at("%d", t.LEVEL_TABLE)
    levels = f.field("%d", t.LEVELS)

    def at_level(level: str, out: str) -> None:
        place = f.at(first, f.cast("zext", "i32", f.bin("mul", "i32", level, t.LEVEL_BYTES), "i64"))
        arguments = "i32 %dims, i32 %layer, float %x, float %y, float %z, i32 %cube"
        f.emit(f"call void @ptx.tex.level(ptr %d, ptr {place}, {arguments}, ptr {out})")

    def single() -> None:
        at_level("0", "%out")

    def several() -> None:
        last = f.bin("sub", "i32", levels, 1)
        lod = f.bin("fadd", "float", "%lod", f.field("%d", t.BIAS, "float"))
        for word, limit in (
            ("maxnum", f.field("%d", t.MIN_LEVEL, "float")),
            ("minnum", f.field("%d", t.MAX_LEVEL, "float")),
            ("maxnum", "0.0"),
            ("minnum", f.cast("sitofp", "i32", last, "float")),
        ):
            lod = f.call("float", f"llvm.{word}.f32", f"float {lod}", f"float {limit}")
        chosen = f.field("%d", t.MIP_LINEAR)

        def between() -> None:
            whole = f.floor(lod)
            steps = f.floor(f.bin("fadd", "float", f.bin("fmul", "float", f.bin("fsub", "float", lod, whole), "256.0"), "0.5"))
            weight = f.bin("fmul", "float", steps, _constant(1 / 256))
            level = f.integer(whole)
            f.emit("store <4 x float> zeroinitializer, ptr %out, align 4")
            texel = f.op("alloca <4 x float>")
            at_level(level, texel)
            _add_scaled(f, texel, f.bin("fsub", "float", "1.0", weight), "%out")

            def upper() -> None:
                at_level(f.clamp(f.bin("add", "i32", level, 1), "0", last), texel)
                _add_scaled(f, texel, weight, "%out")

            f.branch(f.bin("fcmp one", "float", weight, "0.0"), upper)

        def nearest() -> None:
            at_level(f.clamp(f.integer(f.floor(f.bin("fadd", "float", lod, "0.5"))), "0", last), "%out")

        # Integers cannot be mixed.
        mixes = f.bin("icmp sge", "i32", f.field("%d", t.READ), int(t.Read.UNORM))
        f.branch(f.bin("and", "i1", mixes, f.bin("icmp ne", "i32", chosen, 0)), between, nearest)

    f.branch(f.bin("icmp sle", "i32", levels, 1), single, several)
    return f.text("ret void")


def _fetch() -> str:
    """One texel by integer coordinates, of a level by number."""
    f = _Function("void @ptx.tex.fetch(ptr %d, i32 %dims, i32 %layer, i32 %x, i32 %y, i32 %z, i32 %lod, ptr %out)")
    last = f.bin("sub", "i32", f.field("%d", t.LEVELS), 1)
    number = f.clamp("%lod", "0", last)
    level = f.at("%d", f.cast("zext", "i32", f.bin("add", "i32", f.bin("mul", "i32", number, t.LEVEL_BYTES), t.LEVEL_TABLE), "i64"))
    used = ["true", f.bin("icmp sge", "i32", "%dims", 2), f.bin("icmp sge", "i32", "%dims", 3)]
    unused = ["0", "0", _layer(f)]
    index = []
    for axis in range(3):
        size, mode = f.field(level, t.SIZES + 4 * axis), f.field("%d", t.ADDRESS_MODES + 4 * axis)
        found = f.call("i32", "ptx.tex.index", f"i32 %{'xyz'[axis]}", f"i32 {size}", f"i32 {mode}")
        index.append(f.select(used[axis], "i32", found, unused[axis]))
    f.emit(f"call void @ptx.tex.texel(ptr %d, ptr {level}, i32 {index[0]}, i32 {index[1]}, i32 {index[2]}, ptr %out)")
    return f.text("ret void")


def _gather() -> str:
    """One channel of the four texels that linear filtering would mix: (0, 1), (1, 1), (1, 0), (0, 0) in (x, y)."""
    f = _Function("void @ptx.tex.gather(ptr %d, i32 %channel, i32 %layer, float %x, float %y, i32 %cube, ptr %out)")
    f.emit(f"%level = getelementptr i8, ptr %d, i64 {t.LEVEL_TABLE}")
    cube = f.bin("icmp ne", "i32", "%cube", 0)
    found = []
    for axis in range(2):
        coordinate, size, mode = _scaled(f, axis, cube)
        first, _ = _footprint(f, coordinate)
        following = f.call("i32", "llvm.sadd.sat.i32", f"i32 {first}", "i32 1")
        found.append([f.call("i32", "ptx.tex.index", f"i32 {i}", f"i32 {size}", f"i32 {mode}") for i in (first, following)])
    layer = _layer(f)
    texel = f.op("alloca <4 x i32>")
    offset = f.cast("zext", "i32", f.bin("shl", "i32", "%channel", 2), "i64")
    for n, (x, y) in enumerate(((0, 1), (1, 1), (1, 0), (0, 0))):
        f.emit(f"call void @ptx.tex.texel(ptr %d, ptr %level, i32 {found[0][x]}, i32 {found[1][y]}, i32 {layer}, ptr {texel})")
        f.put("i32", f.get("i32", f.at(texel, offset)), f.at("%out", 4 * n))
    return f.text("ret void")


def _cube() -> str:
    """Face, s and t of a direction, to %out: i32, two floats in [0, 1]. Source: CUDA Programming Guide, "Cubemap Textures"."""
    f = _Function("void @ptx.tex.face(float %x, float %y, float %z, ptr %out)")
    ax, ay, az = (f.call("float", "llvm.fabs.f32", f"float {v}") for v in ("%x", "%y", "%z"))
    by_x = f.bin("and", "i1", f.bin("fcmp oge", "float", ax, ay), f.bin("fcmp oge", "float", ax, az))
    by_y = f.bin("fcmp oge", "float", ay, az)
    minus = {name: f.op(f"fneg float %{name}") for name in "xyz"}
    # (face, s, t, m) for the positive and the negative side of each axis
    sides = {
        "x": (("0", minus["z"], minus["y"]), ("1", "%z", minus["y"]), ax),
        "y": (("2", "%x", "%z"), ("3", "%x", minus["z"]), ay),
        "z": (("4", "%x", minus["y"]), ("5", minus["x"], minus["y"]), az),
    }
    picked = {}
    for name, (positive, negative, major) in sides.items():
        down = f.bin("fcmp olt", "float", f"%{name}", "0.0")
        parts = [f.select(down, kind, n, p) for kind, n, p in zip(("i32", "float", "float"), negative, positive, strict=True)]
        picked[name] = [*parts, major]
    result = []
    for n, kind in enumerate(("i32", "float", "float", "float")):
        other = f.select(by_y, kind, picked["y"][n], picked["z"][n])
        result.append(f.select(by_x, kind, picked["x"][n], other))
    face, s, u, major = result
    f.put("i32", face, "%out")
    for n, value in enumerate((s, u), 1):
        half = f.bin("fmul", "float", f.bin("fadd", "float", f.bin("fdiv", "float", value, major), "1.0"), "0.5")
        f.put("float", half, f.at("%out", 4 * n))
    return f.text("ret void")


def _surface() -> str:
    """Address of %size bytes of a surface, %x in bytes; 0 out of range, unless %clamp."""
    f = _Function("i64 @ptx.surf(ptr %d, i32 %dims, i32 %layer, i32 %x, i32 %y, i32 %z, i32 %size, i32 %clamp)")
    level = f.at("%d", t.LEVEL_TABLE)
    width, height, depth = (f.field(level, t.SIZES + 4 * axis) for axis in range(3))
    row = f.bin("mul", "i32", width, f.field("%d", t.ELEMENT_BYTES))
    flat, deep = f.bin("icmp slt", "i32", "%dims", 2), f.bin("icmp sge", "i32", "%dims", 3)
    y = f.select(flat, "i32", "0", "%y")
    z = f.select(deep, "i32", "%z", "%layer")
    last = [f.bin("sub", "i32", row, "%size"), f.bin("sub", "i32", height, 1), f.bin("sub", "i32", depth, 1)]
    clamps = f.bin("icmp ne", "i32", "%clamp", 0)
    inside = "true"
    index = []
    for value, limit in zip(("%x", y, z), last, strict=True):
        fits = f.bin("and", "i1", f.bin("icmp sge", "i32", value, 0), f.bin("icmp sle", "i32", value, limit))
        inside = f.bin("and", "i1", inside, fits)
        near = f.select(clamps, "i32", f.clamp(value, "0", limit), value)
        index.append(f.cast("zext", "i32", near, "i64"))
    roomy = f.bin("icmp sge", "i32", last[0], 0)
    good = f.bin("and", "i1", roomy, f.bin("or", "i1", clamps, inside))
    place = f.bin("add", "i64", f.field(level, t.BASE, "i64"), index[0])
    place = f.bin("add", "i64", place, f.bin("mul", "i64", index[1], f.field(level, t.PITCH, "i64")))
    place = f.bin("add", "i64", place, f.bin("mul", "i64", index[2], f.field(level, t.SLICE, "i64")))
    return f.text(f"ret i64 {f.select(good, 'i64', place, '0')}")


def functions() -> str:
    """All of them, as one text."""
    parts = (_object, _index, _srgb, _channel, _texel, _level, _sample, _fetch, _gather, _cube, _surface)
    return "".join(part() for part in parts)
