"""The device contract through the shim: a program under `langpu run` sees of a served device what it would see of a local one."""

import os
import subprocess
import sys

import pytest

from tests.helpers.device import GIVEN, ROOT
from tests.helpers.server import ServerProcess

pytestmark = pytest.mark.slow

DIFFERENT = {
    "test_graphs.py::test_captured_copies_read_and_write_host_memory_at_each_launch": "test_graphs_remotely.py has what holds",
}
"""Tests of the contract that do not hold remotely, and why."""


@pytest.mark.timeout(240)
def test_the_contract_holds_remotely() -> None:
    with ServerProcess() as server:
        langpu = os.path.join(os.path.dirname(sys.executable), "langpu")
        deselected = [f"--deselect=tests/contract/{name}" for name in DIFFERENT]
        tests = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "tests/contract", *deselected]
        done = subprocess.run(
            [langpu, "run", "--host", f"127.0.0.1:{server.port}", "--", *tests],
            cwd=ROOT,
            env={**os.environ, "LANGPU_TEST_DEVICE": GIVEN},
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-2_000:]
    assert " passed" in done.stdout
