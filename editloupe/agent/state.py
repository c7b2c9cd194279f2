"""The state that the loop carries from node to node, and the context that it works with."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

# Pydantic, with which LangGraph's server describes a state, takes that of `typing` from Python 3.12 on.
from typing_extensions import TypedDict

from editloupe.agent.recorder import TraceRecorder
from editloupe.backends.base import LMM
from editloupe.chat import Sampling
from editloupe.data.images import ImageStore
from editloupe.findings import JudgeSpec
from editloupe.tasks import Ask
from editloupe.tools.base import Toolbox
from editloupe.tools.cache import ToolCache
from editloupe.values import Json

Next: TypeAlias = Literal["think", "act", "remind", "conclude", "end"]


class LoopState(TypedDict):
    """The state of the loop. It holds JSON only, no pixels or objects, so that any LangGraph checkpointer fits."""

    history: list[str]
    """Message hashes, first to last."""
    views: dict[str, list[Json]]
    """Image name → its Views; an image of several panes has several."""
    crops: int
    """Number of images that tools have shown."""
    past_calls: list[str]
    """Canonical JSON of all calls so far."""
    calls: list[Json]
    """Calls that `act` is to run."""
    malformed: list[Json]
    """What looks like a call and cannot be read, with the reason."""
    problem: str
    """What was wrong with the last reply."""
    thought: str
    """The last thought."""
    answer: str | None
    """Text between the answer tags, or the whole reply without tags and calls; None for nothing."""
    confidences: list[float | None]
    """How sure the judge is of each entry of its answer, by the reply's tokens; [] where that is not known."""
    turns: int
    """Number of turns with at least one call."""
    reminders: int
    """Number of reminders sent."""
    reminded: bool
    """Whether the last message of the user is a reminder."""
    last: bool
    """Whether no more calls are allowed."""
    held: bool
    """Whether the next reply is held to the answer's JSON schema."""
    usage: dict[str, Json]
    """Tokens so far (`chat.Usage`)."""
    counts: dict[str, int]
    """Counters for the finding, such as `tool_errors`."""
    outcome: dict[str, Json] | None
    """Status, answer and reason; None while the loop runs."""
    next: Next
    """The next node."""


def stopwatch(clock: Callable[[], float] = time.monotonic) -> Callable[[], float]:
    """Return a function that gives the seconds of a clock since now."""
    began = clock()
    return lambda: clock() - began


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the loop works with. Swap `backend` to swap the model."""

    backend: LMM
    judge: JudgeSpec
    """How the backend is asked."""
    toolbox: Toolbox
    images: ImageStore
    recorder: TraceRecorder
    """Records the conversation and every call. It may answer from a recording."""
    task: Ask
    repeat: int = 0
    """Which time the task is asked, from 0."""
    elapsed: Callable[[], float] = field(default_factory=stopwatch)
    """Returns seconds since the start of this session of the task; wall time, for `Budget.max_seconds`."""
    earlier: float = 0.0
    """Seconds of the task's earlier sessions, which a stop, a failure or a kill has ended."""
    cache: ToolCache | None = None
    """Earlier results of tools; None runs every call."""
    langsmith: bool | None = False
    """Whether LangGraph may send traces of the loop to LangSmith; None leaves it to LangGraph's own server."""

    @property
    def sampling(self) -> Sampling:
        """What is asked of the model in this repeat."""
        return self.judge.sampling.of_repeat(self.repeat)

    @property
    def native(self) -> bool:
        """Whether the tools are called through the provider's own tool calling."""
        return self.judge.tool_protocol == "native" and bool(self.task.tools)

    @property
    def holds(self) -> bool:
        """Whether a turn in which only an answer is expected is held to the answer's JSON schema."""
        judge = self.judge
        return judge.answers != "tags" and not judge.bare_replies and self.backend.traits.constrains_schema
