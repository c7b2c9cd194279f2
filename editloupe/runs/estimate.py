"""What a visit to a run would do and cost, without asking anybody and without writing anything.

How often a model calls tools is its own choice, so there are two ends: one call a task, and every turn used. Between them
lie all runs; where, only a few samples (`--limit`) tell. Calls are counted exactly, tokens by rough rules (`RULES`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from editloupe.agent.judge import first_message
from editloupe.agent.state import Context
from editloupe.backends.prices import Prices
from editloupe.backends.token_estimate import CHARACTERS_A_TOKEN
from editloupe.chat import Message, Usage
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.records import PENDING, JudgeTask
from editloupe.runs.judges import Entry
from editloupe.runs.plan import Due, due_tasks, places_of, selected, tasks_of
from editloupe.runs.replay import TraceTape
from editloupe.runs.spec import Bench, Source
from editloupe.runs.store import RunStore
from editloupe.runs.views import size_of
from editloupe.runs.wire import SentTarget, sent_targets
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
    """What is to be done, found without writing.

    due: tasks to be run, once for each repeat, blocked ones (a missing output) included.
    reused: findings of an earlier visit that stand.   begun: due tasks that go on from a trace.
    """

    loaded: Loaded
    due: tuple[Due, ...]
    reused: int
    begun: int

    @property
    def asked(self) -> tuple[JudgeTask, ...]:
        """The tasks about which a model is asked; each as often as it is still to be asked."""
        return tuple(due.task for due in self.due if due.task.blocked is None)


@dataclass(frozen=True, kw_only=True)
class End:
    """One end of the range. image_tokens, cost: None where unknown; images: pictures sent, again with each call."""

    calls: int
    images: int
    text_tokens: int
    image_tokens: int | None
    output_tokens: int
    cost: float | None

    @property
    def input_tokens(self) -> int | None:
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
    """least: one call a task.   most: every turn, every reminder and the last word used.

    image_rule: how an image's tokens were counted; "" where no formula is known.   small: targets that are sent under
    16 px, with their sample's key.
    """

    ahead: Ahead
    least: End
    most: End
    image_rule: str
    small: tuple[tuple[str, SentTarget], ...]


def look_ahead(
    bench: Bench, source: Source, out: Path, *, redo: frozenset[str] = PENDING, entries: Iterable[Entry] = ()
) -> Ahead:
    """What `execute` with the same arguments would do. Raises what it raises before anything is spent; writes nothing."""
    loaded = selected(source, ImageStore())
    bench.protocol.check(loaded.samples)
    store = RunStore.look(out, bench.spec, loaded, entries)
    places = places_of(tasks_of(bench, loaded), bench.settings.repeats.count)
    due, standing = due_tasks(places, store, bench.judge.id, redo)
    begun = sum(not d.anew and store.trace_path(bench.judge.id, d.task.id, d.repeat).exists() for d in due)
    return Ahead(loaded=loaded, due=tuple(due), reused=len(standing), begun=begun)


def estimate(bench: Bench, ahead: Ahead, prices: Prices) -> Estimate:
    """The calls, tokens and cost of what is ahead."""
    rule, policy = bench.backend.traits.image_tokens, bench.backend.traits.image_policy
    crop = 0 if rule is None else rule.count(*policy.size(*CROP_PX))
    least, most = _Sum(), _Sum()
    for task in ahead.asked:
        message, offered = _first_message(bench, task)
        text = (len(message.text) + offered) // CHARACTERS_A_TOKEN
        sizes = [policy.size(part.image.width, part.image.height) for part in message.images]
        pictures = 0 if rule is None else sum(rule.count(*size) for size in sizes)
        least.add(1, text=text, images=len(sizes), image_tokens=pictures, crop_tokens=crop, turns=0)
        turns = task.budget.max_turns if task.tools else 0
        calls = most_calls(bench, task)
        most.add(calls, text=text, images=len(sizes), image_tokens=pictures, crop_tokens=crop, turns=turns)
    # The oracle mode shows targets in crops that are enlarged where they are small.
    whole = ahead.loaded.samples if bench.settings.mode != "oracle" else ()
    small = [(sample.key, target) for sample in whole for target in sent_targets(sample, policy) if target.small]
    return Estimate(
        ahead=ahead,
        least=_end(least, bench, prices),
        most=_end(most, bench, prices),
        image_rule="" if rule is None else rule.rule,
        small=tuple(small),
    )


def total(judges: Sequence[tuple[Bench, Estimate]]) -> tuple[End, End]:
    """Both ends of several judges together. What is not known of one is not known of all; one that is no LMM is sent
    nothing, and adds its calls alone.
    """
    return _together([(b, e.least) for b, e in judges]), _together([(b, e.most) for b, e in judges])


def most_calls(bench: Bench, task: JudgeTask) -> int:
    """The calls of a task in which every turn calls a tool, every reminder is used, and a last word is asked for."""
    budget = task.budget
    if task.tools:
        return budget.max_turns + budget.max_reminders + 1 if budget.max_turns else 1
    held = bench.settings.constrain_labels and bench.backend.traits.constrains_choices
    return 1 + budget.max_reminders + held


@dataclass
class _Sum:
    calls: int = 0
    images: int = 0
    text: int = 0
    image_tokens: int = 0
    output: int = 0

    def add(self, calls: int, *, text: int, images: int, image_tokens: int, crop_tokens: int, turns: int) -> None:
        """A conversation of so many calls, each of which sends all that was before it."""
        for call in range(calls):
            seen = min(call, turns)
            self.text += text + call * REPLY_TOKENS + seen * OBSERVATION_TOKENS
            self.images += images + seen
            self.image_tokens += image_tokens + seen * crop_tokens
        self.calls += calls
        self.output += calls * REPLY_TOKENS


def _end(total: _Sum, bench: Bench, prices: Prices) -> End:
    known = bench.backend.traits.image_tokens is not None or not total.images
    usage = Usage(input_tokens=total.text + total.image_tokens, output_tokens=total.output)
    priced = known or not bench.backend.traits.is_lmm
    return End(
        calls=total.calls,
        images=total.images,
        text_tokens=total.text,
        image_tokens=total.image_tokens if known else None,
        output_tokens=total.output,
        cost=prices.of(bench.backend, usage) if priced else None,
    )


def _together(judges: Sequence[tuple[Bench, End]]) -> End:
    sent = [end for bench, end in judges if bench.backend.traits.is_lmm]
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


def _first_message(bench: Bench, task: JudgeTask) -> tuple[Message, int]:
    """The task's first message, and the characters of natively offered tools beside it."""
    context = Context(
        backend=bench.backend,
        toolbox=bench.toolbox,
        images=ImageStore(),
        tape=TraceTape(TraceWriter(None)),
        task=task,
        clock=time.monotonic,
        started=0.0,
        constrain_labels=bench.settings.constrain_labels,
        tool_protocol=bench.tool_protocol,
    )
    views: Mapping[str, View] = {recipe.alias: View.whole(size_of(recipe)) for recipe in task.views}
    specs = bench.toolbox.specs(task.tools) if context.native else ()
    return first_message(context, views), sum(len(json.dumps(spec.to_json())) for spec in specs)
