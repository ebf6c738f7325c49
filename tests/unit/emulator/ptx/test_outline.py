"""Bad PTX is refused with the line it stands in; good PTX gives its outline without reading bodies."""

import time

import pytest

from lanGPU.emulator.ptx import PtxSyntaxError, parse_module

HEAD = ".version 8.0\n.target sm_75\n.address_size 64\n"
KERNEL = ".visible .entry k(.param .u64 out)\n{\n    .reg .b32 %r<4>;\n    mov.u32 %r1, 1;\n    ret;\n}\n"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        (".target sm_75\n", 1),
        (HEAD + "nonsense;\n", 4),
        (HEAD + KERNEL + "}\n", 10),
        (HEAD + ".visible .entry k()\n{\n    ret;\n", 5),
        (HEAD + ".global .align 4 .b8 x[4] = {1, 2, 3, 4, 5};\n", 4),
        (HEAD + ".global .wrong x;\n", 4),
        (HEAD + "/* a\n comment */ .global .b32\n;\n", 5),
    ],
)
def test_a_bad_module_names_its_line(text: str, line: int) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        parse_module(text.encode())
    assert caught.value.line == line


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("    bra NOWHERE;\n", 6),
        ("    mov.u32 %r1, %x9;\n", 6),
        ("    mov.u32 %r1, 1\n    ret;\n", 7),
        ("    .reg .b32 %r1;\n", 6),
        ("L:\nL:\n", 7),
        ("    { .reg .b32 %t;\n", 5),
        ("    ld.global.u32 %r1, [%r2;\n", 6),
        ("    // nothing\n\n    st.global.u32 [unknown], %r1;\n", 8),
    ],
)
def test_a_bad_body_names_its_line(body: str, line: int) -> None:
    text = HEAD + ".visible .entry k()\n{ .reg .b32 %r<4>;\n" + body + "}\n"
    with pytest.raises(PtxSyntaxError) as caught:
        parse_module(text.encode()).compile("k")
    assert caught.value.line == line


def test_what_stands_around_code_is_passed_over() -> None:
    text = (
        HEAD
        + '.file 1 "a.cu"\n.section .debug_info { .b8 1,2,3 .b32 0 }\n.pragma "nounroll";\n'
        + KERNEL.replace("    ret;", '    .loc 1 3 5\n    .pragma "nounroll";\n    { .reg .b32 %r1; mov.u32 %r1, 2; }\n    ret;')
    )
    module = parse_module(text.encode() + b"\0garbage behind the NUL")
    assert list(module.kernels) == ["k"]
    assert module.kernels["k"].params == [(0, 8)]
    module.compile("k")


def test_variables_and_parameters() -> None:
    text = HEAD + (
        ".global .align 8 .u64 table[2] = {first, first+4};\n.const .f32 half = 0f3F000000;\n.extern .global .b8 outside[];\n"
        ".global .align 4 .b32 first[3] = {1, -1, 0x10};\n"
        ".entry p(.param .u8 a, .param .u64 b, .param .align 16 .b8 c[20], .param .f32 d) .maxntid 128, 2, 1 { ret; }\n"
    )
    module = parse_module(text.encode())
    assert module.kernels["p"].params == [(0, 1), (8, 8), (16, 20), (36, 4)]
    assert module.kernels["p"].param_bytes == 40
    assert module.kernels["p"].max_threads == 256
    assert module.globals["table"].relocations == [(0, 8, "first", 0), (8, 8, "first", 4)]
    assert module.globals["first"].initial == b"\1\0\0\0\xff\xff\xff\xff\x10\0\0\0"
    assert (module.globals["half"].space, module.globals["half"].initial) == ("const", b"\0\0\0\x3f")
    assert module.globals["outside"].extern


@pytest.mark.slow
def test_a_huge_module_is_outlined_quickly() -> None:
    """Libraries ship modules of 20 MB of which one kernel is used."""
    body = "{\n    .reg .b32 %r<4>;\n" + "    add.s32 %r1, %r2, %r3;\n" * 8000 + "    ret;\n}\n"
    text = (HEAD + "".join(f".visible .entry k{i}()\n{body}" for i in range(90))).encode()
    assert len(text) > 15_000_000
    start = time.perf_counter()
    assert len(parse_module(text).kernels) == 90
    assert time.perf_counter() - start < 10  # a tenth of that on a quiet machine
