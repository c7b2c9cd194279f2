"""From an image to an edit with its question: which types are drawn, what is asked, and what an answer must hold.

Pure functions (paper, section 3.1). The wording of the prompts is ours.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from editloupe.answers import Answer, FreeText, Record, RecordOf, Text, fold
from editloupe.build.base import LeftOut
from editloupe.models.detect.search import means_whole_image
from editloupe.prompts import render
from editloupe.protocols.giebench.questions import ABSTAIN, Question
from editloupe.protocols.giebench.tables import EDIT_TYPES
from editloupe.replies import one_line
from editloupe.values import Json

TEXTUAL: Final = "Textual Edit"
"""The type that needs text in the image."""
SCENE: Final = "Scene / Background Change"
"""The type that is about no single thing."""
WHOLE: Final = "entire image"
"""The target of an edit of all of the image."""
CANNOT_TELL: Final = "I can not tell from the image"
"""As the data set writes it."""

LEAST_OPTIONS: Final = 2
MOST_OPTIONS: Final = 5
LONGEST_TEXT: Final = 400
"""Characters of an instruction or a question."""
LONGEST_OPTION: Final = 120
LONGEST_PHRASE: Final = 80

PHRASE: Final = FreeText(max_words=12)
_TEXTS: Final = ("instruction", "question")
EDIT: Final = RecordOf(
    schema={
        "type": "object",
        "properties": {
            "fits": {"type": "boolean"},
            **{name: {"type": "string"} for name in _TEXTS},
            "options": {"type": "array", "items": {"type": "string"}},
            "answer": {"type": "string"},
        },
        "required": ["fits", *_TEXTS, "options", "answer"],
        "additionalProperties": False,
    }
)

_ARTICLE: Final = re.compile(r"^(an?|the|some) ")


@dataclass(frozen=True, kw_only=True)
class WrittenEdit:
    """What is written of an edit."""

    instruction: str
    question: Question
    """Its options in the order of the set."""

    @property
    def answer(self) -> str:
        """The right option."""
        return self.question.options[self.question.key]


def drawn_types(seed: str) -> tuple[str, ...]:
    """Return the nine types in the order in which a seed draws them."""
    return tuple(random.Random(f"{seed} types").sample(EDIT_TYPES, len(EDIT_TYPES)))


def has_text(values: Mapping[str, Json]) -> bool | None:
    """Return what the column `has_text` says of an image; None where it says nothing. Raises ValueError for other words."""
    given = values.get("has_text")
    if given is None or given == "":
        return None
    found = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}.get(str(given).strip().lower())
    if found is None:
        raise ValueError(f"column 'has_text': expected true or false, found {given!r}"[:200])
    return found


def write_prompt(edit_type: str, *, target: str) -> str:
    """Return the question for an instruction and its question. target: what the edit is about; "" leaves it open."""
    name = fold(edit_type.replace("/", " ")).replace(" ", "_")
    return render(
        "build/giebench/write",
        edit_type=edit_type,
        guide=render(f"build/giebench/edits/{name}").strip(),
        target=one_line(target),
        least=LEAST_OPTIONS,
        most=MOST_OPTIONS,
    )


def read_edit(answer: Answer | None, *, seed: str) -> WrittenEdit:
    """Return what a model wrote of an edit, its options in the order of a seed.

    The option by which a judge says that it cannot tell comes last, where there are fewer than five.
    Raises LeftOut, why: "no_edit" (the model says that the type does not suit the image), "unusable_text",
    "too_few_options", "too_many_options", "unusable_option", "options_alike", "answer_not_an_option" or "answer_abstains".
    """
    data: Any = answer.data if isinstance(answer, Record) else {}
    if not data.get("fits"):
        raise LeftOut("no_edit", "the model says that this type of edit does not suit the image")
    texts = {name: one_line(str(data[name])) for name in _TEXTS}
    if wrong := next((name for name, text in texts.items() if not fold(text) or len(text) > LONGEST_TEXT), None):
        raise LeftOut("unusable_text", f"{wrong}: expected 1 to {LONGEST_TEXT} characters, found {texts[wrong][:80]!r}")
    options = [one_line(option) for option in data["options"]]
    key = one_line(str(data["answer"]))
    _check(options, key)
    right = next(option for option in options if fold(option) == fold(key))
    told = [option for option in options if fold(option) not in ABSTAIN]
    if len(told) < LEAST_OPTIONS:
        raise LeftOut("too_few_options", f"expected {LEAST_OPTIONS} that say something, found {_listed(told)}")
    random.Random(f"{seed} options").shuffle(told)
    if len(told) < MOST_OPTIONS:
        told.append(CANNOT_TELL)
    question = Question(text=texts["question"], options=tuple(told), key=told.index(right))
    return WrittenEdit(instruction=texts["instruction"], question=question)


def _check(options: list[str], key: str) -> None:
    """Raise LeftOut for options and a key that make no question."""
    listed, count = _listed(options), len(options)
    folded = [fold(one) for one in options]
    bad = next((one for one in options if not fold(one) or len(one) > LONGEST_OPTION), None)
    if not LEAST_OPTIONS <= count <= MOST_OPTIONS:
        why = "too_few_options" if count < LEAST_OPTIONS else "too_many_options"
        raise LeftOut(why, f"expected {LEAST_OPTIONS} to {MOST_OPTIONS} options, found {count}: {listed}")
    if bad is not None:
        raise LeftOut("unusable_option", f"expected words of at most {LONGEST_OPTION} characters, found {bad[:80]!r}")
    if len(set(folded)) < count:
        raise LeftOut("options_alike", f"expected options that differ by more than case and punctuation, found {listed}")
    if fold(key) not in folded:
        raise LeftOut("answer_not_an_option", f"the answer {key[:80]!r} is none of {listed}")
    if fold(key) in ABSTAIN:
        raise LeftOut("answer_abstains", f"the answer is {key!r}, which no edit can bring about")


def _listed(options: list[str]) -> str:
    return ", ".join(map(repr, options))[:200] or "none"


def read_phrase(answer: Answer | None) -> str:
    """Return what has to be edited: a phrase, or WHOLE. Raises LeftOut for what cannot be looked for."""
    said = one_line(answer.text) if isinstance(answer, Text) else ""
    phrase = plain_phrase(said)
    if not fold(phrase) or len(phrase) > LONGEST_PHRASE:
        raise LeftOut("unusable_phrase", f"expected a name of 1 to {LONGEST_PHRASE} characters, found {said[:100]!r}")
    return phrase


def plain_phrase(text: str) -> str:
    """Return a phrase in lower case on one line, without an article and signs around it; WHOLE for all of an image."""
    phrase = _ARTICLE.sub("", one_line(text).casefold().strip("\"'`“”‘’*_ \t.,;:"))
    return WHOLE if means_whole_image(phrase) else phrase
