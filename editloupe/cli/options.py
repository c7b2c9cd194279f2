"""The options of a run, made from the fields of RunConfig: `judge`, `rank` and `serve` take the same ones."""

from __future__ import annotations

import functools
import inspect
import math
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, cast, get_args, get_origin

from annotated_types import Ge, Le
from pydantic.fields import FieldInfo
from typer import Argument, BadParameter, Option

from editloupe import files
from editloupe.backends.base import settled as settled_uri
from editloupe.cli.output import note
from editloupe.config import ALIASES, SHORTHANDS, JudgeConfig, RunConfig, folded
from editloupe.data.hub import local_data
from editloupe.errors import ConfigError
from editloupe.runs.trust import Trust
from editloupe.values import Json

_FIELDS: Final = {**JudgeConfig.model_fields, **RunConfig.model_fields}


def _fields(first: str, last: str) -> list[str]:
    """The fields of a judge and a run from one to another, as they are declared."""
    names = list(_FIELDS)
    return names[names.index(first) : names.index(last) + 1]


PANELS: Final[Mapping[str, Sequence[str]]] = {
    "Data": _fields("format", "sample"),
    "Protocol": ("protocol", *SHORTHANDS, "option", "repeats", "aggregate_repeats", "abstain_above"),
    "Judge": ("backend", "judges", "role", "tool_protocol", "answers", "remind_answers"),
    "Tools": _fields("tools", "marks"),
    "Sampling": _fields("temperature", "reply_tokens"),
    "Budget": _fields("max_turns", "prices"),
    "Output": ("fail_on_error", "tags", "langsmith", "config", "trust"),
}
"""Every option of a run, in the order of `--help`."""

OF_BUILDERS: Final = ("editor", "segmenter", "aesthetic")
"""Options that only commands take which ask for them: those of builders whose `weights` name them."""

_ORACLE: Final = "oracle crops by DLEBench's Eq. 1: the paper's rule for reference images, its use for crops is ours."
TRUST_RUN: Final = "Use the addresses, weights and files that only a run or a file names. Its env= is never obeyed."

ONLY_HERE: Final[Mapping[str, FieldInfo]] = {
    name: FieldInfo(annotation=kind, description=text)
    for name, kind, text in (
        ("mode", str, f"How the protocol asks, such as tool, oracle or plain. {_ORACLE}"),
        ("asks", str, "Whose questions the protocol probes asks: dlebench, unicbench or giebench."),
        ("rubric", str, "A built-in rubric or your own .toml file."),
        ("criteria", str, "Comma-separated criteria, such as if,vc. Default: all."),
        ("prompt", Path, "Your own template (.md) of the question."),
        ("judges", Path, "YAML of named judges with options of their own."),
        ("config", Path, "Take options from this config.yaml of a run. The command line has precedence."),
        ("trust", bool, TRUST_RUN),
    )
}
"""Options that are no field of RunConfig: shorthands for options of the protocol, and files of options."""

_REPEATED: Final[Mapping[str, str]] = {
    "edited": "NAME=DIR",
    "sample": "ID",
    "option": "NAME=VALUE",
    "role": "ROLE=URI",
    "backend": "[NAME=]URI",
}
"""Options that may be given several times, and what each takes."""

_FLAGS: Final = {field: name for name, field in ALIASES.items()}
"""Field → the name of its flag, where that is another."""
_METAVARS: Final[Mapping[str, str]] = {
    "path": "PATH",
    "columns": "ROLE=COLUMN,…",
    "role": "ROLE=URI",
    "format": "NAME",
    "protocol": "NAME",
    "mode": "NAME",
    "asks": "NAME",
    "areas": "A,B,…",
    "rubric": "NAME|FILE",
    "criteria": "A,B,…",
    "tools": "A,B,…",
    "ablate": "A,B,…",
    "tags": "A,B,…",
    "device": "DEVICE",
    "max_seconds": "SECONDS",
    "max_run_seconds": "SECONDS",
    "patience": "SECONDS",
    "max_cost": "USD",
    "fail_on_error": "SHARE",
    "picture_budget": "SHARE",
    "preference": "ADDRESS",
    "editor": "EDITOR",
    "abstain_above": "BITS",
}
"""What an option takes, in words for people; else by its type."""
_OF_TYPE: Final[Mapping[Any, str]] = {int: "N", float: "NUMBER", Path: "FILE", str: "FOLDER|FILE|ID"}

