"""A trace in the terminal: its steps, and the tree of its forks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rich.padding import Padding
from rich.tree import Tree

from editloupe.chat import Usage
from editloupe.cli.output import note, out, plain, say
from editloupe.data.images import ImageStore
from editloupe.errors import TraceError
from editloupe.findings import Finding, Observation
from editloupe.runs.lineage import FORKS, Parent, family
from editloupe.runs.store import RunStore
from editloupe.traces.events import FindingEvent
from editloupe.traces.read import Step, Trace, read_trace
from editloupe.values import ImageRef, View, canonical_json


def show_step(number: int, step: Step, store: RunStore, price: Callable[[Usage], float | None], remark: str = "") -> None:
    """One step: thought, calls with their observations, answer; what it cost and how long it took in its heading."""
    say(f"\nStep {number}{remark} ({', '.join(_spent(step, price))})", "bold")
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


def show_opening(trace: Trace) -> None:
    """What was remarked before the first step: on the pictures, and on how they are sent."""
    if opening := trace.opening():
        say("\nBefore the first step", "dim")
        for text in opening:
            _indented(text, "dim")


def _indented(text: str, style: str = "") -> None:
    out().print(Padding(plain(text, style), (0, 2)))


def show_image(name: str, image: ImageRef, store: RunStore, views: Sequence[View] = ()) -> None:
    """One line an image: name, size, where its pixels come from, path."""
    path = ImageStore(store.blobs).path(image)
    shows = ""
    if views:
        x0, y0, x1, y1 = views[0].region.ints()
        shows = f", shows x {x0}–{x1}, y {y0}–{y1}"
    where = str(path) if path is not None else f"(missing: blobs/ has no {image.sha256[:12]}…)"
    say(f"  {name}: {image.width}×{image.height} px{shows}  {where}")


def forks_of(folder: Path, name: str) -> dict[str, tuple[Trace, Parent, Finding | None]]:
    """The traces in a run that continue this one or a fork of it: path inside the run → trace, where it parts, its end.

    One that cannot be read is a warning.
    """
    stem = family(name)
    found: dict[str, tuple[Trace, Parent, Finding | None]] = {}
    numbered = [p for p in (folder / FORKS / stem[:2]).glob(f"{stem}.*.jsonl") if p.name.split(".")[2].isdecimal()]
    for path in sorted(numbered, key=lambda p: int(p.name.split(".")[2])):
        try:
            trace = read_trace(path)
            parent = Parent.of(trace.header)
        except TraceError as error:
            note(f"warning: {error}")
            continue
        ends = [e.content for e in trace.events if isinstance(e, FindingEvent)]
        if parent is not None:
            found[str(path.relative_to(folder))] = (trace, parent, ends[-1] if ends else None)
    return found


def show_tree(name: str, finding: Finding, judge: str, forks: Mapping[str, tuple[Trace, Parent, Finding | None]]) -> None:
    """The trace and its forks, each below what it continues."""
    root = Tree(plain(f"{_ended(finding)}  ({judge})"))
    branches = {name: root}
    for path, (trace, parent, end) in forks.items():
        where = branches.get(parent.trace)
        if where is None:
            continue
        kept = "from the question" if parent.step == 0 else f"after step {parent.step}"
        changed = "".join(f", {what}: {words}" for what, words in parent.changes.items())
        number = Path(path).name.split(".")[2]
        branch = f"{parent.why} {number} {kept}{changed}: {_ended(end)}"
        if "backend" not in parent.changes:
            branch += f"  ({trace.header.judge.get('backend')})"
        branches[path] = where.add(plain(branch))
    say("\nForks", "bold")
    out().print(root)


def _ended(finding: Finding | None) -> str:
    if finding is None:
        return "not finished"
    return finding.status if finding.answer is None else str(finding.answer)


def _spent(step: Step, price: Callable[[Usage], float | None]) -> list[str]:
    """Time, tokens and money of a step, as far as they are known."""
    usage = step.usage
    known = [f"{step.seconds:.2f} s"]
    if usage.input_tokens:
        image = f", {usage.image_tokens:,} of them for images" if usage.image_tokens else ""
        known.append(f"{usage.input_tokens:,} input tokens{image}")
    if usage.output_tokens:
        known.append(f"{usage.output_tokens:,} output tokens")
    if usage.total:
        cost = price(usage)
        known.append("price unknown" if cost is None else f"{cost:.2g} USD" if cost else "no cost")
    return known


def _observation(observation: Observation, aliases: tuple[str, ...], store: RunStore, *, cached: bool) -> None:
    say("Observation (answered from the cache)" if cached else "Observation", "red" if observation.error else "cyan")
    _indented(observation.text)
    ablations = observation.data.get("ablations")
    if isinstance(ablations, list):
        _indented(f"Ablation, not told to the judge: {', '.join(map(str, ablations))}", "yellow")
    for alias, image in zip(aliases, observation.images, strict=True):
        show_image(alias, image, store, [v for v in observation.views if v.image == image])
