"""One edit on its way to a verdict: what its rule looks for and asks is noted as tasks, and ends where it is not known."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from editloupe.answers import YES_NO, Answer, AnswerSpec, Choice, FreeText, Number, Text
from editloupe.prompts import render
from editloupe.protocols.base import NoValue, whole
from editloupe.protocols.edival.chain import Chain, about_edit
from editloupe.protocols.edival.instructions import Edit
from editloupe.protocols.edival.rules import Rules
from editloupe.protocols.edival.sights import Eyes, Sight, picture_of, spelled
from editloupe.replies import one_line
from editloupe.scores import NOT_JUDGED
from editloupe.tasks import About, Recipe, Task
from editloupe.values import Box

SHORTEN: Final = "shorten"
"""The role that shortens names."""


SHORT_NAME: Final = "short_name"
_TEMPLATES: Final = {
    "newly_added": "added",
    "replaced": "replaced",
    "attribute_in_crop": "attribute_crop",
    "attribute_in_image": "attribute_whole",
    "text_in_crop": "read_text",
    "text_in_image": "read_text",
    "background": "background",
}
"""What a model is asked → the template. What shows other pictures is another question."""


@dataclass(kw_only=True)
class Case(Eyes):
    """One edit of a chain."""

    chain: Chain
    index: int
    """Which edit, from 0."""

    @property
    def rules(self) -> Rules:
        """By which it is judged."""
        rules: Rules = self.protocol.options.rules
        return rules

    @property
    def edit(self) -> Edit:
        """The edit itself."""
        return self.chain.edits[self.index]

    @property
    def about(self) -> About:
        """What is said of it is about this."""
        return about_edit(self.sample, self.chain, self.index)

    @property
    def after(self) -> int:
        """The turn of the image after the edit."""
        return self.chain.turn(self.index)

    @property
    def before(self) -> int:
        """The turn of the image before the edit; 0 for the base image."""
        return self.after - 1 if self.chain.mode == "multipass" else 0

    def seen(self, least: float, *wanted: tuple[int, str]) -> list[list[Sight]]:
        """Return what is seen of each phrase in the picture of its turn above a threshold, best first.

        Raises NoValue where one of them was not looked for.
        """
        return [
            sorted((sight for sight in sights if sight.score > least), key=lambda sight: -sight.score)
            for sights in self.see(*wanted)
        ]

    def says(self, question: str, views: tuple[Recipe, ...], **words: str) -> bool:
        """Return whether a model says yes. Raises NoValue where it has not answered."""
        anywhere = self.rules.yes == "anywhere"
        answer = self._ask(question, views, FreeText() if anywhere else YES_NO, words)
        said = "yes" in answer.text.casefold() if isinstance(answer, Text) else truth(answer)
        if said is None:
            raise NoValue("off_menu", f"{answer} is neither yes nor no")
        return said

    def reads(self, question: str, views: tuple[Recipe, ...], **words: Any) -> str:
        """Return the text that a model reads. Raises NoValue where it has not answered."""
        answer = self._ask(question, views, FreeText(), words)
        if not isinstance(answer, Text):
            raise NoValue("off_menu", f"{answer} is no text")
        return answer.text

    def short_names(self, target: str, reference: str) -> tuple[str, str]:
        """Return names without color and material. A name is asked for once in a chain. Raises NoValue."""
        ask = partial(self.protocol.question, SHORT_NAME, answer=FreeText(max_words=10), role=SHORTEN)
        tasks = [
            ask(
                About.of(self.sample, part=f"name: {name}"),
                render(f"edival/{SHORT_NAME}", object=one_line(name)),
            )
            for name in map(spelled, (target, reference))
        ]
        one, other = (str(answer).strip("\"'[]“”‘’`., ") for answer in self._answers(*tasks))
        return one, other

    def pictures(self) -> tuple[Recipe, ...]:
        """Return the whole images before and after the edit."""
        before, after = (picture_of(self.sample, turn) for turn in (self.before, self.after))
        return whole({"Image Before": before, "Image After": after})

    def crop(self, alias: str, turn: int, box: Box) -> Recipe:
        """Return the view of a place, a box in fractions, in the picture of a turn. A small one is shown enlarged."""
        picture = picture_of(self.sample, turn)
        assert picture is not None  # an edit without its pictures is not judged
        size = {"width": picture.width, "height": picture.height}
        region = box.scaled(picture.width, picture.height).clipped(**size).rounded_out()
        return Recipe(alias=alias, origin=picture, op="crop", region=region)

    def _ask(self, question: str, views: tuple[Recipe, ...], answer: AnswerSpec, words: dict[str, Any]) -> Answer:
        in_one_line = {name: one_line(word) if isinstance(word, str) else word for name, word in words.items()}
        about, prompt = self.about, render(f"edival/{_TEMPLATES[question]}", **in_one_line)
        task = self.protocol.question(question, about, prompt, answer, views, rests_on=tuple(self.found))
        return self._answers(task)[0]

    def _answers(self, *tasks: Task) -> list[Answer]:
        """Return the answers to tasks, all of which are asked at once."""
        self.note(*tasks)
        found: list[Answer] = []
        for task in tasks:
            finding = self.known.finding(task.metric, task.about)
            if finding is None:
                raise NoValue(NOT_JUDGED)
            self.found[finding.task_id] = None
            if finding.answer is None:
                raise NoValue(finding.status, finding.reason)
            found.append(finding.answer)
        return found


def truth(answer: Answer | None) -> bool | None:
    """Return what an answer says of yes and no, or of 1 and 0; None for any other."""
    if isinstance(answer, Choice):
        return {"yes": True, "no": False}.get(answer.name)
    return {1.0: True, 0.0: False}.get(answer.value) if isinstance(answer, Number) else None
