"""What a judge said and how it got there: findings, judges, observations, steps. Frozen values, no I/O."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import Field

from editloupe.answers import Answer, Choice, Label
from editloupe.chat import Sampling, Usage
from editloupe.tasks import STATUSES, About, Status, Task
from editloupe.values import (
    Box,
    Count,
    ImageRef,
    Json,
    Serializable,
    View,
    cached_property,
    digest,
    notebook_html,
    sample_key,
)

FAILURES: Final[frozenset[str]] = frozenset(STATUSES) - {"ok"}

PENDING: Final[frozenset[str]] = frozenset(
    {"backend_failed", "tool_failed", "over_budget", "missing_output", "input_error", "waiting"}
)
"""Statuses that the same command judges again: what the world, not the model, can mend.

The files behind `missing_output` and `input_error` are read again anyway, so a mended file is judged and a broken one
costs nothing.
"""

Ending: TypeAlias = Literal[
    "answer", "turns", "tokens", "time", "context", "reminders", "refusal", "filter", "backend", "tools", "recording",
    "blocked", "input", "measure", "protocol", "fault", "batch", "",
]  # fmt: skip
"""What ended a task, for programs.

answer: the model's text was read, whatever it said.   turns, tokens, time, context: a limit of the budget or the model.
reminders: no readable reply after all reminders.   refusal, filter: the model or its provider declined.
backend: the endpoint failed.   tools: tools crashed too often.   recording: a recorded trace could not be continued.
blocked: the protocol did not ask.   input: an image or a row could not be read.   measure: a measure could not compute.
protocol: the protocol itself raised.   fault: editloupe itself failed.   batch: a batch is to answer it.
"": not recorded.
"""

TRACE_NAME: Final = re.compile(r"(?:traces|forks)(?:/[\w-][\w.-]*){1,3}\.jsonl", re.ASCII)
"""Paths of traces inside a run folder. No other file of it is taken for one."""

JudgeKind: TypeAlias = Literal["lmm", "measure", "human", "key"]


@dataclass(frozen=True, kw_only=True)
class JudgeSpec(Serializable):
    """Who judges: everything that makes two verdicts comparable, and no secret."""

    kind: Annotated[JudgeKind, Field(exclude_if=lambda kind: kind == "lmm")] = "lmm"
    """A model, a measure, a person, or a known answer."""
    backend: str
    """Canonical URI; of a measure "measure/NAME", of a known answer "key/key"."""
    backend_version: str = ""
    """Version of the code behind the URI, where that is ours."""
    endpoint: str
    """Where it answers; "in process" for embedded ones."""
    sampling: Sampling = field(default_factory=Sampling)
    tool_protocol: str = "text"
    image_policy: str = ""
    answers: Annotated[str, Field(exclude_if=lambda how: how == "tags")] = "tags"
    """How it was asked for its answer: "auto", "schema" or "tags"; runs that do not say so were asked by tags."""
    remind_answers: Annotated[bool, Field(exclude_if=lambda on: not on)] = False
    """Whether an unusable answer is reminded of; runs that do not say so were judged without."""
    bare_replies: Annotated[bool, Field(exclude_if=lambda on: not on)] = False
    """Whether its whole reply is the answer, without tags."""
    prompts: str = ""
    """Digest of the agent's own templates."""
    questions: str = ""
    """Digest of the protocol with its options, of which rubric and prompt are a part."""
    tools: Mapping[str, str] = field(default_factory=dict)
    """Name → version."""

    @cached_property
    def id(self) -> str:
        """The judge id: 16 hex digits of the digest."""
        return digest(self.to_json())[:16]


