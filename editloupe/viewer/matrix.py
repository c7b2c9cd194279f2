"""Make the list of samples that `static/run.js` draws, as JSON: of one run, or of several whose samples share rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from editloupe.chat import Usage
from editloupe.errors import ConfigError
from editloupe.figures.escape import safe
from editloupe.findings import Finding
from editloupe.scores import Metric, Score
from editloupe.tasks import STATUSES
from editloupe.values import Json
from editloupe.viewer.numbers import Numbers
from editloupe.viewer.reader import RunReader, RunSample
from editloupe.viewer.render import compact
from editloupe.viewer.rows import own_scores, question_name, questions, row, tone
from editloupe.viewer.site_run import SiteRun

_FIRST: Final = 24
"""Rows of a large run that a page shows before it has all: more than a tall window does."""

_AT_ONCE: Final = 200
"""So many samples are shown at once."""


class Matrix:
    """The lists of samples of a site's runs. A row is made anew only if its sample has changed."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._rows: dict[tuple[str, str, bool], tuple[object, str]] = {}

    def of_run(self, run: SiteRun) -> str:
        """Return a run: what its columns and filters are, the means, and a row a sample."""
        return self._numbers.once("rows", lambda: self._of_run(run), run.reader)

    def _of_run(self, run: SiteRun) -> str:
        samples, metrics, mains = run.reader.samples(), run.metrics, run.reader.info.judges()
        columns, numbered = questions(samples, metrics), _numbered(run.reader)
        scores = self._numbers.scores(run.reader)
        rows = []
        for sample in samples:
            known = sample, list(columns), own_scores(sample, scores.get(sample.key, ()), mains)
            key = run.folder, sample.slug, bool(numbered)
            if key not in self._rows or self._rows[key][0] != known:
                made = self._row(run, sample, list(columns), numbered, known[2])
                self._rows[key] = known, compact(made)
            rows.append(self._rows[key][1])
        shown = _shown(run.reader)
        overview = [
            {**one, "judge": shown.index(str(one["judge"])) if one["judge"] in shown else -1}
            for one in self._numbers.overview(run.reader)
        ]
        findings = [f for sample in samples for f in sample.findings]
        facts: dict[str, Json] = {
            "tokens": sum((f.usage for f in findings), Usage()).total,
            "problems": [safe(problem) for problem in run.reader.store.problems[:20]],
        }
        return _written(run.reader.version, columns, metrics, _named(run.reader), overview, facts, rows)

    def first(self, run: SiteRun) -> str:
        """Return the first rows of a large run, for a page to show until it has all.

        `of` says how many samples there are. Answers alone stand in the rows: scores and means are made from all samples,
        and are on their way. All rows are there if the run is not large, or was read before.
        """
        reader, total = run.reader, run.reader.counts()[0]
        if total <= _AT_ONCE or self._numbers.has("rows", reader):
            return self.of_run(run)
        samples, metrics = reader.first(_FIRST), run.metrics
        columns, numbered = questions(samples, metrics), _numbered(reader)
        rows = [compact(self._row(run, sample, list(columns), numbered, ())) for sample in samples]
        facts: dict[str, Json] = {"tokens": 0, "problems": []}
        return _written(reader.version, columns, metrics, _named(reader), [], facts, rows, of=total)

    def _row(
        self,
        run: SiteRun,
        sample: RunSample,
        columns: Sequence[str],
        numbered: Mapping[str, int],
        scores: Sequence[tuple[str, Score]],
    ) -> dict[str, Any]:
        def cost(finding: Finding) -> float | None:
            return self._numbers.cost(run.reader, finding)

        return row(sample, columns, run.metrics, run.pictures, numbered, scores, cost)

    def of_runs(self, runs: Sequence[SiteRun]) -> str:
        """Return several runs over the same data (`refuse_other_data`)."""
        return self._numbers.once("compared rows", lambda: self._of_runs(runs), *(run.reader for run in runs))

    def _of_runs(self, runs: Sequence[SiteRun]) -> str:
        metrics = {id_: metric for run in reversed(runs) for id_, metric in run.metrics.items()}
        judges, numbered = _of_all(runs)
        mains = {f"{number} {id_}" for number, run in enumerate(runs) for id_ in run.reader.info.judges()}
        merged: dict[str, RunSample] = {}
        first: dict[str, tuple[int, SiteRun]] = {}
        scored: dict[str, list[tuple[str, Score]]] = {}
        spent: dict[str, float] = {}
        overview = []
        for number, run in enumerate(runs):
            for one in self._numbers.overview(run.reader):
                overview.append({**one, "judge": numbered.get(f"{number} {one['judge']}", -1)})
            scores = self._numbers.scores(run.reader)
            for sample in run.reader.samples():
                costs = [usd for f in sample.findings if (usd := self._numbers.cost(run.reader, f)) is not None]
                if costs:
                    spent[sample.key] = spent.get(sample.key, 0.0) + sum(costs)
                # A judge may stand in several runs; it is then another one in each.
                findings = tuple(replace(f, judge_id=f"{number} {f.judge_id}") for f in sample.findings)
                before = merged.setdefault(sample.key, replace(sample, findings=()))
                first.setdefault(sample.key, (number, run))
                merged[sample.key] = replace(before, findings=(*before.findings, *findings))
                own = ((f"{number} {id_}" if id_ else "", score) for id_, score in scores.get(sample.key, ()))
                scored.setdefault(sample.key, []).extend(own)
        columns = questions(merged.values(), metrics)
        rows = []
        for key, sample in merged.items():
            run = first[key][1]
            own_of = own_scores(sample, scored.get(key, ()), mains)
            made = row(sample, list(columns), metrics, run.pictures, numbered, own_of)
            rows.append(compact(made | {"at": run.folder, "cost": spent.get(key)}))
        return _written(0, columns, metrics, judges, overview, {"tokens": 0, "problems": []}, rows)


