"""What a run writes down: tasks, judges, observations, steps, findings, the run's own specification. Frozen, no I/O."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal, TypeAlias, get_args

from editloupe.chat import Sampling, ToolCall, Usage
from editloupe.parsing import parse_choice
from editloupe.values import Box, ImageRef, Json, View, box_from_json, digest

Status: TypeAlias = Literal[
    "ok",
    "unparsed",
    "off_menu",
    "contradictory",
    "refused",
    "filtered",
    "abstained",
    "over_budget",
    "missing_output",
    "tool_failed",
    "backend_failed",
    "input_error",
]

STATUSES: tuple[Status, ...] = get_args(Status)
"""Every way in which a task can end."""

FAILURES: frozenset[str] = frozenset(STATUSES) - {"ok"}

PENDING: frozenset[str] = frozenset({"backend_failed", "tool_failed", "over_budget", "missing_output", "input_error"})
"""Taken up again by the same command: what the world, not the model, can mend.

The files behind `missing_output` and `input_error` are read again anyway, so a mended file is judged and a broken one
costs nothing.
"""


@dataclass(frozen=True, kw_only=True)
class Label:
    """One label of a criterion with its value on the rubric's scale."""

    name: str
    value: float

    def to_json(self) -> dict[str, Json]:
        return {"kind": "label", "name": self.name, "value": self.value}


@dataclass(frozen=True, kw_only=True)
class Number:
    """A finite number."""

    value: float

    def __post_init__(self) -> None:
        if not math.isfinite(self.value):
            raise ValueError(f"a number must be finite, found {self.value!r}; an infinite measure is counted apart")

    def to_json(self) -> dict[str, Json]:
        return {"kind": "number", "value": self.value}


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One of several offered answers, without a value."""

    name: str

    def to_json(self) -> dict[str, Json]:
        return {"kind": "choice", "name": self.name}


@dataclass(frozen=True, kw_only=True)
class Structured:
    """JSON that the task's answer schema has validated."""

    data: Json

    def to_json(self) -> dict[str, Json]:
        return {"kind": "structured", "data": self.data}


Answer: TypeAlias = Label | Number | Choice | Structured


def answer_from_json(data: Mapping[str, Json] | None) -> Answer | None:
    """The inverse of an answer's `to_json`."""
    if data is None:
        return None
    kind, value = data["kind"], data.get("value")
    if kind in ("label", "number"):
        assert isinstance(value, int | float)
        return Label(name=str(data["name"]), value=float(value)) if kind == "label" else Number(value=float(value))
    return Choice(name=str(data["name"])) if kind == "choice" else Structured(data=data["data"])


@dataclass(frozen=True, kw_only=True)
class LabelRule:
    """One allowed label: its name, value on the scale, and other spellings that mean the same."""

    name: str
    value: float
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Grammar:
    """What counts as an answer: one of these labels, listed from best to worst as the prompt shows them."""

    labels: tuple[LabelRule, ...]

    def parse(self, text: str) -> Label:
        """Return the label that the answer gives. Raises ReplyError as `parse_choice` does."""
        values = {rule.name: rule.value for rule in self.labels}
        name = parse_choice(text, [(rule.name, rule.aliases) for rule in self.labels], values)
        return Label(name=name, value=values[name])

    def to_json(self) -> list[Json]:
        return [{"name": r.name, "value": r.value, "aliases": list(r.aliases)} for r in self.labels]

    @classmethod
    def from_json(cls, data: Json) -> Grammar:
        assert isinstance(data, list)
        return cls(
            labels=tuple(
                LabelRule(name=str(r["name"]), value=float(r["value"]), aliases=tuple(map(str, r["aliases"]))) for r in data
            )
        )


