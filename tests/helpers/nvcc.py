"""Finds nvcc and builds the programs of tests/compat/native.

A program's first lines say how: ``// build: OPTIONS``, ``// run: NAME=VALUE ...``, ``// needs: HEADER`` (of a package beside the toolkit).
"""

import os
import re
import shutil
import subprocess
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from lanGPU.driverapi import exports

PROGRAMS: Final = Path(__file__).parents[1] / "compat" / "native" / "programs"
ARCHITECTURE: Final = "compute_75"
"""A virtual architecture, the lowest of CUDA 13: the program carries PTX and no cubin."""
ENV_LIBRARIES: Final = "LANGPU_TEST_CUDA_LIBRARIES"
"""More folders, with colons between, in which to look for NVIDIA's libraries; headers in `include` beside them."""
BUILD_TIMEOUT_S: Final = 300.0
DIRECTIVE: Final = re.compile(r"^// (build|run|needs): (.*)$")


def find_nvcc() -> Path | None:
    """nvcc in PATH, else in CUDA_HOME or CUDA_PATH, else where CUDA's own packages put it."""
    if found := shutil.which("nvcc"):
        return Path(found)
    homes = [Path(os.environ[name]) for name in ("CUDA_HOME", "CUDA_PATH") if name in os.environ]
    homes += [*sorted(Path("/usr/local").glob("cuda*"), reverse=True), Path("/opt/cuda")]
    return next((home / "bin" / "nvcc" for home in homes if (home / "bin" / "nvcc").is_file()), None)


def toolkit_libraries(nvcc: Path) -> Path:
    """The folder with libcudart.so of nvcc's toolkit."""
    home = nvcc.resolve().parent.parent
    candidates = [home / "lib64", *home.glob("targets/*/lib"), home / "lib"]
    if which := shutil.which("nvcc"):  # a script that calls the real one elsewhere
        candidates += [Path(which).parent.parent / "lib64", Path(which).parent.parent / "cuda" / "lib64"]
    return next((folder for folder in candidates if (folder / "libcudart.so").exists()), candidates[0])


@dataclass(frozen=True)
class Program:
    """A source file and what its directives ask for."""

    source: Path
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    header: str = ""

    @property
    def name(self) -> str:
        return self.source.stem


def read_program(source: Path) -> Program:
    """The directives in a source file's first lines."""
    options: list[str] = []
    environment: dict[str, str] = {}
    header = ""
    for line in source.read_text().splitlines():
        if not line.startswith("//"):
            break
        match = DIRECTIVE.match(line)
        if match is None:
            continue
        if match[1] == "build":
            options += match[2].split()
        elif match[1] == "run":
            environment.update(word.split("=", 1) for word in match[2].split())  # type: ignore[arg-type]
        else:
            header = match[2]
    return Program(source, tuple(options), environment, header)


def find_header(nvcc: Path, name: str) -> Path | None:
    """The folder of a header: of the toolkit, of this environment's packages or beside the folders that ENV_LIBRARIES names."""
    folders = [toolkit_libraries(nvcc).parent / "include", *(Path(sysconfig.get_paths()["purelib"]) / "nvidia").glob("*/include")]
    folders += [Path(folder).parent / "include" for folder in os.environ.get(ENV_LIBRARIES, "").split(":") if folder]
    return next((folder for folder in folders if (folder / name).exists()), None)


def link_with_driver(target: Path) -> list[str]:
    """Options that link with libcuda.so.1 where no driver is installed: a library of its names, made beside `target`."""
    stub = target.parent / "libcuda.so.1"
    if not stub.exists():
        names = "".join(f".globl {name}\n.type {name}, @function\n{name}:\n" for name in exports.export_names())
        command = ["gcc", "-shared", "-nostdlib", "-Wl,-soname,libcuda.so.1", "-x", "assembler", "-", "-o", str(stub)]
        done = subprocess.run(command, input=f".text\n{names}ret\n", capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
        assert done.returncode == 0, done.stderr
    return [f"-L{stub.parent}", "-l:libcuda.so.1"]


def build(nvcc: Path, source: Path, target: Path, *options: str) -> Path:
    """Compiles `source`; AssertionError with the compiler's words when that fails."""
    architecture = [] if any(option.startswith(("-arch", "-gencode")) for option in options) else [f"-arch={ARCHITECTURE}"]
    words = [word for option in options for word in (link_with_driver(target) if option == "-lcuda" else [option])]
    command = [str(nvcc), "-std=c++17", *architecture, str(source), "-o", str(target), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"
    return target
