"""The options that several commands share, and the runs that a command line describes."""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

import typer
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from typer import Argument, Option

from editloupe import files, plugins
from editloupe.backends.base import settled as settled_uri
from editloupe.cli.output import note
from editloupe.config import ALIASES, JudgeConfig, RunConfig, folded, setting_fields
from editloupe.data.hub import local_data
from editloupe.errors import ConfigError, did_you_mean
from editloupe.runs.trust import Trust
from editloupe.values import Json

PROJECT: Final = "editloupe.yaml"
"""Read by `judge` if no PATH is given. It may have come with the data, so it is trusted no more than `--config`."""
OUTPUT: Final = "Output"
"""The panel of --out, --format and the like."""
SETTINGS: Final = setting_fields()
"""What `--set` and a line of editloupe.yaml may name."""
_NOT_SET: Final = ("config", "trust", "judges_file")
"""Those of them that only an option gives."""


def opt(flag: str, metavar: str | None, text: str, panel: str | None = None, **how: Any) -> Any:
    """Return an option with its help text.   metavar: None for a flag, and for a choice of words, which are shown."""
    return Option(flag, metavar=metavar, help=text, rich_help_panel=panel, show_default=False, **how)


def _setting(name: str, metavar: str, panel: str) -> Any:
    """Return the option of a setting. Its help is the setting's own."""
    field, flag = SETTINGS[name], f"--{name.replace('_', '-')}"
    shown = f"{field.description}".replace("[", r"\[")
    if field.default not in (None, "", 0, "auto") and isinstance(field.default, int | float | str):
        shown += f" Default: {field.default}."
    # Numbers are read as `--set` reads them, so that both are refused in the same words.
    how = {"parser": functools.partial(value_of, field, flag)} if kind_of(field.annotation) in (int, float) else {}
    return opt(flag, metavar, shown, panel, **how)


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


def field_row(name: str, field: FieldInfo) -> tuple[str, ...]:
    """Return what is to be known of a field of a model: name, type, default, help."""
    default = "(required)" if field.is_required() else field.get_default(call_default_factory=True)
    if isinstance(default, tuple | dict):
        default = ",".join(map(str, default))
    shown = "–" if default in (None, "") else str(default)
    return name, type_name(field.annotation), shown, " ".join((field.description or "").split())


_FORMS: Final = {int: "a whole number", float: "a number", bool: "true or false"}


def value_of(field: FieldInfo, flag: str, text: str) -> Any:
    """Return the value of a setting that is given as text. Raises ConfigError."""
    kind = kind_of(field.annotation)
    if kind not in _FORMS:
        return [text] if field is SETTINGS["sample"] else text
    try:
        return TypeAdapter(kind).validate_python(text)
    except ValidationError:
        raise ConfigError(f"{flag}: expected {_FORMS[kind]}, found {text!r}") from None


def _columns(text: str) -> dict[str, str]:
    from editloupe.figures.human_labels import column_names  # with it come tables, which most commands do without

    return column_names(text, "--columns")


def people_columns(human: object, columns: dict[str, str] | None) -> dict[str, str]:
    """Return what the columns of a people's table hold. Raises ConfigError if there is no such table."""
    if columns and human is None:
        raise ConfigError("--columns says what the columns of --human hold; name a table with --human FILE")
    return columns or {}


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
Backend = Annotated[list[str] | None, opt("--backend", "URI", "Who answers: provider/model. Default: baseline.", "Judge")]
"""Of a command that takes one. It is a list, so that a second one is refused and not left out in silence."""
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
TrustFile = Annotated[bool, opt("--trust", None, f"{SETTINGS['trust'].description}", OUTPUT)]
Sets = Annotated[
    list[str] | None, opt("--set", "NAME=VALUE", "Any other setting (`editloupe list settings`); may be repeated.", OUTPUT)
]

RunFolder = Annotated[Path, Argument(metavar="RUN", help="A run folder.", show_default=False)]
RunFolders = Annotated[list[Path], Argument(metavar="RUN", help="Run folders.", show_default=False)]
SampleName = Annotated[str | None, Argument(metavar="SAMPLE", help="A sample id, or EDITOR/ID.", show_default=False)]
CriterionName = Annotated[str | None, opt("--criterion", "NAME", "Only this metric, such as if.")]
JudgeName = Annotated[str | None, opt("--judge", "NAME", "One judge, by name, URI or beginning of its id.")]
JudgeNames = Annotated[str | None, opt("--judges", "A,B,…", "Only these judges, by name, URI or beginning of their ids.")]
RepeatNumber = Annotated[int | None, opt("--repeat", "N", "Only this repeat of a question, from 1.", min=1)]
HumanFile = Annotated[Path | None, opt("--human", "FILE", "People's labels (CSV, JSONL, Parquet). Default: the data's.")]
HumanColumns = Annotated[
    dict[str, str] | None, opt("--columns", "ROLE=COLUMN,…", "What the columns of --human hold.", parser=_columns)
]
PricesFile = Annotated[Path | None, opt("--prices", "FILE", "Prices (TOML) of models that no list has.")]
Resamples = Annotated[int, opt("--resamples", "N", "Bootstrap resamples of the intervals.", min=100, max=100_000)]
TableName = Annotated[str | None, opt("--table", "NAME", "Only this table.", OUTPUT)]
Full = Annotated[bool, opt("--full", None, "Also print edit types, areas and editors.", OUTPUT)]
OutFolder = Annotated[Path | None, opt("--out", "DIR", "Keep tables and plots in this folder.", OUTPUT)]
TrustRun = Annotated[bool, opt("--trust", None, "Use what only the run names: addresses, weights, files. Never its env=.")]


