"""Has a judge changed: its recorded labels beside those that it gives now, on a small fixed set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe.errors import TraceError
from editloupe.findings import Finding
from editloupe.reports.grid import Grid, Row
from editloupe.stats.bootstrap import LEVEL, ConfidenceInterval, Estimate
from editloupe.traces.events import ModelCall
from editloupe.traces.read import read_trace
from editloupe.values import Json, digest, sample_key


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A question whose label is another now."""

    sample: str
    criterion: str
    part: str
    before: str
    now: str

    def to_json(self) -> dict[str, Json]:
        return {
            "sample": self.sample,
            "criterion": self.criterion,
            "part": self.part,
            "before": self.before,
            "now": self.now,
        }


@dataclass(frozen=True, kw_only=True)
class Canary:
    """What became of the labels.

    rates: criterion → share of labels that flipped, with an exact (Clopper–Pearson) interval; judged: those that have a
    label now, of those asked.   statuses: what has no label now, by status.
    models_before, models_now: the names (and fingerprints) under which the endpoint answered.
    """

    judge: str
    rates: Mapping[str, Estimate]
    flips: tuple[Flip, ...]
    statuses: Mapping[str, int]
    models_before: tuple[str, ...]
    models_now: tuple[str, ...]

    @property
    def changed_model(self) -> bool:
        """Whether a name or fingerprint answered that had not answered then. Silence is no other model."""
        return bool(set(self.models_now) - set(self.models_before))

    @property
    def silent(self) -> bool:
        """Whether nobody answered now."""
        return (
            not self.models_now
            and set(self.statuses) == {"backend_failed"}
            and not any(e.judged for e in self.rates.values())
        )

    @property
    def highest(self) -> float | None:
        """The highest rate of a criterion; None where nothing could be compared."""
        return max((e.value for e in self.rates.values() if e.value is not None), default=None)

    def to_json(self) -> dict[str, Json]:
        return {
            "judge": self.judge,
            "flip_rates": {name: estimate.to_json() for name, estimate in self.rates.items()},
            "flips": [flip.to_json() for flip in self.flips],
            "not_judged_now": dict(self.statuses),
            "models_before": list(self.models_before),
            "models_now": list(self.models_now),
            "model_changed": self.changed_model,
            "nobody_answered": self.silent,
        }


def fixed_set(findings: Iterable[Finding], count: int) -> list[str]:
    """Keys of `count` samples that have a label, always the same ones of a run: those whose keys' digests come first."""
    keys = {sample_key(f.editor, f.sample_id) for f in findings if f.status == "ok"}
    return sorted(keys, key=digest)[:count]


def canary(
    judge: str, before: Iterable[Finding], now: Iterable[Finding], *, folder_before: Path, folder_now: Path
) -> Canary:
    """Recorded findings beside new ones of the same questions. Of several repeats the first counts on both sides."""
    recorded = {f.question: f for f in before if f.status == "ok" and f.repeat == 0}
    asked = [f for f in now if f.question in recorded and f.repeat == 0]
    flips, judged = [], Counter[str]()
    for f in asked:
        old = recorded[f.question]
        if f.status != "ok":
            continue
        judged[f.metric] += 1
        if f.label != old.label:
            key = sample_key(f.editor, f.sample_id)
            told = Flip(
                sample=key,
                criterion=f.metric,
                part=f.part,
                before=str(old.label),
                now=str(f.label),
            )
            flips.append(told)
    flipped = Counter(flip.criterion for flip in flips)
    total = Counter(f.metric for f in asked)
    return Canary(
        judge=judge,
        rates={c: rate(flipped[c], judged[c], asked=n) for c, n in total.items()},
        flips=tuple(flips),
        statuses=Counter(f.status for f in asked if f.status != "ok"),
        models_before=answered(folder_before, [recorded[f.question] for f in asked]),
        models_now=answered(folder_now, asked),
    )


def rate(flipped: int, judged: int, *, asked: int) -> Estimate:
    """A share with its exact interval, which is wide where little was asked, also where nothing flipped."""
    if not judged:
        return Estimate(value=None, judged=0, asked=asked, why="nothing was judged now")
    from scipy.stats import binomtest  # 0.3 s, and most commands need none of it

    found = binomtest(flipped, judged).proportion_ci(LEVEL)
    inside = ConfidenceInterval(low=float(found.low), high=float(found.high), level=LEVEL)
    return Estimate(value=flipped / judged, judged=judged, asked=asked, clusters=judged, interval=inside)


def answered(folder: Path, findings: Sequence[Finding]) -> tuple[str, ...]:
    """The names under which models answered, with a fingerprint where the endpoint told one; from the traces."""
    names: dict[str, None] = {}
    for finding in findings:
        if finding.trace is None:
            continue
        try:
            trace = read_trace(folder / finding.trace)
        except TraceError:
            continue
        for event in trace.events:
            if isinstance(event, ModelCall):
                names[_name(event.reply)] = None
    return tuple(sorted(name for name in names if name))


def _name(reply: Mapping[str, Json]) -> str:
    raw, sent = reply.get("raw"), reply.get("sent")
    told = [place.get("system_fingerprint") for place in (sent, raw) if isinstance(place, Mapping)]
    print_ = next((str(value) for value in told if value), "")
    name = str(reply.get("model") or "")
    return f"{name} ({print_})" if name and print_ else name or print_


def grid(found: Canary, titles: Mapping[str, str]) -> Grid:
    """A row a criterion. titles: criterion → short name."""
    rows = []
    for criterion, e in found.rates.items():
        share = "undefined" if e.value is None else f"{100 * e.value:.1f} %"
        inside = "" if e.interval is None else f"{100 * e.interval.low:.1f} to {100 * e.interval.high:.1f} %"
        flips = sum(flip.criterion == criterion for flip in found.flips)
        cells = (titles.get(criterion, criterion), str(flips), f"{e.judged}/{e.asked}", share, inside or e.why)
        rows.append(Row(cells=cells))
    return Grid(
        name="canary",
        title="Labels that are others now",
        head=("", "Flipped", "Judged now", "Share", "95 % interval"),
        rows=tuple(rows),
        caption="Exact intervals, which take questions as independent. What has no label now is not among the flips.",
        records=tuple({"criterion": c, **e.to_json()} for c, e in found.rates.items()),
    )
