"""The events of a trace: pydantic, since they are what leaves and enters as bytes.

A trace is a header, then messages as a parent-hash chain, the model's and the tools' calls, notes, the finding, the end.
Images are named by their SHA-256 and lie in the run's blob folder.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

SCHEMA_VERSION = 1
"""Raised when an older reader would misread a newer trace."""


def now() -> str:
    """The time in UTC, ISO 8601 with milliseconds."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    time: str = Field(default_factory=now)


class Header(_Event):
    """First line: what is asked, who judges, with which tools."""

    kind: Literal["header"] = "header"
    version: int = SCHEMA_VERSION
    editloupe: str
    run: str
    task_id: str
    judge_id: str
    repeat: int
    task: dict[str, Any]
    judge: dict[str, Any]
    tools: list[dict[str, Any]]
    """The specifications offered, with each tool's version and the digest of its schema."""
    absent: dict[str, str]
    parent: dict[str, Any] | None = None
    """For a fork: the trace that it continues and the step where it parts."""


class MessageEvent(_Event):
    """One message; `hash` covers it and, through `parent`, all before it."""

    kind: Literal["message"] = "message"
    hash: str
    parent: str | None
    message: dict[str, Any]


class ModelCall(_Event):
    """One answered request. `head` is the hash of its last message; with the chain, it gives the whole request."""

    kind: Literal["model_call"] = "model_call"
    ordinal: int
    request_key: str
    head: str
    choices: list[str] | None
    reply: dict[str, Any]
    seconds: float


class ModelFailure(_Event):
    """A request that the endpoint did not answer; asked again when the task is taken up again."""

    kind: Literal["model_failure"] = "model_failure"
    ordinal: int
    request_key: str
    error: str
    message: str
    status: int | None


class ToolStarted(_Event):
    """A tool call that has begun; without its `tool_call` it runs again."""

    kind: Literal["tool_started"] = "tool_started"
    ordinal: int
    call: dict[str, Any]


class ToolResult(_Event):
    """A tool call that has ended, with what the model was shown and under which names."""

    kind: Literal["tool_call"] = "tool_call"
    ordinal: int
    call: dict[str, Any]
    observation: dict[str, Any]
    aliases: list[str]
    crashed: str | None = None
    """Type and text of an exception that the tool should not have raised."""
    cached: bool = False
    """The tool did not run: an equal call on equal images had been answered before in this run."""
    seconds: float


class Note(_Event):
    """A remark for readers: a reminder sent, an answer ignored, a resume."""

    kind: Literal["note"] = "note"
    text: str
    data: dict[str, Any] = Field(default_factory=dict)


class FindingEvent(_Event):
    """The outcome, as it stands in findings.jsonl."""

    kind: Literal["finding"] = "finding"
    finding: dict[str, Any]


class End(_Event):
    """Nothing follows, unless a pending task is taken up again."""

    kind: Literal["end"] = "end"


Event: TypeAlias = Annotated[
    Header | MessageEvent | ModelCall | ModelFailure | ToolStarted | ToolResult | Note | FindingEvent | End,
    Field(discriminator="kind"),
]

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Parses one line."""

KINDS = frozenset(
    {"header", "message", "model_call", "model_failure", "tool_started", "tool_call", "note", "finding", "end"}
)
