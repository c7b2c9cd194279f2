"""What a backend can do, asked live with small drawn pictures. What was asked and answered stands beside each verdict."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, Protocol, TypeAlias, runtime_checkable

import jsonschema
import numpy as np
from PIL import Image, ImageDraw, ImageFont

from editloupe.backends.base import LMM, parse_uri
from editloupe.backends.payload import one_line
from editloupe.chat import ImagePart, Message, Reply, Request, TextPart, ToolCall, ToolSpec, Usage
from editloupe.data.images import ImageStore
from editloupe.errors import EditLoupeError
from editloupe.values import ImageRef, Json, Serialisable

Result: TypeAlias = Literal["yes", "no", "failed", "not offered", "not asked", "not told"]

WORD: Final = "MAPLE"
_COLOURS: Final = {"red": (214, 40, 40), "green": (34, 150, 60), "blue": (40, 70, 210)}

_REPORT: Final = ToolSpec(
    name="report_colour",
    description="Reports the colour that was seen.",
    parameters={
        "type": "object",
        "properties": {"colour": {"type": "string", "description": "One English word."}},
        "required": ["colour"],
        "additionalProperties": False,
    },
)
_WEATHER: Final[Mapping[str, Json]] = {
    "type": "object",
    "properties": {"sky": {"type": "string", "enum": ["Partly Cloudy", "Heavy Rain"]}},
    "required": ["sky"],
    "additionalProperties": False,
}
_FETCH: Final = ToolSpec(
    name="fetch_picture",
    description="Fetches the next picture.",
    parameters={"type": "object", "properties": {}, "additionalProperties": False},
)


@runtime_checkable
class TellsLimit(Protocol):
    """A backend that can say how long a conversation may be."""

    def context_limit(self) -> int | None:
        """Return tokens; None where the endpoint does not say. Raises BackendError."""


@dataclass(frozen=True, kw_only=True)
class Probed(Serialisable):
    """One probe."""

    name: str
    result: Result
    asked: str
    answered: str
    """The model's own words, or why there are none."""
    seconds: float = 0.0
    """Of the call, retries included."""


@dataclass(frozen=True, kw_only=True)
class ProbeReport:
    """All probes of a backend."""

    uri: str
    endpoint: str
    model: str
    rows: tuple[Probed, ...]
    usage: Usage
    """Of all questions."""
    asked: int
    """How many questions were answered."""
    embedded: bool = False
    """Whether it is the pixel baseline, which judges and answers no questions. There are no rows then."""

    @property
    def can_judge(self) -> bool:
        """Whether it answers, sees, and tells pictures apart: what judging an edit takes."""
        return not self._lacks()

    @property
    def verdict(self) -> str:
        if self.embedded:
            return "It judges by rules on pixels and is no LMM: there is nothing to probe."
        lacks = self._lacks()
        return "It can judge edits." if not lacks else f"It cannot judge edits: {', '.join(lacks)}."

    def _lacks(self) -> list[str]:
        needed = [row for row in self.rows if row.name in (ANSWER, SEE, SEVERAL)]
        return [f"{row.name}: {row.result}" for row in needed if row.result != "yes"]

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


ANSWER: Final = "answer"
SEE: Final = "see a picture"
SEVERAL: Final = "tell pictures apart"
CALL: Final = "call a tool"
SEE_RESULT: Final = "see a tool's picture"
CHOOSE: Final = "keep to choices"
FORM: Final = "keep to a JSON schema"
LOGPROBS: Final = "give logprobs"
CONTEXT: Final = "say its context limit"


def probe(lmm: LMM, *, listener: Callable[[str], None] | None = None) -> ProbeReport:
    """Ask `lmm` what it can do. A probe that fails is a row with its reason; this raises nothing that a backend may raise.

    listener: is given each probe's name before it is asked.
    """
    if parse_uri(lmm.uri).provider == "baseline":
        return ProbeReport(uri=lmm.uri, endpoint=lmm.endpoint, model="", rows=(), usage=Usage(), asked=0, embedded=True)
    asking = _Asking(lmm, listener or (lambda name: None))
    asking.answers()
    if asking.rows[-1].result == "failed":
        for name in (SEE, SEVERAL, CALL, SEE_RESULT, CHOOSE, FORM, LOGPROBS, CONTEXT):
            asking.note(name, "not asked", "", "it does not answer")
    else:
        asking.sees()
        asking.several()
        asking.calls()
        asking.sees_results()
        asking.chooses()
        asking.keeps_to_a_form()
        asking.logprobs()
        asking.limit()
    return ProbeReport(
        uri=lmm.uri,
        endpoint=lmm.endpoint,
        model=next((reply.model for reply in asking.replies if reply.model), ""),
        rows=tuple(asking.rows),
        usage=sum((reply.usage for reply in asking.replies), Usage()),
        asked=len(asking.replies),
    )


