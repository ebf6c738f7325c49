"""Functions of the device runtime: their declarations, and results in registers; what they do is in tests/contract."""

import pytest

from lanGPU.emulator.ptx import parse_module
from lanGPU.errors import EmulatorUnsupportedError

HEADER = ".version 7.0\n.target sm_52\n.address_size 64\n"


def compiled(declaration: str, body: str) -> object:
    module = parse_module(
        f"{HEADER}{declaration}\n.visible .entry k() {{ .reg .b64 a, b; .reg .b32 r; mov.u64 a, 0; {body} ret; }}".encode()
    )
    return module.compile("k")


@pytest.mark.parametrize(
    ("declaration", "body"),
    [
        (".extern .func (.reg .b32 r) vprintf (.reg .b64 f, .reg .b64 a);", "call (r), vprintf, (a, b);"),
        (".extern .func (.param .b64 r) malloc (.param .b64 s);", "{ .param .b64 r0; call (r0), malloc, (a); ld.param.b64 b, [r0]; }"),
        (".extern .func free (.param .b64 p);", "call free, (a);"),
    ],
)
def test_arguments_and_results_may_be_registers(declaration: str, body: str) -> None:
    assert compiled(declaration, body)


@pytest.mark.parametrize(
    ("declaration", "body"),
    [
        (".extern .func (.param .b32 r) vprintf (.param .b32 f, .param .b64 a);", "call (r), vprintf, (r, a);"),
        (".extern .func (.param .b32 r) malloc (.param .b32 s);", "call (r), malloc, (r);"),
        (".extern .func free (.param .b64 p, .param .b64 q);", "call free, (a, a);"),
        (".extern .func cudaDeviceSynchronize ();", "call cudaDeviceSynchronize;"),
    ],
)
def test_what_the_device_runtime_does_not_have_is_refused_by_name(declaration: str, body: str) -> None:
    with pytest.raises(EmulatorUnsupportedError, match=r"vprintf|malloc|free|cudaDeviceSynchronize"):
        compiled(declaration, body)


def test_a_wrong_number_of_arguments_is_refused() -> None:
    with pytest.raises(EmulatorUnsupportedError, match="number of parameters"):
        compiled(".extern .func free (.param .b64 p);", "call free, (a, b);")
