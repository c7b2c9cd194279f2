"""`editloupe build`: data sets made from edits that a model has looked at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError
from typer import Argument

from editloupe import files
from editloupe.build.base import Built, json_text
from editloupe.build.direct import DirectRecipe
from editloupe.build.engine import SetRecipe
from editloupe.build.made import open_builder, write_set
from editloupe.build.people import with_reviews
from editloupe.cli import options
from editloupe.cli.judge import ask_first, exit_code
from editloupe.cli.options import OUTPUT, field_row, given, one_run, opt
from editloupe.cli.output import Form, as_json, many, note, print_json, say, status, stoppable, warn, write
from editloupe.cli.tables import table
from editloupe.cli.targets import targets as targets
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, DataError
from editloupe.runs.setup import models_of, open_setup, weights_of
from editloupe.runs.store import RunStore
from editloupe.values import Json, parse_json

MARKER: Final = "build.json"
"""What a folder of a builder was made of. It is there before anything else."""
FUNNEL: Final = "funnel.json"
RUN: Final = "run"
"""Folder of a recipe's run."""
_STOPPED: Final = "Stopped before all was written. The same command continues."


def build(context: typer.Context) -> None:
    """Build a data set by a recipe: unicedit, edival, dlebench, giebench, differences, probes, masks, or an installed one.

    targets finds what data lack. A recipe's options: editloupe list recipes NAME.

    \b
    editloupe build edival photos --out my-set --backend openai/gpt-4.1 --set turns=2
    """
    if context.invoked_subcommand is None:
        write(f"{context.get_help()}\n")


def recipe(
    context: typer.Context,
    name: Annotated[str, Argument(metavar="RECIPE", help="unicedit, edival, dlebench, …: editloupe list recipes.")],
    path: Annotated[Path | None, Argument(metavar="PATH", help="Images, or edits.", show_default=False)] = None,
    backend: options.Backend = None,
    edited: options.Edited = None,
    limit: options.Limit = None,
    detector: options.Detector = None,
    device: options.Device = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
    review: Annotated[list[Path] | None, opt("--review", "RUN", "In which people looked through it; repeatable.")] = None,
    out_dir: Annotated[Path | None, opt("--out", "FOLDER", "The data set (required).", OUTPUT)] = None,
    form: Form = "table",
    sets: options.Sets = None,
) -> int:
    """Build a data set. What is asked goes into FOLDER/run. The same command again continues.

    Exit code 1 if nothing is written, 5 stopped by a budget. The recipe's own options: --set NAME=VALUE
    (editloupe list recipes NAME).
    """
    builder = open_builder(name)
    if out_dir is None:
        raise ConfigError(f"--out is missing: editloupe build {name} PATH --out FOLDER")
    path = path or getattr(builder, "default", None)
    if path is None:
        raise ConfigError(f"PATH is missing: editloupe build {name} PATH --out FOLDER. {builder.summary}")
    if str(path).startswith("hf:"):
        raise ConfigError(f"editloupe build {name} reads a local folder; found {path}")
    line, out = {n: v for n, v in given(context).items() if n != "path"}, out_dir.resolve()
    refused = _refused(builder)
    if review and "review" in refused:
        raise ConfigError(f"--review: a set of {name} is not reviewed; leave it out")
    if asked := sorted(refused & set(line)):
        alone = "asks no model and reads all of PATH"
        why = alone if issubclass(builder, DirectRecipe) else "reads PATH alone"
        raise ConfigError(f"{name} {why}; leave --{asked[0].replace('_', '-')} out")
    line["protocol"] = "measures" if issubclass(builder, DirectRecipe) else builder.name
    run = one_run(line, f"build {name}", own=builder.Options.model_fields).model_copy(update={"path": path.resolve()})
    if issubclass(builder, DirectRecipe):
        return _build_directly(name, builder, run, out)
    return _build(name, run, out, review or [])


