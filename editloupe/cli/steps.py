"""One finding in the terminal: its question, the steps of its trace, its verdict."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from editloupe.answers import Record
from editloupe.cli.output import note, say, warn
from editloupe.data.images import ImageStore
from editloupe.errors import TraceError
from editloupe.findings import Finding
from editloupe.runs.judges import names_of, titled
from editloupe.runs.lineage import mismatches, read_whole
from editloupe.runs.store import RunStore
from editloupe.tasks import task_from_json
from editloupe.traces.read import Step, Trace
from editloupe.values import ImageRef, Json, canonical_json


def told(store: RunStore, finding: Finding) -> dict[str, Json]:
    """Return a finding with its question and its steps, for programs. A trace that cannot be read is a warning."""
    sample, trace = store.samples.get(finding.about.key), _trace(store, finding)
    warn(trace.problems if trace else ())
    return {
        **finding.to_json(),
        "judge": names_of(store.info.get("judges")).get(finding.judge_id, ""),
        "instruction": None if sample is None or finding.turn > len(sample.turns) else sample.asked(finding.turn),
        "prompt": None if trace is None else trace.header.task.get("prompt"),
        "steps": [] if trace is None else [step.to_json() for step in trace.steps()],
    }


def explain(store: RunStore, finding: Finding) -> None:
    """Print one finding with its steps."""
    say(f"── {_title(finding)} ──", "bold")
    sample, trace = store.samples.get(finding.about.key), _trace(store, finding)
    turns = () if sample is None else sample.turns[max(finding.turn - 1, 0) : finding.turn or None]
    for number, turn in enumerate(turns, start=finding.turn or 1):
        if sample and turn.instruction:
            say(f"Instruction{f' {number}' if len(sample.turns) > 1 else ''}: {turn.instruction}")
    if trace is not None:
        _question(store, trace)
        uri = str(trace.header.judge.get("backend"))
        role = "" if finding.role in ("judge", "measure") else f" (role {finding.role})"
        say(f"Judge: {titled(names_of(store.info.get('judges')).get(trace.header.judge_id, uri), uri)}{role}")
        say(f"Trace: {trace.path}")
        for number, step in enumerate(trace.steps(), start=1):
            _step(number, step, store)
        warn((*trace.problems, *([] if store.rescored else mismatches(trace, finding, store.identity))))
    elif sample is not None:
        edited = {f"Edited Image (turn {n})": turn.edited for n, turn in enumerate(turns, start=finding.turn or 1)}
        _pictures(store, [*sample.originals.items(), *((name, image) for name, image in edited.items() if image)])
    if finding.status != "ok":
        say(f"\nNot judged: {finding.status}: {finding.reason}\n", "bold red")
        return
    value = "" if finding.value is None or finding.label is None else f" ({finding.value:g})"
    answer = finding.answer
    words = json.dumps(answer.data, indent=2, ensure_ascii=False) if isinstance(answer, Record) else str(answer)
    say(f"\nVerdict: {words}{value}", "bold green")
    # A model's reason stands in its trace, if there is one.
    said = finding.reason if finding.role == "measure" or trace is None else ""
    say(f"  {said}\n" if said else "")


def _trace(store: RunStore, finding: Finding) -> Trace | None:
    """Return a finding's trace; None if it has none, and, with a warning, if it cannot be read."""
    try:
        return None if finding.trace is None else read_whole(store.folder, store.folder / finding.trace)
    except TraceError as error:
        note(f"warning: {error}")
        return None


def _title(finding: Finding) -> str:
    """The question of a finding: "painter/s01: visual consistency, turn 2, repeat 3"."""
    again = f"repeat {finding.repeat + 1}" if finding.repeat else ""
    parts = (finding.metric.replace("_", " "), finding.about.scope, again)
    return f"{finding.about.key}: {', '.join(part for part in parts if part)}"


def _question(store: RunStore, trace: Trace) -> None:
    """Print the pictures of a question, the measure that was run, and the findings from which it was planned."""
    try:
        task = task_from_json(trace.header.task)
    except ValueError as error:
        note(f"warning: the question cannot be shown: {error}")
        return
    _pictures(store, {view.alias: view.origin for view in task.views}.items())
    if not task.views:
        say("  (text alone, no pictures)")
    if task.kind == "measure":
        given = f", arguments {canonical_json(dict(task.args))}" if task.args else ""
        say(f"Measure: {task.measure}, version {trace.header.judge.get('backend_version')}{given}")
    for origin in (f for f in store.current() if f.task_id in task.rests_on):
        say(f"Planned from {_title(origin)}: {origin.answer or origin.status}")


def _step(number: int, step: Step, store: RunStore) -> None:
    """Print thought, calls with their observations, answer; tokens and time in its heading."""
    counts: Mapping[str, int | None] = {"input": step.usage.input_tokens, "output": step.usage.output_tokens}
    spent = [f"{count:,} {name} tokens" for name, count in counts.items() if count]
    say(f"\nStep {number} ({', '.join([f'{step.seconds:.2f} s', *spent])})", "bold")
    _said("Thought", step.thought, "cyan")
    for call, observation, aliases, cached in zip(step.calls, step.observations, step.aliases, step.cached, strict=True):
        say(f"Call {call.name} {canonical_json(dict(call.arguments))}", "magenta")
        _said(f"Observation{' (from the cache)' * cached}", observation.text, "red" if observation.error else "cyan")
        _pictures(store, zip(aliases, observation.images, strict=True))
    if step.answer is not None:
        say(f"Answer {step.answer}", "green")
    _said("Note", step.note, "yellow")


def _said(title: str, text: str | None, style: str) -> None:
    """Print a text below its title; nothing if there is none."""
    if text:
        say(title, style)
        say("\n".join(f"  {line}" for line in text.split("\n")))


def _pictures(store: RunStore, named: Iterable[tuple[str, ImageRef]]) -> None:
    """Print a line for each picture: name, size, path."""
    for name, image in named:
        path = ImageStore(store.blobs).path(image)
        where = str(path) if path is not None else f"(missing: blobs/ has no {image.sha256[:12]}…)"
        say(f"  {name}: {image.width}×{image.height} px  {where}")
