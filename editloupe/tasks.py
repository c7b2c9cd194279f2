"""What is asked: about which sample, turn and part, with which pictures, of whom. Frozen values, no I/O.

A task is an `Ask`, which a model or a person answers, or a `Measure`, which is computed. Its id is a hash of its content:
recipes and not pixels, and no judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, Literal, TypeAlias, get_args

from pydantic import Field, TypeAdapter

from editloupe.answers import AnswerSpec
from editloupe.values import (
    Box,
    ImageRef,
    Json,
    Sample,
    Serializable,
    cached_property,
    digest,
    is_empty,
    sample_key,
)

Status: TypeAlias = Literal[
    "ok", "unparsed", "off_menu", "contradictory", "refused", "filtered", "abstained", "over_budget", "missing_output",
    "not_defined", "tool_failed", "backend_failed", "input_error", "waiting",
]  # fmt: skip

STATUSES: Final[tuple[Status, ...]] = get_args(Status)
"""Every way in which a task can end."""


@dataclass(frozen=True, kw_only=True)
class About(Serializable):
    """What a question is about: a sample, one of its turns, a part of it."""

    sample_id: str
    editor: str = ""
    turn: int = 0
    """From 1; 0 for the sample as a whole."""
    part: str = ""
    """For example "target 2" or "difference 3"; "" for all of it."""

    @classmethod
    def of(cls, sample: Sample, *, turn: int = 0, part: str = "") -> About:
        """Return what a question about this sample is about. Raises ValueError for a turn that the sample does not have."""
        if not 0 <= turn <= len(sample.turns):
            raise ValueError(f"sample {sample.key!r} has {len(sample.turns)} turns, found turn {turn}")
        return cls(sample_id=sample.id, editor=sample.editor, turn=turn, part=part)

    @classmethod
    def pair(cls, first: Sample, second: Sample) -> About:
        """Return what a question about two samples is about in which `first` is shown first."""
        return cls.of(first, part=f"beside {second.key}")

    @property
    def beside(self) -> str:
        """The key of the second sample of a pair; "" for a question about one."""
        return self.part.removeprefix("beside ") if self.part.startswith("beside ") else ""

    @property
    def key(self) -> str:
        """The sample's key, unique in a run."""
        return sample_key(self.editor, self.sample_id)

    def question(self, metric: str) -> tuple[str, str, str, int, str]:
        """Return (metric, editor, sample id, turn, part): what a finding answers, whoever answers and however often."""
        return metric, self.editor, self.sample_id, self.turn, self.part

    @property
    def scope(self) -> str:
        """For example "turn 2, target 3"; "" for the sample as a whole."""
        return ", ".join(word for word in (f"turn {self.turn}" if self.turn else "", self.part) if word)

    def __str__(self) -> str:
        return ", ".join(word for word in (self.key, self.scope) if word)


@dataclass(frozen=True, kw_only=True)
class Budget(Serializable):
    """Limits of one task; None means no limit."""

    max_turns: int = 6
    """Turns with at least one tool call."""
    max_reminders: int = 2
    """Reminders of unusable replies and answers, extra to the turns."""
    max_tokens: int | None = None
    """Input plus output tokens over all calls."""
    max_seconds: float | None = None
    """Wall time, in s."""
    max_calls_per_turn: int = 8
    """Further calls of a turn are refused."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            least = 0 if name in ("max_turns", "max_reminders") else 1e-9
            if isinstance(value, int | float) and value < least:
                raise ValueError(f"{name} must be {'at least 0' if least == 0 else 'positive'}, found {value}")


@dataclass(frozen=True, kw_only=True)
class Recipe(Serializable):
    """How one picture of a question is made: the view op `op` on `origin`."""

    alias: str
    """The name under which the conversation speaks of it."""
    origin: ImageRef
    op: str = "whole"
    """A name of `editloupe.imaging.views`."""
    region: Box | None = None
    """In px of `origin`; None for the whole image."""
    params: Mapping[str, Json] = field(default_factory=dict)
    """What the op is given."""


@dataclass(frozen=True, kw_only=True)
class _Task(Serializable):
    protocol: str
    metric: str
    """Id of the metric or of the intermediate question."""
    about: About
    views: tuple[Recipe, ...] = ()
    """Pictures in the order in which they are shown; none for a question about text alone."""
    role: str = "judge"
    """Who answers; a protocol says which roles it has. A measure has the role "measure"."""
    rests_on: Annotated[tuple[str, ...], Field(exclude_if=is_empty)] = ()
    """Ids of the tasks whose findings this one was planned from."""
    blocked: tuple[Status, str] | None = None
    """Status and reason where the question cannot be asked, for example for a missing output."""

    @cached_property
    def id(self) -> str:
        """Hash of the content, 64 hex digits."""
        return digest(self.to_json())

    @property
    def question(self) -> tuple[str, str, str, int, str]:
        """As `Finding.question` has it."""
        return self.about.question(self.metric)


@dataclass(frozen=True, kw_only=True)
class Ask(_Task):
    """A question that a model or a person answers."""

    prompt: str
    """The question, without any word on tools or on the form of the reply."""
    answer: AnswerSpec
    tools: tuple[str, ...] = ()
    """Names of the tools on offer, in the order of the prompt."""
    budget: Budget = field(default_factory=Budget)
    kind: Literal["ask"] = "ask"


@dataclass(frozen=True, kw_only=True)
class Measure(_Task):
    """A number that is computed; no model talks."""

    measure: str
    """Name of an installed measure."""
    args: Mapping[str, Json] = field(default_factory=dict)
    """Checked by the measure's own model."""
    role: str = "measure"
    kind: Literal["measure"] = "measure"


Task: TypeAlias = Annotated[Ask | Measure, Field(discriminator="kind")]

_TASK: Final[TypeAdapter[Ask | Measure]] = TypeAdapter(Task)


def task_from_json(data: object) -> Ask | Measure:
    """Return the task that `to_json` wrote. Raises ValueError for data of another shape."""
    return _TASK.validate_python(data)
