"""UnicVerify: did an edit change anything, what was really done, and how well does that match what was asked.

UnicEdit-10M's post-verification. The role `verify` looks at both images; the role `parse` reads texts alone.

Reproduced:
- verification (section C): whether anything changed, and the restated instruction;
- Eq. 5, the atomic tasks of an instruction, and Eq. 6, alignment accuracy with w = 0.5, not clamped;
- the classes Normal, No Edit and Hallucination (section C), beside people's where the data has them;
- the comparison of ways to find No Edit (section B.2, Figure 6): the model, SSIM, and our own differences.

Differs:
- any LMM plays the verifier: the weights of Qwen-Verify are not published; the prompts are ours;
- Eq. 6 has no value where the reference has no task, as in a No Edit pair; the paper prints numbers there;
- when two tasks are the same is open in the paper: a model matches them, or equal texts (`matching`);
- which pair is a Hallucination by the model is open too (`hallucination`);
- a rule may settle No Edit in place of a model (`rules`).

Not covered:
- the third kind of noise, bad anatomy and low aesthetics, and the training of the verifier.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import AfterValidator, Field

from editloupe.answers import LabelRule, Number, Record, RecordOf, fold
from editloupe.config import Words
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.measures.base import open_measure
from editloupe.prompts import render
from editloupe.protocols.base import BaseProtocol, Group, Known, Options, Paper, missing_output
from editloupe.protocols.unicverify.alignment import WEIGHT, PairsError, TaskMatch, by_pairs, strictly
from editloupe.protocols.unicverify.tables import CLASSES, HALLUCINATION, NO_EDIT, NORMAL, tables
from editloupe.replies import one_line
from editloupe.scores import Binary, Levels, Metric, Real, Score
from editloupe.tasks import About, Ask, Budget, Measure, Recipe, Task
from editloupe.values import Json, Sample

VERIFY: Final = "verify"
VERIFICATION: Final = "verification"
"""The question of the role `verify`."""
PARSE: Final = "parse"
ATOMIC_TASKS: Final = "atomic_tasks"
"""The question of the role `parse`."""
AS_ASKED: Final = "as asked"
"""The part of `atomic_tasks` that compares with the editor's instruction, where people wrote another reference."""

CHANGED: Final = "is_changed"
EDIT_CLASS: Final = "edit_class"
ALIGNMENT: Final = "alignment_accuracy"
DIFFERENCES: Final = "differences"
SSIM: Final = "ssim"

REFERENCE: Final = "reference_instruction"
"""Column with what people say was really done."""


def _object(required: Mapping[str, Json], **optional: Json) -> dict[str, Json]:
    properties: dict[str, Json] = {**required, **optional}
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_TEXT: Final[dict[str, Json]] = {"type": "string", "minLength": 1}
_TASKS: Final[dict[str, Json]] = {"type": "array", "items": _object({"object": _TEXT, "action": _TEXT})}
_PAIR: Final[dict[str, Json]] = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2}

VERIFICATION_ANSWER: Final = RecordOf(
    schema=_object({CHANGED: {"type": "boolean"}, "instruction": {"type": "string"}}, reason={"type": "string"})
)
TASKS_ANSWER: Final = RecordOf(schema=_object({"reference": _TASKS, "restated": _TASKS}))
PAIRS_ANSWER: Final = RecordOf(
    schema=_object({"reference": _TASKS, "restated": _TASKS, "pairs": {"type": "array", "items": _PAIR}})
)


def _methods(words: tuple[str, ...]) -> tuple[str, ...]:
    known = ("lmm", DIFFERENCES, SSIM)
    if unknown := [word for word in words if word not in known]:
        raise ValueError(f"unknown way to find No Edit {unknown[0]!r}; expected some of {', '.join(known)}")
    return tuple(name for name in known if name in words)


