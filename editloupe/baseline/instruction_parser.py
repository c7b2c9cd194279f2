"""Reads what an instruction asks for, as far as rules can: the kind of edit, colours, places, numbers, outlines.

An object's noun is only a name here: nothing in this backend knows what a mug looks like.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from editloupe.baseline.naming import NAMES, SYNONYMS

Action: TypeAlias = Literal["colour", "material", "text", "shape", "remove", "replace", "count", "add", "unknown"]

MATERIALS: Final[Mapping[str, tuple[str, ...]]] = {
    "wood": ("brown", "orange", "beige", "red"), "metal": ("gray", "white", "black"), "steel": ("gray", "white", "black"),
    "iron": ("gray", "black"), "silver": ("gray", "white"), "gold": ("yellow", "beige", "brown", "orange"),
    "bronze": ("brown", "orange", "yellow"), "copper": ("brown", "orange", "red"), "brass": ("yellow", "brown"),
    "stone": ("gray", "beige", "brown"), "marble": ("white", "gray", "beige"), "concrete": ("gray", "white"),
    "brick": ("red", "brown", "orange", "pink", "beige"), "leather": ("brown", "black", "beige"),
    "glass": ("white", "gray", "turquoise", "blue", "beige"), "ceramic": ("white", "gray", "beige"),
    "bamboo": ("beige", "brown", "yellow", "green"), "ice": ("white", "turquoise", "blue", "gray"),
    "cardboard": ("brown", "beige", "orange"), "plastic": (), "fabric": (), "paper": (), "rubber": (), "wool": (),
    "velvet": (), "denim": ("blue", "gray"), "jade": ("green", "turquoise"), "porcelain": ("white", "gray", "beige"),
}  # fmt: skip
"""What a material usually looks like, by colour; an empty list says nothing about colour."""
_MATERIAL_FORMS: Final[Mapping[str, str]] = {
    "wooden": "wood", "metallic": "metal", "stony": "stone", "golden": "gold", "glassy": "glass", "bricks": "brick",
    "woolen": "wool", "woollen": "wool", "aluminium": "metal", "aluminum": "metal", "chrome": "metal",
}  # fmt: skip

OUTLINES: Final[Mapping[str, str]] = {
    "round": "round", "circular": "round", "circle": "round", "oval": "round", "square": "square", "rectangular": "square",
    "rectangle": "square", "triangular": "triangle", "triangle": "triangle", "star": "star", "star-shaped": "star",
    "heart": "heart", "heart-shaped": "heart", "hexagonal": "hexagon", "hexagon": "hexagon", "diamond": "diamond",
    "cylindrical": "cylinder", "cube": "square", "cubic": "square", "sphere": "round", "spherical": "round",
}  # fmt: skip

_NUMBERS: Final[Mapping[str, int]] = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10,
    "eleven": 11, "twelve": 12, "zero": 0,
}  # fmt: skip

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"|“[^”]*”|‘[^’]*’|«[^»]*»")
_TEXT = re.compile(
    r"\b(text|word|words|letter|letters|lettering|reads?|says?|spells?|writing|inscription|caption|digits?)\b"
)
_COUNT = re.compile(
    r"\b(number|count|quantity|amount)\s+of\b|\bleave only\b|\bonly \w+ (remain|left)|\breduce\b|\bincrease\b"
)
_REMOVE = re.compile(r"\b(remove[sd]?|delet\w+|eras\w+|take away|get rid of|clear away|eliminat\w+|take out|without)\b")
_REPLACE = re.compile(r"\b(replac\w+|swap\w*|substitut\w+|in place of|exchang\w+)\b|\b(into|to)\s+an?\b")
_ADD = re.compile(r"\b(add|adds|added|insert|place|put)\b")
_SHAPE = re.compile(r"\b(shape|outline)\b|-shaped\b")
_STYLE = re.compile(r"\b(style|painting|cartoon|sketch|cinematic|season|weather|night|daytime|sunset|mood|lighting)\b")
_COLOUR = re.compile(r"\b(colou?r\w*|recolou?r\w*|paint\w*|tint\w*|dye\w*)\b")
_RESEMBLE = re.compile(r"\blook(s|ing)? like\b|\bresembl\w+")
_SOME_OF = re.compile(r"\b(remov|delet|eras)\w*\s+(\w+)\s+of\b")
_SOME_MORE = re.compile(r"\b(add|adds|added|insert)\s+(\w+)\b")
_BESIDE = re.compile(
    r"\b(left|right|top|bottom|middle|center|centre)(\s+(side|edge|part|corner|end))?\s+of\s+(?!(the\s+)?"
    r"(image|picture|photo|photograph|scene|frame)\b)"
)
_AFTERWORDS: Final = frozenset(("color", "colour", "one", "instead", "now", "please"))
_PLACES: Final[Mapping[str, tuple[str, ...]]] = {
    "left": ("left", "leftmost", "left-hand"), "right": ("right", "rightmost", "right-hand"),
    "top": ("top", "upper", "topmost"), "bottom": ("bottom", "lower", "bottommost"),
    "middle": ("middle", "center", "centre", "central"),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ParsedInstruction:
    """What an instruction asks for."""

    action: Action
    """The kind of edit; "unknown" where no rule recognises it."""
    of: str | None = None
    """The target's colour before the edit; None where none is named."""
    to: str | None = None
    """The colour that is asked for; None where none is named."""
    material: str | None = None
    outline: str | None = None
    places: tuple[str, ...] = ()
    """Where in the picture the target is: "left", "top", …"""
    change: int | None = None
    """How many more things are asked for; negative for fewer."""

    @property
    def described(self) -> str:
        """Return it in words, for the reasoning."""
        facts = {
            "kind of edit:": self.action,
            "target is": self.of,
            "asked colour": self.to,
            "asked material": self.material,
            "asked outline": self.outline,
            "place": " ".join(self.places),
            "asked change of number": None if self.change is None else f"{self.change:+d}",
        }
        return ", ".join(f"{what} {value}" for what, value in facts.items() if value)


