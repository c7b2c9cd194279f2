"""The command line: one module a command. Heavy imports stay inside the commands, so that `--help` answers at once."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Annotated

import typer

import editloupe
from editloupe.cli import (
    align,
    backends,
    canary,
    check,
    compare,
    export,
    fork,
    gate,
    judge,
    listings,
    protocols,
    rank,
    replay,
    report,
    rescore,
    retry,
    runs,
    schema,
    serve,
    show,
    targets,
    tools,
    view,
)
from editloupe.cli.output import fail
from editloupe.errors import ConfigError, DataError, EditLoupeError, Interrupted

app = typer.Typer(
    name="editloupe",
    help="Agents that look closely at image edits: judge a folder, look at every step, swap the backbone.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _exits(command: Callable[..., int | None]) -> Callable[..., None]:
    """A command whose result is its exit code, and whose errors are one message each."""

    @functools.wraps(command)
    def run(*args: object, **kwargs: object) -> None:
        try:
            code = command(*args, **kwargs)
        except (KeyboardInterrupt, Interrupted):
            fail("interrupted")
            code = 130
        raise typer.Exit(code or 0)

    return run


for _name, _command in (
    ("judge", judge.judge),
    ("retry", retry.retry),
    ("check", check.check),
    ("show", show.show),
    ("report", report.report),
    ("rank", rank.rank),
    ("serve", serve.serve),
    ("targets", targets.targets),
    ("replay", replay.replay),
    ("fork", fork.fork),
    ("rescore", rescore.rescore),
    ("runs", runs.runs),
    ("merge", runs.merge),
    ("gc", runs.gc),
    ("align", align.align),
    ("gate", gate.gate),
    ("compare", compare.compare),
    ("canary", canary.canary),
    ("view", view.view),
    ("export", export.export),
    ("schema", schema.schema),
    ("rubrics", listings.rubrics),
):
    app.command(name=_name)(_exits(_command))


_backends = typer.Typer(rich_markup_mode="rich")
_backends.command(name="probe")(_exits(backends.probe))


@_backends.callback(invoke_without_command=True)
def _list_backends(context: typer.Context) -> None:
    """List the backends that --backend takes, or ask one what it can do."""
    if context.invoked_subcommand is None:
        _exits(backends.listing)()


app.add_typer(_backends, name="backends")


_protocols = typer.Typer(rich_markup_mode="rich")
_protocols.command(name="show")(_exits(protocols.show))


@_protocols.callback(invoke_without_command=True)
def _list_protocols(context: typer.Context) -> None:
    """List the protocols that --protocol takes, or show one with its roles, metrics, tables and options."""
    if context.invoked_subcommand is None:
        _exits(protocols.listing)()


app.add_typer(_protocols, name="protocols")


_tools = typer.Typer(rich_markup_mode="rich")
_tools.command(name="warm")(_exits(tools.warm))
_tools.command(name="call")(_exits(tools.call))
_tools.command(name="serve-mcp")(_exits(tools.serve_mcp))


@_tools.callback(invoke_without_command=True)
def _list_tools(
    context: typer.Context,
    device: tools.Device = None,
    detector: tools.Detector = None,
    upscaler: tools.Upscaler = None,
    reader: tools.Reader = None,
) -> None:
    """List the tools and which are absent here, or call one, load them, serve them."""
    context.obj = tools.group_settings(device=device, detector=detector, upscaler=upscaler, reader=reader)
    if context.invoked_subcommand is None:
        _exits(tools.listing)(context.obj)


app.add_typer(_tools, name="tools")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"editloupe {editloupe.__version__}")
        raise typer.Exit


def main() -> None:
    """Run a command; every error of ours is one message and an exit code, never a traceback.

    0 finished; 1 failed; 2 usage, configuration or input; 3 failures above --fail-on-error; 4 a replay drifted;
    5 stopped by a budget; 100 a requirement of `gate` does not hold; 130 interrupted.
    """
    try:
        app()
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
