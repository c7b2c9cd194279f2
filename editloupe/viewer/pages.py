"""The pages as text: the same for the server and for files. All addresses are relative, so that both work.

    index.html                       the run (with several runs: their list, and each run in a folder of its own)
    rows.js                          the sample table's data
    report.html, plots/NAME.svg      the paper's tables and plots
    compare.html                     at the root, where there are several judges: they against each other
    samples/SLUG.html                one sample
    blobs/AB/SHA256.EXT  thumbs/…    pictures
    traces/…                         the traces themselves
    static/…                         style and script, at the root

Everything that a model, an instruction or a file says is text: Jinja escapes it, and `finalize` takes out what steers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import resources
from itertools import count
from pathlib import Path
from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import editloupe
from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.errors import EditLoupeError
from editloupe.reports import render
from editloupe.reports.compare import Comparison, Disagreement, compare, human_column
from editloupe.reports.compare_tables import tables
from editloupe.reports.escape import safe
from editloupe.reports.fragments import editor_table, grid_table, label_plot, score_table, tone
from editloupe.reports.judged import Judged, judged_in, read_judged
from editloupe.reports.report import Report, make_report
from editloupe.runs.judges import titled
from editloupe.scores import Metric, MetricSet
from editloupe.tasks import STATUSES
from editloupe.values import ImageRef, Json
from editloupe.viewer.index import Entry, RunIndex, slug
from editloupe.viewer.pictures import Pictures
from editloupe.viewer.rows import finding_tone, human_values, row, target_area
from editloupe.viewer.sample import Mark, targets, verdicts

CSP: Final = (
    "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
"""For every page: nothing inline, nothing from elsewhere."""

_CASES: Final = 60
"""Disagreements that the page of comparison shows step by step."""

_TWINS: Final = 24
"""Editors of one sample that a page links to."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run on a site. folder: its part of every address, "" or "NAME/"."""

    index: RunIndex
    folder: str = ""

    @cached_property
    def pictures(self) -> Pictures:
        return Pictures(self.index)

    @cached_property
    def _rubric(self) -> tuple[MetricSet | None, str]:
        try:
            return self.index.store.metric_set(), ""
        except EditLoupeError as error:
            return None, str(error)

    @property
    def rubric(self) -> MetricSet | None:
        """As the run wrote it down; None where that cannot be read (`trouble` says why)."""
        return self._rubric[0]

    @property
    def trouble(self) -> str:
        return self._rubric[1]