def parse_instruction(instruction: str) -> ParsedInstruction:
    """Return what an instruction asks for; its action is "unknown" where no kind of edit is recognised.

    Quoted text is skipped.
    """
    text = _QUOTED.sub(" ", instruction.casefold().replace("→", " to "))
    # "left of the lamp" is a place beside a thing, not one in the picture.
    text = _BESIDE.sub("beside ", text)
    words = re.findall(r"[a-z]+(?:-[a-z]+)*|\d+", text)
    colours = [(i, SYNONYMS.get(w, w)) for i, w in enumerate(words) if SYNONYMS.get(w, w) in NAMES]
    materials = [_MATERIAL_FORMS.get(w, w) for w in words if _MATERIAL_FORMS.get(w, w) in MATERIALS]
    outlines = [(i, OUTLINES[w]) for i, w in enumerate(words) if w in OUTLINES]
    places = tuple(place for place, forms in _PLACES.items() if any(w in forms for w in words))
    action = _action(text, words, quoted=text != instruction.casefold(), colours=colours, materials=materials)
    if action in ("unknown", "colour", "replace") and outlines and _is_shape(words, outlines, colours):
        action = "shape"
    of, to = _colours(action, words, colours)
    return ParsedInstruction(
        action=action,
        of=of,
        to=to,
        material=materials[-1] if action == "material" and materials else None,
        outline=_outline(words, outlines) if action == "shape" else None,
        places=places,
        change=_change(action, words, text),
    )


def _action(text: str, words: list[str], *, quoted: bool, colours: list[tuple[int, str]], materials: list[str]) -> Action:
    if _TEXT.search(text):
        return "text"
    if _COUNT.search(text) or (_ADD.search(text) and "more" in words) or _counts(text):
        return "count"
    if _SHAPE.search(text):
        return "shape"
    if _replaces(text, words):
        return "replace"
    if _REMOVE.search(text):
        return "remove"
    if materials and (set(words) & {"material", "made", "make", "out", "attribute", "turn", "change", "changed"}):
        return "material"
    if _COLOUR.search(text):
        return "colour"
    if _STYLE.search(text) or _RESEMBLE.search(text):
        return "unknown"
    if set(words) & {"to", "make", "turn", "change", "changed", "should", "into", "from"} and _ends_in(words, colours):
        return "colour"
    if _ADD.search(text):
        return "add"
    if re.search(r"\bchanged?\b.*\b(to|into)\b", text) and not quoted:
        return "replace"
    return "text" if quoted else "unknown"


