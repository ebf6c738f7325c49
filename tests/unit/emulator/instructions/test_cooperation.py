"""What threads of a warp and of a block do together: shfl, vote, match, redux, activemask, barriers."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.helpers.operands import random_bits
from tests.helpers.ptx import launch

WARP = 32
FULL = 0xFFFFFFFF


def kernel(body: str, before: str = "") -> str:
    """`body` has %t (thread), %v (its input word), and sets %r (its result)."""
    return f"""{before}
    .visible .entry k(.param .u64 in, .param .u64 out) {{
        .reg .b32 %t, %v, %r, %x, %y, %lane; .reg .b64 %in, %out, %o; .reg .pred %p, %q;
        mov.u32 %t, %tid.x; mov.u32 %lane, %laneid; mul.wide.u32 %o, %t, 4;
        ld.param.u64 %in, [in]; ld.param.u64 %out, [out]; add.u64 %in, %in, %o; add.u64 %out, %out, %o;
        ld.global.u32 %v, [%in];
        mov.u32 %r, 0;
        {body}
        st.global.u32 [%out], %r;
        ret;
    }}
    """


def run(body: str, values: list[int], threads: int | tuple[int, int, int], before: str = "") -> list[int]:
    data = np.array(values, dtype=np.uint32)
    out = np.full_like(data, 0xDEAD)
    launch(kernel(body, before), "k", 1, threads, [data, out])
    found: list[int] = out.tolist()
    return found


# --- shfl -------------------------------------------------------------------------------------------------------------


def shuffle_source(mode: str, lane: int, b: int, c: int) -> tuple[int, bool]:
    """The lane whose value is taken and whether it is in range (PTX ISA, shfl.sync)."""
    b, clamp, segment = b & 31, c & 31, c >> 8 & 31
    highest = lane & segment | clamp & ~segment & 31
    lowest = lane & segment
    if mode == "up":
        source = lane - b
        inside = source >= highest
    elif mode == "down":
        source = lane + b
        inside = source <= highest
    elif mode == "bfly":
        source = lane ^ b
        inside = source <= highest
    else:
        source = lowest | b & ~segment & 31
        inside = source <= highest
    return (source if inside else lane), inside


SHUFFLES = [
    *((mode, b, c) for mode in ("up",) for b in (0, 1, 3, 16, 31) for c in (0, 8, 0x1800, 0x1000, 0x1E00)),
    *((mode, b, c) for mode in ("down", "bfly", "idx") for b in (0, 1, 3, 16, 31, 33) for c in (0x1F, 0x181F, 0x101F, 0x0F, 0x1E1F, 0x07)),
]


@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shfl(mode: str) -> None:
    """All offsets and clamps in one kernel, over two warps; the predicate is bit 31 of the result."""
    cases = [(b, c) for m, b, c in SHUFFLES if m == mode]
    threads = 2 * WARP
    values = [x >> 1 for x in random_bits(32, threads)]
    body = ""
    for k, (b, c) in enumerate(cases):
        body += f"""
            shfl.sync.{mode}.b32 %x|%p, %v, {b}, {c:#x}, -1; selp.b32 %y, 0x80000000, 0, %p; or.b32 %x, %x, %y;
            st.global.u32 [%out+{4 * threads * k}], %x;
        """
    data, out = np.array(values, dtype=np.uint32), np.zeros(threads * len(cases), dtype=np.uint32)
    launch(kernel(body).replace("st.global.u32 [%out], %r;", ""), "k", 1, threads, [data, out])
    for (b, c), row in zip(cases, out.reshape(len(cases), threads).tolist(), strict=True):
        for thread, found in enumerate(row):
            source, inside = shuffle_source(mode, thread % WARP, b, c)
            expected = values[thread - thread % WARP + source] | (0x80000000 if inside else 0)
            assert found == expected, (mode, b, hex(c), thread)


def test_shfl_takes_its_operands_from_registers_and_needs_no_predicate() -> None:
    values = random_bits(32, WARP)
    body = "and.b32 %x, %v, 31; mov.u32 %y, 31; shfl.sync.idx.b32 %r, %v, %x, %y, 0xffffffff;"
    assert run(body, values, WARP) == [values[v & 31] for v in values]


def test_shfl_among_half_a_warp() -> None:
    values = random_bits(32, WARP)
    body = """
        setp.lt.u32 %p, %lane, 16; @!%p bra OTHER;
        shfl.sync.bfly.b32 %r, %v, 1, 0x1f, 0xffff; bra JOIN;
    OTHER:
        shfl.sync.bfly.b32 %r, %v, 2, 0x1f, 0xffff0000;
    JOIN:
    """
    assert run(body, values, WARP) == [values[lane ^ (1 if lane < 16 else 2)] for lane in range(WARP)]


def test_a_sum_by_shuffles() -> None:
    values = random_bits(16, 96)
    steps = "".join(f"shfl.sync.down.b32 %x, %r, {d}, 0x1f, -1; add.u32 %r, %r, %x;\n" for d in (16, 8, 4, 2, 1))
    found = run("mov.u32 %r, %v;" + steps, values, 96)
    assert [found[k] for k in (0, 32, 64)] == [sum(values[k : k + 32]) for k in (0, 32, 64)]


# --- votes ------------------------------------------------------------------------------------------------------------

PATTERNS = [0, FULL, 1, 0x80000000, 0xAAAAAAAA, 0x0000FFFF, 0x12345678]


@pytest.mark.parametrize("pattern", PATTERNS, ids=hex)
def test_votes(pattern: int) -> None:
    values = [pattern >> lane & 1 for lane in range(WARP)]
    body = """
        setp.ne.u32 %p, %v, 0;
        vote.sync.all.pred %q, %p, -1; @%q or.b32 %r, %r, 1;
        vote.sync.any.pred %q, %p, -1; @%q or.b32 %r, %r, 2;
        vote.sync.uni.pred %q, %p, -1; @%q or.b32 %r, %r, 4;
        vote.sync.all.pred %q, !%p, -1; @%q or.b32 %r, %r, 8;
        vote.sync.ballot.b32 %x, %p, -1; popc.b32 %y, %x; shl.b32 %y, %y, 8; or.b32 %r, %r, %y;
    """
    every, some, same, none = pattern == FULL, pattern != 0, pattern in (0, FULL), pattern == 0
    expected = every + 2 * some + 4 * same + 8 * none | pattern.bit_count() << 8
    assert run(body, values, WARP) == [expected] * WARP
    assert run("setp.ne.u32 %p, %v, 0; vote.sync.ballot.b32 %r, %p, -1;", values, WARP) == [pattern] * WARP


def test_ballot_counts_only_who_is_asked() -> None:
    body = "setp.ge.u32 %p, %lane, 8; @%p bra SKIP; setp.ne.u32 %q, %v, 0; vote.sync.ballot.b32 %r, %q, 0xff; SKIP:"
    values = [1, 0, 1, 1, 0, 0, 1, 0] + [1] * 24
    assert run(body, values, WARP) == [0b01001101] * 8 + [0] * 24


def test_the_last_warp_may_be_short() -> None:
    body = "setp.ne.u32 %p, %v, 0; activemask.b32 %x; vote.sync.ballot.b32 %r, %p, %x;"
    found = run(body, [1] * 40, 40)
    assert found == [FULL] * 32 + [0xFF] * 8


def test_activemask_shows_who_took_the_branch() -> None:
    body = "and.b32 %x, %lane, 3; setp.ne.u32 %p, %x, 0; @%p bra SKIP; activemask.b32 %r; bar.warp.sync 0x11111111; SKIP: bar.warp.sync -1;"
    assert run(body, [0] * WARP, WARP) == [0x11111111 if lane % 4 == 0 else 0 for lane in range(WARP)]


def test_match() -> None:
    values = [x & 3 for x in random_bits(8, WARP)]
    masks = {v: sum(1 << lane for lane, x in enumerate(values) if x == v) for v in set(values)}
    assert run("match.any.sync.b32 %r, %v, -1;", values, WARP) == [masks[v] for v in values]
    body = "match.all.sync.b32 %x|%p, %v, -1; selp.b32 %r, %x, 7, %p;"
    assert run(body, [5] * WARP, WARP) == [FULL] * WARP
    found = run("match.all.sync.b32 %r|%p, %v, -1; @%p mov.u32 %r, 7;", values, WARP)
    assert found == [0] * WARP
    wide = ".reg .b64 %w; mov.b64 %w, {%v, %lane}; match.any.sync.b64 %r, %w, -1;"
    assert run(wide, values, WARP) == [1 << lane for lane in range(WARP)]


def signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x


@pytest.mark.parametrize(
    ("operation", "rule"),
    [
        ("add.u32", lambda xs: sum(xs)),
        ("add.s32", lambda xs: sum(xs)),
        ("min.u32", min),
        ("max.u32", max),
        ("min.s32", lambda xs: min(xs, key=signed)),
        ("max.s32", lambda xs: max(xs, key=signed)),
        ("and.b32", lambda xs: int(np.bitwise_and.reduce(np.array(xs, dtype=np.uint32)))),
        ("or.b32", lambda xs: int(np.bitwise_or.reduce(np.array(xs, dtype=np.uint32)))),
        ("xor.b32", lambda xs: int(np.bitwise_xor.reduce(np.array(xs, dtype=np.uint32)))),
    ],
)
def test_redux(operation: str, rule: Callable[[list[int]], int]) -> None:
    values = random_bits(32, 2 * WARP)
    expected = [rule(values[:WARP]) & FULL] * WARP + [rule(values[WARP:]) & FULL] * WARP
    assert run(f"redux.sync.{operation} %r, %v, -1;", values, 2 * WARP) == expected


# --- barriers ---------------------------------------------------------------------------------------------------------

SHARED = ".shared .align 4 .b8 tile[4096];"
PUT = "shl.b32 %x, %t, 2; mov.u32 %y, tile; add.u32 %x, %x, %y; st.shared.u32 [%x], %v;"


@pytest.mark.parametrize(
    "barrier", ["bar.sync 0", "bar.sync 1", "bar.sync 0, 192", "barrier.sync 0", "barrier.sync.aligned 0", "bar.cta.sync 0"]
)
def test_a_barrier_separates_writes_from_reads(barrier: str) -> None:
    """Repeated, so that a thread which runs ahead would overwrite what another has yet to read."""
    threads = 192
    values = random_bits(32, threads)
    body = (
        PUT
        + f"""
        .reg .b32 %k, %n;
        mov.u32 %k, 0; mov.u32 %n, 0;
    ROUND:
        {barrier};
        add.u32 %lane, %t, 1; rem.u32 %lane, %lane, {threads}; shl.b32 %lane, %lane, 2; add.u32 %lane, %lane, %y;
        ld.shared.u32 %r, [%lane];
        {barrier};
        st.shared.u32 [%x], %r;
        add.u32 %k, %k, 1; setp.lt.u32 %p, %k, 5; @%p bra ROUND;
    """
    )
    assert run(body, values, threads, SHARED) == [values[(t + 5) % threads] for t in range(threads)]


@pytest.mark.parametrize("pattern", ["all", "none", "some"])
def test_barrier_reductions(pattern: str) -> None:
    threads = 96
    values = [1 if pattern == "all" or (pattern == "some" and t % 5 == 0) else 0 for t in range(threads)]
    body = """
        setp.ne.u32 %p, %v, 0;
        bar.red.popc.u32 %r, 0, %p;
        bar.red.and.pred %q, 0, %p; @%q or.b32 %r, %r, 0x1000;
        bar.red.or.pred %q, 0, %p; @%q or.b32 %r, %r, 0x2000;
        bar.red.and.pred %q, 0, !%p; @%q or.b32 %r, %r, 0x4000;
        bar.red.or.pred %q, 1, 96, %p; @%q or.b32 %r, %r, 0x8000;
    """
    count = sum(values)
    expected = count | 0x1000 * (count == threads) | 0x2000 * (count > 0) | 0x4000 * (count == 0) | 0x8000 * (count > 0)
    assert run(body, values, threads, SHARED) == [expected] * threads


def test_producers_arrive_and_consumers_wait() -> None:
    """bar.arrive does not wait: the first warp fills the tile for the second and goes on."""
    values = random_bits(32, 64)
    body = (
        "setp.ge.u32 %p, %t, 32; @%p bra CONSUMER;"
        + PUT
        + """
        bar.arrive 1, 64; mov.u32 %r, %t; bra JOIN;
    CONSUMER:
        bar.sync 1, 64;
        sub.u32 %x, %t, 32; shl.b32 %x, %x, 2; mov.u32 %y, tile; add.u32 %x, %x, %y; ld.shared.u32 %r, [%x];
    JOIN:
    """
    )
    assert run(body, values, 64, SHARED) == [*range(32), *values[:32]]


def test_threads_that_left_are_not_waited_for() -> None:
    body = PUT + "mov.u32 %r, 7; setp.ge.u32 %p, %t, 40; @%p st.global.u32 [%out], %r; @%p exit; bar.sync 0; ld.shared.u32 %r, [tile];"
    values = random_bits(32, 64)
    assert run(body, values, 64, SHARED) == [values[0]] * 40 + [7] * 24


def test_fences_and_warp_barriers_are_accepted() -> None:
    body = (
        "membar.cta; membar.gl; membar.sys; fence.acq_rel.gpu; fence.sc.cta; fence.proxy.alias;"
        "bar.warp.sync -1; mov.u32 %x, 0xffffffff; bar.warp.sync %x; mov.u32 %r, %v;"
    )
    values = random_bits(32, WARP)
    assert run(body, values, WARP) == values


def test_a_warp_is_32_neighbours_in_a_block_of_any_shape() -> None:
    """Lanes count along x, then y, then z."""
    source = """
    .visible .entry k(.param .u64 out) {
        .reg .b32 %x, %y, %z, %i, %v; .reg .b64 %o, %a;
        mov.u32 %x, %tid.x; mov.u32 %y, %tid.y; mov.u32 %z, %tid.z;
        mad.lo.u32 %i, %z, 4, %y; mad.lo.u32 %i, %i, 5, %x;
        shfl.sync.bfly.b32 %v, %i, 1, 0x1f, -1;
        ld.param.u64 %a, [out]; mul.wide.u32 %o, %i, 4; add.u64 %a, %a, %o; st.global.u32 [%a], %v;
        ret;
    }
    """
    out = np.zeros(160, dtype=np.uint32)
    launch(source, "k", 1, (5, 4, 8), [out])
    assert out.tolist() == [i ^ 1 for i in range(160)]
