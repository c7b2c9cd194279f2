"""Make the pages as text, the same for the server and for files. All addresses are relative, so that both work.

    index.html                       the run (with several runs: their list, and each run in a folder of its own)
    rows.js                          the sample table's data
    report.html, plots/NAME.svg      the protocol's tables and plots
    compare.html                     at the root, for several judges: they against each other
    samples/SLUG.html                one sample
    blobs/AB/SHA256.EXT  thumbs/…    pictures
    overlays/SHA256.png              a mask, to be laid over an image
    measured/TRACE/NAME.jpg          what a measure compared, and the difference there
    traces/…                         the traces themselves
    static/…                         style and script, at the root

Everything that a model, an instruction or a file says is text: Jinja escapes it, and `finalize` takes out what steers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from http import HTTPStatus
from importlib import resources
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

import editloupe
from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.errors import ConfigError
from editloupe.reports.compare_tables import tables
from editloupe.reports.escape import safe
from editloupe.reports.render import html
from editloupe.scores import NOT_JUDGED, Metric
from editloupe.tasks import STATUSES
from editloupe.values import ImageRef, Json
from editloupe.viewer.compared import GAIN, SHOWN
from editloupe.viewer.numbers import Numbers
from editloupe.viewer.pictures import Pictures, jpeg
from editloupe.viewer.reader import RunReader, RunSample, slug
from editloupe.viewer.rows import (
    finding_tone,
    human_values,
    own_scores,
    question_name,
    questions,
    row,
    score_scope,
    score_words,
    short_answer,
    target_area,
    tone,
)
from editloupe.viewer.sample import arguments, compared_in, targets, verdicts

if TYPE_CHECKING:
    from editloupe.reports.compare import Comparison, Disagreement

CSP: Final = (
    "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
"""For every page: nothing inline, nothing from elsewhere."""

PLAIN_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For pictures and traces opened by themselves: nothing in them runs. Browsers style a bare picture inline."""

_FOREVER: Final = "private, max-age=31536000, immutable"

_ASSET_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

_CASES: Final = 60
"""Disagreements that the page of comparison shows step by step."""

_TWINS: Final = 24
"""Editors of one sample that a page links to."""


@dataclass(frozen=True, kw_only=True)
class Response:
    """What lies at an address."""

    body: bytes = b""
    type: str = "text/html; charset=utf-8"
    status: HTTPStatus = HTTPStatus.OK
    cache: str = "no-cache"
    location: str = ""
    csp: str = CSP + "; frame-ancestors 'none'"
    """What is no page has a policy of its own."""


@dataclass(frozen=True, kw_only=True)
class SiteRun:
    """One run on a site."""

    reader: RunReader
    folder: str = ""
    """Its part of every address: "" or "NAME/"."""

    @cached_property
    def pictures(self) -> Pictures:
        return Pictures(self.reader.folder, self.reader.inside)

    @property
    def metrics(self) -> dict[str, Metric]:
        """As the run wrote them down; empty if they cannot be read, which its tables then say."""
        try:
            return self.reader.info.metrics()
        except ConfigError:
            return {}


