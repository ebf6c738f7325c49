"""`langpu smi` against emulated servers."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from lanGPU.errors import ConnectError
from tests.helpers.device import ROOT
from tests.helpers.server import ServerProcess

pytestmark = pytest.mark.slow

TOTAL = 256 << 20
ENVIRONMENT = {"LANGPU_EMULATE_DEVICES": "2", "LANGPU_EMULATE_MEMORY": str(TOTAL)}
WAITS = """
import ctypes, sys
n = ctypes.CDLL("libnvidia-ml.so.1")
assert n.nvmlInit_v2() == 0
print("up", flush=True)
sys.stdin.read()
"""


def _langpu(*words: str) -> list[str]:
    return [os.path.join(os.path.dirname(sys.executable), "langpu"), *words]


def _smi(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(_langpu("smi", *words), cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def _json(*words: str) -> dict[str, Any]:
    done = _smi("--json", *words)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(120)
def test_what_it_shows() -> None:
    with ServerProcess(env=ENVIRONMENT) as server:
        where = f"127.0.0.1:{server.port}"
        found = _json("--host", where)
        assert found["schema"] == 1
        (entry,) = found["servers"]
        assert (entry["port"], entry["reachable"], entry["error"], entry["sessions"]) == (server.port, True, None, [])
        said = entry["server"]
        assert said["emulated"] is True
        assert said["driver_version"].endswith("-emulated")
        assert [device["index"] for device in said["devices"]] == [0, 1]
        second = said["devices"][1]
        assert second["memory"] == {"total_bytes": TOTAL, "free_bytes": TOTAL, "used_bytes": 0}
        assert second["pci_bus_id"] == "0000:e1:00.0"
        assert second["compute_capability"] == "7.5"
        assert 0 <= second["utilization"]["gpu_percent"] <= 100
        assert second["clocks_mhz"]["sm"] == {"now": 1000, "max": 1000}
        assert second["persistence_mode"] is False
        assert second["power"] == {"draw_w": None, "limit_w": None}
        assert (second["temperature_c"], second["ecc_mode"], second["serial"]) == (None, None, None)

        (entry,) = _json("--host", where, "--id", "1", "--id", "7")["servers"]
        assert [device["index"] for device in entry["server"]["devices"]] == [1]

        run = _langpu("run", "--host", where, "--", sys.executable, "-c", WAITS)
        with subprocess.Popen(run, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "up\n"
            done = _smi("--host", where)
            assert program.communicate()[0] == ""
        assert done.returncode == 0, done.stderr
        assert "0: lanGPU emulated device" in done.stdout
        assert "0 B / 256 MiB" in done.stdout
        assert "PROGRAM" in done.stdout
        assert "langpu smi" not in done.stdout
        assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.timeout(120)
def test_a_server_that_is_not_there_or_full() -> None:
    with ServerProcess(env=ENVIRONMENT, max_sessions=0) as server:
        done = _smi("--host", f"127.0.0.1:{server.port}", "--json")
        assert done.returncode == 84
        (entry,) = json.loads(done.stdout)["servers"]
        assert (entry["reachable"], entry["server"], entry["error"]["code"]) == (False, None, 84)
        port = server.port
    done = _smi("--host", f"127.0.0.1:{port}")
    assert done.returncode == ConnectError.exit_code
    assert "no server listens" in done.stderr
