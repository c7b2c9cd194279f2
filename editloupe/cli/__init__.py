"""The command line: one module a command, imported when the command is called, so that `--help` answers at once."""

from __future__ import annotations

import errno
import functools
import gc
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from typer import Option
from typer.core import TyperGroup

from editloupe.cli.output import Format, choose_format, fail, output_failure, prepare_streams, send_traces, warn, write
from editloupe.errors import ConfigError, DataError, EditLoupeError, Interrupted, nearest
from editloupe.version import VERSION

COMMANDS: Final[Mapping[str, str]] = {
    "init": "Write a commented editloupe.yaml, which `editloupe judge` reads.",
    "judge": "Judge a folder of edits. The same command again continues the run.",
    "retry": "Judge the failed findings of a run again. Verdicts that stand are kept.",
    "check": "Validate a folder of edits without a model. Exit code 0: no error (warnings may stand); 1: errors.",
    "show": "List the runs of a folder, the findings of a run, or the steps that led to one sample's verdict.",
    "report": "Show the protocol's tables, labels and failures of runs; several judges side by side.",
    "rank": "Rank several edits of one source and instruction. The same command again continues the run.",
    "serve": "Serve verdicts over HTTP: POST /v1/judge with an edit or a list of edits, GET /healthz and /metrics.",
    "annotate": "Let people answer a run's questions in a browser: one key a label. No model is asked.",
    "measure": "Measure every edit of a folder or a run: MSE, PSNR, SSIM, CLIP and others. No model is asked.",
    "targets": "Name each edit's target object, find it in the source image, and say what share of the image it takes.",
    "masks": "Make the masks that data lacks: from a phrase to a box to a mask, white where change was allowed.",
    "replay": "Replay a run from its traces, ask its judge again, go on from a step, or score by another rubric.",
    "import": "Read a benchmark's own result files into a run, which report, compare, show and view read.",
    "merge": "Join shards of one run. The shards stay as they are.",
    "verify": "Check a run against its digests: findings, traces, pictures. Exit code 1: something was changed.",
    "gate": "Check a run against requirements: 0 all hold, 100 one does not, 2 one has no figure. No model is asked.",
    "compare": "Do judges agree, with each other and with people? Which is the more lenient, and what does each cost?",
    "trial": "Hold judges against probes, edits whose truth is known: accuracy, thresholds, leniency, traps, cost.",
    "view": "Look at runs in a browser; a run under way is followed.",
    "build": "Build triplets (unicedit), chains (edival), edits (dlebench), questions (giebench), differences and probes.",
    "export": "Write a run as pages or in formats of other tools; one or several at once. Exit code 2 if there is nothing.",
    "rubrics": "List the built-in rubrics, or show one with its labels and values, or its scales and penalties.",
    "backends": "List the backends that --backend takes, show one, or ask one what it can do.",
    "protocols": "List the protocols that --protocol takes, or show one with its roles, metrics, tables and options.",
    "tools": "List the tools and which are absent here, show one, call one by hand, or serve them to other agents.",
}
"""Every command, in the order of `--help`, and its line there: the first paragraph of its docstring."""

PANELS: Final[Mapping[str, tuple[str, ...]]] = {
    "Judge": ("init", "check", "judge", "retry", "annotate", "measure", "rank", "serve", "targets", "masks", "build"),
    "Look": ("show", "view", "report", "export"),
    "Compare": ("compare", "trial", "gate"),
    "Traces": ("replay", "verify", "merge", "import"),
    "What there is": ("protocols", "rubrics", "backends", "tools"),
}
"""The panels of `--help`, each with its commands in their order."""

_GROUPS: Final = {
    "backends": ("show", "probe"),
    "build": ("unicedit",),
    "protocols": ("show",),
    "rubrics": ("show",),
}
"""Commands with commands of their own. The function named like the group lists, or prints their help.

A module's function `plugged` returns further ones, by name."""

_MODULES: Final[Mapping[str, str]] = {}
"""Modules of the commands that share one; any other has that of its name."""

_RENAMED: Final = {
    "align": "compare --human FILE",
    "canary": "replay --model live",
    "runs": "show FOLDER",
    "gc": "verify RUN --prune",
    "fork": "replay RUN SAMPLE --at STEP",
    "rescore": "replay RUN --rubric NAME",
}
"""Commands of earlier versions, and what does their work now."""

