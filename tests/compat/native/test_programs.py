"""Programs built by nvcc for a virtual architecture, through `langpu run` on an emulated device; each checks its numbers, then says ok."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.nvcc import PROGRAMS, Program, build, find_header, read_program
from tests.helpers.server import ServerProcess

RUN_TIMEOUT_S = 100
WAITING: dict[str, str] = {}
"""Programs that cannot pass yet, with the reason."""
PROGRAM_LIST = [read_program(source) for source in sorted(PROGRAMS.glob("*.cu"))]


def cases(devices: int) -> list[object]:
    """One case for each program for so many devices; strictly expected to fail where it must."""
    marks = {name: pytest.mark.xfail(strict=True, reason=reason) for name, reason in WAITING.items()}
    chosen = [program for program in PROGRAM_LIST if int(program.environment.get("LANGPU_EMULATE_DEVICES", 1)) == devices]
    return [pytest.param(program, id=program.name, marks=[marks[program.name]] if program.name in marks else []) for program in chosen]


def run_remotely(server: ServerProcess, program: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The program under `langpu run` against `server`."""
    command = [sys.executable, "-m", "lanGPU.cli.main", "run", "--host", f"{server.host}:{server.port}", "--", str(program), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False, env={**os.environ, **environment})


def check(program: Program, nvcc: Path, built: Path, server: ServerProcess) -> None:
    """Builds and runs it; the last word must be ok."""
    options = list(program.options)
    if program.header:
        folder = find_header(nvcc, program.header)
        if folder is None:
            pytest.skip(f"no {program.header} found")
        options.append(f"-I{folder}")
    done = run_remotely(server, build(nvcc, program.source, built / program.name, *options), **program.environment)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["ok"]), f"{done.stdout}\n{done.stderr}"


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("program", cases(1))
def test_a_native_program_computes_what_it_should(program: Program, nvcc: Path, built: Path, server: ServerProcess) -> None:
    check(program, nvcc, built, server)


@pytest.mark.slow
def test_kernels_print_among_what_the_program_prints(nvcc: Path, built: Path, server: ServerProcess) -> None:
    program = next(p for p in PROGRAM_LIST if p.name == "kernel_printf")
    done = run_remotely(server, build(nvcc, program.source, built / program.name))
    assert done.stdout.splitlines() == [
        "before",
        "thread 0 of 2: even  0.00 A ff 1099511627776 %|42    |-00042",
        "thread 1 of 2: odd  1.50 B 100 1099511627776 %|42    |-00042",
        "between",
        "thread 0 of 1: even  0.00 A ff 1099511627776 %|42    |-00042",
        "ok",
    ]


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("program", cases(2))
def test_a_native_program_uses_two_devices(program: Program, nvcc: Path, built: Path, server_of_two: ServerProcess) -> None:
    check(program, nvcc, built, server_of_two)
