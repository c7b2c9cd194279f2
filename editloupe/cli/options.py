"""The options that several commands share, and the runs that a command line describes."""

from __future__ import annotations

import functools
import math
import os
import types
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import typer
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer import Argument, BadParameter, Option

from editloupe import files, plugins
from editloupe.backends.base import settled as settled_uri
from editloupe.cli.output import note
from editloupe.config import ALIASES, SHORTHANDS, JudgeConfig, RunConfig, folded, setting_fields
from editloupe.data.hub import local_data
from editloupe.errors import ConfigError, did_you_mean, nearest
from editloupe.runs.trust import Trust
from editloupe.values import Json

PROJECT: Final = "editloupe.yaml"
"""Read by `judge` where no PATH is named. It may have come with the data: it is trusted no more than `--config`."""
OUTPUT: Final = "Output"
"""The panel of what every command adds: --out, --format."""
SETTINGS: Final = setting_fields()
"""What `--set`, a variable EDITLOUPE_NAME, and a line of editloupe.yaml may name."""


def _setting(name: str, metavar: str, panel: str, *, flag: str = "", **how: Any) -> Any:
    """Return the option for a setting; its help is the setting's own."""
    field = SETTINGS[name]
    shown = f"{field.description}".replace("[", r"\[")
    if (
        isinstance(field.default, int | float | str)
        and not isinstance(field.default, bool)
        and field.default not in ("", 0, "auto")
    ):
        shown += f" Default: {field.default}."
    flag = flag or f"--{name.replace('_', '-')}"
    return Option(flag, metavar=metavar, help=shown, rich_help_panel=panel, show_default=False, **how)


DataPath = Annotated[Path | None, Argument(metavar="PATH", help=SETTINGS["path"].description, show_default=False)]

Layout = Annotated[str | None, _setting("layout", "NAME", "Data")]
Edited = Annotated[list[str] | None, _setting("edited", "NAME=DIR", "Data")]
DataColumns = Annotated[str | None, _setting("columns", "ROLE=COL,…", "Data")]
FieldsFile = Annotated[Path | None, _setting("fields", "FILE", "Data")]
Limit = Annotated[int | None, _setting("limit", "N", "Data")]
SampleIds = Annotated[list[str] | None, _setting("sample", "ID", "Data")]

ProtocolName = Annotated[str | None, _setting("protocol", "NAME", "Questions")]
Mode = Annotated[str | None, _setting("mode", "NAME", "Questions")]
Rubric = Annotated[str | None, _setting("rubric", "NAME|FILE", "Questions")]
Criteria = Annotated[str | None, _setting("criteria", "A,B,…", "Questions")]
Prompt = Annotated[Path | None, _setting("prompt", "FILE", "Questions")]
Repeats = Annotated[int | None, _setting("repeats", "N", "Questions")]

Backends = Annotated[list[str] | None, _setting("backend", "URI", "Judge")]
JudgesFile = Annotated[Path | None, _setting("judges_file", "FILE", "Judge")]
Temperature = Annotated[float | None, _setting("temperature", "T", "Judge")]

Tools = Annotated[str | None, _setting("tools", "A,B,…", "Tools")]
Detector = Annotated[str | None, _setting("detector", "WEIGHTS", "Tools")]
Upscaler = Annotated[str | None, _setting("upscaler", "WEIGHTS", "Tools")]
Device = Annotated[str | None, _setting("device", "DEVICE", "Tools")]

MaxTurns = Annotated[int | None, _setting("max_turns", "N", "Budget")]
MaxCost = Annotated[float | None, _setting("max_cost", "USD", "Budget")]
Concurrency = Annotated[int | None, _setting("concurrency", "N", "Budget")]
Processes = Annotated[int | None, _setting("processes", "N", "Budget")]
Executor = Annotated[str | None, _setting("executor", "NAME", "Budget")]
Batch = Annotated[bool, _setting("batch", "", "Budget")]

FailOnError = Annotated[float | None, _setting("fail_on_error", "SHARE", OUTPUT)]
ConfigFile = Annotated[Path | None, _setting("config", "FILE", OUTPUT)]
TrustRun = Annotated[bool, _setting("trust", "", OUTPUT)]
Sets = Annotated[
    list[str] | None,
    Option(
        "--set",
        metavar="NAME=VALUE",
        help="Any other setting (`editloupe list settings`); may be repeated.",
        rich_help_panel=OUTPUT,
    ),
]


def finite(value: float | None) -> float | None:
    """Return the number of an option. Raises BadParameter for "nan" and "inf", which typer reads as numbers."""
    if value is not None and not math.isfinite(value):
        raise BadParameter(f"expected a finite number, found {value}")
    return value


Full = Annotated[
    bool, Option("--full", help="Print every table in a terminal too. A pipe always gets all.", rich_help_panel=OUTPUT)
]


