"""Has a judge changed: its recorded answers beside those that it gives now, of a replay whose model is asked live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from editloupe.errors import TraceError
from editloupe.findings import Finding
from editloupe.runs.replay import Replayed
from editloupe.stats.bootstrap import Estimate, mean
from editloupe.stats.table import Table, estimated, listed
from editloupe.traces.events import ModelCall
from editloupe.traces.read import read_trace
from editloupe.values import Json, Sample, Serializable, digest


@dataclass(frozen=True, kw_only=True)
class Flips(Serializable):
    """What became of the recorded answers."""

    shares: Mapping[str, Estimate]
    """Metric → share of answers that are others now, 0 to 1; judged: those that have an answer now, of those asked."""
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
    def highest(self) -> float | None:
        """The highest share of a metric; None if nothing could be compared."""
        return max((e.value for e in self.shares.values() if e.value is not None), default=None)

    @property
    def models(self) -> str:
        """Who answered then and now, in one sentence."""
        before, now = ", ".join(self.models_before), ", ".join(self.models_now)
        if not now:
            return f"Nobody answered now; then it was {before or 'an unnamed model'}."
        what = "ANOTHER model or version" if self.model_changed else "no other than then"
        return f"Answered then by {before or 'an unnamed model'}, now by {now}: {what}."

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON, with what follows from them."""
        return {**super().to_json(), "model_changed": self.model_changed, "highest": self.highest}

    def table(self) -> Table:
        """Return a row a metric."""
        return listed(
            "flips",
            "Share of answers that are others now",
            self.shares.items(),
            {
                "Metric": lambda one: one[0],
                "Share": lambda one: estimated(one[1], digits=3, interval_digits=3, name="share"),
            },
            keys=lambda one: {"metric": one[0]},
            caption="(with an answer now/recorded answers asked again). What has no answer now is not among the flips.",
        )


def fixed_set(findings: Iterable[Finding], count: int) -> list[str]:
    """Return the keys of `count` samples that have an answer, always the same ones of a run."""
    return sorted({f.about.key for f in findings if f.status == "ok"}, key=digest)[:count]


def flips(done: Sequence[Replayed], samples: Mapping[str, Sample], folder: Path) -> Flips:
    """Set what a judge says now beside what is recorded. Of several repeats the first counts.

    samples: of the run, by key.   folder: the run's.
    """
    asked = [one for one in done if one.recorded is not None and one.recorded.status == "ok" and not one.recorded.repeat]
    shares = {}
    for metric in dict.fromkeys(one.metric for one in asked):
        own = [one for one in asked if one.metric == metric]
        values = [float(_answer(one.finding) != _answer(one.recorded)) if _answer(one.finding) else None for one in own]
        clusters = [samples[one.about.key].source.sha256 if one.about.key in samples else one.about.key for one in own]
        shares[metric] = mean(values, clusters)
    return Flips(
        shares=shares,
        not_judged_now=Counter(
            "no end" if o.finding is None else o.finding.status for o in asked if not _answer(o.finding)
        ),
        models_before=_answered(folder, [one.name for one in asked]),
        models_now=_answered(folder, [one.trace for one in asked if one.trace is not None]),
    )


def _answer(finding: Finding | None) -> str:
    return str(finding.answer) if finding is not None and finding.status == "ok" else ""


def _answered(folder: Path, traces: Iterable[str]) -> tuple[str, ...]:
    """The names under which models answered, with a fingerprint if the endpoint gave one; from the traces."""
    names: set[str] = set()
    for name in traces:
        try:
            trace = read_trace(folder / name)
        except TraceError:
            continue
        names |= {_name(event.reply) for event in trace.events if isinstance(event, ModelCall)}
    return tuple(sorted(names - {""}))


def _name(reply: Mapping[str, Json]) -> str:
    prints = [place.get("system_fingerprint") for key in ("sent", "raw") if isinstance(place := reply.get(key), Mapping)]
    fingerprint = next((str(value) for value in prints if value), "")
    name = str(reply.get("model") or "")
    return f"{name} ({fingerprint})" if name and fingerprint else name or fingerprint
