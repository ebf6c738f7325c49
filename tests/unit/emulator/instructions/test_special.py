"""Special registers: PTX ISA, "Special Registers"."""

import numpy as np
import pytest

from tests.helpers.ptx import launch, run

GRID, BLOCK = (3, 2, 2), (6, 5, 4)
THREADS = 120
BLOCKS = 12


def read(expression: str, width: int = 32, shared_bytes: int = 0) -> np.ndarray:
    """One value for each thread of each block, in the order of their linear numbers."""
    source = f"""
    .visible .entry k(.param .u64 out) {{
        .reg .b32 %x, %y, %z, %t, %b; .reg .b{width} %v; .reg .b64 %o, %a;
        mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z; mad.lo.u32 %t, %z, 5, %y; mad.lo.u32 %t, %t, 6, %x;
        mov.u32 %x, %ctaid.x; mov.u32 %y, %ctaid.y; mov.u32 %z, %ctaid.z; mad.lo.u32 %b, %z, 2, %y; mad.lo.u32 %b, %b, 3, %x;
        mad.lo.u32 %t, %b, {THREADS}, %t;
        {expression}
        ld.param.u64 %a, [out]; mul.wide.u32 %o, %t, {width // 8}; add.u64 %a, %a, %o; st.global.b{width} [%a], %v;
        ret;
    }}
    """
    out = np.full(BLOCKS * THREADS, 0xDEAD, dtype=f"u{width // 8}")
    launch(source, "k", GRID, BLOCK, [out], shared_bytes=shared_bytes)
    return out.reshape(BLOCKS, THREADS)


def grid_of(shape: tuple[int, int, int], axis: int) -> np.ndarray:
    """The coordinate along `axis` of every point, x fastest."""
    x, y, z = shape
    order = np.indices((z, y, x))[2 - axis]
    return order.reshape(-1)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_positions_and_sizes(axis: int) -> None:
    letter = "xyz"[axis]
    assert (read(f"mov.u32 %v, %tid.{letter};") == grid_of(BLOCK, axis)).all()
    assert (read(f"mov.u32 %v, %ctaid.{letter};") == grid_of(GRID, axis)[:, None]).all()
    assert (read(f"mov.u32 %v, %ntid.{letter};") == BLOCK[axis]).all()
    assert (read(f"mov.u32 %v, %nctaid.{letter};") == GRID[axis]).all()


def test_a_16_bit_move_takes_the_low_half() -> None:
    assert (read(".reg .b16 %h; mov.u16 %h, %tid.x; cvt.u32.u16 %v, %h;") == grid_of(BLOCK, 0)).all()