@dataclass(frozen=True, kw_only=True)
class Site:
    """Several runs under one root, or one that is the root itself.

    live: served, so that pages ask for news; a static site does not.
    """

    runs: tuple[Run, ...]
    live: bool = False
    prices: Prices = field(default_factory=Prices)
    _rows: dict[tuple[str, str, bool], tuple[Entry, str]] = field(default_factory=dict)
    _judged: dict[str, tuple[int, dict[str, Judged], str]] = field(default_factory=dict)
    _reports: dict[str, tuple[int, Report | None]] = field(default_factory=dict)
    _compared: dict[tuple[()], tuple[tuple[int, ...], Comparison | str | None]] = field(default_factory=dict)

    @classmethod
    def of(cls, indexes: Sequence[RunIndex], *, live: bool = False, prices: Prices | None = None) -> Site:
        """Runs with folders of their own where there are several; two of one name are told apart by a number."""
        # The root's own folder is nobody's.
        taken = {"static"}
        runs = []
        for index in indexes:
            name = slug(index.name).rpartition("-")[0] or "run"
            folder = next(f for n in count(1) if (f := name if n == 1 else f"{name}-{n}") not in taken)
            taken.add(folder)
            runs.append(Run(index=index, folder=f"{folder}/" if len(indexes) > 1 else ""))
        return cls(runs=tuple(runs), live=live, prices=prices or Prices())

    def run(self, folder: str) -> Run | None:
        return next((run for run in self.runs if run.folder == folder), None)

    def runs_page(self) -> str:
        """The list of runs."""
        return _page("runs.html", self, None, "", runs=[(run, _counts(run.index)) for run in self.runs])

    def run_page(self, run: Run) -> str:
        """One run: numbers, plots, the sample table."""
        index, rubric = run.index, run.metrics
        index.entries()
        judged = []
        names = index.store.judge_names()
        known, trouble = self._judges(run)
        for id_, uri in index.store.judges().items():
            found = known[id_].summaries() if id_ in known else []
            plots = [label_plot(found, c) for c in rubric.metrics if found and c.id in found[0].criteria] if rubric else []
            tables = [score_table(s, rubric) for s in found] if rubric else []
            editors = editor_table(found, rubric) if rubric and len(found) > 1 else ""
            told = {"told": titled(names[id_], uri), "trouble": trouble or run.trouble}
            judged.append({**told, "editors": editors, "tables": tables, "plots": plots})
        return _page(
            "run.html", self, run, "", judges=judged, counts=_counts(index), problems=index.store.problems,
            identity=_mapping(index.store.info, "identity"), record=_mapping(index.store.info, "record"),
            criteria=[(c.id, c.short, c.name) for c in rubric.metrics] if rubric else [],
        )  # fmt: skip

    def report(self, run: Run) -> Report | None:
        """The tables and plots of a run; None where nothing can be told yet. Kept until the run changes."""
        run.index.entries()
        kept = self._reports.get(run.folder)
        if kept is None or kept[0] != run.index.version:
            version, judged = run.index.version, self._judges(run)[0]
            kept = version, make_report(list(judged.values())) if judged else None
            self._reports[run.folder] = kept
        return kept[1]

    def report_page(self, run: Run) -> str:
        """The paper's tables and plots of every judge of a run."""
        report = self.report(run)
        sections = [
            (section.judged, [grid_table(g) for g in section.grids], [(f"{n}-{name}", name) for name in section.plots])
            for n, section in enumerate(report.sections if report else (), start=1)
        ]
        return _page("report.html", self, run, "", sections=sections)

    def plots(self, run: Run) -> dict[str, str]:
        """The report's plots as SVG, by the name of their file without ending."""
        report = self.report(run)
        sections = report.sections if report else ()
        return {f"{n}-{name}": svg for n, section in enumerate(sections, start=1) for name, svg in section.plots.items()}

    @property
    def several_judges(self) -> bool:
        """Whether there is something to compare, told without comparing: every page asks, for its link."""
        return sum(len({f.judge_id for f in run.index.store.findings.values()}) for run in self.runs) > 1

    def comparison(self) -> Comparison | str | None:
        """All judges of all runs against each other, or why they cannot be compared; None where there is one judge."""
        for run in self.runs:
            run.index.entries()
        versions = tuple(run.index.version for run in self.runs)
        kept = self._compared.get(())
        if kept is None or kept[0] != versions:
            made: Comparison | str | None
            try:
                judges = read_judged([run.index.folder for run in self.runs])
                people, notes = human_column(judges)
                found = compare(judges, prices=self.prices, people=people)
                made = replace(found, notes=(*found.notes, *notes))
            except EditLoupeError as error:
                made = str(error) if self.several_judges else None
            kept = versions, made
            self._compared[()] = kept
        return kept[1]

    def compare_page(self) -> str | None:
        """Judges against each other, and the samples on which they part, the furthest apart first; or why there is none."""
        found = self.comparison()
        if found is None:
            return None
        if isinstance(found, str):
            return _page("compare.html", self, None, "", comparison=None, trouble=found)
        cases = [case for d in found.disagreements[:_CASES] if (case := self._case(found, d)) is not None]
        shown = [render.html(table) for table in tables(found) if table.name != "disagreements"]
        more = len(found.disagreements) - len(cases)
        return _page("compare.html", self, None, "", comparison=found, tables=shown, cases=cases, more=more)

    def _case(self, found: Comparison, case: Disagreement) -> dict[str, Any] | None:
        """One disagreement: the sample, and each judge's steps with the first at which they part."""
        columns = []
        for judge in found.judges:
            run = next(r for r in self.runs if r.index.folder == Path(judge.run))
            entry = next((e for e in run.index.entries() if e.key == case.sample), None)
            if entry is None:
                continue
            told = [
                v for v in verdicts(run.index, entry, run.metrics, self.prices)
                if v.finding is not None and v.finding.judge_id == judge.judge_id and v.criterion == case.criterion
            ]  # fmt: skip
            if told:
                columns.append((judge, run, entry, told[0]))
        if not columns:
            return None
        # Two models never think in the same words: what they do and answer is compared.
        steps = [[([(c.name, c.arguments) for c in t.calls], t.answer) for t in v.turns] for *_, v in columns]
        return {"case": case, "columns": columns, "parting": _parting(steps), "entry": columns[0][2], "run": columns[0][1]}

    def rows(self, run: Run) -> str:
        """The sample table's data as JSON, with what its filters offer."""
        index, rubric = run.index, run.metrics
        entries = index.entries()
        labels = {c.id: [level.name for level in reversed(c.levels)] for c in rubric.metrics} if rubric else {}
        head = _compact({"version": index.version, "labels": labels, "statuses": list(STATUSES)})
        judges = index.store.judge_names()
        found = (self._row(run, rubric, entry, judges) for entry in (entries if rubric else ()))
        return f'{head[:-1]},"rows":[{",".join(found)}]}}'

    def _row(self, run: Run, rubric: MetricSet | None, entry: Entry, judges: Mapping[str, str]) -> str:
        """One row, made anew only where the sample has changed: a run that grows is asked for again and again."""
        assert rubric is not None
        key = (run.folder, entry.slug, len(judges) > 1)
        kept = self._rows.get(key)
        if kept is None or kept[0] != entry:
            kept = entry, _compact(row(entry, rubric, run.pictures, judges))
            self._rows[key] = kept
        return kept[1]

    def _judges(self, run: Run) -> tuple[dict[str, Judged], str]:
        """The judges of a run by id with their scores, or why there are none; kept until the run changes."""
        index = run.index
        kept = self._judged.get(run.folder)
        if kept is None or kept[0] != index.version:
            version = index.version
            try:
                kept = version, {j.judge_id: j for j in judged_in(index.store)}, ""
            except EditLoupeError as error:
                kept = version, {}, str(error)
            self._judged[run.folder] = kept
        return kept[1], kept[2]

    def rows_script(self, run: Run) -> str:
        """The same as a script, since a page from a file may not fetch. A string of JSON is read faster than an object."""
        text = json.dumps(self.rows(run), ensure_ascii=False)
        return f"window.editloupeRows = {text};\n"

    def sample_page(self, run: Run, entry: Entry) -> str:
        """One sample: its images, every verdict step by step."""
        index, rubric, sample = run.index, run.metrics, entry.sample
        position, count, before, behind = index.around(entry.slug)
        found = verdicts(index, entry, rubric, self.prices)
        marks = [*targets(entry), *(m for v in found for m in v.marks)]
        people = [
            (c.short, rater, said, _tone_of(c, value))
            for c in (rubric.metrics if rubric else ())
            for rater, (said, value) in human_values(sample, c).items()
        ]
        return _page(
            "sample.html", self, run, "../", entry=entry, sample=sample, verdicts=found, people=people,
            panes=_panes(entry), marks=marks, others=self._others(run, entry), position=position, count=count,
            previous=before.slug if before else None, following=behind.slug if behind else None,
            edit_type=(sample.edit_type) if sample and sample.edit_type else "",
            area=target_area(sample) if sample else None,
        )  # fmt: skip

    def _others(self, run: Run, entry: Entry) -> list[tuple[Run, Entry, list[tuple[str, str]]]]:
        """The same sample in this run's siblings, and under other editors: with the verdicts as (words, colour)."""
        found = []
        for other in self.runs:
            for twin in other.index.named(entry.id)[:_TWINS]:
                if (other, twin.slug) != (run, entry.slug):
                    rubric = other.metrics
                    told = [
                        (f.label or f"({f.status})", finding_tone(f, rubric) if rubric else "tone-none")
                        for f in twin.findings
                    ]
                    found.append((other, twin, told))
        return found


