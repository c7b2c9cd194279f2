"""The command line: one module a command, imported when the command is called, so that `--help` answers at once."""

from __future__ import annotations

import errno
import functools
import gc
import inspect
import logging
import os
import sys
import threading
from collections.abc import Mapping
from copy import copy
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Option
from typer.core import TyperCommand, TyperGroup

from editloupe.cli.output import OutputError, choose_format, fail, prepare_streams, send_traces, write
from editloupe.errors import ConfigError, DataError, EditLoupeError, Interrupted, did_you_mean
from editloupe.version import VERSION

COMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "Judge": {
        "judge": "Judge a folder of edits. The same command again continues the run.",
        "measure": "Measure every edit: MSE, PSNR, SSIM, CLIP and others. No model is asked.",
        "rank": "Rank several edits of one source and instruction.",
        "annotate": "Let people answer a run's questions in a browser. No model is asked.",
        "check": "Check a folder of edits; with --backend, ask a model what it can do.",
        "build": "Build a data set by a recipe, or find the targets of one.",
    },
    "Look": {
        "show": "Show the runs of a folder, a run, or one sample of it.",
        "view": "Look at runs in a browser; a run under way is followed.",
        "report": "Print the protocol's tables of runs, several judges side by side.",
        "export": "Write a run as pages or in formats of other tools.",
    },
    "Compare": {
        "compare": "Compare judges with each other and with people (--human).",
        "gate": "Check a run against requirements: exit code 0 all hold, 100 one does not.",
        "trial": "Test judges with probes, edits whose truth is known.",
    },
    "Traces": {
        "replay": "Replay a run from its traces, live or recorded; fork a step; score again.",
        "verify": "Check a run against its digests: findings, traces, pictures.",
        "merge": "Join shards of one run; they stay as they are.",
        "import": "Read a benchmark's own result files into a run.",
    },
    "Serve": {
        "serve": "Serve verdicts over HTTP.",
        "tools": "List the visual tools, call one, or serve them by MCP.",
        "list": "List protocols, rubrics, recipes, backends, models or settings; show one.",
    },
}
"""The groups of `--help`: every command with its line there."""

NAMES: Final = tuple(name for group in COMMANDS.values() for name in group)

_BELOW: Final[Mapping[str, Mapping[str, str]]] = {
    "build": {"RECIPE": "recipe", "targets": "targets"},
}
"""Commands below a command → their functions. One in capitals takes any other word as its first argument."""

_OLD: Final[Mapping[str, str]] = {
    "retry": "judge RUN --retry",
    "runs": "show FOLDER",
    "targets": "build targets",
    "masks": "build masks",
    "fork": "replay RUN --at STEP --backend URI",
    "rescore": "replay RUN --rubric FILE",
    "gc": "verify RUN --prune",
    "protocols": "list protocols",
    "rubrics": "list rubrics",
    "backends": "list backends",
    "align": "compare --human FILE",
    "canary": "replay RUN --model live",
    "backends probe": "check PATH --backend URI",
    "models": "list models",
    "tools serve-mcp": "tools serve",
    "tools warm": "tools, which lists what is absent; weights load with the first call",
    "init": "judge PATH, whose settings a file editloupe.yaml here may name (editloupe list settings)",
    "schema": "list settings",
}
"""Commands of earlier versions → what does their work now."""

_NEW_OBJECTS: Final = 50_000
"""After how many new objects the garbage collector looks. With Python's 700 it walks through a large run again and again: a
fifth to a quarter of the CPU seconds of `judge`, `report` and `compare` on 30,000 findings, some seconds at 100,000."""


class _Tidy:
    """Help without the types that Typer writes beside arguments and flags, such as `<list[Path]>` and `<bool>`."""

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)  # type: ignore[misc]
        for one in found:
            if one.param_type_name == "argument" or one.is_flag:
                one.display_type_rich = lambda ctx: None
        return found


class _Command(_Tidy, TyperCommand):
    """A command that knows the options of earlier versions, and takes `--retry` without a status."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        from editloupe.cli.options import old_option

        known = {flag for parameter in self.params for flag in (*parameter.opts, *parameter.secondary_opts)}
        for at, word in enumerate(args):
            flag = word.partition("=")[0]
            if flag.startswith("--") and flag not in known and (now := old_option(flag, settings="--set" in known)):
                raise ConfigError(now)
            following = args[at + 1] if at + 1 < len(args) else "-"
            if word == "--retry" and (following.startswith("-") or Path(following).exists()):
                args = [*args[:at], "--retry=failed", *args[at + 1 :]]
        return super().parse_args(ctx, args)


class _Recipe(_Command):
    """The command of every recipe. Its help is that of the recipe which is named."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        from editloupe.cli.build import help_of

        own = copy(self)
        own.params, own.help = help_of(ctx.info_name, self.params)
        super(_Recipe, own).format_help(ctx, formatter)