PROJECT: Final = "editloupe.yaml"
"""Read by `judge` where no PATH is named. It may have come with the data: it is trusted no more than `--config`."""
OUTPUT: Final = "Output"
"""The panel of what a command itself adds: --out, --json."""


def finite(value: float | None) -> float | None:
    """Return the number of an option. Raises BadParameter for "nan" and "inf", which typer reads as numbers."""
    if value is not None and not math.isfinite(value):
        raise BadParameter(f"expected a finite number, found {value}")
    return value


RunFolder = Annotated[Path, Argument(metavar="RUN", help="A run folder.")]
LangSmith = Annotated[bool, Option("--langsmith", help="Send traces of the loop to LangSmith.")]
TrustRun = Annotated[bool, Option("--trust", help=TRUST_RUN)]
AsJson = Annotated[bool, Option("--json", help="Print JSON on standard output, an object a line.", rich_help_panel=OUTPUT)]
JudgeName = Annotated[
    str | None, Option("--judge", help="One judge of the run: its name, its URI, or the beginning of its id.")
]
CriterionName = Annotated[str | None, Option("--criterion", help="Only this metric or question, such as if.")]
RepeatNumber = Annotated[int | None, Option("--repeat", min=1, help="Only this repeat of a question, from 1.")]
FieldsFile = Annotated[Path | None, Option("--fields", help="Mapping file (TOML) that is laid over the layout's own.")]
DataColumns = Annotated[
    str | None,
    Option("--columns", metavar="ROLE=COLUMN,…", help="Which column holds what, such as source=photo,instruction=text."),
]
HumanFile = Annotated[
    Path | None,
    Option("--human", metavar="FILE", help="People's ratings: CSV, JSONL or Parquet. Default: those in the runs' samples."),
]
Columns = Annotated[
    str | None,
    Option("--columns", metavar="ROLE=COLUMN,…", help="What columns of people's table hold, where names do not say it."),
]
Resamples = Annotated[int, Option("--resamples", min=100, max=100_000, help="Bootstrap resamples.")]
Level = Annotated[float, Option("--level", min=0.5, max=0.999, callback=finite, help="Level of the intervals.")]
Seed = Annotated[int, Option("--seed", min=0, help="Seed of the resamples.")]
AllJudges = Annotated[
    bool,
    Option(
        "--full", help="Print the means of each of several judges too, not only all side by side.", rich_help_panel="Output"
    ),
]
Full = Annotated[bool, Option("--full", help="Print every table in a terminal too. A pipe and a file always get all.")]
JsonFigures = Annotated[bool, Option("--json", help="All figures as JSON on standard output; no files.")]
MarkdownFigures = Annotated[bool, Option("--markdown", help="As Markdown on standard output; no files.")]
PricesFile = Annotated[Path | None, Option("--prices", help="Prices (TOML) of models that no list has.")]


Decorator = Callable[[Callable[..., int]], Callable[..., int]]


def run_options(*, without: Collection[str] = (), also: Collection[str] = (), project: bool = False) -> Decorator:
    """Give a command the options of a run in place of its parameter `runs`: one RunConfig for each judge.

    without: options that the command does not take.   also: those of `OF_BUILDERS` that it takes.
    project: whether it reads editloupe.yaml where no PATH is named.
    """
    without = {*without, *OF_BUILDERS}.difference(also)
    names = ("path", *(name for panel in PANELS.values() for name in panel))
    made = functools.partial(runs, project=project)
    return with_options("runs", [name for name in names if name not in without], made)


