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
- which pair is a Hallucination is open too: one with a task that was left out or added.

Not covered:
- the third kind of noise, bad anatomy and low aesthetics, and the training of the verifier.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, NamedTuple

from pydantic import Field

from editloupe.answers import LabelRule, Record, RecordOf, closed, fold
from editloupe.config import Words
from editloupe.errors import DataError
from editloupe.measures.base import open_measure
from editloupe.prompts import render
from editloupe.protocols.base import (
    BaseProtocol,
    Group,
    Known,
    NoValue,
    Options,
    Paper,
    missing_output,
    score_of,
    some_of,
    whole,
)
from editloupe.protocols.unicverify.alignment import WEIGHT, PairsError, TaskMatch, by_pairs, strictly
from editloupe.protocols.unicverify.tables import CLASSES, HALLUCINATION, NO_EDIT, NORMAL, tables
from editloupe.replies import one_line
from editloupe.scores import Binary, Levels, Metric, Real, Score
from editloupe.tasks import About, Ask, Budget, Measure, Task
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
_WAYS: Final = ("lmm", DIFFERENCES, SSIM)

_ORDER: Final = (NO_EDIT, HALLUCINATION, NORMAL)
"""The classes by their values, from 0."""
REFERENCE: Final = "reference_instruction"
"""Column with what people say was really done."""


_TEXT: Final[dict[str, Json]] = {"type": "string", "minLength": 1}
_TASKS: Final[dict[str, Json]] = {"type": "array", "items": closed({"object": _TEXT, "action": _TEXT})}
_PAIR: Final[dict[str, Json]] = {"type": "array", "items": {"type": "integer", "minimum": 1}, "minItems": 2, "maxItems": 2}

_WORDS: Final[dict[str, Json]] = {"type": "string"}
_SAID: Final = closed({CHANGED: {"type": "boolean"}, "instruction": _WORDS, "reason": _WORDS})
VERIFICATION_ANSWER: Final = RecordOf(schema={**_SAID, "required": [CHANGED, "instruction"]})
_LISTS: Final[dict[str, Json]] = {"reference": _TASKS, "restated": _TASKS}
TASKS_ANSWER: Final = RecordOf(schema=closed(_LISTS))
PAIRS_ANSWER: Final = RecordOf(schema=closed({**_LISTS, "pairs": {"type": "array", "items": _PAIR}}))


class UnicVerifyOptions(Options):
    """What a run may set."""

    gone: ClassVar[Mapping[str, Json]] = {"hallucination": "any", "rules": "off", "ssim_threshold": 0.95}
    mode: Literal["plain", "tool"] = "plain"
    """plain: one look, as in the paper. tool: the verifier is an agent with tools."""
    matching: Literal["lmm", "strict", "none"] = "lmm"
    """Who says which atomic tasks are the same: the parser, or equal texts (strict). none: nobody parses."""
    w: Annotated[float, Field(ge=0)] = WEIGHT
    """Eq. 6: what an extra task costs, in tasks."""
    no_edit: Annotated[Words, some_of("way to find No Edit", _WAYS)] = _WAYS
    """Ways to find No Edit that the report compares, comma-separated: lmm, differences, ssim."""