class UnicVerifyOptions(Options):
    """What a run may set."""

    mode: Literal["plain", "tool"] = "plain"
    """plain: one look, as in the paper. tool: the verifier is an agent with tools."""
    matching: Literal["lmm", "strict", "none"] = "lmm"
    """Who says which atomic tasks are the same: the parser, or equal texts (strict). none: nobody parses."""
    w: Annotated[float, Field(ge=0)] = WEIGHT
    """Eq. 6: what an extra task costs, in tasks."""
    hallucination: Literal["any", "all"] = "any"
    """any: one task that was left out or added makes a changed pair a Hallucination. all: only if no task was done."""
    rules: Literal["off", "only"] = "off"
    """only: what shows the same by a rule on pixels is No Edit, and no model is asked at all."""
    no_edit: Annotated[Words, AfterValidator(_methods)] = ("lmm", DIFFERENCES, SSIM)
    """Ways to find No Edit that the report compares, comma-separated: lmm, differences, ssim."""
    ssim_threshold: Annotated[float, Field(ge=-1, le=1)] = 0.95
    """SSIM from which on it calls a pair No Edit; the paper names none."""


@dataclass(frozen=True, kw_only=True)
class Verified:
    """What is known of whether an edit changed anything."""

    changed: bool
    restated: str = ""
    """What was done; "" where nothing was, or nobody said."""
    finding: Finding


@dataclass(frozen=True)
class Missing:
    """Why there is no value."""

    status: str
    reason: str


