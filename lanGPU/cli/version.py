"""`langpu version`: what is installed."""

import json
import platform

import click

from lanGPU import __version__
from lanGPU.constants import PROTOCOL_VERSION, PROTOCOL_VERSION_MIN


@click.command("version")
@click.option("--json", "as_json", is_flag=True, help="One JSON object, for scripts.")
def command(as_json: bool) -> None:
    """Print the versions of lanGPU, its protocol and Python."""
    if as_json:
        facts = {
            "version": __version__,
            "protocol": PROTOCOL_VERSION,
            "protocol_min": PROTOCOL_VERSION_MIN,
            "python": platform.python_version(),
        }
        click.echo(json.dumps(facts))
    else:
        click.echo(f"lanGPU {__version__} (protocol {PROTOCOL_VERSION}, Python {platform.python_version()})")
