"""`make demo`: a server with an emulated GPU, a real model that runs against it, and what happened in a few lines.

Arguments go to the example: `tools/demo.py "what to search for"`.
"""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LANGPU = [sys.executable, "-m", "lanGPU.cli.main"]
EXAMPLE = Path("examples", "infer.py")
STOP_TIMEOUT_S = 20.0


def say(text: str = "") -> None:
    """A line for the person who watches, at once."""
    print(text, flush=True)


def listening_port(server: "subprocess.Popen[str]") -> int:
    """The port from the one line that `langpu serve` writes to stdout; it appears when clients may connect."""
    assert server.stdout is not None
    line = server.stdout.readline()
    found = re.search(r"listening on \S+:(\d+) \((.*)\)", line)
    if found is None:
        raise SystemExit(f"langpu serve did not start{': ' + line.strip() if line else ''}")
    say(f"server: langpu serve --emulate, port {found[1]}, {found[2]}")
    return int(found[1])


def report(numbers: dict[str, Any], seconds: float) -> None:
    """What crossed the connection, from --stats-json."""
    calls = numbers["calls"]
    say()
    say(f"device found   {numbers['device']}, at {numbers['server']}")
    say(f"weights sent   {numbers['bulk_up_bytes'] / 1e6:.1f} MB with other large copies; {numbers['bytes_sent'] / 1e6:.1f} MB in all")
    say(f"round trips    {numbers['round_trips']:,} for {sum(calls.values()):,} driver calls; all others needed no answer of the server")
    say(f"time           {numbers['wall_s']:.1f} s, of which {numbers['wait_s']:.1f} s waiting; {seconds:.1f} s with the server's start")


def main() -> int:
    """Start the server, run the example, stop the server; the exit code is the first one that is not 0."""
    start_s = time.monotonic()
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    # errors only: a session that is just ending when the server is told to stop is worth a warning elsewhere
    arguments = ["serve", "--emulate", "--port", "0", "--log-level", "error"]
    server = subprocess.Popen([*LANGPU, *arguments], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, process_group=0)
    try:
        port = listening_port(server)
        with tempfile.TemporaryDirectory(prefix="langpu-demo-") as folder:
            stats = Path(folder, "stats.json")
            say(f"client: langpu run --host 127.0.0.1:{port} python {EXAMPLE}")
            say()
            command = [
                *LANGPU,
                "run",
                "--host",
                f"127.0.0.1:{port}",
                "--stats-json",
                str(stats),
                "--",
                sys.executable,
                str(EXAMPLE),
                *sys.argv[1:],
            ]
            code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
            if code == 0:
                report(json.loads(stats.read_text()), time.monotonic() - start_s)
    finally:
        server.terminate()
        try:
            stopped = server.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            server.kill()
            stopped = server.wait()
    say(f"server: {'stopped' if stopped == 0 else f'ended with exit code {stopped}'}")
    return code or (1 if stopped else 0)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
