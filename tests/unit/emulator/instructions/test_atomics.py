"""atom and red, alone and under contention: PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red"."""

from collections.abc import Callable

import numpy as np
import pytest

from tests.helpers import ieee
from tests.helpers.ieee import BF16, F16, F32, F64
from tests.helpers.operands import combine, integers, random_floats, to_signed
from tests.helpers.ptx import WIDTHS, launch

FORMATS = {"f16": F16, "bf16": BF16, "f32": F32, "f64": F64}
Rule = Callable[[int, int, int], int]

ENTRY = """
.visible .entry k(.param .u64 mem, .param .u64 b, .param .u64 c, .param .u64 old) {
    .shared .align 8 .b8 tile[2048];
    .reg .b32 %i, %s; .reg .b64 %o, %m, %q; .reg .bWIDTH %vb, %vc, %vd, %init;
    mov.u32 %i, %tid.x; mul.wide.u32 %o, %i, 8;
    ld.param.u64 %q, [b]; add.u64 %q, %q, %o; ld.global.bWIDTH %vb, [%q];
    ld.param.u64 %q, [c]; add.u64 %q, %q, %o; ld.global.bWIDTH %vc, [%q];
    ld.param.u64 %m, [mem]; add.u64 %m, %m, %o;
    BODY
    ret;
}
"""
GLOBAL = "OPERATION %vd, [%m], OPERANDS; ld.param.u64 %q, [old]; add.u64 %q, %q, %o; st.global.bWIDTH [%q], %vd;"
SHARED = """
    shl.b32 %s, %i, 3; mov.u32 %vs, tile; add.u32 %s, %s, %vs;
    ld.global.bWIDTH %init, [%m]; st.shared.bWIDTH [%s], %init;
    OPERATION %vd, [%s], OPERANDS;
    ld.param.u64 %q, [old]; add.u64 %q, %q, %o; st.global.bWIDTH [%q], %vd;
    ld.shared.bWIDTH %init, [%s]; st.global.bWIDTH [%m], %init;
"""
REDUCE = "OPERATION [%m], OPERANDS;"


def integer_rules(kind: str) -> dict[str, Rule]:
    width = WIDTHS[kind]

    def key(x: int) -> int:
        return to_signed(x, width) if kind[0] == "s" else x

    rules: dict[str, Rule] = {
        "add": lambda a, b, c: a + b,
        "min": lambda a, b, c: min(a, b, key=key),
        "max": lambda a, b, c: max(a, b, key=key),
    }
    if kind[0] == "b":
        rules = {
            "and": lambda a, b, c: a & b,
            "or": lambda a, b, c: a | b,
            "xor": lambda a, b, c: a ^ b,
            "exch": lambda a, b, c: b,
            "cas": lambda a, b, c: c if a == b else a,
        }
    if kind == "u32":
        rules["inc"] = lambda a, b, c: 0 if a >= b else a + 1
        rules["dec"] = lambda a, b, c: b if a == 0 or a > b else a - 1
    if kind == "s64":
        del rules["add"]  # add has .u64 only
    return rules


INTEGER_CASES = [(name, kind, rule) for kind in ("u32", "s32", "b32", "u64", "s64", "b64") for name, rule in integer_rules(kind).items()]
FORMS = [
    ("atom", ".global"),
    ("atom", ""),
    ("atom", ".shared"),
    ("atom.relaxed.gpu", ".global"),
    ("atom.acq_rel.sys", ".global"),
    ("red", ".global"),
]


def run_case(prefix: str, space: str, name: str, kind: str, values: list[list[int]], more: str = "") -> tuple[list[int], list[int] | None]:
    """Memory after the operation, and what it returned (None for red), for one thread an element."""
    width = WIDTHS[kind]
    template = REDUCE if prefix.startswith("red") else SHARED if space == ".shared" else GLOBAL
    body = template.replace("OPERATION", f"{prefix}{space}.{name}{more}.{kind}").replace("OPERANDS", "%vb, %vc" if name == "cas" else "%vb")
    source = ENTRY.replace("BODY", body).replace(".reg .b32 %i, %s;", ".reg .b32 %i, %s, %vs;").replace("WIDTH", str(width))
    memory, b, c = (np.array(column, dtype=np.uint64) for column in values)
    old = np.zeros_like(memory)
    launch(source, "k", 1, len(memory), [memory, b, c, old])
    mask = (1 << width) - 1
    return [x & mask for x in memory.tolist()], None if prefix.startswith("red") else [x & mask for x in old.tolist()]


