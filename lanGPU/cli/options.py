"""Option types that several commands share."""

import logging
import math
from typing import Final

import click

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