@dataclass
class _Asking:
    """The probes of one backend, one after another."""

    lmm: LMM
    listener: Callable[[str], None]
    rows: list[Probed] = field(default_factory=list)
    replies: list[Reply] = field(default_factory=list)
    images: ImageStore = field(default_factory=ImageStore)

    def note(self, name: str, result: Result, asked: str, answered: str, seconds: float = 0.0) -> None:
        self.rows.append(
            Probed(name=name, result=result, asked=asked, answered=one_line(answered, 300), seconds=round(seconds, 3))
        )

    def ask(self, name: str, asked: str, request: Request, judge: Callable[[Reply], tuple[bool, str]]) -> None:
        """Ask one question. `judge` returns whether the reply shows that the model can, and the reply in words."""
        self.listener(name)
        began = time.monotonic()
        try:
            reply = self.lmm.complete(request, self.images)
        except EditLoupeError as error:
            self.note(name, "failed", asked, f"{type(error).__name__}: {error}", time.monotonic() - began)
            return
        self.replies.append(reply)
        can, shown = judge(reply)
        if not can and reply.finish in ("refusal", "filter", "length"):
            shown = f"({reply.finish}) {shown}"
        self.note(name, "yes" if can else "no", asked, shown, time.monotonic() - began)

    def answers(self) -> None:
        asked = "Reply with the word ready."
        self.ask(ANSWER, asked, _question(asked), lambda r: (bool(r.text.strip()), _words(r)))

    def sees(self) -> None:
        asked = "Which colour is the shape in the picture, and which word is written below it?"
        picture = self._drawn("red", word=WORD)

        def judge(reply: Reply) -> tuple[bool, str]:
            # A word read wrongly is small print; a colour seen is sight.
            seen, read = _names(reply.text, ["red"]) == ["red"], WORD in reply.text.upper()
            return seen, _words(reply) if read or not seen else f"{_words(reply)} (expected the word {WORD} too)"

        self.ask(SEE, f"{asked} (a red disc, {WORD})", _question(asked, ("Picture", picture)), judge)

    def several(self) -> None:
        most = self.lmm.traits.max_images
        if most is not None and most < len(_COLOURS):
            self.note(SEVERAL, "no", "", f"its traits allow {most} pictures a request; a judge shows two and crops of both")
            return
        asked = "Name the colour of the shape in each picture, in order, separated by commas."
        order = ["blue", "red", "green"]
        pictures = [(f"Picture {i}", self._drawn(colour)) for i, colour in enumerate(order, 1)]
        shown, request = f"{asked} ({', '.join(order)})", _question(asked, *pictures)
        self.ask(SEVERAL, shown, request, lambda r: (_names(r.text, order) == order, _words(r)))

    def calls(self) -> None:
        if not self.lmm.traits.native_tools:
            self.note(CALL, "not offered", "", "tools are called in the text (--tool-protocol text)")
            return
        asked = "Call report_colour with the colour of the shape."
        request = replace(_question(asked, ("Picture", self._drawn("green"))), tools=(_REPORT,))

        def judge(reply: Reply) -> tuple[bool, str]:
            for call in reply.tool_calls:
                if call.name == _REPORT.name:
                    return True, f"{call.name}{dict(call.arguments)}"
            if reply.malformed_calls:
                return False, f"a broken call: {reply.malformed_calls[0].error}"
            return False, f"no call, but: {_words(reply)}"

        self.ask(CALL, asked, request, judge)

    def sees_results(self) -> None:
        if not self.lmm.traits.native_tools:
            self.note(SEE_RESULT, "not offered", "", "pictures come in a user's message with the text protocol")
            return
        asked = "Fetch the picture. Then say which colour its shape has."
        call = ToolCall(id="call_1", name=_FETCH.name, arguments={})
        shown = (TextPart(text="Picture 1:"), ImagePart(image=self._drawn("blue"), alias="Picture 1"))
        talk = (
            Message.of_text("user", asked),
            Message(role="assistant", parts=(), tool_calls=(call,)),
            Message(role="tool", parts=shown, tool_call_id=call.id),
            Message.of_text("user", "Which colour is it? One word."),
        )

        def judge(reply: Reply) -> tuple[bool, str]:
            where = reply.sent.get("tool_images")
            return _names(reply.text, list(_COLOURS)) == ["blue"], _words(reply) + (f" (sent {where})" if where else "")

        request = Request(messages=talk, tools=(_FETCH,), calls_allowed=False)
        self.ask(SEE_RESULT, f"{asked} (a blue disc)", request, judge)

    def chooses(self) -> None:
        if not self.lmm.traits.constrains_choices:
            self.note(CHOOSE, "not offered", "", "labels are asked for in words (no --constrain-labels)")
            return
        # Left free, a model would give a number.
        asked, choices = "What is 2 plus 2?", ("Partly Cloudy", "Heavy Rain")
        shown, request = f"{asked} ({' or '.join(choices)})", replace(_question(asked), choices=choices)
        self.ask(CHOOSE, shown, request, lambda r: (any(c in r.text for c in choices), _words(r)))

    def keeps_to_a_form(self) -> None:
        if not self.lmm.traits.constrains_schema:
            self.note(FORM, "not offered", "", "this backend sends no schema")
            return
        # Left free, a model would give a number.
        asked = "What is 2 plus 2?"

        def judge(reply: Reply) -> tuple[bool, str]:
            dropped = reply.sent.get("dropped")
            if isinstance(dropped, list) and "answer_schema" in dropped:
                return False, f"the endpoint refuses the parameter; without it: {_words(reply)}"
            try:
                jsonschema.validate(json.loads(reply.text), _WEATHER)
            except (ValueError, jsonschema.ValidationError):
                return False, _words(reply)
            return True, _words(reply)

        request = replace(_question(asked), answer_schema=_WEATHER)
        self.ask(FORM, f"{asked} (as an object with the field sky)", request, judge)

    def logprobs(self) -> None:
        given = next((reply.logprob for reply in self.replies if reply.logprob is not None), None)
        shown = "no answer came with one" if given is None else f"{given:.4g}"
        self.note(LOGPROBS, "not told" if given is None else "yes", "with the answers above", shown)

    def limit(self) -> None:
        self.listener(CONTEXT)
        if not isinstance(self.lmm, TellsLimit):
            self.note(CONTEXT, "not offered", "", "this backend has no way to ask")
            return
        try:
            found = self.lmm.context_limit()
        except EditLoupeError as error:
            self.note(CONTEXT, "failed", "its list of models", f"{type(error).__name__}: {error}")
            return
        shown = "nothing about this model" if found is None else f"{found:,} tokens"
        self.note(CONTEXT, "not told" if found is None else "yes", "its list of models", shown)

    def _drawn(self, colour: str, *, word: str = "") -> ImageRef:
        return self.images.add_array(np.asarray(draw(colour, word=word)))


def draw(colour: str, *, word: str = "") -> Image.Image:
    """Draw a disc of that colour on white, 320×240 px RGB, with a word below it where one is given."""
    picture = Image.new("RGB", (320, 240), (255, 255, 255))
    pen = ImageDraw.Draw(picture)
    pen.ellipse((100, 20, 220, 140), fill=_COLOURS[colour])
    if word:
        pen.text((160, 190), word, fill=(0, 0, 0), font=ImageFont.load_default(size=56), anchor="mm")
    return picture


def _words(reply: Reply) -> str:
    return reply.text or "nothing"


def _question(text: str, *pictures: tuple[str, ImageRef]) -> Request:
    parts = [part for name, image in pictures for part in (TextPart(text=f"{name}:"), ImagePart(image=image, alias=name))]
    return Request(messages=(Message(role="user", parts=(*parts, TextPart(text=text))),))


def _names(text: str, words: list[str]) -> list[str]:
    """Return which of the words the text names, in its order, each once."""
    found = re.findall(rf"\b({'|'.join(words)})\b", text.lower())
    return list(dict.fromkeys(found))