_NEW_OBJECTS: Final = 50_000
"""After how many new objects the garbage collector looks. With Python's 700 it walks through a large run again and again: a
fifth to a quarter of the CPU seconds of `judge`, `report` and `compare` on 30,000 findings, some seconds at 100,000."""


class _Lazy(TyperGroup):
    """Commands of which `--help` knows the help text; one is imported when it is called, and returns its exit code."""

    def get_params(self, ctx: Any) -> Any:
        found = super().get_params(ctx)
        for parameter in found:
            # Its kind would stand beside a flag: <bool>.
            parameter.metavar = " "
        return found

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        if args[0] in COMMANDS:
            found = _imported(args[0])
            warn(_unread(found))
            return args[0], found, args[1:]
        if args[0] in _RENAMED:
            raise ConfigError(f"there is no command {args[0]!r} any more; use: editloupe {_RENAMED[args[0]]}")
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


class _Listing(TyperGroup):
    """Commands about what is listed, of which `show` may be left out: `rubrics NAME` is `rubrics show NAME`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        file = "." in args[0]
        if args[0] not in self.commands and (file or not nearest(args[0], self.commands)):
            args = ["show", *args]
        return super().resolve_command(ctx, args)


@functools.cache
def _imported(name: str) -> Any:
    # A word of Python cannot be a module's name, nor a function's.
    plain = f"{name}_" if iskeyword(name) else name
    module = import_module(f"editloupe.cli.{_MODULES.get(name, plain)}")
    cls = _Listing if "show" in _GROUPS.get(name, ()) else TyperGroup
    made = typer.Typer(cls=cls, rich_markup_mode="rich", add_completion=False)
    if name in _GROUPS:
        made.callback(invoke_without_command=True)(getattr(module, name))
        for command in _GROUPS[name]:
            made.command(name=command)(getattr(module, command.replace("-", "_")))
        for command, function in getattr(module, "plugged", dict)().items():
            made.command(name=command)(function)
    else:
        made.command(name=name)(getattr(module, plain))
    found = typer.main.get_command(made)
    _with_format(found)
    _with_variables(found)
    return found


def _with_format(command: Any) -> None:
    """Give a command, and its own commands, the option --format, unless it has one of its own."""
    names = {word for parameter in command.params for word in parameter.opts}
    called = command.callback
    if called is not None and "--format" not in names:
        (option,) = (p for p in typer.main.get_command(_FORMATTED).params if p.name == "form")
        command.params.append(option)

        def run(form: Format | None = None, **given: Any) -> Any:
            choose_format(form or "table")
            if form == "json" and "as_json" in given:
                given["as_json"] = True
            return called(**given)

        command.callback = run
    for inner in getattr(command, "commands", {}).values():
        _with_format(inner)


_FORMATTED: Final = typer.Typer(add_completion=False)


@_FORMATTED.command()
def _formatted(
    form: Annotated[
        Format | None,
        Option(
            "--format",
            help="How tables are printed; of all but table, remarks go to standard error.",
            rich_help_panel="Output",
        ),
    ] = None,
) -> None:
    """Hold the option that every command has."""


def _with_variables(command: Any) -> None:
    """Let every option of a command, and of its own commands, be set by EDITLOUPE_NAME too."""
    # Its kind would stand beside it: <bool>.
    command.get_help_option(typer.Context(command)).metavar = " "
    for parameter in command.params:
        flag = next((word for word in parameter.opts if word.startswith("--")), None)
        named = parameter.name in OF_TOOLS or flag in (None, "--help", "--version")
        if not named and parameter.envvar is None:
            # Not shown beside each: the end of the help says it once.
            parameter.envvar, parameter.show_envvar = variable(str(flag)), False
        parameter.process_value = functools.partial(_processed, parameter.process_value)
        if getattr(parameter, "is_flag", False):
            parameter.metavar = " "
        elif parameter.param_type_name == "argument":
            parameter.metavar = parameter.metavar or parameter.name.upper()
            # Typer writes it beside the name: <path>, <list[Path]>.
            parameter.display_type_rich = _no_type
        elif parameter.metavar is None and flag is not None:
            kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
            words: Mapping[Any, str] = {int: "N", float: "NUMBER", str: "TEXT", list[str]: "TEXT", Path: "PATH"}
            parameter.metavar = words.get(kind)
    if getattr(command, "commands", None) is None:
        command.epilog = "Every option can be set by a variable too, such as --task-tokens by EDITLOUPE_TASK_TOKENS."
    for inner in getattr(command, "commands", {}).values():
        _with_variables(inner)


def _processed(process: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    """Return what typer makes of a value. Raises BadParameter, which says what was found, too."""
    try:
        return process(ctx, value)
    except typer.BadParameter as error:
        # What pydantic refused; who else refuses a value says what it was.
        if error.__cause__ is not None and isinstance(value, str) and repr(value) not in error.message:
            error.message += f"; found {value!r}"
        raise


def _no_type(ctx: object) -> None:
    """Return what stands for an argument's type in help: nothing, since its name says it."""


