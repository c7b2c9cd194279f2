"""EdiVal: was each edit of a chain followed, by rules on detections and a model on what detections cannot tell.

Reproduced:
- EdiVal-IF (2.4, I.3): add, remove, replace, position and count by rules on the boxes of an open-vocabulary detector;
  colour and material by a model on crops of the object, text by a model that reads, background by a model's yes or no;
- the multi-turn mode, in which turn t is judged against the image after turn t - 1, and the complex mode, in which one
  prompt has all edits and each is judged against the base image (I.3);
- image success, the logical AND over a chain (2.4);
- EdiVal-CC and EdiVal-VQ, in `consistency.py` and `quality.py`, and the baseline CLIP_dir, in `direction.py`.

Differs:
- the prompts are ours;
- an object that the detector does not see before the edit gives no verdict (`miss`); paper and code count it as a failure;
- a model or a detector that fails gives no verdict, also with `if=official`, whose code takes that for "no" or for "nothing
  there";
- a chain is judged up to its first missing output (`chains`); the code leaves the whole chain out;
- detections are recorded above one low threshold, and rules apply theirs to what is recorded.

Each difference between the paper and the published code is an option of `rules.Rules`; docs/edival.md lists them.

Not covered:
- RAHF's plausibility and aesthetics.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Literal

from editloupe.answers import YES_NO, Answer, AnswerSpec, Choice, FreeText, Number, Text
from editloupe.prompts import render
from editloupe.protocols.base import BaseProtocol, Group, Known
from editloupe.protocols.edival import instructions, rules
from editloupe.protocols.edival.chain import PAPER, Chain, about_edit, gap, read_chain
from editloupe.protocols.edival.consistency import (
    ConsistencyOptions,
    consistency_metrics,
    plan_consistency,
    score_consistency,
)
from editloupe.protocols.edival.direction import DIRECTION_METRIC, DirectionOptions, plan_direction, score_direction
from editloupe.protocols.edival.instructions import Edit
from editloupe.protocols.edival.mode_rows import FOLLOWING, SUCCESS
from editloupe.protocols.edival.quality import QualityOptions, plan_quality, quality_metrics, score_quality
from editloupe.protocols.edival.rules import OPEN, Rules, SeenPair, Verdict
from editloupe.protocols.edival.sights import Sight, detect, given_boxes, looked, picture_of, sights_of, spelled
from editloupe.protocols.edival.tables import tables
from editloupe.replies import one_line
from editloupe.scores import NOT_JUDGED, Binary, Metric, Score
from editloupe.tasks import About, Ask, Budget, Measure, Recipe, Task
from editloupe.values import Box, Sample

NAME: Final = "edival"

ADDED: Final = "newly_added"
REPLACED: Final = "replaced"
ATTRIBUTE_CROP: Final = "attribute_in_crop"
ATTRIBUTE_WHOLE: Final = "attribute_in_image"
TEXT_CROP: Final = "text_in_crop"
TEXT_WHOLE: Final = "text_in_image"
BACKGROUND: Final = "background"
"""Questions of the role `judge`. What shows other pictures is another question."""
SHORT_NAME: Final = "short_name"
"""The question of the role `shorten`."""
SHORTEN: Final = "shorten"

_ATTRIBUTES: Final = {instructions.COLOR_ALTER: "Color", instructions.MATERIAL_ALTER: "Material"}


class EdiValOptions(Rules, ConsistencyOptions, QualityOptions, DirectionOptions):
    """What a run may set: how a model is asked, by which rules is judged, and what is measured beside."""

    mode: Literal["plain", "tool"] = "plain"
    """plain: a model has one look, as in the paper. tool: it is an agent with tools."""


class EdiVal(BaseProtocol):
    """Detections and questions, each where a rule needs it and what it depends on is known."""

    name = NAME
    paper = PAPER
    Options = EdiValOptions
    roles: ClassVar = {
        "judge": "answers yes or no, and reads text",
        SHORTEN: "shortens an object's name, without an image; with position_names=short alone",
    }

    tables = tables()

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        given: EdiValOptions = self.options
        # A run names no backend for a role that it does not ask.
        wanted = {"judge": True, SHORTEN: given.position_names == "short"}
        self.roles = {role: does for role, does in EdiVal.roles.items() if wanted[role]}  # type: ignore[misc]
        self.metrics = [
            Metric(
                id=FOLLOWING,
                name="Instruction following",
                short="IF",
                domain=Binary(),
                source="2.4, Eq. 1 and 2",
            ),
            Metric(id=SUCCESS, name="Image success", short="Success", domain=Binary(), source="2.4, Table 8"),
            *consistency_metrics(given),
            *quality_metrics(given),
            *([DIRECTION_METRIC] if given.direction else []),
        ]

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError for a sample that is no chain of edits, and for given boxes that cannot be read."""
        for sample in samples:
            read_chain(sample)
            for turn in range(len(sample.turns) + 1):
                given_boxes(sample, turn)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return what the verdicts rest on, and what is to be found out next."""
        for sample in group:
            chain, planned = read_chain(sample), dict[str, Task]()
            for index in range(len(chain.edits)):
                planned |= self._judged(sample, chain, index, known)[1]
            for plan in (plan_consistency, plan_quality, plan_direction):
                # Rules and consistency look for some of the same objects.
                planned |= {task.id: task for task in plan(self.name, sample, chain, known, self.options)}
            yield from planned.values()

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return for each edit whether it was followed, whether all edits up to it were, and what was measured."""
        for sample in group:
            chain = read_chain(sample)
            yield from self._scores(sample, chain, known)
            for score in (score_consistency, score_quality, score_direction):
                yield from score(sample, chain, known, self.options)

    def _scores(self, sample: Sample, chain: Chain, known: Known) -> Iterator[Score]:
        success: Verdict = Verdict(done=True, reason="")
        findings: tuple[str, ...] = ()
        for index in range(len(chain.edits)):
            verdict, tasks = self._judged(sample, chain, index, known)
            about = about_edit(sample, chain, index)
            given = (known.finding(task.metric, task.about) for task in tasks.values())
            # A verdict from elsewhere rests on no task of ours.
            own = tuple(f.task_id for f in (*given, known.finding(FOLLOWING, about)) if f is not None)
            dims = chain.dims(index)
            yield _score(FOLLOWING, about, verdict, findings=tuple(dict.fromkeys(own)), dims=dims)
            findings = tuple(dict.fromkeys((*findings, *own)))
            if success.done is not None:
                if verdict.done is None:
                    reason = f"edit {index + 1} has no verdict: {verdict.reason}" if verdict.reason else ""
                    success = Verdict(done=None, status=verdict.status, reason=reason)
                elif success.done and not verdict.done:
                    success = Verdict(done=False, reason=f"edit {index + 1} was not followed: {verdict.reason}")
            yield _score(SUCCESS, about, success, findings=findings, dims=dims)

    def _judged(self, sample: Sample, chain: Chain, index: int, known: Known) -> tuple[Verdict, dict[str, Task]]:
        """Return the verdict on an edit as far as it is known, and the tasks that it rests on or waits for, by id."""
        about = about_edit(sample, chain, index)
        given = known.finding(FOLLOWING, about)
        if given is not None and given.ending != "blocked":
            # A verdict from elsewhere, such as a result file, is taken as it is.
            done = _truth(given.answer)
            status = None if done is not None else "not_defined" if given.status == "ok" else given.status
            return Verdict(done=done, status=status, reason=given.reason), {}
        if (blocked := gap(sample, about.turn, self.options)) is not None:
            task = Measure(protocol=self.name, metric=FOLLOWING, about=about, measure="key", blocked=blocked)
            return Verdict(done=None, status=blocked[0], reason=blocked[1]), {task.id: task}
        case = _Case(protocol=self, sample=sample, chain=chain, index=index, known=known)
        try:
            verdict = case.verdict()
        except _Unsettled as unsettled:
            verdict = unsettled.verdict
        return verdict, case.tasks


