"""Has a judge changed: its recorded answers beside those that it gives now, on a small fixed set."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe.errors import TraceError
from editloupe.findings import Finding
from editloupe.stats.bootstrap import LEVEL, ConfidenceInterval, Estimate
from editloupe.stats.table import Row, Table, numbers, words
from editloupe.traces.events import ModelCall
from editloupe.traces.read import read_trace
from editloupe.values import Json, Serialisable, digest


@dataclass(frozen=True, kw_only=True)
class Flip(Serialisable):
    """A question whose answer is another now."""

    sample: str
    criterion: str
    turn: int
    part: str
    before: str
    now: str


@dataclass(frozen=True, kw_only=True)
class Canary(Serialisable):
    """What became of the recorded answers."""

    judge: str
    flip_rates: Mapping[str, Estimate]
    """Metric → share of answers that flipped, with an exact (Clopper–Pearson) interval; judged: those that have an answer
    now, of those asked.
    """
    flips: tuple[Flip, ...]
    not_judged_now: Mapping[str, int]
    """What has no answer now, by status."""
    models_before: tuple[str, ...]
    """The names (and fingerprints) under which the endpoint answered."""
    models_now: tuple[str, ...]

    @property
    def model_changed(self) -> bool:
        """Whether a name or fingerprint answered that had not answered then. Silence is no other model."""
        return bool(set(self.models_now) - set(self.models_before))

    @property
    def nobody_answered(self) -> bool:
        """Whether every call failed now."""
        judged = any(rate.judged for rate in self.flip_rates.values())
        return not self.models_now and set(self.not_judged_now) == {"backend_failed"} and not judged

    @property
    def highest(self) -> float | None:
        """The highest rate of a metric; None if nothing could be compared."""
        return max((e.value for e in self.flip_rates.values() if e.value is not None), default=None)

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON, with what follows from them."""
        return {**super().to_json(), "model_changed": self.model_changed, "nobody_answered": self.nobody_answered}


def fixed_set(findings: Iterable[Finding], count: int) -> list[str]:
    """Return the keys of `count` samples that have an answer, always the same ones of a run."""
    return sorted({f.about.key for f in findings if f.status == "ok"}, key=digest)[:count]


def canary(
    judge: str, before: Iterable[Finding], now: Iterable[Finding], *, folder_before: Path, folder_now: Path
) -> Canary:
    """Set new findings beside recorded ones of the same questions. Of several repeats the first counts on both sides."""
    recorded = {f.question: f for f in before if f.status == "ok" and f.repeat == 0}
    asked = [f for f in now if f.question in recorded and f.repeat == 0]
    pairs = [(recorded[f.question], f) for f in asked if f.status == "ok"]
    flips = tuple(
        Flip(
            sample=new.about.key,
            criterion=new.metric,
            turn=new.turn,
            part=new.part,
            before=str(old.answer),
            now=str(new.answer),
        )
        for old, new in pairs
        if str(old.answer) != str(new.answer)
    )
    flipped, judged = Counter(flip.criterion for flip in flips), Counter(new.metric for _, new in pairs)
    return Canary(
        judge=judge,
        flip_rates={m: rate(flipped[m], judged[m], asked=n) for m, n in Counter(f.metric for f in asked).items()},
        flips=flips,
        not_judged_now=Counter(f.status for f in asked if f.status != "ok"),
        models_before=answered(folder_before, [recorded[f.question] for f in asked]),
        models_now=answered(folder_now, asked),
    )


def rate(flipped: int, judged: int, *, asked: int) -> Estimate:
    """Return a share with its exact interval, which is wide if little was asked, also if nothing flipped."""
    if not judged:
        return Estimate(value=None, judged=0, asked=asked, why="nothing was judged now")
    from scipy.stats import binomtest  # 0.3 s, and most commands need none of it

    found = binomtest(flipped, judged).proportion_ci(LEVEL)
    inside = ConfidenceInterval(low=float(found.low), high=float(found.high), level=LEVEL)
    return Estimate(value=flipped / judged, judged=judged, asked=asked, clusters=judged, interval=inside)


def answered(folder: Path, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Return the names under which models answered, with a fingerprint if the endpoint gave one; from the traces."""
    names: set[str] = set()
    for finding in findings:
        if finding.trace is None:
            continue
        try:
            trace = read_trace(folder / finding.trace)
        except TraceError:
            continue
        names |= {_name(event.reply) for event in trace.events if isinstance(event, ModelCall)}
    return tuple(sorted(names - {""}))


def _name(reply: Mapping[str, Json]) -> str:
    prints = [place.get("system_fingerprint") for key in ("sent", "raw") if isinstance(place := reply.get(key), Mapping)]
    fingerprint = next((str(value) for value in prints if value), "")
    name = str(reply.get("model") or "")
    return f"{name} ({fingerprint})" if name and fingerprint else name or fingerprint


def table(found: Canary, titles: Mapping[str, str]) -> Table:
    """Return a row a metric. titles: metric → short name."""
    rows = []
    for metric, e in found.flip_rates.items():
        share = "undefined" if e.value is None else f"{100 * e.value:.1f} %"
        inside = "" if e.interval is None else f"{100 * e.interval.low:.1f} to {100 * e.interval.high:.1f} %"
        flips = sum(flip.criterion == metric for flip in found.flips)
        texts = (titles.get(metric, metric), str(flips), f"{e.judged}/{e.asked}", share, inside or e.why)
        rows.append(Row(cells=tuple(map(words, texts)), records=({"criterion": metric, **e.to_json()},)))
    return numbers(
        "canary",
        "Answers that are others now",
        ("", "Flipped", "Judged now", "Share", "95 % interval"),
        rows,
        caption="Exact intervals, which take questions as independent. What has no answer now is not among the flips.",
    )
