"""The benchmark runs from end to end and says what docs/performance.md says it says."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
UNITS = ("_ns", "_us", "_per_s", "_gb_s")
"""What this benchmark's names end with; tools/bench_emulator.py measures in seconds."""
REQUIRED = {"post_ns", "posted_per_s", "sync_us", "raw_pingpong_us"}


@pytest.mark.slow
def test_the_benchmark_prints_every_documented_number() -> None:
    command = [sys.executable, str(ROOT / "tools" / "bench_calls.py"), "--json", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    numbers = json.loads(done.stdout)
    names = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "performance.md").read_text(), re.MULTILINE)
    documented = {name for name in names if name.endswith(UNITS)}
    measured = {name for name in numbers if name.endswith(UNITS)}
    assert measured == documented
    assert measured >= REQUIRED
    assert all(numbers[name] > 0 for name in measured)
    # Not clocks against a limit but orders of magnitude: a posted call waits for nobody.
    assert numbers["post_ns"] < 1000 * numbers["sync_us"] / 2
    assert numbers["event_create_us"] < numbers["sync_us"] / 2
