"""`editloupe show`: a run's samples, or one sample's findings step by step."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated

from rich.rule import Rule
from rich.text import Text
from typer import Argument, Option

from editloupe.answers import Record
from editloupe.backends.prices import Prices, read_prices
from editloupe.cli.options import CriterionName, JudgeName, PricesFile, RepeatNumber, RunFolder
from editloupe.cli.output import chosen_format, for_programs, many, note, out, plain, print_json, say, table, warn
from editloupe.cli.steps import forks_of, show_image, show_opening, show_step, show_tree
from editloupe.errors import ConfigError, TraceError
from editloupe.figures.judged import Judged, judged_in, to_go, why_empty
from editloupe.findings import Finding
from editloupe.protocols.repeats import counted
from editloupe.runs.judges import names_of, titled
from editloupe.runs.lineage import Parent, first_divergence, mismatches, read_whole
from editloupe.runs.store import RunStore
from editloupe.tasks import task_from_json
from editloupe.traces.read import Trace
from editloupe.values import Json, Sample, canonical_json

_RULE = 120
"""Columns of a heading's line; a pipe has no width."""


def show(
    run: RunFolder,
    sample: Annotated[str | None, Argument(help="A sample id, or EDITOR/ID.")] = None,
    criterion: CriterionName = None,
    judge: JudgeName = None,
    repeat: RepeatNumber = None,
    fork: Annotated[int | None, Option(min=1, help="Show this fork, by its number in the tree.")] = None,
    diff: Annotated[
        Path | None, Option(metavar="OTHER_RUN", help="Compare the sample's traces with those of another run.")
    ] = None,
    prices: PricesFile = None,
) -> None:
    """Show the findings of a run, or how one sample's findings came about."""
    if sample is None and (fork is not None or diff is not None):
        raise ConfigError("--fork and --diff are about one sample: name it behind the run")
    if sample is not None and for_programs() and (chosen_format() != "json" or fork is not None or diff is not None):
        raise ConfigError("one sample is printed for people, or with --format json its findings, without --fork and --diff")
    if sample is None:
        store = RunStore.read(run)
        _overview(store)
    else:
        # This imports tools and agents, and a whole run is shown without them.
        from editloupe.cli.recorded import findings_of

        store = RunStore.read_samples(run, [sample])
        if not store.findings:
            raise ConfigError(why_empty(store))
        findings = findings_of(store, sample=sample, criterion=criterion, judge=judge, repeat=repeat)
        listed = read_prices(prices)
        other = None if diff is None else RunStore.read_samples(diff, [sample])
        if for_programs():
            told = [_told(store, finding, listed) for finding in findings]
            print_json({"run": str(store.folder), "sample": findings[0].sample_id, "findings": told}, indent=2)
            findings = []
        for finding in findings:
            out().print(Rule(plain(_title(finding)), align="left"), width=min(out().width, _RULE))
            if other is None:
                _explain(store, finding, listed, fork)
            else:
                _compare(store, finding, other, listed)
    warn(store.problems)


def _told(store: RunStore, finding: Finding, prices: Prices) -> dict[str, Json]:
    """A finding with its question and its steps, for programs. A trace that cannot be read is a warning."""
    sample, judges = store.samples.get(finding.about.key), store.info.get("judges")
    judge = judges.get(finding.judge_id) if isinstance(judges, Mapping) else None
    uri = str(judge.get("backend", "")) if isinstance(judge, Mapping) else ""
    steps: list[Json] = []
    prompt: Json = None
    if finding.trace is not None:
        try:
            trace = read_whole(store.folder, store.folder / finding.trace)
        except TraceError as error:
            note(f"warning: {error}")
        else:
            warn(trace.problems)
            prompt = trace.header.task.get("prompt")
            steps = [{**step.to_json(), "cost_usd": prices.of_uri(uri, step.usage)} for step in trace.steps()]
    return {
        **finding.to_json(),
        "judge": names_of(judges).get(finding.judge_id, uri),
        "instruction": None if sample is None or finding.turn > len(sample.turns) else sample.asked(finding.turn),
        "prompt": prompt,
        "steps": steps,
    }


def _overview(store: RunStore) -> None:
    if not store.findings:
        raise ConfigError(why_empty(store))
    names, all_judged = store.judge_names(), _judged(store) if store.findings else []
    unasked = {judged.judge_id: _unasked(judged) for judged in all_judged}
    known = {judged.judge_id: judged.findings for judged in all_judged}
    found = {judge_id: known[judge_id] if judge_id in known else store.current(judge_id) for judge_id in names}
    if for_programs() and found:
        # What measures and other roles found stands with every judge.
        listed = {finding.key: finding for findings in found.values() for finding in findings}
        columns, rows = _answered(store, list(listed.values()), names_of(store.info.get("judges")))
        table(*columns, rows=rows)
    for judge_id, uri in store.judges().items():
        findings = found[judge_id]
        if not findings and len(names) > 1:
            say(f"Judge: {names[judge_id]} has judged nothing yet.\n")
            continue
        # A line and not the table's title, which would be broken at the table's width.
        named = uri if names[judge_id].startswith(uri) else f"{names[judge_id]}, {uri}"
        say(f"Judge: {named} ({judge_id})", "italic")
        if not for_programs():
            columns, rows = _answered(store, findings, {})
            table(*columns, rows=rows)
        judged = sum(f.status == "ok" for f in findings)
        say(f"{judged} of {len(findings)} findings judged{unasked.get(judge_id, '')}.\n")
    say(f"One sample: editloupe show {store.folder} SAMPLE")


