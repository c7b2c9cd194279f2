"""Make the pages as text, the same for the server and for files. All addresses are relative, so that both work.

    index.html                       the run (with several runs: their list, and each run in a folder of its own)
    rows.js                          the matrix of samples and judges (rows.json: the same, for a served page)
    first.js                         its first rows, of a large run that is served
    report.html, plots/NAME.svg      the protocol's tables and plots
    listed.html                      the run as a row of the list of runs, with its scores
    compare.html, compare.js         at the root, for several judges: their matrix (?run=NAME&run=NAME of these runs alone)
    compared.html                    the statistics of that page
    trial.html, trial/NAME.svg       of runs over probes: judges against what is right (at the root: all runs, or ?run=NAME)
    samples/SLUG.html                one sample
    blobs/AB/SHA256.EXT  thumbs/…    pictures
    near/SLUG/0.jpg                  the place of a sample's source (1: of its output) where a tool saw a difference
    overlays/SHA256.png              a mask, to be laid over an image
    measured/TRACE/NAME.jpg          what a measure compared, and the difference there
    traces/…                         the traces themselves
    static/…                         style and script, at the root

Everything that a model, an instruction or a file says is text: Jinja escapes it, and `finalize` takes out what steers.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cached_property
from http import HTTPStatus
from importlib import resources
from itertools import count, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qs

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from editloupe.backends.prices import Prices
from editloupe.build.probes.trial_tables import answers, heading
from editloupe.build.probes.trial_tables import tables as trial_tables
from editloupe.chat import Usage
from editloupe.errors import ConfigError, DataError, EditLoupeError
from editloupe.figures.compare_tables import tables
from editloupe.figures.escape import safe
from editloupe.figures.render import html
from editloupe.findings import Finding
from editloupe.runs.people import writable
from editloupe.scores import NOT_JUDGED, Metric, Score
from editloupe.tasks import STATUSES
from editloupe.values import ImageRef, Json, digest
from editloupe.version import VERSION
from editloupe.viewer.compared import GAIN, SHOWN
from editloupe.viewer.grid import grid, put_beside
from editloupe.viewer.listed import SIGNS, counted
from editloupe.viewer.marks import named_apart
from editloupe.viewer.numbers import Numbers, RunFacts
from editloupe.viewer.people import Rating, forms, take
from editloupe.viewer.pictures import Pictures, jpeg
from editloupe.viewer.reader import RunReader, RunSample, slug
from editloupe.viewer.rows import (
    finding_tone,
    is_near,
    own_scores,
    question_name,
    questions,
    row,
    score_scope,
    score_words,
    short_answer,
    target_area,
    thumbs_around,
    tone,
)
from editloupe.viewer.sample import arguments, compared_in, home, targets, verdicts

if TYPE_CHECKING:
    from editloupe.figures.compare import Comparison, Disagreement

CSP: Final = (
    "default-src 'none'; img-src 'self'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'"
)
"""For every page: nothing inline, nothing from elsewhere."""

PLAIN_CSP: Final = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""For pictures and traces opened by themselves: nothing in them runs. Browsers style a bare picture inline."""

FOREVER: Final = "private, max-age=31536000, immutable"

ASSET_TYPES: Final = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}

_CASES: Final = 20
"""Disagreements whose steps stand side by side below the statistics."""

_TOGETHER: Final = 8
"""So many runs are compared without being chosen."""

_FIRST: Final = 24
"""Rows of a large run that a page shows before it has all: more than a tall window does."""

_WITH_EVENTS: Final = 24
"""Verdicts up to which a sample's page holds the raw events of each, three quarters of its size; else it links them."""

