"""What a protocol reports: metrics and the scores of samples. Frozen values, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias

from pydantic import Field

from editloupe.answers import Answer, Label, LabelRule
from editloupe.errors import ConfigError
from editloupe.values import Serializable, cached_property, is_empty, sample_key


@dataclass(frozen=True, kw_only=True)
class Levels:
    """Ordered labels with values."""

    levels: tuple[LabelRule, ...]
    """Worst first."""
    kind: Literal["levels"] = "levels"

    @cached_property
    def bounds(self) -> tuple[float, float]:
        """(lowest, highest) value."""
        values = [level.value for level in self.levels]
        return min(values), max(values)


@dataclass(frozen=True, kw_only=True)
class Interval:
    """Numbers from low to high, both included."""

    low: float
    high: float
    kind: Literal["interval"] = "interval"

    @property
    def bounds(self) -> tuple[float, float]:
        """(lowest, highest) value."""
        return self.low, self.high


@dataclass(frozen=True, kw_only=True)
class Binary:
    """1 for yes or right, 0 for no or wrong. A mean of it is a rate."""

    kind: Literal["binary"] = "binary"
    bounds = (0.0, 1.0)


@dataclass(frozen=True, kw_only=True)
class Real:
    """Any finite number: decibels, distances."""

    kind: Literal["real"] = "real"
    bounds = None


Domain: TypeAlias = Annotated[Levels | Interval | Binary | Real, Field(discriminator="kind")]


@dataclass(frozen=True, kw_only=True)
class Metric(Serializable):
    """One number that a protocol reports for a sample."""

    id: str
    """Stable name in files, for example "instruction_following"."""
    name: str = ""
    """Name in words, for example "Instruction Following"; "" for the id."""
    short: str = ""
    """Name in tables, for example "IF"; "" for the name."""
    domain: Domain
    """Which values there are."""
    better: Literal["higher", "lower"] | None = "higher"
    """Direction of improvement; None if the metric has none."""
    unit: str = ""
    """For example "dB"; "" for a plain number."""
    source: str = ""
    """Where the paper defines it."""
    concerns: Literal["target", "surroundings"] | None = None
    """What of the image it is about; None for all of it."""

    def __post_init__(self) -> None:
        if not self.id:
            raise ConfigError("a metric needs an id")
        if self.id.casefold() == "all":
            raise ConfigError(f"a metric cannot have the id {self.id!r}, which stands for all metrics together")
        object.__setattr__(self, "name", self.name or self.id)
        object.__setattr__(self, "short", self.short or self.name)
        bounds = self.domain.bounds
        if bounds is not None and not bounds[0] < bounds[1]:
            raise ConfigError(f"metric {self.id!r}: expected a lowest value below the highest, found {list(bounds)}")

    @property
    def levels(self) -> tuple[LabelRule, ...]:
        """The labels, worst first; () for a metric without labels."""
        return self.domain.levels if isinstance(self.domain, Levels) else ()

    @cached_property
    def values(self) -> Mapping[str, float]:
        """Value by label, worst first; empty for a metric without labels."""
        return {level.name: level.value for level in self.levels}

    def refuses(self, answer: Answer) -> str:
        """Return why an answer is none of the metric's; "" for one that is, and for one without a number."""
        value, bounds = answer.value, self.domain.bounds
        if value is None:
            return ""
        if isinstance(answer, Label) and self.levels:
            if answer.name not in self.values:
                return f"label {answer.name!r} is none of the rubric's ({', '.join(self.values)})"
            if value != self.values[answer.name]:
                return f"label {answer.name!r} has the value {value:g}, and in the rubric {self.values[answer.name]:g}"
        if bounds is not None and not bounds[0] <= value <= bounds[1]:
            return f"its value {value:g} is outside {bounds[0]:g} to {bounds[1]:g}"
        return ""

    def normalize(self, value: float) -> float | None:
        """Return the value on 0 to 100, 100 at the upper bound. None for a metric without bounds."""
        bounds = self.domain.bounds
        return None if bounds is None else (value - bounds[0]) / (bounds[1] - bounds[0]) * 100


@dataclass(frozen=True, kw_only=True, slots=True)
class Score(Serializable):
    """One number of one sample."""

    sample_id: str
    editor: str = ""
    turn: int = 0
    """From 1; 0 for the sample as a whole."""
    part: str = ""
    """For example "target 2"; "" for all of it."""
    metric: str
    """Id of the metric."""
    value: float | None
    """In the metric's unit; None if `missing` says why."""
    label: str | None = None
    """The label behind the value, where there is one."""
    missing: str | None = None
    """The status that left the score without a value, or "not judged yet"."""
    reason: str = ""
    """What is known of why it is missing; of a score with a value what it rests on, where the protocol says so."""
    protocol_fault: Annotated[bool, Field(exclude_if=lambda fault: not fault)] = False
    """True where it is missing since the protocol's `score` raised, gave a wrong score or left it out."""
    findings: tuple[str, ...] = ()
    """Task ids of the findings that it rests on."""
    parts: tuple[str, ...] = ()
    """Where several parts make the score, each part's label, or its status in brackets."""
    dims: Annotated[Mapping[str, str | int | float | None], Field(exclude_if=is_empty)] = field(default_factory=dict)
    """Columns of the protocol's own by which tables group: edit type, task, language."""
    normalized: float | None = None
    """The value on 0 to 100. `protocols.base.scored` fills it in for metrics with bounds."""
    entropy: float | None = None
    """Bits by which the answers of repeats differ; None where the question was asked once."""

    def __post_init__(self) -> None:
        if (self.value is None) == (self.missing is None):
            raise ValueError(
                f"score {self.metric!r} of {self.key!r}: a score has a value, or says why it is missing; found value "
                f"{self.value!r}, missing {self.missing!r}"
            )

    @property
    def key(self) -> str:
        """The sample's key, unique in a run."""
        return sample_key(self.editor, self.sample_id)

    @property
    def edit_type(self) -> str:
        """The dimension "edit_type"; "(none)" if the protocol gives none."""
        return str(self.dims.get("edit_type") or "(none)")


NOT_JUDGED: Final = "not judged yet"
"""`Score.missing` where the findings are not there."""


def protocol_faults(scores: Iterable[Score]) -> dict[str, str]:
    """Return sample key → reason, for the samples that have no score by the protocol's fault."""
    return {score.key: score.reason for score in scores if score.protocol_fault}


def fault_messages(faults: Mapping[str, str], *, most: int = 5) -> list[str]:
    """Return one message for each of the `protocol_faults`, with the samples that it costs."""
    messages = []
    for reason in dict.fromkeys(faults.values()):
        keys = [key for key, why in faults.items() if why == reason]
        more = f" and {len(keys) - most} more" if len(keys) > most else ""
        messages.append(f"{reason}; no score of {', '.join(keys[:most])}{more}")
    return messages


@dataclass(frozen=True, kw_only=True)
class MetricSet:
    """The metrics of a run."""

    id: str
    """The rubric's id, where the protocol has a rubric; else the protocol's name."""
    metrics: tuple[Metric, ...]

    def metric(self, id_or_short: str) -> Metric:
        """Return the metric with this id or short name, whatever the case. Raises ConfigError, which lists the known."""
        wanted = id_or_short.casefold()
        for metric in self.metrics:
            if wanted in (metric.id.casefold(), metric.short.casefold()):
                return metric
        known = ", ".join(f"{m.id} ({m.short})" if m.short != m.id else m.id for m in self.metrics)
        raise ConfigError(f"no metric {id_or_short!r}; there are: {known}")
