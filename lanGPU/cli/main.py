"""`langpu`: finds the command, runs it, and turns errors into a sentence, a hint and an exit code."""

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Final

import click

from lanGPU.errors import ConfigError, LanGPUError

COMMANDS: Final = ("run", "serve", "status", "smi", "emulate", "version")
"""In the order of `langpu --help`; each is the module of that name in this package, which defines `command`."""

EXIT_INTERRUPTED: Final = 130
"""128 + SIGINT, as shells report it."""
EXIT_BROKEN_PIPE: Final = 141
"""128 + SIGPIPE: whoever read our output is gone."""


class LazyGroup(click.Group):
    """Imports a command's module when that command is asked for, so that `langpu --help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order people meet them, not the alphabet's."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of that name; None lets click say that there is none."""
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"lanGPU.cli.{cmd_name}").command
        return command


@click.command(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
def group() -> None:
    """Use a CUDA GPU in your local network as if it were in your own machine."""


def report(message: str, hint: str = "") -> None:
    """Write an error for a person to stderr: what happened, then what to do next."""
    click.echo(f"langpu: {message}", err=True)
    if hint:
        click.echo(f"hint: {hint}", err=True)


def _usage_hint(error: click.ClickException) -> str:
    context = error.ctx if isinstance(error, click.UsageError) else None
    return f"see `{context.command_path if context is not None else 'langpu'} --help`"


def run_group(arguments: Sequence[str] | None) -> int:
    """Run one command line (None: this process's own) and return its exit code; errors are reported on the way."""
    try:
        result = group.main(args=None if arguments is None else list(arguments), prog_name="langpu", standalone_mode=False)
    except LanGPUError as error:
        report(str(error), error.hint)
        return error.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return ConfigError.exit_code
    except click.ClickException as error:
        report(error.format_message(), _usage_hint(error))
        return ConfigError.exit_code
    except (click.Abort, KeyboardInterrupt):
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # Python would complain once more when it flushes stdout at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return result if isinstance(result, int) else 0


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `langpu` script; always ends the process."""
    sys.exit(run_group(arguments))


if __name__ == "__main__":
    main()