@pytest.mark.parametrize(("prefix", "space"), FORMS)
@pytest.mark.parametrize(("name", "kind", "rule"), INTEGER_CASES, ids=lambda x: x if isinstance(x, str) else "")
def test_integer_atomic(prefix: str, space: str, name: str, kind: str, rule: Rule) -> None:
    if prefix == "red" and name in ("exch", "cas"):
        return  # red has neither
    width = WIDTHS[kind]
    values = combine(integers(width)[:12], 3, limit=200)
    values[1][::3] = values[0][::3]  # so that cas often finds what it compares with
    after, old = run_case(prefix, space, name, kind, values)
    mask = (1 << width) - 1
    assert after == [rule(a, b, c) & mask for a, b, c in zip(*values, strict=True)]
    assert old is None or old == values[0]


@pytest.mark.parametrize(("prefix", "space"), [("atom", ".global"), ("atom", ".shared"), ("red", ".global")])
@pytest.mark.parametrize(("kind", "more"), [("f32", ""), ("f64", ""), ("f16", ".noftz"), ("bf16", ".noftz"), ("f16x2", ".noftz")])
def test_float_atomic_add(prefix: str, space: str, kind: str, more: str) -> None:
    form = FORMATS[kind.removesuffix("x2")]
    count = 128
    values = [random_floats(form, count, seed, 3) for seed in (1, 2, 3)]
    if kind.endswith("x2"):
        values = [[x | y << 16 for x, y in zip(column, reversed(column), strict=True)] for column in values]
    after, old = run_case(prefix, space, "add", kind, values, more)

    def one(a: int, b: int) -> int:
        return ieee.encode(ieee.add(ieee.decode(a, form), ieee.decode(b, form)), form)

    if kind.endswith("x2"):
        expected = [one(a & 0xFFFF, b & 0xFFFF) | one(a >> 16, b >> 16) << 16 for a, b in zip(values[0], values[1], strict=True)]
    else:
        expected = [one(a, b) for a, b in zip(values[0], values[1], strict=True)]
    assert after == expected
    assert old is None or old == values[0]


def test_16_bit_compare_and_swap() -> None:
    values = [[1, 2, 0xFFFF, 0], [1, 3, 0xFFFF, 1], [7, 8, 9, 10]]
    after, old = run_case("atom", ".global", "cas", "b16", values)
    assert after == [7, 2, 9, 0]
    assert old == values[0]


COUNTER = """
.visible .entry k(.param .u64 mem, .param .u64 seen) {
    .shared .align 4 .u32 tile; .reg .pred %first; .reg .b32 %i, %n, %c, %v, %t; .reg .b64 %m, %q, %o;
    ld.param.u64 %m, [mem]; ld.param.u64 %q, [seen];
    mov.u32 %t, %tid.x; mov.u32 %n, %ntid.x; mov.u32 %c, %ctaid.x; mad.lo.u32 %i, %c, %n, %t;
    setp.eq.u32 %first, %t, 0; @%first st.shared.u32 [tile], 0; bar.sync 0;
    atom.shared.add.u32 %v, [tile], 1;
    atom.global.add.u32 %v, [%m], 1; mul.wide.u32 %o, %v, 4; add.u64 %q, %q, %o; st.global.u32 [%q], %i;
    red.global.max.u32 [%m+4], %i;
    red.global.or.b32 [%m+8], %t;
    atom.global.inc.u32 %v, [%m+12], 9;
    bar.sync 0;
    @%first ld.shared.u32 %v, [tile];
    @%first red.global.add.u32 [%m+16], %v;
    ret;
}
"""


def test_no_update_is_lost_under_contention() -> None:
    """All threads of all blocks, on all cores, count on the same words; each number is drawn once."""
    blocks, threads = 64, 128
    memory = np.zeros(5, dtype=np.uint32)
    seen = np.full(blocks * threads, 0xFFFFFFFF, dtype=np.uint32)
    launch(COUNTER, "k", blocks, threads, [memory, seen])
    total = blocks * threads
    assert memory.tolist() == [total, total - 1, threads - 1, total % 10, total]
    assert sorted(seen.tolist()) == list(range(total))


SPIN_LOCK = """
.visible .entry k(.param .u64 mem) {
    .reg .pred %p; .reg .b32 %v; .reg .b64 %m;
    ld.param.u64 %m, [mem];
    mov.u32 %v, %tid.x; setp.ne.u32 %p, %v, 0; @%p bra DONE;
TRY:
    atom.global.cas.b32 %v, [%m], 0, 1; setp.ne.u32 %p, %v, 0; @%p bra TRY;
    ld.volatile.global.u32 %v, [%m+4]; add.u32 %v, %v, 1; st.volatile.global.u32 [%m+4], %v;
    membar.gl;
    atom.global.exch.b32 %v, [%m], 0;
DONE:
    ret;
}
"""


def test_a_spin_lock_between_blocks_excludes() -> None:
    memory = np.zeros(2, dtype=np.uint32)
    launch(SPIN_LOCK, "k", 200, 32, [memory])
    assert memory.tolist() == [0, 200]
