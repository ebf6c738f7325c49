"""Imports point one way (STYLE: pure core, thin shells), and what is pure stays free of clocks, threads, sockets and foreign calls."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).resolve().parents[2] / "lanGPU"

LAYERS: Final = (
    {"errors", "constants", "driverapi", "native"},
    {"wire", "store", "trust", "nvml"},
    {"consistency"},
    {"emulator", "discovery"},
    {"server", "client"},
    {"scheduler", "training"},
    {"cli"},
)
"""A part imports from its own layer and from those before it."""
RANK: Final = {part: rank for rank, layer in enumerate(LAYERS) for part in layer}
STRANGERS: Final = {("server", "client"), ("client", "server")}
"""The two sides of a network; what they share lies below them."""

PURE: Final = ("errors", "constants", "driverapi", "wire", "consistency")
IMPURE_MODULES: Final = {"asyncio", "socket", "threading", "ctypes", "time", "selectors", "subprocess", "multiprocessing"}


def module_name(path: Path) -> str:
    """`lanGPU.wire.frames` for lanGPU/wire/frames.py; a package's own name for its __init__.py."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, name: str, is_package: bool = False) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything a module imports, also inside functions; `from a import b` counts as a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = name.split(".") if is_package else name.split(".")[:-1]
                parents = parents[: len(parents) - (node.level - 1)]
                base = ".".join([*parents, base] if base else parents)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def part_of(name: str) -> str | None:
    """Which part of lanGPU a module belongs to; None for other packages and for lanGPU itself, which is below everything."""
    parts = name.split(".")
    return parts[1] if parts[0] == "lanGPU" and len(parts) > 1 and parts[1] in RANK else None


def broken_rules(source: str, name: str, is_package: bool = False) -> list[str]:
    """What the imports of one module break, a line each."""
    part = part_of(name)
    broken = []
    for line, imported in imports(source, name, is_package):
        other = part_of(imported)
        if part in RANK and other in RANK and part != other and (RANK[other] > RANK[part] or (part, other) in STRANGERS):
            broken.append(f"{name}:{line} imports {imported}, which is not below it")
        if part in PURE and imported.split(".")[0] in IMPURE_MODULES:
            broken.append(f"{name}:{line} imports {imported}, and {part} is pure")
    return broken


MODULES: Final = sorted(PACKAGE.rglob("*.py"))


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_keep_the_rules(path: Path) -> None:
    assert broken_rules(path.read_text(), module_name(path), path.name == "__init__.py") == []


def test_every_part_has_its_layer() -> None:
    parts = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.suffix == ".py" or any(path.rglob("*.py"))}
    assert parts - {"__init__", "__pycache__"} <= set(RANK)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("lanGPU.wire.frames", "import socket"),
        ("lanGPU.wire.frames", "def f():\n    from time import monotonic"),
        ("lanGPU.wire.frames", "import asyncio.events"),
        ("lanGPU.wire.frames", "from lanGPU.server import daemon"),
        ("lanGPU.wire.frames", "from lanGPU import cli"),
        ("lanGPU.wire.frames", "from ..client import ring"),
        ("lanGPU.client.ring", "import lanGPU.server.daemon"),
        ("lanGPU.server.daemon", "from lanGPU.client.layout import HEAD"),
        ("lanGPU.emulator.library", "from lanGPU.server.daemon import serve"),
        ("lanGPU.native.elf", "from lanGPU.wire import records"),
    ],
)
def test_the_rules_can_be_broken(name: str, source: str) -> None:
    assert broken_rules(source, name)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("lanGPU.wire.frames", "from lanGPU import constants, __version__"),
        ("lanGPU.wire.frames", "import struct\nfrom . import records"),
        ("lanGPU.client.ring", "import time\nfrom lanGPU.wire.connection import Connection"),
        ("lanGPU.cli.run", "from lanGPU.client.launcher import run\nfrom lanGPU.server import daemon"),
    ],
)
def test_the_rules_allow_what_they_should(name: str, source: str) -> None:
    assert broken_rules(source, name) == []


def test_help_loads_nothing_heavy() -> None:
    """So `langpu --help` and errors in the command line are quick."""
    script = (
        "import sys\nfrom lanGPU.cli.main import run_group\nrun_group(['--help']); run_group(['run', '--help'])\n"
        "print('LOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    loaded = done.stdout.split("LOADED")[1].split()
    assert "click" in loaded
    assert not {"rich", "numpy", "llvmlite", "cuda", "asyncio", "uvloop", "msgpack", "psutil"} & set(loaded)