@dataclass(frozen=True, kw_only=True)
class Site:
    """Several runs under one root, or one that is the root itself."""

    runs: tuple[SiteRun, ...]
    live: bool = False
    """Served, so that pages ask for news; a static site does not."""
    numbers: Numbers = field(default_factory=Numbers)
    _rows: dict[tuple[str, str, bool], tuple[object, str]] = field(default_factory=dict)

    @classmethod
    def of(cls, readers: Sequence[RunReader], *, live: bool = False, prices: Prices | None = None) -> Site:
        """Return a site of runs, with folders of their own if there are several; two of one name get a number."""
        # The root's own folder is nobody's.
        taken = {"static"}
        runs = []
        for reader in readers:
            name = slug(reader.name).rpartition("-")[0] or "run"
            folder = next(f for n in count(1) if (f := name if n == 1 else f"{name}-{n}") not in taken)
            taken.add(folder)
            runs.append(SiteRun(reader=reader, folder=f"{folder}/" if len(readers) > 1 else ""))
        return cls(runs=tuple(runs), live=live, numbers=Numbers(prices=prices or Prices()))

    def run(self, folder: str) -> SiteRun | None:
        return next((run for run in self.runs if run.folder == folder), None)

    @property
    def several_judges(self) -> bool:
        """Whether there is something to compare, without comparing: every page asks, for its link."""
        return sum(len(run.reader.info.judges()) for run in self.runs) > 1

    def at(self, address: str) -> Response | None:
        """Return what lies at an address below the root, for example "samples/SLUG.html"; None if nothing does."""
        parts = address.split("/")
        match parts:
            case [""]:
                return Response(status=HTTPStatus.FOUND, location="/index.html")
            case ["static", name] if name in (files := assets()):
                return Response(body=files[name], type=f"{_ASSET_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
            case ["compare.html"]:
                compared = self.compare_page()
                return None if compared is None else text(compared)
            case ["index.html"] if len(self.runs) > 1:
                return text(self.runs_page())
            case [folder, *rest] if len(self.runs) > 1:
                run, parts = self.run(f"{folder}/"), rest
            case _:
                run = self.run("")
        return None if run is None else self._in_run(run, parts)

    def _in_run(self, run: SiteRun, parts: list[str]) -> Response | None:
        match parts:
            case [""]:
                return Response(status=HTTPStatus.FOUND, location=f"/{run.folder}index.html")
            case ["index.html"]:
                return text(self.run_page(run))
            case ["report.html"]:
                return text(self.report_page(run))
            case ["plots", name]:
                svg = self.numbers.plots(run.reader).get(name.removesuffix(".svg"))
                # Shown as a picture, and styled by what it holds itself.
                return None if svg is None else text(svg, "image/svg+xml", csp=PLAIN_CSP)
            case ["rows.js"]:
                # A page from a file may not fetch. A string of JSON is read fastest.
                script = json.dumps(self.rows(run), ensure_ascii=False)
                return text(f"window.editloupeRows = {script};\n", "text/javascript")
            case ["rows.json"]:
                return text(self.rows(run), "application/json")
            case ["live.json"]:
                run.reader.refresh()
                return _state(run.reader, run.reader.version)
            case ["samples", name]:
                stem, _, kind = name.rpartition(".")
                sample = run.reader.sample(stem)
                if sample is not None and kind == "html":
                    return text(self.sample_page(run, sample))
                if sample is not None and kind == "json":
                    return _state(run.reader, _page_version(run.reader, sample))
            case ["blobs", ab, name]:
                found = run.pictures.shown(f"{ab}/{name}")
                return None if found is None else Response(body=found[0], type=found[1], cache=_FOREVER, csp=PLAIN_CSP)
            case ["thumbs", _, name]:
                thumb = run.pictures.thumb(name)
                return None if thumb is None else Response(body=thumb, type="image/jpeg", cache=_FOREVER, csp=PLAIN_CSP)
            case ["overlays", name]:
                overlay = run.pictures.overlay(name)
                return None if overlay is None else Response(body=overlay, type="image/png", cache=_FOREVER, csp=PLAIN_CSP)
            case ["measured", *of, name] if (shown := name.removesuffix(".jpg")) in SHOWN and name != shown:
                trace = "/".join(of)
                compared = compared_in(run.reader, trace) if run.reader.has_trace(trace) else None
                pixels = None if compared is None else compared.picture(shown, run.pictures)
                return None if pixels is None else Response(body=jpeg(pixels), type="image/jpeg", csp=PLAIN_CSP)
            case ["traces" | "forks", *_]:
                # A trace that a finding, or a task under way, names, or a fork of one; nothing else of the folder.
                trace = "/".join(parts)
                data = run.reader.trace(trace) if run.reader.has_trace(trace) else None
                return None if data is None else text(data, "text/plain", csp=PLAIN_CSP)
        return None

    def runs_page(self) -> str:
        """Return the list of runs."""
        return _page("runs.html", self, None, "")

    def run_page(self, run: SiteRun) -> str:
        """Return one run: numbers, plots, the sample table."""
        reader, metrics = run.reader, run.metrics
        samples = reader.samples()
        listed = reader.info.info.get("judges")
        judges = listed.values() if isinstance(listed, dict) else ()
        kinds = {judge.get("kind") for judge in judges if isinstance(judge, dict)}
        return _page(
            "run.html", self, run, "", judges=self.numbers.judges(reader), counts=_counts(reader, samples),
            problems=reader.store.problems, spec=reader.info.spec, mode=reader.info.options().get("mode"),
            # Where measures alone answered, tools say nothing.
            measured=kinds == {"measure"},
            columns=[
                (id_, metrics[id_].short if id_ in metrics else id_, question_name(id_, metrics), id_ not in metrics)
                for id_ in questions(samples, metrics)
            ],
        )  # fmt: skip

    def report_page(self, run: SiteRun) -> str:
        """Return the protocol's tables and plots of every judge of a run."""
        return _page("report.html", self, run, "", report=self.numbers.report(run.reader))

    def compare_page(self) -> str | None:
        """Return judges against each other with the samples on which they differ most, or why there is none."""
        found = self.numbers.comparison([run.reader for run in self.runs])
        if isinstance(found, str) and not self.several_judges:
            return None
        if isinstance(found, str):
            return _page("compare.html", self, None, "", comparison=None, trouble=found)
        cases = [case for d in found.disagreements[:_CASES] if (case := self._case(found, d)) is not None]
        more = len(found.disagreements) - len(cases)
        shown = [table for table in tables(found) if table.name != "disagreements"]
        return _page("compare.html", self, None, "", comparison=found, tables=shown, cases=cases, more=more)

    def _case(self, found: Comparison, case: Disagreement) -> dict[str, Any] | None:
        """One disagreement: the sample, and each judge's steps with the first at which they differ."""
        columns = []
        for judge in found.judges:
            run = next(r for r in self.runs if r.reader.folder == Path(judge.run).resolve())
            sample = run.reader.sample(slug(case.sample))
            own = [] if sample is None else [
                v for v in verdicts(run.reader, sample, run.metrics, self.numbers.prices)
                if v.finding is not None and v.finding.judge_id == judge.judge_id and v.metric == case.criterion
            ]  # fmt: skip
            if own:
                columns.append((judge, run, sample, own[0]))
        if not columns:
            return None
        # The first step at which they differ. Two models never think in the same words; what they do and answer counts.
        steps = [
            [([(c.call.name, arguments(c.call.arguments)) for c in t.calls], t.parsed.answer) for t in v.steps]
            for *_, v in columns
        ]
        same = takewhile(lambda step: all(other == step[0] for other in step), zip(*steps, strict=False))
        parting = 1 + len(list(same))
        _, run, sample, first = columns[0]
        return {"case": case, "columns": columns, "parting": parting, "sample": sample, "question": first.name}

    def rows(self, run: SiteRun) -> str:
        """Return the sample table's data as JSON, with what its filters offer."""
        samples, metrics = run.reader.samples(), run.metrics
        columns = questions(samples, metrics)
        several = len(run.reader.info.judges()) > 1
        judges = run.reader.judge_names() if several else {}
        scores = self.numbers.scores(run.reader)
        head = _compact({"version": run.reader.version, "answers": columns, "statuses": list(STATUSES)})
        found = []
        for sample in samples:
            known = sample, list(columns), own_scores(sample, scores.get(sample.key, ()), run.reader.info.judges())
            key = run.folder, sample.slug, several
            # Made anew only if the sample has changed: a run that grows is asked for again and again.
            if key not in self._rows or self._rows[key][0] != known:
                made = row(sample, list(columns), metrics, run.pictures, judges, known[2])
                self._rows[key] = known, _compact(made)
            found.append(self._rows[key][1])
        return f'{head[:-1]},"rows":[{",".join(found)}]}}'

    def sample_page(self, run: SiteRun, sample: RunSample) -> str:
        """Return one sample: its images, every verdict step by step."""
        metrics, edit = run.metrics, sample.sample
        position, total, before, behind = run.reader.around(sample.slug)
        found = verdicts(run.reader, sample, metrics, self.numbers.prices)
        drawn: dict[str, str] = {}
        for verdict in found:
            if verdict.compared is not None and verdict.trace is not None:
                drawn.setdefault(verdict.compared.key, verdict.trace)
        people = [
            (metric.short, rater, said, tone(metric, value))
            for metric in metrics.values()
            for rater, (said, value) in human_values(edit, metric).items()
        ]
        names = run.reader.judge_names()
        mains = run.reader.info.judges()
        judges = names if len(mains) > 1 else {}
        known = own_scores(sample, self.numbers.scores(run.reader).get(sample.key, ()), mains)
        several_turns = edit is not None and len(edit.turns) > 1
        # The whole sample's scores first, then turn by turn; of a chain the latter are a table of their own.
        scores = [
            (question_name(s.metric, metrics), score_scope(s), score_words(s), tone(metrics.get(s.metric), s.value),
             s.reason, judges.get(id_, ""))
            for id_, s in sorted(known, key=lambda own: (bool(score_scope(own[1])), own[1].turn))
            if not several_turns or not s.turn or s.part
        ]  # fmt: skip
        by_turn: dict[tuple[str, str], dict[int, tuple[str, str, str]]] = {}
        for id_, s in self.numbers.scores(run.reader).get(sample.key, ()) if several_turns else ():
            if s.turn and not s.part and s.missing != NOT_JUDGED:
                of_turn = by_turn.setdefault((question_name(s.metric, metrics), judges.get(id_, "")), {})
                of_turn[s.turn] = score_words(s), tone(metrics.get(s.metric), s.value), s.reason
        return _page(
            "sample.html", self, run, "../", entry=sample, sample=edit, verdicts=found, people=people, metrics=metrics,
            scores=scores, by_turn=by_turn, panes=_panes(sample), strip=_strip(sample),
            marks=[*targets(sample), *(m for v in found for m in v.marks)],
            others=self._others(run, sample), position=position, count=total, previous=before, following=behind,
            several=len(names) > 1, area=target_area(edit) if edit else None, gain=GAIN, drawn=drawn,
            overlay=run.pictures.overlay_name(edit.masks["edit"]) if edit and "edit" in edit.masks else None,
        )  # fmt: skip

    def _others(self, run: SiteRun, sample: RunSample) -> list[tuple[SiteRun, RunSample, list[tuple[str, str]]]]:
        """The same sample in other runs, and under other editors, with the answers as (words, colour)."""
        found = []
        for other in self.runs:
            for name in other.reader.named(sample.id)[:_TWINS]:
                twin = None if (other, name) == (run, sample.slug) else other.reader.sample(name)
                if twin is not None:
                    metrics = other.metrics
                    answers = [(short_answer(f), finding_tone(f, metrics)) for f in twin.findings]
                    found.append((other, twin, answers))
        return found


def assets() -> dict[str, bytes]:
    """Return the files of static/ by name."""
    found = resources.files("editloupe.viewer").joinpath("static").iterdir()
    return {file.name: file.read_bytes() for file in sorted(found, key=lambda f: f.name) if file.is_file()}


def text(body: str | bytes, type_: str = "text/html", **more: Any) -> Response:
    """Return text in UTF-8 as a response. more: further fields of it."""
    data = body.encode("utf-8", "backslashreplace") if isinstance(body, str) else body
    return Response(body=data, type=f"{type_}; charset=utf-8", **more)


def _state(reader: RunReader, version: int | str) -> Response:
    """What a page asks for again and again to see whether it is still up to date."""
    return text(json.dumps({"version": version, "running": reader.running()}), "application/json")


def _page_version(reader: RunReader, sample: RunSample) -> str:
    """A text that changes whenever the sample's page would."""
    forks = [fork for finding in sample.findings if finding.trace for fork in reader.forks(finding.trace)]
    sizes = [path.stat().st_size for name in (*sample.open, *forks) if (path := reader.inside(name))]
    return f"{len(sample.findings)}.{sum(f.seconds for f in sample.findings):.4f}.{len(sizes)}.{sum(sizes)}"


def _page(template: str, site: Site, run: SiteRun | None, up: str, **values: object) -> str:
    """up: from the page to its run's folder."""
    root = up + ("../" if run is not None and run.folder else "")
    return _ENVIRONMENT.get_template(template).render(
        site=site, run=run, here=up, root=root, csp=CSP, version=editloupe.__version__, **values
    )


def _counts(reader: RunReader, samples: Sequence[RunSample]) -> dict[str, Any]:
    """What stands in the tiles at the top."""
    findings = [f for sample in samples for f in sample.findings]
    return {
        "samples": len(samples),
        "findings": len(findings),
        "judged": sum(f.status == "ok" for f in findings),
        "turns": sum(f.turns for f in findings) / len(findings) if findings else 0.0,
        "seconds": sum(f.seconds for f in findings),
        "usage": sum((f.usage for f in findings), Usage()),
        "running": reader.live and reader.running(),
    }


def _panes(entry: RunSample) -> list[tuple[str, str, ImageRef]]:
    """The images to look at as (role, heading, image); source and edited first."""
    sample = entry.sample
    if sample is None:
        return []
    found = [("source", "Source", sample.source)]
    # Of a chain the last turn that has an output; the strip of turns says where there is none.
    last = next((n for n in range(len(sample.turns), 0, -1) if sample.turns[n - 1].edited is not None), 0)
    edited = sample.turns[last - 1].edited if last else None
    if edited is not None:
        found.append(("edited", "Edited" if len(sample.turns) == 1 else f"After turn {last}", edited))
    if sample.reference is not None:
        found.append(("more", "Reference", sample.reference))
    return found + [("more", f"Mask: {name}", mask) for name, mask in sample.masks.items()]


def _strip(entry: RunSample) -> list[tuple[str, str, ImageRef | None, list[tuple[str, str]]]]:
    """The source and each turn of a chain as (heading, instruction, image or None, columns); [] for a single turn."""
    sample = entry.sample
    if sample is None or len(sample.turns) == 1:
        return []
    found: list[tuple[str, str, ImageRef | None, list[tuple[str, str]]]] = [("Source", "", sample.source, [])]
    by_turn = {k: v for k, v in sample.extra.items() if isinstance(v, list | tuple) and len(v) == len(sample.turns)}
    for number, turn in enumerate(sample.turns):
        columns = [(name.replace("_", " "), _value(values[number])) for name, values in by_turn.items()]
        shown = [(name, words) for name, words in columns if words != turn.instruction]
        found.append((f"After turn {number + 1}", turn.instruction, turn.edited, shown))
    return found


def _value(value: Json) -> str:
    """A column's value in words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(one, str) for one in value):
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _compact(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _finalize(value: object) -> object:
    return safe(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _number(value: float) -> str:
    """A box's coordinate without needless digits."""
    return f"{value:.3f}".rstrip("0").rstrip(".")


def _meaning(metric: Metric) -> str:
    """The unit, the range and the direction of a metric, in words."""
    bounds = metric.domain.bounds
    span = "" if bounds is None else f"{bounds[0]:g} to {bounds[1]:g}"
    return ", ".join(filter(None, (metric.unit, span, f"{metric.better} is better" if metric.better else "")))


_ENVIRONMENT: Final = Environment(
    loader=PackageLoader("editloupe.viewer"),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalize,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters |= {
    "px": _number,
    "meaning": _meaning,
    "arguments": arguments,
    "html": html,
    "capitalize_first": lambda text: text[:1].upper() + text[1:],
}
