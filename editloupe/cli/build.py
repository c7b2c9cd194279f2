"""`editloupe build`: data sets made from edits that a model has looked at."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Final

import typer
from pydantic import ValidationError
from pydantic.fields import FieldInfo
from typer import Argument, Option

from editloupe import files
from editloupe.build import unicedit as training_set
from editloupe.build.base import Answered, Builder, Built, DirectBuilder, Reviewed, json_text, open_builder
from editloupe.build.quality import QualityFilter
from editloupe.cli import options
from editloupe.cli.judge import exit_code
from editloupe.cli.judge_report import spent_message, stopped_message
from editloupe.cli.masks import masks as masks
from editloupe.cli.options import OUTPUT, given, one_run
from editloupe.cli.output import Form, many, note, print_json, say, status, stoppable, table, tell_traces, warn, write
from editloupe.cli.progress import progress
from editloupe.cli.targets import targets as targets
from editloupe.config import RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.errors import BackendError, ConfigError, DataError, StorageError
from editloupe.findings import Finding
from editloupe.protocols.base import make_protocol
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.setup import Setup, models_of, open_setup, weights_of
from editloupe.runs.store import RunStore
from editloupe.values import Json, parse_json

MARKER: Final = "build.json"
"""What a folder of a builder was made of. It is there before anything else."""
UNICEDIT: Final = "unicedit"
_OF_QUALITY: Final = {"least_aesthetic": FieldInfo(annotation=float), "most_persons": FieldInfo(annotation=int)}
"""What unicedit takes by `--set`: edited images of a worse figure are left out."""


def build(context: typer.Context) -> None:
    """Build a data set by a recipe: unicedit, edival, dlebench, giebench, differences, probes, or an installed one.

    masks and targets find what data lack. A recipe's options: editloupe list recipes NAME.

    \b
    editloupe build edival photos --out my-set --backend openai/gpt-4.1 --set turns=2
    """
    if not context.invoked_subcommand:
        write(f"{context.get_help()}\n")


def recipe(
    context: typer.Context,
    name: Annotated[str, Argument(metavar="RECIPE", help="unicedit, edival, dlebench, …: editloupe list recipes.")],
    path: Annotated[
        Path | None,
        Argument(metavar="PATH", help="A folder of images, or of edits, as the recipe reads.", show_default=False),
    ] = None,
    out_dir: Annotated[
        Path | None, Option("--out", metavar="FOLDER", help="The data set (required).", rich_help_panel=OUTPUT)
    ] = None,
    backend: options.Backends = None,
    edited: options.Edited = None,
    limit: options.Limit = None,
    detector: options.Detector = None,
    device: options.Device = None,
    max_cost: options.MaxCost = None,
    concurrency: options.Concurrency = None,
    review: Annotated[
        list[Path] | None, Option(metavar="RUN", help="A run in which people looked through the set; may be repeated.")
    ] = None,
    format: Form = "table",
    sets: options.Sets = None,
) -> int:
    """Build a data set. What is asked goes into FOLDER/run. The same command again continues.

    Exit code 1 where nothing is written, 5 stopped by a budget. The recipe's own options: --set NAME=VALUE
    (editloupe list recipes NAME).
    """
    builder = None if name == UNICEDIT else open_builder(name)
    if out_dir is None:
        raise ConfigError(f"--out is missing: editloupe build {name} PATH --out FOLDER")
    line, out, as_json = {n: v for n, v in given(context).items() if n != "path"}, out_dir.resolve(), format == "json"
    if builder is None:
        return _unicedit({**line, **({} if path is None else {"path": path})}, out, as_json=as_json)
    path = path or getattr(builder, "default", None)
    if path is None:
        raise ConfigError(f"PATH is missing: editloupe build {name} PATH --out FOLDER. {builder.summary}")
    fields = builder.Options.model_fields
    if builder.protocol is None:
        if asked := sorted({"backend", "max_cost", "edited", "limit", "concurrency"} & set(line)):
            raise ConfigError(f"{name} asks no model and reads all of PATH; leave --{asked[0].replace('_', '-')} out")
        run = one_run({**line, "protocol": "measures"}, f"build {name}", also=fields)
        return _build_directly(name, builder, run, path.resolve(), out, as_json=as_json)
    if review and not hasattr(builder, "review"):
        raise ConfigError(f"--review: nobody looks through a set of {name}; leave it out")
    run = one_run({**line, "protocol": builder.protocol}, f"build {name}", also=fields)
    folders = [folder.resolve() for folder in review or ()]
    return _build(name, builder, run, path.resolve(), out, reviews=folders, as_json=as_json)


def _unicedit(line: dict[str, Any], out: Path, *, as_json: bool) -> int:
    """Verify edits, drop those that failed, restate the instructions of the others, and write triplets for training.

    PATH is a folder of edits, or a run of the protocol unicverify, whose findings are taken as they stand.
    """
    run = one_run({**line, "protocol": training_set.PROTOCOL}, "build unicedit", also=_OF_QUALITY)
    if run.path is None:
        raise ConfigError("PATH is missing: name the folder of edits, or a run of the protocol unicverify")
    asked = {name: run.option[name] for name in _OF_QUALITY if name in run.option}
    option = {name: value for name, value in run.option.items() if name not in _OF_QUALITY}
    path, run = run.path, run.model_copy(update={"option": option})
    if wrong := next((name for name, value in asked.items() if not 0 <= value < math.inf), None):
        raise ConfigError(f"--set {wrong}={asked[wrong]}: expected a number of at least 0")
    quality = None
    if asked:
        quality = QualityFilter(models=models_of(weights_of(run)), **{**dict.fromkeys(_OF_QUALITY), **asked})
        quality.check()
    own = out / training_set.RUN
    verified = _is_verified(path)
    folder = path.resolve() if verified else own
    name = training_set.RUN if folder == own else str(folder)
    marker: dict[str, Json] = {"builder": UNICEDIT, "run": name, **({} if verified else {"path": str(path)})}
    marker |= {**dict.fromkeys(_OF_QUALITY), **asked} if asked else {}
    if verified:
        _check_taken(run)
    _check_built(out, marker)
    code = 0
    with _marked(out, marker), stoppable() as stop:
        if not verified:
            outcome = _verify(run, own, stop, as_json=as_json)
            code = exit_code(outcome, tolerated=run.fail_on_error)
            if outcome.interrupted or outcome.ledger.refused:
                return code
        store = RunStore.read(folder)
        with closing(store):
            warn(store.problems)
            curated = training_set.curate(store, quality)
        with status("", hidden=as_json) as shown:
            funnel = training_set.write(curated, out, run=name, stopped=stop.is_set, tell=shown.update)
    if funnel is None:
        note("Stopped before all was written. The same command continues.")
        return 130
    if as_json:
        print_json({"folder": str(out), **funnel})
    else:
        _tell(funnel, out)
    return code or (0 if curated.triplets else 1)


_OF_FILTER: Final = ("path", "protocol", "device", "detector", "clip", "aesthetic")
"""Options that hold of a run that is taken as it stands."""


def _is_verified(path: Path) -> bool:
    """Return whether a folder is a run of the verifier's protocol. Raises ConfigError for a run that cannot be read."""
    return (path / "run.json").is_file() and RunStore.read_info(path).protocol == training_set.PROTOCOL


