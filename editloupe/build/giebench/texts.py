"""From an image to an edit with its question: which types are drawn, what is asked, and what an answer must hold.

Pure functions (paper, section 3.1). The wording of the prompts is ours.
"""

from __future__ import annotations

import random
from typing import Any, Final

from editloupe.answers import FreeText, fold
from editloupe.build.base import LeftOut
from editloupe.build.engine import record
from editloupe.build.shown import plain_name
from editloupe.models.detect.search import means_whole_image
from editloupe.protocols.giebench.questions import ABSTAIN, MultipleChoice
from editloupe.protocols.giebench.tables import EDIT_TYPES
from editloupe.replies import one_line

TEXTUAL: Final = "Textual Edit"
"""The type that needs text in the image."""
SCENE: Final = "Scene / Background Change"
"""The type that is about no single thing."""
WHOLE: Final = "entire image"
"""The target of an edit of all of the image."""
CANNOT_TELL: Final = "I can not tell from the image"
"""As the data set writes it."""

MOST_OPTIONS: Final = 5
LONGEST_TEXT: Final = 400
"""Characters of an instruction, a question or an option."""
LONGEST_PHRASE: Final = 80

PHRASE: Final = FreeText(max_words=12)
_TEXTS: Final = ("instruction", "question")
EDIT: Final = record(
    fits={"type": "boolean"},
    **{name: {"type": "string"} for name in _TEXTS},
    options={"type": "array", "items": {"type": "string"}},
    answer={"type": "string"},
)


def drawn_types(seed: str) -> tuple[str, ...]:
    """Return the nine types in the order in which a seed draws them."""
    return tuple(random.Random(f"{seed} types").sample(EDIT_TYPES, len(EDIT_TYPES)))


def read_edit(data: Any, *, seed: str) -> tuple[str, MultipleChoice]:
    """Return the instruction and the question that a model wrote, its options in the order of a seed.

    The option by which a judge says that it cannot tell comes last, where there are fewer than five.
    Raises LeftOut, why: "no_edit" (the model says that the type does not suit the image), or "unusable_edit".
    """
    if not data["fits"]:
        raise LeftOut("no_edit", "the model says that this type of edit does not suit the image")
    said = {name: one_line(data[name]) for name in _TEXTS}
    options = [one_line(option) for option in data["options"]]
    key, folded = one_line(data["answer"]), [fold(one) for one in options]
    told = [option for option in options if fold(option) not in ABSTAIN]
    faults = {
        f"expected texts of 1 to {LONGEST_TEXT} characters": any(
            not fold(text) or len(text) > LONGEST_TEXT for text in (*said.values(), *options)
        ),
        "expected options that differ by more than case and punctuation": len(set(folded)) < len(folded),
        f"expected 2 to {MOST_OPTIONS} options that say something": not 2 <= len(told) <= len(options) <= MOST_OPTIONS,
        f"the answer {key[:80]!r} is none of them": fold(key) not in map(fold, told),
    }
    if found := [words for words, wrong in faults.items() if wrong]:
        raise LeftOut("unusable_edit", f"{found[0]}; options: {', '.join(map(repr, options))[:200] or 'none'}")
    right = next(option for option in told if fold(option) == fold(key))
    random.Random(f"{seed} options").shuffle(told)
    if len(told) < MOST_OPTIONS:
        told.append(CANNOT_TELL)
    return said["instruction"], MultipleChoice(text=said["question"], options=tuple(told), key=told.index(right))


def read_phrase(said: str) -> str:
    """Return what has to be edited: a phrase, or WHOLE. Raises LeftOut for what cannot be looked for."""
    phrase = plain_phrase(said)
    if not fold(phrase) or len(phrase) > LONGEST_PHRASE:
        raise LeftOut("unusable_phrase", f"expected a name of 1 to {LONGEST_PHRASE} characters, found {said[:100]!r}")
    return phrase


def plain_phrase(text: str) -> str:
    """Return a plain name; WHOLE for all of an image."""
    phrase = plain_name(text)
    return WHOLE if means_whole_image(phrase) else phrase