@dataclass(frozen=True, kw_only=True)
class Budget:
    """Limits of one task; None means no limit.

    max_turns: turns with at least one tool call.   max_reminders: format reminders, extra to the turns.
    max_tokens: input plus output over all calls.   max_seconds: wall time.   max_calls_per_turn: the rest is refused.
    """

    max_turns: int = 6
    max_reminders: int = 2
    max_tokens: int | None = None
    max_seconds: float | None = None
    max_calls_per_turn: int = 8

    def __post_init__(self) -> None:
        for name, value in self.to_json().items():
            least = 0 if name in ("max_turns", "max_reminders") else 1e-9
            if isinstance(value, int | float) and value < least:
                raise ValueError(f"{name} must be {'at least 0' if least == 0 else 'positive'}, found {value}")

    def to_json(self) -> dict[str, Json]:
        return {
            "max_turns": self.max_turns,
            "max_reminders": self.max_reminders,
            "max_tokens": self.max_tokens,
            "max_seconds": self.max_seconds,
            "max_calls_per_turn": self.max_calls_per_turn,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Budget:
        """Raises TypeError for a limit that this version does not know."""
        return cls(**data)  # type: ignore[arg-type]


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How an image of the first message is made: `op` on `origin`, shown under `alias`.

    region: px of `origin`; None for the whole image.
    """

    alias: str
    origin: ImageRef
    op: str = "whole"
    region: Box | None = None
    params: Mapping[str, Json] = field(default_factory=dict)

    def to_json(self) -> dict[str, Json]:
        return {
            "alias": self.alias,
            "origin": self.origin.to_json(),
            "op": self.op,
            "region": None if self.region is None else list(self.region),
            "params": dict(self.params),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Recipe:
        origin, params = data["origin"], data["params"]
        assert isinstance(origin, Mapping) and isinstance(params, Mapping)
        return cls(
            alias=str(data["alias"]),
            origin=ImageRef.from_json(origin),
            op=str(data["op"]),
            region=None if data["region"] is None else box_from_json(data["region"]),
            params=params,
        )


@dataclass(frozen=True, kw_only=True)
class JudgeTask:
    """One criterion of one sample: a question that an agent can answer without knowing the protocol.

    prompt: the question, without any word on tools.   tools: names offered, in the order of the prompt.
    target: the number of the one target that is asked about, from 1; None where the question is about all.
    blocked: (status, reason) where the question cannot be asked, such as a missing output.
    """

    protocol: str
    mode: str
    sample_id: str
    editor: str
    criterion: str
    prompt: str
    views: tuple[Recipe, ...]
    tools: tuple[str, ...]
    grammar: Grammar
    budget: Budget
    target: int | None = None
    blocked: tuple[Status, str] | None = None

    @cached_property
    def id(self) -> str:
        """Content hash, 64 hex digits: recipes and not pixels, and no judge."""
        return digest(self.to_json())

    def to_json(self) -> dict[str, Json]:
        return {
            "kind": "judge",
            "protocol": self.protocol,
            "mode": self.mode,
            "sample_id": self.sample_id,
            "editor": self.editor,
            "criterion": self.criterion,
            "prompt": self.prompt,
            "views": [v.to_json() for v in self.views],
            "tools": list(self.tools),
            "grammar": self.grammar.to_json(),
            "budget": self.budget.to_json(),
            **({} if self.target is None else {"target": self.target}),
            "blocked": None if self.blocked is None else list(self.blocked),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> JudgeTask:
        """The inverse of `to_json`. Raises ValueError, KeyError, TypeError or AssertionError for anything else."""
        if data["kind"] != "judge":
            raise ValueError(f"expected a task of the kind 'judge', found {data['kind']!r}")
        views, tools, budget, blocked = data["views"], data["tools"], data["budget"], data["blocked"]
        assert isinstance(views, list) and isinstance(tools, list) and isinstance(budget, Mapping)
        target = data.get("target")
        assert target is None or isinstance(target, int)
        assert blocked is None or (isinstance(blocked, list) and len(blocked) == 2 and blocked[0] in STATUSES)
        return cls(
            **{name: str(data[name]) for name in ("protocol", "mode", "sample_id", "editor", "criterion", "prompt")},
            views=tuple(Recipe.from_json(v) for v in views),
            tools=tuple(map(str, tools)),
            grammar=Grammar.from_json(data["grammar"]),
            budget=Budget.from_json(budget),
            target=target,
            blocked=None if blocked is None else (blocked[0], str(blocked[1])),
        )


Task: TypeAlias = JudgeTask


@dataclass(frozen=True, kw_only=True)
class JudgeSpec:
    """Who judges: everything that makes two verdicts comparable, and no secret.

    backend: canonical URI, and the version of the code behind it where that is ours.
    endpoint: where it answers ("in process" for embedded ones).   tools: name → version.
    prompts: digest of the agent's own templates.   rubric: digest.
    prompt: digest of the question's template where it is a user's own; the built-in one is in every task as it was asked.
    """

    backend: str
    backend_version: str = ""
    endpoint: str
    sampling: Sampling
    tool_protocol: str
    image_policy: str
    constrain_labels: bool = False
    prompts: str
    rubric: str
    tools: Mapping[str, str]
    prompt: str = ""

    def to_json(self) -> dict[str, Json]:
        return {
            "backend": self.backend,
            "backend_version": self.backend_version,
            "endpoint": self.endpoint,
            "sampling": self.sampling.to_json(),
            "tool_protocol": self.tool_protocol,
            "image_policy": self.image_policy,
            "constrain_labels": self.constrain_labels,
            "prompts": self.prompts,
            "rubric": self.rubric,
            "tools": dict(self.tools),
            **({"prompt": self.prompt} if self.prompt else {}),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> JudgeSpec:
        """The inverse of `to_json`; raises what a mapping of another shape does (KeyError, TypeError, AssertionError)."""
        sampling, tools = data["sampling"], data["tools"]
        assert isinstance(sampling, Mapping) and isinstance(tools, Mapping)
        texts = ("backend", "backend_version", "endpoint", "tool_protocol", "image_policy", "prompts", "rubric")
        return cls(
            **{name: str(data[name]) for name in texts},
            sampling=Sampling(**sampling),  # type: ignore[arg-type]
            constrain_labels=data["constrain_labels"] is True,
            tools={name: str(version) for name, version in tools.items()},
            prompt=str(data.get("prompt", "")),
        )

    @property
    def id(self) -> str:
        """The judge id: 16 hex digits of the digest."""
        return digest(self.to_json())[:16]


@dataclass(frozen=True, kw_only=True)
class Observation:
    """What a tool gives back.

    text: for the model.   views: the pictures, in the order in which they are shown; the panes of one picture are
    consecutive Views of the same image.   data: the same facts for programs.   error: True where the text is an error
    that the model may mend.   kept: pictures for the trace that the model is not shown.
    """

    text: str
    views: tuple[View, ...] = ()
    data: Mapping[str, Json] = field(default_factory=dict)
    error: bool = False
    kept: tuple[View, ...] = ()

    @property
    def images(self) -> tuple[ImageRef, ...]:
        """The pictures shown, each once, in order."""
        return tuple(dict.fromkeys(view.image for view in self.views))

    def to_json(self) -> dict[str, Json]:
        return {
            "text": self.text,
            "views": [v.to_json() for v in self.views],
            "data": dict(self.data),
            "error": self.error,
            "kept": [v.to_json() for v in self.kept],
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Observation:
        views, kept, extra = data["views"], data["kept"], data["data"]
        assert isinstance(views, list) and isinstance(kept, list) and isinstance(extra, Mapping)
        return cls(
            text=str(data["text"]),
            views=tuple(View.from_json(v) for v in views),
            data=extra,
            error=bool(data["error"]),
            kept=tuple(View.from_json(v) for v in kept),
        )


@dataclass(frozen=True, kw_only=True)
class Step:
    """Thought → Action → Observation as one value: what `show` and the viewer read."""

    thought: str
    calls: tuple[ToolCall, ...] = ()
    observations: tuple[Observation, ...] = ()
    aliases: tuple[tuple[str, ...], ...] = ()
    reply: str = ""
    usage: Usage = field(default_factory=Usage)
    seconds: float = 0.0
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """A place that a verdict rests on: a box in px of one input image."""

    image: str
    box: Box

    def to_json(self) -> dict[str, Json]:
        return {"image": self.image, "box": list(self.box)}


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The outcome of one task under one judge. `answer is None` exactly when `status` is not "ok".

    reason: the model's own words, or what went wrong.   seconds: wall time of the task.   turns: turns with calls.
    trace: path of the trace inside the run folder.   counts: malformed calls, tool errors, tool calls that were answered
    from equal ones before, reminders.
    target: as the task has it.
    """

    task_id: str
    judge_id: str
    repeat: int
    sample_id: str
    editor: str
    criterion: str
    status: Status
    answer: Answer | None = None
    reason: str = ""
    evidence: tuple[Evidence, ...] = ()
    usage: Usage = field(default_factory=Usage)
    turns: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 0.0
    trace: str | None = None
    target: int | None = None

    def __post_init__(self) -> None:
        if (self.answer is None) == (self.status == "ok"):
            raise ValueError(
                f"a finding has an answer exactly when its status is ok; found {self.status!r}, {self.answer!r}"
            )

    @property
    def key(self) -> tuple[str, str, int]:
        """(task id, judge id, repeat): the unit of work, of resume and of distribution."""
        return self.task_id, self.judge_id, self.repeat

    @property
    def question(self) -> tuple[str, str, str, int]:
        """(editor, sample id, criterion, target or 0): what is asked, whoever answers and however often."""
        return self.editor, self.sample_id, self.criterion, self.target or 0

    @property
    def label(self) -> str | None:
        return self.answer.name if isinstance(self.answer, Label | Choice) else None

    @property
    def value(self) -> float | None:
        """On the rubric's scale; None for every answer without a number."""
        return self.answer.value if isinstance(self.answer, Label | Number) else None

    def to_json(self) -> dict[str, Json]:
        return {
            "task_id": self.task_id,
            "judge_id": self.judge_id,
            "repeat": self.repeat,
            "sample_id": self.sample_id,
            "editor": self.editor,
            "criterion": self.criterion,
            **({} if self.target is None else {"target": self.target}),
            "status": self.status,
            "label": self.label,
            "value": self.value,
            "answer": None if self.answer is None else self.answer.to_json(),
            "reason": self.reason,
            "evidence": [e.to_json() for e in self.evidence],
            "usage": self.usage.to_json(),
            "turns": self.turns,
            "counts": dict(self.counts),
            "seconds": round(self.seconds, 4),
            "trace": self.trace,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Json]) -> Finding:
        answer, usage, counts, evidence = data["answer"], data["usage"], data["counts"], data["evidence"]
        assert answer is None or isinstance(answer, Mapping)
        assert isinstance(usage, Mapping) and isinstance(counts, Mapping) and isinstance(evidence, list)
        if data["status"] not in STATUSES:
            raise ValueError(f"unknown status {data['status']!r}; expected one of {', '.join(STATUSES)}")
        return cls(
            task_id=str(data["task_id"]),
            judge_id=str(data["judge_id"]),
            repeat=int(str(data["repeat"])),
            sample_id=str(data["sample_id"]),
            editor=str(data["editor"]),
            criterion=str(data["criterion"]),
            status=data["status"],
            answer=answer_from_json(answer),
            reason=str(data["reason"]),
            evidence=tuple(Evidence(image=str(e["image"]), box=Box(*e["box"])) for e in evidence),
            usage=Usage.from_json(usage),
            turns=int(str(data["turns"])),
            counts={name: int(str(n)) for name, n in counts.items()},
            seconds=float(str(data["seconds"])),
            trace=None if data["trace"] is None else str(data["trace"]),
            target=None if data.get("target") is None else int(str(data["target"])),
        )


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """One run as a value.

    identity: what two visits to one folder must share (protocol, mode, digests of prompts, rubric and tools, budget).
    record: how this visit was made (version, limit, concurrency, paths); never compared.
    """

    identity: Mapping[str, Json]
    record: Mapping[str, Json] = field(default_factory=dict)

    def differs_from(self, other: RunSpec) -> list[tuple[str, Json, Json]]:
        """(field, ours, theirs) for every field of identity that differs; of an object each key, as "budget.max_turns"."""
        return list(_differences("", self.identity, other.identity))

    def to_json(self) -> dict[str, Json]:
        return {"identity": dict(self.identity), "record": dict(self.record)}


def _differences(prefix: str, ours: Mapping[str, Json], theirs: Mapping[str, Json]) -> Iterator[tuple[str, Json, Json]]:
    for name in sorted({*ours, *theirs}):
        a, b = ours.get(name), theirs.get(name)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            yield from _differences(f"{prefix}{name}.", a, b)
        elif a != b:
            yield f"{prefix}{name}", a, b
