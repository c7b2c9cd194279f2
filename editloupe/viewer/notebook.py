"""How a finding, a trace and a run show themselves in a notebook: HTML that stands by itself, with small pictures."""

from __future__ import annotations

import base64
import io
from collections.abc import Iterable
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
_SAMPLES: Final = 10
"""Of a run; notebooks keep their pictures."""
_TEXT: Final = 1_200
"""Characters of one text."""
_BOX: Final = Markup('<div style="border:1px solid rgba(128,128,128,.4);padding:8px 12px;max-width:960px">{}</div>')
_MUTED: Final = Markup('<div style="opacity:.7">{}</div>')
_PICTURE: Final = Markup(
    '<figure style="margin:4px 8px 4px 0;display:inline-block"><img src="data:image/jpeg;base64,{}" alt="{}">'
    "<figcaption>{}</figcaption></figure>"
)


def finding_html(finding: Finding) -> str:
    """Return a finding as a card: its answer or status, its reason, what it is about and took."""
    said = str(finding.answer) if finding.answer is not None else finding.status.replace("_", " ")
    head = Markup("<div><b>{}</b>: {}</div>").format(finding.metric, _cut(said))
    about = _MUTED.format(f"{finding.about} · {finding.seconds:.1f} s · {finding.usage.total:,} tokens")
    return str(_BOX.format(head + about + Markup("<div>{}</div>").format(_cut(finding.reason))))


def trace_html(trace: Trace) -> str:
    """Return a trace step by step: the images of the question, then thoughts, calls, observations and the answer."""
    folder = trace.path.resolve() if trace.path else None
    run = next((one for one in folder.parents if (one / "blobs").is_dir()), None) if folder else None
    parts = [Markup("<b>{}</b>").format(trace.header.task.get("metric", ""))]
    first = next((message for message in trace.messages() if message.role == "user"), None)
    parts.append(_pictures(run, ((one.image, one.alias) for one in first.images) if first else ()))
    for number, step in enumerate(trace.steps(), start=1):
        parts.append(Markup("<div><b>Step {}</b> {}</div>").format(number, _cut(step.thought)))
        for call, observation, aliases in zip(step.calls, step.observations, step.aliases, strict=False):
            called = f"{call.name} {canonical_json(dict(call.arguments))}"
            parts.append(Markup("<div><code>{}</code><br>{}</div>").format(_cut(called), _cut(observation.text)))
            parts.append(_pictures(run, zip(observation.images, aliases, strict=False)))
        parts += [Markup("<div><b>Answer</b> {}</div>").format(_cut(step.answer))] if step.answer is not None else []
    return str(_BOX.format(Markup().join(parts)))


def run_html(run: Run) -> str:
    """Return a run: how many answers it has, and its first samples with their pictures and what was said of them."""
    answered = sum(finding.status == "ok" for finding in run.findings)
    told = f"Samples: {len(run.samples):,}. Answered: {answered:,} of {len(run.findings):,} questions."
    parts = [Markup("<b>{}</b>").format(run.folder), _MUTED.format(told)]
    for sample in run.samples[:_SAMPLES]:
        said = [f for f in run.findings if f.about.key == sample.key]
        words = "; ".join(f"{f.metric}: {f.status if f.answer is None else f.answer}" for f in said)
        images = [(image, "source") for image in sample.sources] + ([(sample.edited, "edited")] if sample.edited else [])
        parts.append(Markup("<div><b>{}</b> {}</div>").format(sample.key, _cut(sample.instruction)))
        parts.append(_pictures(run.folder, images) + Markup("<div>{}</div>").format(_cut(words)))
    return str(_BOX.format(Markup().join(parts)))


def _pictures(run: Path | None, images: Iterable[tuple[ImageRef, str]]) -> Markup:
    """Pictures of a run with their names; the name alone where the bytes are not at hand."""
    store, shown = ImageStore(None if run is None else run / "blobs", writes=False), Markup()
    for ref, name in images:
        try:
            image = Image.fromarray(store.array(ref))
        except EditLoupeError:
            shown += Markup("<span>{} ({}×{} px, not shown)</span> ").format(name, ref.width, ref.height)
            continue
        image.thumbnail((_SIDE, _SIDE))
        file = io.BytesIO()
        image.save(file, format="JPEG", quality=85)
        shown += _PICTURE.format(base64.b64encode(file.getvalue()).decode(), name, name)
    return Markup("<div>{}</div>").format(shown)


def _cut(text: str) -> str:
    return text if len(text) <= _TEXT else f"{text[:_TEXT]}…"
