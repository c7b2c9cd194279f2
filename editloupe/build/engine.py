"""One engine for data sets that are asked for: an image becomes rows, and a row goes through named steps.

A step is a function of a row. It asks, measures or checks; where the row gets no further it raises `LeftOut`. Steps are
run from the findings that there are, each time anew: what was answered is known, what is open is planned, and a run that
was stopped goes on where it was. A row ends kept, left out (at which step, why) or waiting for people.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from editloupe.answers import AnswerSpec, Record, RecordOf, Text, closed
from editloupe.build.base import LeftOut, need
from editloupe.build.people import REVIEW, Review, RowVerdict, verdicts_of
from editloupe.build.places import ImagePlace
from editloupe.build.shown import image
from editloupe.data.folders import RowError
from editloupe.data.image_lists import load_images
from editloupe.data.images import ImageStore
from editloupe.data.rows import DataRow, Loaded
from editloupe.findings import FAILURES, Finding
from editloupe.measures.base import Models
from editloupe.protocols.base import BaseProtocol, Group, Known
from editloupe.scores import NOT_JUDGED, Metric, Real, Score
from editloupe.stats.spec import TableSpec
from editloupe.tasks import About, Recipe, Task
from editloupe.values import Box, Json, Sample, digest

T = TypeVar("T")

REVIEWED: Final = "reviewed"
"""The last step of a set that people look through."""


class RowStep(NamedTuple):
    """One step of a row."""

    name: str
    passes: str
    """What passes, in words."""
    do: Callable[[Any], object] = lambda row: None
    """Takes the row further. Raises LeftOut."""


@dataclass(kw_only=True)
class SetRow(Generic[T]):
    """A row under way: of an image, what is known by now and what can be asked by now."""

    recipe: SetRecipe
    sample: Sample
    known: Known
    id: str
    """Of the row: the sample's, a hyphen, and which row of the image it is."""
    data: T
    """What the recipe knows of it."""
    part: str = ""
    """What of the image its questions are about."""
    tasks: list[Task] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """What it rests on."""
    rows: list[SetRow[Any]] = field(default_factory=list)
    """Of an image: what it may become."""
    others: list[dict[str, Json]] = field(default_factory=list)
    """What of the image can be no row, a line of left_out.jsonl each. It counts at its step if that is one of the rows'."""
    lost: LeftOut | None = None
    """None for a whole row, and for an image that has one."""
    passed: bool = False
    """Whether people passed it as it is."""
    waits: str = ""
    """Why people have not decided about it; "" where they have, or were not asked."""

    def becomes(self, number: int, data: Any, *, part: str = "") -> SetRow[Any]:
        """Return a row of this image, which rests on what the image rests on.   number: of the row, from 1."""
        own: dict[str, Any] = {"tasks": [], "findings": list(self.findings), "rows": []}
        return replace(self, id=f"{self.id}-{number}", data=data, part=part, **own)

    def look(self, task: Task) -> Finding | None:
        """Plan a task; return its finding, which the row rests on from now on, or None while there is none."""
        self.tasks.append(task)
        finding = self.known.finding(task.metric, task.about)
        if finding is not None:
            self.findings.append(finding)
        return finding

    def ask(
        self, metric: str, prompt: str, answer: AnswerSpec, *views: Recipe, role: str, part: str | None = None,
        alone: bool = False,
    ) -> Any:  # fmt: skip
        """Ask about the image, and return what was answered: a record's data, a text, or the name of an option.

        views: beside it.   alone: show these alone.   Raises LeftOut while there is no answer, and where it is none.
        """
        shown = views if alone else (image(self.sample), *views)
        ask = partial(self.recipe.question, prompt=prompt, answer=answer, views=shown, role=role)
        said: Any = self._found(ask, metric, part).answer
        return said.data if isinstance(said, Record) else said.text if isinstance(said, Text) else said.name

    def measure(self, metric: str, measure: str, args: Mapping[str, Json], *, part: str | None = None) -> Finding:
        """Measure the image, and return what was found. Raises LeftOut as `ask` does."""
        views = (Recipe(alias="image", origin=self.sample.source),)
        return self._found(partial(self.recipe.measurement, measure=measure, args=args, views=views), metric, part)

    def _found(self, task: Callable[..., Task], metric: str, part: str | None) -> Finding:
        about = About.of(self.sample, part=self.part if part is None else part)
        return answered(self.look(task(metric, about, rests_on=self.rests_on())))

    def rests_on(self) -> tuple[str, ...]:
        """Return the tasks whose findings it rests on."""
        return tuple(finding.task_id for finding in self.findings)

    def verdict(self, seen: str) -> RowVerdict | None:
        """Return what people say of the row where it showed them this; None where nobody has said a word."""
        return verdicts_of(self.sample).get((self.id, seen))


def corners(boxes: Iterable[Box]) -> list[Json]:
    """Return boxes as lists of four numbers in px, to a hundredth."""
    return [[round(v, 2) for v in box] for box in boxes]


def record(**fields: Json) -> RecordOf:
    """Return an answer of these fields, each with its schema."""
    return RecordOf(schema=closed(fields))


def answered(finding: Finding | None) -> Finding:
    """Return a finding that has an answer. Raises LeftOut for none, and for one without."""
    if finding is None:
        raise LeftOut(NOT_JUDGED, failed=NOT_JUDGED)
    if finding.answer is None:
        raise LeftOut(finding.status, finding.reason, failed=finding.status if finding.status in FAILURES else "")
    return finding