class _Said(NamedTuple):
    """What the verifier says of an edit."""

    changed: bool
    restated: str
    """What was done."""
    task_id: str


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
        self.parses = given.matching != "none"
        """Whether instructions are compared."""
        # A run names no backend for a role that it does not ask.
        self.roles = {role: does for role, does in UnicVerify.roles.items() if role != PARSE or self.parses}  # type: ignore[misc]
        self.beside = [name for name in (DIFFERENCES, SSIM) if name in given.no_edit]
        """Measures of every edit."""
        levels = tuple(LabelRule(name=name, value=value) for value, name in enumerate(_ORDER))
        accuracy = Metric(id=ALIGNMENT, name="Alignment accuracy", short="Acc", domain=Real(), source="Eq. 6")
        self.metrics = [
            Metric(id=CHANGED, name="Changed", domain=Binary(), better=None, source="Section C"),
            Metric(id=EDIT_CLASS, name="Class", domain=Levels(levels=levels), source="Section C"),
            *([accuracy] if self.parses else []),
            *(open_measure(name).metric for name in self.beside),  # type: ignore[attr-defined]
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
            for name in self.beside:
                yield self._measure(sample, name)
            yield self._verification(sample)
            said = _said(sample, known)
            if self.parses and said is not None and said.changed and said.restated:
                for part, text in self._references(sample).items():
                    yield self._parse(sample, part, text, said)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return for each edit whether it changed anything, its class, how well the texts match, and what was measured."""
        for sample in group:
            said = _said(sample, known)
            label = _tried(self._class, sample, said, known)
            name = label if isinstance(label, str) else None
            people, reference = human_class(sample), reference_of(sample)
            written = "people" if reference == sample.extra.get(REFERENCE) else "instruction"
            dims = {
                "edit_type": sample.edit_type,
                "class": people or name,
                "human_class": people,
                "reference": None if reference is None else written,
            }
            if said is None:
                for metric in (CHANGED, EDIT_CLASS, *([ALIGNMENT] if self.parses else [])):
                    yield self.missing(metric, sample, known, question=VERIFICATION, dims=dims)
            else:
                parsed = [known.finding(ATOMIC_TASKS, About.of(sample, part=part)) for part in ("", AS_ASKED)]
                rest = (said.task_id, *(finding.task_id for finding in parsed if finding is not None))
                score = partial(score_of, about=sample, dims=dims)
                yield score(CHANGED, value=float(said.changed), findings=rest[:1])
                place = label if name is None else float(_ORDER.index(name))
                yield score(EDIT_CLASS, value=place, label=name, findings=rest)
                if self.parses:
                    accuracy = _tried(self._accuracy, sample, said, known)
                    yield score(ALIGNMENT, value=accuracy, findings=rest)
            yield from (self.measured(name, sample, known, dims=dims) for name in self.beside)

    def _class(self, sample: Sample, said: _Said | None, known: Known) -> str:
        """Return an edit's class. Raises NoValue."""
        if said is None:
            raise NoValue("not_defined")
        if not said.changed:
            return NO_EDIT
        if not self.parses:
            raise NoValue(
                "not_defined", "the edit changed something, and matching=none cannot tell Normal from Hallucination"
            )
        aligned = self._alignment(sample, "" if reference_of(sample) == sample.instruction else AS_ASKED, said, known)
        if aligned.reference == 0:
            raise NoValue("not_defined", "the instruction has no atomic task, so that nothing can deviate from it")
        return NORMAL if aligned.full else HALLUCINATION

    def _accuracy(self, sample: Sample, said: _Said, known: Known) -> float:
        """Return Eq. 6. Raises NoValue."""
        accuracy = None
        if reference_of(sample) is not None:
            # Where nothing changed T_GEN is empty: no hit and nothing extra, whatever the reference asks for.
            accuracy = self._alignment(sample, "", said, known).accuracy(self.options.w) if said.changed else 0.0
        if accuracy is None:
            raise NoValue("not_defined", "Eq. 6 divides by the number of tasks of the reference, which has none")
        return accuracy

    def _alignment(self, sample: Sample, part: str, said: _Said, known: Known) -> TaskMatch:
        """Return how the tasks of a reference and of the restated instruction match. Raises NoValue."""
        if not said.restated:
            raise NoValue("off_menu", "the verifier says that something changed, and restates no instruction")
        about = About.of(sample, part=part)
        finding = known.finding(ATOMIC_TASKS, about)
        if finding is None or not isinstance(finding.answer, Record):
            lost = self.missing(ATOMIC_TASKS, about, known)
            raise NoValue(str(lost.missing), lost.reason)
        data: Any = finding.answer.data
        if self.options.matching == "strict":
            return strictly(data["reference"], data["restated"])
        try:
            return by_pairs(data["reference"], data["restated"], data["pairs"])
        except PairsError as error:
            raise NoValue("off_menu", str(error)) from error

    def _references(self, sample: Sample) -> dict[str, str]:
        """Return what the restated instruction is compared with, by part: the reference, and what else was asked."""
        reference = reference_of(sample)
        found = {} if reference is None else {"": reference}
        return found if reference == sample.instruction else {**found, AS_ASKED: sample.instruction}

    def _verification(self, sample: Sample) -> Ask:
        prompt = render("unicverify/verify", instruction=one_line(sample.instruction))
        views = whole({"Original Image": sample.source, "Edited Image": sample.edited})
        more = {"role": VERIFY, "blocked": missing_output(sample)}
        return self.question(VERIFICATION, sample, prompt, VERIFICATION_ANSWER, views, **more)

    def _parse(self, sample: Sample, part: str, reference: str, said: _Said) -> Ask:
        pairs = self.options.matching == "lmm"
        texts = {"reference": one_line(reference), "restated": one_line(said.restated)}
        about, prompt = About.of(sample, part=part), render("unicverify/parse", pairs=pairs, **texts)
        more: dict[str, Any] = {"role": PARSE, "rests_on": (said.task_id,)}
        return self.question(ATOMIC_TASKS, about, prompt, PAIRS_ANSWER if pairs else TASKS_ANSWER, **more)

    def _measure(self, sample: Sample, name: str) -> Measure:
        # SSIM as such: of the whole image, at the source's own size.
        args = {"mask": "none", "side": 0} if name == SSIM else {}
        views = whole({"source": sample.source, "edited": sample.edited})
        more = {"args": args, "views": views, "blocked": missing_output(sample)}
        return self.measurement(name, sample, name, **more)


def _said(sample: Sample, known: Known) -> _Said | None:
    """Return the answer to the verification of a sample; None while there is none."""
    finding = known.finding(VERIFICATION, sample)
    data = finding.answer.data if finding is not None and isinstance(finding.answer, Record) else None
    if finding is None or not isinstance(data, Mapping):
        return None
    changed, restated = data.get(CHANGED), data.get("instruction")
    return _Said(bool(changed), str(restated or "").strip(), finding.task_id) if isinstance(changed, bool) else None


def _tried(of: Callable[..., Any], *args: Any) -> Any:
    """Return a value, or the NoValue that says why there is none."""
    try:
        return of(*args)
    except NoValue as none:
        return none


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
    return next((text for text in (given, sample.instruction) if text is not None and text.strip()), None)
