"""The nine types of edit, and the sentences that ask for them (paper, 2.3 and appendix I.2).

The benchmark writes each instruction twice: plain, and with square brackets around what varies.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from editloupe.errors import DataError
from editloupe.values import Serializable

SUBJECT_ADD: Final = "subject_add"
SUBJECT_REMOVE: Final = "subject_remove"
SUBJECT_REPLACE: Final = "subject_replace"
COLOR_ALTER: Final = "color_alter"
MATERIAL_ALTER: Final = "material_alter"
TEXT_CHANGE: Final = "text_change"
POSITION_CHANGE: Final = "position_change"
COUNT_CHANGE: Final = "count_change"
BACKGROUND_CHANGE: Final = "background_change"

EDIT_TYPES: Final = (
    SUBJECT_ADD, SUBJECT_REMOVE, SUBJECT_REPLACE, COLOR_ALTER, MATERIAL_ALTER, TEXT_CHANGE, POSITION_CHANGE, COUNT_CHANGE,
    BACKGROUND_CHANGE,
)  # fmt: skip
"""As the benchmark spells them."""
POSITIONS: Final = ("left", "right", "above", "below")

_FORMS: Final[Mapping[str, tuple[str, ...]]] = {
    SUBJECT_ADD: ("Add [new] on the [position] of [reference]", "Add [new]"),
    SUBJECT_REMOVE: ("Remove [target]",),
    SUBJECT_REPLACE: ("Replace [target] with [new]",),
    COLOR_ALTER: ("Change the color of [target] to [new]",),
    MATERIAL_ALTER: ("Change the material of [target] to [new]",),
    TEXT_CHANGE: ("Replace the text '[old_text]' on [target] with '[new]'", "Add text '[new]' on the image"),
    POSITION_CHANGE: ("Change the position of [target] to [position] of [reference]",),
    COUNT_CHANGE: ("Change the count of [target] to [count]",),
    BACKGROUND_CHANGE: ("Change the background to [new]",),
}
"""Edit type → its sentences, the fullest first. A slot is a field of `Edit`."""
_SLOT: Final = re.compile(r"\[(\w+)\]")
_AROUND: Final = ' \t\n"'
_KEPT: Final = re.compile(r",\s*remain the (.+?) unchanged\W*$", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Edit(Serializable):
    """One instruction, taken apart. A part that its sentence does not have is empty."""

    edit_type: str
    """One of `EDIT_TYPES`."""
    target: str = ""
    """The object that is there before and is edited."""
    new: str = ""
    """What comes: an object, a color, a material, a text, a background."""
    old_text: str = ""
    """The text that is replaced."""
    position: str = ""
    """One of `POSITIONS`, seen from the reference."""
    reference: str = ""
    """The object beside which something is put."""
    count: int | None = None
    """How many of the target there shall be."""
    keep: tuple[str, ...] = ()
    """The objects that a new background must leave as they are, as the plain sentence names them."""

    def sentence(self, *, brackets: bool = False) -> str:
        """Return the instruction as the benchmark writes it.

        brackets: with square brackets around what varies, and without the objects to keep.
        """
        form = next(f for f in _FORMS[self.edit_type] if all(self._slot(name) for name in _SLOT.findall(f)))
        text = _SLOT.sub(lambda slot: f"[{self._slot(slot[1])}]" if brackets else self._slot(slot[1]), form)
        return text if brackets or not self.keep else f"{text}, remain the {', '.join(self.keep)} unchanged"

    def _slot(self, name: str) -> str:
        value = getattr(self, name)
        return "" if value is None else str(value)


def bare(sentence: str) -> str:
    """Return a sentence of the benchmark without stray quotes around it and a full stop behind it."""
    return sentence.strip(_AROUND).removesuffix(".").strip(_AROUND)


def parse_edit(edit_type: str, bracketed: str, plain: str = "") -> Edit:
    """Return an instruction of the benchmark, taken apart. Stray quotes around it and a full stop behind it do not count.

    bracketed: the sentence with square brackets.   plain: the one without, which alone names the objects to keep.
    Raises DataError for an unknown type, and for a sentence that is none of the type's.
    """
    if edit_type not in EDIT_TYPES:
        raise DataError(f"unknown edit type {edit_type!r}; expected one of {', '.join(EDIT_TYPES)}")
    text = bare(bracketed)
    forms = _FORMS[edit_type]
    found = next((m for form in forms if (m := re.fullmatch(_pattern(form), text, re.IGNORECASE | re.DOTALL))), None)
    if found is None:
        raise DataError(f"{edit_type}: {bracketed!r} is not of the form {' or '.join(map(repr, forms))}")
    slots = {name: " ".join(value.split()) for name, value in found.groupdict().items()}
    if empty := next((name for name, value in slots.items() if not value), None):
        raise DataError(f"{edit_type}: {bracketed!r} has nothing in the place of [{empty}]")
    if "position" in slots and slots["position"].casefold() not in POSITIONS:
        raise DataError(f"{edit_type}: unknown position {slots['position']!r}; expected one of {', '.join(POSITIONS)}")
    count = slots.pop("count", None)
    if count is not None and not re.fullmatch("[0-9]{1,4}", count):
        raise DataError(f"{edit_type}: the count {count!r} is not a whole number")
    kept = _KEPT.search(plain) if edit_type == BACKGROUND_CHANGE else None
    return Edit(
        edit_type=edit_type,
        count=None if count is None else int(count),
        keep=() if kept is None else tuple(name.strip() for name in kept[1].split(",") if name.strip()),
        **{**slots, **({"position": slots["position"].casefold()} if "position" in slots else {})},
    )


def _pattern(form: str) -> str:
    """Return the regular expression of a sentence; what stands in its brackets has none itself."""
    parts = _SLOT.split(form)
    return "".join(rf"\[(?P<{part}>[^\[\]]*)\]" if i % 2 else re.escape(part) for i, part in enumerate(parts))
