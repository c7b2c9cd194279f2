"""Finds the object that an instruction is about, by rules on its words. It is no language model.

It knows the shapes of sentences that editing benchmarks are made of; what it does not recognise it leaves unanswered.
"""

from __future__ import annotations

import re
from typing import Final

from editloupe.baseline.instruction_parser import MATERIALS, OUTLINES, Action, parse_instruction
from editloupe.baseline.naming import NAMES, SYNONYMS

WHOLE_IMAGE: Final = "image"
"""What DLEBench's Table 6 answers where an instruction is about the whole image."""
_QUOTED = re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\"|“[^”]*”|‘[^’]*’|«[^»]*»")
_IMAGE = frozenset(("image", "picture", "photo", "photograph", "scene"))
_PART_OF_ITS_NAME = frozenset(("frame", "frames", "album", "book"))
_DETERMINERS = frozenset(
    ("the", "a", "an", "this", "that", "these", "those", "all", "both", "each", "every", "its", "his", "her", "their", "my",
     "your", "some", "any", "of", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "more",
     "only", "entire", "whole", "another", "extra", "additional")
)  # fmt: skip
_ENDS = frozenset(
    ("from", "in", "on", "onto", "at", "to", "into", "with", "by", "for", "near", "next", "behind", "above", "below",
     "under", "beside", "besides", "between", "over", "across", "around", "inside", "outside", "along", "against", "as",
     "that", "which", "who", "whose", "where", "and", "so", "while", "but", "is", "are", "look", "looks", "appear", "be",
     "become", "becomes", "instead", "should", "must", "like", "using", "without", "through", "then", "if", "it", "out",
     "wear", "wears", "hold", "holds", "sit", "stand", "fly", "smile", "run", "have", "further", "more", "less", "very",
     "much")
)  # fmt: skip
"""Words at which a noun phrase is over."""
_THINGS_IN_ING = frozenset(
    ("building", "ring", "earring", "ceiling", "king", "wing", "string", "painting", "railing", "clothing", "swing",
     "awning", "bedding", "icing", "pudding", "dumpling", "duckling", "drawing", "stocking", "crossing", "lightning",
     "sibling", "wedding", "thing", "spring", "sling", "siding", "flooring", "dressing", "topping", "filling", "sing")
)  # fmt: skip
_ATTRIBUTES: Final = (
    "colou?rs?|attributes?|materials?|shapes?|sizes?|textures?|patterns?|styles?|outlines?|appearance|design|hue|finish"
)
_PLAIN = frozenset(
    (*NAMES, *SYNONYMS, *MATERIALS, *OUTLINES, "wooden", "metallic", "golden", "light", "dark", "bright", "bigger",
     "smaller", "larger", "taller", "shorter", "big", "small", "large", "tall",
     "short", "transparent", "shiny", "visible", "invisible")
)  # fmt: skip

_OF_ATTRIBUTE = re.compile(rf"\b(?:{_ATTRIBUTES})(?: and \w+)? of (.+)")
_OF_NUMBER = re.compile(r"\b(?:number|count|quantity|amount) of (.+)")
_REMOVE = re.compile(r"\b(?:remov\w+|delet\w+|eras\w+|eliminat\w+|get rid of|take away|take out|clear away|clear)\s+(.+)")
_REPLACE = (
    re.compile(r"\b(?:in place|instead) of (.+)"),
    re.compile(r"\b(?:replac\w+|swap\w*|exchang\w+|substitut\w+)\s+(?:out\s+)?(.+)"),
)
_TO = re.compile(
    r"\b(?:add|adds|insert|put|place|draw|attach)\w*\s+.+?\s(?:to|onto|on|in|into|over|under|above|below|behind|beside|near|"
    r"next to|in front of|inside|around|between)\s+(.+)"
)
_COUNTED = re.compile(r"\b(?:add|insert|put|place|reduce|increase|leave|keep|remov\w+|delet\w+)\s+(.+)")
_TEXT_ON = re.compile(r"\b(?:on|in|at|of)\s+(.+)")
_CHANGE = re.compile(
    r"\b(?:chang\w+|turn|turns|make|makes|paint|repaint|convert|transform|recolou?r|colou?r|dye|tint|modify|alter|adjust|"
    r"edit|set|give|let|have|move|rotate|enlarge|shrink|blur|sharpen|open|close|cover|fix|restore|"
    r"fill|colou?rize|extract|enhance|improve|brighten|darken|lighten)\s+(.+)"
)
_TEXT = re.compile(r"\b(text|words?|letters?|lettering|reads?|says?|writing|inscription|caption|digits?)\b")
_MORE = re.compile(r"\b(more|another|extra|additional|number)\b")
_SHOULD = re.compile(r"^(.+?)\s(?:should|must|needs? to|has to|have to)\b")


