"""EdiVal: was each edit of a chain followed, by rules on detections and a model on what detections cannot tell.

Reproduced: EdiVal-IF (2.4, I.3), add, remove, replace, position and count by rules on the boxes of an open-vocabulary
detector, color and material by a model on crops of the object, text by a model that reads, background by a yes or no; the
multi-turn mode, in which turn t is judged against the image after turn t - 1, and the complex mode, in which one prompt has
all edits; image success, the logical AND over a chain (2.4); EdiVal-CC and EdiVal-VQ, in `consistency.py` and `quality.py`.

Differs: the prompts are ours; an object that the detector does not see before the edit gives no verdict (`miss`), where
paper and code count a failure; a model or a detector that fails gives no verdict, also with `rules=official`; a chain is
judged up to its first missing output (`chains`), where the code leaves it out; detections are recorded above one low
threshold, and rules apply theirs to what is recorded. Paper and published code stand side by side in `rules.toml`.

Not covered: RAHF's plausibility and aesthetics; CLIP_dir, whose texts and threshold the paper does not name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal

from editloupe.protocols.base import BaseProtocol, Group, Known, NoValue, Options, score_of
from editloupe.protocols.edival.case import SHORTEN, Case, truth
from editloupe.protocols.edival.chain import PAPER, Chain, Dims, about_edit, gap, read_chain
from editloupe.protocols.edival.consistency import consistency_metrics, plan_consistency, score_consistency
from editloupe.protocols.edival.quality import plan_quality, quality_metrics, score_quality
from editloupe.protocols.edival.rules import RulesOption
from editloupe.protocols.edival.sights import given_boxes
from editloupe.protocols.edival.tables import FOLLOWING, SUCCESS, tables
from editloupe.protocols.edival.verdicts import TurnVerdict, followed
from editloupe.scores import NOT_JUDGED, Binary, Metric, Score
from editloupe.tasks import About, Budget, Task
from editloupe.values import Json, Sample

NAME: Final = "edival"


class EdiValOptions(Options):
    """What a run may set."""

    gone: ClassVar[Mapping[str, Json]] = {"direction": False}
    rules: RulesOption = "paper"  # type: ignore[assignment]
    """paper: the paper's text. official: the published code, for numbers beside the published ones. Or a .toml file of
    your own."""
    mode: Literal["plain", "tool"] = "plain"
    """plain: a model has one look, as in the paper. tool: it is an agent with tools."""
    cc: Literal["none", "l1", "dino", "all"] = "all"
    """Consistency of what no edit touched: by an encoder (dino), by pixels (l1), both (all), or none."""
    quality: Literal["none", "statistics", "preference", "all"] = "statistics"
    """Statistics of the image (luminance, saturation, sharpness, contrast), human preference (HPSv3, by a server that
    `--set preference=…` names), both, or none."""


class EdiVal(BaseProtocol):
    """Detections and questions, each where a rule needs it and what it depends on is known."""

    name = NAME
    paper = PAPER
    Options = EdiValOptions
    roles: ClassVar = {
        "judge": "answers yes or no, and reads text",
        SHORTEN: "shortens an object's name, without an image; where the rule position_names is short",
    }

    tables = tables()

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        given: EdiValOptions = self.options
        # A run names no backend for a role that it does not ask.
        wanted = {"judge": True, SHORTEN: given.rules.position_names == "short"}
        self.roles = {role: does for role, does in EdiVal.roles.items() if wanted[role]}  # type: ignore[misc]
        self.metrics = [
            Metric(id=FOLLOWING, name="Instruction following", short="IF", domain=Binary(), source="2.4, Eq. 1 and 2"),
            Metric(id=SUCCESS, name="Image success", short="Success", domain=Binary(), source="2.4, Table 8"),
            *consistency_metrics(given.cc),
            *quality_metrics(given.quality),
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
            measures: list[Task] = [
                *plan_consistency(self, sample, chain, known),
                *plan_quality(self, sample),
            ]
            # Rules and consistency look for some of the same objects.
            planned |= {task.id: task for task in measures}
            yield from planned.values()

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return for each edit whether it was followed, whether all edits up to it were, and what was measured."""
        for sample in group:
            chain = read_chain(sample)
            yield from self._scores(sample, chain, known)
            yield from score_consistency(self, sample, chain, known)
            yield from score_quality(self, sample, chain, known)

    def _scores(self, sample: Sample, chain: Chain, known: Known) -> Iterator[Score]:
        success = TurnVerdict(done=True, reason="")
        findings: dict[str, None] = {}
        for index in range(len(chain.edits)):
            verdict, _, own = self._judged(sample, chain, index, known)
            about, dims = about_edit(sample, chain, index), chain.dims(index)
            yield _score(FOLLOWING, about, dims, verdict, own)
            findings |= own
            success = _both(success, verdict, index + 1)
            yield _score(SUCCESS, about, dims, success, findings)

    def _judged(
        self, sample: Sample, chain: Chain, index: int, known: Known
    ) -> tuple[TurnVerdict, Mapping[str, Task], dict[str, None]]:
        """Return the verdict on an edit as far as it is known, the tasks that it waits for, and the findings behind it."""
        about = about_edit(sample, chain, index)
        given = known.finding(FOLLOWING, about)
        own = {} if given is None else {given.task_id: None}
        if given is not None and given.ending != "blocked":
            # A verdict from elsewhere, such as a result file, is taken as it is.
            done = truth(given.answer)
            status = None if done is not None else "not_defined" if given.status == "ok" else given.status
            return TurnVerdict(done=done, status=status, reason=given.reason), {}, own
        if (blocked := gap(sample, about.turn, self.options.rules)) is not None:
            task = self.measurement(FOLLOWING, about, "key", blocked=blocked)
            return TurnVerdict(done=None, status=blocked[0], reason=blocked[1]), {task.id: task}, own
        case = Case(protocol=self, sample=sample, known=known, chain=chain, index=index)
        try:
            verdict = followed(case)
        except NoValue as unsettled:
            verdict = TurnVerdict(done=None, status=unsettled.status, reason=unsettled.reason)
        return verdict, case.tasks, case.found


def _both(before: TurnVerdict, edit: TurnVerdict, number: int) -> TurnVerdict:
    """Return whether all edits so far were followed. After an edit without a verdict, nothing can be said of the chain."""
    if before.done is None:
        return before
    if edit.done is None:
        reason = f"edit {number} has no verdict: {edit.reason}" if edit.reason else ""
        return TurnVerdict(done=None, status=edit.status, reason=reason)
    if before.done and not edit.done:
        return TurnVerdict(done=False, reason=f"edit {number} was not followed: {edit.reason}")
    return before


def _score(metric: str, about: About, dims: Dims, verdict: TurnVerdict, findings: Iterable[str]) -> Score:
    none = NoValue(verdict.status or NOT_JUDGED)
    value = none if verdict.done is None else float(verdict.done)
    return score_of(metric, about, value, reason=verdict.reason, findings=tuple(findings), dims=dims)
