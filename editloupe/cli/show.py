"""`editloupe show`: the runs of a folder, a run's samples, or one sample's findings step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument

from editloupe.cli.options import CriterionName, JudgeName, RepeatNumber, SampleName
from editloupe.cli.output import Form, command, for_programs, many, note, print_json, say, table, warn
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

    Examples:

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
    if run.is_dir() and not (run / "run.json").exists():
        _list(run, form == "json")
        return 0
    store = RunStore.read(run)
    _overview(store)
    warn(store.problems)
    return 0


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
    if form == "json":
        of_json = [told(store, finding) for finding in findings]
        print_json({"run": str(store.folder), "sample": findings[0].sample_id, "findings": of_json}, indent=2)
    else:
        for finding in findings:
            explain(store, finding)
    warn(store.problems)


def _list(folder: Path, as_json: bool) -> None:
    """Print the runs below a folder. Means are of all samples (judged/asked). Raises ConfigError if there is none."""
    from editloupe.figures.closing import Standing, standing_of_run  # with it come the protocols, which others need not

    if not (found := list(runs_below(folder))):
        raise ConfigError(f"{folder} is not a run, and no run is below it; judge something first: editloupe judge PATH")
    rows: list[Sequence[str]] = []
    for one in found:
        standing = Standing() if one.problem else standing_of_run(one.folder)
        state = _status(one, standing)
        if as_json:
            means = {id_: [mean.to_json() for mean in of] for id_, of in standing.means.items()}
            print_json({**one.to_json(), "status": state, "means": means})
            continue
        warn(
            [one.problem if one.problem.startswith(str(one.folder)) else f"{one.folder}: {one.problem}"] * bool(one.problem)
        )
        counts = f"{one.asked} of {one.samples}", f"{one.statuses.get('ok', 0)} of {sum(one.statuses.values())}"
        when = datetime.fromtimestamp(one.written).strftime("%Y-%m-%d %H:%M")
        told = (one.mode or "–", _means(standing.means, one.judges), *counts, when) if not one.problem else "–––––"
        rows.append((str(one.folder), "\n".join(one.judges.values()) or "–", state, *told))
    heads = ("Run", "Judges", "Status", "Mode", "Means", "Samples asked", "Findings judged")
    if not as_json:
        table(*heads, "Last written", rows=rows)


def _status(one: Listed, standing: Standing) -> str:
    """Return how far a run is, in words."""
    if one.problem:
        return "cannot be read"
    if is_written(one.folder):
        return "under way"
    if not one.judges:
        return "no judge"
    left = one.samples - one.asked if standing.to_go is None else standing.to_go
    if left:
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
        all_judged = judged_in(store)
    except ConfigError as error:
        note(f"warning: what was not asked yet cannot be counted: {error}")
        all_judged = []
    known = {judged.judge_id: judged.findings for judged in all_judged}
    waiting = {judged.judge_id: len(to_go(judged)) for judged in all_judged}
    names = store.judge_names()
    found = {judge_id: known[judge_id] if judge_id in known else store.current(judge_id) for judge_id in names}
    if for_programs():
        # What measures and other roles found stands with every judge.
        listed = {finding.key: finding for findings in found.values() for finding in findings}
        _answered(store, list(listed.values()), names_of(store.info.get("judges")))
    for judge_id, uri in store.judges().items():
        findings = found[judge_id]
        if not findings and len(names) > 1:
            say(f"Judge: {names[judge_id]} has judged nothing yet.\n")
            continue
        say(f"Judge: {uri if names[judge_id].startswith(uri) else f'{names[judge_id]}, {uri}'} ({judge_id})", "italic")
        if not for_programs():
            _answered(store, findings, {})
        judged, left = sum(f.status == "ok" for f in findings), waiting.get(judge_id, 0)
        to_ask = f"; {left} of {many(len(store.samples), 'sample')} to go" if left else ""
        say(f"{judged} of {len(findings)} findings judged{to_ask}.\n")
    say(f"One sample: {command('show', store.folder)} SAMPLE")


def _answered(store: RunStore, findings: Sequence[Finding], names: Mapping[str, str]) -> None:
    """Print a table of findings: a row a sample, and a judge if judges are named."""
    metrics = store.metrics()
    asked = list(dict.fromkeys(f.metric for f in findings))
    editors = any(f.editor for f in findings)
    heads = [metrics[m].name if m in metrics else f"{m.replace('_', ' ')} (intermediate)" for m in asked]
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
    leading = [*(["Judge"] if names else []), *(["Editor"] if editors else []), "Sample"]
    table(*leading, *(head[:1].upper() + head[1:] for head in heads), rows=rows)


def _answers(repeats: list[Finding]) -> str:
    """Return the answer to one question, or its status; of repeats each answer with its number."""
    words = [f"({f.status})" if f.answer is None else str(f.answer) for f in repeats]
    first = repeats[0]
    scope = f"{first.about.scope}: " if first.turn or first.part else ""
    return scope + (counted(words) if len(words) > 1 else words[0])
