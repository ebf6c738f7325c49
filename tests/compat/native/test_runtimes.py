"""Several CUDA runtimes in one process, as cuBLAS and cuFFT bring theirs; programs compiled at run time by NVRTC."""

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.compat.native.test_programs import RUN_TIMEOUT_S
from tests.helpers.nvcc import ENV_LIBRARIES
from tests.helpers.server import ServerProcess

SCRIPTS = Path(__file__).parent / "scripts"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(200)]


def find(pattern: str) -> list[Path]:
    """Libraries by name: in the environment's packages, in the usual CUDA folders and where ENV_LIBRARIES says."""
    packages = Path(sysconfig.get_paths()["purelib"]) / "nvidia"
    folders = [*packages.glob("*/lib"), *Path("/usr/local").glob("cuda*/lib64")]
    folders += [Path(name) for name in os.environ.get(ENV_LIBRARIES, "").split(":") if name]
    return sorted({path.resolve() for folder in folders for path in folder.glob(pattern)})


def run_script(server: ServerProcess, script: str, *arguments: str | Path) -> str:
    """What a script prints under `langpu run`; it must end well."""
    command = [sys.executable, "-m", "lanGPU.cli.main", "run", "--host", f"{server.host}:{server.port}", "--"]
    command += [sys.executable, str(SCRIPTS / script), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def test_one_runtime_alone_and_all_together(server: ServerProcess) -> None:
    runtimes = [*find("libcudart.so.12*"), *find("libcudart.so.13*")]
    if not runtimes:
        pytest.skip("no libcudart found")
    for runtime in runtimes:
        assert run_script(server, "runtimes.py", runtime) == "ok\n"
    assert run_script(server, "runtimes.py", *runtimes) == "ok\n"
    assert run_script(server, "runtimes.py", *reversed(runtimes)) == "ok\n"


def test_nvrtc_and_the_driver_api(server: ServerProcess) -> None:
    nvrtc = find("libnvrtc.so.1[23]")
    if not nvrtc:
        pytest.skip("no libnvrtc found")
    assert run_script(server, "nvrtc.py", nvrtc[-1]) == "ok\n"