def _check_taken(run: RunConfig) -> None:
    """Raise ConfigError for options of a judge or of the data where a run is taken as it stands."""
    usual = RunConfig().to_options()
    own = [name for name, value in run.to_options().items() if name not in _OF_FILTER and usual.get(name) != value]
    if own:
        raise ConfigError(
            f"{run.path} is a run of {training_set.PROTOCOL}: its findings are taken as they stand, so leave out "
            f"{', '.join(own)}; editloupe judge RUN --retry judges its failures again"
        )


def _verify(run: RunConfig, folder: Path, stop: Event, *, as_json: bool) -> Outcome:
    """Verify the edits into a run folder. Raises BackendError if nobody answers."""
    option = {**training_set.VERIFIER_ONLY, **run.option}
    run = run.model_copy(update={"option": option})
    setup = open_setup(run)
    if not as_json:
        note(f"Verifying {run.path} with {setup.backend.uri} into {folder}")
    return _asked(setup, run, folder, stop, what="edits", as_json=as_json)


def _asked(
    setup: Setup, run: RunConfig, folder: Path, stop: Event, *, what: str, as_json: bool, loaded: Loaded | None = None
) -> Outcome:
    """Ask all that a run needs, and say how it went. Raises BackendError if nobody answers.

    what: is asked about, in words.   loaded: samples at hand; then no config.yaml is written, which would not find them.
    """
    tell_traces(run.langsmith)
    with progress(hidden=as_json) as listener:
        outcome = drive(
            setup,
            folder,
            loaded=loaded,
            config=run.to_options() if loaded is None else None,
            listener=listener,
            stop=stop,
        )
    for text in outcome.notes:
        note(text)
    stopped = stopped_message(outcome)
    if stopped and not any(finding.status == "ok" for finding in outcome.findings):
        raise BackendError(stopped)
    if stopped:
        note(stopped)
    if outcome.interrupted:
        why = f"Stopped by the budget ({outcome.ledger.reason})" if outcome.ledger.reason else "Interrupted"
        note(f"{why}. Nothing is written before all {what} were asked about; the same command continues.")
    if not as_json and outcome.ledger.calls:
        say(spent_message(outcome.ledger, setup.backend))
    return outcome


