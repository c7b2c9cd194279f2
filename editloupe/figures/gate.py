"""Does a run hold what is required of it: `METRIC OPERATOR NUMBER`, found, compared and told. Undefined never passes."""

from __future__ import annotations

import math
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias
from xml.etree import ElementTree as ET

from editloupe import files
from editloupe.answers import fold
from editloupe.errors import ConfigError, StorageError
from editloupe.figures.columns import JudgeColumn, PeopleSaid
from editloupe.figures.judged import Judged
from editloupe.figures.people import agreement
from editloupe.figures.summary import OVERALL, TableScores, share_a_scale, specs
from editloupe.findings import FAILURES
from editloupe.scores import Metric, MetricSet
from editloupe.stats.table import NONE, Table, simple
from editloupe.values import Json

People: TypeAlias = tuple[JudgeColumn, PeopleSaid]
"""What a judge said, and people's ratings of the same items."""

Verdict: TypeAlias = Literal["passed", "failed", "undefined"]

AGREEMENT: Final = (
    "spearman", "kendall", "pearson", "mae", "bias", "exact", "kappa", "weighted_kappa", "alpha_nominal", "alpha_ordinal",
    "alpha_interval", "accuracy", "f1",
)  # fmt: skip

METRICS: Final[Mapping[str, str]] = {
    "asked, asked(C)": "verdicts that were asked for, of all criteria or of C",
    "judged, judged(C)": "verdicts that there are",
    "unjudged, unjudged(C)": "share of those asked for that there are not, 0..1",
    "status(S)": "share of those asked for that ended with status S, such as refused, 0..1",
    "mean(C), mean(overall)": "mean score of all samples, in the unit of the protocol's tables (of DLEBench 0..100); "
    "overall: the mean of the criteria",
    "macro(C), macro(overall)": "the same, every edit type of the benchmark counting alike",
    "share(C, LABEL)": "share of this label among the verdicts of C, 0..1",
    "F(human), F(human, C)": "agreement with people in every criterion that they rated, or in C; F is one of "
    + ", ".join(AGREEMENT),
}
"""What a requirement may speak of; C is a criterion by id or short name."""

