"""The events of a trace, as pydantic models: they are read from and written to files.

A trace is a header, then messages as a parent-hash chain, model calls, tool calls, notes, the finding and the end, which
holds the digest of all lines before it. Images are named by their SHA-256 and lie in the run's blob folder.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from editloupe.chat import Message, Reply
from editloupe.findings import Finding

SCHEMA_VERSION = 3
"""Increased when an older reader would misread a newer trace."""


class _Event(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    time: str = Field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="milliseconds"))
    """UTC, ISO 8601 with milliseconds."""


class Header(_Event):
    """The first line: the task, the judge and the tools."""

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
    """The tools offered: name, version and digest of the schema."""
    absent: dict[str, str]
    """Tools that are asked for and absent: name → reason."""
    parent: dict[str, Any] | None = None
    """For a fork: the trace that it continues and the step at which it begins (`runs.lineage.Parent`)."""


class MessageEvent(_Event):
    """One message. `hash` covers it and, through `parent`, all messages before it."""

    kind: Literal["message"] = "message"
    hash: str
    parent: str | None
    message: dict[str, Any]

    @cached_property
    def content(self) -> Message:
        """The message, parsed once. Raises as `Message.from_json`."""
        return Message.from_json(self.message)


class ModelCall(_Event):
    """One answered request. `head` is the hash of its last message; with the chain, it gives the whole request."""

    kind: Literal["model_call"] = "model_call"
    ordinal: int
    request_key: str
    head: str
    held: bool = False
    """Whether the reply was held to the answer's JSON schema."""
    choices: list[str] | None = None
    """In traces of 0.2.0: the answers that the reply was held to."""
    reply: dict[str, Any]
    seconds: float

    @cached_property
    def content(self) -> Reply:
        """The reply, parsed once. Raises as `Reply.from_json`."""
        return Reply.from_json(self.reply)


class ModelFailure(_Event):
    """A request that the endpoint did not answer. A resume sends it again."""

    kind: Literal["model_failure"] = "model_failure"
    ordinal: int
    request_key: str
    error: str
    message: str
    status: int | None


class ToolStarted(_Event):
    """A tool call that has begun. Without a `tool_call` event of the same ordinal it runs again."""

    kind: Literal["tool_started"] = "tool_started"
    ordinal: int
    call: dict[str, Any]


class ToolResult(_Event):
    """A tool call that has ended, with the observation and the names of its images."""

    kind: Literal["tool_call"] = "tool_call"
    ordinal: int
    call: dict[str, Any]
    observation: dict[str, Any]
    aliases: list[str]
    crashed: str | None = None
    """Type and text of an unexpected exception of the tool."""
    cached: bool = False
    """Whether the result of an equal call on equal images was used, and the tool did not run."""
    seconds: float


class Note(_Event):
    """A remark for readers: a reminder that was sent, an answer that was ignored."""

    kind: Literal["note"] = "note"
    text: str
    data: dict[str, Any] = Field(default_factory=dict)


class FindingEvent(_Event):
    """The finding, as in findings.jsonl."""

    kind: Literal["finding"] = "finding"
    finding: dict[str, Any]

    @cached_property
    def content(self) -> Finding:
        """The finding, parsed once. Raises as `Finding.from_json`."""
        return Finding.from_json(self.finding)


class End(_Event):
    """The end. Events follow only if a pending task is resumed."""

    kind: Literal["end"] = "end"
    finding_digest: str | None = None
    """Digest of the finding, as its line in findings.jsonl has it. None where somebody took it away."""
    lines_digest: str | None = None
    """SHA-256 of all lines before this one (`traces.read.lines_digest`). None where somebody took it away."""


Event: TypeAlias = Annotated[
    Header | MessageEvent | ModelCall | ModelFailure | ToolStarted | ToolResult | Note | FindingEvent | End,
    Field(discriminator="kind"),
]

EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Parses one event."""
