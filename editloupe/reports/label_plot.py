"""Plots of labels as HTML, for the viewer to set into its pages.

Colours are classes (tone-0 worst to tone-3 best, tone-none for what could not be judged), so that a page's own style
sheet serves light and dark, and nothing here needs a style of its own. Every text goes through markupsafe's escaping.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from markupsafe import Markup

from editloupe.reports.escape import safe
from editloupe.reports.render import tone
from editloupe.reports.summary import Summary
from editloupe.scores import Metric

WIDTH: Final = 640
_ROW: Final = 34
_BAR: Final = 20


def label_plot(summaries: Sequence[Summary], criterion: Metric) -> Markup:
    """How often each label of one criterion was given, as an SVG: one stacked bar an editor, worst label first.

    What could not be judged stands at the end of a bar. The numbers are in the bars, their tooltips and the description.
    """
    tones = {level.name: tone(criterion.normalise(level.value)) for level in criterion.levels}
    counted: list[tuple[str, list[tuple[str, str, int]]]] = []
    for summary in summaries:
        parts = [(name, tones.get(name, "tone-none"), n) for name, n in summary.histogram[criterion.id].items()]
        parts += [(f"({status})", "tone-none", n) for status, n in summary.statuses.get(criterion.id, {}).items()]
        counted.append((summary.editor, [part for part in parts if part[2]]))
    named = any(editor for editor, _ in counted)
    left, height = (150 if named else 0), _ROW * len(counted)
    counts = "; ".join(
        f"{editor or 'all'}: " + ", ".join(f"{name} {n}" for name, _, n in parts) for editor, parts in counted
    )
    drawn = Markup("").join(
        _stacked(editor if named else "", parts, left=left, top=_ROW * i) for i, (editor, parts) in enumerate(counted)
    )
    return Markup(
        '<figure class="plot"><figcaption>{}</figcaption>'
        '<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>{}</figure>'
    ).format(criterion.name, WIDTH, height, safe(f"{criterion.name}: {counts}"), drawn, _legend(tones.items(), counted))


def _stacked(editor: str, parts: Sequence[tuple[str, str, int]], *, left: int, top: int) -> Markup:
    total = sum(n for _, _, n in parts)
    at, found = float(left), [Markup("")]
    if editor:
        shown = editor if len(editor) <= 20 else editor[:19] + "…"
        found.append(Markup('<text x="0" y="{}">{}<title>{}</title></text>').format(top + 21, safe(shown), safe(editor)))
    for name, class_, n in parts:
        width = (WIDTH - left) * n / total
        fits = width > 9 * len(str(n)) + 4
        number = Markup('<text class="in" x="{:.1f}" y="{}">{}</text>').format(at + width / 2, top + 21, n) if fits else ""
        bar = Markup('<rect x="{:.1f}" y="{}" width="{:.1f}" height="{}"/>')
        drawn = bar.format(at, top + (_ROW - _BAR) // 2, max(width - 1.5, 0.5), _BAR)
        title = Markup("<title>{}: {} of {}</title>").format(safe(name), n, total)
        found.append(Markup('<g class="{}">{}{}{}</g>').format(class_, title, drawn, number))
        at += width
    return Markup("").join(found)


def _legend(tones: Iterable[tuple[str, str]], counted: Sequence[tuple[str, Sequence[tuple[str, str, int]]]]) -> Markup:
    missing = dict.fromkeys(name for _, parts in counted for name, class_, _ in parts if class_ == "tone-none")
    items = [*tones, *((name, "tone-none") for name in missing)]
    return Markup('<ul class="legend">{}</ul>').format(
        Markup("").join(Markup('<li><span class="dot {}"></span>{}</li>').format(c, safe(name)) for name, c in items)
    )
