"""Bodies against the signatures of cuda.h and the API table."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from lanGPU.driverapi.exports import export_names
from lanGPU.driverapi.signatures import SIGNATURES
from lanGPU.driverapi.table import ROWS
from lanGPU.emulator.driver import bodies, coverage
from lanGPU.emulator.driver.registry import Body, Needs
from lanGPU.emulator.library import argument_type, body_of

ROOT = Path(__file__).resolve().parents[4]

POINTER_SIZED = {
    "CUstreamCallback",
    "CUmemLocation",
    "size_t",
    "CUdeviceptr",
    "unsigned long long",
    "cuuint64_t",
    "CUcontext",
    "CUmodule",
    "CUfunction",
    "CUkernel",
    "CUlibrary",
    "CUstream",
    "CUevent",
    "CUgraph",
    "CUgraphNode",
    "CUgraphExec",
    "CUmemoryPool",
    "CUmemGenericAllocationHandle",
    "CUlinkState",
    "CUhostFn",
    "CUoccupancyB2DSize",
    "CUuserObject",
    "CUarray",
    "CUmipmappedArray",
    "CUtexObject",
    "CUsurfObject",
}
"""By-value types of 8 bytes that bodies meet. Everything else must be known as smaller: a register's upper half is not defined."""


@pytest.mark.parametrize("body", bodies().values(), ids=lambda body: body.symbol)
def test_a_body_takes_what_cuda_h_declares(body: Body) -> None:
    own = 2 if body.needs is Needs.CONTEXT else 1
    declared = SIGNATURES[body.symbol].params
    assert len(inspect.signature(body.function).parameters) - own == len(declared)


def test_types_are_taken_in_their_size() -> None:
    unknown = {
        c_type
        for body in bodies().values()
        for c_type, _ in SIGNATURES[body.symbol].params
        if not c_type.endswith("*") and c_type not in POINTER_SIZED and argument_type(c_type)(-1).value == 2**64 - 1
    }
    assert unknown == set()


def test_every_name_finds_the_body_of_its_row() -> None:
    found = bodies()
    reached = {body.symbol for name in export_names() if (body := body_of(name, found)) is not None}
    assert reached == set(found)
    assert body_of("cuLaunchKernel_ptsz", found) is found["cuLaunchKernel"]
    assert body_of("cuMemcpyHtoD_v2_ptds", found) is found["cuMemcpyHtoD_v2"]
    assert body_of("cuMemAlloc", found) is None  # the ABI of 32-bit pointers


def test_coverage_speaks_of_every_row() -> None:
    covered = coverage()
    assert covered.keys() == {row.name for row in ROWS}
    assert sum(covered.values()) > 0.9 * len(covered)


def test_the_page_is_up_to_date() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "gen_emulator_docs.py", "--check"], capture_output=True, text=True, timeout=60, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
