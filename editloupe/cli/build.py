"""`editloupe build`: data sets made from edits that a model has looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer import Argument

from editloupe import files
from editloupe.build import unicedit as training_set
from editloupe.build.base import Answered, Builder, Built, DirectBuilder, Reviewed, SetTold, json_text, open_builder
from editloupe.build.quality import QualityFilter
from editloupe.cli import options
from editloupe.cli.judge import ask_first, exit_code
from editloupe.cli.masks import masks as masks
from editloupe.cli.options import OUTPUT, given, one_run, opt
from editloupe.cli.output import Form, as_json, many, note, print_json, say, status, stoppable, table, warn, write
from editloupe.cli.targets import targets as targets
from editloupe.config import RunConfig
from editloupe.data.folders import check_exists
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, DataError
from editloupe.findings import Finding
from editloupe.protocols.base import make_protocol
from editloupe.runs.setup import models_of, open_setup, weights_of
from editloupe.runs.store import RunStore
from editloupe.values import Json, parse_json

MARKER: Final = "build.json"
"""What a folder of a builder was made of. It is there before anything else."""
UNICEDIT: Final = "unicedit"
_OF_QUALITY: Final = {"least_aesthetic": FieldInfo(annotation=float), "most_persons": FieldInfo(annotation=int)}
"""What unicedit takes by `--set`: edited images of a worse figure are left out."""
_STOPPED: Final = "Stopped before all was written. The same command continues."


def build(context: typer.Context) -> None:
    """Build a data set by a recipe: unicedit, edival, dlebench, giebench, differences, probes, or an installed one.

    masks and targets find what data lack. A recipe's options: editloupe list recipes NAME.

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
    builder = None if name == UNICEDIT else open_builder(name)
    if out_dir is None:
        raise ConfigError(f"--out is missing: editloupe build {name} PATH --out FOLDER")
    path = path or getattr(builder, "default", None)
    if path is None:
        what = "a folder of edits, or a run of the protocol unicverify" if builder is None else builder.summary
        raise ConfigError(f"PATH is missing: editloupe build {name} PATH --out FOLDER. {what}")
    line, out = {n: v for n, v in given(context).items() if n != "path"}, out_dir.resolve()
    if builder is None:
        return _unicedit({**line, "path": path}, path, out)
    if review and not hasattr(builder, "review"):
        raise ConfigError(f"--review: a set of {name} is not reviewed; leave it out")
    asked = sorted({"backend", "max_cost", "edited", "limit", "concurrency"} & set(line))
    if builder.protocol is None and asked:
        raise ConfigError(f"{name} asks no model and reads all of PATH; leave --{asked[0].replace('_', '-')} out")
    line["protocol"] = builder.protocol or "measures"
    run = one_run(line, f"build {name}", own=builder.Options.model_fields).model_copy(update={"path": path.resolve()})
    if builder.protocol is None:
        return _build_directly(name, builder, run, out)
    said = [one for folder in review or () for one in _reviews(folder.resolve(), getattr(builder, "review", ""))]
    return _build(name, builder, run, out, said if review else None)


def _unicedit(line: dict[str, Any], path: Path, out: Path) -> int:
    """Verify edits, drop those that failed, restate the instructions of the others, and write triplets for training.

    PATH is a folder of edits, or a run of the protocol unicverify, whose findings are taken as they are.
    """
    run = one_run({**line, "protocol": training_set.PROTOCOL}, "build unicedit", own=_OF_QUALITY)
    path = run.path or path
    limits: dict[str, Any] = {name: run.option[name] for name in _OF_QUALITY if name in run.option}
    if wrong := next((name for name, value in limits.items() if not 0 <= value < math.inf), None):
        raise ConfigError(f"--set {wrong}={limits[wrong]}: expected a number of at least 0")
    option = {name: value for name, value in run.option.items() if name not in _OF_QUALITY}
    run = run.model_copy(update={"option": {**training_set.VERIFIER_ONLY, **option}})
    quality = None
    if limits:
        quality = QualityFilter(models=models_of(weights_of(run)), **{**dict.fromkeys(_OF_QUALITY), **limits})
        quality.check()
    verified = (path / "run.json").is_file() and RunStore.read_info(path).protocol == training_set.PROTOCOL
    if verified and (own := sorted(set(line) & {"backend", "edited", "limit", "max_cost", "concurrency"})):
        raise ConfigError(f"{path} is a run, whose findings are taken as they are; leave {', '.join(own)} out")
    folder = path.resolve() if verified else out / training_set.RUN
    name = training_set.RUN if folder == out / training_set.RUN else str(folder)
    marker: dict[str, Json] = {"builder": UNICEDIT, "run": name, **({} if verified else {"path": str(path)})}
    marker |= {**dict.fromkeys(_OF_QUALITY), **limits} if limits else {}
    # What is wrong is found before a folder is made.
    check_exists(path, what="a folder of edits")
    setup = None if verified else open_setup(run)
    code = 0
    with _marked(out, marker):
        if setup is not None:
            outcome = ask_first(setup, folder, f"Verifying {path}", config=run.to_options())
            code = exit_code(outcome, tolerated=run.fail_on_error)
            if outcome.unfinished:
                return code
    with closing(RunStore.read(folder)) as store:
        warn(store.problems)
        curated = training_set.curate(store, quality)
    with stoppable() as stop, status("", hidden=as_json()) as shown:
        funnel: Mapping[str, Any] | None = training_set.write(
            curated, out, run=name, stopped=stop.is_set, tell=shown.update
        )
    if funnel is None:
        note(_STOPPED)
        return 130
    left = f"{funnel['dropped']:,} dropped, {funnel['not_judged']:,} not judged"
    counts = f"{many(funnel['written'], 'triplet')} of {many(funnel['read'], 'edit')}; {left}"
    _tell(out, funnel, f"{counts} ({training_set.LEFT_OUT} has each with its reason).")
    return code or (0 if curated.triplets else 1)


