"""`editloupe show`: a run's samples, or one sample's verdicts step by step."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.rule import Rule
from rich.table import Table

from editloupe.cli.output import note, out, plain
from editloupe.cli.steps import forks_of, show_image, show_step, show_tree
from editloupe.errors import ConfigError
from editloupe.protocols.repeats import counted
from editloupe.values import Json, sample_key

if TYPE_CHECKING:
    from rich.text import Text

    from editloupe.backends.prices import Prices
    from editloupe.findings import Finding
    from editloupe.runs.store import RunStore


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    sample: Annotated[str | None, typer.Argument(help="A sample id, or EDITOR/ID.")] = None,
    criterion: Annotated[str | None, typer.Option(help="Only this criterion, such as if.")] = None,
    judge: Annotated[str | None, typer.Option(help="Only this judge: its name, its URI, its id or its beginning.")] = None,
    repeat: Annotated[int | None, typer.Option(min=1, help="Only this repeat of a question, from 1.")] = None,
    fork: Annotated[int | None, typer.Option(min=1, help="The steps of this fork, as the tree numbers them.")] = None,
    diff: Annotated[
        Path | None, typer.Option(metavar="OTHER_RUN", help="Where the sample's traces part from those of another run.")
    ] = None,
    prices: Annotated[Path | None, typer.Option(help="Prices (TOML) of models that no list has.")] = None,
) -> None:
    """Show the verdicts of a run, or how one sample's verdicts came about."""
    from editloupe.backends.prices import read_prices
    from editloupe.runs.store import RunStore

    if sample is None and (fork is not None or diff is not None):
        raise ConfigError("--fork and --diff are about one sample: name it behind the run")
    store = RunStore.read(run) if sample is None else RunStore.read_sample(run, sample)
    if sample is None:
        _overview(store)
    else:
        wanted = None if criterion is None else criterion_id(store, criterion)
        findings = [f for f in of_sample(store, sample) if wanted in (None, f.metric)]
        judges = store.judges_called(judge)
        findings = [f for f in findings if f.judge_id in judges and repeat in (None, f.repeat + 1)]
        if not findings:
            asked = {"criterion": criterion, "judge": judge, "repeat": repeat}
            told = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
            there = ", ".join(store.judge_names().values())
            raise ConfigError(f"{run}: sample {sample!r} has no finding for {told}; the run's judges are {there}")
        listed = read_prices(prices)
        other = None if diff is None else RunStore.read_sample(diff, sample)
        for finding in findings:
            if other is not None:
                _compare(store, finding, other, listed)
            else:
                _explain(store, finding, listed, fork)
    for problem in store.problems:
        note(f"warning: {problem}")


def _overview(store: RunStore) -> None:
    names = store.judge_names()
    for judge_id, uri in store.judges().items():
        findings = store.current(judge_id)
        if not findings and len(names) > 1:
            out().print(plain(f"Judge: {names[judge_id]} has judged nothing yet.\n"))
            continue
        criteria = list(dict.fromkeys(f.metric for f in findings))
        editors = any(f.editor for f in findings)
        columns = [*(["Editor"] if editors else []), "Sample", *(c.replace("_", " ").capitalize() for c in criteria)]
        # A line and not the table's title, which would be broken at the table's width.
        named = uri if names[judge_id].startswith(uri) else f"{names[judge_id]}, {uri}"
        out().print(plain(f"Judge: {named} ({judge_id})", "italic"), soft_wrap=True)
        table = Table()
        for column in columns:
            table.add_column(plain(column), overflow="fold")
        cells: dict[tuple[str, str], dict[str, Text]] = {}
        asked: dict[tuple[str, str, str, int], list[Finding]] = {}
        for f in findings:
            asked.setdefault(f.question, []).append(f)
        for (editor, sample, criterion, _), repeats in asked.items():
            text = _answers(repeats)
            row_of = cells.setdefault((editor, sample), {})
            # Targets that are judged one by one share a cell, a line each.
            row_of[criterion] = text if criterion not in row_of else row_of[criterion] + plain("\n") + text
        for (editor, sample), found in cells.items():
            row = [plain(editor)] if editors else []
            table.add_row(*row, plain(sample), *(found.get(c, plain("–")) for c in criteria))
        out().print(table)
        judged = sum(f.status == "ok" for f in findings)
        out().print(f"{judged} of {len(findings)} findings judged.\n")
    for probed in store.probes():
        _probed(probed)
    out().print(plain(f"One sample: editloupe show {store.folder} SAMPLE"), soft_wrap=True)


def _answers(repeats: list[Finding]) -> Text:
    """The label of a question, or why there is none; of one that was asked several times each answer with its number."""
    words = [f.label or "" if f.status == "ok" else f"({f.status})" for f in repeats]
    failed = all(f.status != "ok" for f in repeats)
    return plain(counted(words), "red" if failed else "")


def _probed(probed: Mapping[str, Json]) -> None:
    """What a backend was found to be able to do (`editloupe backends probe --run`)."""
    table = Table(title=plain(f"Probed: {probed['backend']} ({probed.get('asked_at', '')})"), title_justify="left")
    for column in ("Can it …", "", "Answered"):
        table.add_column(plain(column), overflow="fold")
    rows = probed["probes"]
    for row in rows if isinstance(rows, list) else []:
        if isinstance(row, Mapping):
            table.add_row(*(plain(str(row.get(name, ""))) for name in ("name", "result", "answered")))
    out().print(table)
    out().print(plain(f"{probed.get('verdict', '')}\n"), soft_wrap=True)