def help_of(name: str, params: Sequence[Any]) -> tuple[list[Any], str]:
    """Return the parameters and the text of a recipe's own help.   params: of all recipes.

    Raises UnknownPlugin, and ConfigError for an entry point that is no recipe.
    """
    builder = open_builder(name)
    shown = {one.name: copy(one) for one in params if one.name not in ("name", *_refused(builder))}
    asks, stopped = "What is asked goes into FOLDER/run. ", ", 5 stopped by a budget"
    if issubclass(builder, DirectRecipe):
        shown["path"].help, asks, stopped = _plain(builder.reads), "", ""
    about = f"{asks}The same command again continues. Exit code 1 if nothing is written{stopped}."
    for field in builder.Options.model_fields.items():
        own, kind, default, text = field_row(*field)
        line = copy(shown["sets"])
        line.opts, line.metavar = [f"--set {own}"], kind
        line.rich_help_panel = f"Settings of {name}"
        line.help = _plain(text) + ("" if default == "–" else f" Default: {default}.")
        shown[f"set {own}"] = line
    return [*shown.values()], f"{_plain(' '.join(builder.summary.split()))}\n\n{about}"


def _plain(text: str) -> str:
    """Return a text of a recipe's so that its brackets are no markup."""
    return text.replace("[", r"\[")


def _refused(builder: Any) -> set[str]:
    """Return the options that a recipe does not take."""
    refused = {"edited"} if getattr(builder, "review", None) else {"edited", "review"}
    if issubclass(builder, DirectRecipe):
        refused |= {"backend", "limit", "max_cost", "concurrency"}
    return refused


def _options(builder: type[DirectRecipe], own: Mapping[str, Any]) -> Any:
    """Return a builder's options. Raises ConfigError for one that does not fit."""
    try:
        return builder.Options.model_validate(own)
    except ValidationError as error:
        first = error.errors()[0]
        flag = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"--set {flag}: {message}; found {first.get('input')!r}" if flag else message) from error


def _build_directly(name: str, builder: type[DirectRecipe], run: RunConfig, out: Path) -> int:
    """Build without a model, and return the exit code."""
    assert run.path is not None
    options, settings = _options(builder, run.option), weights_of(run)
    named: dict[str, Json] = {one: getattr(settings, one) for one in builder.weights if one != "device"}
    marker: dict[str, Json] = {"builder": name, "path": str(run.path)}
    marker["options"] = {**options.model_dump(mode="json"), **named}
    with _marked(out, marker), stoppable() as stop, status("", hidden=as_json()) as line:
        making = builder.opened(run.path, options, models=models_of(settings), folder=out)
        built = making.build(stop.is_set, line.update)
    if built is None:
        note(_STOPPED)
        return 130
    return _conclude(built, built.funnel(), out)


def _build(name: str, run: RunConfig, out: Path, reviews: Sequence[Path]) -> int:
    """Ask, write what follows, and return the exit code.   reviews: runs in which people looked through the set."""
    setup = open_setup(run)
    recipe, path = setup.protocol, run.path
    assert isinstance(recipe, SetRecipe) and path is not None
    recipe.check_models(setup.models)
    said = [_reviewed(folder.resolve(), recipe) for folder in reviews]
    marker: dict[str, Json] = {"builder": name, "images": str(path), "options": recipe.options.model_dump(mode="json")}
    with _marked(out, marker):
        loaded = recipe.loaded(path, ImageStore(cache_bytes=0))
    if run.limit is not None:
        loaded = replace(loaded, samples=loaded.samples[: run.limit])
    if said and recipe.review is not None:
        loaded = with_reviews(loaded, said, recipe.review())
    if not as_json():
        for text in loaded.notes:
            note(text)
    what = f"Asking {setup.backend.uri} about {many(len(loaded.samples), 'image')} of {path}"
    outcome = ask_first(setup, out / RUN, what, loaded=loaded)
    code = exit_code(outcome, tolerated=run.fail_on_error)
    if outcome.unfinished:
        return code
    built = write_set(outcome, out)
    done = _conclude(built, {"run": RUN, **built.funnel()}, out)
    return code or done


