"""`editloupe list`: which protocols, rubrics, recipes, backends, models and settings there are; or one of them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic.fields import FieldInfo
from typer import Argument

from editloupe import plugins
from editloupe.build.base import open_builder
from editloupe.cli.options import SETTINGS, type_name
from editloupe.cli.output import Form, print_json, say, table, warn
from editloupe.config import RunConfig
from editloupe.errors import ConfigError, ModelAbsent, UnknownPlugin, did_you_mean
from editloupe.protocols.base import make_protocol
from editloupe.rubrics import builtin_rubrics, load_rubric
from editloupe.runs.setup import models_of, weights_of
from editloupe.stats.spec import TableSpec
from editloupe.values import Json

_BACKENDS: Final[Mapping[str, tuple[str, str]]] = {
    "baseline": ("baseline", "rules on pixels, embedded: no key, no GPU, no network; not an LMM"),
    "google": ("google/MODEL[?base_url=…]", "Gemini, with the extra google"),
    "langchain": ("langchain/PROVIDER:MODEL", "any LangChain chat model, through its package for the provider"),
    "openai": ("openai/MODEL[?base_url=…]", "OpenAI, or any server that speaks its chat completions"),
    "recorded": ("recorded/RUN[?judge=ID]", "what a judge of an earlier run answered, from its traces"),
    "scripted": ("scripted/FILE.jsonl", "replies read from a file, one a line: for tests and demonstrations"),
    "transformers": ("transformers/FOLDER[?base=…]", "a local model or adapter, in this process, with the extra local"),
    "vllm": ("vllm/MODEL[?base_url=…]", "a model that vLLM serves, here on port 8000 or elsewhere"),
}


def list_(
    kind: Annotated[str, Argument(metavar="KIND", help="protocols, rubrics, recipes, backends, models or settings.")],
    name: Annotated[str | None, Argument(metavar="NAME", help="Show this one.", show_default=False)] = None,
    format: Form = "table",
) -> int:
    """List protocols, rubrics, recipes, backends, models or settings; or show one.

    \b
    editloupe list protocols
    editloupe list protocols dlebench
    editloupe list settings
    """
    kinds: dict[str, tuple[Callable[[], object], Callable[[str], object]]] = {
        "protocols": (_protocols, functools.partial(_protocol, as_json=format == "json")),
        "rubrics": (_rubrics, _rubric),
        "recipes": (_recipes, _recipe),
        "backends": (_backends, _backend),
        "models": (_models, _model),
        "settings": (_settings, _setting),
    }
    if kind not in kinds:
        raise ConfigError(f"there is no list of {kind!r}; {did_you_mean(kind, kinds)}expected one of {', '.join(kinds)}")
    every, one = kinds[kind]
    _ = every() if name is None else one(name)
    return 0


def _protocols() -> None:
    rows: list[tuple[str, ...]] = []
    for name in plugins.names("protocols"):
        try:
            described = _described(name)
        except ConfigError as error:
            warn([str(error)])
            rows.append((name, plugins.origin("protocols", name), "–", "–"))
            continue
        metrics = ", ".join(str(metric["short"] or metric["id"]) for metric in described["metrics"]) or "–"
        rows.append((name, described["package"], described["paper"] or "–", metrics))
    table("Protocol", "Package", "Paper", "Metrics", rows=rows)


def _protocol(name: str, *, as_json: bool) -> None:
    described = _described(name)
    if as_json:
        print_json(described)
        return
    say(f"{name} ({described['package']})", "bold")
    if described["paper"]:
        say(f"{described['paper']} {described['url']}".rstrip())
    if described["problem"]:
        say(f"Without options: {described['problem']}", "yellow")
    _print("Roles", ("Role", "What it does"), list(described["roles"].items()))
    metrics = [(m["id"], m["short"] or m["id"], _domain(m), m["better"] or "–", m["unit"]) for m in described["metrics"]]
    _print("Metrics", ("Metric", "Short", "Values", "Better", "Unit"), metrics)
    made = [(t["title"], ", ".join(t["metrics"]) or "all", t["rows"], t["cell"], t["source"]) for t in described["tables"]]
    _print("Tables", ("Table", "Metrics", "Rows", "Cell", "Source"), made)
    _print_fields("Options", described["options"])


def _described(name: str) -> dict[str, Any]:
    """Return everything about a protocol as JSON. Raises ConfigError (unknown, or no protocol)."""
    cls: Any = plugins.load("protocols", name)
    problem, metrics, tables = "", [], []
    try:
        protocol = make_protocol(name)
        metrics = [metric.to_json() for metric in protocol.metrics]
        tables = [_table(one) for one in protocol.tables]
    except ConfigError as error:
        if not hasattr(cls, "Options"):
            raise
        # An option without a default: metrics and tables depend on it.
        problem = str(error)
    paper = getattr(cls, "paper", None)
    return {
        "name": name,
        "package": plugins.origin("protocols", name),
        "paper": "" if paper is None else paper.title,
        "url": "" if paper is None else paper.url,
        "roles": dict(getattr(cls, "roles", {})),
        "metrics": metrics,
        "tables": tables,
        "options": list(_fields({field.alias or own: field for own, field in cls.Options.model_fields.items()})),
        "problem": problem,
    }


def _table(table: Any) -> dict[str, Json]:
    """Return a table of a protocol: a TableSpec, or a function of the protocol."""
    if isinstance(table, TableSpec):
        return table.to_json()
    # A partial's own docstring is Python's.
    made = table.func if isinstance(table, functools.partial) else table
    text = str(getattr(made, "__doc__", None) or getattr(made, "__name__", "a function")).strip().partition("\n")[0]
    words = text.removeprefix("Return the ").removeprefix("Return ").partition(";")[0].rstrip(".")
    if isinstance(table, functools.partial) and table.keywords:
        words += f": {', '.join(f'{name}={value}' for name, value in table.keywords.items())}"
    return {"title": words[:1].upper() + words[1:], "metrics": [], "rows": "–", "cell": "–", "source": ""}


def _domain(metric: Any) -> str:
    domain = metric["domain"]
    if domain["kind"] == "levels":
        return ", ".join(f"{level['name']} {level['value']:g}" for level in domain["levels"])
    return _span(domain["low"], domain["high"]) if domain["kind"] == "interval" else str(domain["kind"])


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _rubrics() -> None:
    known = {name: load_rubric(name) for name in builtin_rubrics()}
    rows = [(name, ", ".join(f"{c.name} ({c.short})" for c in one.criteria), one.title) for name, one in known.items()]
    table("Rubric", "Criteria", "Title", rows=rows)


def _rubric(name: str) -> None:
    """Print the labels and values of a rubric, built in or a .toml file, or its scales and penalties."""
    loaded = load_rubric(name)
    say(f"{loaded.title} (rubric {loaded.id}, digest {loaded.digest[:12]})")
    for criterion in loaded.criteria:
        title = f"{criterion.name} ({criterion.short})"
        if criterion.scale is None:
            rows = [(f"{level.value:g}", level.name, level.description) for level in reversed(criterion.levels)]
            table("Value", "Label", "Means", rows=rows, title=title)
            continue
        title += f": {_span(criterion.scale.low, criterion.scale.high)}{', whole' * criterion.scale.whole}"
        rows = [(_span(one.low, one.high), one.name, one.text) for one in criterion.penalties]
        if rows:
            table("Subtract", "Fault", "When", rows=rows, title=title)
        else:
            say(f"{title}, no penalties")


def _recipes() -> None:
    rows = []
    for name in plugins.names("builders"):
        try:
            summary = open_builder(name).summary
        except ConfigError as error:
            summary = f"cannot be used: {error}"
        rows.append((name, plugins.origin("builders", name), summary.partition("\n")[0]))
    table("Recipe", "Package", "What it makes", rows=rows)


def _recipe(name: str) -> None:
    builder = open_builder(name)
    say(f"{name} ({plugins.origin('builders', name)})", "bold")
    say(builder.summary)
    _print_fields("Options", list(_fields(builder.Options.model_fields)))


def _backends() -> None:
    names = plugins.names("backends")
    rows = [(*_BACKENDS.get(name, (f"{name}/…", "")), plugins.origin("backends", name)) for name in names]
    table("Backend", "What it is", "From", rows=rows)


def _backend(name: str) -> None:
    known = plugins.names("backends")
    if name not in known:
        raise UnknownPlugin("backend", name, known)
    form, what = _BACKENDS.get(name, (f"{name}/…", ""))
    say(f"{name} ({plugins.origin('backends', name)})", "bold")
    if what:
        say(what)
    say(f"--backend {form}")
    say(f"What it can do: editloupe check --backend {form.partition('[')[0]}")


def _models() -> None:
    """Print the kinds of models, and what each is here; nothing is loaded or downloaded."""
    table("Model", "From", "Here", rows=[(name, plugins.origin("models", name), _here(name)) for name in _kinds()])


def _kinds() -> tuple[str, ...]:
    return plugins.names("models")


def _here(kind: str) -> str:
    """Return which weights a kind has here, or why it has none."""
    try:
        return str(models_of(weights_of(RunConfig())).get(kind).version)
    except (ModelAbsent, ConfigError) as reason:
        return f"absent: {reason}"


def _model(name: str) -> None:
    if name not in _kinds():
        raise UnknownPlugin("model", name, _kinds())
    say(f"{name} ({plugins.origin('models', name)})", "bold")
    say(_here(name))


def _settings() -> None:
    _print_fields("", list(_fields(SETTINGS)))
    say("--set NAME=VALUE, a line of editloupe.yaml (NAME: VALUE), or a variable EDITLOUPE_NAME", "dim")
    say("Further: --set role.ROLE=URI, and the protocol's own (editloupe list protocols NAME)", "dim")


def _setting(name: str) -> None:
    if name not in SETTINGS:
        raise ConfigError(f"there is no setting {name!r}; {did_you_mean(name, SETTINGS)}see `editloupe list settings`")
    _print_fields("", list(_fields({name: SETTINGS[name]})))


def _fields(fields: Mapping[str, FieldInfo]) -> Iterator[dict[str, Json]]:
    """Yield what a person and a program must know of each field of a model."""
    for name, field in fields.items():
        required = field.is_required()
        default = None if required else field.get_default(call_default_factory=True)
        if isinstance(default, tuple | dict):
            default = ",".join(map(str, default)) or None
        known: Json = default if isinstance(default, int | float | str | None) else str(default)
        yield {
            "name": name,
            "type": type_name(field.annotation),
            "required": required,
            "default": known,
            "shown": "(required)" if required else "–" if known in (None, "") else str(known),
            "help": " ".join((field.description or "").split()),
        }


def _print_fields(title: str, fields: Sequence[Mapping[str, Any]]) -> None:
    rows = [(one["name"], one["type"], one["shown"], one["help"]) for one in fields]
    _print(title, ("Name", "Type", "Default", "What it does"), rows)


def _print(title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    if not rows:
        say(f"\n{title}: none")
        return
    say("")
    table(*head, rows=rows, title=title)
