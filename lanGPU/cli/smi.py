"""`langpu smi`: memory, load, temperature and power of the GPUs that servers offer. The JSON schema is in docs/cli.md."""

import json
import time
from typing import Any

import click

from lanGPU.cli.address import Address, resolve_address
from lanGPU.cli.options import seconds
from lanGPU.errors import LanGPUError

SCHEMA = 1
"""Raised when a key of the JSON output changes its meaning or goes away; new keys do not count."""


def look(address: Address, timeout_s: float, indexes: tuple[int, ...]) -> tuple[dict[str, Any], int]:
    """One server's entry of the JSON output, and the exit code it stands for (0: it answered)."""
    from lanGPU.client.monitor import observe
    from lanGPU.client.status import query

    entry: dict[str, Any] = {"host": address.host, "port": address.port, "reachable": False, "error": None, "server": None, "sessions": []}
    try:
        # Sessions first: ours is not one that anybody wants to see.
        entry["sessions"] = query(address.host, address.port, timeout_s).get("sessions", [])
        entry["server"] = observe(address.host, address.port, timeout_s, indexes or None)
    except LanGPUError as error:
        entry["error"] = {"code": error.exit_code, "message": str(error), "hint": error.hint}
        return entry, error.exit_code
    entry["reachable"] = True
    return entry, 0


@click.command("smi")
@click.option("--host", "hosts", metavar="HOST[:PORT]", multiple=True, help="A server to ask; may be given several times.")
@click.option("-i", "--id", "indexes", metavar="INDEX", type=click.IntRange(0), multiple=True, help="Only this GPU of each server.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a look, each on a line, for scripts; its schema is in docs/cli.md.")
@click.option("-l", "--loop", "loop_s", metavar="SECONDS", type=seconds, default=None, help="Look again and again, so far apart.")
@click.option(
    "--timeout", "timeout_s", metavar="SECONDS", type=seconds, default=5.0, show_default=True, help="How long each server has to answer."
)
def command(hosts: tuple[str, ...], indexes: tuple[int, ...], as_json: bool, loop_s: float | None, timeout_s: float) -> int:
    """Show how busy the servers' GPUs are, as nvidia-smi does for a machine's own.

    Asks the servers named by --host, else the one in LANGPU_HOST, else this machine's, through a session of its own.
    The exit code is 0 if all of them answered, else that of the first error.
    """
    addresses = [resolve_address(host) for host in dict.fromkeys(hosts)] or [resolve_address(None)]
    while True:
        answers = [look(address, timeout_s, indexes) for address in addresses]
        entries = [entry for entry, _ in answers]
        if as_json:
            click.echo(json.dumps({"schema": SCHEMA, "servers": entries}, indent=None if loop_s else 2))
        else:
            from lanGPU.cli.render import print_smi

            print_smi(entries)
        if loop_s is None:
            return next((code for _, code in answers if code), 0)
        time.sleep(loop_s)
