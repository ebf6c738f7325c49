"""mma.sync, wmma, ldmatrix, stmatrix and movmatrix against NumPy: PTX ISA, "Warp Level Matrix Multiply-Accumulate Instructions".

Where the parts of a matrix are is written here a second time, as the ISA's figures have it: by rows of four threads.
"""

import re

import numpy as np
import pytest

from lanGPU.errors import EmulatorUnsupportedError
from tests.helpers.ptx import launch, run

LANES = 32
STORED = {
    "f16": np.uint16,
    "bf16": np.uint16,
    "tf32": np.uint32,
    "f32": np.uint32,
    "f64": np.uint64,
    "s8": np.uint8,
    "u8": np.uint8,
    "s32": np.uint32,
}
MMA = [
    *((shape, "f16", "f16", total) for shape in ("m16n8k8", "m16n8k16") for total in ("f16", "f32")),
    ("m16n8k8", "bf16", "bf16", "f32"), ("m16n8k16", "bf16", "bf16", "f32"),
    ("m16n8k4", "tf32", "tf32", "f32"), ("m16n8k8", "tf32", "tf32", "f32"),
    ("m8n8k4", "f64", "f64", "f64"), ("m16n8k4", "f64", "f64", "f64"), ("m16n8k8", "f64", "f64", "f64"), ("m16n8k16", "f64", "f64", "f64"),
    *((shape, a, b, "s32") for shape in ("m8n8k16", "m16n8k16", "m16n8k32") for a in ("s8", "u8") for b in ("s8", "u8")),
]  # fmt: skip
WMMA = [
    *((shape, "f16", total) for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for total in ("f16", "f32")),
    *((shape, "bf16", "f32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16")),
    *((shape, kind, "s32") for shape in ("m16n16k16", "m32n8k16", "m8n32k16") for kind in ("s8", "u8")),
    ("m16n16k8", "tf32", "f32"),
    ("m8n8k4", "f64", "f64"),
]


def sizes(shape: str) -> tuple[int, int, int]:
    m, n, k = (int(x) for x in re.findall(r"\d+", shape))
    return m, n, k


