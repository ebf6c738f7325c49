"""The scripts in tests/compat/frameworks: which there are, what they need, and how each runs on an emulated device, here and remotely."""

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
SCRIPTS = ROOT / "tests" / "compat" / "frameworks"
RUN_TIMEOUT_S = 300
LOCAL = "langpu emulate"
REMOTE = "langpu run"
WAYS = (LOCAL, REMOTE)
PACKAGES = {
    "cuda_core": ("cuda-core", "cuda-bindings", "nvidia-cuda-nvrtc", "numpy"),
    "cupy": ("cupy-cuda13x", "nvidia-cuda-nvrtc", "numpy"),
    "numba": ("numba-cuda", "numba", "nvidia-cuda-nvrtc", "nvidia-nvvm", "numpy"),
    "tinygrad": ("tinygrad", "nvidia-cuda-nvrtc", "numpy"),
}
"""Folder of scripts → the distributions they need, the framework's first."""
SETTINGS = {
    "cupy": {"CUPY_COMPILE_WITH_PTX": "1"},  # else it compiles machine code, which the emulator cannot run
    "numba": {"NUMBA_DISABLE_PERFORMANCE_WARNINGS": "1", "NUMBA_CUDA_LOW_OCCUPANCY_WARNINGS": "0"},
    "tinygrad": {"DEV": "CUDA"},  # else it may take the processor without a word
}
"""Environment that a framework needs here."""


@dataclass(frozen=True, slots=True)
class Script:
    """One script of a framework; it checks its own numbers and then prints ok."""

    framework: str
    path: Path

    @property
    def name(self) -> str:
        return f"{self.framework}/{self.path.stem}"

    @property
    def summary(self) -> str:
        """What it runs: the first line of its docstring, without the framework's name."""
        return self.path.read_text(encoding="utf-8").partition("\n")[0].strip('"').partition(": ")[2]


def scripts() -> list[Script]:
    """All of them, by name."""
    return [Script(path.parent.name, path) for path in sorted(SCRIPTS.glob("*/*.py"))]


def versions(framework: str) -> dict[str, str]:
    """Version of each distribution the framework's scripts need; empty for one that is not installed."""
    found = {}
    for name in PACKAGES[framework]:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = ""
    return found


def missing(framework: str) -> list[str]:
    """The distributions that are not installed."""
    return [name for name, version in versions(framework).items() if not version]


def run_script(script: Script, way: str, address: str = "") -> str:
    """Runs it one of the two ways, REMOTE against the server at `address`.

    Returns: empty if it passed, else why not: its last line on stderr, or what else went wrong.
    """
    options = ["emulate"] if way == LOCAL else ["run", "--host", address]
    command = [sys.executable, "-m", "lanGPU.cli.main", *options, "--", sys.executable, str(script.path)]
    with tempfile.TemporaryDirectory(prefix="langpu-compat-") as cache:
        settings = {
            "CUPY_CACHE_DIR": cache,
            "NUMBA_CACHE_DIR": cache,
            "CACHEDB": f"{cache}/tinygrad.db",
            **SETTINGS.get(script.framework, {}),
        }
        environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False, env=environment, cwd=cache)
        except subprocess.TimeoutExpired:
            return f"took more than {RUN_TIMEOUT_S} s"
    if done.returncode == 0 and done.stdout.splitlines()[-1:] == ["ok"]:
        return ""
    complaint = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    return complaint[-1] if complaint else f"exit code {done.returncode}, and not a word"
