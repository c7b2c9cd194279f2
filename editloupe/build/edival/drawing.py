"""From listed objects to instructions: what is drawn by the seed, what a model is asked, and what its answer must hold.

Pure functions (paper, 2.2, 2.3, I.1 and I.2). The wording of prompts and the word lists are ours.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from editloupe.answers import AnswerSpec, FreeText, OneOf, closed, fold
from editloupe.build.base import LeftOut
from editloupe.build.edival.pools import ADDING, RENAMING, after, brought, start, words
from editloupe.build.engine import record
from editloupe.build.shown import SIGNS, plain_name
from editloupe.prompts import render
from editloupe.protocols.edival import instructions as kinds
from editloupe.protocols.edival.chain import Pools
from editloupe.protocols.edival.instructions import EDIT_TYPES, POSITIONS, Edit
from editloupe.replies import one_line
from editloupe.values import Json

UNUSABLE: Final = "unusable_answer"
"""Why a chain ends whose next edit cannot be used."""
COUNTS: Final = (3, 4, 5)
"""How many of an object an instruction may ask for."""
MOST_OBJECTS: Final = 40
"""Of one list."""
LONGEST_NAME: Final = 60
"""Characters of an object's name."""

_WORD: Final = r"[^\W_][\w'&-]*"
_NAME: Final = re.compile(rf"{_WORD}( {_WORD})*")
_UNKNOWN: Final = frozenset(("", "none", "null", "unknown", "n/a", "na"))


_MAYBE: Final[Json] = {"anyOf": [{"type": "string"}, {"type": "null"}]}
_OBJECT: Final = closed(
    {
        "object": {"type": "string", "minLength": 1},
        **dict.fromkeys(("color", "material", "text"), _MAYBE),
        "count": {"type": "integer", "minimum": 1},
        "foreground": {"type": "boolean"},
    }
)
OBJECTS_ANSWER: Final = record(objects={"type": "array", "items": _OBJECT, "maxItems": MOST_OBJECTS})


@dataclass(frozen=True, kw_only=True)
class SceneObject:
    """One object of an image."""

    name: str
    """Material, color and object, as far as they are known: "metal red cup"."""
    kind: str = ""
    """The object alone: "cup"."""
    text: str = ""
    """What is written on it."""
    count: int = 1
    """How many there are."""
    foreground: bool = True
    """Whether a new background leaves it as it is. What an edit brings is in the foreground."""


@dataclass(frozen=True, kw_only=True)
class EditedScene:
    """What is known of an image after some edits."""

    objects: Mapping[str, SceneObject]
    """All that have been there, by name."""
    pools: Pools
    edits: tuple[Edit, ...] = ()
    """Those before."""

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
        """Return the image after a further edit."""
        known, new = dict(self.objects), brought(edit)
        before = known.get(edit.target, SceneObject(name=edit.target))
        pools = after(self.pools, edit, foreground={one.name for one in self.available if one.foreground})
        if new:
            known[new] = replace(before, name=new) if edit.edit_type in RENAMING else SceneObject(name=new, kind=new)
        elif edit.edit_type == kinds.TEXT_CHANGE and edit.target:
            known[edit.target] = replace(before, text=edit.new)
        elif edit.count is not None:
            known[edit.target] = replace(before, count=edit.count)
        return EditedScene(objects=known, pools=pools, edits=(*self.edits, edit))


def listed(data: Any) -> tuple[list[SceneObject], dict[str, str]]:
    """Return the usable objects of a decomposition, and the others: name → why.

    why: "unusable_name" (longer than LONGEST_NAME, or with other signs than letters, digits, ' & and -), or "named_twice".
    """
    found: dict[str, SceneObject] = {}
    others: dict[str, str] = {}
    for one in data["objects"]:
        kind = name = _plain(one["object"])
        for part in (_plain(one["color"]), _plain(one["material"])):
            if not set(part.split()) <= set(name.split()):
                name = f"{part} {name}"
        if len(name) > LONGEST_NAME or not _NAME.fullmatch(name):
            others[name] = "unusable_name"
        elif name in found:
            others[name] = "named_twice"
        else:
            text = one_line(one["text"] or "")
            # Brackets and quotes part the slots of an instruction.
            text = "" if fold(text) in _UNKNOWN or re.search(r"[\[\]\"]", text) else text
            found[name] = SceneObject(name=name, kind=kind, text=text, count=one["count"], foreground=one["foreground"])
    return list(found.values()), others


def _plain(text: str | None) -> str:
    """Return a word of an answer as a plain name; "" for one that says nothing."""
    found = plain_name(text or "")
    return "" if found in _UNKNOWN else found