def _parting(steps: Sequence[Sequence[object]]) -> int:
    """The number, from 1, of the first step that is not the same in all."""
    number = 1
    for same in zip(*steps, strict=False):
        if any(step != same[0] for step in same):
            break
        number += 1
    return number


def asset_names() -> tuple[str, ...]:
    """The files of static/."""
    return tuple(sorted(p.name for p in resources.files("editloupe.viewer").joinpath("static").iterdir() if p.is_file()))


def asset(name: str) -> bytes:
    """One of `asset_names()`."""
    return resources.files("editloupe.viewer").joinpath("static", name).read_bytes()


def page_version(index: RunIndex, entry: Entry) -> str:
    """Changes whenever the sample's page would."""
    forks = [fork for finding in entry.findings if finding.trace for fork in index.forks(finding.trace)]
    sizes = [path.stat().st_size for name in (*entry.open, *forks) if (path := index.inside(name))]
    return f"{len(entry.findings)}.{sum(f.seconds for f in entry.findings):.4f}.{len(sizes)}.{sum(sizes)}"


def _page(template: str, site: Site, run: Run | None, up: str, **values: object) -> str:
    """up: from the page to its run's folder."""
    root = up + ("../" if run is not None and run.folder else "")
    return _ENVIRONMENT.get_template(template).render(
        site=site, run=run, here=up, root=root, csp=CSP, version=editloupe.__version__, **values
    )