def target_phrase(instruction: str) -> str | None:
    """Return the object to be changed as a noun phrase in lower case, "image" for the whole of it; None where no rule fits.

    Of a replacement the original object (DLEBench, Table 6); of an addition the thing that it is added to.
    """
    text = " ".join(_QUOTED.sub(" ", instruction.casefold()).replace("→", " to ").replace("’", "'").split())
    if re.search(r"[a-z]{2}", text) is None:
        return None
    text = re.sub(
        r"^(please|kindly|can you|could you|i want you to|now|in (the|this) (image|picture|photo)),?\s+", "", text
    )
    action = parse_instruction(instruction).action
    if action == "text" and not (_QUOTED.search(instruction) or _TEXT.search(text)):
        action = "unknown"
    if action == "count" and re.search(r"\b(add|insert|put|place)\b", text) and not _MORE.search(text):
        action = "add"  # so many of a thing that need not be there yet
    for sentence in re.split(r"(?<=\w)[.!?;](?:\s|$)", text):
        found = _in_sentence(sentence.strip(), action)
        if found is not None:
            return found
    return None


def _in_sentence(text: str, action: Action) -> str | None:
    if action == "text":
        where = _TEXT_ON.search(text)
        place = None if where is None else _noun(where[1])
        return f"text on {place}" if place and place != WHOLE_IMAGE else "text"
    patterns = [*_REPLACE] if action == "replace" else []
    patterns += [_OF_NUMBER, _COUNTED] if action == "count" else []
    patterns += [_OF_ATTRIBUTE, _REMOVE]
    patterns += [_TO] if action == "add" else [_CHANGE, _SHOULD]
    for pattern in patterns:
        match = pattern.search(text)
        if match is None:
            continue
        if re.match(r"(it|everything)\b", match[1]):
            # Without a word on colour, material or the like, "it" is taken for the image; else it is unknown.
            return WHOLE_IMAGE if action == "unknown" else None
        found = _noun(match[1])
        # Something added to "the image" is about nothing that is there.
        return None if pattern is _TO and found == WHOLE_IMAGE else found
    return None


def _noun(text: str) -> str | None:
    """Return the noun phrase with which `text` begins; None where nothing is left of it."""
    words: list[str] = []
    for token in re.findall(r"[\w'-]+|[^\w\s]", text):
        if not words and (token in _DETERMINERS or token.isdigit()):
            continue
        if not re.match(r"\w", token) or token in _ENDS:
            break
        if words and token.endswith("ing") and token not in _THINGS_IN_ING:
            break
        if words and words[-1] == "of" and token in _DETERMINERS:
            continue
        words.append(token)
    attribute = bool(words) and re.fullmatch(_ATTRIBUTES, words[-1]) is not None
    words = words[:-1] if attribute else words
    while len(words) > 1 and words[-1] in (_PLAIN | {"of", "completely", "entirely", "now"}):
        words.pop()
    owner = next((i for i, word in enumerate(words) if word.endswith("'s")), None)
    if owner is not None and (attribute or owner == len(words) - 1):
        # "the building's exterior colour" is about the building; "the woman's face" about the face.
        words = [*words[:owner], words[owner].removesuffix("'s")]
    if words and (words[-1] in _IMAGE or (words[0] in _IMAGE and not _PART_OF_ITS_NAME & set(words[1:2]))):
        return WHOLE_IMAGE
    return " ".join(words) or None
