"""ld, st, vectors, state spaces, address conversion, and what a bad address does."""

import numpy as np
import pytest

from tests.helpers.operands import integers, random_bits, to_signed
from tests.helpers.ptx import Pointer, launch, run

INDEX = """
    .reg .b32 %i; .reg .b64 %in, %out, %o;
    mov.u32 %i, %tid.x;
    ld.param.u64 %in, [in]; ld.param.u64 %out, [out];
"""


def kernel(body: str, parameters: str = ".param .u64 in, .param .u64 out", before: str = "") -> str:
    return f"{before}\n.visible .entry k({parameters}) {{\n{INDEX}\n{body}\nret;\n}}\n"


@pytest.mark.parametrize("space", [".global", ""])
@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["u", "s", "b"])
def test_load_widens_to_the_register(space: str, width: int, sign: str) -> None:
    """A load into a wider register extends by the type's sign; b types fill with zeros."""
    values = np.array(integers(width), dtype=np.uint64).astype(f"u{width // 8}")
    out = np.zeros(len(values), dtype=np.uint64)
    body = f"""
        .reg .b64 %v;
        mul.wide.u32 %o, %i, {width // 8}; add.u64 %in, %in, %o;
        ld{space}.{sign}{width} %v, [%in];
        mul.wide.u32 %o, %i, 8; add.u64 %out, %out, %o;
        st{space}.u64 [%out], %v;
    """
    launch(kernel(body), "k", 1, len(values), [values, out])
    expected = [to_signed(int(x), width) if sign == "s" else int(x) for x in values]
    assert out.tolist() == [x & (1 << 64) - 1 for x in expected]


