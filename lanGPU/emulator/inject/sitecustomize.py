"""Loads the emulated CUDA driver into a Python program; `langpu emulate` puts this folder first in PYTHONPATH.

Not a part of the package: Python's `site` imports it by name, before the program. Then the sitecustomize that it hides, if any, runs.
A Python without lanGPU (a child process in another environment) goes on without a CUDA device.
"""

import importlib.machinery
import importlib.util
import os
import sys

_FOLDER = os.path.dirname(os.path.abspath(__file__))


def _run_the_hidden_one() -> None:
    """Runs the next sitecustomize on the path, which becomes `sitecustomize` as if we were not there."""
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = importlib.util.module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or os.curdir) != _FOLDER]
if importlib.util.find_spec("lanGPU") is not None:
    from lanGPU.emulator.program import start

    start()
_run_the_hidden_one()
