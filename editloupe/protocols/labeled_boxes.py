"""Boxes in one image, each with a label and a name, as one answer: what an edit changed (DICE), the targets of an image.

`LabeledBoxes` comes through the door that other packages use. Its entries are read one by one, so that a bad
one never costs the others.
"""

from __future__ import annotations

import json
import math
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Final, Literal

from editloupe.answers import (
    BOX_RULE,
    BOX_SCHEMA,
    LONGEST_JSON,
    TEXT,
    AnswerSpec,
    Record,
    answer_of,
    checked,
    closed,
    fold,
    read_box,
    read_json,
    spellings,
)
from editloupe.chat import Token
from editloupe.errors import ConfigError, ReplyError
from editloupe.values import Json, finite

BOX: Final = "box"
CONFIDENCE: Final = "confidence"
"""Keys of an entry that no question renames."""
_SOURCE: Final = "confidence_source"
_DROPPED: Final = "dropped"
_AROUND: Final = " \t\r\n'\",*-[]"
"""What may stand around the label and the name of an entry in a line: the marks of a list."""
_FRACTION = re.compile(r"\s*-?\d*\.?\d+\s*")


@dataclass(frozen=True, kw_only=True)
class LabeledBoxes(AnswerSpec):
    """Boxes in one image, each with one of several labels and a name, such as what an edit added, changed and removed.

    The answer is a Record: `list_key` → a list of objects with `label_key`, `name_key`, `box` (thousandths) and, where it
    is known, `confidence` (0 to 1); `confidence_source` → "logprob", "asked" or None; `dropped` → what could not be read,
    as objects with `entry` and `why`, left out where that is nothing.
    """

    labels: tuple[str, ...]
    list_key: str
    label_key: str
    name_key: str
    image: str
    """Alias of the image whose width and height count."""
    form: Literal["json", "lines"] = "json"
    """What is asked for. json: one object, boxes in thousandths. lines: "LABEL: name, [x0, y0, x1, y1]", one entry a line,
    boxes in fractions from 0 to 1 (DICE, 3.2)."""
    none: str = "none"
    """The words for an empty list, in the lines form."""
    asks_confidence: bool = False
    """Whether each entry says how sure the judge is; json only."""
    wants_logprobs: bool = False
    """Whether an entry's confidence is p(label) / Σ p(labels) at its label's first token, where the backend tells
    probabilities."""
    kind: Literal["labelled_boxes"] = "labelled_boxes"
    _longest: ClassVar[int] = LONGEST_JSON

    def __post_init__(self) -> None:
        spellings("a label", [(label, ()) for label in self.labels], least=1)
        keys = (self.label_key, self.name_key, BOX, CONFIDENCE)
        if len({*keys}) < len(keys) or not all(keys) or self.list_key in ("", _SOURCE, _DROPPED):
            listed = ", ".join((self.list_key, *keys))
            raise ConfigError(f"expected keys that differ, also from the fixed ones, found {listed}")
        if self.asks_confidence and (self.wants_logprobs or self.form == "lines"):
            raise ConfigError(
                'asks_confidence is for form="json", and a confidence has one source: no wants_logprobs beside it'
            )

    @property
    def noun(self) -> str:
        return "JSON object" if self.form == "json" else "list"

    @property
    def ask(self) -> str:
        return "one JSON object of the form below" if self.form == "json" else "the list, one entry a line,"

    @property
    def top_logprobs(self) -> int | None:
        """How many alternatives at each token tell the labels apart; None where no probability is wanted."""
        return min(20, len(self.labels) + 2) if self.wants_logprobs else None

    def instructions(self) -> str:
        labels = " or ".join(filter(None, [", ".join(self.labels[:-1]), self.labels[-1]]))
        if self.form == "lines":
            return (
                "The answer is a list, one entry a line, each of this form: LABEL: name, [x0, y0, x1, y1]\n"
                f"LABEL is {labels}. The name says in a few words what it is. The four numbers are fractions, 0 to 1, of "
                f"the width and height of the image {self.image!r}, the origin at the top left. Where there is none, the "
                f"answer is: {self.none}"
            )
        name = f'"{self.name_key}": "<what it is, in a few words>"'
        sure = f', "{CONFIDENCE}": <how sure you are, a number from 0 to 1>' * self.asks_confidence
        entry = f'"{self.label_key}": "<{labels}>", {name}, "{BOX}": [<four numbers>]{sure}'
        return (
            f'The answer is one JSON object of this form: {{"{self.list_key}": [{{{entry}}}, …]}}\n'
            f"{BOX_RULE.format(image=self.image)} Where there is none, the list is empty."
        )

    def _read(self, text: str, metric: str, confidences: Sequence[float | None]) -> Record:
        """Return the boxes. An entry that cannot be read is dropped, and does not lose the others."""
        entries = self._entries(text)
        told = confidences if len(confidences) == len(entries) else [None] * len(entries)
        listed: list[dict[str, Json]] = []
        dropped: list[dict[str, Json]] = []
        for (_, entry), share in zip(entries, told, strict=True):
            try:
                listed.append(self._item(entry, share))
            except ValueError as error:
                dropped.append({"entry": json.dumps(entry, ensure_ascii=False)[:200], "why": str(error)})
        if entries and not listed:
            raise ReplyError("unparsed", f"none of the {len(entries)} entries can be read; of one, {dropped[0]['why']}")
        known = any(CONFIDENCE in item for item in listed)
        source = None if not known else "logprob" if self.wants_logprobs else "asked"
        data: dict[str, Json] = {self.list_key: listed, _SOURCE: source}
        return Record(data={**data, _DROPPED: dropped} if dropped else data)

    def shares(self, text: str, tokens: Sequence[Token]) -> list[float | None]:
        """Return p(label) / Σ p(labels) of each entry of an answer as it is written; [] where nothing is known.

        tokens: those of the reply that holds the answer. Boxes may be spoken in the model's own convention there: labels
        are looked for with what stands between their boxes.
        """
        try:
            entries = self._entries(checked(text, LONGEST_JSON)) if self.wants_logprobs and tokens else []
        except ReplyError:
            return []
        begun = _tokens_at(tokens, [written for written, _ in entries])
        labels = [entry.get(self.label_key) if isinstance(entry, Mapping) else None for _, entry in entries]
        return [_share(token, label, self.labels) if token else None for token, label in zip(begun, labels, strict=False)]

    def _value_schema(self) -> Json:
        if self.form == "lines":
            return {"type": "array", "items": TEXT}
        label: Json = {**TEXT, "enum": list(self.labels)}
        properties: dict[str, Json] = {self.label_key: label, self.name_key: TEXT, BOX: BOX_SCHEMA}
        if self.asks_confidence:
            properties[CONFIDENCE] = {"type": "number", "minimum": 0, "maximum": 1}
        return {"type": "array", "items": closed(properties)}

    def _entries(self, text: str) -> list[tuple[str, Json]]:
        """Return each entry as it is written, from its label to its box, and its parts as an object.

        What is written is "" where it is not known. [] where the text says that there is none.
        """
        if self.form == "lines" and not text.startswith("{"):
            return self._in_lines(text)
        data = read_json(text)
        listed = answer_of(data, "answer", self.list_key) if isinstance(data, dict) else None
        if not isinstance(listed, list):
            raise ReplyError("unparsed", "the answer's JSON object holds no list")
        if self.form == "lines":
            return self._in_lines("\n".join(map(str, listed or [self.none])))
        key = re.escape(json.dumps(self.label_key, ensure_ascii=False))
        written = [part.partition("[")[0] for part in re.split(rf'{key}\s{{0,9}}:\s{{0,9}}"', text)[1:]]
        return list(zip(written if len(written) == len(listed) else [""] * len(listed), listed, strict=True))

    def _in_lines(self, text: str) -> list[tuple[str, Json]]:
        """Return the entries "LABEL: name, [x0, y0, x1, y1]". Each ends with its box or its line.

        So a Python list of such strings is read as well, which the paper's own detector writes.
        """
        found: list[tuple[str, Json]] = []
        none, nothing, others = fold(self.none).replace(" ", ""), text == "[]", False
        for piece in re.findall(r"[^\]\n]+\]*", text):
            written, opened, inside = piece.lstrip(_AROUND).partition("[")
            label, colon, name = (part.strip(_AROUND) for part in written.partition(":"))
            if fold(label).replace(" ", "") == none:
                nothing = True
            elif colon and (opened or label in self.labels):
                box: list[Json] = [float(n) if _FRACTION.fullmatch(n) else n for n in inside.rstrip("] ").split(",")]
                found.append((written, {self.label_key: label, self.name_key: name, BOX: box}))
            else:
                others = others or bool(fold(written))
        if others or bool(found) == nothing:
            if not found:
                raise ReplyError("unparsed", "the answer holds no entry")
            both = "holds other words beside its entries" if others else f"holds entries and says {self.none!r}"
            raise ReplyError("off_menu" if others else "contradictory", f"the answer {both}")
        return found

    def _item(self, entry: Json, share: float | None) -> dict[str, Json]:
        """Return an entry as the answer has it. Raises ValueError, which says what is wrong."""
        if not isinstance(entry, Mapping):
            raise ValueError("it is no JSON object")
        label, name = entry.get(self.label_key), entry.get(self.name_key) or ""
        if label not in self.labels:
            raise ValueError(f"its label is none of {', '.join(self.labels)}")
        if not isinstance(name, str):
            raise ValueError("its name is no text")
        box = read_box(entry.get(BOX), top=1 if self.form == "lines" else 1000)
        listed: list[Json] = [int(number) if number.is_integer() else number for number in box]
        item: dict[str, Json] = {self.label_key: label, self.name_key: " ".join(name.split()), BOX: listed}
        sure = share if self.wants_logprobs else finite(entry.get(CONFIDENCE)) if self.asks_confidence else None
        return item if sure is None or not 0 <= sure <= 1 else {**item, CONFIDENCE: sure}