def with_options(parameter: str, names: Sequence[str], made: Callable[[dict[str, Any]], Any] = dict) -> Decorator:
    """Give a command these options of a run in place of a parameter, which gets what is made of those that are given."""

    def decorate(command: Callable[..., int]) -> Callable[..., int]:
        own = inspect.signature(command, eval_str=True).parameters.values()
        shown = [*map(_option, names), *(p.replace(kind=p.KEYWORD_ONLY) for p in own if p.name != parameter)]

        @functools.wraps(command)
        def run(**values: Any) -> int:
            given = {name: value for name in names if (value := values.pop(name)) is not None and value != []}
            return command(**{parameter: made(given)}, **values)

        run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        run.__annotations__ = {p.name: p.annotation for p in shown}
        return run

    return decorate


def _option(name: str) -> inspect.Parameter:
    """The parameter by which typer reads an option: its type, help text, bounds and default.

    An option that is not given is None, so that config.yaml and the defaults of RunConfig hold.
    """
    panel = next((panel for panel, names in PANELS.items() if name in names), None)
    return parameter(name, _FIELDS.get(name) or ONLY_HERE[name], panel=panel)


def parameter(name: str, field: FieldInfo, *, panel: str | None) -> inspect.Parameter:
    """Return the parameter by which typer reads a field of a pydantic model; one that is not given is None.

    panel: of `--help`; None for an argument.
    """
    kind = kind_of(field.annotation)
    if get_origin(kind) is not Literal and kind not in (int, float, bool, Path):
        # Comma-separated words among them.
        kind = str
    text = str(field.description)
    if isinstance(field.default, int | float | str) and not isinstance(field.default, bool):
        text += f" Default: {field.default}."
    # Brackets are markup to rich.
    settings: dict[str, Any] = {"help": text.replace("[", r"\["), "show_default": False}
    flag = f"--{_FLAGS.get(name, name).replace('_', '-')}"
    if get_origin(kind) is not Literal and kind is not bool:
        settings["metavar"] = _METAVARS.get(name) or _OF_TYPE[kind]
    if name in _REPEATED:
        kind, settings["metavar"] = list[str], _REPEATED[name]
    elif kind in (int, float):
        # The narrowest: a field's own bound stands beside that of its type.
        settings["min"] = max((cast(float, rule.ge) for rule in field.metadata if isinstance(rule, Ge)), default=None)
        settings["max"] = min((cast(float, rule.le) for rule in field.metadata if isinstance(rule, Le)), default=None)
        if kind is float:
            settings["callback"] = finite
    elif kind is bool:
        # A flag of config.yaml can be taken back.
        flag = f"{flag}/--no-{flag[2:]}"
    shown = Option(flag, rich_help_panel=panel, **settings) if panel else Argument(**settings)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, shown])


def kind_of(annotation: Any) -> Any:
    """Return int for `Annotated[int, …] | None`: the first type of a union, without what annotates it."""
    while get_origin(annotation) in (Union, types.UnionType, Annotated):
        annotation = next(one for one in get_args(annotation) if one is not types.NoneType)
    return annotation


def runs(given: dict[str, Any], *, project: bool = False) -> list[RunConfig]:
    """Return the runs that the options of a command line describe. Raises ConfigError.

    project: whether editloupe.yaml is read where no path is named.
    """
    file, judges, trusted = given.pop("config", None), given.pop("judges", None), given.pop("trust", False)
    if project and file is None and "path" not in given and Path(PROJECT).is_file():
        file = Path(PROJECT)
        note(f"Options from {PROJECT}")
    if any(not uri.strip() for uri in given.get("backend", ())):
        raise ConfigError("--backend is empty; leave it out for the pixel baseline, or name provider/model")
    if judges is not None:
        given["judges"] = _mapping(judges, "names of judges, each with its backend, such as 'small: openai/MODEL'")
    line, kept = folded(absolute(given)), {} if file is None else folded(read_config(file))
    if (trusted or file == Path(PROJECT)) and isinstance(kept.get("path"), str):
        kept["path"] = str(local_data(Path(kept["path"])))
    named = {*line, *(f"option.{name}" for name in line["option"])}
    if "backend" in line or "judges" in line:
        named.add("backend")
        kept = {name: v for name, v in kept.items() if name not in ("backend", "judges")}
    # Of the protocol's options, each by itself.
    line["option"] = {**kept.get("option", {}), **line["option"]}
    try:
        found = RunConfig.each_judge({**kept, **line})
    except ConfigError as error:
        source = judges or file
        raise ConfigError(f"{source}: {error}" if source else str(error)) from error
    if file is None:
        return found
    trust = Trust(
        source=file,
        whole=trusted,
        given=named,
        # A remark on several judges is made once.
        tell=functools.cache(note),
    )
    return [trust.run(run) for run in found]