def _options(builder: Builder | DirectBuilder, own: Mapping[str, Any]) -> Any:
    """Return a builder's options. Raises ConfigError for one that does not fit."""
    try:
        return builder.Options.model_validate(own)
    except ValidationError as error:
        first = error.errors()[0]
        flag = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"--set {flag}: {message}; found {first.get('input')!r}" if flag else message) from error


def _build_directly(name: str, builder: DirectBuilder, run: RunConfig, out: Path) -> int:
    """Build without a model, and return the exit code."""
    assert run.path is not None
    options, settings = _options(builder, run.option), weights_of(run)
    named: dict[str, Json] = {one: getattr(settings, one) for one in builder.weights if one != "device"}
    marker: dict[str, Json] = {"builder": name, "path": str(run.path)}
    marker["options"] = {**options.model_dump(mode="json"), **named}
    with _marked(out, marker), stoppable() as stop, status("", hidden=as_json()) as line:
        built = builder.build(
            run.path, options, models=models_of(settings), folder=out, stopped=stop.is_set, tell=line.update
        )
    if built is None:
        note(_STOPPED)
        return 130
    return _conclude(built, built.funnel(), out)


def _build(name: str, builder: Builder, run: RunConfig, out: Path, said: list[Reviewed] | None) -> int:
    """Ask, write what follows, and return the exit code.   said: what people said of the set; None if none was asked."""
    assert run.path is not None
    fields, shared = builder.Options.model_fields, make_protocol(builder.protocol).Options.model_fields
    options = _options(builder, {key: value for key, value in run.option.items() if key in fields})
    option = {key: value for key, value in run.option.items() if key in shared or key not in fields}
    setup = open_setup(run.model_copy(update={"option": option}))
    marker: dict[str, Json] = {"builder": name, "images": str(run.path), "options": options.model_dump(mode="json")}
    builder.check(options, setup.models)
    with _marked(out, marker):
        loaded = builder.load(run.path, options, store=ImageStore(cache_bytes=0), folder=out)
    if run.limit is not None:
        loaded = replace(loaded, samples=loaded.samples[: run.limit])
    if said is not None:
        loaded = builder.reviewed(loaded, said)  # type: ignore[attr-defined]
    if not as_json():
        for text in loaded.notes:
            note(text)
    folder = out / training_set.RUN
    what = f"Asking {setup.backend.uri} about {many(len(loaded.samples), 'image')} of {run.path}"
    outcome = ask_first(setup, folder, what, loaded=loaded)
    code = exit_code(outcome, tolerated=run.fail_on_error)
    if outcome.unfinished:
        return code
    answered = Answered(
        identity=outcome.store.identity,
        protocol=setup.protocol,
        samples=loaded.samples,
        rejected=loaded.rejected,
        findings=outcome.findings,
        images=ImageStore(folder / "blobs", writes=False),
    )
    built = builder.write(answered, options, folder=out)
    done = _conclude(built, {"run": training_set.RUN, **built.funnel()}, out)
    return code or done


def _reviews(folder: Path, protocol: str) -> list[Reviewed]:
    """Return what people said in a run, person by person. Raises ConfigError for a run of another protocol."""
    with closing(RunStore.read(folder)) as store:
        warn(store.problems)
    if store.protocol != protocol:
        raise ConfigError(f"--review {folder}: is a run of {store.protocol}; expected one of {protocol}")
    found: dict[tuple[str, str], dict[str, Finding]] = {}
    for answer in store.people.values():
        found.setdefault((answer.finding.sample_key, answer.rater), {})[answer.finding.metric] = answer.finding
    if not found:
        note(f"{folder}: no question is answered yet")
    return [
        Reviewed(sample=store.samples[key], rater=rater, said=said)
        for (key, rater), said in found.items()
        if key in store.samples
    ]


def _conclude(built: Built, funnel: Mapping[str, Any], out: Path) -> int:
    """Write the funnel, which comes last, print it, and return the exit code. Raises StorageError."""
    with files.writing(out):
        files.write_whole(out / training_set.FUNNEL, json_text(dict(funnel)), below=out)
    counts = f"{many(built.written, built.noun)} of {many(built.read, built.unit)}; {funnel['dropped']:,} dropped."
    _tell(out, funnel, counts, built)
    return 0 if built.written else 1


def _tell(out: Path, funnel: Mapping[str, Any], counts: str, told: SetTold | None = None) -> None:
    """Print what passed each stage of a funnel, and what else there is to tell of a set."""
    if as_json():
        print_json({"folder": str(out), **funnel})
        return
    rows = []
    for one in funnel["stages"]:
        left_out = ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in one["left_out"].items()) or "–"
        rows.append((one["stage"], one["passes"], f"{one['in']:,}", f"{one['out']:,}", left_out))
    table("Stage", "What passes", "In", "Out", "Left out", rows=rows, right=("In", "Out"))
    for head, *lines in told.tables if told else ():
        table(*head, rows=lines, right=head[1:])
    for text in told.notes if told else ():
        say(text)
    say(f"{out}: {counts}")


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