def of_sample(store: RunStore, wanted: str) -> list[Finding]:
    found = [f for f in store.current() if wanted in (f.sample_id, sample_key(f.editor, f.sample_id))]
    if not found:
        known = list(dict.fromkeys(f.sample_id for f in store.current()))
        near = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        raise ConfigError(f"{store.folder}: no finding for sample {wanted!r}; the samples are {near or 'none yet'}")
    return found


def criterion_id(store: RunStore, name: str) -> str:
    """A criterion of the run's rubric by id or short name."""
    known = store.criteria()
    for id_, short in known.items():
        if name.casefold() in (id_.casefold(), short.casefold()):
            return id_
    raise ConfigError(f"{store.folder}: no criterion {name!r}; the rubric has {', '.join(known)}")


def _explain(store: RunStore, finding: Finding, prices: Prices, fork: int | None) -> None:
    """One finding with its steps; or, where it is asked for, one of its forks."""
    from editloupe.errors import TraceError
    from editloupe.runs.judges import titled
    from editloupe.traces.lineage import Parent, mismatches, read_whole

    console = out()
    key = sample_key(finding.editor, finding.sample_id)
    about = "" if finding.target is None else f", target {finding.target}"
    again = f", repeat {finding.repeat + 1}" if finding.repeat else ""
    console.print(Rule(plain(f"{key}: {finding.metric.replace('_', ' ')}{about}{again}"), align="left"))
    sample = store.samples.get(key)
    if sample is not None:
        console.print(plain(f"Instruction: {sample.instruction}"))
        show_image("Original Image", sample.source, store)
        if sample.edited is not None:
            show_image("Edited Image", sample.edited, store)
        for warning in sample.warnings:
            console.print(plain(f"  ({warning})"))
    shown: Finding | None = finding
    if finding.trace is not None:
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
            note(f"warning: {error}")
        else:
            uri = str(trace.header.judge.get("backend"))
            # A fork may have another judge than those of the run.
            named = store.judge_names().get(trace.header.judge_id, uri)
            console.print(plain(f"Judge: {titled(named, uri)}"), soft_wrap=True)
            console.print(plain(f"Trace: {store.folder / name}"), soft_wrap=True)
            for number, step in enumerate(trace.steps(), start=1):
                told = ", shared with what it continues" if number <= kept else ""
                show_step(number, step, store, partial(prices.of_uri, uri), told)
            listed = finding if fork is None else None
            strange = [] if store.rescored else mismatches(trace, listed, store.identity)
            for problem in (*trace.problems, *strange):
                note(f"warning: {problem}")
        if forks:
            show_tree(finding.trace, finding, store.judge_names().get(finding.judge_id, ""), forks)
    if shown is None:
        console.print(plain("\nNot finished.", style="bold red"))
    else:
        _verdict(shown)


def _compare(store: RunStore, finding: Finding, other: RunStore, prices: Prices) -> None:
    """Where the traces of one question in two runs part."""
    from editloupe.runs.trace_diff import first_divergence
    from editloupe.traces.lineage import read_whole

    console = out()
    key = sample_key(finding.editor, finding.sample_id)
    again = f", repeat {finding.repeat + 1}" if finding.repeat else ""
    console.print(Rule(plain(f"{key}: {finding.metric.replace('_', ' ')}{again}"), align="left"))
    found = [f for f in other.current() if f.question == finding.question and f.repeat == finding.repeat]
    if not found:
        console.print(plain(f"{other.folder} has no finding for it.\n"))
        return
    for second in found:
        for where, f, run in (("here", finding, store), ("there", second, other)):
            judge = run.judge_names().get(f.judge_id, "")
            console.print(plain(f"{where.capitalize():<6} {f.label or f.status}  ({judge}, {run.folder})"))
        if finding.trace is None or second.trace is None:
            console.print("One of them has no trace.\n")
            continue
        pair = [(r, read_whole(r.folder, r.folder / str(f.trace))) for r, f in ((store, finding), (other, second))]
        divergence = first_divergence(pair[0][1], pair[1][1])
        if divergence is None:
            console.print(plain(f"The same conversation to the end, {len(pair[0][1].steps())} steps.\n"))
            continue
        at = "in the question" if divergence.step == 0 else f"at step {divergence.step}"
        what = {"question": "", "reply": ", in the reply", "observation": ", in what was observed", "length": ""}[
            divergence.part
        ]
        console.print(plain(f"They part {at}{what}: {divergence.message}", style="bold"), soft_wrap=True)
        for where, (run, trace) in zip(("here", "there"), pair, strict=True):
            steps = trace.steps()
            if 0 < divergence.step <= len(steps):
                price = partial(prices.of_uri, str(trace.header.judge.get("backend")))
                show_step(divergence.step, steps[divergence.step - 1], run, price, f", {where}")
        console.print()


def _verdict(finding: Finding) -> None:
    console = out()
    if finding.status == "ok":
        value = "" if finding.value is None else f" ({finding.value:g})"
        console.print(plain(f"\nVerdict: {finding.label}{value}", style="bold green"))
    else:
        console.print(plain(f"\nNot judged: {finding.status}: {finding.reason}", style="bold red"), soft_wrap=True)
    for evidence in finding.evidence:
        x0, y0, x1, y1 = evidence.box.ints()
        console.print(plain(f"  rests on {evidence.image}, x {x0}–{x1}, y {y0}–{y1}"))
    console.print()