def absolute(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return options whose paths mean the same from another folder, as config.yaml must have them."""
    found = dict(given)
    if "path" in found:
        found["path"] = str(local_data(Path(found["path"])))
    for name in ("path", "fields", "prices", "prompt"):
        if name in found:
            found[name] = str(Path(found[name]).resolve())
    if "rubric" in found and Path(found["rubric"]).is_file():
        found["rubric"] = str(Path(found["rubric"]).resolve())
    if "edited" in found:
        found["edited"] = {name: folder.resolve() for name, folder in editors(found["edited"]).items()}
    return found


def settled(run: RunConfig) -> RunConfig:
    """Return a run whose backends mean the same from another folder. Raises ConfigError."""

    def judge(one: JudgeConfig) -> JudgeConfig:
        return one.model_copy(update={"backend": settled_uri(one.backend)}) if isinstance(one.backend, str) else one

    return run.model_copy(update={"judge": judge(run.judge), "role": {name: judge(one) for name, one in run.role.items()}})


def only(runs: Sequence[RunConfig], command: str) -> RunConfig:
    """Return the run of a command that takes one judge. Raises ConfigError for several."""
    if len(runs) > 1:
        raise ConfigError(f"editloupe {command} takes one judge; found {', '.join(run.judge.title for run in runs)}")
    return settled(runs[0])


def read_text(path: Path, option: str, expected: str) -> str:
    """Return the text of an option's file, without the white space around it. Raises ConfigError."""
    text = files.read_text(path, f"{option} {path}").strip()
    if not text:
        raise ConfigError(f"{option} {path} is empty; expected {expected}")
    return text


def words(text: str | None) -> tuple[str, ...] | None:
    """Return "if,vc" as ("if", "vc"); None if nothing was given. Raises ConfigError."""
    if text is None:
        return None
    found = tuple(word for part in text.split(",") if (word := part.strip()))
    if not found:
        raise ConfigError(f"expected comma-separated words, found {text!r}")
    return found


def editors(values: list[str]) -> dict[str, Path]:
    """Return `--edited nameA=DIR --edited nameB=DIR` by name; a bare DIR is the editor of that folder's name."""
    found: dict[str, Path] = {}
    for value in values:
        name, equals, folder = value.partition("=")
        if not equals:
            name, folder = Path(value).name, value
        if not name or not folder:
            raise ConfigError(f"--edited {value!r}: expected NAME=DIR, for example --edited qwen=outputs/qwen")
        if name in found:
            raise ConfigError(f"--edited names the editor {name!r} twice")
        found[name] = Path(folder)
    return found


def read_config(path: Path) -> dict[str, Json]:
    """Return the options of a config.yaml. Raises ConfigError for a file that is missing, broken or no mapping."""
    data = _mapping(path, "option names with values, as a run writes them to config.yaml")
    # Nobody's file says where this command sends its traces.
    return {str(name): value for name, value in data.items() if value is not None and name != "langsmith"}


def _mapping(path: Path, expected: str) -> Mapping[Any, Any]:
    data = files.read_yaml(path)
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{path}: expected {expected}")
    return data
