"""What the loop carries from node to node (small JSON), and what it is given to work with (the runtime context)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias, TypedDict

from editloupe.backends.base import LMM
from editloupe.chat import Message, Reply, Request, Sampling, ToolCall, ToolProtocol
from editloupe.data.images import ImageStore
from editloupe.findings import Observation
from editloupe.tasks import Ask
from editloupe.tools.base import Toolbox
from editloupe.tools.cache import ToolCache
from editloupe.values import Json

Next: TypeAlias = Literal["think", "act", "remind", "conclude", "end"]


class LoopState(TypedDict):
    """JSON only: no pixel, no base64, no object. It survives any LangGraph checkpointer.

    history: message hashes, first to last.   views: image name → its Views (several for a picture of several panes).
    crops: pictures shown so far.   past_calls: canonical JSON of calls made.   calls: to be run by `act`.
    malformed: what looked like calls, with the reason.   answer: the text between the answer tags.
    turns: turns with at least one call.   last: tools have been withdrawn.   outcome: set when the loop is over.
    """

    history: list[str]
    views: dict[str, list[Json]]
    crops: int
    past_calls: list[str]
    calls: list[Json]
    malformed: list[Json]
    problem: str
    thought: str
    answer: str | None
    turns: int
    reminders: int
    last: bool
    usage: dict[str, Json]
    counts: dict[str, int]
    outcome: dict[str, Json] | None
    next: Next


class Recorder(Protocol):
    """Keeps the conversation and every call of one task; may answer from what is already recorded."""

    def add(self, message: Message, parent: str | None) -> str:
        """Record a message behind `parent` and return its hash."""

    def messages(self, history: Sequence[str]) -> tuple[Message, ...]:
        """The messages behind these hashes."""

    def complete(self, request: Request, head: str, live: Callable[[], Reply]) -> Reply:
        """The recorded reply to this request, else the live one, recorded. Raises what `live` raises."""

    def call_tool(self, call: ToolCall, live: Callable[[], ToolOutcome]) -> ToolOutcome:
        """The recorded outcome of this call, else the live one, recorded."""

    def note(self, text: str, data: Mapping[str, Json] | None = None) -> None:
        """A remark for readers of the trace."""


@dataclass(frozen=True, kw_only=True)
class ToolOutcome:
    """An observation, the names under which its pictures are shown, and the exception behind it where a tool crashed.

    cached: an equal call had been answered before, and the tool did not run.
    """

    observation: Observation
    aliases: tuple[str, ...] = ()
    crashed: str | None = None
    cached: bool = False


@dataclass(frozen=True, kw_only=True)
class Context:
    """The loop's dependencies, handed in through LangGraph's runtime context: swap `backend` to swap the backbone.

    started: the clock's reading when the task began.   clock: seconds; wall time, for `Budget.max_seconds`.
    cache: of what tools have said before; None runs every call.
    """

    backend: LMM
    toolbox: Toolbox
    images: ImageStore
    recorder: Recorder
    task: Ask
    clock: Callable[[], float]
    started: float
    sampling: Sampling = field(default_factory=Sampling)
    constrain_labels: bool = False
    tool_protocol: ToolProtocol = "text"
    cache: ToolCache | None = None

    @property
    def native(self) -> bool:
        """Whether this task's tools are called through the provider's own tool calling."""
        return self.tool_protocol == "native" and bool(self.task.tools)

    @property
    def constrained(self) -> bool:
        """Whether the last answer is held to what may be answered: asked for, and something that the backend can do."""
        traits = self.backend.traits
        can = traits.constrains_schema if self.task.answer.choices() is None else traits.constrains_choices
        return self.constrain_labels and can
