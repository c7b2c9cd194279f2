"""What a backend can do, asked live with small drawn pictures. What was asked and answered stands beside each verdict."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, Literal, TypeAlias

import jsonschema
import numpy as np
from PIL import Image, ImageDraw

from editloupe.backends.base import LMM, parse_uri
from editloupe.backends.payload import one_line
from editloupe.chat import ImagePart, Message, Reply, Request, TextPart, ToolSpec, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import EditLoupeError
from editloupe.values import Json, Serialisable

Result: TypeAlias = Literal["yes", "no", "failed", "not offered", "not told"]
COLOURS: Final = {"red": (214, 40, 40), "green": (34, 150, 60), "blue": (40, 70, 210)}
_NEEDED: Final = ("answer", "see a picture", "tell pictures apart")
_SKY: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {"sky": {"type": "string", "enum": ["Partly Cloudy", "Heavy Rain"]}},
    "required": ["sky"],
    "additionalProperties": False,
}
_TOOL: Final = ToolSpec(
    name="report_colour",
    description="Reports the colour that was seen.",
    parameters={"type": "object", "properties": {"colour": {"type": "string"}}, "required": ["colour"]},
)


@dataclass(frozen=True, kw_only=True)
class Probed(Serialisable):
    """One probe."""

    name: str
    result: Result
    asked: str
    answered: str
    """The model's own words, or why there are none."""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """All probes of a backend."""

    uri: str
    endpoint: str
    model: str
    """As the endpoint calls it."""
    rows: tuple[Probed, ...]
    usage: Usage
    asked: int
    """How many questions were answered."""

    @property
    def can_judge(self) -> bool:
        """Whether it answers, sees, and tells pictures apart; of the baseline, which is asked nothing, True."""
        return all(row.result == "yes" for row in self.rows if row.name in _NEEDED)

    @property
    def verdict(self) -> str:
        """The conclusion, in a sentence."""
        if not self.rows:
            return "It judges by rules on pixels and is no LMM: there is nothing to probe."
        lacks = [f"{row.name}: {row.result}" for row in self.rows if row.name in _NEEDED and row.result != "yes"]
        return f"It cannot judge edits: {', '.join(lacks)}." if lacks else "It can judge edits."

    def to_json(self) -> dict[str, Json]:
        return {
            "backend": self.uri,
            "endpoint": self.endpoint,
            "model": self.model,
            "can_judge": self.can_judge,
            "verdict": self.verdict,
            "probes": [row.to_json() for row in self.rows],
            "usage": self.usage.to_json(),
            "questions_answered": self.asked,
        }


def probe(lmm: LMM, *, listener: Callable[[str], None] = lambda name: None) -> ProbeReport:
    """Ask `lmm` what it can do. A probe that fails is a row with its reason; this raises nothing that a backend may raise.

    listener: is given each probe's name before it is asked. The first that shows that it cannot judge is the last.
    """
    rows: list[Probed] = []
    replies: list[Reply] = []
    for name, asked, colours, request, right in () if parse_uri(lmm.uri).provider == "baseline" else _questions(lmm):
        listener(name)
        began, store = time.monotonic(), ImageStore()
        pictures = [store.add_array(np.asarray(draw(colour))) for colour in colours]
        parts = [
            p
            for n, i in enumerate(pictures, 1)
            for p in (TextPart(text=f"Picture {n}:"), ImagePart(image=i, alias=f"P{n}"))
        ]
        try:
            reply = lmm.complete(
                replace(request, messages=(Message(role="user", parts=(*parts, TextPart(text=asked))),)), store
            )
        except EditLoupeError as error:
            result: Result = "failed"
            words = f"{type(error).__name__}: {error}"
        else:
            replies.append(reply)
            result, words = "yes" if right(reply) else "no", _words(reply)
        seconds = round(time.monotonic() - began, 3)
        rows.append(Probed(name=name, result=result, asked=asked, answered=one_line(words, 300), seconds=seconds))
        if name in _NEEDED and result != "yes":
            break
    else:
        rows += [_limit(lmm)] if rows else []
    return ProbeReport(
        uri=lmm.uri,
        endpoint=lmm.endpoint,
        model=next((reply.model for reply in replies if reply.model), ""),
        rows=tuple(rows),
        usage=sum((reply.usage for reply in replies), Usage()),
        asked=len(replies),
    )


_Question: TypeAlias = tuple[str, str, list[str], Request, Callable[[Reply], bool]]
"""Name, what is asked, the colours of the discs shown, how, and whether a reply shows that the model can."""


def _questions(lmm: LMM) -> list[_Question]:
    free, order = Request(messages=()), ["blue", "red", "green"]
    found: list[_Question] = [
        ("answer", "Reply with the word ready.", [], free, lambda reply: bool(reply.text.strip())),
        ("see a picture", "Which colour is the disc?", ["red"], free, lambda reply: _named(reply) == ["red"]),
        (
            "tell pictures apart",
            "Name the disc's colour in each picture, in order.",
            order,
            free,
            lambda r: _named(r) == order,
        ),
    ]
    if lmm.traits.native_tools:
        asked = "Call report_colour with the colour of the disc."
        calls = replace(free, tools=(_TOOL,))
        found.append(
            ("call a tool", asked, ["green"], calls, lambda reply: any(c.name == _TOOL.name for c in reply.tool_calls))
        )
    if lmm.traits.constrains_schema:
        # Left free, a model would give a number.
        held = replace(free, answer_schema=_SKY)
        found.append(("keep to a JSON schema", "What is 2 plus 2? (as an object with the field sky)", [], held, _is_sky))
    return found


def _limit(lmm: LMM) -> Probed:
    name, asked = "say its context limit", "its list of models"
    ask: Callable[[], int | None] | None = getattr(lmm, "context_limit", None)
    try:
        found = None if ask is None else ask()
    except EditLoupeError as error:
        return Probed(name=name, result="failed", asked=asked, answered=f"{type(error).__name__}: {error}")
    if ask is None:
        return Probed(name=name, result="not offered", asked="", answered="this backend has no way to ask")
    return Probed(
        name=name,
        result="not told" if found is None else "yes",
        asked=asked,
        answered="nothing about this model" if found is None else f"{found:,} tokens",
    )


def draw(colour: str) -> Image.Image:
    """Draw a disc of that colour on white, 320×240 px RGB."""
    picture = Image.new("RGB", (320, 240), (255, 255, 255))
    ImageDraw.Draw(picture).ellipse((100, 60, 220, 180), fill=COLOURS[colour])
    return picture


def _words(reply: Reply) -> str:
    calls = ", ".join(f"{call.name}{dict(call.arguments)}" for call in reply.tool_calls)
    dropped = reply.sent.get("dropped")
    without = f" (asked without {', '.join(map(str, dropped))})" if isinstance(dropped, list) else ""
    return (calls or reply.text or reply.empty_because) + without


def _named(reply: Reply) -> list[str]:
    """Return which colours the reply names, in its order, each once."""
    words = "".join(c if c.isalpha() else " " for c in reply.text.lower()).split()
    return list(dict.fromkeys(word for word in words if word in COLOURS))


def _is_sky(reply: Reply) -> bool:
    try:
        jsonschema.validate(json.loads(reply.text), _SKY)
    except (ValueError, jsonschema.ValidationError):
        return False
    return True
