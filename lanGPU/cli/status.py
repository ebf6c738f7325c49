"""`langpu status`: which servers answer, with which GPUs, and who uses them. The JSON schema is in docs/cli.md."""

import json
from typing import Any

import click

from lanGPU.cli.address import Address, resolve_address
from lanGPU.cli.options import seconds
from lanGPU.errors import LanGPUError

SCHEMA = 1
"""Raised when a key of the JSON output changes its meaning or goes away; new keys do not count."""


def ask(address: Address, timeout_s: float) -> tuple[dict[str, Any], int]:
    """One server's entry of the JSON output, and the exit code it stands for (0: it answered)."""
    from lanGPU.client.status import query

    entry: dict[str, Any] = {"host": address.host, "port": address.port, "reachable": False, "error": None, "status": None}
    try:
        entry["status"] = query(address.host, address.port, timeout_s)
    except LanGPUError as error:
        entry["error"] = {"code": error.exit_code, "message": str(error), "hint": error.hint}
        return entry, error.exit_code
    entry["reachable"] = True
    return entry, 0


@click.command("status")
@click.option("--host", "hosts", metavar="HOST[:PORT]", multiple=True, help="A server to ask; may be given several times.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for scripts; its schema is in docs/cli.md.")
@click.option(
    "--timeout", "timeout_s", metavar="SECONDS", type=seconds, default=3.0, show_default=True, help="How long each server has to answer."
)
def command(hosts: tuple[str, ...], as_json: bool, timeout_s: float) -> int:
    """Show servers, their GPUs and their sessions.

    Asks the servers named by --host, else the one in LANGPU_HOST, else this machine's. The exit code is 0 if all of
    them answered, else that of the first error.
    """
    addresses = [resolve_address(host) for host in dict.fromkeys(hosts)] or [resolve_address(None)]
    answers = [ask(address, timeout_s) for address in addresses]
    entries = [entry for entry, _ in answers]
    if as_json:
        click.echo(json.dumps({"schema": SCHEMA, "servers": entries}, indent=2))
    else:
        from lanGPU.cli.render import print_status

        print_status(entries)
    return next((code for _, code in answers if code), 0)