OF_TOOLS: Final = frozenset(
    {
        "device",
        "detector",
        "upscaler",
        "clip",
        "dino",
        "lpips",
        "faces",
        "preference",
        "aesthetic",
        "editor",
        "segmenter",
        "picture_budget",
        "marks",
    }
)
"""Options whose variables are read where tools and measures are opened (`tools.settings`), also from Python."""


def variable(flag: str) -> str:
    """Return the environment variable of an option: EDITLOUPE_TASK_TOKENS for --task-tokens."""
    return f"{_OURS}{flag.lstrip('-').replace('-', '_').upper()}"


_OURS: Final = "EDITLOUPE_"
_READ_ELSEWHERE: Final = frozenset({f"{_OURS}SERVE_TOKEN", *(f"{_OURS}{name.upper()}" for name in OF_TOOLS)})
"""Variables of ours that are no option's, or not of those alone."""


def _unread(command: Any) -> Iterator[str]:
    """Yield a message for each EDITLOUPE_ variable of the environment that no command reads."""
    given = {name for name in os.environ if name.startswith(_OURS)} - _READ_ELSEWHERE
    if given and not given <= _variables(command):
        # Another command's, perhaps; all of them are looked through in this case alone, since it takes a while.
        known = _READ_ELSEWHERE.union(*(_variables(_imported(name)) for name in COMMANDS))
        for name in sorted(given - known):
            meant = nearest(name.removeprefix(_OURS), [one.removeprefix(_OURS) for one in known])
            hint = f"; did you mean {_OURS}{meant}?" if meant else ""
            yield f"{name} is set and has no effect: no option of editloupe has this variable{hint}"


def _variables(command: Any) -> set[str]:
    """Return the environment variables of a command's options, and of its own commands'."""
    own = {parameter.envvar for parameter in command.params if isinstance(parameter.envvar, str)}
    return own.union(*(_variables(inner) for inner in getattr(command, "commands", {}).values()))


app = typer.Typer(
    cls=_Lazy,
    name="editloupe",
    help="Agents that look closely at image edits: judge a folder, look at every step, swap the backbone.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _panel, _names in PANELS.items():
    for _name in _names:
        app.command(name=_name, help=COMMANDS[_name], rich_help_panel=_panel)(lambda: None)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        write(f"editloupe {VERSION}\n")
        raise typer.Exit


def main() -> None:
    """Run a command; every error of ours is one message and an exit code, never a traceback.

    0 finished; 1 failed; 2 usage, configuration or input; 3 failures above --fail-on-error; 4 a replay drifted;
    5 stopped by a budget; 100 a requirement of `gate` does not hold; 130 interrupted. The code is the command's own if the
    reader of its output goes early (`| head`), and 1 in the place of 0 if the output cannot be written.
    """
    gc.set_threshold(_NEW_OBJECTS)
    prepare_streams()
    # What is logged stands in traces too; a line of it would tear the panel of progress.
    logging.getLogger("editloupe").addHandler(logging.NullHandler())
    code = _code()
    unwritten = output_failure()
    if unwritten is not None:
        done = "" if code else "; the command's work is done"
        fail(f"standard output cannot be written ({unwritten.strerror}){done}")
    code = code or int(unwritten is not None)
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
        return int(ended.code or 0)
    except (ConfigError, DataError) as error:
        fail(str(error))
        return 2
    except EditLoupeError as error:
        fail(str(error))
        return 1
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
        fail(f"{where}{os.strerror(error.errno)}")
        return 2 if error.errno == errno.ENAMETOOLONG else 1
    return 0