def _counts(text: str) -> bool:
    """Return True if a number stands where an article would: "remove two of …", "add three …"."""
    found = (_SOME_OF.search(text), _SOME_MORE.search(text))
    return any(m is not None and (m.group(2) in _NUMBERS or m.group(2).isdigit()) for m in found)


def _ends_in(words: list[str], colours: list[tuple[int, str]]) -> bool:
    """Return True if the sentence ends in its last colour, which is then asked for. Places and particles do not count."""
    if not colours:
        return False
    places = {form for forms in _PLACES.values() for form in forms} | {"on", "in", "at", "the"}
    return all(word in _AFTERWORDS or word in places for word in words[colours[-1][0] + 1 :])


def _replaces(text: str, words: list[str]) -> bool:
    """Return True for a replacement: by its verb, or "into a …" before more than a colour, a material or an outline."""
    found = _REPLACE.search(text)
    if not found:
        return False
    if found.group(1):
        return True
    rest = re.findall(r"[a-z-]+", text[found.end() :])[:2]
    plain = {*NAMES, *SYNONYMS, *MATERIALS, *_MATERIAL_FORMS, *OUTLINES, "one", "color", "colour"}
    return rest[:1] != ["one"] and any(word not in plain for word in rest)


def _is_shape(words: list[str], outlines: list[tuple[int, str]], colours: list[tuple[int, str]]) -> bool:
    """Return True if an outline, and not a colour, is asked for: it stands last."""
    last = outlines[-1][0]
    return (not colours or colours[-1][0] < last) and (last >= len(words) - 2 or words[last + 1] == "instead")


def _colours(action: Action, words: list[str], colours: list[tuple[int, str]]) -> tuple[str | None, str | None]:
    """Return the target's colour before and after."""
    if not colours:
        return None, None
    names = [name for _, name in colours]
    if action == "add":
        return None, names[0]
    if action == "colour":
        if len(names) == 1:
            return None, names[0]
        if "from" in words:
            at = words.index("from")
            after = [name for i, name in colours if i > at]
            if len(after) >= 2:
                return after[0], after[1]
        return names[0], names[-1]
    if action == "replace":
        # "put a red box in place of the mug" names the new thing first.
        if "place" in words:
            at = words.index("place")
            return _last([n for i, n in colours if i > at]), _last([n for i, n in colours if i < at])
        split = next((i for i, word in enumerate(words) if word in ("with", "by", "for", "into", "to")), None)
        if split is not None:
            # Near the new thing only: "to a dog on the blue sail" asks for no blue.
            return _last([n for i, n in colours if i < split]), _last([n for i, n in colours if split < i <= split + 3])
    return names[0], None


def _outline(words: list[str], outlines: list[tuple[int, str]]) -> str | None:
    """Return the outline that is asked for: the last one, or the one before "instead of"."""
    at = words.index("instead") if "instead" in words else len(words)
    return _last([name for i, name in outlines if i < at]) or _last([name for _, name in outlines])


def _change(action: Action, words: list[str], text: str) -> int | None:
    """Return how many more are asked for; negative for fewer."""
    if action == "add":
        return 1
    if action != "count":
        return None
    numbers = [int(w) if w.isdigit() else _NUMBERS[w] for w in words if w.isdigit() or w in _NUMBERS]
    if "from" in words and len(numbers) >= 2:
        return numbers[1] - numbers[0]
    if "only" in words and len(numbers) >= 2:
        return numbers[0] - numbers[1]
    if numbers and _ADD.search(text):
        return numbers[0]
    return -numbers[0] if numbers and _REMOVE.search(text) else None


def _last(names: list[str]) -> str | None:
    return names[-1] if names else None