def _counts(index: RunIndex) -> dict[str, Any]:
    """What stands in the tiles at the top."""
    findings = [f for entry in index.entries() for f in entry.findings]
    usage = sum((f.usage for f in findings), Usage())
    return {
        "samples": len(index.entries()),
        "findings": len(findings),
        "judged": sum(f.status == "ok" for f in findings),
        "turns": sum(f.turns for f in findings) / len(findings) if findings else 0.0,
        "seconds": sum(f.seconds for f in findings),
        "usage": usage,
        "running": index.live and index.running(),
        "judges": index.store.judge_names(),
    }


def _panes(entry: Entry) -> list[tuple[str, str, ImageRef]]:
    """The images to look at as (role, heading, image); source and edited first."""
    sample = entry.sample
    if sample is None:
        return []
    found = [("source", "Source", sample.source)]
    for number, turn in enumerate(sample.turns, start=1):
        last = number == len(sample.turns)
        if turn.edited is not None:
            found.append(("edited" if last else "more", "Edited" if last else f"After turn {number}", turn.edited))
    found.sort(key=lambda pane: pane[0] == "more")
    if sample.reference is not None:
        found.append(("more", "Reference", sample.reference))
    return found + [("more", f"Mask: {name}", mask) for name, mask in sample.masks.items()]


def _tone_of(criterion: Metric, value: float | None) -> str:
    return tone(None if value is None else criterion.normalise(value))


def _mapping(info: Mapping[str, Json], name: str) -> dict[str, Json]:
    found = info.get(name)
    return dict(found) if isinstance(found, dict) else {}


def _compact(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _finalize(value: object) -> object:
    if isinstance(value, Markup):
        return value
    return safe(value) if isinstance(value, str) else value


def _number(value: float) -> str:
    """A box's coordinate without needless digits."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _on(marks: Sequence[Mark], image: ImageRef) -> list[Mark]:
    return [m for m in marks if m.image.sha256 == image.sha256]


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("editloupe.viewer"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"px": _number, "on": _on, "capitalize_first": lambda text: text[:1].upper() + text[1:]}
    return environment


_ENVIRONMENT: Final = _environment()
