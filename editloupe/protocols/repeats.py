"""A question that was asked several times: one finding that counts, and how far its answers agree.

median: the median label of the scale; of the two in the middle of an even number the worse, as of several targets the worst
counts. It is always a label that was given, and of ordered labels the one with the least distance to all.
majority: the label that more than half of the labels are; without one the question has no score and is `contradictory`,
since any choice among equals would be a guess.
Either needs labels from more than half of the repeats; with fewer, what failed most often is said instead. Answers that
have no value have no median and are counted, whatever the rule.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast, get_args

from editloupe.config import Aggregation
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.values import Json, Serializable


@dataclass(frozen=True, kw_only=True)
class Repeats(Serializable):
    """How often each question is asked, and how its answers become one."""

    count: int = 1
    by: Aggregation = "median"
    abstain_above: float | None = None
    """Entropy of the labels, in bits, above which a question has no score and is `abstained`; None never."""

    def __post_init__(self) -> None:
        if self.count < 1:
            raise ConfigError(f"expected at least 1 repeat, found {self.count}")
        if self.by not in get_args(Aggregation):
            raise ConfigError(f"repeats are joined by {' or '.join(get_args(Aggregation))}; found {self.by!r}")
        if self.abstain_above is not None and not (math.isfinite(self.abstain_above) and self.abstain_above >= 0):
            raise ConfigError(f"expected an entropy of 0 bits or more to abstain above, found {self.abstain_above!r}")

    @classmethod
    def of_run(cls, info: Mapping[str, Json], findings: Iterable[Finding]) -> Repeats:
        """Return how often a judge's findings were asked, and the rule that run.json holds, else the default."""
        record = info.get("record")
        data = record.get("repeats") if isinstance(record, Mapping) else None
        count = 1 + max((f.repeat for f in findings), default=0)
        if not isinstance(data, Mapping):
            return cls(count=count)
        above = data.get("abstain_above")
        return cls(
            count=count,
            by=cast(Aggregation, str(data.get("by"))),
            abstain_above=float(above) if isinstance(above, int | float) else None,
        )


@dataclass(frozen=True, kw_only=True)
class Joined:
    """The answer to one question."""

    finding: Finding | None
    """The one that counts; None while too few have been asked."""
    entropy: float | None = None
    """Of the labels, in bits, 0 if all are the same; None if there is nothing to compare."""


def join(findings: Sequence[Finding], rule: Repeats) -> Joined:
    """Return the findings of one question, one a repeat, as one. Only the role "judge" is asked more than once."""
    if rule.count == 1 or findings[-1].role != "judge":
        return Joined(finding=findings[-1])
    given = [f for f in sorted(findings, key=lambda f: f.repeat) if f.answer is not None]
    if 2 * len(given) <= rule.count:
        failed = Counter(f.status for f in findings if f.answer is None).most_common(1)
        return Joined(finding=next((f for f in findings if failed and f.status == failed[0][0]), None))
    names = [str(f.label if f.label is not None else f.answer) for f in given]
    bits = entropy_of(Counter(names).values())
    name, times = Counter(names).most_common(1)[0]
    status: Literal["abstained", "contradictory"]
    if rule.abstain_above is not None and bits > rule.abstain_above:
        status, reason = "abstained", f"its labels differ by {bits:.2f} bits: {counted(names)}"
    elif rule.by == "median" and all(f.value is not None for f in given):
        ordered = sorted(given, key=lambda f: cast(float, f.value))
        return Joined(finding=ordered[(len(ordered) - 1) // 2], entropy=bits)
    elif 2 * times > len(given):
        return Joined(finding=given[names.index(name)], entropy=bits)
    else:
        status, reason = "contradictory", f"no label has a majority: {counted(names)}"
    return Joined(finding=replace(given[0], status=status, answer=None, reason=reason, evidence=()), entropy=bits)


def joined(findings: Iterable[Finding], rule: Repeats) -> list[Joined]:
    """Return one for each question, in order of appearance. Of several findings of a repeat the last counts."""
    findings = list(findings)
    # Most runs ask each question once. Then there is nothing to join.
    if rule.count == 1 and not any(finding.repeat for finding in findings):
        return [Joined(finding=last) for last in {(f.role, f.question): f for f in findings}.values()]
    latest: dict[tuple[object, ...], dict[int, Finding]] = {}
    for finding in findings:
        latest.setdefault((finding.role, finding.question), {})[finding.repeat] = finding
    return [join(list(by_repeat.values()), rule) for by_repeat in latest.values()]


def entropy_of(counts: Iterable[int]) -> float:
    """Return the Shannon entropy in bits of counts; 0 for none."""
    given = [n for n in counts if n]
    total = sum(given)
    return max(0.0, -sum(n / total * math.log2(n / total) for n in given))


def counted(names: Iterable[str]) -> str:
    """Return each name once, the most frequent first: "Wrong Action ×2, Fully Executed"."""
    return ", ".join(name if n == 1 else f"{name} ×{n}" for name, n in Counter(names).most_common())