class SetRecipe(BaseProtocol, ABC):
    """A recipe: the rows of an image, their steps, and what a row becomes. It is a protocol, which asks into a run."""

    outputs = False
    offers_tools = False
    metrics = (Metric(id="rows", name="Rows", domain=Real(), better=None),)
    tables = (TableSpec(title="Rows of an image", metrics=("rows",), rows="editor"),)
    deepest = 10_000  # tries, turns and targets have bounds of their own, as options
    summary: ClassVar[str]
    """What the command does, for `--help`."""
    noun: ClassVar[str] = "row"
    """What a row is."""
    unit: ClassVar[str] = "row"
    """What may become one."""
    first: ClassVar[str]
    """The stage of what an image is asked before it has rows."""
    review: ClassVar[type[Review] | None] = None
    """The questions for people; None where nobody looks through the set."""
    file: ClassVar[str]
    """The benchmark's file in the set's folder: .jsonl, .json or .csv."""
    folders: ClassVar[tuple[str, ...]]
    """The folders of the images that it names."""
    header: ClassVar[Sequence[str]] = ()
    """The columns of a .csv."""
    aside: ClassVar[tuple[str, ...]] = ()
    """Columns of an ImageFolder that are not read."""

    def needed(self) -> Mapping[str, str]:
        """Return the kinds of models that the options need, each with what to do without it (`base.need`)."""
        return {}

    def checked(self, row: DataRow, store: ImageStore) -> DataRow:
        """Return a row of the images' metadata as it counts. Raises RowError where it cannot be used."""
        named = row.target_name or row.extra.get("target_name")
        if (row.quads or row.masks) and not named:
            what = "a box" if row.quads else "a mask"
            raise RowError("row", f"column 'target_name': there is {what}; expected the name of what it is of")
        # Several rows may be about one image.
        quads, masks = [list(quad) for quad in row.quads], [one.name for one in row.masks.values()]
        about = digest([named, quads, masks, row.extra.get("question")])
        return replace(row, hints=(row.source.stem, row.source.name, f"{row.source.stem}-{about[:8]}"))

    def loaded(self, path: Path, store: ImageStore) -> Loaded:
        """Return the images of a path. Raises as `load_images`."""
        return load_images(path, store, checked=partial(self.checked, store=store), aside=(*self.aside, REVIEW))

    @abstractmethod
    def steps(self) -> Sequence[RowStep]:
        """Return the steps of a row, in their order."""

    @abstractmethod
    def rows(self, image: SetRow[None]) -> list[SetRow[Any]]:
        """Return the rows that an image may become, and add the others. Raises LeftOut for an image without."""

    def seen(self, row: SetRow[Any]) -> str:
        """Return a digest of what people see of a row."""
        return ""

    def about(self, row: SetRow[Any]) -> dict[str, Json]:
        """Return what left_out.jsonl says of a row beside the reason."""
        return {}

    @abstractmethod
    def columns(self, row: SetRow[Any], place: ImagePlace, number: int) -> dict[str, Json]:
        """Return what a row of the ImageFolder has beside its id and its image.   number: of the row, from 0."""

    @abstractmethod
    def lines(self, row: SetRow[Any], place: ImagePlace, number: int) -> Iterable[dict[str, Json]]:
        """Yield what a row becomes in the benchmark's file; its images are placed."""

    def counts(self, rows: Sequence[SetRow[Any]], kept: Sequence[SetRow[Any]]) -> dict[str, Json]:
        """Return what funnel.json counts beside the stages.   rows: all that were under way.   kept: those of the set."""
        return {}

    # What follows is the engine's.

    def check_models(self, models: Models) -> None:
        """Raise ConfigError where a model is needed and there is none."""
        for kind, advice in self.needed().items():
            need(models, kind, advice)

    def plan(self, group: Group, known: Known) -> Iterable[Task]:
        """Return what can be asked about each image by now."""
        for sample in group:
            yield from self.drafted(sample, known).tasks

    def drafted(self, sample: Sample, known: Known) -> SetRow[None]:
        """Return what is known of an image and its rows, with all that can be asked by now. Pure."""
        image: SetRow[None] = SetRow(recipe=self, sample=sample, known=known, id=sample.id, data=None)
        try:
            image.rows = self.rows(image)
        except LeftOut as error:
            image.lost = error.kept(self.first)
        for row in image.rows:
            self._follow(row)
            image.tasks += row.tasks
        return image

    def _follow(self, row: SetRow[Any]) -> None:
        """Take a row as far as it is known."""
        for step in self.steps():
            try:
                step.do(row)
            except LeftOut as error:
                row.lost = error.kept(step.name)
                return
        verdict = None if self.review is None else row.verdict(self.seen(row))
        if verdict is None or verdict.kind == "disagree":
            row.waits = "not_reviewed" if verdict is None else "people_disagree"
        elif verdict.kind == "passed":
            row.passed = True
        else:
            row.lost = LeftOut(verdict.why, verdict.detail, at=REVIEWED)

    def score(self, group: Group, known: Known) -> Iterable[Score]:
        """Return how many rows an image has. What failed, or is not known yet, leaves it open."""
        for sample in group:
            found = self.drafted(sample, known)
            losses = [one for one in (found.lost, *(row.lost for row in found.rows)) if one is not None]
            unknown = next((one for one in losses if one.failed), None)
            yield Score(
                sample_id=sample.id,
                editor=sample.editor,
                metric="rows",
                value=None if unknown else float(sum(row.lost is None for row in found.rows)),
                missing=unknown.failed if unknown else None,
                reason=str(unknown or ""),
                findings=tuple(dict.fromkeys(one.task_id for row in found.rows for one in row.findings)),
            )
