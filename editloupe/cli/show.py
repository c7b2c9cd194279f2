"""`editloupe show`: the runs of a folder, a run's samples, or one sample's findings step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from editloupe.cli.options import CriterionName, JudgeName, RepeatNumber, SampleName
from editloupe.cli.output import Form, as_json, command, for_programs, many, note, print_json, say, warn
from editloupe.cli.tables import table
from editloupe.data.run_file import no_run
from editloupe.errors import ConfigError
from editloupe.figures.judged import judged_in, to_go, why_empty
from editloupe.findings import Finding
from editloupe.protocols.repeats import counted
from editloupe.runs.folders import Listed, runs_below
from editloupe.runs.judges import names_of
from editloupe.runs.lock import is_written
from editloupe.runs.store import RunStore

if TYPE_CHECKING:
    from editloupe.figures.closing import MeanOfAll, Standing


def show(
    run: Annotated[Path, Argument(metavar="RUN|FOLDER", help="A run, or a folder with runs below it.")] = Path("runs"),
    sample: SampleName = None,
    criterion: CriterionName = None,
    judge: JudgeName = None,
    repeat: RepeatNumber = None,
    form: Form = "table",
) -> int:
    """List the runs of a folder, the findings of a run, or the steps that led to one sample's verdict.

    \b
    editloupe show runs
    editloupe show runs/mine
    editloupe show runs/mine SAMPLE --criterion if
    """
    if sample is not None:
        _sample(run, sample, form, criterion=criterion, judge=judge, repeat=repeat)
        return 0
    only = {"--criterion": criterion, "--judge": judge, "--repeat": repeat}
    if given := [name for name, value in only.items() if value is not None]:
        raise ConfigError(f"{', '.join(given)} is about one sample: name the sample behind the run")
    if run.is_dir() and not is_run(run):
        _list(runs_in(run))
    else:
        _overview(RunStore.read(run))
    return 0


def is_run(path: Path) -> bool:
    """Return whether a path is a run, and no folder of runs. Raises ConfigError for a name that no file can have."""
    try:
        return (path / "run.json").exists()
    except OSError as error:
        raise ConfigError(f"{path} is not a run: {error.strerror or error}") from error


def runs_in(folder: Path) -> list[Listed]:
    """Return the runs below a folder, whole or broken. Raises ConfigError if there is none."""
    if not folder.is_dir():
        raise ConfigError(no_run(folder))
    if not (found := list(runs_below(folder))):
        raise ConfigError(f"{folder} is not a run, and no run is below it; judge something first: editloupe judge PATH")
    return found


def _sample(run: Path, sample: str, form: str, **chosen: str | int | None) -> None:
    """Print the findings of one sample with their steps."""
    if form not in ("table", "json"):
        raise ConfigError(f"--format {form}: one sample is printed for people, or as json")
    # This imports tools and agents, and a whole run is shown without them.
    from editloupe.cli.recorded import findings_of
    from editloupe.cli.steps import explain, told

    store = RunStore.read_samples(run, [sample])
    if not store.findings:
        raise ConfigError(why_empty(store))
    findings = findings_of(store, sample=sample, **chosen)  # type: ignore[arg-type]
    if as_json():
        of_json = [told(store, finding) for finding in findings]
        print_json({"run": str(store.folder), "sample": findings[0].sample_id, "findings": of_json}, indent=2)
    else:
        for finding in findings:
            explain(store, finding)
    warn(store.problems)


def _list(found: Sequence[Listed]) -> None:
    """Print runs. Means are of all samples (judged/asked)."""
    from editloupe.figures.closing import Standing, standing_of_run  # with it come the protocols, which others need not

    rows: list[Sequence[str]] = []
    for one in found:
        standing = Standing() if one.problem else standing_of_run(one.folder)
        state = _status(one, standing)
        if as_json():
            means = {id_: [mean.to_json() for mean in of] for id_, of in standing.means.items()}
            print_json({**one.to_json(), "status": state, "means": means})
            continue
        told = ["–"] * 5
        if one.problem:
            note(f"warning: {one.problem if one.problem.startswith(str(one.folder)) else f'{one.folder}: {one.problem}'}")
        else:
            counts = f"{one.asked} of {one.samples}", f"{one.statuses.get('ok', 0)} of {sum(one.statuses.values())}"
            when = datetime.fromtimestamp(one.written).strftime("%Y-%m-%d %H:%M")
            told = [one.mode or "–", _means(standing.means, one.judges), *counts, when]
        rows.append((str(one.folder), "\n".join(one.judges.values()) or "–", state, *told))
    if not as_json():
        heads = ("Run", "Judges", "Status", "Mode", "Means", "Samples asked", "Findings judged", "Last written")
        table(*heads, rows=rows)


def _status(one: Listed, standing: Standing) -> str:
    """Return how far a run is, in words."""
    if one.problem:
        return "cannot be read"
    if is_written(one.folder):
        return "under way"
    if not one.judges:
        return "no judge"
    if left := one.samples - one.asked if standing.to_go is None else standing.to_go:
        return f"incomplete: {many(left, 'sample')} to go"
    if standing.to_go is None and not standing.means:
        return "all samples begun"  # of a large run that was not counted since
    # A measure that is not defined on a pair has said so: that is no failure.
    failed = sum(count for status, count in one.statuses.items() if status not in ("ok", "not_defined"))
    return f"complete, {failed:,} failed" if failed else "complete"


def _means(means: Mapping[str, Sequence[MeanOfAll]], names: Mapping[str, str]) -> str:
    """Return a line a judge, with its name if there are several: the mean of all metrics, or of each if there is none."""
    lines = []
    for id_, of in means.items():
        told = ", ".join(one.text for one in of if one.metric == "overall") or ", ".join(one.text for one in of)
        lines.append(f"{names[id_]}: {told or '–'}" if len(names) > 1 and id_ in names else told)
    return "\n".join(filter(None, lines)) or "–"


def _overview(store: RunStore) -> None:
    """Print a run's findings, a row a sample; of several judges a table each, or one for programs."""
    if not store.findings:
        raise ConfigError(why_empty(store))
    try:
        # The scores of a large run are not held while it is printed.
        known = {one.judge_id: (one.findings, len(to_go(one))) for one in judged_in(store)}
    except ConfigError as error:
        note(f"warning: what was not asked yet cannot be counted: {error}")
        known = {}
    names = store.judge_names()
    found = {id_: known[id_][0] if id_ in known else store.current(id_) for id_ in names}
    if for_programs():
        # What measures and other roles found stands with every judge.
        listed = {finding.key: finding for findings in found.values() for finding in findings}
        _answered(store, list(listed.values()), names_of(store.info.get("judges")))
    for id_, uri in store.judges().items():
        if not found[id_] and len(names) > 1:
            say(f"Judge: {names[id_]} has judged nothing yet.\n")
            continue
        say(f"Judge: {uri if names[id_].startswith(uri) else f'{names[id_]}, {uri}'} ({id_})", "italic")
        if not for_programs():
            _answered(store, found[id_], {})
        left = known[id_][1] if id_ in known else 0
        to_ask = f"; {left} of {many(len(store.samples), 'sample')} to go" if left else ""
        say(f"{sum(f.status == 'ok' for f in found[id_])} of {len(found[id_])} findings judged{to_ask}.\n")
    say(f"One sample: {command('show', store.folder)} SAMPLE")
    warn(store.problems)


