"""What a backend can do, asked live with small drawn pictures. What was asked and answered stands beside each verdict."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal, TypeAlias

import numpy as np
from PIL import Image, ImageDraw

from editloupe.backends.base import LMM, parse_uri
from editloupe.backends.payload import one_line
from editloupe.chat import ImagePart, Message, Reply, Request, TextPart, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import EditLoupeError
from editloupe.values import Serializable

Result: TypeAlias = Literal["yes", "no", "failed", "not offered", "not told"]
COLORS: Final = {"red": (214, 40, 40), "green": (34, 150, 60), "blue": (40, 70, 210)}
_NEEDED: Final = ("answer", "see a picture", "tell pictures apart")


@dataclass(frozen=True, kw_only=True)
class Probed(Serializable):
    """One probe."""

    name: str
    result: Result
    asked: str
    answered: str
    """The model's own words, or why there are none."""


@dataclass(frozen=True, kw_only=True)
class ProbeReport(Serializable):
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
    for name, asked, ask in () if is_baseline else _probes(lmm, replies):
        listener(name)
        result: Result
        try:
            result, answered = ask()
        except EditLoupeError as error:
            result, answered = "failed", f"{type(error).__name__}: {error}"
        rows.append(Probed(name=name, result=result, asked=asked, answered=one_line(answered, 300)))
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
        usage=Usage.total_of(reply.usage for reply in replies),
        questions_answered=len(replies),
    )


def _probes(lmm: LMM, replies: list[Reply]) -> Iterator[tuple[str, str, Callable[[], tuple[Result, str]]]]:
    """Yield each probe's name, what it asks, and how. What is answered is added to `replies`."""

    def ask(text: str, shows: Callable[[Reply], bool], colors: tuple[str, ...]) -> tuple[Result, str]:
        store = ImageStore()
        drawn = (store.add_array(np.asarray(draw(color))) for color in colors)
        pictures = [ImagePart(image=image, alias=f"P{n}") for n, image in enumerate(drawn, 1)]
        message = Message(role="user", parts=(*pictures, TextPart(text=text)))
        reply = lmm.complete(Request(messages=(message,)), store)
        replies.append(reply)
        without = f" (asked without {', '.join(reply.dropped)})" if reply.dropped else ""
        return "yes" if shows(reply) else "no", (reply.text or reply.empty_because) + without

    def question(name: str, text: str, shows: Callable[[Reply], bool], *colors: str) -> tuple[str, str, Any]:
        return name, text, partial(ask, text, shows, colors)

    three = ("blue", "red", "green")
    yield question("answer", "Reply with the word ready.", lambda reply: bool(reply.text.strip()))
    yield question("see a picture", "Which color is the disc?", lambda reply: _named(reply) == ("red",), "red")
    order = "Name the disc's color in each picture, in order."
    yield question("tell pictures apart", order, lambda reply: _named(reply) == three, *three)
    yield "say its context limit", "its list of models", partial(_context_limit, lmm)


def _context_limit(lmm: LMM) -> tuple[Result, str]:
    ask: Callable[[], int | None] | None = getattr(lmm, "context_limit", None)
    if ask is None:
        return "not offered", "this backend has no way to ask"
    found = ask()
    return ("not told", "nothing about this model") if found is None else ("yes", f"{found:,} tokens")


def draw(color: str) -> Image.Image:
    """Draw a disc of that color on white, 320×240 px RGB."""
    picture = Image.new("RGB", (320, 240), (255, 255, 255))
    ImageDraw.Draw(picture).ellipse((100, 60, 220, 180), fill=COLORS[color])
    return picture


def _named(reply: Reply) -> tuple[str, ...]:
    """Return which colors the reply names, in its order, each once."""
    return tuple(dict.fromkeys(word for word in re.findall("[a-z]+", reply.text.lower()) if word in COLORS))