@pytest.mark.parametrize("width", [8, 16, 32, 64])
def test_store_writes_its_width_and_no_more(width: int) -> None:
    out = np.full(64, 0xEE, dtype=np.uint8)
    body = f"""
        .reg .b64 %v;
        ld.global.u64 %v, [%in];
        st.global.b{width} [%out+16], %v;
    """
    launch(kernel(body), "k", 1, 1, [np.array([0x1122334455667788], dtype=np.uint64), out])
    expected = bytearray(b"\xee" * 64)
    expected[16 : 16 + width // 8] = 0x1122334455667788.to_bytes(8, "little")[: width // 8]
    assert out.tobytes() == bytes(expected)


@pytest.mark.parametrize(("count", "width"), [(2, 8), (4, 8), (2, 16), (4, 16), (2, 32), (4, 32), (2, 64)])
def test_vectors(count: int, width: int) -> None:
    threads = 5
    values = np.array(random_bits(width, count * threads), dtype=np.uint64).astype(f"u{width // 8}")
    out = np.zeros_like(values)
    registers = [f"%v{k}" for k in range(count)]
    body = f"""
        .reg .b{max(width, 16)} {", ".join(registers)};
        mul.wide.u32 %o, %i, {count * width // 8}; add.u64 %in, %in, %o; add.u64 %out, %out, %o;
        ld.global.v{count}.b{width} {{{", ".join(registers)}}}, [%in];
        st.global.v{count}.b{width} [%out], {{{", ".join(reversed(registers))}}};
    """
    launch(kernel(body), "k", 1, threads, [values, out])
    assert out.reshape(threads, count).tolist() == values.reshape(threads, count)[:, ::-1].tolist()


LOAD_HINTS = [
    *(".global.nc", ".global.ca", ".global.cg", ".global.cs", ".volatile.global", ".relaxed.gpu.global", ".acquire.sys.global"),
    *(".global.L1::evict_last", ".global.L2::128B", ".global.nc.L1::no_allocate"),
]


@pytest.mark.parametrize("modifiers", LOAD_HINTS)
def test_cache_and_ordering_hints_change_nothing(modifiers: str) -> None:
    out = np.zeros(1, dtype=np.uint32)
    launch(
        kernel(f".reg .b32 %v; ld{modifiers}.u32 %v, [%in+4]; st.global.u32 [%out], %v;"),
        "k",
        1,
        1,
        [np.arange(7, 9, dtype=np.uint32), out],
    )
    assert out.tolist() == [8]


@pytest.mark.parametrize("modifiers", [".global.wb", ".global.cg", ".volatile.global", ".relaxed.gpu.global", ".release.sys.global", ""])
def test_store_hints_change_nothing(modifiers: str) -> None:
    out = np.zeros(2, dtype=np.uint32)
    launch(kernel(f".reg .b32 %v; ld.u32 %v, [%in]; st{modifiers}.u32 [%out+4], %v;"), "k", 1, 1, [np.full(1, 7, dtype=np.uint32), out])
    assert out.tolist() == [0, 7]


def test_negative_offsets_and_immediate_operands() -> None:
    out = np.zeros(4, dtype=np.uint32)
    body = "st.global.u32 [%out], 5; st.global.u32 [%out+-4], -1; st.global.u32 [%out+4], 0x80000000; st.global.f32 [%out+-8], 0f3F800000;"
    launch(kernel(body), "k", 1, 1, [out, Pointer(out, 8)])
    assert out.tolist() == [0x3F800000, 0xFFFFFFFF, 5, 0x80000000]


def test_shared_memory_is_a_blocks_own() -> None:
    """Each block turns its part of the input round through static and dynamic shared memory."""
    body = """
        .reg .b32 %n, %c, %v, %a, %b, %s;
        mov.u32 %n, %ntid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %a, %c, %n, %i;
        mul.wide.u32 %o, %a, 4; add.u64 %in, %in, %o; add.u64 %out, %out, %o;
        ld.global.u32 %v, [%in];
        mov.u32 %s, static; shl.b32 %b, %i, 2; add.u32 %s, %s, %b; st.shared.u32 [%s], %v;
        mov.u32 %s, dynamic; add.u32 %s, %s, %b; st.shared.u32 [%s], %i;
        bar.sync 0;
        sub.u32 %b, %n, %i; sub.u32 %b, %b, 1; shl.b32 %b, %b, 2;
        mov.u32 %s, static; add.u32 %s, %s, %b; ld.shared.u32 %v, [%s];
        mov.u32 %s, dynamic; add.u32 %s, %s, %b; ld.shared.u32 %a, [%s];
        mad.lo.u32 %v, %a, 1000, %v;
        st.global.u32 [%out], %v;
    """
    before = ".extern .shared .align 16 .b8 dynamic[];"
    source = kernel(".shared .align 4 .b8 static[256];\n" + body, before=before)
    values = np.array(random_bits(9, 192), dtype=np.uint32)
    out = np.zeros_like(values)
    launch(source, "k", 3, 64, [values, out], shared_bytes=256)
    places = np.arange(64, dtype=np.uint32)
    expected = (values.reshape(3, 64) + 1000 * places)[:, ::-1]
    assert out.reshape(3, 64).tolist() == expected.tolist()


def test_local_memory_is_a_threads_own() -> None:
    body = """
        .local .align 8 .b8 store[64];
        .reg .b64 %p, %g; .reg .b32 %k, %v; .reg .pred %q;
        mov.u64 %p, store;
        mov.u32 %k, 0;
    FILL:
        mul.wide.u32 %o, %k, 4; add.u64 %g, %p, %o; mad.lo.u32 %v, %i, 100, %k; st.local.u32 [%g], %v;
        add.u32 %k, %k, 1; setp.lt.u32 %q, %k, 16; @%q bra FILL;
        bar.sync 0;
        and.b32 %k, %i, 15; mul.wide.u32 %o, %k, 4; add.u64 %g, %p, %o;
        cvta.local.u64 %g, %g; ld.u32 %v, [%g];
        mul.wide.u32 %o, %i, 4; add.u64 %out, %out, %o; st.global.u32 [%out], %v;
    """
    out = np.zeros(96, dtype=np.uint32)
    launch(kernel(body), "k", 1, 96, [out, out])
    assert out.tolist() == [100 * i + i % 16 for i in range(96)]


def test_generic_addresses_reach_every_space() -> None:
    """cvta makes generic addresses, cvta.to goes back, isspacep tells them apart."""
    body = """
        .shared .align 8 .b8 sh[8]; .local .align 8 .b8 lo[8];
        .reg .b64 %s, %l, %g; .reg .b32 %v, %w, %r; .reg .pred %p;
        mov.u64 %s, sh; cvta.shared.u64 %s, %s; mov.u64 %l, lo; cvta.local.u64 %l, %l; cvta.global.u64 %g, %out;
        st.u32 [%s], 11; st.u32 [%l], 22; ld.u32 %v, [%s]; ld.u32 %w, [%l]; add.u32 %v, %v, %w;
        st.u32 [%g], %v;
        cvta.to.shared.u64 %s, %s; ld.shared.u32 %v, [%s]; st.u32 [%g+4], %v;
        cvta.to.local.u64 %l, %l; ld.local.u32 %v, [%l]; st.u32 [%g+8], %v;
        cvta.shared.u64 %s, %s; cvta.local.u64 %l, %l;
        mov.u32 %r, 0;
        isspacep.shared %p, %s; @%p or.b32 %r, %r, 1;
        isspacep.shared %p, %l; @%p or.b32 %r, %r, 2;
        isspacep.shared %p, %g; @%p or.b32 %r, %r, 4;
        isspacep.local %p, %l; @%p or.b32 %r, %r, 8;
        isspacep.local %p, %s; @%p or.b32 %r, %r, 16;
        isspacep.global %p, %g; @%p or.b32 %r, %r, 32;
        isspacep.global %p, %s; @%p or.b32 %r, %r, 64;
        st.u32 [%g+12], %r;
    """
    out = np.zeros(4, dtype=np.uint32)
    launch(kernel(body), "k", 1, 1, [out, out])
    assert out.tolist() == [33, 11, 22, 1 + 8 + 32]


def test_module_variables() -> None:
    """Global and constant variables at the addresses they are bound to; an initialiser may hold an address."""
    before = """
        .visible .global .align 4 .u32 counter[2];
        .visible .const .align 4 .u32 table[4] = {10, 20, 30, 40};
    """
    body = """
        .reg .b32 %v, %w; .reg .b64 %p;
        mul.wide.u32 %o, %i, 4; mov.u64 %p, table; add.u64 %p, %p, %o; ld.const.u32 %v, [%p];
        ld.const.u32 %w, [table+12]; add.u32 %v, %v, %w;
        add.u64 %out, %out, %o; st.global.u32 [%out], %v;
        st.global.u32 [counter+4], 99;
    """
    counter = np.zeros(2, dtype=np.uint32)
    table = np.array([10, 20, 30, 40], dtype=np.uint32)
    out = np.zeros(4, dtype=np.uint32)
    launch(kernel(body, before=before), "k", 1, 4, [out, out], global_names={"counter": counter, "table": table})
    assert out.tolist() == [50, 60, 70, 80]
    assert counter.tolist() == [0, 99]


def test_parameters_of_every_size() -> None:
    parameters = (
        ".param .u64 in, .param .u64 out, .param .u8 a, .param .s16 b, .param .f32 c, .param .f64 d,"
        " .param .align 16 .b8 e[24], .param .u32 f"
    )
    body = """
        .reg .b32 %v; .reg .b64 %w; .reg .f32 %x; .reg .f64 %y; .reg .b16 %h;
        ld.param.u8 %v, [a]; st.global.u32 [%out], %v;
        ld.param.s16 %v, [b]; st.global.u32 [%out+4], %v;
        ld.param.f32 %x, [c]; st.global.f32 [%out+8], %x;
        ld.param.f64 %y, [d]; st.global.f64 [%out+16], %y;
        ld.param.u64 %w, [e+16]; st.global.u64 [%out+24], %w;
        ld.param.v2.u32 {%v, %i}, [e+8]; st.global.u32 [%out+12], %i;
        ld.param.u32 %v, [f]; st.global.u32 [%out+32], %v;
    """
    out = np.zeros(40, dtype=np.uint8)
    words = np.array([1, 2, 3, 4, 5, 6], dtype=np.uint32)
    launch(kernel(body, parameters), "k", 1, 1, [out, out, 200, -3, 1.5, 2.25, words.tobytes(), 77])
    assert out.view(np.uint32)[[0, 1, 3, 6, 7, 8]].tolist() == [200, (1 << 32) - 3, 4, 5, 6, 77]
    assert out.view(np.float32)[2] == 1.5
    assert out.view(np.float64)[2] == 2.25


def test_moves_pack_and_unpack() -> None:
    body = """
        .reg .b16 %h<4>; .reg .b32 %v<2>; .reg .b64 %w; .reg .f32 %f;
        ld.global.u64 %w, [%in];
        mov.b64 {%h0, %h1, %h2, %h3}, %w; mov.b32 %v0, {%h3, %h0}; st.global.u32 [%out], %v0;
        mov.b64 {%v0, %v1}, %w; mov.b64 %w, {%v1, %v0}; st.global.u64 [%out+8], %w;
        mov.b32 {%h0, %h1}, %v0; mov.b32 %v0, {%h1, %h0}; st.global.u32 [%out+4], %v0;
        mov.b64 {%v0, _}, %w; st.global.u32 [%out+16], %v0;
        mov.f32 %f, 0f3FC00000; mov.b32 %v0, %f; st.global.u32 [%out+20], %v0;
        mov.u32 %v0, 0x10; st.global.u32 [%out+24], %v0;
    """
    out = np.zeros(7, dtype=np.uint32)
    launch(kernel(body), "k", 1, 1, [np.array([0x8877665544332211], dtype=np.uint64), out])
    assert out.tolist() == [0x22118877, 0x22114433, 0x88776655, 0x44332211, 0x88776655, 0x3FC00000, 0x10]


STORE = """
    .reg .b32 %n, %c; mov.u32 %n, %ntid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %i, %c, %n, %i;
    mul.wide.u32 %o, %i, 4; add.u64 %out, %out, %o;
"""


@pytest.mark.parametrize(
    "access", ["st.global.u32 [%out], 1;", "ld.global.u32 %i, [%out];", "ld.u32 %i, [%out];", "red.global.add.u32 [%out], 1;"]
)
def test_an_access_outside_every_allocation_is_a_fault(access: str) -> None:
    out = np.zeros(40, dtype=np.uint32)
    fault = run(kernel(STORE + access), "k", 2, 32, [out, out])
    assert fault is not None
    # elements 40 and later are outside; block 1 is the first to reach them
    assert fault.address >= out.ctypes.data + out.nbytes
    assert fault.address < out.ctypes.data + 4 * 64


@pytest.mark.parametrize(
    ("where", "space"),
    [("0", ".global"), ("8", ""), ("0xdeadbeef0000", ".global"), ("0xfffffffffffffff0", ".global"), ("0x7fffffffffffffff", "")],
)
def test_wild_addresses_are_faults_and_no_crash(where: str, space: str) -> None:
    body = f".reg .b64 %p; mov.u64 %p, {where}; st{space}.u32 [%p], 1;"
    out = np.zeros(1, dtype=np.uint32)
    fault = run(kernel(body), "k", 1, 1, [out, out])
    assert fault is not None
    assert fault.address == int(where, 16)


def test_an_access_across_the_end_is_a_fault() -> None:
    out = np.zeros(3, dtype=np.uint32)
    fault = run(kernel(".reg .b64 %v; mov.u64 %v, 7; st.global.u64 [%out+8], %v;"), "k", 1, 1, [out, out])
    assert fault is not None
    assert out.tolist()[:2] == [0, 0]


@pytest.mark.parametrize("width", [16, 32, 64])
def test_a_misaligned_access_is_a_fault(width: int) -> None:
    out = np.zeros(4, dtype=np.uint64)
    body = f".reg .b64 %v; mov.u64 %v, 7; st.global.b{width} [%out+{width // 8 + 1}], %v;"
    fault = run(kernel(body), "k", 1, 1, [out, out])
    assert fault is not None
    assert "misaligned" in str(fault.kind).lower()


@pytest.mark.parametrize("space", ["shared", "local"])
def test_outside_of_shared_and_local_memory_is_a_fault(space: str) -> None:
    body = f".{space} .align 4 .b8 store[16]; .reg .b64 %p; mov.u64 %p, store; add.u64 %p, %p, 1073741824; st.{space}.u32 [%p], 1;"
    out = np.zeros(1, dtype=np.uint32)
    assert run(kernel(body), "k", 1, 1, [out, out]) is not None