@dataclass(frozen=True, kw_only=True)
class Observation(Serializable):
    """What a tool gives back."""

    text: str
    """For the model."""
    views: tuple[View, ...] = ()
    """Pictures in the order in which they are shown; the panes of one picture are consecutive Views of the same image."""
    data: Mapping[str, Json] = field(default_factory=dict)
    """The same facts for programs."""
    error: bool = False
    """True if the text is an error that the model may mend."""
    kept: tuple[View, ...] = ()
    """Pictures for the trace that the model is not shown."""

    @property
    def images(self) -> tuple[ImageRef, ...]:
        """The pictures shown, each once, in order."""
        return tuple(dict.fromkeys(view.image for view in self.views))


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence(Serializable):
    """A place that a verdict rests on."""

    image: str
    """The name of an input image."""
    box: Box
    """In px of that image."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding(Serializable):
    """The outcome of one task under one judge. `answer is None` exactly when `status` is not "ok"."""

    task_id: str
    judge_id: str
    repeat: Count
    """Which time the question was asked, from 0."""
    sample_id: str
    editor: str
    turn: Count = 0
    part: str = ""
    metric: str
    role: Annotated[str, Field(exclude_if=lambda role: role == "judge")] = "judge"
    """Who was asked: "judge", "measure", or a role of the protocol's own."""
    status: Status
    answer: Answer | None = None
    ending: Ending = ""
    reason: str = ""
    """The model's own words, or what went wrong."""
    evidence: tuple[Evidence, ...] = ()
    usage: Usage = field(default_factory=Usage)
    turns: Count = 0
    """Turns with tool calls."""
    counts: Mapping[str, Count] = field(default_factory=dict)
    """Malformed calls, tool errors, tool calls answered from a cache, reminders."""
    seconds: float = 0.0
    """Wall time of the task, the sum of its sessions. Of a session that was killed, the recorded calls count."""
    trace: str | None = None
    """Path of the trace inside the run folder."""

    def __post_init__(self) -> None:
        # A question's id is held once, whoever answers it and however often.
        object.__setattr__(self, "task_id", intern(self.task_id))
        if (self.answer is None) == (self.status == "ok"):
            raise ValueError(
                f"a finding has an answer exactly when its status is ok; found {self.status!r}, {self.answer!r}"
            )
        if self.trace is not None and not TRACE_NAME.fullmatch(self.trace):
            raise ValueError(f"a trace is a path inside the run folder, below traces/ or forks/; found {self.trace!r}")

    @classmethod
    def of(cls, task: Task, *, judge_id: str, repeat: int, status: Status, ending: Ending, **more: Any) -> Finding:
        """Return the finding of a task. more: further fields."""
        return cls(
            task_id=task.id,
            judge_id=judge_id,
            repeat=repeat,
            **vars(task.about),
            metric=task.metric,
            role=task.role,
            status=status,
            ending=ending,
            **more,
        )

    @classmethod
    def from_json(cls, data: object) -> Finding:
        """Return the finding that `to_json` wrote; its column "digest" in runs of 0.2.0 is ignored, as any other key.

        Raises ValueError for data of another shape, and for columns that differ from the answer.
        """
        finding = super(Finding, cls).from_json(data)
        written = data if isinstance(data, dict) else {}
        for name, own in (("label", finding.label), ("value", finding.value)):
            if written.get(name, own) != own:
                raise ValueError(f"its column {name!r} is {written[name]!r}, and its answer {own!r}")
        return finding

    def __str__(self) -> str:
        return f"{self.about}, {self.metric}: {self.status if self.answer is None else self.answer}"

    def _repr_html_(self) -> str | None:
        return notebook_html("finding", self)

    @property
    def key(self) -> tuple[str, str, int]:
        """(task id, judge id, repeat): the unit of work, of resume and of distribution."""
        return self.task_id, self.judge_id, self.repeat

    @property
    def sample_key(self) -> str:
        """Key of the sample that the question was about."""
        return sample_key(self.editor, self.sample_id)

    @property
    def about(self) -> About:
        """What the question was about."""
        return About(sample_id=self.sample_id, editor=self.editor, turn=self.turn, part=self.part)

    @property
    def question(self) -> tuple[str, str, str, int, str]:
        """(metric, editor, sample id, turn, part): what was asked, whoever answers and however often."""
        return self.metric, self.editor, self.sample_id, self.turn, self.part

    @property
    def label(self) -> str | None:
        """The name of a label or an option; None for other answers."""
        return self.answer.name if isinstance(self.answer, Label | Choice) else None

    @property
    def value(self) -> float | None:
        """The number of the answer; None for an answer without one."""
        return None if self.answer is None else self.answer.value

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON, with kind, label and value of the answer as columns of their own."""
        data = super(Finding, self).to_json()
        kind = None if self.answer is None else self.answer.kind
        return {**data, "kind": kind, "label": self.label, "value": self.value, "seconds": round(self.seconds, 4)}