_ARGUMENTS: Final[Mapping[str, tuple[int, int]]] = {
    **dict.fromkeys(("asked", "judged", "unjudged"), (0, 1)),
    **dict.fromkeys(("status", "mean", "macro"), (1, 1)),
    "share": (2, 2),
    **dict.fromkeys(AGREEMENT, (1, 2)),
}
"""Metric → least and most arguments."""
_AT_MOST_ONE: Final = {"unjudged", "status", "share", *AGREEMENT} - {"mae", "bias"}
_OPERATORS: Final[Mapping[str, Callable[[float, float], bool]]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_FORM = re.compile(
    r"\s*([a-z][a-z0-9_]*)\s*(?:\(([^()]*)\))?\s*(>=|<=|>|<)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*", re.I
)
_DECIMALS: Final = 9
"""A figure that is equal to the bound to so many decimals is equal to it: 0.1 + 0.2 is 0.3."""

_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_OUTCOMES = {"passed": "system-out", "failed": "failure", "undefined": "error"}


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One line."""

    text: str
    """As it was written."""
    metric: str
    arguments: tuple[str, ...]
    """As written, without spaces around them."""
    operator: str
    bound: float

    @property
    def human(self) -> bool:
        """Whether it needs people's labels."""
        return self.metric in AGREEMENT


@dataclass(frozen=True, kw_only=True)
class Checked:
    """One requirement and one figure of one judge."""

    judge: str
    requirement: Requirement
    value: float | None = None
    """What was found; None where there is none, and then `why` says so."""
    basis: str = ""
    """How much was judged, in words."""
    why: str = ""
    of: str = ""
    """What the figure is of, where the requirement speaks of several criteria."""
    notes: tuple[str, ...] = ()
    """What of people's ratings could not be used, and why."""

    @property
    def verdict(self) -> Verdict:
        """Whether the requirement holds."""
        if self.value is None:
            return "undefined"
        holds = _OPERATORS[self.requirement.operator]
        return "passed" if holds(round(self.value, _DECIMALS), round(self.requirement.bound, _DECIMALS)) else "failed"

    @property
    def name(self) -> str:
        """The requirement, and the criterion where it speaks of several."""
        return f"{self.requirement.text} ({self.of})" if self.of else self.requirement.text

    @property
    def about(self) -> str:
        """The basis of the figure, or why there is none."""
        return self.why if self.value is None else self.basis

    @property
    def summary(self) -> str:
        """In one line: what was required, what was found, and its basis or why there is nothing."""
        found = "undefined" if self.value is None else f"{self.value:.6g}"
        return f"{self.name}: {found}" + (f" ({self.about})" if self.about else "")

    def to_json(self) -> dict[str, Json]:
        """Return the outcome as JSON."""
        return {
            "judge": self.judge,
            "require": self.requirement.text,
            "of": self.of or None,
            "value": self.value,
            "rests": self.basis or None,
            "why": self.why or None,
            "verdict": self.verdict,
        }


def parse(text: str, rubric: MetricSet) -> Requirement:
    """Return a requirement.

    Raises ConfigError: another form, an unknown metric, criterion, status or label, a bound that no such figure has.
    """

    def refused(why: str) -> ConfigError:
        return ConfigError(f"--require {text!r}: {why}")

    match = _FORM.fullmatch(text)
    if match is None or not math.isfinite(float(match[4])):
        raise refused("expected METRIC OPERATOR NUMBER with >=, <=, > or <, such as 'unjudged<=0.02'")
    metric, inside, bound = match[1].lower(), match[2], float(match[4])
    arguments = () if inside is None else tuple(part.strip() for part in inside.split(","))
    if metric not in _ARGUMENTS:
        raise refused(f"unknown metric {metric!r}; known: {', '.join(_ARGUMENTS)}")
    least, most = _ARGUMENTS[metric]
    if not least <= len(arguments) <= most or not all(arguments):
        form = next(form for form in METRICS if form.startswith(metric) or (metric in AGREEMENT and form.startswith("F(")))
        raise refused(f"expected {form.replace('F(', f'{metric}(')}")
    if metric in _AT_MOST_ONE and abs(bound) > 1:
        raise refused(f"{metric} is at most 1; 2 % is 0.02")
    if metric == "status" and arguments[0] not in FAILURES:
        raise refused(f"no status {arguments[0]!r}; known: {', '.join(sorted(FAILURES))}")
    if metric in AGREEMENT and arguments[0] != "human":
        raise refused(f"agreement is with people: expected {metric}(human)")
    named = () if metric == "status" else arguments[metric in AGREEMENT :]
    if named and not (named[0].casefold() == OVERALL and metric in ("mean", "macro")):
        criterion = rubric.metric(named[0])
        if len(named) > 1 and _label(criterion, named[1]) is None:
            names = ", ".join(level.name for level in criterion.levels)
            raise refused(f"no label {named[1]!r} of {criterion.id}; its labels are {names}")
    return Requirement(text=" ".join(text.split()), metric=metric, arguments=arguments, operator=match[3], bound=bound)


def _label(criterion: Metric, wanted: str) -> str | None:
    """The label as the metric spells it; None if it has none such. A metric that lists none may have any."""
    if not criterion.levels:
        return wanted
    known = (level.name for level in criterion.levels if fold(wanted) in map(fold, (level.name, *level.aliases)))
    return next(known, None)


def check(judged: Judged, requirements: Iterable[Requirement], people: Callable[[], People]) -> Iterator[Checked]:
    """Yield every requirement's figure, or figures where it speaks of several criteria.

    people: what the judge said and people's ratings; called where a requirement needs them.
    """
    joined: People | None = None
    for requirement in requirements:
        checked = Checked(judge=judged.name, requirement=requirement)
        if requirement.human:
            joined = people() if joined is None else joined
            yield from _agreement(judged, checked, joined)
        elif requirement.metric in ("mean", "macro"):
            yield _mean(judged, checked)
        else:
            yield _count(judged, checked)


def _count(judged: Judged, checked: Checked) -> Checked:
    metric, arguments = checked.requirement.metric, checked.requirement.arguments
    criterion = judged.metrics.metric(arguments[0]) if arguments and metric != "status" else None
    scores = [s for s in judged.scores if criterion is None or s.metric == criterion.id]
    if not scores:
        return replace(checked, why=f"{criterion.id if criterion else 'nothing'} was not asked in this run")
    there = [s for s in scores if s.value is not None]
    basis = f"{len(there)} of {len(scores)} judged"
    match metric:
        case "asked" | "judged":
            return replace(checked, value=len(scores if metric == "asked" else there), basis=basis)
        case "unjudged":
            counts = sorted(Counter(score.missing for score in scores if score.missing is not None).items())
            why = ", ".join(f"{n} {status}" for status, n in counts)
            return replace(checked, value=1 - len(there) / len(scores), basis=f"{why} of {len(scores)}" if why else basis)
        case "status":
            ended = sum(s.missing == arguments[0] for s in scores)
            return replace(checked, value=ended / len(scores), basis=f"{ended} of {len(scores)}")
    if not there or criterion is None:
        return replace(checked, why="nothing was judged")
    if all(s.label is None for s in there):
        return replace(checked, why=f"{criterion.id} has numbers and no labels")
    wanted = fold(_label(criterion, arguments[1]) or arguments[1])
    named = sum(fold(s.label or "") == wanted for s in there)
    return replace(checked, value=named / len(there), basis=f"{named} of {len(there)}; {basis}")


def _mean(judged: Judged, checked: Checked) -> Checked:
    name, by_type = checked.requirement.arguments[0], checked.requirement.metric == "macro"
    column = OVERALL if name.casefold() == OVERALL else judged.metrics.metric(name).id
    if column != OVERALL and column not in judged.criteria:
        return replace(checked, why=f"{column} was not asked in this run")
    # In the unit of the protocol's tables: 0 to 100, or the metric's own.
    spec = replace(specs(judged.protocol)[0], metrics=(), cell="mean")
    if not by_type:
        # That table may be of turns or parts alone, and the metric of samples as wholes.
        spec = replace(spec, rows="editor", columns="metric")
    elif not spec.order:
        why = f"protocol {judged.protocol.name!r} lists no groups that count alike; require mean({name})"
        return replace(checked, why=why)
    found = TableScores.of(spec, judged.frame, judged.asked)
    if column != OVERALL:
        found = found.of_metrics([judged.metrics.metric(column)])
    elif not share_a_scale(spec, found.metrics):
        return replace(checked, why="the metrics have no scale in common; name one of them")
    cell = found.macro() if by_type else found.number()
    basis = f"{cell.judged} of {cell.asked} judged"
    if by_type:
        basis += f"; {len(found.whole_rows)} of {len(spec.order)} {spec.rows.replace('_', ' ')}s"
    return replace(checked, value=cell.value, basis=basis, why=basis if cell.value is None else "")


def _agreement(judged: Judged, checked: Checked, joined: People) -> Iterator[Checked]:
    said, people = joined
    metric, arguments = checked.requirement.metric, checked.requirement.arguments
    both = [name for name in judged.criteria if people.of(name)]
    wanted = [judged.metrics.metric(name) for name in arguments[1:2]]
    criteria = wanted or [c for c in judged.metrics.metrics if c.id in both]
    if not criteria:
        yield replace(checked, why="people rated no criterion that was judged")
    for criterion in criteria:
        one = replace(checked, of="" if wanted else criterion.short)
        if criterion.id not in both:
            yield replace(one, why=f"{criterion.id}: people did not rate it, or it was not asked in this run")
            continue
        agreed = agreement(said, people, criterion)
        one, figures = replace(one, notes=agreed.notes), agreed.all.figures
        if metric not in figures:
            yield replace(one, why=f"{criterion.id} has no {metric}: its answers are read another way")
            continue
        found = figures[metric]
        between = "" if found.low is None else f"; {found.low:.3g} to {found.high:.3g}"
        basis = f"{found.judged} of {found.asked} rated ones judged{between}"
        yield replace(one, value=found.value, basis=basis, why=found.why)


def table(checked: Sequence[Checked], title: str) -> Table:
    """Return the outcome as a table. The judge is named where there are several."""
    several = len({one.judge for one in checked}) > 1
    head = (*(["Judge"] if several else []), "Requirement", "Found", "Result", "Rests on")
    rows = [
        (
            *([one.judge] if several else []),
            one.name,
            NONE if one.value is None else f"{one.value:.6g}",
            one.verdict if one.verdict == "passed" else one.verdict.upper(),
            one.about,
        )
        for one in checked
    ]
    return simple("gate", title, head, rows)


def write_gate_junit(checked: Iterable[Checked], path: Path) -> None:
    """Write a test case for each requirement and judge: a failure, or an error where there is no figure.

    Raises StorageError.
    """
    found = list(checked)
    verdicts = [one.verdict for one in found]
    counts = {
        "tests": len(found),
        "failures": verdicts.count("failed"),
        "errors": verdicts.count("undefined"),
        "skipped": 0,
    }
    told = {"name": "editloupe gate", **{name: str(count) for name, count in counts.items()}, "time": "0.000"}
    root = ET.Element("testsuites", told)
    suite = ET.SubElement(root, "testsuite", told)
    for one in found:
        case = ET.SubElement(suite, "testcase", classname=_xml(one.judge), name=_xml(one.name), time="0.000")
        outcome = ET.SubElement(case, _OUTCOMES[one.verdict])
        if one.verdict == "passed":
            outcome.text = _xml(one.summary)
        else:
            outcome.attrib |= {"type": "gate" if one.verdict == "failed" else "undefined", "message": _xml(one.summary)}
    ET.indent(root)
    try:
        files.write_whole(path, ET.tostring(root, encoding="utf-8", xml_declaration=True) + b"\n")
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error.strerror or error}") from error


def _xml(text: str) -> str:
    """Without the characters that XML cannot hold, not even escaped."""
    return _NOT_XML.sub("\ufffd", text)