class _Below(_Tidy, TyperGroup):
    """Commands below a command."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] not in self.commands:
            return args[0], next(command for name, command in self.commands.items() if name.isupper()), args
        return super().resolve_command(ctx, args)


class _Lazy(_Tidy, TyperGroup):
    """The commands. `--help` knows their lines; a command is imported when it is called, and returns its exit code."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name = args[0]
        if name in NAMES and " ".join(args[:2]) not in _OLD:
            return name, _imported(name), args[1:]
        for old in (" ".join(args[:2]), name):
            if old in _OLD:
                raise ConfigError(f"editloupe {old} is now: editloupe {_OLD[old]}")
        if not name.startswith("-"):
            hint = did_you_mean(name, NAMES)
            raise ConfigError(f"there is no command {name!r}; {hint}expected one of {', '.join(NAMES)}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        try:
            code = super().invoke(ctx)
        except (KeyboardInterrupt, Interrupted):
            fail("interrupted")
            code = 130
        finally:
            send_traces()
        raise typer.Exit(code or 0)


@functools.cache
def _imported(name: str) -> Any:
    # A word of Python cannot be a module's name, nor a function's.
    plain = f"{name}_" if iskeyword(name) or name == "list" else name
    module = import_module(f"editloupe.cli.{plain}")
    made = typer.Typer(name=name, cls=_Below, rich_markup_mode="rich", add_completion=False)
    if name in _BELOW:
        made.callback(invoke_without_command=True)(getattr(module, plain))
        for below, function in _BELOW[name].items():
            kind = _Recipe if below.isupper() else _Command
            made.command(name=below, cls=kind)(getattr(module, function))
    else:
        made.command(name=name, cls=_Command)(getattr(module, plain))
    found = typer.main.get_command(made)
    for command in (found, *getattr(found, "commands", {}).values()):
        # The terminal breaks the lines of a paragraph; those of examples stand alone.
        parts = inspect.cleandoc(command.help or "").split("\n\n")
        command.help = "\n\n".join(one[2:] if one.startswith("\b") else one.replace("\n", " ") for one in parts)
    return found


app = typer.Typer(
    cls=_Lazy,
    name="editloupe",
    help="Agents that look closely at image edits: judge a folder, look at every step, swap the backbone.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _group, _lines in COMMANDS.items():
    for _name, _line in _lines.items():
        app.command(name=_name, help=_line, rich_help_panel=_group)(lambda: None)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False) -> None:
    choose_format("table")
    if version:
        write(f"editloupe {VERSION}\n")
        raise typer.Exit


def main() -> None:
    """Run a command; every error of ours is one message and an exit code, never a traceback.

    0 finished; 1 failed; 2 usage, configuration or input; 3 failures above --fail-on-error; 4 a replay drifted;
    5 stopped by a budget; 100 a requirement of `gate` does not hold; 130 interrupted.
    """
    gc.set_threshold(_NEW_OBJECTS)
    prepare_streams()
    # What is logged stands in traces too; a line of it would tear the panel of progress.
    logging.getLogger("editloupe").addHandler(logging.NullHandler())
    code = _code()
    if code == 130 and any(not one.daemon for one in threading.enumerate() if one is not threading.main_thread()):
        # Calls that were under way are not waited for, and Python would wait for their threads.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def _code() -> int:
    try:
        app(prog_name="editloupe")
    except SystemExit as ended:
        return _flushed(int(ended.code or 0))
    except OutputError as error:
        _drop_output()
        fail(str(error))
        return 1
    except EditLoupeError as error:
        fail(str(error))
        return 2 if isinstance(error, ConfigError | DataError) else 1
    except RuntimeError as error:
        # What Path.resolve says of a ring of links, before Python 3.13.
        if not str(error).startswith("Symlink loop from "):
            raise
        fail(f"{str(error).removeprefix('Symlink loop from ')}: its links lead in a circle; name the file itself")
        return 2
    except OSError as error:
        if error.errno is None:
            raise
        where = "" if error.filename is None else f"{os.fspath(error.filename)}: "
        if not where:
            _drop_output()  # of a help text, which Typer prints
        fail(f"{where}{os.strerror(error.errno)}")
        return 2 if error.errno == errno.ENAMETOOLONG else 1
    return 0


def _flushed(code: int) -> int:
    """Return the exit code of a command whose output is written now; 1 if it cannot be."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _drop_output()
        fail(f"standard output cannot be written ({error.strerror}); the command's work is done")
        return code or 1
    return code


def _drop_output() -> None:
    """Let what is left in the buffer go nowhere, so that Python does not fail at it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
