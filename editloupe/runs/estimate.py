"""What a visit to a run would do and cost, without asking anybody and without writing anything.

How often a model calls tools is its own choice, so there are two ends: one call a task, and every turn used. Between them
lie all runs; where, only a few samples (`--limit`) tell. Calls are counted exactly, tokens by rough rules (`RULES`).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from editloupe.agent.judge import first_message
from editloupe.agent.state import Context
from editloupe.backends.base import LMM
from editloupe.backends.prices import Prices
from editloupe.backends.token_estimate import CHARACTERS_A_TOKEN
from editloupe.chat import Message, Usage
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.findings import PENDING
from editloupe.imaging.views import size_of
from editloupe.protocols.base import looks_at_outputs
from editloupe.runs.execute import selected, standing_in
from editloupe.runs.judges import Entry
from editloupe.runs.recorder import TraceRecorder
from editloupe.runs.schedule import Place, Schedule
from editloupe.runs.sent_sizes import SentTarget, sent_targets, shown_whole
from editloupe.runs.setup import Respondent, Setup
from editloupe.runs.store import RunStore
from editloupe.runs.worker import ends_the_same, trace_path
from editloupe.tasks import Ask
from editloupe.traces.record import TraceWriter
from editloupe.values import Json, View

REPLY_TOKENS: Final = 300
OBSERVATION_TOKENS: Final = 250
CROP_PX: Final = (768, 768)

RULES: Final = (
    f"a token for every {CHARACTERS_A_TOKEN} characters of text; {REPLY_TOKENS} tokens a reply, more from a model that "
    f"thinks at length; with every turn used, each turn adds an observation of {OBSERVATION_TOKENS} tokens and one picture "
    f"of {CROP_PX[0]}×{CROP_PX[1]} px; every call sends the whole conversation, and no provider's cache is counted on"
)


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What is to be done, found without writing."""

    loaded: Loaded
    due: tuple[Place, ...]
    """Tasks to be run, once for each repeat, blocked ones (a missing output) included."""
    reused: int
    """Findings of an earlier visit that stand."""
    begun: int
    """Due tasks that go on from a trace."""
    grows: bool
    """True if further questions may follow from the answers; they are not counted here."""

    @property
    def asked(self) -> tuple[Ask, ...]:
        """The tasks about which a model is asked; each as often as it is still to be asked."""
        return tuple(place.task for place in self.due if place.task.kind == "ask" and place.task.blocked is None)


@dataclass(frozen=True, kw_only=True)
class End:
    """One end of the range."""

    calls: int
    images: int
    """Pictures sent, again with each call."""
    text_tokens: int
    image_tokens: int | None
    """None if unknown."""
    output_tokens: int
    cost: float | None
    """In USD; None if unknown."""

    @property
    def input_tokens(self) -> int | None:
        """Tokens of text and images; None if unknown."""
        return None if self.image_tokens is None else self.text_tokens + self.image_tokens

    def to_json(self) -> dict[str, Json]:
        return {
            "calls": self.calls,
            "images": self.images,
            "text_tokens": self.text_tokens,
            "image_tokens": self.image_tokens,
            "input_tokens": self.input_tokens,
            "output_tokens": self.output_tokens,
            "cost_usd": self.cost,
        }


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """The calls, tokens and cost of a visit."""

    ahead: Ahead
    least: End
    """One call a task."""
    most: End
    """Every turn, every reminder and the last word used."""
    image_rule: str
    """How an image's tokens were counted; "" if no formula is known."""
    small: tuple[tuple[str, SentTarget], ...]
    """Targets that are sent under 16 px, with their sample's key."""


def look_ahead(setup: Setup, out: Path, *, redo: frozenset[str] = PENDING, entries: Iterable[Entry] = ()) -> Ahead:
    """Return what `execute` with the same arguments would do first. Nothing is written. Raises as `execute` does."""
    loaded = selected(setup.config, ImageStore(), outputs=looks_at_outputs(setup.protocol))
    setup.protocol.check(loaded.samples)
    store = RunStore.look(out, setup.spec, entries, loaded)
    schedule = Schedule(setup.protocol, loaded.samples, setup.repeats, standing_in(store, setup, redo))
    due = schedule.ready

    def begun(place: Place) -> bool:
        before = store.findings.get((place.task.id, setup.judge_of(place.task).id, place.repeat))
        path = trace_path(out, setup.judge_of(place.task).id, place.task.id, place.repeat)
        return path.exists() and not (before is not None and ends_the_same(before))

    return Ahead(loaded=loaded, due=tuple(due), reused=schedule.reused, begun=sum(map(begun, due)), grows=schedule.grows)


