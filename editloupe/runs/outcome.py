"""An invocation on a run: what it adds, how far it is, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field

from editloupe.backends.base import LMM, reach
from editloupe.data.samples import Loaded
from editloupe.findings import Finding
from editloupe.protocols.base import never_scored
from editloupe.runs.budget import Ledger
from editloupe.runs.schedule import Schedule
from editloupe.runs.setup import Setup
from editloupe.runs.store import RunStore
from editloupe.scores import Score, protocol_faults


@dataclass(frozen=True, kw_only=True)
class Spent:
    """What an invocation has spent so far, and what is under way."""

    calls: int = 0
    in_flight: int = 0
    """Calls at the endpoint now."""
    retries: int = 0
    """Attempts of calls that were made again."""
    tokens: int = 0
    """Input and output, estimated where the endpoint does not tell."""
    cost_usd: float | None = None
    """None where no price is known."""
    waits_s: float = 0.0
    """Seconds until the endpoint is asked again, where it named a wait."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Where a run stands."""

    phase: str = "judging"
    """What is done now, in words: reading the data, loading weights, judging."""
    done: int = 0
    total: int = 0
    """Of the tasks that are known so far; it grows while findings make further tasks ready. 0 before the first is known."""
    failures: Mapping[str, int] = field(default_factory=dict)
    """Status → how many of those `done` are not ok, without rows that could not be read."""
    rejected: int = 0
    """Rows of the data that could not be read."""
    reused: int = 0
    """Of those `done`, findings of earlier invocations."""
    grows: bool = False
    """True if further tasks may follow from findings that are not there yet."""
    finding: Finding | None = None
    """What has just arrived."""
    remark: str = ""
    """What the user is to know before anything is asked. It comes by itself, with no word on how far the run is."""
    spent: Callable[[], Spent] = Spent
    """Returns what is spent at the moment of asking."""


Listener = Callable[[Progress], None]


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A run as it ended, for one judge and the samples asked."""

    store: RunStore
    setup: Setup
    loaded: Loaded
    findings: tuple[Finding, ...]
    """In the order of the samples, those of the other roles and of measures included; what a key says is none of them."""
    judged: tuple[Finding, ...]
    """Those that scores are made of."""
    scores: tuple[Score, ...] = field(repr=False)
    """Of all samples asked, those that are missing included."""
    asked: int
    reused: int
    """Findings of earlier invocations."""
    interrupted: bool
    seconds: float
    ledger: Ledger
    """What this invocation spent, and which budget ended it."""
    tool_calls: int = 0
    """Calls of tools in this invocation that ran."""
    cached: int = 0
    """Calls of tools that were answered from equal ones before."""
    waiting: int = 0
    """Questions whose answers batches have yet to give."""
    notes: tuple[str, ...] = ()
    """What a reader should know of the data and of how it was sent."""

    @property
    def whole(self) -> bool:
        """Whether every sample of the run was asked for, and not a part of it."""
        keys = {s.key for s in self.loaded.samples} | {r.key for r in self.loaded.rejected}
        return keys >= set(self.store.samples) | set(self.store.rejected)

    @property
    def unfinished(self) -> bool:
        """Whether the run was ended, or batches have yet to answer: nothing can be made of it before it goes on."""
        return self.interrupted or bool(self.ledger.refused) or self.waiting > 0

    @property
    def unscored(self) -> dict[str, str]:
        """Sample key → what the protocol's `score` raised, of the samples that have no score for that reason."""
        return protocol_faults(self.scores)

    @property
    def never_scored(self) -> list[str]:
        """Metrics that the protocol declares and never scored, though all that it asked has ended."""
        ended = self.findings and len(self.findings) == self.asked and not self.unscored
        return never_scored(self.setup.protocol, self.scores) if ended else []

    @property
    def unusable(self) -> int:
        """Of those asked, how many have no answer, or one of which no score could be made.

        A measure that is not defined on a pair has said so: that is no failure.
        """
        lost = self.unscored
        said = ({"ok"}, {"ok", "not_defined"})
        return self.asked - sum(f.status in said[f.role == "measure"] and f.sample_key not in lost for f in self.findings)

    @property
    def failed(self) -> int:
        """Of those asked, how many have no answer (those not yet judged included)."""
        return self.asked - sum(f.status == "ok" for f in self.findings)


def reach_new(setup: Setup, store: RunStore, reached: Callable[[LMM], None] = reach) -> None:
    """Try the addresses of those whom a run does not list yet: a mistyped one is never listed. Raises Unavailable."""
    listed = store.entries()
    for one in setup.respondents.values():
        if one.spec.id not in listed:
            reached(one.backend)


def added(setup: Setup, store: RunStore, others: Set[str]) -> str:
    """Return a remark where an invocation adds a judge to a run that others judged before; "" where it does not.

    others: ids of the other judges of this command.
    """
    names = store.judge_names()
    there = ", ".join(name for id_, name in names.items() if id_ not in {setup.judge.id, *others})
    if not there or setup.judge.id in names:
        return ""
    return (
        f"{store.folder} already holds findings of {there}; {setup.name} is another judge (by model or settings), "
        "added beside. Nothing there is replaced."
    )


def notes_of(setup: Setup, loaded: Loaded, schedule: Schedule, *, throttled: int) -> Iterator[str]:
    """Yield what a reader should know of the data, and of how it was asked.

    throttled: how often the endpoint refused a call for its rate.
    """
    yield from loaded.notes
    if left_off := sorted(getattr(setup.backend, "left_off", ())):
        tags = "; answers were asked for without a schema" if "answer_schema" in left_off else ""
        yield f"The endpoint refused {', '.join(left_off)}, which it was then asked without{tags}."
    crashes = [(finding.counts.get("tool_crashes", 0), finding.sample_id) for finding in schedule.findings]
    if first := next((sample for count, sample in crashes if count), None):
        total = sum(count for count, _ in crashes)
        yield f"Tools crashed (counted: {total}), first in sample {first}; `editloupe show` with this sample says how."
    if throttled:
        yield f"The endpoint refused calls for their rate {'once' if throttled == 1 else f'{throttled} times'}."
    yield from dict.fromkeys(problem.reason for problem in schedule.problems())