def _answered(
    store: RunStore, findings: Sequence[Finding], names: Mapping[str, str]
) -> tuple[list[str], list[tuple[str | Text, ...]]]:
    """Return heads and rows of a table of findings: a row a sample, and a judge where judges are named."""
    metrics = store.metrics()
    asked = list(dict.fromkeys(f.metric for f in findings))
    editors = any(f.editor for f in findings)
    heads = (metrics[m].name if m in metrics else f"{_words(m)} (intermediate)" for m in asked)
    leading = [*(["Judge"] if names else []), *(["Editor"] if editors else []), "Sample"]
    cells: dict[tuple[str, str, str], dict[str, Text]] = {}
    questions: dict[tuple[str, tuple[str, str, str, int, str]], list[Finding]] = {}
    for f in findings:
        questions.setdefault((names.get(f.judge_id, ""), f.question), []).append(f)
    # A large run has few different answers in very many cells.
    texts: dict[tuple[str, str], Text] = {}
    for (judge, (metric, editor, sample, _, _)), repeats in questions.items():
        words = _answers(repeats)
        text = texts[words] if words in texts else texts.setdefault(words, plain(*words))
        row_of = cells.setdefault((judge, editor, sample), {})
        # Turns and parts share a cell, a line each.
        row_of[metric] = text if metric not in row_of else row_of[metric] + plain("\n") + text
    rows = [
        (*([judge] if names else []), *([editor] if editors else []), sample, *(of.get(metric, "–") for metric in asked))
        for (judge, editor, sample), of in cells.items()
    ]
    return [*leading, *(head[:1].upper() + head[1:] for head in heads)], rows


def _judged(store: RunStore) -> list[Judged]:
    """Return the run's judges with their scores; none where no scores can be made of the findings."""
    try:
        return judged_in(store)
    except ConfigError as error:
        note(f"warning: what was not asked yet cannot be counted: {error}")
        return []


def _unasked(judged: Judged) -> str:
    """Return how many samples a judge was not asked about yet; "" for one that is done."""
    waiting = to_go(judged)
    if not waiting:
        return ""
    begun = {f.sample_key for f in judged.findings}
    new, part = len(waiting - begun), len(waiting & begun)
    return f"; of {many(len(judged.samples), 'sample')}, {new} not asked yet" + f", {part} asked in part" * (part > 0)


def _answers(repeats: list[Finding]) -> tuple[str, str]:
    """The answer to one question, or why there is none, and its style; of repeats each answer with its number."""
    words = [f"({f.status})" if f.answer is None else str(f.answer) for f in repeats]
    failed = all(f.status != "ok" for f in repeats)
    first = repeats[0]
    scope = f"{first.about.scope}: " if first.turn or first.part else ""
    return scope + (counted(words) if len(words) > 1 else words[0]), "red" if failed else ""


def _words(metric: str) -> str:
    return metric.replace("_", " ")


def _title(finding: Finding) -> str:
    """The question of a finding: "painter/s01: visual consistency, turn 2, repeat 3"."""
    again = f"repeat {finding.repeat + 1}" if finding.repeat else ""
    parts = (_words(finding.metric), finding.about.scope, again)
    return f"{finding.about.key}: {', '.join(part for part in parts if part)}"


