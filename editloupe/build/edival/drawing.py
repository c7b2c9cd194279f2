"""From listed objects to instructions: what is drawn by the seed, what a model is asked, and what its answer must hold.

Pure functions (paper, 2.2, 2.3, I.1 and I.2). The wording of prompts and the word lists are ours.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from editloupe.answers import Answer, AnswerSpec, Choice, FreeText, OneOf, Record, RecordOf, Text, fold
from editloupe.build.edival.pools import after, renamed, start, words
from editloupe.prompts import render
from editloupe.protocols.edival.chain import Pools
from editloupe.protocols.edival.instructions import (
    BACKGROUND_CHANGE,
    COLOR_ALTER,
    COUNT_CHANGE,
    EDIT_TYPES,
    MATERIAL_ALTER,
    POSITION_CHANGE,
    POSITIONS,
    SUBJECT_ADD,
    SUBJECT_REMOVE,
    SUBJECT_REPLACE,
    TEXT_CHANGE,
    Edit,
)
from editloupe.replies import one_line
from editloupe.values import Json

COUNTS: Final = (3, 4, 5)
"""How many of an object an instruction may ask for."""
MOST_OBJECTS: Final = 40
"""Of one list."""
LONGEST_NAME: Final = 60
"""Characters of an object's name."""

_WORD: Final = r"[^\W_][\w'&-]*"
_NAME: Final = re.compile(rf"{_WORD}( {_WORD})*")
_ARTICLE: Final = re.compile(r"^(an?|the|some) ")
_OF_OR_IN: Final = re.compile(r" (?:in|with|wearing|on|at|of|from) ")
"""What follows says more about the word before it: "man in a suit" is a man."""
_WRAPPED: Final = "\"'`“”‘’«»<>[]*_ \t.,;:"
_UNKNOWN: Final = frozenset(("", "none", "null", "unknown", "n/a", "na"))
_SPELLINGS: Final[Mapping[str, tuple[str, ...]]] = {"gray": ("grey",)}


def _object_schema() -> dict[str, Json]:
    maybe: dict[str, Json] = {"anyOf": [{"type": "string"}, {"type": "null"}]}
    fields: dict[str, Json] = {
        "object": {"type": "string", "minLength": 1},
        "color": maybe,
        "material": maybe,
        "text": maybe,
        "count": {"type": "integer", "minimum": 1},
        "foreground": {"type": "boolean"},
    }
    return _closed(fields)


def _record(**fields: Json) -> RecordOf:
    return RecordOf(schema=_closed(fields))


def _closed(fields: dict[str, Json]) -> dict[str, Json]:
    """Return the schema of an object that has these fields and no others."""
    return {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}


OBJECTS_ANSWER: Final = _record(objects={"type": "array", "items": _object_schema(), "maxItems": MOST_OBJECTS})


@dataclass(frozen=True, kw_only=True)
class SceneObject:
    """One object of an image."""

    name: str
    """Material, colour and object, as far as they are known: "metal red cup"."""
    kind: str = ""
    """The object alone: "cup"."""
    text: str = ""
    """What is written on it."""
    count: int = 1
    """How many there are."""
    foreground: bool = True
    """Whether a new background leaves it as it is."""


@dataclass(frozen=True, kw_only=True)
class EditedScene:
    """What is known of an image after some edits."""

    objects: Mapping[str, SceneObject]
    """All that have been there, by name."""
    pools: Pools
    edits: tuple[Edit, ...] = ()

    @classmethod
    def of(cls, objects: Iterable[SceneObject]) -> EditedScene:
        """Return an image before its first edit."""
        known = {one.name: one for one in objects}
        return cls(objects=known, pools=start(known))

    @property
    def available(self) -> tuple[SceneObject, ...]:
        """What the next edit may touch, in the order of the pool."""
        return tuple(self.objects[name] for name in self.pools.available)

    def after(self, edit: Edit) -> EditedScene:
        """Return the image after a further edit. What an edit brings is in the foreground."""
        known = dict(self.objects)
        before = known.get(edit.target, SceneObject(name=edit.target))
        foreground = {name for name in self.pools.available if known[name].foreground}
        pools = after(self.pools, edit, foreground=foreground)
        brought = pools.available[-1] if len(pools.ever) > len(self.pools.ever) and pools.available else ""
        if edit.edit_type in (COLOR_ALTER, MATERIAL_ALTER):
            known[brought] = replace(before, name=brought)
        elif edit.edit_type in (SUBJECT_ADD, SUBJECT_REPLACE):
            known[brought] = SceneObject(name=brought, kind=brought)
        elif edit.edit_type == TEXT_CHANGE and edit.target:
            known[edit.target] = replace(before, text=edit.new)
        elif edit.edit_type == COUNT_CHANGE and edit.count is not None:
            known[edit.target] = replace(before, count=edit.count)
        return EditedScene(objects=known, pools=pools, edits=(*self.edits, edit))


