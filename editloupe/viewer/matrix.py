"""Make the list of samples that `static/run.js` draws, as JSON: of one run, or of several whose samples share rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from editloupe.chat import Usage
from editloupe.figures.escape import safe
from editloupe.findings import Finding
from editloupe.tasks import STATUSES
from editloupe.values import Json
from editloupe.viewer.numbers import Numbers
from editloupe.viewer.reader import RunSample, SiteRun
from editloupe.viewer.render import compact
from editloupe.viewer.rows import OwnScore, own_scores, question_name, questions, row, tone

_FIRST: Final = 24
"""Rows of a large run that a page shows before it has all: more than a tall window does."""

_AT_ONCE: Final = 200
"""So many samples are shown at once."""


def all_rows(numbers: Numbers, *runs: SiteRun, at_root: bool = False) -> str:
    """Return what the columns and filters of runs over the same data are, the means, and a row a sample.

    at_root: for a page that lies above the runs' folders.
    """
    what = "rows at the root" if at_root else "rows"
    return numbers.once(what, lambda: _List(numbers, runs, at_root=at_root).whole(), *(run.reader for run in runs))


def first_rows(numbers: Numbers, run: SiteRun) -> str:
    """Return the first rows of a large run, for a page to show until it has all.

    `of` says how many samples there are. Answers alone stand in the rows: scores and means are made from all samples, and
    are on their way. All rows are there if the run is not large, or was read before.
    """
    reader, total = run.reader, run.reader.counts()[0]
    if total <= _AT_ONCE or numbers.has("rows", reader):
        return all_rows(numbers, run)
    return _List(numbers, [run]).written([reader.first(_FIRST)], {}, of=total)


class _List:
    """The list of some runs. A judge may stand in several of them; it is then another one in each."""

    def __init__(self, numbers: Numbers, runs: Sequence[SiteRun], *, at_root: bool = False) -> None:
        self._numbers, self._runs, self._at_root = numbers, runs, at_root
        self._metrics = {id_: metric for run in reversed(runs) for id_, metric in run.metrics.items()}
        self._mains = {self._key(n, id_) for n, run in enumerate(runs) for id_ in run.reader.info.judges()}
        self._single = len(self._mains) == 1
        often = Counter(name for run in runs for name in run.reader.judge_names().values())
        self._uris: dict[str, str] = {}
        self._judges: dict[str, Mapping[str, Json]] = {}
        for n, run in enumerate(runs):
            titles = run.reader.titles()
            for id_, name in run.reader.judge_names().items():
                key = self._key(n, id_)
                self._uris[key] = str(run.reader.info.listed_judge(id_).get("backend") or "")
                if key in self._mains or not self._single:
                    shown = name if often[name] == 1 else f"{name} · {run.reader.name}"
                    where = {"at": run.folder} if at_root else {}
                    self._judges[key] = {"name": safe(shown), "title": safe(titles[id_]), **where}

    def _key(self, number: int, judge: str) -> str:
        """What a judge of the run of that number is called here; "" for nobody."""
        return f"{number} {judge}" if judge and len(self._runs) > 1 else judge

    def whole(self) -> str:
        """Return the list of all samples, with scores and means."""
        scores: dict[str, list[OwnScore]] = {}
        overview: list[Json] = []
        numbered, problems, spent = list(self._judges), list[str](), Usage()
        for n, run in enumerate(self._runs):
            for key, own in self._numbers.scores(run.reader).items():
                scores.setdefault(key, []).extend((self._key(n, id_), score) for id_, score in own)
            for one in self._numbers.overview(run.reader):
                key = self._key(n, one["judge"])
                overview.append({**one, "judge": numbered.index(key) if key in numbered else -1})
            problems += run.reader.store.problems[:20]
            spent += Usage.total_of(f.usage for sample in run.reader.samples() for f in sample.findings)
        more: dict[str, Json] = {"overview": overview, "tokens": spent.total, "problems": list(map(safe, problems))}
        return self.written([run.reader.samples() for run in self._runs], scores, **more)

    def written(self, listed: Sequence[Iterable[RunSample]], scores: Mapping[str, Sequence[OwnScore]], **more: Json) -> str:
        """Return the JSON. listed: the samples of each run.   more: `overview`; `of`, how many samples there are."""
        merged: dict[str, RunSample] = {}
        first: dict[str, SiteRun] = {}
        for n, (run, samples) in enumerate(zip(self._runs, listed, strict=True)):
            for sample in samples:
                if len(self._runs) > 1:
                    before = merged.get(sample.key, replace(sample, findings=()))
                    findings = tuple(replace(f, judge_id=self._key(n, f.judge_id)) for f in sample.findings)
                    sample = replace(before, findings=(*before.findings, *findings))
                merged[sample.key] = sample
                first.setdefault(sample.key, run)
        columns = questions(merged.values(), self._metrics)
        by = {} if self._single else {key: n for n, key in enumerate(self._judges)}
        rows = []
        for key, sample in merged.items():
            own, run = own_scores(sample, scores.get(key, ()), self._mains), first[key]
            made = row(sample, list(columns), self._metrics, run.pictures, by, own, self._cost)
            rows.append(compact(made | ({"at": run.folder} if self._at_root else {})))
        head = {
            "version": sum(run.reader.version for run in self._runs),
            "questions": [self._question(id_, labels) for id_, labels in columns.items()],
            "judges": list(self._judges.values()),
            "statuses": list(STATUSES),
        }
        empty: dict[str, Json] = {"overview": [], "tokens": 0, "problems": []}
        return f'{compact(head | empty | more)[:-1]},"rows":[{",".join(rows)}]}}'

    def _question(self, id_: str, labels: Sequence[str]) -> dict[str, Json]:
        """What a column is. labels: best first."""
        metric = self._metrics.get(id_)
        return {
            "id": id_,
            "short": safe(metric.short if metric else id_),
            "name": safe(question_name(id_, self._metrics)),
            "labels": list(labels),
            "tones": {one.name: tone(metric, one.value) for one in metric.levels} if metric else {},
        }

    def _cost(self, finding: Finding) -> float | None:
        return self._numbers.price(self._uris.get(finding.judge_id, ""), finding.usage)