_AT_ONCE: Final = 200
"""So many samples are shown at once."""

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
    rating: Rating | None = None
    """Who may give labels here; None for a site that only shows."""
    numbers: Numbers = field(default_factory=Numbers)
    broken: tuple[tuple[str, str], ...] = ()
    """(folder, why) of what looks like a run and cannot be read."""
    _rows: dict[tuple[str, str, bool], tuple[object, str]] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        readers: Sequence[RunReader],
        *,
        live: bool = False,
        prices: Prices | None = None,
        rating: Rating | None = None,
        listed: bool = False,
        broken: Sequence[tuple[str, str]] = (),
    ) -> Site:
        """Return a site of runs, with folders of their own if there are several; two of one name get a number.

        listed: a single run has a folder and a list too.   broken: (folder, why) of runs that cannot be read.
        """
        # The root's own folder is nobody's.
        taken = {"static"}
        runs = []
        for reader in readers:
            name = slug(reader.name).rpartition("-")[0] or "run"
            folder = next(f for n in count(1) if (f := name if n == 1 else f"{name}-{n}") not in taken)
            taken.add(folder)
            runs.append(SiteRun(reader=reader, folder=f"{folder}/" if len(readers) > 1 or listed else ""))
        return cls(
            runs=tuple(runs), live=live, rating=rating, numbers=Numbers(prices=prices or Prices()), broken=tuple(broken)
        )

    @property
    def token(self) -> str | None:
        """What its pages send along with a label; None where nobody may give one."""
        return None if self.rating is None else self.rating.token

    @property
    def listed(self) -> bool:
        """Whether the root is a list of runs, and not a run."""
        return all(run.folder for run in self.runs)

    def run(self, folder: str) -> SiteRun | None:
        return next((run for run in self.runs if run.folder == folder), None)

    @property
    def several_judges(self) -> bool:
        """Whether there is something to compare, without comparing: every page asks, for its link."""
        return _several(self.runs)

    def prepare(self) -> None:
        """Make what the first page of each run needs, so that it need not be waited for."""
        with suppress(EditLoupeError):
            for run in self.runs:
                self.rows(run)

    def at(self, address: str, query: str = "") -> Response | None:
        """Return what lies at an address below the root, for example "samples/SLUG.html"; None if nothing does.

        query: of the pages of comparison, "run=NAME&run=NAME".
        """
        parts = address.split("/")
        match parts:
            case [""]:
                return Response(status=HTTPStatus.FOUND, location="/index.html")
            case ["static", name] if name in (files := assets()):
                return Response(body=files[name], type=f"{ASSET_TYPES[name.rpartition('.')[2]]}; charset=utf-8")
            case ["compare.html" | "compared.html" | "compare.js" as name]:
                return self._comparison(name, query)
            case ["trial.html"] if self.listed:
                chosen = self.on_trial(query)
                return text(self.trial_page(chosen, query)) if self._hold_probes(chosen) else None
            case ["trial", name] if self.listed:
                return self._trial_plot(self.on_trial(query), name)
            case ["index.html"] if self.listed:
                return text(self.runs_page())
            case [folder, *rest] if self.listed:
                run, parts = self.run(f"{folder}/"), rest
            case _:
                run = self.run("")
        return None if run is None else self._in_run(run, parts)

    def said(self, address: str, data: Any) -> Response | None:
        """Store what a person's page sent to "samples/SLUG.label"; None if nothing takes it there. Raises StorageError."""
        *folder, where, name = ["", *address.split("/")]
        run = self.run("/".join(filter(None, folder)) + "/" if any(folder) else "")
        slug_, _, kind = name.rpartition(".")
        sample = run.reader.sample(slug_) if run is not None and where == "samples" and kind == "label" else None
        if run is None or sample is None or self.rating is None:
            return None
        metrics, rater = run.metrics, self.rating.rater
        offered = forms(verdicts(run.reader, sample, metrics, self.numbers.prices), sample, metrics, rater)
        try:
            given = take(data, offered, sample, run.reader, rater)
        except DataError as error:
            return text(_compact({"error": str(error)}), "application/json", status=HTTPStatus.UNPROCESSABLE_ENTITY)
        answer = given.finding.answer
        return text(_compact({"answer": None if answer is None else str(answer)}), "application/json")

    def _chosen(self, query: str) -> tuple[SiteRun, ...]:
        """The runs that a query names, else the first ones."""
        wanted = {f"{one}/" for one in parse_qs(query).get("run", [])}
        return tuple(run for run in self.runs if run.folder in wanted) or self.runs[:_TOGETHER]

    def on_trial(self, query: str = "") -> tuple[SiteRun, ...]:
        """Return the runs that a query names, else those over one set of probes: the set of which there are most."""
        if query:
            return self._chosen(query)
        sets: dict[tuple[int, tuple[str, ...]], list[SiteRun]] = {}
        for run in self.runs:
            if begins := self.numbers.begins(run.reader):
                sets.setdefault((run.reader.counts()[0], begins), []).append(run)
        return tuple(max(sets.values(), key=len, default=[])[:_TOGETHER])

    def _hold_probes(self, runs: Sequence[SiteRun]) -> bool:
        return bool(runs) and all(self.numbers.begins(run.reader) for run in runs)

    def _trial_plot(self, runs: Sequence[SiteRun], name: str) -> Response | None:
        svg = self.numbers.trial_plots([run.reader for run in runs]).get(name.removesuffix(".svg"))
        return None if svg is None else text(svg, "image/svg+xml", csp=PLAIN_CSP)

    def _comparison(self, name: str, query: str) -> Response | None:
        chosen = self._chosen(query)
        if not _several(chosen):
            return None
        if name == "compare.js":
            return _script(self.compared_rows(chosen))
        page = self.compare_page(chosen, query) if name == "compare.html" else self.compared_page(chosen)
        return None if page is None else text(page)

    def _in_run(self, run: SiteRun, parts: list[str]) -> Response | None:
        match parts:
            case [""]:
                return Response(status=HTTPStatus.FOUND, location=f"/{run.folder}index.html")
            case ["index.html"]:
                return text(self.run_page(run))
            case ["report.html"]:
                return text(self.report_page(run))
            case ["trial.html"] if self._hold_probes([run]):
                return text(self.trial_page([run], of=run))
            case ["trial", name]:
                return self._trial_plot([run], name)
            case ["plots", name]:
                svg = self.numbers.plots(run.reader).get(name.removesuffix(".svg"))
                # Shown as a picture, and styled by what it holds itself.
                return None if svg is None else text(svg, "image/svg+xml", csp=PLAIN_CSP)
            case ["first.js"]:
                return _script(self.first_rows(run))
            case ["rows.js"]:
                return _script(self.rows(run))
            case ["rows.json"]:
                return text(self.rows(run), "application/json")
            case ["listed.html"]:
                return text(self.runs_page([run]))
            case ["near", name, "0.jpg" | "1.jpg" as which]:
                near = run.reader.sample(name)
                named = [] if near is None else self.near(run, near)
                thumb = run.pictures.thumb(named[int(which[0])]) if int(which[0]) < len(named) else None
                return None if thumb is None else Response(body=thumb, type="image/jpeg", csp=PLAIN_CSP)
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
                return None if found is None else Response(body=found[0], type=found[1], cache=FOREVER, csp=PLAIN_CSP)
            case ["thumbs", _, name]:
                thumb = run.pictures.thumb(name)
                return None if thumb is None else Response(body=thumb, type="image/jpeg", cache=FOREVER, csp=PLAIN_CSP)
            case ["overlays", name]:
                overlay = run.pictures.overlay(name)
                return None if overlay is None else Response(body=overlay, type="image/png", cache=FOREVER, csp=PLAIN_CSP)
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

    def near(self, run: SiteRun, sample: RunSample) -> list[str]:
        """Return the names of a sample's thumbnails around what a tool saw; [] where its traces need not be read."""
        return list(thumbs_around(sample, run.reader.differences(sample), run.pictures)) if is_near(sample) else []

    def runs_page(self, runs: Sequence[SiteRun] | None = None) -> str:
        """Return the list of runs. A served list has no scores yet: its page asks for them, run by run.

        runs: those of which everything is known now; None for the list of all.
        """
        known = runs is not None or not self.live
        listed = [
            {
                "run": run, "counts": run.reader.counts(), "mode": _mode(run.reader),
                "tags": run.reader.info.tags, "data": run.reader.data_name(), "written": run.reader.written,
                "judges": _judges_of(run.reader), "titles": run.reader.titles(),
                "running": self.live and run.reader.running(),
                "facts": self.numbers.facts(run.reader) if known else None,
            }
            for run in (self.runs if runs is None else runs)
        ]  # fmt: skip
        return _page("runs.html", self, None, "", runs=listed, probes=bool(self.on_trial()))

    def run_page(self, run: SiteRun) -> str:
        """Return one run: its counts, the matrix of its samples, and its statistics folded."""
        reader = run.reader
        samples, findings, answered = reader.counts()
        titles = reader.titles()
        return _page(
            "run.html", self, run, "", spec=reader.info.spec, mode=_mode(reader), data=reader.data_name(),
            counts={
                "samples": samples, "findings": findings, "judged": answered, "running": reader.live and reader.running()
            },
            judges=_judges_of(reader), titles=titles,
            # Where measures alone answered, tools say nothing.
            measured={reader.info.listed_judge(id_).get("kind") for id_ in titles} == {"measure"},
            probes=self._hold_probes([run]),
            # A served page asks for the statistics when they are unfolded.
            report=None if self.live else self.numbers.report(reader),
        )  # fmt: skip

    def report_page(self, run: SiteRun) -> str:
        """Return the protocol's tables and plots of every judge of a run."""
        return _page("report.html", self, run, "", report=self.numbers.report(run.reader))

    def trial_page(self, runs: Sequence[SiteRun], query: str = "", *, of: SiteRun | None = None) -> str:
        """Return the judges of runs over probes against what is right: sentences, radar, heat maps and their tables.

        query: that chose the runs.   of: the run whose page it is; None for one at the root.
        """
        found = self.numbers.trial([run.reader for run in runs])
        shown: dict[str, Any] = {"trial": None, "trouble": found, "said": (), "tables": (), "heading": ""}
        if not isinstance(found, str):
            tables = list(trial_tables(found))
            shown = {"trial": found, "trouble": "", "said": answers(found), "tables": tables, "heading": heading(found)}
        return _page("trial.html", self, of, "", chosen=runs, query=query, **shown)

    def compare_page(self, runs: Sequence[SiteRun] = (), query: str = "") -> str | None:
        """Return the matrix of the judges of some runs (() for all), with their statistics folded; None for one judge."""
        chosen = tuple(runs) or self.runs[:_TOGETHER]
        if not _several(chosen):
            return None
        statistics = {"comparison": None, "trouble": ""} if self.live else self._statistics(chosen)
        return _page("compare.html", self, None, "", chosen=chosen, query=query, **statistics)

    def compared_page(self, runs: Sequence[SiteRun]) -> str:
        """Return the statistics of a comparison as a page of their own."""
        return _page("compared.html", self, None, "", **self._statistics(runs))

    def _statistics(self, runs: Sequence[SiteRun]) -> dict[str, Any]:
        """The tables of a comparison and the steps of the largest disagreements, or why there are none."""
        found = self.numbers.comparison([run.reader for run in runs])
        if isinstance(found, str):
            return {"comparison": None, "trouble": found}
        cases = [case for d in found.disagreements[:_CASES] if (case := self._case(found, d)) is not None]
        shown = [table for table in tables(found) if table.name != "disagreements"]
        more = len(found.disagreements) - len(cases)
        return {"comparison": found, "trouble": "", "tables": shown, "cases": cases, "more": more}

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
        """Return the matrix of a run as JSON: what its columns and filters are, the means, and a row a sample."""

        def made() -> str:
            samples, metrics, mains = run.reader.samples(), run.metrics, run.reader.info.judges()
            columns, numbered = questions(samples, metrics), _numbered(run)
            scores = self.numbers.scores(run.reader)
            found = []
            for sample in samples:
                known = sample, list(columns), own_scores(sample, scores.get(sample.key, ()), mains)
                key = run.folder, sample.slug, bool(numbered)
                # Made anew only if the sample has changed: a run that grows is asked for again and again.
                if key not in self._rows or self._rows[key][0] != known:
                    made = row(
                        sample, list(columns), metrics, run.pictures, numbered, known[2],
                        lambda f: self.numbers.cost(run.reader, f),
                    )  # fmt: skip
                    self._rows[key] = known, _compact(made)
                found.append(self._rows[key][1])
            shown = _shown(run)
            overview = [
                {**one, "judge": shown.index(str(one["judge"])) if one["judge"] in shown else -1}
                for one in self.numbers.overview(run.reader)
            ]
            findings = [f for sample in samples for f in sample.findings]
            facts = {
                "seconds": sum(f.seconds for f in findings),
                "tokens": sum((f.usage for f in findings), Usage()).total,
                "problems": [safe(problem) for problem in run.reader.store.problems[:20]],
            }
            return _matrix(run.reader.version, columns, metrics, _named(run), overview, facts, found)

        return self.numbers.once("rows", made, run.reader)

    def first_rows(self, run: SiteRun) -> str:
        """Return the matrix of a large run with its first rows alone, for a page to show until it has `rows`.

        `of` says how many samples there are. Answers alone stand in the rows: scores and means are made from all samples,
        and are on their way. The matrix is whole if the run is not large, or was read before.
        """
        reader, total = run.reader, run.reader.counts()[0]
        if total <= _AT_ONCE or self.numbers.has("rows", reader):
            return self.rows(run)
        samples, metrics = reader.first(_FIRST), run.metrics
        columns, numbered = questions(samples, metrics), _numbered(run)
        rows = [
            _compact(row(s, list(columns), metrics, run.pictures, numbered, (), lambda f: self.numbers.cost(reader, f)))
            for s in samples
        ]
        facts: dict[str, Json] = {"seconds": 0.0, "tokens": 0, "problems": []}
        # Room for the means, so that the rows below move less when they come.
        cells: list[Json] = [
            {"metric": m.id, "short": m.short, "text": "…", "low": None, "meter": 0} for m in metrics.values()
        ]
        overview: list[dict[str, Json]] = [
            {"judge": numbered.get(id_, 0), "rows": [{"name": "", "cells": cells}], "problem": ""}
            for id_ in reader.info.judges()
        ]
        return _matrix(reader.version, columns, metrics, _named(run), overview, facts, rows, of=total)

    def compared_rows(self, runs: Sequence[SiteRun]) -> str:
        """Return the matrix of several runs as JSON, like `rows`: samples of one key share a row."""

        def made() -> str:
            metrics = {id_: metric for run in reversed(runs) for id_, metric in run.metrics.items()}
            often = Counter(name for run in runs for name in run.reader.judge_names().values())
            judges: list[dict[str, Json]] = []
            numbered: dict[str, int] = {}
            mains: set[str] = set()
            merged: dict[str, RunSample] = {}
            first: dict[str, SiteRun] = {}
            scored: dict[str, list[tuple[str, Score]]] = {}
            overview, problems = [], []
            for number, run in enumerate(runs):
                # A judge may stand in several runs; it is then another column in each.
                own = {id_: f"{number} {id_}" for id_ in run.reader.judge_names()}
                titles, names = run.reader.titles(), run.reader.judge_names()
                for id_, key in own.items():
                    name = names[id_] if often[names[id_]] == 1 else f"{names[id_]} · {run.reader.name}"
                    title = f"{titles[id_]} in {run.reader.name}"
                    numbered[key] = len(judges)
                    judges.append({"name": safe(name), "title": safe(title), "at": run.folder})
                mains |= {own[id_] for id_ in run.reader.info.judges() if id_ in own}
                for one in self.numbers.overview(run.reader):
                    overview.append({**one, "judge": numbered.get(own.get(str(one["judge"]), ""), -1)})
                scores = self.numbers.scores(run.reader)
                for sample in run.reader.samples():
                    findings = tuple(replace(f, judge_id=own.get(f.judge_id, f.judge_id)) for f in sample.findings)
                    before = merged.get(sample.key)
                    if before is None:
                        merged[sample.key], first[sample.key] = replace(sample, findings=findings), run
                    else:
                        if not _same_edit(before, sample):
                            problems.append(f"{sample.key} is another edit in {run.reader.name}; its row shows the first.")
                            continue
                        merged[sample.key] = replace(before, findings=(*before.findings, *findings))
                    known = scores.get(sample.key, ())
                    scored.setdefault(sample.key, []).extend((own.get(id_, id_), score) for id_, score in known)
            columns = questions(merged.values(), metrics)
            costs = {key: run for run in runs for key in run.reader.judge_names()}
            found = []
            for key, sample in merged.items():
                made = row(
                    sample, list(columns), metrics, first[key].pictures, numbered,
                    own_scores(sample, scored.get(key, ()), mains),
                    lambda f: self._cost(costs, f),
                )  # fmt: skip
                found.append(_compact(made | {"at": first[key].folder}))
            facts: dict[str, Json] = {"seconds": 0.0, "tokens": 0, "problems": list(problems[:20])}
            return _matrix(0, columns, metrics, judges, overview, facts, found)

        return self.numbers.once("compared rows", made, *(run.reader for run in runs))

    def _cost(self, runs: Mapping[str, SiteRun], finding: Finding) -> float | None:
        """The cost of a finding whose judge's id has the number of its run in front."""
        id_ = finding.judge_id.partition(" ")[2]
        return self.numbers.cost(runs[id_].reader, replace(finding, judge_id=id_)) if id_ in runs else None

    def sample_page(self, run: SiteRun, sample: RunSample) -> str:
        """Return one sample: its images, every verdict step by step."""
        metrics, edit = run.metrics, sample.sample
        position, total, before, behind = run.reader.around(sample.slug)
        scored = self.numbers.scores(run.reader).get(sample.key, ())
        found = verdicts(run.reader, sample, metrics, self.numbers.prices, scored)
        drawn: dict[str, str] = {}
        for verdict in found:
            if verdict.compared is not None and verdict.trace is not None:
                drawn.setdefault(verdict.compared.key, verdict.trace)
        put_beside(found)
        labels = grid(run.reader, sample, found, metrics)
        marks = named_apart([*targets(edit), *(m for v in found for m in v.marks)])
        offered = forms(found, sample, metrics, self.rating.rater) if self.rating is not None else []
        names = run.reader.judge_names()
        mains = run.reader.info.judges()
        judges = names if len(mains) > 1 else {}
        # What is said of the items of a list stands in the list.
        listed = {v.counted for v in found if v.of_item}
        known = [(id_, s) for id_, s in own_scores(sample, scored, mains) if counted(s.part) not in listed]
        several_turns = edit is not None and len(edit.turns) > 1
        # The whole sample's scores first, then turn by turn; of a chain the latter are a table of their own.
        scores = [
            (question_name(s.metric, metrics), score_scope(s), score_words(s), tone(metrics.get(s.metric), s.value),
             s.reason, judges.get(id_, ""))
            for id_, s in sorted(known, key=lambda own: (bool(score_scope(own[1])), own[1].turn))
            if not several_turns or not s.turn or s.part
        ]  # fmt: skip
        by_turn: dict[tuple[str, str], dict[int, tuple[str, str, str]]] = {}
        for id_, s in scored if several_turns else ():
            if s.turn and not s.part and s.missing != NOT_JUDGED:
                of_turn = by_turn.setdefault((question_name(s.metric, metrics), judges.get(id_, "")), {})
                of_turn[s.turn] = score_words(s), tone(metrics.get(s.metric), s.value), s.reason
        return _page(
            "sample.html", self, run, "../", entry=sample, sample=edit, verdicts=found, labels=labels, metrics=metrics,
            forms=offered, writable=self.rating is not None and writable(run.reader.folder), home=home(edit, marks),
            scores=scores, by_turn=by_turn, panes=_panes(sample), strip=_strip(sample),
            marks=marks,
            others=self._others(run, sample), position=position, count=total, previous=before, following=behind,
            area=target_area(edit) if edit else None, gain=GAIN, drawn=drawn, signs=SIGNS,
            with_events=len(found) <= _WITH_EVENTS,
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
    said = digest([[given.rater, given.time, *given.finding.question] for given in sample.people])[:8]
    return f"{len(sample.findings)}.{sum(f.seconds for f in sample.findings):.4f}.{len(sizes)}.{sum(sizes)}.{said}"


def _page(template: str, site: Site, run: SiteRun | None, up: str, **values: object) -> str:
    """up: from the page to its run's folder."""
    root = up + ("../" if run is not None and run.folder else "")
    return rendered(template, site=site, run=run, here=up, root=root, **values)


def rendered(template: str, **values: object) -> str:
    """Return a page. values: `root`, from the page to the static files, and what the template names."""
    return _ENVIRONMENT.get_template(template).render(csp=CSP, version=VERSION, **values)


def _several(runs: Sequence[SiteRun]) -> bool:
    """Whether several judges judged these runs."""
    return sum(len(run.reader.info.judges()) for run in runs) > 1


def _shown(run: SiteRun) -> list[str]:
    """The ids of the judges that have columns: all that answer where several judge."""
    mains = run.reader.info.judges()
    return list(run.reader.judge_names()) if len(mains) > 1 else list(mains)


def _numbered(run: SiteRun) -> dict[str, int]:
    """Judge id → number of its column; empty for a single judge, whose columns need no name."""
    return {id_: n for n, id_ in enumerate(_shown(run))} if len(run.reader.info.judges()) > 1 else {}


def _named(run: SiteRun) -> list[dict[str, Json]]:
    titles, names = run.reader.titles(), run.reader.judge_names()
    return [{"name": safe(names[id_]), "title": safe(titles[id_])} for id_ in _shown(run)]


def _script(rows: str) -> Response:
    """A matrix as a script: a page from a file may not fetch. A string of JSON is read fastest."""
    return text(f"window.editloupeRows = {json.dumps(rows, ensure_ascii=False)};\n", "text/javascript")


def _matrix(
    version: int,
    columns: Mapping[str, Sequence[str]],
    metrics: Mapping[str, Metric],
    judges: Sequence[Mapping[str, Json]],
    overview: Sequence[Mapping[str, Json]],
    facts: Mapping[str, Json],
    rows: Sequence[str],
    *,
    of: int | None = None,
) -> str:
    """The JSON of a matrix. columns: question → labels, best first.   rows: as JSON.   of: samples, if it has not all."""
    asked = [
        {
            "id": id_,
            "short": safe(metrics[id_].short if id_ in metrics else id_),
            "name": safe(question_name(id_, metrics)),
            "metric": id_ in metrics,
            "labels": labels,
            "tones": {level.name: tone(metrics[id_], level.value) for level in metrics[id_].levels}
            if id_ in metrics
            else {},
        }
        for id_, labels in columns.items()
    ]
    head = {
        "version": version, "questions": asked, "judges": list(judges), "statuses": list(STATUSES),
        "overview": list(overview), "facts": facts, **({} if of is None else {"of": of}),
    }  # fmt: skip
    return f'{_compact(head)[:-1]},"rows":[{",".join(rows)}]}}'


def _same_edit(one: RunSample, other: RunSample) -> bool:
    """Whether two runs judged the same pictures and instruction; a row that could not be read is no other edit."""
    a, b = one.sample, other.sample
    return a is None or b is None or (a.sources, a.turns) == (b.sources, b.turns)


def _judges_of(reader: RunReader) -> dict[str, str]:
    """Short names of those who have the role "judge", else of everybody."""
    names, mains = reader.judge_names(), reader.info.judges()
    return {id_: name for id_, name in names.items() if id_ in mains} or names


def _mode(reader: RunReader) -> str:
    try:
        return str(reader.info.options().get("mode") or "")
    except ConfigError:
        return ""


def _panes(entry: RunSample) -> list[tuple[str, str, ImageRef]]:
    """The images to look at as (role, heading, image); source and edited first."""
    sample = entry.sample
    if sample is None:
        return []
    found = [("source", "Source", sample.source)]
    more = [("more", f"Source {number}", image) for number, image in enumerate(sample.further, start=2)]
    # Of a chain the last turn that has an output; the strip of turns says where there is none.
    last = next((n for n in range(len(sample.turns), 0, -1) if sample.turns[n - 1].edited is not None), 0)
    edited = sample.turns[last - 1].edited if last else None
    if edited is not None:
        found.append(("edited", "Edited" if len(sample.turns) == 1 else f"After turn {last}", edited))
    if sample.reference is not None:
        more.append(("more", "Reference", sample.reference))
    more += [("more", f"Compared with: {other.key}", other.edited) for other in entry.partners if other.edited is not None]
    return found + more + [("more", f"Mask: {name}", mask) for name, mask in sample.masks.items()]


def _strip(entry: RunSample) -> list[tuple[str, str, ImageRef | None, list[tuple[str, str]]]]:
    """The source and each turn of a chain as (heading, instruction, image or None, columns); [] for a single turn."""
    sample = entry.sample
    if sample is None or len(sample.turns) == 1:
        return []
    found: list[tuple[str, str, ImageRef | None, list[tuple[str, str]]]] = [
        ("Source" if number == 1 else f"Source {number}", "", image, [])
        for number, image in enumerate(sample.sources, start=1)
    ]
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


def _status(facts: RunFacts) -> str:
    """Whether a run is complete, in words."""
    failed = f"{facts.failed:,} without an answer" if facts.failed else ""
    waiting = f"{facts.waiting:,} not judged yet" if facts.waiting else ""
    return facts.problem or ", ".join(filter(None, (waiting, failed))) or "complete"


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M") if seconds else ""


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
    "status": _status,
    "first_score": lambda facts: next((c["value"] for cells in facts.scores.values() for c in cells if c["value"]), ""),
    "duration": _duration,
    "date": _date,
    "capitalize_first": lambda text: text[:1].upper() + text[1:],
}
