"""What an invocation on a run would do and cost, without asking anybody and without writing anything.

How often a model calls tools is its own choice, so there are two ends: one call a task, and every turn used. Calls are
counted exactly, tokens roughly: one for every few characters, REPLY_TOKENS a reply, and a crop and words in each turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from editloupe.agent.judge import first_message
from editloupe.agent.recorder import TraceRecorder
from editloupe.agent.state import Context
from editloupe.backends.base import LMM
from editloupe.backends.prices import Prices
from editloupe.backends.token_estimate import CHARACTERS_A_TOKEN
from editloupe.chat import Message, Request, Usage
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded
from editloupe.imaging.views import make_view, size_of
from editloupe.protocols.base import looks_at_outputs
from editloupe.runs.batches import RunBatches
from editloupe.runs.judges import JudgeEntry
from editloupe.runs.outcome import added
from editloupe.runs.run import Driver
from editloupe.runs.schedule import ScheduledTask
from editloupe.runs.selection import selected
from editloupe.runs.setup import Respondent, Setup
from editloupe.runs.store import RunStore
from editloupe.tasks import Ask, Recipe
from editloupe.traces.record import TraceWriter
from editloupe.values import Json, View

REPLY_TOKENS: Final = 300
OBSERVATION_TOKENS: Final = 250
CROP_PX: Final = (768, 768)
WEIGHED: Final = 20
"""Questions whose lines are made, to know what files of all of them weigh."""


@dataclass(frozen=True, kw_only=True)
class CostBound:
    """One end of the range."""

    calls: int = 0
    input_tokens: int | None = 0
    """Of text and images; None if unknown."""
    output_tokens: int = 0
    cost_usd: float | None = 0.0
    """None if unknown."""

    def __add__(self, other: CostBound) -> CostBound:
        pairs = {name: (value, getattr(other, name)) for name, value in vars(self).items()}
        both: dict[str, Any] = {name: None if None in pair else sum(pair) for name, pair in pairs.items()}
        return CostBound(**both)

    def to_json(self) -> dict[str, Json]:
        """Return the fields as JSON."""
        return dict(vars(self))


@dataclass(frozen=True, kw_only=True)
class FirstWave:
    """What --batch would send first."""

    files: int
    bytes: int
    """Of all files, by the lines of some questions."""


@dataclass(frozen=True, kw_only=True)
class Ahead:
    """What an invocation would do, found without writing, and what that takes."""

    loaded: Loaded
    due: tuple[ScheduledTask, ...]
    """Tasks to be run, once for each repeat, blocked ones (a missing output) included."""
    asked: int
    """How many of them are put to a model."""
    reused: int
    """Findings of an earlier invocation that stand."""
    begun: int
    """Due tasks that go on from a trace."""
    grows: bool
    """True if further questions may follow from the answers; they are not counted here."""
    remarks: tuple[str, ...]
    """What the invocation adds to the run, and what it asks again."""
    least: CostBound
    """One call a task."""
    most: CostBound
    """Every turn, every reminder and the last word used."""
    wave: FirstWave | None = None
    """With --batch alone."""


def look_ahead(setup: Setup, out: Path, prices: Prices, *, entries: Sequence[JudgeEntry] = ()) -> Ahead:
    """Return what `drive` with the same arguments would do first. Nothing is written. Raises as `drive` does.

    entries: all judges of the command.
    """
    loaded = selected(setup.config, ImageStore(), outputs=looks_at_outputs(setup.protocol))
    setup.protocol.check(loaded.samples)
    store = RunStore(out)
    store.look(setup.spec, entries, loaded)
    driver = Driver(setup, store)
    schedule = driver.planned(loaded.samples)
    due = schedule.ready
    asked = [place.task for place in due if place.task.kind == "ask" and place.task.blocked is None]
    ends = [_ends(setup, task, prices) for task in asked]
    remarks = added(setup, store, {entry.judge.id for entry in entries}), driver.in_other_words(schedule)
    return Ahead(
        loaded=loaded,
        due=tuple(due),
        asked=len(asked),
        reused=schedule.reused,
        begun=sum(map(driver.goes_on, due)),
        grows=schedule.grows,
        remarks=tuple(filter(None, remarks)),
        least=sum((least for least, _ in ends), CostBound()),
        most=sum((most for _, most in ends), CostBound()),
        wave=_wave(RunBatches(setup, out), asked, ends) if setup.config.batch else None,
    )


def _wave(batches: RunBatches, asked: Sequence[Ask], ends: Sequence[tuple[CostBound, CostBound]]) -> FirstWave:
    """Return the files of the first wave, those of each role by themselves."""
    files = size = 0
    for role in {task.role for task in asked}:
        door = batches.asked[batches.setup.respondents[role].backend.uri].door
        own = [(task, least.input_tokens or 0) for task, (least, _) in zip(asked, ends, strict=True) if task.role == role]
        images, some = ImageStore(), own[:: max(1, len(own) // WEIGHED)]
        requests = [Request(messages=(_first_message(batches.setup, task, images),)) for task, _ in some]
        weighs = sum(door.size(request, images) for request in requests) * len(own) // len(some)
        files += door.limits.files(len(own), weighs, sum(tokens for _, tokens in own))
        size += weighs
    return FirstWave(files=files, bytes=size)


def _ends(setup: Setup, task: Ask, prices: Prices) -> tuple[CostBound, CostBound]:
    """Return both ends of one conversation."""
    respondent = setup.respondents[task.role]
    backend, most = respondent.backend, most_calls(respondent, task)
    if not backend.traits.is_lmm:
        return CostBound(calls=1), CostBound(calls=most)  # one who is no LMM is sent nothing
    message = _first_message(setup, task)
    turns = task.budget.max_turns if task.tools else 0
    return _talk(backend, message, prices, calls=1, turns=0), _talk(backend, message, prices, calls=most, turns=turns)


def _first_message(setup: Setup, task: Ask, images: ImageStore | None = None) -> Message:
    """Return the question.   images: where its pictures are made; None for their sizes alone."""
    respondent = setup.respondents[task.role]
    context = Context(
        backend=respondent.backend,
        judge=respondent.spec,
        toolbox=setup.toolbox,
        images=ImageStore(),
        recorder=TraceRecorder.resume(TraceWriter(None)),
        task=task,
    )

    def shown(recipe: Recipe) -> View:
        return View.whole(size_of(recipe)) if images is None else make_view(recipe, images)

    return first_message(context, {recipe.alias: shown(recipe) for recipe in task.views})


def _talk(backend: LMM, message: Message, prices: Prices, *, calls: int, turns: int) -> CostBound:
    """Return a conversation of so many calls, each of which sends all that was before it: a reply and, in turns, a crop."""
    sent, policy, rule = 0, backend.traits.image_policy, backend.traits.image_tokens
    sizes = [(part.image.width, part.image.height) for part in message.images]
    for call in range(calls):
        crops = min(call, turns)
        sent += len(message.text) // CHARACTERS_A_TOKEN + call * REPLY_TOKENS + crops * OBSERVATION_TOKENS
        sent += sum(rule.count(*policy.size(*size)) for size in (*sizes, *[CROP_PX] * crops)) if rule else 0
    known = rule is not None or not (sizes or turns)
    bound = CostBound(calls=calls, input_tokens=sent if known else None, output_tokens=calls * REPLY_TOKENS)
    usage = Usage(input_tokens=bound.input_tokens, output_tokens=bound.output_tokens)
    return replace(bound, cost_usd=prices.of(backend, usage) if known else None)


def most_calls(respondent: Respondent, task: Ask) -> int:
    """Return the calls of a task in which every turn calls a tool, every reminder is used, and a last word is asked for."""
    budget = task.budget
    if task.tools:
        reminders = budget.max_reminders if budget.max_turns or respondent.spec.remind_answers else 0
        return budget.max_turns + reminders + 1
    return 1 + budget.max_reminders
