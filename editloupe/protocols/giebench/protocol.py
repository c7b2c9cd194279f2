"""GIE-Bench: was the edit made, by a multiple-choice question; did all else stay, by measures outside a mask.

Reproduced:
- functional correctness (section 3.2): one question a row, the edited image alone unless the question compares, right where
  the answer is the key's; accuracy by edit type and overall, the mean over all samples (Tables 2 and 7);
- content preservation (section 3.3): MSE, PSNR, SSIM and CLIP outside the mask, MSE and PSNR after the edited image is
  aligned by SIFT; CLIP of the whole image beside them (Table 3); MSE inverted and scaled by the least and the largest;
- the original as its own edit (`--set null_edit=true`), and Spearman's correlation of ranks with people's (Table 4).

Differs:
- the wording of the prompt is ours;
- options have letters and are shuffled by a seed: in the data the right one is first in 52 % of rows;
- an answer that cannot be read, an abstention and a missing output have no value and are counted beside the accuracy; a
  table shows what it is if they count as wrong;
- a key that is none of its options blocks its question, since no answer could be right;
- the masks act: the published scripts compare a mask of 0 and 1 with 128, so that theirs are measures of whole images.
  `mask=official` does the same.

Not covered:
- the study with people. How such data are made: docs/build.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field

from editloupe.answers import YES_NO, Choice
from editloupe.config import Words
from editloupe.errors import DataError
from editloupe.prompts import render
from editloupe.protocols.base import (
    BaseProtocol,
    Group,
    Known,
    Options,
    Paper,
    missing_output,
    score_of,
    whole,
)
from editloupe.protocols.giebench.questions import MultipleChoice, QuestionError, read_question, shown
from editloupe.protocols.giebench.tables import edit_type_name, tables
from editloupe.scores import Binary, Metric, Real, Score
from editloupe.tasks import Budget, Measure, Status, Task
from editloupe.values import Sample

PROMPT: Final = "giebench/question"
ACCURACY: Final = "accuracy"
KEY: Final = "key"

_Blocked: TypeAlias = tuple[Status, str] | None

PRESERVATION: Final = {
    "ssim": Metric(id="masked_ssim", name="Masked SSIM", short="SSIM", domain=Real(), source="Table 3"),
    "clip": Metric(id="masked_clip", name="Masked CLIP", short="CLIP", domain=Real(), source="Table 3"),
    "unmasked_clip": Metric(id="unmasked_clip", name="Unmasked CLIP", domain=Real(), source="Table 3"),
    "psnr": Metric(id="masked_psnr", name="Masked PSNR", short="PSNR", domain=Real(), unit="dB", source="Table 3"),
    "mse": Metric(id="masked_mse", name="Masked MSE", short="MSE", domain=Real(), better="lower", source="Table 3"),
}
"""What the option `measures` names → the metric, in the order of the paper's Table 3."""

_TAKES: Final = {
    "ssim": ("dilate", "ssim"),
    "clip": ("dilate", "pool"),
    "psnr": ("mask", "dilate", "align"),
    "mse": ("mask", "dilate", "align"),
}
"""Measure of what lies outside the mask → the options that it takes."""
_OF_MEASURES: Final = {"mask": "apply", "dilate": True, "align": "none", "ssim": "outside", "pool": "pure"}
"""Option → the measures' own value of it."""


def _measures(words: tuple[str, ...]) -> tuple[str, ...]:
    if words == ("none",):
        return ()
    known = tuple(PRESERVATION) if words == ("all",) else words
    if unknown := [word for word in known if word not in PRESERVATION]:
        raise ValueError(f"unknown measure {unknown[0]!r}; expected none, all, or some of {', '.join(PRESERVATION)}")
    return tuple(name for name in PRESERVATION if name in known)


class GIEBenchOptions(Options):
    """What a run may set. The published scripts are mask=official, ssim=official, pool=any, original=always, answer=text,
    shuffle_options=no, abstain=wrong."""

    mode: Literal["plain", "tool"] = "plain"
    """plain: one look, as in the paper. tool: an agent with tools."""
    original: Literal["when_asked", "always"] = "when_asked"
    """Whether the original is shown too: where the question compares with it, or always."""
    answer: Literal["letters", "text"] = "letters"
    """Whether options are shown with letters, or as text alone."""
    shuffle_options: Annotated[int, Field(ge=0)] | Literal["no"] = 0
    """Seed of the options' order; no: that of the data."""
    abstain: Literal["missing", "wrong"] = "missing"
    """Whether the answer "I can not tell from the image" has no value, or counts as wrong as in the paper."""
    measures: Annotated[Words, AfterValidator(_measures)] = ()
    """Comma-separated: ssim, clip, unmasked_clip, psnr, mse; or all, or none."""
    mask: Literal["apply", "official"] = "apply"
    """apply: measure outside the mask. official: as the published scripts, where that of MSE and PSNR has no effect."""
    dilate: bool = True
    """Grow the mask by one of its cells, since its edge is coarser than the image."""
    align: Literal["sift", "register", "none"] = "sift"
    """How the edited image is laid over the original before MSE and PSNR; sift is the paper's way."""
    ssim: Literal["outside", "official"] = "outside"
    """outside: mean outside the mask. official: over the whole frame, where the blanked object counts as equal."""
    pool: Literal["pure", "any"] = "pure"
    """Patches of CLIP that count: pure, wholly outside the mask; any, with a pixel outside it."""


