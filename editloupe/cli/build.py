"""`editloupe build`: data sets made from edits that a model has looked at."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Annotated, Any, Final

import typer
from typer import Option

from editloupe.backends.prices import read_prices
from editloupe.cli.judge import budget_of, exit_code, opened
from editloupe.cli.judge_report import spent_message, stopped_message
from editloupe.cli.options import OUTPUT, AsJson, only, read_config, run_options, words
from editloupe.cli.output import many, note, print_json, progress, say, status, stoppable, table, tell_traces, warn, write
from editloupe.config import RunConfig
from editloupe.errors import BackendError, ConfigError
from editloupe.exports import unicedit as training_set
from editloupe.runs.execute import Outcome, execute
from editloupe.runs.store import RunStore
from editloupe.values import Json

_NOT_HERE: Final = (
    "protocol", "rubric", "criteria", "prompt", "repeats", "aggregate_repeats", "abstain_above", "null_edit", "judges",
    "constrain_labels", "launch", "launch_args", "ablate", "config", "trust_run",
)  # fmt: skip


def build(context: typer.Context) -> None:
    """Build a data set from edits that a model has verified. `build unicedit`: triplets for training."""
    if not context.invoked_subcommand:
        write(f"{context.get_help()}\n")


@run_options(without=_NOT_HERE)
def unicedit(
    runs: list[RunConfig],
    *,
    out_dir: Annotated[Path, Option("--out", metavar="FOLDER", help="The data set.", rich_help_panel=OUTPUT)],
    to: Annotated[
        str | None, Option("--to", help="parquet, imagefolder or both. Default: both.", rich_help_panel=OUTPUT)
    ] = None,
    rows: Annotated[
        int, Option("--rows-per-file", min=1, help="Most rows of a Parquet file.", rich_help_panel=OUTPUT)
    ] = training_set.ROWS,
    as_json: AsJson = False,
) -> int:
    """Verify edits, drop those that failed, restate the instructions of the others, and write triplets for training.

    PATH is a folder of edits, or a run of the protocol unicverify, whose findings are taken as they stand. Edits are
    verified into FOLDER/run. The same command again continues. Exit code 1 where nothing is written.
    """
    run = only(runs, "build unicedit")
    if run.path is None:
        raise ConfigError("PATH is missing: name the folder of edits, or a run of the protocol unicverify")
    layouts = training_set.LAYOUTS if to is None else words(to) or ()
    if unknown := [name for name in layouts if name not in training_set.LAYOUTS]:
        raise ConfigError(f"--to {unknown[0]!r}: expected {' or '.join(training_set.LAYOUTS)}")
    out_dir = out_dir.resolve()
    own = out_dir / training_set.RUN
    verified = _is_verified(run.path)
    folder = run.path.resolve() if verified else own
    name = training_set.RUN if folder == own else str(folder)
    training_set.check_folder(out_dir, name)
    code = 0
    with stoppable() as stop:
        if verified:
            _check_taken(run)
        else:
            outcome = _verify(run, own, stop, as_json=as_json)
            code = exit_code(outcome, tolerated=run.fail_on_error)
            if outcome.interrupted or outcome.ledger.refused:
                return code
        store = RunStore.read(folder)
        with closing(store):
            warn(store.problems)
            curated = training_set.curate(store)
        with status("", hidden=as_json) as line:
            funnel = training_set.write(
                curated, out_dir, run=name, layouts=layouts, rows=rows, stopped=stop.is_set, tell=line.update
            )
    if funnel is None:
        note("Stopped before all was written. The same command continues.")
        return 130
    if as_json:
        print_json({"folder": str(out_dir), **funnel})
    else:
        _tell(funnel, out_dir)
    return code or (0 if curated.triplets else 1)


def _is_verified(path: Path) -> bool:
    """Return whether a folder is a run of the verifier's protocol. Raises ConfigError for a run that cannot be read."""
    return (path / "run.json").is_file() and RunStore.read_info(path).protocol == training_set.PROTOCOL


def _check_taken(run: RunConfig) -> None:
    """Raise ConfigError for options of a judge or of the data where a run is taken as it stands."""
    usual = RunConfig().to_options()
    given = [name for name, value in run.to_options().items() if name != "path" and usual.get(name) != value]
    if given:
        raise ConfigError(
            f"{run.path} is a run of {training_set.PROTOCOL}: its findings are taken as they stand, so leave out "
            f"{', '.join(given)}; editloupe retry judges its failures again"
        )


def _verify(run: RunConfig, folder: Path, stop: Event, *, as_json: bool) -> Outcome:
    """Verify the edits into a run folder. Raises ConfigError if that has other data, BackendError if nobody answers."""
    if (folder / "config.yaml").exists() and (known := read_config(folder / "config.yaml").get("path")) != str(run.path):
        raise ConfigError(f"{folder.parent} is built from {known}, not from {run.path}; name another --out")
    option = {**training_set.VERIFIER_ONLY, **run.option}
    run = run.model_copy(update={"protocol": training_set.PROTOCOL, "option": option})
    setup = opened(run)
    tell_traces(run.langsmith)
    if not as_json:
        note(f"Verifying {run.path} with {setup.backend.uri} into {folder}")
    with progress(hidden=as_json) as listener:
        outcome = execute(
            setup,
            folder,
            config=run.to_options(),
            budget=budget_of(run),
            prices=read_prices(run.prices),
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
        note(f"{why}. Nothing is written before all edits were asked about; the same command continues.")
    if not as_json and outcome.ledger.calls:
        say(spent_message(outcome.ledger, setup.backend))
    return outcome


def _tell(funnel: Mapping[str, Any], folder: Path) -> None:
    """Print the funnel as a table, and where the files are."""

    def left_out(reasons: Mapping[str, Json]) -> str:
        return ", ".join(f"{count:,} {why.replace('_', ' ')}" for why, count in reasons.items()) or "–"

    rows = [
        (one["stage"], one["passes"], f"{one['in']:,}", f"{one['out']:,}", left_out(one["left_out"]))
        for one in funnel["stages"]
    ]
    table("Stage", "What passes", "In", "Out", "Left out", rows=rows, right=("In", "Out"))
    say(
        f"{folder}: {many(funnel['written'], 'triplet')} of {many(funnel['read'], 'edit')}; {funnel['dropped']:,} dropped, "
        f"{funnel['not_judged']:,} not judged ({training_set.LEFT_OUT} has each with its reason)."
    )
    if funnel["renamed_keys"]:
        say(f"{many(funnel['renamed_keys'], 'key')} stood twice in the data and got a number.", "dim")