def given(context: typer.Context) -> dict[str, Any]:
    """Return the settings that a command line gives, by name: its own options, and what `--set` holds, as text."""
    named = {name: v for name, v in context.params.items() if name in SETTINGS and v is not None and v is not False}
    texts = context.params.get("sets") or ()
    return {**{name: list(v) if isinstance(v, tuple) else v for name, v in named.items() if v != ()}, "set": list(texts)}


def runs(given: dict[str, Any], *, project: bool = False, also: Mapping[str, FieldInfo] | None = None) -> list[RunConfig]:
    """Return the runs that a command line describes, one a judge. A word of the line goes before a variable, and a
    variable before a file of options. Raises ConfigError.

    project: whether editloupe.yaml is read where no path is named.   also: further options that `--set` may name.
    """
    given = dict(given)
    file, judges, trusted = given.pop("config", None), given.pop("judges_file", None), given.pop("trust", False)
    if project and file is None and "path" not in given and Path(PROJECT).is_file():
        file = Path(PROJECT)
        note(f"Options from {PROJECT}")
    if any(not uri.strip() for uri in given.get("backend", ())):
        raise ConfigError("--backend is empty; leave it out for the pixel baseline, or name provider/model")
    if judges is not None:
        given["judges"] = _mapping(judges, "names of judges, each with its backend, such as 'small: openai/MODEL'")
    kept = {} if file is None else folded(read_config(file))
    line = folded(absolute(_with_sets(given, str(kept.get("protocol", "")), also or {})))
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
    # A remark on several judges is made once.
    trust = Trust(source=file, whole=trusted, given=named, tell=functools.cache(note))
    return [trust.run(run) for run in found]


def one_run(given: dict[str, Any], command: str, *, also: Mapping[str, FieldInfo] | None = None) -> RunConfig:
    """Return the run of a command that takes one judge. Raises ConfigError for several."""
    found = runs(given, also=also)
    if len(found) > 1:
        raise ConfigError(f"editloupe {command} takes one judge; found {', '.join(run.judge.title for run in found)}")
    return settled(found[0])


