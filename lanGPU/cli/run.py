"""`langpu run`: a program of the user's on a remote GPU."""

from pathlib import Path

import click

from lanGPU.cli.address import resolve_address
from lanGPU.cli.options import log_level_option, seconds, start_logging


@click.command("run", context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]")
@click.option(
    "--host",
    metavar="HOST[:PORT]",
    help="The server; default: LANGPU_HOST, else this machine. An IPv6 address with a port goes in brackets.",
)
@click.option("--stats", is_flag=True, help="At the end, print round trips, calls by class, bytes and waiting time to stderr.")
@click.option(
    "--stats-json",
    metavar="FILE",
    type=click.Path(dir_okay=False, path_type=Path),
    help="At the end, write the same numbers to FILE as JSON.",
)
@click.option("--report-unsupported", is_flag=True, help="At the end, list functions answered with not supported, with counts, on stderr.")
@click.option("--timeout", "timeout_s", metavar="SECONDS", type=seconds, help="End the program when it runs longer than this.")
@log_level_option
@click.argument("program", metavar="PROGRAM", type=click.UNPROCESSED)
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
def command(
    host: str | None,
    stats: bool,
    stats_json: Path | None,
    report_unsupported: bool,
    timeout_s: float | None,
    log_level: str,
    program: str,
    arguments: tuple[str, ...],
) -> int:
    """Run PROGRAM here, with the CUDA device of a server.

    Options of langpu stand before PROGRAM; everything after it is the program's own. The exit code is the program's.
    """
    address = resolve_address(host)
    start_logging(log_level)
    from lanGPU.client.launcher import RunOptions, run

    return run(
        RunOptions(
            program=(program, *arguments),
            host=address.host,
            port=address.port,
            stats=stats,
            stats_json=stats_json,
            timeout_s=timeout_s,
            report_unsupported=report_unsupported,
        )
    )
