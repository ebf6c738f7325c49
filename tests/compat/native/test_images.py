"""Fatbins as nvcc makes them, compressed, mixed and damaged; the CUDA runtime static, shared, and twice in a process."""

from pathlib import Path

import pytest

from tests.compat.native.test_programs import run_remotely
from tests.helpers.nvcc import PROGRAMS, build, toolkit_libraries
from tests.helpers.server import ServerProcess

LIBRARIES = PROGRAMS.parent / "libraries"
IMAGES = LIBRARIES / "images.cu"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(400)]


def generate(*codes: str) -> list[str]:
    """nvcc's options for these images: compute_XX is PTX, sm_XX machine code."""
    return [f"-gencode=arch=compute_{code.removeprefix('compute_').removeprefix('sm_')},code={code}" for code in codes]


@pytest.mark.parametrize(
    ("options", "printed"),
    [
        (["-compress-mode=none"], "750 cudaSuccess"),
        (["-compress-mode=speed"], "750 cudaSuccess"),
        (["-compress-mode=balance"], "750 cudaSuccess"),
        (["-compress-mode=size"], "750 cudaSuccess"),
        (["-no-compress"], "750 cudaSuccess"),
        (["-G"], "750 cudaSuccess"),
        (generate("compute_75", "compute_80"), "750 cudaSuccess"),
        (generate("compute_80", "compute_75", "compute_89"), "750 cudaSuccess"),
        (generate("sm_75", "sm_90", "compute_80"), "800 cudaSuccess"),  # newer than the emulated device, and all there is
        (generate("sm_75", "sm_80", "sm_90"), "0 cudaErrorNoKernelImageForDevice"),
    ],
    ids=["none", "speed", "balance", "size", "no compress", "debug", "two", "three", "with cubins", "cubins only"],
)
def test_the_image_that_fits_runs(options: list[str], printed: str, nvcc: Path, built: Path, server: ServerProcess) -> None:
    name = "images" + "".join(c for c in "".join(options) if c.isalnum())[-60:]
    done = run_remotely(server, build(nvcc, IMAGES, built / name, *options))
    assert (done.returncode, done.stdout) == (0, printed + "\n"), done.stderr


@pytest.mark.parametrize("mode", ["none", "speed", "size"])
@pytest.mark.parametrize("where", [0.3, 0.6, 0.9])
def test_a_damaged_image_is_refused_and_the_session_lives(mode: str, where: float, nvcc: Path, built: Path, server: ServerProcess) -> None:
    program = bytearray(build(nvcc, IMAGES, built / f"damaged{mode}{where}", f"-compress-mode={mode}").read_bytes())
    magic = program.find(0xBA55ED50.to_bytes(4, "little"))  # facts of the format: lanGPU/driverapi/images.py
    header, size = int.from_bytes(program[magic + 6 : magic + 8], "little"), int.from_bytes(program[magic + 8 : magic + 16], "little")
    assert header == 16
    first = magic + header
    entry_header = int.from_bytes(program[first + 4 : first + 8], "little")
    start, length = first + entry_header, size - entry_header
    at = start + int(length * where)
    program[at : at + 24] = bytes(b ^ 0xA5 for b in program[at : at + 24])
    (built / "damaged").write_bytes(program)
    (built / "damaged").chmod(0o755)
    done = run_remotely(server, built / "damaged")
    assert done.returncode == 0, done.stderr
    number, _, error = done.stdout.strip().partition(" ")
    assert (number, error) in {
        ("0", "cudaErrorInvalidKernelImage"),
        ("0", "cudaErrorInvalidPtx"),
        ("0", "cudaErrorNotSupported"),  # the damage reads like an instruction that the emulator does not have
        ("750", "cudaSuccess"),  # it fell into a comment or padding
    }


@pytest.mark.parametrize("loading", ["LAZY", "EAGER"])
@pytest.mark.parametrize("cudart", ["static", "shared"])
def test_both_runtimes_and_both_ways_of_loading(cudart: str, loading: str, nvcc: Path, built: Path, server: ServerProcess) -> None:
    program = build(nvcc, PROGRAMS / "copies.cu", built / f"copies-{cudart}", "-cudart", cudart)
    done = run_remotely(server, program, CUDA_MODULE_LOADING=loading, LD_LIBRARY_PATH=str(toolkit_libraries(nvcc)))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr


@pytest.mark.parametrize("inner", ["static", "shared"])
@pytest.mark.parametrize("outer", ["static", "shared"])
def test_a_library_with_a_runtime_of_its_own(outer: str, inner: str, nvcc: Path, built: Path, server: ServerProcess) -> None:
    library = build(nvcc, LIBRARIES / "plus.cu", built / f"libplus-{inner}.so", "-shared", "-Xcompiler", "-fPIC", "-cudart", inner)
    program = build(nvcc, LIBRARIES / "two_runtimes.cu", built / f"two_runtimes-{outer}", "-cudart", outer, "-ldl")
    done = run_remotely(server, program, str(library), LD_LIBRARY_PATH=str(toolkit_libraries(nvcc)))
    assert (done.returncode, done.stdout) == (0, "ok\n"), done.stderr