def listed(answer: Answer | None) -> tuple[list[SceneObject], list[tuple[str, str]]]:
    """Return the usable objects of a decomposition, and the others: (name, why) each.

    why: "person", "unusable_name" (longer than LONGEST_NAME, or with other signs than letters, digits, ' & and -), or
    "named_twice".
    """
    data: Any = answer.data if isinstance(answer, Record) else None
    found: dict[str, SceneObject] = {}
    others: list[tuple[str, str]] = []
    people = set(words()["people"])
    for one in data["objects"] if isinstance(data, Mapping) else ():
        kind = _ARTICLE.sub("", _plain(one["object"]))
        name = kind
        for part in (_plain(one["color"]), _plain(one["material"])):
            if not set(part.split()) <= set(name.split()):
                name = f"{part} {name}"
        if _OF_OR_IN.split(kind)[0].rpartition(" ")[2] in people:
            others.append((name, "person"))
        elif len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
            others.append((name, "unusable_name"))
        elif name in found:
            others.append((name, "named_twice"))
        else:
            text = " ".join((one["text"] or "").split())
            # Brackets and quotes part the slots of an instruction.
            text = "" if fold(text) in _UNKNOWN or re.search(r"[\[\]\"]", text) else text
            found[name] = SceneObject(name=name, kind=kind, text=text, count=one["count"], foreground=one["foreground"])
    return list(found.values()), others


def _plain(text: str | None) -> str:
    """Return a word of an answer in lower case, without quotes around it; "" for one that says nothing."""
    found = " ".join((text or "").casefold().split()).strip(_WRAPPED)
    return "" if found in _UNKNOWN else found


def decomposition_prompt() -> str:
    """Return the question for the objects of an image."""
    return render("build/edival/decompose", most=MOST_OBJECTS)


@dataclass(frozen=True, kw_only=True)
class DrawnEdit:
    """The next edit as far as the seed says it. What is left open is asked."""

    scene: EditedScene
    edit: Edit
    drawn: str
    """The type that was drawn; the edit has another one where no object allows it."""
    seed: str
    """What it was drawn by."""

    @property
    def answer(self) -> AnswerSpec | None:
        """What may be answered; None where nothing is left open."""
        names: list[Json] = [one.name for one in self._choices]
        kind = self.edit.edit_type
        if kind == SUBJECT_REMOVE:
            return None
        if kind == COLOR_ALTER:
            colors = _free(self.edit, self.scene)
            return OneOf(options=colors, aliases={k: v for k, v in _SPELLINGS.items() if k in colors})
        if kind == POSITION_CHANGE:
            positions: list[Json] = list(POSITIONS)
            one: dict[str, Json] = {"enum": names}
            return _record(target=one, position={"enum": positions}, reference=one)
        if kind == COUNT_CHANGE:
            return _record(target={"enum": names})
        return FreeText(max_words=4 if kind in (SUBJECT_ADD, SUBJECT_REPLACE) else 2)

    @property
    def prompt(self) -> str:
        """The question for what is left open."""
        edit, target = self.edit, self.scene.objects.get(self.edit.target)
        return render(
            "build/edival/instruct",
            kind=edit.edit_type,
            edit=edit,
            objects=[one.name for one in self._choices],
            available=self.scene.pools.available,
            written="" if target is None else one_line(target.text),
            earlier=[one_line(one.sentence()) for one in self.scene.edits],
        )

    def read(self, answer: Answer) -> Edit | str:
        """Return the edit with what was answered, or why that cannot be used."""
        edit = self.edit
        if isinstance(answer, Record):
            data: Any = answer.data
            if edit.edit_type == COUNT_CHANGE:
                return replace(edit, target=data["target"])
            if data["target"] == data["reference"]:
                return f"{data['target']!r} cannot be moved beside itself"
            return replace(edit, **{name: data[name] for name in ("target", "position", "reference")})
        if isinstance(answer, Choice):
            return replace(edit, new=answer.name)
        new = " ".join(answer.text.split()).strip(_WRAPPED) if isinstance(answer, Text) else ""
        if edit.edit_type == TEXT_CHANGE:
            if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9'&!-]{0,19}( [A-Za-z0-9'&!-]{1,20})?", new):
                return f"{new[:60]!r} is not one or two English words"
            return f"{new!r} is written there already" if fold(new) == fold(edit.old_text) else replace(edit, new=new)
        new = _ARTICLE.sub("", new.casefold())
        if len(new) > LONGEST_NAME or not _NAME.fullmatch(new):
            return f"{new[:60]!r} is no name"
        if problem := _taken(edit, self.scene, new):
            return problem
        return replace(edit, new=new)

    def fall_back(self) -> Edit:
        """Return the edit with what the seed draws from the word lists."""
        kind, numbers = self.edit.edit_type, random.Random(f"{self.seed} words")
        if kind == POSITION_CHANGE:
            target, reference = numbers.sample([one.name for one in self._choices], 2)
            return replace(self.edit, target=target, reference=reference, position=numbers.choice(POSITIONS))
        if kind == COUNT_CHANGE:
            return replace(self.edit, target=numbers.choice(self._choices).name)
        return replace(self.edit, new=numbers.choice(_free(self.edit, self.scene)))

    @property
    def _choices(self) -> list[SceneObject]:
        """The objects that an answer may name."""
        return [one for one in self.scene.available if self.edit.count is None or one.count != self.edit.count]


