"""What a backend can do, asked live with small drawn pictures. What was asked and answered stands beside each verdict."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from editloupe.backends.base import LMM, parse_uri
from editloupe.backends.payload import JsonObject, items_at, loads, one_line
from editloupe.chat import ImagePart, Message, Part, Reply, Request, TextPart, ToolSpec, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import EditLoupeError
from editloupe.values import Serialisable

Result: TypeAlias = Literal["yes", "no", "failed", "not offered", "not told"]
COLOURS: Final = {"red": (214, 40, 40), "green": (34, 150, 60), "blue": (40, 70, 210)}
_NEEDED: Final = ("answer", "see a picture", "tell pictures apart")
_SKIES: Final = ("Partly Cloudy", "Heavy Rain")


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
class ProbeReport(Serialisable):
    """All probes of a backend."""

    backend: str
    """Its URI."""
    endpoint: str
    model: str
    """As the endpoint calls it."""
    can_judge: bool
    """Whether it answers, sees, and tells pictures apart; of the baseline, which is asked nothing, True."""
    verdict: str
    """The conclusion, in a sentence."""
    probes: tuple[Probed, ...]
    usage: Usage
    questions_answered: int


def probe(lmm: LMM, *, listener: Callable[[str], None] = lambda name: None) -> ProbeReport:
    """Ask `lmm` what it can do. A probe that fails is a row with its reason; this raises nothing that a backend may raise.

    listener: is given each probe's name before it is asked. The first that shows that it cannot judge is the last.
    """
    rows: list[Probed] = []
    replies: list[Reply] = []
    verdict = "It can judge edits."
    if is_baseline := parse_uri(lmm.uri).provider == "baseline":
        verdict = "It judges by rules on pixels and is no LMM: there is nothing to probe."
    for name, asked, ask in () if is_baseline else _questions(lmm, replies):
        listener(name)
        began = time.monotonic()
        try:
            result, answered = ask()
        except EditLoupeError as error:
            result, answered = "failed", f"{type(error).__name__}: {error}"
        seconds = round(time.monotonic() - began, 3)
        rows.append(Probed(name=name, result=result, asked=asked, answered=one_line(answered, 300), seconds=seconds))
        if name in _NEEDED and result != "yes":
            verdict = f"It cannot judge edits: {name}: {result}."
            break
    return ProbeReport(
        backend=lmm.uri,
        endpoint=lmm.endpoint,
        model=next((reply.model for reply in replies if reply.model), ""),
        can_judge=not verdict.startswith("It cannot"),
        verdict=verdict,
        probes=tuple(rows),
        usage=sum((reply.usage for reply in replies), Usage()),
        questions_answered=len(replies),
    )


_Ask: TypeAlias = Callable[[], tuple[Result, str]]
"""Asks, and returns the result with the answer's words. Raises EditLoupeError."""


def _questions(lmm: LMM, replies: list[Reply]) -> Iterator[tuple[str, str, _Ask]]:
    """Yield each probe's name, what it asks, and how. What is answered is added to `replies`."""

    def question(text: str, shows: Callable[[Reply], bool], *colours: str, **fields: Any) -> tuple[str, _Ask]:
        def ask() -> tuple[Result, str]:
            store = ImageStore()
            drawn = [store.add_array(np.asarray(draw(colour))) for colour in colours]
            pictures = [ImagePart(image=image, alias=f"P{n}") for n, image in enumerate(drawn, 1)]
            parts: tuple[Part, ...] = (*pictures, TextPart(text=text))
            reply = lmm.complete(Request(messages=(Message(role="user", parts=parts),), **fields), store)
            replies.append(reply)
            return "yes" if shows(reply) else "no", _words(reply)

        return text, ask

    order = ["blue", "red", "green"]
    yield "answer", *question("Reply with the word ready.", lambda reply: bool(reply.text.strip()))
    yield "see a picture", *question("Which colour is the disc?", lambda reply: _named(reply) == ["red"], "red")
    asked = "Name the disc's colour in each picture, in order."
    yield "tell pictures apart", *question(asked, lambda reply: _named(reply) == order, *order)
    if lmm.traits.native_tools:
        colour: JsonObject = {"type": "object", "properties": {"colour": {"type": "string"}}}
        tool = ToolSpec(name="report_colour", description="Reports the colour that was seen.", parameters=colour)
        asked = "Call report_colour with the colour of the disc."
        yield "call a tool", *question(asked, lambda reply: bool(reply.tool_calls), "green", tools=(tool,))
    if lmm.traits.constrains_schema:
        sky = {"sky": {"type": "string", "enum": list(_SKIES)}}
        schema = {"type": "object", "properties": sky, "required": ["sky"], "additionalProperties": False}
        # Left free, a model would give a number.
        asked = "What is 2 plus 2? (as an object with the field sky)"
        yield "keep to a JSON schema", *question(asked, _is_sky, answer_schema=schema)

    def limit() -> tuple[Result, str]:
        ask: Callable[[], int | None] | None = getattr(lmm, "context_limit", None)
        if ask is None:
            return "not offered", "this backend has no way to ask"
        found = ask()
        return ("not told", "nothing about this model") if found is None else ("yes", f"{found:,} tokens")

    yield "say its context limit", "its list of models", limit


def draw(colour: str) -> Image.Image:
    """Draw a disc of that colour on white, 320×240 px RGB."""
    picture = Image.new("RGB", (320, 240), (255, 255, 255))
    ImageDraw.Draw(picture).ellipse((100, 60, 220, 180), fill=COLOURS[colour])
    return picture


def _words(reply: Reply) -> str:
    calls = ", ".join(f"{call.name}{dict(call.arguments)}" for call in reply.tool_calls)
    dropped = ", ".join(map(str, items_at(reply.sent, "dropped")))
    return (calls or reply.text or reply.empty_because) + (f" (asked without {dropped})" if dropped else "")


def _named(reply: Reply) -> list[str]:
    """Return which colours the reply names, in its order, each once."""
    words = "".join(c if c.isalpha() else " " for c in reply.text.lower()).split()
    return list(dict.fromkeys(word for word in words if word in COLOURS))


def _is_sky(reply: Reply) -> bool:
    try:
        answer = loads(reply.text)
    except ValueError:
        return False
    return any(answer == {"sky": sky} for sky in _SKIES)