def question(edit: Edit, scene: EditedScene) -> tuple[str, AnswerSpec] | None:
    """Return the question for what the seed leaves open of an edit, and what may be answered; None where nothing is."""
    kind, target = edit.edit_type, scene.objects.get(edit.target)
    names: list[Json] = [one.name for one in scene.available if edit.count is None or one.count != edit.count]
    of: Json = {"enum": names}
    answer: AnswerSpec = FreeText(max_words=4 if kind in ADDING else 2)
    if kind == kinds.SUBJECT_REMOVE:
        return None
    if kind == kinds.COLOR_ALTER:
        colors = _colors(edit.target, scene)
        answer = OneOf(options=colors, aliases={"gray": ("grey",)} if "gray" in colors else {})
    elif kind == kinds.POSITION_CHANGE:
        answer = record(target=of, position={"enum": list(POSITIONS)}, reference=of)
    elif kind == kinds.COUNT_CHANGE:
        answer = record(target=of)
    prompt = render(
        "build/edival/instruct",
        kind=kind,
        edit=edit,
        objects=names,
        available=scene.pools.available,
        written="" if target is None else one_line(target.text),
        earlier=[one_line(one.sentence()) for one in scene.edits],
    )
    return prompt, answer


def read(edit: Edit, scene: EditedScene, said: Any) -> Edit:
    """Return an edit with what was said of it. Raises LeftOut for what cannot be used."""
    if isinstance(said, Mapping):
        if said["target"] == said.get("reference"):
            raise LeftOut(UNUSABLE, f"{said['target']!r} cannot be moved beside itself")
        return replace(edit, **said)
    if edit.edit_type == kinds.COLOR_ALTER:
        return replace(edit, new=said)
    new = one_line(said).strip(SIGNS)
    if edit.edit_type == kinds.TEXT_CHANGE:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9'&!-]{0,19}( [A-Za-z0-9'&!-]{1,20})?", new):
            raise LeftOut(UNUSABLE, f"{new[:60]!r} is not one or two English words")
        there = fold(new) == fold(edit.old_text)
    else:
        new = plain_name(new)
        if len(new) > LONGEST_NAME or not _NAME.fullmatch(new):
            raise LeftOut(UNUSABLE, f"{new[:60]!r} is no name")
        there = _is_there(replace(edit, new=new), scene)
    if there:
        raise LeftOut(UNUSABLE, f"{new!r} is or was there already")
    return replace(edit, new=new)


def _is_there(edit: Edit, scene: EditedScene) -> bool:
    """Return whether what an edit brings could not be told from what a scene has or had."""
    # A "cup" beside a "red cup" could not be told from it; "wooden" is wood.
    had = brought(edit) in scene.pools.ever or (
        edit.edit_type in ADDING and any(edit.new == one.kind for one in scene.objects.values())
    )
    words_ = edit.target.replace("grey", "gray").split() if edit.edit_type in RENAMING else ()
    return had or any(word.startswith(edit.new) for word in words_)


def _colors(target: str, scene: EditedScene) -> tuple[str, ...]:
    """Return the colors that an object may get."""
    edit = Edit(edit_type=kinds.COLOR_ALTER, target=target)
    return tuple(color for color in words()["colors"] if not _is_there(replace(edit, new=color), scene))


def draw(scene: EditedScene, seed: str) -> Edit:
    """Return the next edit of a scene, as far as the seed says it.

    A type that the chain has not had is drawn. One that no object allows, and any where nothing is left to edit, becomes
    subject_add.
    """
    numbers = random.Random(seed)
    used = {edit.edit_type for edit in scene.edits}
    drawn = numbers.choice([kind for kind in EDIT_TYPES if kind not in used])
    add = kinds.SUBJECT_ADD
    return _drawn(drawn, scene, numbers) or _drawn(add, scene, numbers) or Edit(edit_type=add)


def _drawn(kind: str, scene: EditedScene, numbers: random.Random) -> Edit | None:
    """Return an edit of a type with the slots that the seed fills; None where no object allows it."""
    some: Mapping[str, Sequence[SceneObject]] = {
        kinds.COLOR_ALTER: [one for one in scene.available if _colors(one.name, scene)],
        kinds.BACKGROUND_CHANGE: [one for one in scene.available if one.foreground],
        kinds.POSITION_CHANGE: scene.available if len(scene.available) > 1 else (),
    }
    if not (free := some.get(kind, scene.available)):
        return None
    one = numbers.choice(free)
    if kind == kinds.SUBJECT_ADD:
        return Edit(edit_type=kind, position=numbers.choice(POSITIONS), reference=one.name)
    if kind == kinds.TEXT_CHANGE:
        one = numbers.choice([other for other in free if other.text] or [SceneObject(name="")])
        return Edit(edit_type=kind, target=one.name, old_text=one.text)
    if kind == kinds.COUNT_CHANGE:
        counts = [count for count in COUNTS if any(other.count != count for other in free)]
        return Edit(edit_type=kind, count=numbers.choice(counts))
    if kind == kinds.BACKGROUND_CHANGE:
        return Edit(edit_type=kind, keep=tuple(other.name for other in free))
    return Edit(edit_type=kind, target="" if kind == kinds.POSITION_CHANGE else one.name)