def given(context: typer.Context) -> dict[str, Any]:
    """Return the settings that a command line gives, by name: its own options, and what `--set` holds, as text."""
    absent = (None, False)
    named = {n: v for n, v in context.params.items() if n in SETTINGS and v != () and all(v is not no for no in absent)}
    texts = list(context.params.get("sets") or ())
    return {**{name: list(v) if isinstance(v, tuple) else v for name, v in named.items()}, "set": texts}


def runs(given: dict[str, Any], *, project: bool = False, own: Mapping[str, FieldInfo] | None = None) -> list[RunConfig]:
    """Return the runs that a command line describes, one a judge. An option goes before a file of settings.
    Raises ConfigError.

    project: whether editloupe.yaml is read if no path is named.   own: options of a recipe, which `--set` may name.
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
    if (trusted or file == Path(PROJECT)) and isinstance(kept.get("path"), str):
        kept["path"] = str(local_data(Path(kept["path"])))
    line = folded(absolute(_with_sets(given, str(kept.get("protocol", "")), own or {})))
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


def one_run(given: dict[str, Any], command: str, *, own: Mapping[str, FieldInfo] | None = None) -> RunConfig:
    """Return the run of a command that takes one judge. Raises ConfigError for several."""
    found = runs(given, own=own)
    if len(found) > 1:
        raise ConfigError(f"editloupe {command} takes one judge; found {', '.join(run.judge.title for run in found)}")
    return settled(found[0])


def _with_sets(given: Mapping[str, Any], protocol: str, own: Mapping[str, FieldInfo]) -> dict[str, Any]:
    """Return what is given with what `--set` says. Raises ConfigError."""
    found = {name: value for name, value in given.items() if name != "set"}
    texts = [(f"--set {text}", *text.partition("=")) for text in given.get("set", ())]
    protocol = str(found.get("protocol") or next((t for _, n, _, t in texts if n == "protocol"), "") or protocol)
    option, role = dict(found.pop("option", {})), dict(found.pop("role", {}))
    for source, name, equals, text in texts:
        name, text = name.strip(), text.strip()
        if not equals or not name or not text:
            raise ConfigError(f"{source}: expected NAME=VALUE, such as --set max_reply_tokens=2000")
        if name in given:
            raise ConfigError(f"{source}: {name} is given by its option too; give it once")
        group, dot, rest = name.partition(".")
        if dot and group == "role":
            role[rest] = text
        elif dot and group == "option":
            option[rest] = value_of(own[rest], source, text) if rest in own else text
        elif name in SETTINGS and name not in (*own, *_NOT_SET):
            found[name] = value_of(SETTINGS[name], source, text)
        else:
            option[name] = _of_protocol(name, text, source, protocol, own)
    return {**found, "option": option, **({"role": role} if role else {})}


def _of_protocol(name: str, text: str, source: str, protocol: str, own: Mapping[str, FieldInfo]) -> Any:
    """Return the value of a recipe's option, or the text of one of the protocol. Raises ConfigError for others."""
    if name in own:
        return value_of(own[name], source, text)
    found: Any = plugins.load("protocols", protocol or RunConfig.model_fields["protocol"].default)
    options = found.Options
    known = [*own, *(field.alias or name for name, field in options.model_fields.items())]
    if name in known or options.model_config.get("extra") == "allow":
        return text
    hint = did_you_mean(name, [*SETTINGS, *known])
    where = "`editloupe list settings`" + (" and `editloupe list recipes NAME`" if own else "")
    raise ConfigError(f"{source}: there is no setting {name!r}; {hint}{where} {'print' if own else 'prints'} all of them")


def check_company(*rules: tuple[str, bool, Mapping[str, object]]) -> None:
    """Raise ConfigError for an option without the one that it goes with.

    rules: what is needed, whether it is given, and the options that need it: name → value.
    """
    absent: tuple[object, ...] = (None, [], ())
    for needs, given, wanting in rules:
        named = [name for name, value in wanting.items() if value is not False and value not in absent]
        if not given and named:
            raise ConfigError(f"{', '.join(named)}: only with {needs}")


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
    """Return what replaces an option that this command lacks; "" if nothing is known to.

    settings: whether the command takes `--set`.
    """
    if flag in _RENAMED:
        return f"{flag} is now {_RENAMED[flag]}"
    name = flag.removeprefix("--").removeprefix("no-").replace("-", "_")
    name = {field: alias for alias, field in ALIASES.items()}.get(name, name)
    if not settings or name not in SETTINGS:
        return ""
    value = "false" if flag.startswith("--no-") else "true" if kind_of(SETTINGS[name].annotation) is bool else "VALUE"
    return f"{flag} is now --set {name}={value}"


_RENAMED: Final[Mapping[str, str]] = {
    "--json": "--format json",
    "--markdown": "--format md",
    "--csv": "--format csv",
    "--latex": "--format latex",
    "--option": "--set NAME=VALUE",
    "--role": "--set role.ROLE=URI",
    "--status": "judge RUN --retry STATUS",
}
"""Options of earlier versions that became another option → that."""
