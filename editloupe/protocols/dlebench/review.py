"""What people look at before a row of a built set counts: its box, its texts, its reference image (`dlebench-review`).

The samples are rows of a set that `editloupe build dlebench` wrote into `to_review/`. What people answer goes back into the
builder with `--review RUN`; `verdicts.py` says what follows from it.

Reproduced:
- the two inspections (paper, 3.1): the box and the texts; the reference by the criteria of section 4.1, in the place of an
  edited image.

Differs:
- the wording of the questions is ours; corrections are questions of their own, asked where the texts are wrong.

Not covered:
- a corrected box: a row with a wrong one is rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from editloupe.answers import YES_NO, Choice, FreeText, Label
from editloupe.errors import DataError
from editloupe.imaging.targets import without_boxes
from editloupe.prompts import render
from editloupe.protocols.base import BaseProtocol, Group, Known, Options
from editloupe.protocols.dlebench import generate
from editloupe.protocols.dlebench.protocol import PAPER, PROMPT
from editloupe.protocols.dlebench.tables import edit_type_name
from editloupe.protocols.dlebench.verdicts import BOX, CORRECTIONS, FOLLOWS, KEEPS, TEXTS
from editloupe.replies import one_line
from editloupe.rubrics import load_rubric
from editloupe.scores import Binary, Levels, Metric, Score
from editloupe.tasks import About, Ask, Recipe, Task
from editloupe.values import Box, ImageRef, Sample

_NAMES: Final = ("Original Image", "Edited Image")
_WORDS: Final = {
    "instruction": "instruction",
    "source_caption": "caption before the edit",
    "reference_caption": "caption after the edit",
}


class DLEBenchReview(BaseProtocol):
    """Four questions about each row of a built set, and three for better texts where the texts are wrong."""

    name = "dlebench-review"
    paper = PAPER
    Options = Options
    outputs = False
    read_elsewhere = frozenset(CORRECTIONS)

    def __init__(self, options: Any = None, **more: Any) -> None:
        super().__init__(options, **more)
        rubric = load_rubric("dlebench")
        self._criteria = [rubric.criterion(FOLLOWS), rubric.criterion(KEEPS)]
        self.metrics = (
            Metric(id=BOX, name="The box encloses the target", short="Box", domain=Binary(), source="3.1"),
            Metric(id=TEXTS, name="Instruction and captions belong together", short="Texts", domain=Binary(), source="3.1"),
            *(
                Metric(
                    id=one.id,
                    name=f"{one.name} of the reference",
                    short=one.short,
                    domain=Levels(levels=tuple(reversed(one.labels))),
                    source="3.1",
                    concerns=one.concerns,
                )
                for one in self._criteria
            ),
        )

    def check(self, samples: Sequence[Sample]) -> None:
        """Raise DataError for samples without a reference or a box."""
        bare = [sample.key for sample in samples if sample.reference is None] or [s.key for s in without_boxes(samples)]
        if bare:
            raise DataError(
                f"a review needs a reference image and a box for each row; {len(bare)} of {len(samples)} lack one, first "
                f"{bare[0]}; name the folder to_review of a set that `editloupe build dlebench` wrote"
            )

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return the questions about each row, and those for better texts where the texts are wrong."""
        for sample in group:
            said = known.answer(TEXTS, sample)
            yield from self._asks(sample, corrected=isinstance(said, Choice) and said.name == "no")

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return 1 for yes and 0 for no, and the value of a label."""
        for sample in group:
            for metric in self.metrics:
                answer = known.answer(metric.id, sample)
                if isinstance(answer, Label | Choice):
                    value = answer.value if isinstance(answer, Label) else float(answer.name == "yes")
                    yield Score(sample_id=sample.id, editor=sample.editor, metric=metric.id, value=value, label=answer.name)
                else:
                    yield self.missing(metric.id, sample, known)

    def _asks(self, sample: Sample, *, corrected: bool) -> Iterable[Ask]:
        reference = sample.reference
        assert reference is not None
        boxes = [target.boxes["source"] for target in sample.targets]
        target = one_line(sample.targets[0].name or "")
        image = Recipe(alias=generate.IMAGE, origin=sample.source)
        close = generate.close_up(sample.source, boxes)
        texts = {name: one_line(str(sample.extra.get(name) or "")) for name in CORRECTIONS[1:]}
        texts["instruction"] = one_line(sample.instruction)
        question = {name: one_line(str(sample.extra.get(name) or "")) for name in ("question", "answer", "wrong")}

        def ask(metric: str, prompt: str, answer: Any, *views: Recipe) -> Ask:
            return Ask(
                protocol=self.name,
                metric=metric,
                about=About.of(sample),
                prompt=prompt,
                views=views,
                answer=answer,
                budget=self.budget,
            )

        def page(name: str, **more: Any) -> str:
            return render(generate.PROMPTS / f"review_{name}.md", **more)

        yield ask(BOX, page("box", boxes=len(boxes), target=target), YES_NO, close)
        about = {"target": target, "edit_type": edit_type_name(sample.edit_type), **texts, **question}
        yield ask(TEXTS, page("texts", **about), YES_NO, image, close)
        for criterion in self._criteria:
            prompt = render(PROMPT, criterion=criterion, instruction=texts["instruction"], images=list(_NAMES), focus=None)
            yield ask(criterion.id, prompt, criterion.answer(), *_both(sample.source, reference, boxes, criterion.concerns))
        for name in CORRECTIONS if corrected else ():
            yield ask(name, page("correction", which=_WORDS[name], **texts), FreeText(max_words=80), image, close)


def _both(source: ImageRef, reference: ImageRef, boxes: Sequence[Box], concerns: str | None) -> list[Recipe]:
    """Return the image and its reference: of the target a close-up without marks, else the whole."""
    pair = zip(_NAMES, (source, reference), strict=True)
    if concerns != "target":
        return [Recipe(alias=alias, origin=image) for alias, image in pair]
    close = generate.close_up(source, boxes)
    # A reference has the size of its image: the place is the same.
    params = {"size": close.params["size"]}
    return [Recipe(alias=alias, origin=image, op="crop", region=close.region, params=params) for alias, image in pair]
