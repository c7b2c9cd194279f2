"""A row's multiple-choice question: its options, its key, the order and the letters in which options are shown."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase
from typing import Final

from editloupe.answers import Choice, OneOf, fold
from editloupe.replies import one_line
from editloupe.values import Json, digest

QUESTION: Final = "evaluation_question"
OPTIONS: Final = "multiple_choice_options"
KEY: Final = "expected_answer"
"""Columns of a row, as the data set calls them."""

ABSTAIN: Final = frozenset(
    map(fold, ("I can not tell from the image", "I cannot tell from the image", "I can't tell from the image"))
)
"""Options, folded, by which a judge says that the image does not show it."""

COMPARES: Final = (
    "original", "originally", "unedited", "before the edit", "before editing", "before the change", "than before",
    "as before", "previous", "previously", "initially", "both images", "two images", "first image", "second image",
    "source image", "input image",
)  # fmt: skip
"""Words by which a question, or an option, compares the edited image with the original."""
_COMPARES: Final = re.compile(rf"\b(?:{'|'.join(COMPARES)})\b", re.IGNORECASE)

MOST_OPTIONS: Final = 13
"""So many options can be single letters themselves, and there are letters left to mark them by."""


class QuestionError(ValueError):
    """A row's question cannot be asked, or its key decides nothing."""


@dataclass(frozen=True, kw_only=True)
class MultipleChoice:
    """A question that can be asked."""

    text: str
    options: tuple[str, ...]
    """In the order of the data."""
    key: int
    """Place of the right option, from 0."""

    @property
    def compares(self) -> bool:
        """Whether it compares the edited image with the original."""
        return any(map(_COMPARES.search, (self.text, *self.options)))

    def order(self, seed: int | None, *, about: str) -> tuple[int, ...]:
        """Return the places of the options in the order in which they are shown.

        seed: None for the order of the data.   about: tells questions of the same words apart, such as the instruction.
        The same question has the same order for every editor.
        """
        places = range(len(self.options))
        if seed is None:
            return tuple(places)
        return tuple(sorted(places, key=lambda place: digest([seed, about, self.text, list(self.options), place])))


@dataclass(frozen=True, kw_only=True)
class Shown:
    """A question as a judge is shown it."""

    lines: tuple[str, ...]
    """The options, each behind its letter if they have letters."""
    letters: bool
    """Whether they have."""
    abstain: str
    """The option by which a judge says that the image does not show it; "" if there is none."""
    answer: OneOf
    key: Choice
    """The right answer."""


def read_question(columns: Mapping[str, Json]) -> MultipleChoice:
    """Return the question of a row's columns. Raises QuestionError, also for a key that is none of the options."""
    text, key, given = columns.get(QUESTION), columns.get(KEY), columns.get(OPTIONS)
    if not isinstance(text, str) or not text.strip():
        raise QuestionError(f"{QUESTION!r} is {text!r}; expected a question")
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise QuestionError(f"{OPTIONS!r} is {_cut(given)}; expected a list of options")
    if not 2 <= len(given) <= MOST_OPTIONS:
        raise QuestionError(f"{OPTIONS!r} has {len(given)} of them; expected 2 to {MOST_OPTIONS}")
    options = []
    for option in given:
        if not isinstance(option, str) or not option.strip():
            raise QuestionError(f"{OPTIONS!r} holds {option!r}; expected text")
        options.append(one_line(option))
    if twice := next((option for option in options if options.count(option) > 1), None):
        raise QuestionError(f"{OPTIONS!r} holds {twice!r} twice; expected different options")
    if not isinstance(key, str) or not key.strip():
        raise QuestionError(f"{KEY!r} is {key!r}; expected one of the options")
    listed = ", ".join(map(repr, options))
    if key in given:
        return MultipleChoice(text=one_line(text), options=tuple(options), key=list(given).index(key))
    alike = [place for place, option in enumerate(options) if fold(option) == fold(key)]
    if len(alike) != 1:
        why = f"the key {key!r} is none of the options {listed}; mend {KEY!r}, else no answer can be right"
        raise QuestionError(why)
    return MultipleChoice(text=one_line(text), options=tuple(options), key=alike[0])


def shown(question: MultipleChoice, order: Sequence[int], *, letters: bool) -> Shown:
    """Return a question as it is shown. order: as `MultipleChoice.order` gives it.   letters: whether options have letters.

    Options that differ in case or punctuation alone are answered by their letters only, since words could mean either.
    """
    options = tuple(question.options[place] for place in order)
    folded = [fold(option) for option in options]
    position = list(order).index(question.key)
    abstain = next((place for place, text in enumerate(folded) if text in ABSTAIN and place != position), None)
    collide = len(set(folded)) < len(folded) or "" in folded
    letters = letters or collide
    # A letter that is itself an option would stand for two.
    marks = tuple(letter for letter in ascii_uppercase if fold(letter) not in folded)[: len(options)]
    lettered = tuple(f"{mark}. {text}" for mark, text in zip(marks, options, strict=True))
    names = lettered if collide else options
    return Shown(
        lines=lettered if letters else options,
        letters=letters,
        abstain="" if abstain is None else options[abstain],
        answer=OneOf(
            options=names,
            marks=marks if letters else (),
            abstain=None if abstain is None else names[abstain],
            aliases={} if abstain is None or collide else {names[abstain]: tuple(sorted(ABSTAIN.difference(folded)))},
        ),
        key=Choice(name=names[position]),
    )


def _cut(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