def estimate(setup: Setup, ahead: Ahead, prices: Prices) -> Estimate:
    """Return the calls, tokens and cost of what is ahead, of all roles together."""
    ends = []
    for role, respondent in setup.respondents.items():
        tasks = [task for task in ahead.asked if task.role == role]
        ends.append((respondent, *_ends(setup, respondent, tasks, prices)))
    rule, policy = setup.backend.traits.image_tokens, setup.backend.traits.image_policy
    whole = {task.about.key for task in ahead.asked if shown_whole(task)}
    shown = [sample for sample in ahead.loaded.samples if sample.key in whole]
    small = [(sample.key, target) for sample in shown for target in sent_targets(sample, policy) if target.small]
    return Estimate(
        ahead=ahead,
        least=_together([(respondent.backend, least) for respondent, least, _ in ends]),
        most=_together([(respondent.backend, most) for respondent, _, most in ends]),
        image_rule="" if rule is None else rule.rule,
        small=tuple(small),
    )


def _ends(setup: Setup, respondent: Respondent, tasks: Sequence[Ask], prices: Prices) -> tuple[End, End]:
    rule, policy = respondent.backend.traits.image_tokens, respondent.backend.traits.image_policy
    crop = 0 if rule is None else rule.count(*policy.size(*CROP_PX))
    least, most = _Sum(), _Sum()
    for task in tasks:
        message, offered = _first_message(setup, respondent, task)
        text = (len(message.text) + offered) // CHARACTERS_A_TOKEN
        sizes = [policy.size(part.image.width, part.image.height) for part in message.images]
        pictures = 0 if rule is None else sum(rule.count(*size) for size in sizes)
        least.add(1, text=text, images=len(sizes), image_tokens=pictures, crop_tokens=crop, turns=0)
        turns = task.budget.max_turns if task.tools else 0
        calls = most_calls(respondent, task)
        most.add(calls, text=text, images=len(sizes), image_tokens=pictures, crop_tokens=crop, turns=turns)
    return _end(least, respondent.backend, prices), _end(most, respondent.backend, prices)


def total(judges: Sequence[tuple[Setup, Estimate]]) -> tuple[End, End]:
    """Return both ends of several judges together. What is not known of one is not known of all.

    A judge that is no LMM is sent nothing, and adds its calls alone.
    """
    return _together([(s.backend, e.least) for s, e in judges]), _together([(s.backend, e.most) for s, e in judges])


def most_calls(respondent: Respondent, task: Ask) -> int:
    """Return the calls of a task in which every turn calls a tool, every reminder is used, and a last word is asked for."""
    budget = task.budget
    if task.tools:
        return budget.max_turns + budget.max_reminders + 1 if budget.max_turns else 1
    held = respondent.spec.constrain_labels and respondent.backend.traits.constrains_choices
    return 1 + budget.max_reminders + held


@dataclass
class _Sum:
    calls: int = 0
    images: int = 0
    text: int = 0
    image_tokens: int = 0
    output: int = 0

    def add(self, calls: int, *, text: int, images: int, image_tokens: int, crop_tokens: int, turns: int) -> None:
        """Add a conversation of so many calls, each of which sends all that was before it."""
        for call in range(calls):
            seen = min(call, turns)
            self.text += text + call * REPLY_TOKENS + seen * OBSERVATION_TOKENS
            self.images += images + seen
            self.image_tokens += image_tokens + seen * crop_tokens
        self.calls += calls
        self.output += calls * REPLY_TOKENS


def _end(total: _Sum, backend: LMM, prices: Prices) -> End:
    known = backend.traits.image_tokens is not None or not total.images
    usage = Usage(input_tokens=total.text + total.image_tokens, output_tokens=total.output)
    priced = known or not backend.traits.is_lmm
    return End(
        calls=total.calls,
        images=total.images,
        text_tokens=total.text,
        image_tokens=total.image_tokens if known else None,
        output_tokens=total.output,
        cost=prices.of(backend, usage) if priced else None,
    )


def _together(judges: Sequence[tuple[LMM, End]]) -> End:
    sent = [end for backend, end in judges if backend.traits.is_lmm]
    costs = [end.cost for end in sent]
    images = [end.image_tokens for end in sent]
    return End(
        calls=sum(end.calls for _, end in judges),
        images=sum(end.images for end in sent),
        text_tokens=sum(end.text_tokens for end in sent),
        image_tokens=None if None in images else sum(filter(None, images)),
        output_tokens=sum(end.output_tokens for end in sent),
        cost=None if None in costs else sum(filter(None, costs), 0.0),
    )


def _first_message(setup: Setup, respondent: Respondent, task: Ask) -> tuple[Message, int]:
    """Return the task's first message, and the characters of natively offered tools beside it."""
    context = Context(
        backend=respondent.backend,
        judge=respondent.spec,
        toolbox=setup.toolbox,
        images=ImageStore(),
        recorder=TraceRecorder.resume(TraceWriter(None)),
        task=task,
    )
    views: Mapping[str, View] = {recipe.alias: View.whole(size_of(recipe)) for recipe in task.views}
    specs = setup.toolbox.specs(task.tools) if context.native else ()
    return first_message(context, views), sum(len(json.dumps(spec.to_json())) for spec in specs)
