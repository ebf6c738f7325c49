"""`langpu serve`: share this machine's GPUs."""

import click

from lanGPU.cli.options import log_level_option, start_logging, start_trace, trace_options
from lanGPU.constants import DEFAULT_PORT


@click.command("serve")
@click.option("--bind", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port", metavar="PORT", type=click.IntRange(0, 65535), default=DEFAULT_PORT, show_default=True, help="TCP port; 0 takes a free one."
)
@click.option("--emulate", is_flag=True, help="Serve an emulated CUDA device that runs on this machine's processor.")
@trace_options
@click.option("--insecure", is_flag=True, help="Allow an address that other machines reach, with no encryption and no access control.")
@click.option("--name", metavar="NAME", default="", help="What clients see this machine as; default: its host name.")
@click.option("--max-sessions", metavar="N", type=click.IntRange(1, 1024), default=32, show_default=True, help="Sessions at the same time.")
@log_level_option
def command(
    bind: str, port: int, emulate: bool, trace: bool, trace_dir: str, insecure: bool, name: str, max_sessions: int, log_level: str
) -> int:
    """Serve this machine's CUDA devices until interrupted."""
    start_logging(log_level)
    if (trace or trace_dir) and not emulate:
        raise click.UsageError("--trace is of the emulated device: give --emulate too")
    start_trace(trace, trace_dir)
    from lanGPU.server.daemon import ServeOptions, serve

    return serve(ServeOptions(bind=bind, port=port, emulate=emulate, insecure=insecure, name=name, max_sessions=max_sessions))
