"""Everything that `editloupe report` shows of one or several runs: the grids, the plots, and how they are written down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from editloupe.errors import StorageError
from editloupe.reports import grid, plots
from editloupe.reports.areas import WINDOW, ByArea, by_area
from editloupe.reports.doubt import doubt_grids
from editloupe.reports.grid import Grid
from editloupe.reports.judged import Judged
from editloupe.reports.paper import OVERALL, area_grids, label_grids, not_side_by_side, score_grids, side_by_side
from editloupe.reports.summary import edit_types
from editloupe.values import Json

LISTED: Final = ".files.json"
"""Beside the files of a report: their names, so that the next one knows which are stale."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """What is told of one judge.   plots: file name without ending → SVG."""

    judged: Judged
    grids: tuple[Grid, ...]
    plots: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Report:
    """One or several judges, each by itself and, where there are several, side by side; or a note why they are not."""

    sections: tuple[Section, ...]
    together: Grid | None = None
    notes: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Json]:
        return {
            "together": None if self.together is None else grid.to_json(self.together),
            "notes": list(self.notes),
            "judges": [
                {
                    "judge": section.judged.name,
                    "backend": section.judged.backend,
                    "judge_id": section.judged.judge_id,
                    "mode": section.judged.mode,
                    "ablations": list(section.judged.ablations),
                    "rubric": section.judged.metrics.id,
                    "repeats": section.judged.repeats.to_json(),
                    "run": str(section.judged.folder),
                    "notes": list(section.judged.notes),
                    "grids": {g.name: grid.to_json(g) for g in section.grids},
                }
                for section in self.sections
            ],
        }

    def markdown(self) -> str:
        parts = ["# Report\n", *(f"> {note}\n" for note in self.notes)]
        if self.together is not None:
            parts.append(grid.markdown(self.together))
        for section in self.sections:
            parts.append(f"# {section.judged.name}\n\n{section.judged.describe()}\n")
            parts += [f"> {note}\n" for note in section.judged.notes]
            parts += [grid.markdown(g) for g in section.grids]
        return "\n".join(parts)

    def files(self) -> Iterator[tuple[str, str]]:
        """(path below the report's folder, text): report.md, report.json, a CSV a grid, an SVG a plot."""
        yield "report.md", self.markdown()
        yield "report.json", json.dumps(self.to_json(), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        if self.together is not None:
            yield f"{self.together.name}.csv", grid.csv_text(self.together)
        for number, section in enumerate(self.sections, start=1):
            below = f"judge-{number}/" if len(self.sections) > 1 else ""
            for g in section.grids:
                yield f"{below}{g.name}.csv", grid.csv_text(g)
            for name, text in section.plots.items():
                yield f"{below}{name}.svg", text


def make_report(all_judged: Sequence[Judged]) -> Report:
    """The report of what was read."""
    apart = not_side_by_side(all_judged)
    return Report(
        sections=tuple(map(_section, all_judged)), together=side_by_side(all_judged), notes=(apart,) if apart else ()
    )


def write_report(report: Report, folder: Path) -> list[Path]:
    """Every file of the report below `folder`. Raises StorageError."""
    return write_files(report.files(), folder, kind="report")


def write_files(files: Iterable[tuple[str, str]], folder: Path, *, kind: str) -> list[Path]:
    """(path below the folder, text) each; what was written there under the same kind before, and is not now, is removed.

    `LISTED` in the folder names what was written, by kind; nothing else is ever removed. Raises StorageError.
    """
    listed, written = _listed(folder), {}
    try:
        for name, text in files:
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            written[name] = path
        others = {name for other, names in listed.items() if other != kind for name in names}
        for name in listed.get(kind, []):
            if name not in written and name not in others:
                _remove(folder, name)
        (folder / LISTED).write_text(json.dumps({**listed, kind: list(written)}, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise StorageError(f"the report cannot be written to {folder}: {error.strerror or error}") from error
    return list(written.values())


def _listed(folder: Path) -> dict[str, list[str]]:
    """Names by kind; nothing where there is no list, or one that is not ours."""
    try:
        found = json.loads((folder / LISTED).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    if not isinstance(found, dict):
        return {}
    return {kind: [n for n in names if isinstance(n, str)] for kind, names in found.items() if isinstance(names, list)}


def _remove(folder: Path, name: str) -> None:
    """A file of ours below the folder, and the folder that it alone stood in. A list from elsewhere reaches no further."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()) or not path.is_file():
        return
    path.unlink()
    if path.parent != folder and not any(path.parent.iterdir()):
        path.parent.rmdir()


def _section(judged: Judged) -> Section:
    areas = by_area(judged)
    grids = (*score_grids(judged), *label_grids(judged), *doubt_grids(judged), *area_grids(judged, areas))
    return Section(judged=judged, grids=grids, plots=dict(_plots(judged, areas)))


def _plots(judged: Judged, areas: Sequence[ByArea]) -> Iterator[tuple[str, str]]:
    summaries = judged.summaries()
    types = [t for t in edit_types(judged.protocol) if any(t in s.rows for s in summaries)]
    columns = [OVERALL, *judged.criteria] if len(judged.criteria) > 1 else list(judged.criteria)
    for column in columns if len(types) >= 3 else []:
        name = "Overall" if column == OVERALL else judged.metrics.metric(column).name
        series = [
            (s.editor or "(not named)", [s.rows[t][column].mean if t in s.rows else None for t in types]) for s in summaries
        ]
        yield f"types-{column.replace('_', '-')}", plots.radar(types, series, title=f"{name} by edit type")
    for criterion in judged.criteria:
        levels = [level.name for level in reversed(judged.metrics.metric(criterion).levels)]
        rows = [(s.editor or "(not named)", [(n, s.histogram[criterion][n]) for n in levels]) for s in summaries]
        title = f"{judged.metrics.metric(criterion).name}: labels"
        yield f"labels-{criterion.replace('_', '-')}", plots.bars(rows, title=title)
    for number, one in enumerate((a for a in areas if a.points), start=1):
        yield f"area-{number}-{one.criterion.replace('_', '-')}", _scatter(judged, one)


def _scatter(judged: Judged, one: ByArea) -> str:
    rule = judged.metrics.metric(one.criterion)
    groups = [
        plots.Rated(
            name=level.name, points=tuple(p for p in one.points if abs(p[1] - (rule.normalise(level.value) or 0.0)) < 1e-6)
        )
        for level in reversed(rule.levels)
    ]
    r = one.windowed
    told = f"r = {r.r:+z.2f}" if r.r is not None else f"no correlation: {r.why}"
    title = f"{rule.name} by target area" + (f": {one.editor}" if one.editor else "")
    count = f"{len(one.points)} sample{'s' * (len(one.points) != 1)}"
    words = f"{count}; the trend of windows of {WINDOW} has {told}."
    named = f"mean of windows of {WINDOW} samples ({told})"
    if not one.trend:
        have = "has" if len(one.points) == 1 else "have"
        named = f"No trend: it takes windows of {WINDOW} samples, and {count} {have} a box and a score"
        words = f"{named}."
    return plots.scatter(groups, one.trend, title=title, trend_title=named, words=words)