def _tell(funnel: Mapping[str, Any], folder: Path) -> None:
    """Print the funnel as a table, and where the files are."""

    _tell_stages(funnel["stages"])
    say(
        f"{folder}: {many(funnel['written'], 'triplet')} of {many(funnel['read'], 'edit')}; {funnel['dropped']:,} dropped, "
        f"{funnel['not_judged']:,} not judged ({training_set.LEFT_OUT} has each with its reason)."
    )


def _tell_stages(stages: Sequence[Mapping[str, Any]]) -> None:
    """Print what passed each stage of a funnel."""

    def left_out(reasons: Mapping[str, Json]) -> str:
        return ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in reasons.items()) or "–"

    rows = [(one["stage"], one["passes"], f"{one['in']:,}", f"{one['out']:,}", left_out(one["left_out"])) for one in stages]
    table("Stage", "What passes", "In", "Out", "Left out", rows=rows, right=("In", "Out"))


def _options(builder: Builder | DirectBuilder, own: Mapping[str, Any]) -> Any:
    """Return a builder's options. Raises ConfigError for one that does not fit."""
    try:
        return builder.Options.model_validate(own)
    except ValidationError as error:
        first = error.errors()[0]
        flag = ".".join(map(str, first["loc"]))
        message = first["msg"].removeprefix("Value error, ")
        raise ConfigError(f"--set {flag}: {message}; found {first.get('input')!r}" if flag else message) from error


def _build_directly(name: str, builder: DirectBuilder, run: RunConfig, path: Path, out: Path, *, as_json: bool) -> int:
    """Build what asks nobody, and return the exit code."""
    options = _options(builder, run.option)
    settings = weights_of(run)
    named: dict[str, Json] = {one: getattr(settings, one) for one in builder.weights if one != "device"}
    marker: dict[str, Json] = {
        "builder": name,
        "path": str(path),
        "options": {**options.model_dump(mode="json"), **named},
    }
    _check_built(out, marker)
    with _marked(out, marker), stoppable() as stop, status("", hidden=as_json) as line:
        built = builder.build(path, options, models=models_of(settings), folder=out, stopped=stop.is_set, tell=line.update)
    if built is None:
        note("Stopped before all was written. The same command continues.")
        return 130
    _conclude(built, built.funnel(), out, as_json=as_json)
    return 0 if built.written else 1


def _build(
    name: str, builder: Builder, run: RunConfig, path: Path, out: Path, *, reviews: Sequence[Path], as_json: bool
) -> int:
    """Ask, write what follows, and return the exit code.   reviews: runs in which people looked through the set."""
    said = [one for folder in reviews for one in _reviews(folder, getattr(builder, "review", ""))]
    fields, shared = builder.Options.model_fields, make_protocol(builder.protocol).Options.model_fields
    options = _options(builder, {key: value for key, value in run.option.items() if key in fields})
    option = {key: value for key, value in run.option.items() if key in shared or key not in fields}
    run = run.model_copy(update={"path": path, "option": option})
    marker: dict[str, Json] = {"builder": name, "images": str(path), "options": options.model_dump(mode="json")}
    _check_built(out, marker)
    setup = open_setup(run)
    builder.check(options, setup.models)
    loaded = _loaded(builder, run, options, out, marker)
    if reviews:
        loaded = builder.reviewed(loaded, said)  # type: ignore[attr-defined]
    folder = out / training_set.RUN
    with stoppable() as stop:
        if not as_json:
            for text in loaded.notes:
                note(text)
            note(f"Asking {setup.backend.uri} about {many(len(loaded.samples), 'image')} of {path} into {folder}")
        outcome = _asked(setup, run, folder, stop, what="images", as_json=as_json, loaded=loaded)
        code = exit_code(outcome, tolerated=run.fail_on_error)
        if outcome.interrupted or outcome.ledger.refused:
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
    _conclude(built, {"run": training_set.RUN, **built.funnel()}, out, as_json=as_json)
    return code or (0 if built.written else 1)