_LISTS: Final[Mapping[str, str]] = {
    SUBJECT_ADD: "objects",
    SUBJECT_REPLACE: "objects",
    COLOR_ALTER: "colors",
    MATERIAL_ALTER: "materials",
    TEXT_CHANGE: "texts",
    BACKGROUND_CHANGE: "backgrounds",
}
"""Edit type → the word list that its new thing may come from."""


def _taken(edit: Edit, scene: EditedScene, new: str) -> str:
    """Return why a word cannot be what an edit brings to a scene; "" where it can."""
    kind = edit.edit_type
    if kind in (SUBJECT_ADD, SUBJECT_REPLACE):
        # A "cup" beside a "red cup" could not be told from it.
        known = {*scene.pools.ever, *(one.kind for one in scene.objects.values())}
        return f"{new!r} is or was there already" if new in known else ""
    if kind in (COLOR_ALTER, MATERIAL_ALTER):
        said = edit.target.replace("grey", "gray").split()
        # "wooden" is wood.
        if new in said or (kind == MATERIAL_ALTER and any(word.startswith(new) for word in said)):
            return f"{edit.target!r} is {new} already"
        name = renamed(replace(edit, new=new))
        return f"{name!r} is or was there already" if name in scene.pools.ever else ""
    return f"{new!r} is written there already" if kind == TEXT_CHANGE and new == edit.old_text else ""


def _free(edit: Edit, scene: EditedScene) -> tuple[str, ...]:
    """Return the words of our list that an edit may bring to a scene."""
    return tuple(word for word in words()[_LISTS[edit.edit_type]] if not _taken(edit, scene, word))


def draw(scene: EditedScene, seed: str) -> DrawnEdit:
    """Return the next edit of a scene, as far as the seed says it: a type that the chain has not had, and its objects.

    A type that no object allows, and any type where nothing is left to edit, becomes subject_add.
    """
    numbers = random.Random(seed)
    used = {edit.edit_type for edit in scene.edits}
    drawn = numbers.choice([kind for kind in EDIT_TYPES if kind not in used])
    edit = _drawn(drawn, scene, numbers) or _drawn(SUBJECT_ADD, scene, numbers)
    assert edit is not None
    return DrawnEdit(scene=scene, edit=edit, drawn=drawn, seed=seed)


def _drawn(kind: str, scene: EditedScene, numbers: random.Random) -> Edit | None:
    """Return an edit of a type with the slots that the seed fills; None where no object allows it."""
    available = scene.available
    one = numbers.choice(available) if available else None
    if kind == SUBJECT_ADD:
        return (
            Edit(edit_type=kind)
            if one is None
            else Edit(edit_type=kind, position=numbers.choice(POSITIONS), reference=one.name)
        )
    if one is None:
        return None
    if kind in (COLOR_ALTER, MATERIAL_ALTER):
        free = [other for other in available if _free(Edit(edit_type=kind, target=other.name), scene)]
        if not free:
            return None
        return Edit(edit_type=kind, target=(one if one in free else numbers.choice(free)).name)
    if kind in (SUBJECT_REMOVE, SUBJECT_REPLACE):
        return Edit(edit_type=kind, target=one.name)
    if kind == TEXT_CHANGE:
        written = [one for one in available if one.text]
        if not written:
            return Edit(edit_type=kind)
        one = numbers.choice(written)
        return Edit(edit_type=kind, target=one.name, old_text=one.text)
    if kind == POSITION_CHANGE:
        return Edit(edit_type=kind) if len(available) > 1 else None
    if kind == COUNT_CHANGE:
        counts = [count for count in COUNTS if any(one.count != count for one in available)]
        return Edit(edit_type=kind, count=numbers.choice(counts))
    keep: Sequence[str] = [one.name for one in available if one.foreground]
    return Edit(edit_type=kind, keep=tuple(keep)) if keep else None