def _with_sets(given: Mapping[str, Any], protocol: str, also: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Return what is given with what `--set` and the environment's variables say. Raises ConfigError."""
    found = {name: value for name, value in given.items() if name != "set"}
    texts = [(f"--set {text}", *text.partition("=")) for text in given.get("set", ())]
    said = {name for _, name, _, _ in texts} | set(found)
    for variable, name, text in variables():
        if name not in said:
            texts.append((f"{variable}={text}", name, "=", text))
    protocol = str(given.get("protocol") or next((t for _, n, _, t in texts if n == "protocol"), "") or protocol)
    option, role = dict(found.pop("option", {})), dict(found.pop("role", {}))
    for source, name, equals, text in texts:
        name, text = name.strip(), text.strip()
        if not equals or not name or not text:
            raise ConfigError(f"{source}: expected NAME=VALUE, such as --set max_reply_tokens=2000")
        if name in given:
            raise ConfigError(f"{source}: {name} is given by its option too; give it once")
        first, dot, rest = name.partition(".")
        if first == "option" and rest in also:
            name = rest
        if name in also:
            option[name] = value_of(text, also[name], source)
        elif dot and first in ("role", "option"):
            (role if first == "role" else option)[rest] = text
        elif name in SETTINGS and name not in ("config", "trust", "judges_file"):
            if source.startswith("--set ") and name not in SHORTHANDS and name in _options(protocol):
                flag = name.replace("_", "-")
                told = f"--set option.{name}={text} is the protocol's; --{flag} or a line of editloupe.yaml is the run's"
                raise ConfigError(f"{source}: the protocol has an option {name!r}, and so has the run; {told}")
            found[name] = value_of(text, SETTINGS[name], source)
        else:
            option[name] = _of_protocol(name, text, source, protocol, also)
    return {**found, "option": option, **({"role": role} if role else {})}


def _class(protocol: str) -> Any:
    return plugins.load("protocols", protocol or RunConfig.model_fields["protocol"].default)


def _options(protocol: str) -> list[str]:
    """Return the names of a protocol's options. Raises ConfigError for a protocol that is not installed."""
    return [field.alias or own for own, field in _class(protocol).Options.model_fields.items()]


def _of_protocol(name: str, text: str, source: str, protocol: str, also: Mapping[str, FieldInfo]) -> str:
    """Return the text of an option of the protocol. Raises ConfigError, with the nearest name, for what is none."""
    known = [*also, *_options(protocol)]
    if name in known or _class(protocol).Options.model_config.get("extra") == "allow":
        return text
    hint = did_you_mean(name, [*SETTINGS, *known])
    raise ConfigError(f"{source}: there is no setting {name!r}; {hint}`editloupe list settings` prints all of them")


def value_of(text: str, field: FieldInfo, source: str) -> Any:
    """Return the value of a setting that is given as text. Raises ConfigError."""
    kind = kind_of(field.annotation)
    try:
        if kind in (int, float):
            return kind(text)
        if kind is bool:
            return {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}[text.lower()]
    except (ValueError, KeyError):
        expected = {int: "a whole number", float: "a number", bool: "true or false"}[kind]
        raise ConfigError(f"{source}: expected {expected}, found {text!r}") from None
    return [text] if get_origin(kind) is tuple and field is SETTINGS["sample"] else text


def kind_of(annotation: Any) -> Any:
    """Return int for `Annotated[int, …] | None`: the first type of a union, without what annotates it."""
    while get_origin(annotation) in (Union, types.UnionType, Annotated):
        annotation = next(one for one in get_args(annotation) if one is not types.NoneType)
    return annotation


def type_name(annotation: Any) -> str:
    """Return a type in words: "tool|oracle|plain" for a Literal, "integer", "text"."""
    kind = kind_of(annotation)
    if get_origin(kind) is Literal:
        return "|".join(map(str, get_args(kind)))
    if get_origin(kind) in (tuple, dict):
        return "words" if get_origin(kind) is tuple else "NAME=VALUE"
    return {int: "integer", float: "number", bool: "true|false", Path: "file"}.get(kind, "text")


_OURS: Final = "EDITLOUPE_"
OF_TOOLS: Final = (
    "device", "detector", "upscaler", "clip", "dino", "lpips", "faces", "preference", "aesthetic", "editor", "segmenter",
    "picture_budget",
)  # fmt: skip
"""Settings whose variables are read where tools and measures are opened (`tools.settings`), also from Python."""


def variables() -> Iterator[tuple[str, str, str]]:
    """Yield (variable, setting, text) for the settings that the environment names; it warns of a variable of no setting."""
    for variable, text in sorted(os.environ.items()):
        name = variable.removeprefix(_OURS).lower()
        if not variable.startswith(_OURS) or name in (*OF_TOOLS, "serve_token") or not text.strip():
            continue
        if name in SETTINGS and name not in ("config", "trust", "judges_file"):
            yield variable, name, text
        else:
            near = nearest(name, SETTINGS)
            hint = f"; did you mean {_OURS}{near.upper()}?" if near else ""
            note(f"warning: {variable} is set and has no effect: there is no such setting{hint}")


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
        listed = found["edited"].split(",") if isinstance(found["edited"], str) else found["edited"]
        found["edited"] = {name: folder.resolve() for name, folder in editors(listed).items()}
    return found


def settled(run: RunConfig) -> RunConfig:
    """Return a run whose backends mean the same from another folder. Raises ConfigError."""

    def judge(one: JudgeConfig) -> JudgeConfig:
        return one.model_copy(update={"backend": settled_uri(one.backend)}) if isinstance(one.backend, str) else one

    return run.model_copy(update={"judge": judge(run.judge), "role": {name: judge(one) for name, one in run.role.items()}})


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


def editors(values: Sequence[str]) -> dict[str, Path]:
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


def old_option(flag: str, *, settings: bool) -> str:
    """Return how what an option of an earlier version said is said now; "" for one that never was.

    settings: whether the command takes settings.
    """
    if flag in _RENAMED:
        return f"{flag} is now {_RENAMED[flag]}"
    if not settings:
        return ""
    name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    field = {field: alias for alias, field in ALIASES.items()}.get(name, name)
    groups: tuple[plugins.Group, ...] = ("protocols", "builders")
    known = {option: kind for group in groups for one in plugins.names(group) for option, kind in _options_of(group, one)}
    if field not in (known := {**known, **SETTINGS}):
        return ""
    value = "false" if flag.startswith("--no-") else "true" if kind_of(known[field].annotation) is bool else "VALUE"
    return f"{flag} is now --set {field}={value}"


def _options_of(group: plugins.Group, name: str) -> Iterator[tuple[str, FieldInfo]]:
    """Yield the options of a protocol or a recipe; none of one that cannot be opened."""
    with suppress(ConfigError):
        found: Any = plugins.load(group, name)
        yield from getattr(found, "Options", BaseModel).model_fields.items()


_RENAMED: Final[Mapping[str, str]] = {
    "--json": "--format json",
    "--markdown": "--format md",
    "--csv": "--format csv",
    "--latex": "--format latex",
    "--option": "--set NAME=VALUE",
    "--role": "--set role.ROLE=URI",
    "--judges": "--judges-file FILE",
    "--status": "judge RUN --retry STATUS",
}
"""Options of earlier versions that became another option → that."""