PAPER: Final = Paper(
    title="GIE-Bench: Toward Grounded Evaluation for Text-Guided Image Editing", url="https://arxiv.org/abs/2505.11493"
)


class GIEBench(BaseProtocol):
    """One question a sample, beside its key, and the measures that are chosen."""

    name = "giebench"
    paper = PAPER
    Options = GIEBenchOptions
    roles: ClassVar = {"judge": "answers multiple-choice questions"}
    edit_type_name = edit_type_name

    def __init__(self, options: Any = None, *, tools: Sequence[str] = (), budget: Budget | None = None) -> None:
        super().__init__(options, tools=tools, budget=budget)
        self.measures = {name: PRESERVATION[name] for name in self.options.measures}
        """Name in the options → metric."""
        accuracy = Metric(id=ACCURACY, name="Functional Correctness", short="Accuracy", domain=Binary(), source="Table 2")
        self.metrics = [accuracy, *self.measures.values()]
        self.tables = tables(self.measures.values())

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError if no sample has a question that can be asked."""
        problems = [problem for sample in samples if isinstance(problem := _question(sample), str)]
        if samples and len(problems) == len(samples):
            raise DataError(f"no sample has a question that can be asked; {samples[0].key}: {problems[0]}")

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the key, the question and the measures of each sample."""
        for sample in group:
            yield from self._asked(sample)
            for name in self.measures:
                yield self._measure(sample, name)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return whether each answer is the key's, and what was measured."""
        for sample in group:
            yield self._accuracy(sample, known)
            yield from (self.measured(m.id, sample, known, dims=_dims(sample)) for m in self.measures.values())

    def _asked(self, sample: Sample) -> Iterable[Task]:
        """Return the key of a question, and the question. Neither is asked where the key decides nothing."""
        known = partial(self.measurement, KEY, sample, "key")
        ask = partial(self.question, ACCURACY, sample)
        question = _question(sample)
        if isinstance(question, str):
            blocked: _Blocked = ("input_error", question)
            yield known(blocked=blocked)
            yield ask("", YES_NO, blocked=blocked)
            return
        seed = None if self.options.shuffle_options == "no" else int(self.options.shuffle_options)
        order = question.order(seed, about=sample.instruction)
        form = shown(question, order, letters=self.options.answer == "letters")
        compares = self.options.original == "always" or question.compares
        images = sample.originals if compares else {}
        if sample.edited is not None:
            images["Edited Image"] = sample.edited
        prompt = render(
            PROMPT,
            question=question.text,
            options=form.lines,
            letters=form.letters,
            images=list(dict.fromkeys([*images, "Edited Image"])),
            compares=compares,
            abstain=form.abstain,
        )
        # "Cannot Judge" is no option, and never counts as wrong.
        answer = form.answer if self.options.abstain == "missing" else replace(form.answer, abstain=None)
        yield known(args={"answer": form.key.to_json()})
        more = {"tools": self.tools, "blocked": missing_output(sample)}
        yield ask(prompt, answer, whole(images), **more)

    def _measure(self, sample: Sample, name: str) -> Measure:
        """Return a measure of the edit. Arguments are given where they differ from the measure's own."""
        options = {option: getattr(self.options, option) for option in _TAKES.get(name, ())}
        masked = name in _TAKES
        mask = sample.masks.get("edit") if masked else None
        no_mask: _Blocked = ("input_error", "the sample has no mask of the edited object")
        given = {
            "args": {n: v for n, v in options.items() if v != _OF_MEASURES[n]} if masked else {"mask": "none"},
            "views": whole({"source": sample.source, "edited": sample.edited, "mask": mask}),
            "blocked": missing_output(sample) or (no_mask if masked and mask is None else None),
        }
        return self.measurement(PRESERVATION[name].id, sample, name.removeprefix("unmasked_"), **given)

    def _accuracy(self, sample: Sample, known: Known) -> Score:
        """Return 1 where the answer is the key's, 0 where it is another."""
        given, key = known.finding(ACCURACY, sample), known.finding(KEY, sample)
        said, right = (None if finding is None else finding.answer for finding in (given, key))
        dims = _dims(sample)
        if given is None or key is None or not isinstance(said, Choice) or not isinstance(right, Choice):
            # What is missing is the key, or else the answer.
            return self.missing(ACCURACY, sample, known, question=ACCURACY if said is None else KEY, dims=dims)
        value, findings = float(said.name == right.name), (given.task_id, key.task_id)
        return score_of(ACCURACY, sample, value, findings=findings, dims=dims)


def _question(sample: Sample) -> MultipleChoice | str:
    """Return a sample's question, or why it cannot be asked."""
    try:
        return read_question(sample.extra)
    except QuestionError as error:
        return str(error)


def _dims(sample: Sample) -> dict[str, str | int | float | None]:
    return {"edit_type": edit_type_name(sample.edit_type)}
