"""The command line: one module a command. Heavy imports stay inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import sys
from typing import Annotated

import click
import typer

import editloupe
from editloupe.cli import check, judge, listings, retry, show
from editloupe.cli.output import fail
from editloupe.errors import ConfigError, DataError, EditLoupeError, Interrupted

app = typer.Typer(
    name="editloupe",
    help="Agents that look closely at image edits: judge a folder, look at every step, swap the backbone.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(name="judge")(judge.judge)
app.command(name="retry")(retry.retry)
app.command(name="check")(check.check)
app.command(name="show")(show.show)
app.command(name="backends")(listings.backends)
app.command(name="tools")(listings.tools)
app.command(name="rubrics")(listings.rubrics)


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"editloupe {editloupe.__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command; every error of ours is one message and an exit code, never a traceback.

    0 finished; 1 failed; 2 usage, configuration or input; 3 failures above --fail-on-error; 5 stopped by a budget;
    130 interrupted.
    """
    try:
        code = app(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt, Interrupted):
        fail("interrupted")
        sys.exit(130)
    except (ConfigError, DataError) as error:
        fail(str(error))
        sys.exit(2)
    except EditLoupeError as error:
        fail(str(error))
        sys.exit(1)
    except BrokenPipeError:
        # The reader of our output has gone (`| head`); that is its right.
        sys.stderr.close()
        sys.exit(0)
    sys.exit(code if isinstance(code, int) else 0)