def _explain(store: RunStore, finding: Finding, prices: Prices, fork: int | None) -> None:
    """One finding with its steps; or, where it is asked for, one of its forks."""
    key = finding.about.key
    sample = store.samples.get(key)
    if sample is not None:
        turns = sample.turns[finding.turn - 1 : finding.turn] if finding.turn else sample.turns
        for number, turn in enumerate(turns, start=finding.turn or 1):
            if not turn.instruction:
                continue
            which = f" {number}" if len(sample.turns) > 1 else ""
            say(f"Instruction{which}: {turn.instruction}")
    shown: Finding | None = finding
    if finding.trace is None:
        _show_edit(store, sample, finding.turn)
    else:
        forks = forks_of(store.folder, finding.trace)
        name = finding.trace
        if fork is not None:
            name = next((path for path in forks if Path(path).name.split(".")[2] == str(fork)), "")
            if not name:
                raise ConfigError(f"{key}, {finding.metric}: there is no fork {fork}")
            shown = forks[name][2]
        try:
            trace = read_whole(store.folder, store.folder / name)
            kept = 0 if (parent := Parent.of(trace.header)) is None else parent.step
        except TraceError as error:
            _show_edit(store, sample, finding.turn)
            note(f"warning: {error}")
        else:
            _question(store, trace)
            uri = str(trace.header.judge.get("backend"))
            # A fork may have another judge than those of the run.
            named = names_of(store.info.get("judges")).get(trace.header.judge_id, uri)
            role = "" if finding.role in ("judge", "measure") else f" (role {finding.role})"
            say(f"Judge: {titled(named, uri)}{role}")
            say(f"Trace: {store.folder / name}")
            show_opening(trace)
            for number, step in enumerate(trace.steps(), start=1):
                remark = ", shared with what it continues" if number <= kept else ""
                show_step(number, step, store, partial(prices.of_uri, uri), remark)
            listed = finding if fork is None else None
            strange = [] if store.rescored else mismatches(trace, listed, store.identity)
            warn((*trace.problems, *strange))
        if forks:
            show_tree(finding.trace, finding, store.judge_names().get(finding.judge_id, ""), forks)
    if shown is None:
        say("\nNot finished.", "bold red")
    else:
        _verdict(shown)


def _show_edit(store: RunStore, sample: Sample | None, turn: int) -> None:
    """Show a sample's pictures. turn: the last that is shown; 0 for all."""
    if sample is None:
        return
    for name, image in sample.originals.items():
        show_image(name, image, store)
    for number, one in enumerate(sample.turns[: turn or None], start=1):
        if one.edited is not None:
            name = "Edited Image" + (f" (after turn {number})" if len(sample.turns) > 1 else "")
            show_image(name, one.edited, store)


def _question(store: RunStore, trace: Trace) -> None:
    """The pictures of a question, the measure that was run, and the findings from which it was planned."""
    try:
        task = task_from_json(trace.header.task)
    except ValueError as error:
        note(f"warning: the question cannot be shown: {error}")
        return
    for alias, image in {view.alias: view.origin for view in task.views}.items():
        show_image(alias, image, store)
    sample = store.samples.get(task.about.key)
    for warning in sample.warnings if sample else ():
        say(f"  ({warning})")
    if not task.views:
        say("  (text alone, no pictures)")
    if task.kind == "measure":
        version = trace.header.judge.get("backend_version")
        given = f", arguments {canonical_json(dict(task.args))}" if task.args else ""
        say(f"Measure: {task.measure}, version {version}{given}")
    for id_ in task.rests_on:
        found = [f for f in store.current() if f.task_id == id_]
        for origin in found:
            say(f"Planned from {_title(origin)}: {origin.answer or origin.status}")
        if not found:
            say(f"Planned from task {id_[:12]}, which has no finding here")


def _compare(store: RunStore, finding: Finding, other: RunStore, prices: Prices) -> None:
    """Where the traces of one question in two runs begin to differ."""
    found = [f for f in other.current() if f.question == finding.question and f.repeat == finding.repeat]
    if not found:
        say(f"{other.folder} has no finding for it.\n")
        return
    for second in found:
        sides = (("here", store, finding), ("there", other, second))
        for where, run, f in sides:
            judge = names_of(run.info.get("judges")).get(f.judge_id, "")
            say(f"{where.capitalize():<6} {f.answer or f.status}  ({judge}, {run.folder})")
        if finding.trace is None or second.trace is None:
            say("One of them has no trace.\n")
            continue
        here, there = (read_whole(run.folder, run.folder / str(f.trace)) for _, run, f in sides)
        divergence = first_divergence(here, there)
        if divergence is None:
            say(f"The same conversation to the end, {len(here.steps())} steps.\n")
            continue
        parted, how = divergence
        say(f"They part {how}", "bold")
        for (where, run, _), trace in zip(sides, (here, there), strict=True):
            price = partial(prices.of_uri, str(trace.header.judge.get("backend")))
            for number, step in enumerate(trace.steps(), start=1):
                # Those who were asked another question share no step.
                if parted in (0, number):
                    show_step(number, step, run, price, f", {where}")
        say("")


def _verdict(finding: Finding) -> None:
    if finding.status == "ok":
        value = "" if finding.value is None or finding.label is None else f" ({finding.value:g})"
        answer = finding.answer
        words = json.dumps(answer.data, indent=2, ensure_ascii=False) if isinstance(answer, Record) else str(answer)
        say(f"\nVerdict: {words}{value}", "bold green")
        # A model's reason stands in its trace, if there is one.
        if finding.reason and (finding.role == "measure" or finding.trace is None):
            say(f"  {finding.reason}")
    else:
        say(f"\nNot judged: {finding.status}: {finding.reason}", "bold red")
    for evidence in finding.evidence:
        x0, y0, x1, y1 = evidence.box.ints()
        say(f"  rests on {evidence.image}, x {x0}–{x1}, y {y0}–{y1}")
    say("")