def _reviewed(folder: Path, recipe: SetRecipe) -> RunStore:
    """Return a run in which people answered. Raises ConfigError for a run of another protocol."""
    with closing(RunStore.read(folder)) as store:
        warn(store.problems)
    protocol = "" if recipe.review is None else recipe.review.name
    if store.protocol != protocol:
        raise ConfigError(f"--review {folder}: is a run of {store.protocol}; expected one of {protocol}")
    if not store.people:
        note(f"{folder}: no question is answered yet")
    return store


def _conclude(built: Built, funnel: Mapping[str, Any], out: Path) -> int:
    """Write the funnel, which comes last, print it, and return the exit code. Raises StorageError."""
    with files.writing(out):
        files.write_whole(out / FUNNEL, json_text(dict(funnel)), below=out)
    if as_json():
        print_json({"folder": str(out), **funnel})
        return 0 if built.written else 1
    rows = []
    for one in funnel["stages"]:
        left_out = ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in one["left_out"].items()) or "–"
        rows.append((one["stage"], one["passes"], f"{one['in']:,}", f"{one['out']:,}", left_out))
    table("Stage", "What passes", "In", "Out", "Left out", rows=rows, right=("In", "Out"))
    for name, count in built.counts.items():
        say(f"{name.replace('_', ' ')}: {_counted(count)}")
    for text in built.notes:
        say(text)
    say(f"{out}: {many(built.written, built.noun)} of {many(built.read, built.unit)}; {funnel['dropped']:,} dropped.")
    return 0 if built.written else 1


def _counted(count: Json) -> str:
    """Return a count of a funnel in words: a number, or names with numbers."""
    if not isinstance(count, Mapping):
        return str(count).lower() if isinstance(count, bool) else str(count)
    parts = (f"{name.replace('_', ' ')} {f'({_counted(n)})' if isinstance(n, Mapping) else n}" for name, n in count.items())
    return ", ".join(parts) or "0"


@contextmanager
def _marked(out: Path, marker: Mapping[str, Json]) -> Iterator[None]:
    """Mark a folder as that of a set, and take a new mark back if what follows cannot be used.

    Raises ConfigError for a folder that holds other files, or a set of other options.
    """
    if out.exists() and not out.is_dir():
        raise ConfigError(f"--out {out} is a file; name a new or an empty folder")
    held = sorted(path.name for path in out.iterdir()) if out.exists() else []
    made, new = not out.exists(), MARKER not in held
    if held and new:
        raise ConfigError(f"--out {out} holds other files ({held[0]}); name a new or an empty folder")
    try:
        if new or held == [MARKER]:
            out.mkdir(parents=True, exist_ok=True)
            files.write_whole(out / MARKER, json_text(dict(marker)), below=out)
        was, now = _flat(parse_json(files.read_bytes(out / MARKER))), _flat(marker)
    except ValueError as error:
        raise ConfigError(f"{out / MARKER} is not what this command writes ({error}); name another folder") from error
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror or error}; name another folder") from error
    if other := next((name for name in now if was.get(name) != now[name]), None):
        raise ConfigError(
            f"--out {out} was built with {other} {was.get(other)}, and this command has {now[other]}; name another folder"
        )
    try:
        yield
    except (ConfigError, DataError):
        if new and [path.name for path in out.iterdir()] == [MARKER]:
            (out / MARKER).unlink()
            if made:
                out.rmdir()
        raise


def _flat(marker: Json) -> dict[str, Json]:
    """Return what a set was made of, with its options; {} if it is not a marker."""
    data = dict(marker) if isinstance(marker, Mapping) else {}
    options = data.pop("options", None)
    return {**data, **(options if isinstance(options, Mapping) else {})}