def random_matrix(kind: str, rows: int, columns: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(bits, values as f64) of a matrix."""
    generator = np.random.default_rng(seed)
    if kind in ("s8", "u8", "s32"):
        low, high = {"s8": (-128, 128), "u8": (0, 256), "s32": (-(10**6), 10**6)}[kind]
        values = generator.integers(low, high, (rows, columns))
        return values.astype({"s8": np.int8, "u8": np.uint8, "s32": np.int32}[kind]).view(STORED[kind]), values.astype(np.float64)
    plain = generator.standard_normal((rows, columns))
    if kind == "f64":
        return plain.view(np.uint64), plain
    if kind == "f16":
        half = plain.astype(np.float16)
        return half.view(np.uint16), half.astype(np.float64)
    bits = plain.astype(np.float32).view(np.uint32)
    if kind == "bf16":
        return (bits >> 16).astype(np.uint16), (bits & 0xFFFF0000).view(np.float32).astype(np.float64)
    if kind == "tf32":  # the low bits are there and do not count
        return bits, (bits & 0xFFFFE000).view(np.float32).astype(np.float64)
    return bits, bits.view(np.float32).astype(np.float64)


def values_of(bits: np.ndarray, kind: str) -> np.ndarray:
    return bits.view({"f16": np.float16, "f32": np.float32, "f64": np.float64, "s32": np.int32}[kind]).astype(np.float64)


def check(found: np.ndarray, expected: np.ndarray, kind: str) -> None:
    if kind == "s32":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(
            found,
            expected,
            **{"f16": {"rtol": 1e-3, "atol": 1e-3}, "f32": {"rtol": 1e-6, "atol": 1e-6}, "f64": {"rtol": 1e-13, "atol": 1e-14}}[kind],
        )


# --- mma.sync ---------------------------------------------------------------------------------------------------------------


def parts(matrix: np.ndarray, kind: str, role: str) -> np.ndarray:
    """A thread's elements of A, B (given transposed) or C in the order of its registers: (lanes, elements)."""
    lines, length = matrix.shape
    out = []
    for lane in range(LANES):
        group, place = divmod(lane, 4)
        mine = []
        if role == "c":
            for row in range(group, lines, 8):
                mine += [matrix[row, 2 * place], matrix[row, 2 * place + 1]]
        else:
            together = max(1, 4 // matrix.itemsize)
            for first in range(0, length, 4 * together):
                for line in range(group, lines, 8):
                    mine += [matrix[line, first + place * together + n] for n in range(together)]
        out.append(mine)
    return np.array(out, dtype=matrix.dtype)


def registers(name: str, array: np.ndarray) -> tuple[str, list[str], str]:
    """(declaration, names, PTX type) of what holds one thread's part."""
    kind = "f64" if array.itemsize == 8 else "b32"
    count = array.nbytes // LANES // (8 if kind == "f64" else 4)
    return f".reg .{kind} %{name}<{count}>;", [f"%{name}{n}" for n in range(count)], kind


def move(word: str, name: str, names: list[str], kind: str) -> str:
    """Loads or stores a thread's registers, which lie one behind the other."""
    size = 8 if kind == "f64" else 4
    text = f"mul.wide.u32 %o, %t, {size * len(names)}; ld.param.u64 %p, [{name}]; add.u64 %p, %p, %o;"
    for n, register in enumerate(names):
        text += f"ld.global.{kind} {register}, [%p+{size * n}];" if word == "ld" else f"st.global.{kind} [%p+{size * n}], {register};"
    return text


def mma_kernel(opcode: str, fragments: dict[str, np.ndarray], times: int = 1) -> str:
    held = {name: registers(f"r{name}", array) for name, array in fragments.items()}
    vector = {name: "{" + ",".join(names) + "}" for name, (_, names, _) in held.items()}
    loads = "".join(move("ld", name, names, kind) for name, (_, names, kind) in held.items())
    _, names, kind = held["c"]
    return f"""
    .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
        .reg .b32 %t, %i; .reg .b64 %p, %o; .reg .pred %again; {"".join(declaration for declaration, _, _ in held.values())}
        mov.u32 %t, %tid.x; mov.u32 %i, {times}; {loads}
    AGAIN:
        {opcode} {vector["c"]}, {vector["a"]}, {vector["b"]}, {vector["c"]};
        sub.u32 %i, %i, 1; setp.ne.u32 %again, %i, 0; @%again bra AGAIN;
        {move("st", "d", names, kind)}
        ret;
    }}
    """


@pytest.mark.slow
@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(("shape", "a_kind", "b_kind", "kind"), MMA)
def test_mma(shape: str, a_kind: str, b_kind: str, kind: str, times: int) -> None:
    """Two warps with data of their own, the product added once or several times in a loop."""
    m, n, k = sizes(shape)
    fragments: dict[str, list[np.ndarray]] = {"a": [], "b": [], "c": []}
    expected = []
    for warp in range(2):
        a, b, c = (
            random_matrix(t, *size, 10 * warp + i) for i, (t, size) in enumerate([(a_kind, (m, k)), (b_kind, (n, k)), (kind, (m, n))])
        )
        expected.append(times * (a[1] @ b[1].T) + c[1])
        for name, bits in (("a", a[0]), ("b", b[0]), ("c", c[0])):
            fragments[name].append(parts(bits, a_kind, name))
    arrays = {name: np.concatenate(found) for name, found in fragments.items()}
    d = np.zeros_like(arrays["c"])
    opcode = f"mma.sync.aligned.{shape}.row.col.{kind}.{a_kind}.{b_kind}.{kind}"
    launch(mma_kernel(opcode, {name: found[0] for name, found in fragments.items()}, times), "k", 1, 2 * LANES, [*arrays.values(), d])
    for warp in range(2):
        found = d[warp * LANES : (warp + 1) * LANES]
        exact = values_of(np.ascontiguousarray(found), kind)
        if times > 1 and kind == "f16":
            np.testing.assert_allclose(exact, parts(expected[warp], kind, "c"), atol=0.05)  # rounded three times
        else:
            check(exact, parts(expected[warp], kind, "c"), kind)


def test_integer_mma_wraps_and_saturates() -> None:
    a, b = np.full((LANES, 16), 127, dtype=np.uint8), np.full((LANES, 8), 127, dtype=np.uint8)
    c = np.full((LANES, 4), 0x7FFFFF00, dtype=np.uint32)
    results = []
    for more in ("", ".satfinite"):
        d = np.zeros_like(c)
        opcode = f"mma.sync.aligned.m16n8k32.row.col{more}.s32.s8.s8.s32"
        launch(mma_kernel(opcode, {"a": a, "b": b, "c": c}), "k", 1, LANES, [a, b, c, d])
        results.append(set(d.ravel().tolist()))
    assert results == [{(0x7FFFFF00 + 32 * 127 * 127) & 0xFFFFFFFF}, {0x7FFFFFFF}]


def test_mma_without_the_whole_warp_is_a_fault() -> None:
    a, b, c = np.zeros((LANES, 8), np.uint16), np.zeros((LANES, 4), np.uint16), np.zeros((LANES, 4), np.uint32)
    source = mma_kernel("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", {"a": a, "b": b, "c": c})
    fault = run(source, "k", 1, 20, [a, b, c, c.copy()])
    assert fault is not None
    assert fault.kind == "trap"


@pytest.mark.parametrize(
    "opcode",
    [
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.col.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f16",
        "mma.sync.aligned.m16n8k8.row.col.f32.f64.f64.f32",
        "mma.sync.aligned.m16n8k16.row.col.satfinite.f32.f16.f16.f32",
        "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k256.row.col.s32.b1.b1.s32.xor.popc",
        "mma.sync.aligned.m16n8k64.row.col.s32.s4.s4.s32",
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32",
        "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32",  # too many registers for it
    ],
)
def test_what_is_not_there_is_refused(opcode: str) -> None:
    a, b, c = np.zeros((LANES, 8), np.uint16), np.zeros((LANES, 4), np.uint16), np.zeros((LANES, 4), np.uint32)
    with pytest.raises(EmulatorUnsupportedError, match=re.escape(opcode)):
        run(mma_kernel(opcode, {"a": a, "b": b, "c": c}), "k", 1, LANES, [a, b, c, c.copy()])


# --- wmma -------------------------------------------------------------------------------------------------------------------


def fragment_size(kind: str, elements: int) -> int:
    """Registers of A's and B's fragments: nvcc's for each shape, which the ISA lists."""
    if kind == "f16":
        return 8
    return max(1, elements * STORED[kind]().itemsize // 4 // LANES) if kind != "f64" else 1


@pytest.mark.slow
@pytest.mark.parametrize("layouts", ["row.col", "col.row", "row.row", "col.col"])
@pytest.mark.parametrize(("shape", "kind", "total"), WMMA)
def test_wmma(shape: str, kind: str, total: str, layouts: str) -> None:
    m, n, k = sizes(shape)
    (a, a_values), (b, b_values), (c, c_values) = (
        random_matrix(t, *size, s) for t, size, s in ((kind, (m, k), 1), (kind, (k, n), 2), (total, (m, n), 3))
    )
    a_layout, b_layout = layouts.split(".")
    counts = {"a": fragment_size(kind, m * k), "b": fragment_size(kind, k * n), "c": m * n // LANES // (2 if total == "f16" else 1)}
    word = "f64" if kind == "f64" else "b32"
    vector = {x: "{" + ",".join(f"%r{x}{i}" for i in range(count)) + "}" for x, count in counts.items()}
    kinds = f"{total}.{total}" if kind == "f16" else f"{total}.{kind}.{kind}.{total}"
    accumulator = "f32" if total == "f32" else word
    strides = {"a": (k if a_layout == "row" else m) + 16, "b": (n if b_layout == "row" else k) + 16, "c": n + 8, "d": m + 8}
    source = f"""
    .visible .entry k(.param .u64 a, .param .u64 b, .param .u64 c, .param .u64 d) {{
        .reg .{word} %ra<{counts["a"]}>, %rb<{counts["b"]}>; .reg .{accumulator} %rc<{counts["c"]}>; .reg .b64 %a, %b, %c, %d;
        ld.param.u64 %a, [a]; ld.param.u64 %b, [b]; ld.param.u64 %c, [c]; ld.param.u64 %d, [d];
        wmma.load.a.sync.aligned.{a_layout}.{shape}.global.{kind} {vector["a"]}, [%a], {strides["a"]};
        wmma.load.b.sync.aligned.{b_layout}.{shape}.global.{kind} {vector["b"]}, [%b], {strides["b"]};
        wmma.load.c.sync.aligned.row.{shape}.global.{total} {vector["c"]}, [%c], {strides["c"]};
        wmma.mma.sync.aligned.{layouts}.{shape}.{kinds} {vector["c"]}, {vector["a"]}, {vector["b"]}, {vector["c"]};
        wmma.store.d.sync.aligned.col.{shape}.global.{total} [%d], {vector["c"]}, {strides["d"]};
        ret;
    }}
    """

    def placed(matrix: np.ndarray, layout: str, stride: int) -> np.ndarray:
        lines = matrix if layout == "row" else matrix.T
        out = np.zeros((lines.shape[0], stride), matrix.dtype)
        out[:, : lines.shape[1]] = lines
        return out

    d = np.zeros((n, strides["d"]), STORED[total])
    arguments = [placed(a, a_layout, strides["a"]), placed(b, b_layout, strides["b"]), placed(c, "row", strides["c"]), d]
    launch(source, "k", 1, LANES, arguments)
    check(values_of(np.ascontiguousarray(d[:, :m].T), total), a_values @ b_values + c_values, total)
    assert not d[:, m:].any()


# --- matrices in registers --------------------------------------------------------------------------------------------------

TILE = np.random.default_rng(4).integers(0, 1 << 16, (4, 8, 8)).astype(np.uint16)


def pieces(matrices: np.ndarray) -> np.ndarray:
    """(lanes, matrices) registers, each two elements of row lane / 4."""
    pairs = matrices.astype(np.uint32).reshape(-1, 8, 4, 2)
    return (pairs[..., 0] | pairs[..., 1] << 16).reshape(-1, LANES).T.copy()


@pytest.mark.parametrize("trans", ["", ".trans"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_ldmatrix_and_stmatrix(count: int, trans: str) -> None:
    """Loaded from shared memory, then stored behind it: the registers and what was stored are checked."""
    names = ",".join(f"%r{n}" for n in range(count))
    source = f"""
    .visible .entry k(.param .u64 in, .param .u64 registers, .param .u64 back) {{
        .shared .align 16 .b8 tile[1024]; .reg .b32 %t, %s, %base, %v, %r<4>; .reg .b64 %p, %o;
        mov.u32 %t, %tid.x; mov.u32 %base, tile; shl.b32 %s, %t, 4; add.u32 %s, %s, %base; mul.wide.u32 %o, %t, 16;
        ld.param.u64 %p, [in]; add.u64 %p, %p, %o;
        ld.global.v4.b32 {{%r0,%r1,%r2,%r3}}, [%p]; st.shared.v4.b32 [%s], {{%r0,%r1,%r2,%r3}};
        bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{names}}}, [%s];
        stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%s+512], {{{names}}};
        ld.param.u64 %p, [registers]; mul.wide.u32 %o, %t, {4 * count}; add.u64 %p, %p, %o;
        {"".join(f"st.global.b32 [%p+{4 * n}], %r{n};" for n in range(count))}
        ld.param.u64 %p, [back]; mul.wide.u32 %o, %t, 16; add.u64 %p, %p, %o;
        ld.shared.v4.b32 {{%r0,%r1,%r2,%r3}}, [%s+512]; st.global.v4.b32 [%p], {{%r0,%r1,%r2,%r3}};
        ret;
    }}
    """
    registers_out, back = np.zeros((LANES, count), np.uint32), np.zeros_like(TILE)
    launch(source, "k", 1, LANES, [TILE, registers_out, back])
    expected = TILE[:count].transpose(0, 2, 1) if trans else TILE[:count]
    np.testing.assert_array_equal(registers_out, pieces(expected))
    np.testing.assert_array_equal(back[:count], TILE[:count])


def test_movmatrix_transposes() -> None:
    source = """
    .visible .entry k(.param .u64 in, .param .u64 out) {
        .reg .b32 %t, %v; .reg .b64 %p, %o; mov.u32 %t, %tid.x; mul.wide.u32 %o, %t, 4;
        ld.param.u64 %p, [in]; add.u64 %p, %p, %o; ld.global.b32 %v, [%p];
        movmatrix.sync.aligned.m8n8.trans.b16 %v, %v;
        ld.param.u64 %p, [out]; add.u64 %p, %p, %o; st.global.b32 [%p], %v; ret;
    }
    """
    out = np.zeros((LANES, 1), np.uint32)
    launch(source, "k", 1, LANES, [pieces(TILE[:1]), out])
    np.testing.assert_array_equal(out, pieces(TILE[:1].transpose(0, 2, 1)))


@pytest.mark.parametrize(("start", "kind"), [(8, "misaligned address"), (4096, "illegal address")])
def test_a_row_at_a_bad_address_is_a_fault(start: int, kind: str) -> None:
    source = f"""
    .visible .entry k() {{
        .shared .align 16 .b8 tile[1024]; .reg .b32 %t, %s, %r; mov.u32 %t, %tid.x; shl.b32 %s, %t, 4; mov.u32 %r, tile;
        add.u32 %s, %s, {start}; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {{%r}}, [%s]; ret;
    }}
    """
    fault = run(source, "k", 1, LANES, [])
    assert fault is not None
    assert fault.kind == kind