def _tokens_at(tokens: Sequence[Token], pieces: Sequence[str]) -> list[Token | None]:
    """Return the token in which each of these pieces of a reply begins: None for an empty one; [] where one is missing.

    The pieces stand in this order. They are looked for from the end: before an answer a draft of it may stand.
    """
    spoken = "".join(token.text for token in tokens)
    starts = list(accumulate((len(token.text) for token in tokens), initial=0))
    found: list[Token | None] = []
    place = len(spoken)
    for piece in reversed(pieces):
        if (place := spoken.rfind(piece, 0, place)) < 0:
            return []
        found.append(tokens[bisect_right(starts, place) - 1] if piece else None)
    return found[::-1]


def _share(token: Token, label: Json, labels: Sequence[str]) -> float | None:
    """Return p(label) / Σ p(labels), where a token begins the label; None where that is not known.

    An alternative counts for the one label that its text, without blanks and quotes, begins or begins with. A label that no
    alternative stands for counts as 0.
    """
    if not token.top or _meant(token.text, labels) != label:
        return None
    # The chosen one need not be among the most probable.
    chosen = () if any(text == token.text for text, _ in token.top) else ((token.text, token.logprob),)
    most = max(logprob for _, logprob in (*token.top, *chosen))
    odds = dict.fromkeys(labels, 0.0)
    for text, logprob in (*token.top, *chosen):
        if (meant := _meant(text, labels)) is not None:
            odds[meant] += math.exp(logprob - most)
    total = math.fsum(odds.values())
    return round(odds[str(label)] / total, 6) if label in odds and total else None


def _meant(text: str, labels: Sequence[str]) -> str | None:
    """Return the one label that a token begins, or begins with; None where it is none or more than one."""
    said = text.strip(" \t\r\n[](){}*:,\"'“”„‘’`").casefold()
    found = [label for label in labels if label.casefold().startswith(said) or said.startswith(label.casefold())]
    return found[0] if said and len(found) == 1 else None