def test_lanes_and_warps() -> None:
    linear = np.arange(THREADS)
    lane = linear % 32
    assert (read("mov.u32 %v, %laneid;") == lane).all()
    assert (read("mov.u32 %v, %warpid;") == linear // 32).all()
    assert (read("mov.u32 %v, WARP_SZ;") == 32).all()
    bit = np.uint64(1) << lane.astype(np.uint64)
    masks = {"eq": bit, "lt": bit - 1, "le": 2 * bit - 1, "gt": ~(2 * bit - 1), "ge": ~(bit - 1)}
    for name, mask in masks.items():
        assert (read(f"mov.u32 %v, %lanemask_{name};") == (mask & np.uint64(0xFFFFFFFF))).all(), name


def test_clocks_go_forward() -> None:
    for register, width in (("clock", 32), ("clock64", 64), ("globaltimer", 64)):
        body = f".reg .u{width} %c, %d; mov.u{width} %c, %{register}; mov.u{width} %d, %{register}; sub.u{width} %v, %d, %c;"
        assert (read(body, width).astype(np.int64) < 1 << 31).all(), register
        assert (read(f"mov.u{width} %v, %{register};", width) != 0).any(), register


def test_machine_numbers_are_within_their_counts() -> None:
    processors = read("mov.u32 %v, %nsmid;").max()
    assert (read("mov.u32 %v, %smid;") < processors).all()
    warps = read("mov.u32 %v, %nwarpid;").min()
    assert warps >= -(-THREADS // 32)


def test_shared_memory_sizes() -> None:
    assert (read("mov.u32 %v, %dynamic_smem_size;", shared_bytes=1000) == 1000).all()
    assert (read("mov.u32 %v, %total_smem_size;", shared_bytes=1000) >= 1000).all()


# --- control flow -----------------------------------------------------------------------------------------------------

LINE = """
    .visible .entry k(.param .u64 out) {
        .reg .b32 %i, %v, %w; .reg .b64 %o, %a; .reg .pred %p, %q;
        mov.u32 %i, %tid.x; mov.u32 %v, 0;
        ld.param.u64 %a, [out]; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o;
        BODY
        st.global.u32 [%a], %v;
        ret;
    }
"""


def line(body: str, threads: int = 16, before: str = "") -> list[int]:
    out = np.full(threads, 0xDEAD, dtype=np.uint32)
    launch(before + LINE.replace("BODY", body), "k", 1, threads, [out])
    found: list[int] = out.tolist()
    return found


def test_loops_of_different_length() -> None:
    body = "mov.u32 %w, %i; AGAIN: setp.eq.u32 %p, %w, 0; @%p bra.uni OUT; add.u32 %v, %v, %w; sub.u32 %w, %w, 1; bra AGAIN; OUT:"
    assert line(body) == [n * (n + 1) // 2 for n in range(16)]


def test_predicated_instructions_do_nothing_when_false() -> None:
    body = "and.b32 %w, %i, 1; setp.ne.u32 %p, %w, 0; @%p mov.u32 %v, 1; @!%p mov.u32 %v, 2; @%p add.u32 %v, %v, 10;"
    assert line(body) == [2, 11] * 8
    assert line("setp.lt.u32 %p, %i, 4; @%p st.global.u32 [%a], 77; @%p ret; mov.u32 %v, 5;") == [77] * 4 + [5] * 12


def test_branch_tables() -> None:
    body = """
        .branchtargets_declared
        TABLE: .branchtargets ZERO, ONE, TWO;
        rem.u32 %w, %i, 3; brx.idx %w, TABLE;
        ZERO: mov.u32 %v, 100; bra OUT;
        ONE: mov.u32 %v, 101; bra OUT;
        TWO: mov.u32 %v, 102;
        OUT:
    """.replace(".branchtargets_declared", "")
    assert line(body) == [100 + i % 3 for i in range(16)]


FUNCTIONS = """
    .func (.param .b32 result) square(.param .b32 x) {
        .reg .b32 %x;
        ld.param.u32 %x, [x]; mul.lo.u32 %x, %x, %x; st.param.b32 [result], %x; ret;
    }
    .func (.param .b32 result) factorial(.param .b32 x) {
        .reg .b32 %x, %y; .reg .pred %p;
        ld.param.u32 %x, [x]; setp.gt.u32 %p, %x, 1; @%p bra MORE;
        st.param.b32 [result], 1; ret;
    MORE:
        sub.u32 %y, %x, 1;
        { .param .b32 in; .param .b32 out; st.param.b32 [in], %y; call.uni (out), factorial, (in); ld.param.b32 %y, [out]; }
        mul.lo.u32 %x, %x, %y; st.param.b32 [result], %x; ret;
    }
    .func bump(.param .b64 where, .param .align 8 .b8 pair[16]) {
        .reg .b64 %w; .reg .b32 %a, %b;
        ld.param.u64 %w, [where]; ld.param.u32 %a, [pair]; ld.param.u32 %b, [pair+12]; add.u32 %a, %a, %b; st.u32 [%w], %a; ret;
    }
"""


def test_function_calls() -> None:
    call = "{ .param .b32 in; .param .b32 out; st.param.b32 [in], %i; call (out), NAME, (in); ld.param.b32 %v, [out]; }"
    assert line(call.replace("NAME", "square"), before=FUNCTIONS) == [i * i for i in range(16)]
    body = call.replace("NAME", "square") + "add.u32 %w, %v, 1; " + call.replace("NAME", "square").replace("%i;", "%w;")
    assert line(body, before=FUNCTIONS) == [(i * i + 1) ** 2 for i in range(16)]
    body = """
        { .param .b64 where; .param .align 8 .b8 pair[16]; st.param.b64 [where], %a; st.param.b32 [pair], %i; st.param.b32 [pair+12], 1000;
          call.uni bump, (where, pair); }
        ld.global.u32 %v, [%a];
    """
    assert line(body, before=FUNCTIONS) == [1000 + i for i in range(16)]


def test_recursion() -> None:
    call = "{ .param .b32 in; .param .b32 out; st.param.b32 [in], %i; call (out), factorial, (in); ld.param.b32 %v, [out]; }"
    expected = [1]
    for n in range(1, 13):
        expected.append(expected[-1] * n)
    assert line(call, 13, before=FUNCTIONS) == expected


def test_calls_through_a_pointer() -> None:
    body = """
        .reg .b64 %f;
        PROTOTYPE: .callprototype (.param .b32 _) _ (.param .b32 _);
        mov.u64 %f, square; setp.lt.u32 %p, %i, 8; @%p mov.u64 %f, factorial;
        { .param .b32 in; .param .b32 out; st.param.b32 [in], %i; call (out), %f, (in), PROTOTYPE; ld.param.b32 %v, [out]; }
    """
    factorials = [1, 1, 2, 6, 24, 120, 720, 5040]
    assert line(body, before=FUNCTIONS) == factorials + [i * i for i in range(8, 16)]


def test_trap_is_a_fault_that_names_the_thread() -> None:
    source = LINE.replace("BODY", "setp.eq.u32 %p, %i, 5; @%p trap;")
    out = np.zeros(16, dtype=np.uint32)
    fault = run(source, "k", 1, 16, [out])
    assert fault is not None
    assert "trap" in str(fault.kind).lower() or "illegal_instruction" in str(fault.kind).lower()
    assert tuple(fault.thread) == (5, 0, 0)


def test_a_fault_names_block_and_thread() -> None:
    source = """
    .visible .entry k(.param .u64 out) {
        .reg .b32 %x, %y; .reg .b64 %a; .reg .pred %p, %q;
        mov.u32 %x, %ctaid.y; mov.u32 %y, %tid.y; setp.eq.u32 %p, %x, 1; setp.eq.and.u32 %q, %y, 2, %p;
        ld.param.u64 %a, [out]; @%q mov.u64 %a, 64; st.global.u32 [%a], 1;
        ret;
    }
    """
    out = np.zeros(1, dtype=np.uint32)
    fault = run(source, "k", (1, 3, 1), (1, 4, 1), [out])
    assert fault is not None
    assert (tuple(fault.block), tuple(fault.thread), fault.address) == ((0, 1, 0), (0, 2, 0), 64)
    assert fault.line > 0