class UnicVerify(BaseProtocol):
    """A look at each edit, then a comparison of two texts where something changed."""

    name = "unicverify"
    paper = Paper(
        title="UnicEdit-10M: A Dataset and Benchmark Breaking the Scale-Quality Barrier via Unified Verification for "
        "Reasoning-Enriched Edits",
        url="https://arxiv.org/abs/2512.02790",
    )
    Options = UnicVerifyOptions
    roles: ClassVar[Mapping[str, str]] = {
        VERIFY: "says whether an edit changed anything, and what was really done",
        PARSE: "splits two instructions into atomic tasks and matches them",
    }

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        given: UnicVerifyOptions = self.options
        self.parses = given.matching != "none" and given.rules != "only"
        """Whether instructions are compared."""
        wanted = {VERIFY: given.rules != "only", PARSE: self.parses}
        # A run names no backend for a role that it does not ask.
        self.roles = {role: does for role, does in UnicVerify.roles.items() if wanted[role]}  # type: ignore[misc]
        rule = DIFFERENCES if given.rules != "off" else ""
        self.measured = [name for name in (DIFFERENCES, SSIM) if name in (*given.no_edit, rule)]
        """Measures of every edit."""
        levels = tuple(LabelRule(name=name, value=value) for value, name in enumerate((NO_EDIT, HALLUCINATION, NORMAL)))
        accuracy = Metric(id=ALIGNMENT, name="Alignment accuracy", short="Acc", domain=Real(), source="Eq. 6")
        self.metrics = [
            Metric(id=CHANGED, name="Changed", domain=Binary(), better=None, source="Section C"),
            Metric(id=EDIT_CLASS, name="Class", domain=Levels(levels=levels), source="Section C"),
            *([accuracy] if self.parses else []),
            *(open_measure(name).metric for name in self.measured),  # type: ignore[attr-defined]
        ]
        self.tables = tables(given, means=[metric.id for metric in self.metrics if metric.id != EDIT_CLASS])

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError for a class or a reference instruction of the data that is none."""
        for sample in samples:
            human_class(sample)
            reference_of(sample)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the measures and the verification of each edit and, where something changed, what its texts are asked."""
        for sample in group:
            for name in self.measured:
                yield self._measure(sample, name)
            if self.options.rules == "only":
                continue
            yield self._verification(sample)
            found = self._verified(sample, known)
            if self.parses and found is not None and found.changed and found.restated:
                for part, text in self._references(sample).items():
                    yield self._parse(sample, part, text, found)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return for each edit whether it changed anything, its class, how well the texts match, and what was measured."""
        for sample in group:
            yield from self._scores(sample, known)

    def _scores(self, sample: Sample, known: Known) -> Iterable[Score]:
        found = self._verified(sample, known)
        label = self._class(sample, found, known)
        people, reference = human_class(sample), reference_of(sample)
        written = "people" if reference == sample.extra.get(REFERENCE) else "instruction"
        dims = {
            "edit_type": sample.edit_type,
            "class": people or (label if isinstance(label, str) else None),
            "human_class": people,
            "settled_by": None if found is None else "rule" if self.options.rules == "only" else "lmm",
            "reference": None if reference is None else written,
        }
        score = partial(Score, sample_id=sample.id, editor=sample.editor, dims=dims)
        parsed = [known.finding(ATOMIC_TASKS, About.of(sample, part=part)) for part in ("", AS_ASKED)]
        rest = tuple(f.task_id for f in (None if found is None else found.finding, *parsed) if f is not None)
        if found is None:
            asked = DIFFERENCES if self.options.rules == "only" else VERIFICATION
            for metric in (CHANGED, EDIT_CLASS, *([ALIGNMENT] if self.parses else [])):
                yield self.missing(metric, sample, known, question=asked, dims=dims)
        else:
            yield score(metric=CHANGED, value=float(found.changed), findings=rest[:1])
            if isinstance(label, str):
                value = float((NO_EDIT, HALLUCINATION, NORMAL).index(label))
                yield score(metric=EDIT_CLASS, value=value, label=label, findings=rest)
            else:
                yield score(metric=EDIT_CLASS, value=None, missing=label.status, reason=label.reason, findings=rest)
            if self.parses:
                got = self._accuracy(sample, found, known)
                if isinstance(got, Missing):
                    yield score(metric=ALIGNMENT, value=None, missing=got.status, reason=got.reason, findings=rest)
                else:
                    yield score(metric=ALIGNMENT, value=got, findings=rest)
        for name in self.measured:
            finding = known.finding(name, sample)
            if finding is not None and isinstance(finding.answer, Number):
                yield score(metric=name, value=finding.answer.value, findings=(finding.task_id,))
            else:
                yield self.missing(name, sample, known, dims=dims)

    def _verified(self, sample: Sample, known: Known) -> Verified | None:
        """Return what settles whether an edit changed anything; None while nothing does."""
        if self.options.rules == "only":
            ruled = known.finding(DIFFERENCES, sample)
            return None if ruled is None or ruled.value is None else Verified(changed=ruled.value > 0, finding=ruled)
        finding = known.finding(VERIFICATION, sample)
        said = None if finding is None else said_of(finding.answer)
        if finding is None or said is None:
            return None
        return Verified(changed=said[0], restated=said[1] if said[0] else "", finding=finding)

    def _class(self, sample: Sample, found: Verified | None, known: Known) -> str | Missing:
        """Return an edit's class, or why it has none."""
        if found is None:
            return Missing("not_defined", "")
        if not found.changed:
            return NO_EDIT
        if not self.parses:
            who = "rules" if self.options.rules == "only" else "matching=none"
            return Missing("not_defined", f"the edit changed something, and {who} cannot tell Normal from Hallucination")
        part = "" if reference_of(sample) == sample.instruction else AS_ASKED
        aligned = self._alignment(sample, part, found, known)
        if isinstance(aligned, Missing):
            return aligned
        if aligned.reference == 0:
            return Missing("not_defined", "the instruction has no atomic task, so that nothing can deviate from it")
        matches = aligned.full if self.options.hallucination == "any" else aligned.hits > 0
        return NORMAL if matches else HALLUCINATION

    def _accuracy(self, sample: Sample, found: Verified, known: Known) -> float | Missing:
        """Return Eq. 6, or why it has no value."""
        undefined = Missing("not_defined", "Eq. 6 divides by the number of tasks of the reference, which has none")
        if reference_of(sample) is None:
            return undefined
        if not found.changed:
            # T_GEN is empty: no hit and nothing extra, whatever the reference asks for.
            return 0.0
        aligned = self._alignment(sample, "", found, known)
        if isinstance(aligned, Missing):
            return aligned
        accuracy = aligned.accuracy(self.options.w)
        return undefined if accuracy is None else accuracy

    def _alignment(self, sample: Sample, part: str, found: Verified, known: Known) -> TaskMatch | Missing:
        """Return how the tasks of a reference and of the restated instruction match, or why nobody can say."""
        if not found.restated:
            return Missing("off_menu", "the verifier says that something changed, and restates no instruction")
        about = About.of(sample, part=part)
        finding = known.finding(ATOMIC_TASKS, about)
        if finding is None or not isinstance(finding.answer, Record):
            lost = self.missing(ATOMIC_TASKS, about, known)
            return Missing(str(lost.missing), lost.reason)
        data: Any = finding.answer.data
        if self.options.matching == "strict":
            return strictly(data["reference"], data["restated"])
        try:
            return by_pairs(data["reference"], data["restated"], data["pairs"])
        except PairsError as error:
            return Missing("off_menu", str(error))

    def _references(self, sample: Sample) -> dict[str, str]:
        """Return what the restated instruction is compared with, by part: the reference, and what else was asked."""
        reference = reference_of(sample)
        found = {} if reference is None else {"": reference}
        return found if reference == sample.instruction else {**found, AS_ASKED: sample.instruction}

    def _verification(self, sample: Sample) -> Ask:
        images = {"Original Image": sample.source, "Edited Image": sample.edited}
        return Ask(
            protocol=self.name,
            metric=VERIFICATION,
            about=About.of(sample),
            role=VERIFY,
            prompt=render("unicverify/verify", instruction=one_line(sample.instruction)),
            views=tuple(Recipe(alias=alias, origin=image) for alias, image in images.items() if image is not None),
            tools=self.tools,
            answer=VERIFICATION_ANSWER,
            budget=self.budget,
            blocked=missing_output(sample),
        )

    def _parse(self, sample: Sample, part: str, reference: str, found: Verified) -> Ask:
        pairs = self.options.matching == "lmm"
        texts = {"reference": one_line(reference), "restated": one_line(found.restated)}
        return Ask(
            protocol=self.name,
            metric=ATOMIC_TASKS,
            about=About.of(sample, part=part),
            role=PARSE,
            prompt=render("unicverify/parse", pairs=pairs, **texts),
            answer=PAIRS_ANSWER if pairs else TASKS_ANSWER,
            budget=self.budget,
            rests_on=(found.finding.task_id,),
        )

    def _measure(self, sample: Sample, name: str) -> Measure:
        images = {"source": sample.source, "edited": sample.edited}
        return Measure(
            protocol=self.name,
            metric=name,
            about=About.of(sample),
            measure=name,
            # SSIM as such: of the whole image, at the source's own size.
            args={"mask": "none", "side": 0} if name == SSIM else {},
            views=tuple(Recipe(alias=alias, origin=image) for alias, image in images.items() if image is not None),
            blocked=missing_output(sample),
        )


