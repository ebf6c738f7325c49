"""cp.async and mbarrier: PTX ISA, "Asynchronous copy" and "mbarrier"."""

import numpy as np
import pytest

from tests.helpers.ptx import launch, run

COPY = """
.visible .entry k(.param .u64 in, .param .u64 out, .param .u32 count) {{
    .shared .align 16 .b8 tile[1024]; .reg .b32 %t, %s, %n, %z, %r<4>; .reg .b64 %p, %o; .reg .pred %ignore;
    mov.u32 %t, %tid.x; mov.u32 %z, tile; shl.b32 %s, %t, 4; add.u32 %s, %s, %z; mul.wide.u32 %o, %t, 16;
    mov.u32 %z, -1; st.shared.v4.b32 [%s], {{%z,%z,%z,%z}};
    ld.param.u64 %p, [in]; add.u64 %p, %p, %o; ld.param.u32 %n, [count]; setp.eq.u32 %ignore, %n, 0;
    {}
    cp.async.commit_group; cp.async.wait_group 0; cp.async.wait_all; bar.sync 0;
    ld.shared.v4.b32 {{%r0,%r1,%r2,%r3}}, [%s];
    ld.param.u64 %p, [out]; add.u64 %p, %p, %o; st.global.v4.b32 [%p], {{%r0,%r1,%r2,%r3}};
    ret;
}}
"""
DATA = np.random.default_rng(1).integers(1, 256, (32, 16)).astype(np.uint8)


@pytest.mark.parametrize(
    ("text", "size", "taken"),
    [
        ("cp.async.ca.shared.global [%s], [%p], 4;", 4, 4),
        ("cp.async.ca.shared::cta.global.L2::128B [%s], [%p], 8;", 8, 8),
        ("cp.async.cg.shared.global [%s], [%p], 16;", 16, 16),
        ("cp.async.cg.shared.global.L2::cache_hint [%s], [%p], 16, %o;", 16, 16),
        *((f"cp.async.ca.shared.global [%s], [%p], {size}, %n;", size, n) for size in (4, 8, 16) for n in (0, 1, 3, 4, size)),
        ("cp.async.cg.shared.global [%s], [%p], 16, %ignore;", 16, 0),
        ("cp.async.cg.shared.global [%s], [%p], 16, %ignore;", 16, 5),
    ],
)
def test_copy_and_fill(text: str, size: int, taken: int) -> None:
    out = np.zeros_like(DATA)
    launch(COPY.format(text), "k", 1, 32, [DATA, out, taken])
    if "ignore" in text:
        taken = 16 if taken else 0
    expected = np.full_like(DATA, 0xFF)
    expected[:, :size] = 0
    expected[:, :taken] = DATA[:, :taken]
    np.testing.assert_array_equal(out, expected)


def test_nothing_is_read_where_nothing_is_taken() -> None:
    """The usual way to copy the end of an array: addresses behind it with a size of 0."""
    out = np.zeros_like(DATA)
    body = "add.u64 %p, %p, 0x100000;" + "cp.async.cg.shared.global [%s], [%p], 16, %n;"
    launch(COPY.format(body), "k", 1, 32, [DATA, out, 0])
    assert not out.any()
    fault = run(COPY.format(body), "k", 1, 32, [DATA, out, 3])
    assert fault is not None
    assert fault.kind == "illegal address"


@pytest.mark.parametrize(
    ("place", "kind"),
    [("[%s], [%p+2]", "misaligned address"), ("[%s+2], [%p]", "misaligned address"), ("[%s+4096], [%p]", "illegal address")],
)
def test_bad_addresses(place: str, kind: str) -> None:
    fault = run(COPY.format(f"cp.async.ca.shared.global {place}, 4;"), "k", 1, 32, [DATA, np.zeros_like(DATA), 0])
    assert fault is not None
    assert fault.kind == kind


WAITS = {
    "state": ("mbarrier.try_wait.shared.b64 %done, [%bar], %state;", "mov.u32 %phase, 0;"),
    "test": ("mbarrier.test_wait.acquire.cta.shared::cta.b64 %done, [%bar], %state;", "mov.u32 %phase, 0;"),
    "parity": ("mbarrier.try_wait.parity.shared.b64 %done, [%bar], %phase;", "xor.b32 %phase, %phase, 1;"),
    "hint": ("mbarrier.try_wait.parity.shared::cta.b64 %done, [%bar], %phase, 1000;", "xor.b32 %phase, %phase, 1;"),
}


