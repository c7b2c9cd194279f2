"""One finding in the terminal: its question, the steps of its trace, its verdict, and the tree of its forks."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from editloupe.answers import Record
from editloupe.backends.prices import Prices
from editloupe.cli.output import command, many, note, say, warn
from editloupe.data.images import ImageStore
from editloupe.errors import TraceError
from editloupe.findings import Finding, Observation
from editloupe.runs.judges import names_of, titled
from editloupe.runs.lineage import FORKS, family, mismatches, read_whole
from editloupe.runs.store import RunStore
from editloupe.tasks import task_from_json
from editloupe.traces.read import Step, Trace
from editloupe.values import ImageRef, Json, Sample, View, canonical_json


def told(store: RunStore, finding: Finding, prices: Prices) -> dict[str, Json]:
    """Return a finding with its question and its steps, for programs. A trace that cannot be read is a warning."""
    sample, judges = store.samples.get(finding.about.key), store.info.get("judges")
    judge = judges.get(finding.judge_id) if isinstance(judges, Mapping) else None
    uri = str(judge.get("backend", "")) if isinstance(judge, Mapping) else ""
    steps: list[Json] = []
    prompt: Json = None
    if finding.trace is not None and (trace := _trace(store, finding.trace)):
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


def explain(store: RunStore, finding: Finding, prices: Prices) -> None:
    """Print one finding with its steps."""
    say(f"── {_title(finding)} ──", "bold")
    sample = store.samples.get(finding.about.key)
    if sample is not None:
        turns = sample.turns[finding.turn - 1 : finding.turn] if finding.turn else sample.turns
        for number, turn in enumerate(turns, start=finding.turn or 1):
            if turn.instruction:
                say(f"Instruction{f' {number}' if len(sample.turns) > 1 else ''}: {turn.instruction}")
    trace = None if finding.trace is None else _trace(store, finding.trace)
    if trace is None:
        _show_edit(store, sample, finding.turn)
    else:
        _show_trace(store, trace, finding, prices)
        warn((*trace.problems, *([] if store.rescored else mismatches(trace, finding, store.identity))))
    if finding.trace is not None and (forks := len(forks_of(store.folder, finding.trace))):
        say(f"\n{many(forks, 'fork')} of it: {command('view', store.folder)}")
    _verdict(finding)


def forks_of(folder: Path, name: str) -> list[Path]:
    """Return the files of a trace's forks."""
    stem = family(name)
    return [p for p in (folder / FORKS / stem[:2]).glob(f"{stem}.*.jsonl") if p.name.split(".")[2].isdecimal()]


def _trace(store: RunStore, name: str) -> Trace | None:
    """Return a trace; None, with a warning, for one that cannot be read."""
    try:
        return read_whole(store.folder, store.folder / name)
    except TraceError as error:
        note(f"warning: {error}")
        return None


def _title(finding: Finding) -> str:
    """The question of a finding: "painter/s01: visual consistency, turn 2, repeat 3"."""
    again = f"repeat {finding.repeat + 1}" if finding.repeat else ""
    parts = (finding.metric.replace("_", " "), finding.about.scope, again)
    return f"{finding.about.key}: {', '.join(part for part in parts if part)}"


def _show_trace(store: RunStore, trace: Trace, finding: Finding, prices: Prices) -> None:
    """Print the question and the steps."""
    _question(store, trace)
    uri = str(trace.header.judge.get("backend"))
    named = names_of(store.info.get("judges")).get(trace.header.judge_id, uri)
    role = "" if finding.role in ("judge", "measure") else f" (role {finding.role})"
    say(f"Judge: {titled(named, uri)}{role}")
    say(f"Trace: {trace.path}")
    if opening := trace.opening():
        say("\nBefore the first step", "dim")
        for text in opening:
            _indented(text, "dim")
    for number, step in enumerate(trace.steps(), start=1):
        _show_step(number, step, store, prices.of_uri(uri, step.usage))


def _question(store: RunStore, trace: Trace) -> None:
    """Print the pictures of a question, the measure that was run, and the findings from which it was planned."""
    try:
        task = task_from_json(trace.header.task)
    except ValueError as error:
        note(f"warning: the question cannot be shown: {error}")
        return
    for alias, image in {view.alias: view.origin for view in task.views}.items():
        _show_image(alias, image, store)
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


def _show_step(number: int, step: Step, store: RunStore, cost: float | None) -> None:
    """Print thought, calls with their observations, answer; what it cost and how long it took in its heading."""
    say(f"\nStep {number} ({', '.join(_spent(step, cost))})", "bold")
    if step.thought:
        say("Thought", "cyan")
        _indented(step.thought)
    for call, observation, aliases, cached in zip(step.calls, step.observations, step.aliases, step.cached, strict=True):
        say(f"Call {call.name} {canonical_json(dict(call.arguments))}", "magenta")
        _observation(observation, aliases, store, cached=cached)
    if step.answer is not None:
        say(f"Answer {step.answer}", "green")
    if step.note:
        say("Note", "yellow")
        _indented(step.note, "yellow")


def _spent(step: Step, cost: float | None) -> list[str]:
    """Return time, tokens and money of a step, as far as they are known."""
    usage = step.usage
    known = [f"{step.seconds:.2f} s"]
    if usage.input_tokens:
        image = f", {usage.image_tokens:,} of them for images" if usage.image_tokens else ""
        known.append(f"{usage.input_tokens:,} input tokens{image}")
    if usage.output_tokens:
        known.append(f"{usage.output_tokens:,} output tokens")
    if usage.total:
        known.append("price unknown" if cost is None else f"{cost:.2g} USD" if cost else "no cost")
    return known


def _observation(observation: Observation, aliases: tuple[str, ...], store: RunStore, *, cached: bool) -> None:
    say("Observation (answered from the cache)" if cached else "Observation", "red" if observation.error else "cyan")
    _indented(observation.text)
    ablations = observation.data.get("ablations")
    if isinstance(ablations, list):
        _indented(f"Ablation, not told to the judge: {', '.join(map(str, ablations))}", "yellow")
    for alias, image in zip(aliases, observation.images, strict=True):
        _show_image(alias, image, store, [v for v in observation.views if v.image == image])


def _show_edit(store: RunStore, sample: Sample | None, turn: int) -> None:
    """Print a sample's pictures.   turn: the last that is shown; 0 for all."""
    if sample is None:
        return
    for name, image in sample.originals.items():
        _show_image(name, image, store)
    for number, one in enumerate(sample.turns[: turn or None], start=1):
        if one.edited is not None:
            _show_image("Edited Image" + (f" (after turn {number})" if len(sample.turns) > 1 else ""), one.edited, store)


def _show_image(name: str, image: ImageRef, store: RunStore, views: Sequence[View] = ()) -> None:
    """Print one line: name, size, where its pixels come from, path."""
    path = ImageStore(store.blobs).path(image)
    shows = ""
    if views:
        x0, y0, x1, y1 = views[0].region.ints()
        shows = f", shows x {x0}–{x1}, y {y0}–{y1}"
    where = str(path) if path is not None else f"(missing: blobs/ has no {image.sha256[:12]}…)"
    say(f"  {name}: {image.width}×{image.height} px{shows}  {where}")


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


def _indented(text: str, style: str = "") -> None:
    for line in text.split("\n"):
        say(f"  {line}", style)
