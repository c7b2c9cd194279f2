"""`editloupe list`: which protocols, rubrics, recipes, backends, models and settings there are; or one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

from pydantic.fields import FieldInfo
from typer import Argument

from editloupe import plugins
from editloupe.build.made import open_builder
from editloupe.cli.options import SETTINGS, field_row
from editloupe.cli.output import Form, say
from editloupe.cli.tables import table
from editloupe.config import RunConfig
from editloupe.errors import ConfigError, ModelAbsent, did_you_mean
from editloupe.protocols.base import make_protocol
from editloupe.rubrics import builtin_rubrics, load_rubric
from editloupe.runs.setup import models_of, weights_of

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
    kind: Annotated[str, Argument(metavar="KIND", help="protocols, rubrics, recipes, backends, models or settings.")] = "",
    name: Annotated[str | None, Argument(metavar="NAME", help="Show this one.", show_default=False)] = None,
    form: Form = "table",
) -> int:
    """List protocols, rubrics, recipes, backends, models or settings; or show one.

    \b
    editloupe list protocols
    editloupe list protocols dlebench
    editloupe list settings
    """
    kinds: dict[str, tuple[Callable[[], Sequence[str]], Callable[[str], tuple[str, ...]], tuple[str, ...]]] = {
        "protocols": (lambda: plugins.names("protocols"), _protocol_row, ("Protocol", "Package", "Paper", "Metrics")),
        "rubrics": (builtin_rubrics, _rubric_row, ("Rubric", "Criteria", "Title")),
        "recipes": (lambda: plugins.names("builders"), _recipe_row, ("Recipe", "Package", "What it makes")),
        "backends": (lambda: plugins.names("backends"), _backend_row, ("Backend", "URI", "What it is", "From")),
        "models": (lambda: plugins.names("models"), _model_row, ("Model", "From", "Here")),
        "settings": (
            lambda: tuple(SETTINGS),
            lambda one: field_row(one, SETTINGS[one]),
            ("Name", "Type", "Default", "What it does"),
        ),
    }
    if not kind:
        every = ", ".join(kinds)
        raise ConfigError(f"KIND is missing; expected one of {every}, such as editloupe list protocols")
    if kind not in kinds:
        raise ConfigError(f"there is no list of {kind!r}; {did_you_mean(kind, kinds)}expected one of {', '.join(kinds)}")
    names, row, heads = kinds[kind]
    known = names()
    if name is not None and name not in known and not (kind == "rubrics" and name.endswith(".toml")):
        raise ConfigError(
            f"there is no {kind[:-1]} {name!r}; {did_you_mean(name, known)}expected one of {', '.join(known)}"
        )
    if name is not None and kind in _SHOWN:
        _SHOWN[kind](name)
    else:
        table(*heads, rows=[row(one) for one in (known if name is None else [name])])
    if kind == "settings":
        say("--set NAME=VALUE, or a line of editloupe.yaml (NAME: VALUE)", "dim")
        say("Further: --set role.ROLE=URI, and the protocol's own (editloupe list protocols NAME)", "dim")
    return 0


def _metrics(name: str) -> tuple[list[Any], str]:
    """Return a protocol's metrics as JSON, or why there is none without options."""
    try:
        return [metric.to_json() for metric in make_protocol(name).metrics], ""
    except ConfigError as error:
        return [], f"without options: {error}"


def _protocol_row(name: str) -> tuple[str, ...]:
    paper, (metrics, why) = getattr(plugins.load("protocols", name), "paper", None), _metrics(name)
    listed = why or ", ".join(metric["short"] or metric["id"] for metric in metrics) or "–"
    return name, plugins.origin("protocols", name), "–" if paper is None else paper.title, listed


def _protocol(name: str) -> None:
    cls: Any = plugins.load("protocols", name)
    paper, (metrics, why) = getattr(cls, "paper", None), _metrics(name)
    say(f"{name} ({plugins.origin('protocols', name)})", "bold")
    if paper is not None:
        say(f"{paper.title} {paper.url}".rstrip())
    if why:
        say(why, "yellow")
    table("Role", "What it does", rows=dict(getattr(cls, "roles", {})).items(), title="Roles")
    rows = [(m["id"], m["short"] or m["id"], _domain(m), m["better"] or "–", m["unit"]) for m in metrics]
    table("Metric", "Short", "Values", "Better", "Unit", rows=rows, title="Metrics")
    _print_options({field.alias or own: field for own, field in cls.Options.model_fields.items()})


def _domain(metric: Any) -> str:
    domain = metric["domain"]
    if domain["kind"] == "levels":
        return ", ".join(f"{level['name']} {level['value']:g}" for level in domain["levels"])
    return _span(domain["low"], domain["high"]) if domain["kind"] == "interval" else str(domain["kind"])


def _span(low: float, high: float) -> str:
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"


def _rubric_row(name: str) -> tuple[str, ...]:
    one = load_rubric(name)
    return name, ", ".join(f"{c.name} ({c.short})" for c in one.criteria), one.title


def _rubric(name: str) -> None:
    """Print the labels and values of a rubric, built in or a .toml file, or its scales and penalties."""
    loaded = load_rubric(name)
    say(f"{loaded.title} (rubric {loaded.id}, digest {loaded.digest[:12]})")
    for criterion in loaded.criteria:
        title, heads = f"{criterion.name} ({criterion.short})", ("Value", "Label", "Means")
        rows = [(f"{level.value:g}", level.name, level.description) for level in reversed(criterion.levels)]
        if criterion.scale is not None:
            title += f": {_span(criterion.scale.low, criterion.scale.high)}{', whole' * criterion.scale.whole}"
            heads = ("Subtract", "Fault", "When")
            rows = [(_span(one.low, one.high), one.name, one.text) for one in criterion.penalties]
        table(*heads, rows=rows, title=title)


def _recipe_row(name: str) -> tuple[str, ...]:
    try:
        summary = open_builder(name).summary
    except ConfigError as error:
        summary = f"cannot be used: {error}"
    return name, plugins.origin("builders", name), summary.partition("\n")[0]


def _recipe(name: str) -> None:
    builder = open_builder(name)
    say(f"{name} ({plugins.origin('builders', name)})", "bold")
    say(builder.summary)
    _print_options(builder.Options.model_fields)


def _backend_row(name: str) -> tuple[str, ...]:
    return name, *_BACKENDS.get(name, (f"{name}/…", "")), plugins.origin("backends", name)


def _model_row(name: str) -> tuple[str, ...]:
    """Return which weights a kind of model has here, or why it has none; nothing is loaded or downloaded."""
    try:
        here = str(models_of(weights_of(RunConfig())).get(name).version)
    except (ModelAbsent, ConfigError) as reason:
        here = f"absent: {reason}"
    return name, plugins.origin("models", name), here


def _print_options(options: Mapping[str, FieldInfo]) -> None:
    rows = [field_row(*one) for one in options.items()]
    table("Name", "Type", "Default", "What it does", rows=rows, title="Options")


_SHOWN: Final[Mapping[str, Callable[[str], None]]] = {"protocols": _protocol, "rubrics": _rubric, "recipes": _recipe}
"""Kinds whose items have a page of their own."""
