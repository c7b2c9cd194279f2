"""How a finding, a trace and a run show themselves in a notebook: HTML that stands by itself, with small pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from markupsafe import Markup
from PIL import Image

from editloupe.data.images import ImageStore
from editloupe.errors import EditLoupeError
from editloupe.findings import Finding
from editloupe.traces.read import Trace
from editloupe.values import ImageRef, canonical_json

if TYPE_CHECKING:
    from editloupe.figures.run import Run

_SIDE: Final = 240
"""Longest side in px of a picture."""
_PICTURES: Final = 40
"""Pictures of one trace or run; notebooks keep them."""
_ROWS: Final = 20
_TEXT: Final = 1_200
"""Characters of one text."""
_BOX: Final = Markup(
    '<div style="border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:8px 12px;margin:6px 0;max-width:960px">'
    "{}</div>"
)
_MUTED: Final = Markup('<div style="opacity:.7;font-size:90%">{}</div>')


def finding_html(finding: Finding) -> str:
    """Return a finding as a card: its answer or status, its reason, what it spent."""
    answered = finding.answer is not None
    said = str(finding.answer) if answered else finding.status.replace("_", " ")
    spent = [str(finding.about), f"{finding.seconds:.1f} s"]
    spent += [f"{finding.usage.total:,} tokens"] if finding.usage.total else []
    spent += [f"{finding.turns} turns with tools"] if finding.turns else []
    head = Markup("<div>{} <b>{}</b>: {}</div>").format("✓" if answered else "✗", finding.metric, _cut(said))
    return str(_BOX.format(head + _MUTED.format(" · ".join(spent)) + Markup("<div>{}</div>").format(_cut(finding.reason))))


def trace_html(trace: Trace) -> str:
    """Return a trace step by step: the images of the question, then thoughts, calls, observations and the answer."""
    shown, header = _Pictures(trace.path), trace.header
    parts = [Markup("<b>{}</b>").format(header.task.get("metric", ""))]
    first = next((message for message in trace.messages() if message.role == "user"), None)
    parts += [shown.row((image.image, image.alias) for image in first.images)] if first is not None else []
    for number, step in enumerate(trace.steps(), start=1):
        parts.append(Markup('<div style="margin-top:8px"><b>Step {}</b></div>').format(number))
        parts += [_MUTED.format(_cut(step.thought))] if step.thought else []
        for call, observation, aliases in zip(step.calls, step.observations, step.aliases, strict=False):
            called = f"{call.name} {canonical_json(dict(call.arguments))}"
            parts.append(Markup("<div><code>{}</code><br>{}</div>").format(_cut(called), _cut(observation.text)))
            parts.append(shown.row(zip(observation.images, aliases, strict=False)))
        parts += [Markup("<div><b>Answer</b> {}</div>").format(_cut(step.answer))] if step.answer is not None else []
    return str(_BOX.format(Markup().join(parts)))


def run_html(run: Run) -> str:
    """Return a run: how many answers it has, its means, and its first samples with their pictures."""
    findings = run.findings
    answered = sum(finding.status == "ok" for finding in findings)
    parts = [
        Markup("<b>{}</b>").format(run.folder),
        _MUTED.format(f"Samples: {len(run.samples):,}. Answered: {answered:,} of {len(findings):,} questions."),
    ]
    try:
        parts += [_means(run), _samples(run)]
    except EditLoupeError as error:
        parts.append(_MUTED.format(str(error)))
    return str(_BOX.format(Markup().join(parts)))


def _means(run: Run) -> Markup:
    import polars

    scores = run.scores()
    if scores.is_empty():
        return Markup()
    means = scores.group_by("judge", "metric", maintain_order=True).agg(
        polars.col("value").mean(), polars.col("value").count().alias("judged"), polars.len().alias("asked")
    )
    rows = [
        (
            one["judge"],
            one["metric"],
            "–" if one["value"] is None else f"{one['value']:.3f}",
            f"{one['judged']} of {one['asked']}",
        )
        for one in means.to_dicts()
    ]
    return _table(("Judge", "Metric", "Mean", "Judged"), rows)


def _samples(run: Run) -> Markup:
    shown, said = _Pictures(run.folder / "traces"), dict[str, list[str]]()
    for finding in run.findings:
        answer = finding.label or (str(finding.answer) if finding.answer is not None else finding.status)
        said.setdefault(finding.about.key, []).append(f"{finding.metric}: {answer[:80]}")
    rows = []
    for sample in run.samples[:_ROWS]:
        images = [(image, "source") for image in sample.sources] + ([(sample.edited, "edited")] if sample.edited else [])
        rows.append((sample.key, shown.row(images, 96), sample.instruction[:200], "; ".join(said.get(sample.key, [])[:4])))
    more = len(run.samples) - len(rows)
    return _table(("Sample", "Images", "Instruction", "Findings"), rows) + (
        _MUTED.format(f"and {more:,} more") if more > 0 else Markup()
    )


class _Pictures:
    """Pictures of a run, as many as a notebook should keep."""

    def __init__(self, path: Path | None) -> None:
        """path: a file or folder inside the run; None for a trace in memory, of which no picture is known."""
        run = next((folder for folder in path.resolve().parents if (folder / "blobs").is_dir()), None) if path else None
        self._store = ImageStore(None if run is None else run / "blobs", writes=False)
        self._left = _PICTURES

    def row(self, images: Iterable[tuple[ImageRef, str]], side: int = _SIDE) -> Markup:
        """Return pictures with their names; the name alone where the bytes are not at hand, or are too many."""
        return Markup("<div>{}</div>").format(Markup().join(self._picture(ref, name, side) for ref, name in images))

    def _picture(self, ref: ImageRef, name: str, side: int) -> Markup:
        try:
            image = Image.fromarray(self._store.array(ref)) if self._left else None
        except EditLoupeError:
            image = None
        if image is None:
            return Markup("<span>{} ({}×{} px, not shown)</span> ").format(name, ref.width, ref.height)
        self._left -= 1
        image.thumbnail((side, side))
        file = io.BytesIO()
        image.save(file, format="JPEG", quality=85)
        source = f"data:image/jpeg;base64,{base64.b64encode(file.getvalue()).decode()}"
        return Markup(
            '<figure style="margin:4px 8px 4px 0;display:inline-block"><img src="{}" alt="{}">'
            "<figcaption>{}</figcaption></figure>"
        ).format(source, name, name)


def _table(head: Sequence[str], rows: Iterable[Sequence[str | Markup]]) -> Markup:
    cell = Markup('<td style="text-align:left;vertical-align:top;padding:2px 12px 2px 0">{}</td>')
    lines = [[Markup("<b>{}</b>").format(title) for title in head], *rows]
    made = (Markup("<tr>{}</tr>").format(Markup().join(cell.format(one) for one in line)) for line in lines)
    return Markup("<table>{}</table>").format(Markup().join(made))


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"
