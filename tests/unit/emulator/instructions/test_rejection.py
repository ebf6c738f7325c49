"""What is not PTX, or not handled, is refused by name: an ignored modifier would be a wrong number.

Forms that NVIDIA's assembler refuses although their meaning is plain (`and.u32`) are not listed: accepting them harms nobody.
"""

import numpy as np
import pytest

from lanGPU.errors import LanGPUError
from tests.helpers.ptx import launch

KERNEL = """
.visible .entry k(.param .u64 out) {
    .reg .pred p, q; .reg .b16 h, i; .reg .b32 r, s, t; .reg .u32 u, v; .reg .f32 f, g; .reg .b64 w, x; .reg .f64 d, e;
    mov.u32 r, 1; mov.u32 s, 2; mov.f32 f, 0f3F800000; mov.u64 w, 3;
    ld.param.u64 x, [out];
    INSTRUCTION
    st.global.u32 [x], r;
    ret;
}
"""

NOT_PTX = [
    "frobnicate.u32 r, s;",
    "add.frob.u32 r, r, s;",
    "add.u32.frob r, r, s;",
    "add.u33 r, r, s;",
    "add.u32 r, r;",
    "add.u32 r, r, s, t;",
    "add.u32 r, r, undeclared;",
    "add.u32 r, r, %nosuchregister;",
    "add.sat.u32 r, r, s;",
    "add.rn.u32 r, r, s;",
    "add.ftz.u32 r, r, s;",
    "add.ftz.f64 d, d, e;",
    "add.f8 f, f, g;",
    "mul.u32 r, r, s;",
    "mul.wide.u64 w, w, x;",
    "mad.u32 r, r, s, t;",
    "fma.f32 f, f, f, g;",
    "fma.rni.f32 f, f, f, g;",
    "div.f64 d, d, e;",
    "sqrt.f64 d, e;",
    "setp.zz.u32 p, r, s;",
    "setp.lo.s32 p, r, s;",
    "setp.ltu.u32 p, r, s;",
    "setp.lt.b32 p, r, s;",
    "selp.b32 r, r, s, t;",
    "cvt.s32.f32 r, f;",
    "cvt.f32.s32 f, r;",
    "cvt.f32.f64 f, d;",
    "cvt.rni.s32.u32 r, s;",
    "cvt.rn.s32.f32 r, f;",
    "cvt.xx.s32.f32 r, f;",
    "ld.global.u32 r;",
    "ld.frob.u32 r, [x];",
    "ld.global.frob.u32 r, [x];",
    "ld.global.v3.u32 {r, s, t}, [x];",
    "ld.global.v2.u32 {r, s, t}, [x];",
    "ld.global.u32 r, [nowhere];",
    "st.const.u32 [x], r;",
    "st.global.u32 r, [x];",
    "mov.u32 r, w;",
    "mov.b64 {r, s, t}, w;",
    "atom.global.frob.u32 r, [x], s;",
    "atom.global.cas.u32 r, [x], s;",
    "atom.const.add.u32 r, [x], s;",
    "red.global.cas.b32 [x], r, s;",
    "shfl.sync.sideways.b32 r, s, 1, 31, -1;",
    "shfl.sync.up.b64 w, w, 1, 31, -1;",
    "vote.sync.most.pred p, q, -1;",
    "bar.frob 0;",
    "bra NOWHERE;",
    "call nowhere;",
    "lop3.b32 r, r, s, t;",
    "lop3.b32 r, r, s, t, 256;",
    "prmt.b32.zzz r, r, s, t;",
    "@r mov.u32 r, s;",
    "mov.u32 r, s",
    "mov.u32 r, 0x;",
    "mov.f32 f, 0f3F80;",
    "LABEL: LABEL: mov.u32 r, s;",
    "{ mov.u32 r, s;",
    "}",
]


@pytest.mark.parametrize("instruction", NOT_PTX)
def test_it_is_refused_and_named(instruction: str) -> None:
    out = np.zeros(1, dtype=np.uint32)
    with pytest.raises(LanGPUError) as caught:
        launch(KERNEL.replace("INSTRUCTION", instruction), "k", 1, 1, [out])
    assert "line" in str(caught.value)
    assert out.tolist() == [0]


def test_the_kernel_itself_runs() -> None:
    """Without the instruction, so that it is the instruction that was refused above."""
    out = np.zeros(1, dtype=np.uint32)
    launch(KERNEL.replace("INSTRUCTION", ""), "k", 1, 1, [out])
    assert out.tolist() == [1]


def test_the_line_is_that_of_the_instruction() -> None:
    with pytest.raises(LanGPUError, match=r"line 10\b"):
        launch(KERNEL.replace("INSTRUCTION", "\nfrobnicate.u32 r, s;"), "k", 1, 1, [np.zeros(1, dtype=np.uint32)])


@pytest.mark.parametrize("text", ["", "\0", "no ptx at all", ".version", ".version 8.0\n.target sm_80\n.address_size 16\n", "\ufeff\x7f"])
def test_a_module_that_is_none(text: str) -> None:
    from lanGPU.emulator.ptx import parse_module

    with pytest.raises(LanGPUError):
        parse_module(text.encode())
