"""Option types that several commands share."""

import logging
import math
import os
from collections.abc import Callable
from typing import Any, Final

import click

from lanGPU.emulator.config import TRACE_VARIABLE

LOG_LEVELS: Final = ("error", "warning", "info", "debug")


def seconds(text: str) -> float:
    """Read a positive, finite number of seconds; anything else is a usage error."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise click.BadParameter(f"{text!r} is not a positive number of seconds")
    return value


log_level_option = click.option(
    "--log-level",
    type=click.Choice(LOG_LEVELS, case_sensitive=False),
    default="warning",
    show_default=True,
    help="How much lanGPU itself reports on stderr.",
)


def start_logging(level: str) -> None:
    """Send lanGPU's log to stderr, from `level` up; the root logger stays the program's."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("langpu: %(message)s"))
    logger = logging.getLogger("lanGPU")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


DEFAULT_TRACE_FOLDER: Final = "langpu-trace"


def trace_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """--trace and --trace-dir, which arrive as `trace` and `trace_dir`."""
    folder = click.option(
        "--trace-dir", metavar="DIR", default="", help=f"Where traces go; implies --trace. [default: {DEFAULT_TRACE_FOLDER}]"
    )
    flag = click.option(
        "--trace",
        is_flag=True,
        help="Write every driver call to a file, and accept kernels in machine code: their launches are recorded, NOT executed.",
    )
    return flag(folder(function))


def start_trace(trace: bool, folder: str) -> None:
    """Turns on the emulated driver's trace mode in this process and those that it starts."""
    if trace or folder:
        os.environ[TRACE_VARIABLE] = os.path.abspath(folder or DEFAULT_TRACE_FOLDER)