def refuse_other_data(readers: Sequence[RunReader]) -> None:
    """Raise ConfigError for runs whose samples differ in content, and for runs without a sample in common."""
    content: dict[str, tuple[str, RunReader]] = {}
    for reader in readers:
        differing = []
        for sample in reader.samples():
            own = sample.sample.content if sample.sample else None
            if own is not None and content.setdefault(sample.key, (own, reader))[0] != own:
                differing.append(sample.key)
        if differing:
            other = content[differing[0]][1]
            more = f" and {len(differing) - 5:,} more" if len(differing) > 5 else ""
            raise ConfigError(
                f"{other.name} and {reader.name} judged different data: {', '.join(differing[:5])}{more} differ in image, "
                "instruction or targets; compare runs over the same folder"
            )
    if readers and not set.intersection(*({sample.key for sample in reader.samples()} for reader in readers)):
        named = ", ".join(reader.name for reader in readers)
        raise ConfigError(f"{named} have no sample in common; compare runs over the same folder")


def _of_all(runs: Sequence[SiteRun]) -> tuple[list[dict[str, Json]], dict[str, int]]:
    """The judges of several runs, and the number of each by its run's number and its id."""
    often = Counter(name for run in runs for name in run.reader.judge_names().values())
    judges: list[dict[str, Json]] = []
    numbered: dict[str, int] = {}
    for number, run in enumerate(runs):
        titles = run.reader.titles()
        for id_, name in run.reader.judge_names().items():
            shown = name if often[name] == 1 else f"{name} · {run.reader.name}"
            numbered[f"{number} {id_}"] = len(judges)
            judges.append({"name": safe(shown), "title": safe(f"{titles[id_]} in {run.reader.name}"), "at": run.folder})
    return judges, numbered


def _shown(reader: RunReader) -> list[str]:
    """The ids of the judges that are named: all that answer where several judge."""
    mains = reader.info.judges()
    return list(reader.judge_names()) if len(mains) > 1 else list(mains)


def _numbered(reader: RunReader) -> dict[str, int]:
    """Judge id → its number; empty for a single judge, who need not be named."""
    return {id_: n for n, id_ in enumerate(_shown(reader))} if len(reader.info.judges()) > 1 else {}


def _named(reader: RunReader) -> list[dict[str, Json]]:
    titles, names = reader.titles(), reader.judge_names()
    return [{"name": safe(names[id_]), "title": safe(titles[id_])} for id_ in _shown(reader)]


def _written(
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
    """The JSON. columns: question → labels, best first.   rows: as JSON.   of: samples, if it has not all."""
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
    return f'{compact(head)[:-1]},"rows":[{",".join(rows)}]}}'