class _Unsettled(Exception):
    """Nothing can be said of an edit yet, or at all."""

    def __init__(self, status: Any, reason: str = "") -> None:
        self.verdict = Verdict(done=None, status=status, reason=reason)
        super().__init__(reason)


@dataclass(kw_only=True)
class _Case:
    """One edit on its way to a verdict. What is needed is noted as a task; where it is not known, the way ends there."""

    protocol: EdiVal
    sample: Sample
    chain: Chain
    index: int
    known: Known
    tasks: dict[str, Task] = field(default_factory=dict)
    """By id, in the order in which they are needed."""

    @property
    def edit(self) -> Edit:
        return self.chain.edits[self.index]

    @property
    def rules(self) -> Rules:
        options: Rules = self.protocol.options
        return options

    @property
    def about(self) -> About:
        return about_edit(self.sample, self.chain, self.index)

    @property
    def after(self) -> int:
        """The turn of the image after the edit."""
        return self.chain.turn(self.index)

    @property
    def before(self) -> int:
        """The turn of the image before the edit; 0 for the base image."""
        return self.after - 1 if self.chain.mode == "multipass" else 0

    def verdict(self) -> Verdict:
        """Return the verdict. Raises _Unsettled where something is not known, or could not be found out."""
        match self.edit.edit_type:
            case instructions.SUBJECT_ADD:
                return self._add()
            case instructions.SUBJECT_REMOVE:
                return self._remove()
            case instructions.SUBJECT_REPLACE:
                return self._replace()
            case instructions.POSITION_CHANGE:
                return self._position()
            case instructions.COUNT_CHANGE:
                before, after = self._look((self.before, self.edit.target), (self.after, self.edit.target))
                return rules.count(before, after, due=self.edit.count or 0, rules=self.rules)
            case instructions.TEXT_CHANGE:
                return self._text()
            case instructions.BACKGROUND_CHANGE:
                return self._background()
        return self._attribute()

    def _add(self) -> Verdict:
        edit, options = self.edit, self.rules
        wanted = [(self.after, edit.new)]
        if edit.reference:
            wanted.append((self.before, edit.reference))
            if options.add_reference == "after":
                wanted.append((self.after, edit.reference))
        new, *others = self._look(*wanted)
        reference = (others[0], others[-1]) if others else None

        def judge(said: bool | None) -> Verdict:
            return rules.add(new, reference=reference, position=edit.position, said=said, rules=options)

        first = judge(None)
        if first is not OPEN:
            return first
        prompt = render("edival/added", object=one_line(edit.new))
        return judge(self._yes_no(ADDED, prompt, self._pictures()))

    def _remove(self) -> Verdict:
        target, options = self.edit.target, self.rules
        before, after = self._look((self.before, target), (self.after, target))
        verdict = rules.remove(before, after, rules=options)
        words = rules.words_again(target, options)
        if verdict.done is not False or not words or not rules.over(before, options.remove_threshold):
            return verdict
        again = dict(zip(words, self._look(*((self.after, word) for word in words)), strict=True))
        return rules.remove(before, after, again=again, rules=options)

    def _replace(self) -> Verdict:
        edit, options = self.edit, self.rules
        old, new = (rules.singular(name, options) for name in (edit.target, edit.new))
        wanted = [(self.before, old), (self.after, new)]
        if options.replace_by == "gone":
            wanted.append((self.after, old))
        was, there, *left = self._look(*wanted)

        def judge(said: bool | None) -> Verdict:
            return rules.replace((was, left[0] if left else None), there, said=said, rules=options)

        first = judge(None)
        if first is not OPEN:
            return first
        prompt = render("edival/replaced", object=one_line(edit.target), new=one_line(edit.new))
        return judge(self._yes_no(REPLACED, prompt, self._pictures()))

    def _position(self) -> Verdict:
        edit, options = self.edit, self.rules
        names = (edit.target, edit.reference)
        turns = (self.before, self.after) if rules.looks_before(options) else (self.after,)
        pairs = self._pairs(turns, names)

        def judge(counted: tuple[SeenPair, SeenPair] | None) -> Verdict:
            before = pairs[0] if len(pairs) == 2 else None
            return rules.position(before, pairs[-1], counted=counted, position=edit.position, rules=options)

        first = judge(None)
        # Counts can only speak against a move.
        if options.position_counts == "any" or not first.done:
            return first
        if options.position_names == "short":
            names = self._short_names(names)
        before, after = self._pairs((self.before, self.after), names)
        return judge((before, after))

    def _pairs(self, turns: tuple[int, ...], names: tuple[str, str]) -> list[SeenPair]:
        found = self._look(*((turn, name) for turn in turns for name in names))
        return [SeenPair(target=found[i], reference=found[i + 1]) for i in range(0, len(found), 2)]

    def _attribute(self) -> Verdict:
        edit, options = self.edit, self.rules
        if options.attributes == "whole":
            prompt = render("edival/attribute_whole", instruction=one_line(edit.sentence()))
            said = self._yes_no(ATTRIBUTE_WHOLE, prompt, self._pictures())
            return rules.attribute(None, said=said, rules=options)
        (before,) = self._look((self.before, edit.target))
        first = rules.attribute(before, said=None, rules=options)
        if first is not OPEN:
            return first
        box = rules.over(before, options.crop_threshold)[0].box
        views = tuple(
            self._crop(alias, turn, box) for alias, turn in (("Crop Before", self.before), ("Crop After", self.after))
        )
        attribute = _ATTRIBUTES[edit.edit_type]
        prompt = render("edival/attribute_crop", object=one_line(edit.target), attribute=attribute, new=one_line(edit.new))
        return rules.attribute(before, said=self._yes_no(ATTRIBUTE_CROP, prompt, views), rules=options)

    def _text(self) -> Verdict:
        edit, options = self.edit, self.rules
        before: list[Sight] | None = None
        after: list[Sight] | None = None
        if edit.target:
            both = options.text_object == "both"
            before, *others = self._look((self.before, edit.target), *([(self.after, edit.target)] if both else []))
            after = others[0] if others else None
        first = rules.text(before, after, new=edit.new, read=None, rules=options)
        if first is not OPEN:
            return first
        if before is None:
            metric, views = TEXT_WHOLE, self._pictures()[1:]
        else:
            box = rules.over(before, options.crop_threshold)[0].box
            metric, views = TEXT_CROP, (self._crop("Crop", self.after, box),)
        prompt = render("edival/read_text", crop=metric == TEXT_CROP, no_text=rules.NO_TEXT.upper())
        answer = self._ask(metric, prompt, views, FreeText())
        if not isinstance(answer, Text):
            raise _Unsettled("off_menu", f"{answer} is no text")
        return rules.text(before, after, new=edit.new, read=answer.text, rules=options)

    def _background(self) -> Verdict:
        edit, options = self.edit, self.rules
        if not edit.keep and options.background_unnamed == "failure":
            return rules.UNNAMED
        kept = None
        if options.background_objects == "needed":
            kept = dict(zip(edit.keep, self._look(*((self.after, name) for name in edit.keep)), strict=True))
        first = rules.background(kept, said=None, rules=options)
        if first is not OPEN:
            return first
        prompt = render("edival/background", background=one_line(edit.new))
        return rules.background(kept, said=self._yes_no(BACKGROUND, prompt, self._pictures()[1:]), rules=options)

    def _look(self, *wanted: tuple[int, str]) -> list[list[Sight]]:
        """Return what is seen of each phrase in the picture of its turn."""
        for turn, phrase in wanted:
            self._note(detect(self.protocol.name, self.sample, turn, phrase))
        found: list[list[Sight]] = []
        for turn, phrase in wanted:
            finding = looked(self.known, self.sample, turn, phrase)
            if finding is None:
                raise _Unsettled(NOT_JUDGED)
            sights = sights_of(finding)
            if sights is None:
                status = "input_error" if finding.status == "ok" else finding.status
                raise _Unsettled(status, f"{spelled(phrase)!r} could not be looked for: {finding.reason}".rstrip(": "))
            found.append(sights)
        return found

    def _yes_no(self, metric: str, prompt: str, views: tuple[Recipe, ...]) -> bool:
        """Return whether a model says yes."""
        anywhere = self.rules.yes == "anywhere"
        answer = self._ask(metric, prompt, views, FreeText() if anywhere else YES_NO)
        said = "yes" in answer.text.casefold() if isinstance(answer, Text) else _truth(answer)
        if said is None:
            raise _Unsettled("off_menu", f"{answer} is neither yes nor no")
        return said

    def _ask(self, metric: str, prompt: str, views: tuple[Recipe, ...], answer: AnswerSpec) -> Answer:
        task = Ask(
            protocol=self.protocol.name,
            metric=metric,
            about=self.about,
            prompt=prompt,
            views=views,
            tools=self.protocol.tools,
            answer=answer,
            budget=self.protocol.budget,
            rests_on=tuple(self.tasks),
        )
        return self._answers(task)[0]

    def _short_names(self, names: tuple[str, str]) -> tuple[str, str]:
        """Return the names without colour and material. A name is asked for once in a chain."""
        tasks = [
            Ask(
                protocol=self.protocol.name,
                metric=SHORT_NAME,
                about=About.of(self.sample, part=f"name: {spelled(name)}"),
                role=SHORTEN,
                prompt=render("edival/short_name", object=one_line(spelled(name))),
                answer=FreeText(max_words=10),
                budget=self.protocol.budget,
            )
            for name in names
        ]
        target, reference = (str(answer).strip("\"'[]“”‘’`., ") for answer in self._answers(*tasks))
        return target, reference

    def _answers(self, *tasks: Task) -> list[Answer]:
        """Return the answers to tasks, all of which are asked at once."""
        for task in tasks:
            self._note(task)
        found: list[Answer] = []
        for task in tasks:
            finding = self.known.finding(task.metric, task.about)
            if finding is None:
                raise _Unsettled(NOT_JUDGED)
            if finding.answer is None:
                raise _Unsettled(finding.status, finding.reason)
            found.append(finding.answer)
        return found

    def _note(self, task: Task) -> None:
        self.tasks[task.id] = task

    def _pictures(self) -> tuple[Recipe, ...]:
        """Return the whole images before and after the edit."""
        pictures = {
            "Image Before": picture_of(self.sample, self.before),
            "Image After": picture_of(self.sample, self.after),
        }
        return tuple(Recipe(alias=alias, origin=image) for alias, image in pictures.items() if image is not None)

    def _crop(self, alias: str, turn: int, box: Box) -> Recipe:
        """Return the view of a place, a box in fractions, in the picture of a turn. A small one is shown enlarged."""
        picture = picture_of(self.sample, turn)
        assert picture is not None  # an edit without its pictures is not judged
        size = {"width": picture.width, "height": picture.height}
        region = box.scaled(picture.width, picture.height).clipped(**size).rounded_out()
        return Recipe(alias=alias, origin=picture, op="crop", region=region)


def _truth(answer: Answer | None) -> bool | None:
    """Return what an answer says of yes and no, or of 1 and 0; None for any other."""
    if isinstance(answer, Choice):
        return {"yes": True, "no": False}.get(answer.name)
    return {1.0: True, 0.0: False}.get(answer.value) if isinstance(answer, Number) else None


def _score(metric: str, about: About, verdict: Verdict, **more: Any) -> Score:
    missing = None if verdict.done is not None else verdict.status or NOT_JUDGED
    value = None if verdict.done is None else float(verdict.done)
    return Score(**vars(about), metric=metric, value=value, missing=missing, reason=verdict.reason, **more)