def said_of(answer: object) -> tuple[bool, str] | None:
    """Return (changed, restated instruction) of an answer to the verification; None for anything else."""
    data = answer.data if isinstance(answer, Record) else None
    if not isinstance(data, Mapping):
        return None
    changed, restated = data.get(CHANGED), data.get("instruction")
    return (changed, restated.strip()) if isinstance(changed, bool) and isinstance(restated, str) else None


def human_class(sample: Sample) -> str | None:
    """Return the class that people gave an edit; None for none. Raises DataError for a text that is no class."""
    given = sample.extra.get(EDIT_CLASS)
    if given is None or given == "":
        return None
    known = {fold(name): name for name in CLASSES}
    if not isinstance(given, str) or fold(given) not in known:
        raise DataError(
            f"sample {sample.key!r}: {EDIT_CLASS} is {given!r}; expected one of {', '.join(CLASSES)}, or nothing"
        )
    return known[fold(given)]


def reference_of(sample: Sample) -> str | None:
    """Return what a restated instruction is held against: people's own, else the editor's; None where nothing was done.

    Raises DataError for a reference that is no text.
    """
    given = sample.extra.get(REFERENCE)
    if given is not None and not isinstance(given, str):
        raise DataError(f"sample {sample.key!r}: {REFERENCE} is {given!r}; expected what was really done, as a text")
    if human_class(sample) == NO_EDIT:
        return None
    for text in (given, sample.instruction):
        if text is not None and text.strip():
            return text
    return None
