"""nvidia-ml-py, unchanged, on two devices: remotely and under `langpu emulate` it hears the same."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.device import ROOT
from tests.helpers.server import ServerProcess

pytest.importorskip("pynvml", reason="nvidia-ml-py is not installed")
pytestmark = pytest.mark.slow

PROGRAM = str(Path(__file__).with_name("pynvml_program.py"))
ENVIRONMENT = {"LANGPU_EMULATE_DEVICES": "2", "LANGPU_EMULATE_MEMORY": str(256 << 20)}


def _run(*words: str) -> tuple[dict[str, Any], str]:
    langpu = os.path.join(os.path.dirname(sys.executable), "langpu")
    command = [langpu, *words, "--", sys.executable, PROGRAM]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.mark.timeout(200)
def test_the_same_remotely_and_in_the_process() -> None:
    local, _ = _run("emulate")
    with ServerProcess(env=ENVIRONMENT) as server:
        remote, said = _run("run", "--host", f"127.0.0.1:{server.port}")
    assert remote == local
    assert said.count("nvmlDeviceGetMigMode is not supported") == 1
    assert remote["before"] == remote["after"] == "NVMLError_Uninitialized"
    assert remote["DeviceGetCount"] == "2"
    assert remote["SystemGetDriverVersion"].endswith("-emulated")
    first, second = remote["device 0"], remote["device 1"]
    assert first["UUID"] != second["UUID"]
    assert first["same"] == [0, 0]
    assert second["same"] == [1, 1]
    assert f"total: {256 << 20} B" in second["MemoryInfo"]
    assert f"total: {256 << 20} B" in second["memory v2"]
    assert "busId: 00000000:E1:00.0" in second["PciInfo"]
    assert first["clocks"] == ["1000"] * 4 + ["NVMLError_InvalidArgument"]
    for name in ("PowerUsage", "FanSpeed", "Serial", "MigMode", "set", "fields", "BAR1MemoryInfo"):
        assert first[name] == "NVMLError_NotSupported", name
    assert first["temperature"] == ["NVMLError_NotSupported"] * 2
    assert remote["bad"] == [
        "NVMLError_InvalidArgument",
        "NVMLError_NotFound",
        "NVMLError_InvalidArgument",
        "NVMLError_NotFound",
        "NVMLError_InvalidArgument",
    ]