def _answered(store: RunStore, findings: Sequence[Finding], names: Mapping[str, str]) -> None:
    """Print a table of findings: a row a sample, and a judge if judges are named."""
    metrics = store.metrics()
    asked = list(dict.fromkeys(f.metric for f in findings))
    editors = any(f.editor for f in findings)
    questions: dict[tuple[str, tuple[str, str, str, int, str]], list[Finding]] = {}
    for f in findings:
        questions.setdefault((names.get(f.judge_id, ""), f.question), []).append(f)
    cells: dict[tuple[str, str, str], dict[str, str]] = {}
    for (judge, (metric, editor, sample, _, _)), repeats in questions.items():
        row_of = cells.setdefault((judge, editor, sample), {})
        # Turns and parts share a cell, a line each.
        row_of[metric] = f"{row_of[metric]}\n{_answers(repeats)}" if metric in row_of else _answers(repeats)
    rows = [
        (*([judge] if names else []), *([editor] if editors else []), sample, *(of.get(metric, "–") for metric in asked))
        for (judge, editor, sample), of in cells.items()
    ]
    heads = [metrics[m].name if m in metrics else f"{m.replace('_', ' ')} (intermediate)" for m in asked]
    leading = [*(["Judge"] if names else []), *(["Editor"] if editors else []), "Sample"]
    table(*leading, *(head[:1].upper() + head[1:] for head in heads), rows=rows)


def _answers(repeats: list[Finding]) -> str:
    """Return the answer to one question, or its status; of repeats each answer with its number."""
    words = [f"({f.status})" if f.answer is None else str(f.answer) for f in repeats]
    first = repeats[0]
    scope = f"{first.about.scope}: " if first.turn or first.part else ""
    return scope + (counted(words) if len(words) > 1 else words[0])
