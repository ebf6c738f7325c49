"""`langpu run` with a made-up shim folder: python launcher_main.py PORT OPTIONS-AS-JSON PROGRAM…"""

import json
import sys
from pathlib import Path

from lanGPU.client import launcher
from lanGPU.client.symbols import Shim
from lanGPU.errors import LanGPUError

DIGEST = bytes(range(32))


def main() -> int:
    port, options, *program = sys.argv[1:]
    launcher.ensure = lambda: Shim(Path("/nonexistent/shim"), DIGEST, {})
    extra = json.loads(options)
    if "stats_json" in extra:
        extra["stats_json"] = Path(extra["stats_json"])
    try:
        return launcher.run(launcher.RunOptions(program=tuple(program), host="127.0.0.1", port=int(port), **extra))
    except LanGPUError as exc:
        print(f"{type(exc).__name__}: {exc} / {exc.hint}", file=sys.stderr)
        return exc.exit_code


if __name__ == "__main__":
    sys.exit(main())
