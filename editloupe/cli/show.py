"""`editloupe show`: a run's samples, or one sample's verdicts step by step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.padding import Padding
from rich.rule import Rule
from rich.table import Table

from editloupe.cli.output import note, out, plain
from editloupe.errors import ConfigError
from editloupe.protocols.repeats import counted
from editloupe.values import ImageRef, View, canonical_json, sample_key

if TYPE_CHECKING:
    from rich.text import Text

    from editloupe.records import Finding, Observation, Step
    from editloupe.runs.store import RunStore


def show(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder.")],
    sample: Annotated[str | None, typer.Argument(help="A sample id, or EDITOR/ID.")] = None,
    criterion: Annotated[str | None, typer.Option(help="Only this criterion, such as if.")] = None,
) -> None:
    """Show the verdicts of a run, or how one sample's verdicts came about."""
    from editloupe.runs.store import RunStore

    store = RunStore.read(run)
    if sample is None:
        _overview(store)
    else:
        wanted = None if criterion is None else _criterion_id(store, criterion)
        findings = [f for f in _of_sample(store, sample) if wanted in (None, f.criterion)]
        if not findings:
            raise ConfigError(f"{run}: sample {sample!r} has no finding for criterion {criterion!r}")
        for finding in findings:
            _explain(store, finding)
    for problem in store.problems:
        note(f"warning: {problem}")


def _overview(store: RunStore) -> None:
    names = store.judge_names()
    for judge_id, uri in store.judges().items():
        findings = store.current(judge_id)
        if not findings and len(names) > 1:
            out().print(plain(f"Judge: {names[judge_id]} has judged nothing yet.\n"))
            continue
        criteria = list(dict.fromkeys(f.criterion for f in findings))
        editors = any(f.editor for f in findings)
        columns = [*(["Editor"] if editors else []), "Sample", *(c.replace("_", " ").capitalize() for c in criteria)]
        named = uri if names[judge_id].startswith(uri) else f"{names[judge_id]}, {uri}"
        # A line and not the table's title, which would be broken at the table's width.
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
    out().print(plain(f"One sample: editloupe show {store.folder} SAMPLE"), soft_wrap=True)


def _answers(repeats: list[Finding]) -> Text:
    """The label of a question, or why there is none; of one that was asked several times each answer with its number."""
    words = [f.label or "" if f.status == "ok" else f"({f.status})" for f in repeats]
    failed = all(f.status != "ok" for f in repeats)
    return plain(counted(words), "red" if failed else "")


def _of_sample(store: RunStore, wanted: str) -> list[Finding]:
    found = [f for f in store.current() if wanted in (f.sample_id, sample_key(f.editor, f.sample_id))]
    if not found:
        known = list(dict.fromkeys(f.sample_id for f in store.current()))
        near = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        raise ConfigError(f"{store.folder}: no finding for sample {wanted!r}; the samples are {near or 'none yet'}")
    return found


def _criterion_id(store: RunStore, name: str) -> str:
    """A criterion of the run's rubric by id or short name."""
    known = store.criteria()
    for id_, short in known.items():
        if name.casefold() in (id_.casefold(), short.casefold()):
            return id_
    raise ConfigError(f"{store.folder}: no criterion {name!r}; the rubric has {', '.join(known)}")


def _explain(store: RunStore, finding: Finding) -> None:
    from editloupe.errors import TraceError
    from editloupe.traces.read import read_trace

    console = out()
    key = sample_key(finding.editor, finding.sample_id)
    about = "" if finding.target is None else f", target {finding.target}"
    again = f", repeat {finding.repeat + 1}" if finding.repeat else ""
    console.print(Rule(plain(f"{key}: {finding.criterion.replace('_', ' ')}{about}{again}"), align="left"))
    sample = store.samples.get(key)
    if sample is not None:
        console.print(plain(f"Instruction: {sample.instruction}"))
        _image("Original Image", sample.source, store)
        if sample.edited is not None:
            _image("Edited Image", sample.edited, store)
        for warning in sample.warnings:
            console.print(plain(f"  ({warning})"))
    if finding.trace is not None:
        try:
            trace = read_trace(store.folder / finding.trace)
        except TraceError as error:
            note(f"warning: {error}")
        else:
            uri, name = str(trace.header.judge["backend"]), store.judge_names().get(finding.judge_id, "")
            console.print(plain(f"Judge: {uri}" if name in ("", uri) else f"Judge: {name}, {uri}"))
            console.print(plain(f"Trace: {store.folder / finding.trace}"), soft_wrap=True)
            for number, step in enumerate(trace.steps(), start=1):
                _step(number, step, store)
            for problem in trace.problems:
                note(f"warning: {problem}")
    _verdict(finding)


def _step(number: int, step: Step, store: RunStore) -> None:
    from editloupe.agent.answer import parse_reply
    from editloupe.chat import Reply

    console = out()
    tokens = f", {step.usage.total:,} tokens" if step.usage.total else ""
    console.print(plain(f"\nStep {number} ({step.seconds:.2f} s{tokens})", style="bold"))
    parsed = parse_reply(Reply(text=step.reply, reasoning=step.thought), turn=number)
    if parsed.thought:
        console.print(plain("Thought", style="cyan"))
        console.print(Padding(plain(parsed.thought), (0, 2)))
    for call, observation, aliases in zip(step.calls, step.observations, step.aliases, strict=True):
        console.print(plain(f"Call {call.name} {canonical_json(dict(call.arguments))}", style="magenta"))
        _observation(observation, aliases, store)
    if parsed.answer is not None:
        console.print(plain(f"Answer {parsed.answer}", style="green"))
    if step.note:
        console.print(Padding(plain(step.note, style="yellow"), (0, 2)))


def _observation(observation: Observation, aliases: tuple[str, ...], store: RunStore) -> None:
    console = out()
    console.print(plain("Observation", style="red" if observation.error else "cyan"))
    console.print(Padding(plain(observation.text), (0, 2)))
    ablations = observation.data.get("ablations")
    if isinstance(ablations, list):
        console.print(
            Padding(plain(f"Ablation, not told to the judge: {', '.join(map(str, ablations))}", "yellow"), (0, 2))
        )
    for alias, image in zip(aliases, observation.images, strict=True):
        _image(alias, image, store, [v for v in observation.views if v.image == image])


def _image(name: str, image: ImageRef, store: RunStore, views: list[View] | None = None) -> None:
    """One line an image: name, size, where its pixels come from, path."""
    from editloupe.data.images import ImageStore

    path = ImageStore(store.blobs).path(image)
    shows = ""
    if views:
        x0, y0, x1, y1 = views[0].region.ints()
        shows = f", shows x {x0}–{x1}, y {y0}–{y1}"
    where = str(path) if path is not None else "(bytes not kept)"
    out().print(plain(f"  {name}: {image.width}×{image.height} px{shows}  {where}"), soft_wrap=True)


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
