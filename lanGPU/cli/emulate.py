"""`langpu emulate`: a program on a private emulated device."""

import click

from lanGPU.cli.options import log_level_option, start_logging, start_trace, trace_options


@click.command("emulate", context_settings={"allow_interspersed_args": False}, options_metavar="[OPTIONS] [--]")
@trace_options
@log_level_option
@click.argument("program", metavar="PROGRAM", type=click.UNPROCESSED)
@click.argument("arguments", metavar="[ARGUMENT]...", nargs=-1, type=click.UNPROCESSED)
def command(trace: bool, trace_dir: str, log_level: str, program: str, arguments: tuple[str, ...]) -> int:
    """Run PROGRAM with a CUDA device that this machine's processor emulates.

    No server and no network are used: a Python program that has lanGPU in its environment gets the device in its own
    process, any other program through a private server. The exit code is the program's.
    """
    start_logging(log_level)
    start_trace(trace, trace_dir)
    from lanGPU.emulator.launcher import EmulateOptions, emulate

    return emulate(EmulateOptions(program=(program, *arguments)))
