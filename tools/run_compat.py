"""Run the frameworks' scripts both ways on an emulated device and keep the results; `make compat` calls it.

.venv-compat/bin/python tools/run_compat.py              all of them; writes docs/compatibility.json and docs/compatibility.md
.venv-compat/bin/python tools/run_compat.py cupy         these frameworks only; the others' results stay as they are
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.helpers.frameworks import LOCAL, PACKAGES, WAYS, missing, run_script, scripts, versions  # noqa: E402
from tests.helpers.server import ServerProcess  # noqa: E402

RESULTS = ROOT / "docs" / "compatibility.json"


def run(chosen: list[str], old: dict[str, Any]) -> dict[str, Any]:
    """Results of the chosen frameworks, in the file's form, together with the old ones of the others."""
    results = {name: found for name, found in old.items() if name not in chosen}
    with ServerProcess() as server:
        for framework in chosen:
            absent = missing(framework)
            if absent:
                print(f"{framework}: left out, not installed: {', '.join(absent)}", flush=True)
                if framework in old:
                    results[framework] = old[framework]
                continue
            outcomes: dict[str, dict[str, str]] = {}
            for script in (s for s in scripts() if s.framework == framework):
                for way in WAYS:
                    start_s = time.monotonic()
                    problem = run_script(script, way, "" if way == LOCAL else f"{server.host}:{server.port}")
                    print(f"{script.name}, {way}: {problem or 'passed'} ({time.monotonic() - start_s:.0f} s)", flush=True)
                    outcomes.setdefault(script.path.stem, {})[way] = problem or "passed"
            results[framework] = {"python": platform.python_version(), "versions": versions(framework), "scripts": outcomes}
    return dict(sorted(results.items()))


def main() -> int:
    """Exit code 1 if a script failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("framework", nargs="*", choices=[[], *PACKAGES], help="all by default")
    chosen = parser.parse_args().framework or list(PACKAGES)
    old = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
    results = run(chosen, old)
    RESULTS.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    subprocess.run([sys.executable, str(ROOT / "tools" / "gen_compatibility_docs.py")], check=True)
    bad = [n for name in chosen if name in results for n in results[name]["scripts"].values() if set(n.values()) != {"passed"}]
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
