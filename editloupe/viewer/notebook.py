"""How a finding, a trace and a run show themselves in a notebook: HTML that stands by itself, with small pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from markupsafe import Markup, escape
from PIL import Image

from editloupe.data.images import ImageStore
from editloupe.errors import EditLoupeError
from editloupe.findings import Finding
from editloupe.traces.read import Trace
from editloupe.values import ImageRef, canonical_json

if TYPE_CHECKING:
    from editloupe.figures.run import Run

_SIDE: Final = 320
"""Longest side in px of a picture."""
_PICTURES: Final = 40
"""Pictures of one trace; notebooks keep them."""
_ROWS: Final = 20
_TEXT: Final = 1_200
"""Characters of one text."""
_BOX: Final = "border:1px solid rgba(128,128,128,.4);border-radius:6px;padding:8px 12px;margin:6px 0;max-width:960px"
_MUTED: Final = "opacity:.7;font-size:90%"
_GOOD, _BAD = "#1a7f37", "#b3261e"


def finding_html(finding: Finding) -> str:
    """Return a finding as a card: its answer or status, its reason, what it spent."""
    answered = finding.answer is not None
    sign, color = ("✓", _GOOD) if answered else ("✗", _BAD)
    said = str(finding.answer) if answered else finding.status.replace("_", " ")
    spent = [f"{finding.seconds:.1f} s"] + ([f"{finding.usage.total:,} tokens"] if finding.usage.total else [])
    spent += [f"{finding.turns} turns with tools"] if finding.turns else []
    return _join(
        Markup('<div style="{}">').format(_BOX),
        Markup('<div><span style="color:{}">{}</span> <b>{}</b>: {}</div>').format(color, sign, finding.metric, _cut(said)),
        Markup('<div style="{}">{}</div>').format(_MUTED, " · ".join([str(finding.about), *spent])),
        Markup("<div>{}</div>").format(_cut(finding.reason)) if finding.reason else Markup(),
        Markup("</div>"),
    )


def trace_html(trace: Trace) -> str:
    """Return a trace step by step: the images of the question, then thoughts, calls, observations and the answer."""
    shown = _Shown(trace.path)
    parts = [Markup('<div style="{}">').format(_BOX)]
    header = trace.header
    parts.append(Markup("<b>{}</b> of {}").format(header.task.get("metric", ""), _about(header.task)))
    first = next((message for message in trace.messages() if message.role == "user"), None)
    if first is not None:
        parts.append(_row(shown.picture(image.image, image.alias) for image in first.images))
    for number, step in enumerate(trace.steps(), start=1):
        parts.append(Markup('<div style="margin-top:8px"><b>Step {}</b></div>').format(number))
        if step.thought:
            parts.append(Markup('<div style="{}">{}</div>').format(_MUTED, _cut(step.thought)))
        for call, observation, aliases in zip(step.calls, step.observations, step.aliases, strict=False):
            parts.append(Markup("<div><code>{} {}</code></div>").format(call.name, canonical_json(dict(call.arguments))))
            parts.append(Markup("<div>{}</div>").format(_cut(observation.text)))
            parts.append(_row(shown.picture(ref, name) for ref, name in zip(observation.images, aliases, strict=False)))
        if step.answer is not None:
            parts.append(Markup('<div><b style="color:{}">Answer</b> {}</div>').format(_GOOD, _cut(step.answer)))
    if shown.left_out:
        parts.append(Markup('<div style="{}">{} more pictures are not shown.</div>').format(_MUTED, shown.left_out))
    return _join(*parts, Markup("</div>"))


def run_html(run: Run) -> str:
    """Return a run: how many answers it has, its means, and its first samples with their pictures."""
    findings = run.findings
    ok = sum(finding.status == "ok" for finding in findings)
    parts = [
        Markup('<div style="{}"><b>{}</b>').format(_BOX, run.folder),
        Markup('<div style="{}">Samples: {:,}. Answered: {:,} of {:,} questions.</div>').format(
            _MUTED, len(run.samples), ok, len(findings)
        ),
    ]
    try:
        parts += [_means(run), _samples(run)]
    except EditLoupeError as error:
        parts.append(Markup('<div style="color:{}">{}</div>').format(_BAD, str(error)))
    return _join(*parts, Markup("</div>"))


def _means(run: Run) -> Markup:
    import polars

    scores = run.scores()
    if scores.is_empty():
        return Markup()
    means = scores.group_by("judge", "metric", maintain_order=True).agg(
        polars.col("value").mean(), polars.col("value").count().alias("judged"), polars.len().alias("asked")
    )
    rows = [
        (one["judge"], one["metric"], _mean(one["value"]), f"{one['judged']} of {one['asked']}") for one in means.to_dicts()
    ]
    return _table(("Judge", "Metric", "Mean", "Judged"), rows)


def _mean(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"


def _samples(run: Run) -> Markup:
    shown, said = _Shown(run.folder / "traces"), dict[str, list[str]]()
    for finding in run.findings:
        answer = finding.label or (str(finding.answer) if finding.answer is not None else finding.status)
        said.setdefault(finding.about.key, []).append(f"{finding.metric}: {answer[:80]}")
    rows = []
    for sample in run.samples[:_ROWS]:
        pictures = [shown.picture(image, "source", side=96) for image in sample.sources]
        if sample.edited is not None:
            pictures.append(shown.picture(sample.edited, "edited", side=96))
        rows.append((sample.key, _row(pictures), sample.instruction[:200], "; ".join(said.get(sample.key, [])[:4])))
    more = len(run.samples) - len(rows)
    note = Markup('<div style="{}">and {:,} more</div>').format(_MUTED, more) if more > 0 else Markup()
    return _table(("Sample", "Images", "Instruction", "Findings"), rows) + note


class _Shown:
    """Pictures of a run, as many as a notebook should keep."""

    def __init__(self, path: Path | None) -> None:
        """path: a file or folder inside the run; None for a trace in memory, of which no picture is known."""
        run = next((folder for folder in path.resolve().parents if (folder / "blobs").is_dir()), None) if path else None
        self._store = ImageStore(None if run is None else run / "blobs", writes=False)
        self._left = _PICTURES
        self.left_out = 0

    def picture(self, ref: ImageRef, name: str, *, side: int = _SIDE) -> Markup:
        """Return a picture with its name; the name alone where the bytes are not at hand."""
        if not self._left:
            self.left_out += 1
            return Markup()
        try:
            image = Image.fromarray(self._store.array(ref))
        except EditLoupeError:
            return Markup("<span>{} ({}×{} px, not kept)</span>").format(name, ref.width, ref.height)
        self._left -= 1
        image.thumbnail((side, side))
        file = io.BytesIO()
        image.save(file, format="JPEG", quality=85)
        data = base64.b64encode(file.getvalue()).decode()
        source = f"data:image/jpeg;base64,{data}"
        return Markup(
            '<figure style="margin:4px 8px 4px 0;display:inline-block"><img src="{}" alt="{}" style="max-width:100%">'
            '<figcaption style="{}">{}</figcaption></figure>'
        ).format(source, name, _MUTED, name)


def _row(pictures: Iterable[Markup]) -> Markup:
    return Markup("<div>{}</div>").format(Markup().join(pictures))


def _table(head: Sequence[str], rows: Iterable[Sequence[str | Markup]]) -> Markup:
    def line(cells: Sequence[str | Markup], tag: str) -> Markup:
        cell = Markup('<{0} style="text-align:left;vertical-align:top;padding:2px 12px 2px 0">{{}}</{0}>').format(
            Markup(tag)
        )
        return Markup("<tr>{}</tr>").format(Markup().join(cell.format(one) for one in cells))

    return Markup("<table>{}{}</table>").format(line(head, "th"), Markup().join(line(row, "td") for row in rows))


def _about(task: Mapping[str, object]) -> str:
    about = task.get("about")
    return str(about.get("sample_id", "")) if isinstance(about, Mapping) else ""


def _cut(text: str) -> Markup:
    short = text if len(text) <= _TEXT else f"{text[:_TEXT]} …"
    return Markup('<span style="white-space:pre-wrap">{}</span>').format(short)


def _join(*parts: Markup) -> str:
    return str(Markup().join(escape(part) for part in parts))