@pytest.mark.parametrize("wait", WAITS)
@pytest.mark.parametrize("noinc", [False, True])
def test_a_ring_of_values_behind_an_mbarrier(wait: str, noinc: bool) -> None:
    """96 threads hand a value to their neighbour five times; whoever reads too early gets an old one."""
    arrive = "cp.async.mbarrier.arrive.noinc.shared.b64 [%bar];" if noinc else "cp.async.mbarrier.arrive.shared.b64 [%bar];"
    text, turn = WAITS[wait]
    source = f"""
    .visible .entry k(.param .u64 out) {{
        .shared .align 8 .b64 bar; .shared .align 4 .b8 ring[384];
        .reg .b32 %t, %n, %v, %s, %next, %bar, %phase, %i, %base; .reg .b64 %p, %o, %state; .reg .pred %done, %first, %again;
        mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %bar, bar; mov.u32 %base, ring; mov.u32 %phase, 0; mov.u32 %i, 5;
        setp.eq.u32 %first, %t, 0; @%first mbarrier.init.shared.b64 [%bar], {192 if noinc else 96}; bar.sync 0;
        shl.b32 %s, %t, 2; add.u32 %s, %s, %base; add.u32 %next, %t, 1; rem.u32 %next, %next, %n; shl.b32 %next, %next, 2;
        add.u32 %next, %next, %base; mov.u32 %v, %t;
    ROUND:
        st.shared.u32 [%s], %v;
        {arrive}
        mbarrier.arrive.shared.b64 %state, [%bar];
    WAIT:
        {text}
        @!%done bra WAIT;
        {turn}
        ld.shared.u32 %v, [%next];
        bar.sync 0;
        sub.u32 %i, %i, 1; setp.ne.u32 %again, %i, 0; @%again bra ROUND;
        mul.wide.u32 %o, %t, 4; ld.param.u64 %p, [out]; add.u64 %p, %p, %o; st.global.u32 [%p], %v;
        ret;
    }}
    """
    out = np.zeros(96, np.uint32)
    launch(source, "k", 1, 96, [out])
    assert out.tolist() == [(t + 5) % 96 for t in range(96)]


def test_counts_drops_and_pending() -> None:
    source = """
    .visible .entry k(.param .u64 out) {
        .shared .align 8 .b64 bar; .reg .b32 %n; .reg .b64 %p, %a, %b, %c; .reg .pred %q;
        ld.param.u64 %p, [out];
        mbarrier.init.shared.b64 [bar], 5;
        mbarrier.arrive.shared.b64 %a, [bar], 2; mbarrier.pending_count.b64 %n, %a; st.global.u32 [%p], %n;
        mbarrier.arrive_drop.shared.b64 %b, [bar]; mbarrier.pending_count.b64 %n, %b; st.global.u32 [%p+4], %n;
        mbarrier.test_wait.shared.b64 %q, [bar], %b; selp.u32 %n, 1, 0, %q; st.global.u32 [%p+8], %n;
        mbarrier.arrive.shared.b64 %c, [bar], 2; mbarrier.pending_count.b64 %n, %c; st.global.u32 [%p+12], %n;
        mbarrier.test_wait.shared.b64 %q, [bar], %b; selp.u32 %n, 1, 0, %q; st.global.u32 [%p+16], %n;
        mbarrier.arrive.noComplete.shared.b64 %c, [bar], 1; mbarrier.pending_count.b64 %n, %c; st.global.u32 [%p+20], %n;
        mbarrier.inval.shared.b64 [bar];
        ret;
    }
    """
    out = np.full(6, 99, np.uint32)
    launch(source, "k", 1, 1, [out])
    assert out.tolist() == [5, 3, 0, 2, 1, 4]  # four left for the next phase, as one was dropped


@pytest.mark.parametrize(
    "text", ["mbarrier.init.shared.b64 [bar], 0;", "mbarrier.init.shared.b64 [bar], 1048576;", "mbarrier.arrive.shared.b64 _, [bar], 2;"]
)
def test_counts_that_cannot_be_are_a_fault(text: str) -> None:
    body = f".shared .align 8 .b64 bar; mbarrier.init.shared.b64 [bar], 1; {text} ret;"
    fault = run(f".visible .entry k() {{ {body} }}", "k", 1, 1, [])
    assert fault is not None
    assert fault.kind == "trap"


def test_dependent_grids_have_nothing_to_wait_for() -> None:
    launch(".visible .entry k() { griddepcontrol.wait; griddepcontrol.launch_dependents; ret; }", "k", 1, 1, [])