def _reviews(folder: Path, protocol: str) -> list[Reviewed]:
    """Return what people said in a run, person by person. Raises ConfigError for a run of another protocol."""
    store = RunStore.read(folder)
    with closing(store):
        warn(store.problems)
    if store.protocol != protocol:
        raise ConfigError(f"--review {folder}: is a run of {store.protocol}; expected one of {protocol}")
    found: dict[tuple[str, str], dict[str, Finding]] = {}
    for answer in store.people.values():
        said = found.setdefault((answer.finding.sample_key, answer.rater), {})
        said[answer.finding.metric] = answer.finding
    if not found:
        note(f"{folder}: nobody has answered a question yet")
    return [
        Reviewed(sample=store.samples[key], rater=rater, said=said)
        for (key, rater), said in found.items()
        if key in store.samples
    ]


def _conclude(built: Built, funnel: Mapping[str, Any], out: Path, *, as_json: bool) -> None:
    """Write the funnel, which comes last, and print it. Raises StorageError."""
    try:
        files.write_whole(out / training_set.FUNNEL, json_text(dict(funnel)), below=out)
    except OSError as error:
        raise StorageError(f"{out} cannot be written: {error.strerror or error}") from error
    if as_json:
        print_json({"folder": str(out), **funnel})
    else:
        _tell_built(built, funnel, out)


def _check_built(out: Path, marker: Mapping[str, Json]) -> None:
    """Raise ConfigError for a folder that holds other files, or a set of other images or options."""
    if not out.exists():
        return
    if not out.is_dir():
        raise ConfigError(f"--out {out} is a file; name a new or an empty folder")
    try:
        known = parse_json(files.read_bytes(out / MARKER))
    except FileNotFoundError:
        if others := sorted(path.name for path in out.iterdir()):
            raise ConfigError(f"--out {out} holds other files ({others[0]}); name a new or an empty folder") from None
        return
    except (OSError, ValueError) as error:
        raise ConfigError(f"{out / MARKER} is not what this command writes ({error}); name another folder") from error
    was, now = _flat(known), _flat(marker)
    if other := next((name for name in now if was.get(name) != now[name]), None):
        raise ConfigError(
            f"--out {out} was built with {other} {was.get(other)}, and this command has {now[other]}; name another folder"
        )


def _flat(marker: Json) -> dict[str, Json]:
    """Return what a set was made of, its options beside the rest; {} for what is no marker."""
    data = dict(marker) if isinstance(marker, Mapping) else {}
    options = data.pop("options", None)
    return {**data, **(options if isinstance(options, Mapping) else {})}


def _loaded(builder: Builder, run: RunConfig, options: Any, out: Path, marker: Mapping[str, Json]) -> Loaded:
    """Return the images, at most so many as the run takes, once the folder is marked as theirs."""
    assert run.path is not None
    with _marked(out, marker):
        loaded = builder.load(run.path, options, store=ImageStore(cache_bytes=0), folder=out)
    return loaded if run.limit is None else Loaded(**{**vars(loaded), "samples": loaded.samples[: run.limit]})


@contextmanager
def _marked(out: Path, marker: Mapping[str, Json]) -> Iterator[None]:
    """Mark a folder as that of a set, and take a new mark back if what follows cannot be used. Raises ConfigError."""
    known, made = (out / MARKER).exists(), not out.exists()
    try:
        out.mkdir(parents=True, exist_ok=True)
        if not known:
            files.write_whole(out / MARKER, json_text(dict(marker)), below=out)
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be written: {error.strerror or error}; name another folder") from error
    try:
        yield
    except (ConfigError, DataError):
        if not known and [path.name for path in out.iterdir()] == [MARKER]:
            (out / MARKER).unlink()
            if made:
                with suppress(OSError):
                    out.rmdir()
        raise


def _tell_built(built: Built, funnel: Mapping[str, Any], out: Path) -> None:
    _tell_stages(funnel["stages"])
    for head, *rows in built.tables:
        table(*head, rows=rows, right=head[1:])
    for text in built.notes:
        say(text)
    say(f"{out}: {many(built.written, built.noun)} of {many(built.read, built.unit)}; {funnel['dropped']:,} dropped.")
