"""What goes over any provider's wire and what comes back: images as text, pictures of tools, JSON without keys."""

from __future__ import annotations

import base64
import json
import math
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import replace
from typing import Any, Final, TypeAlias, cast

from editloupe.chat import MalformedCall, Message, Part, Request, TextPart, Token, ToolCall
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.values import ImageRef, Json, parse_json

IMAGE_TEXT_BYTES: Final = 64 * 2**20
"""Base64 text kept for the turns to come, of some dozen conversations with photographs; beyond it the oldest goes first."""

_IMAGE_DATA = re.compile(r"(data:image/[\w.+-]+;base64,)[A-Za-z0-9+/=]{16,}")


JsonObject: TypeAlias = Mapping[str, Json]
Scrub: TypeAlias = Callable[[str], str]
"""Takes the keys out of a text."""


class ImageURLs:
    """Images as data URIs; the base64 text of each is made once and used again in every later turn. Thread-safe."""

    def __init__(self, policy: ImagePolicy) -> None:
        self._policy, self._lock = policy, threading.Lock()
        self._texts: dict[str, bytes] = {}

    def ascii(self, images: ImageStore, ref: ImageRef) -> bytes:
        """Return the data URI as it goes into a body: the same object for all who ask, so that it is in memory once."""
        with self._lock:
            if ref.sha256 in self._texts:
                return self._texts[ref.sha256]
        encoded = images.encoded(ref, self._policy)
        text = f"data:{encoded.media_type};base64,".encode("ascii") + base64.b64encode(encoded.data)
        with self._lock:
            self._texts.setdefault(ref.sha256, text)
            while sum(map(len, self._texts.values())) > IMAGE_TEXT_BYTES and len(self._texts) > 1:
                del self._texts[next(iter(self._texts))]
        return text


def sampling_of(request: Request, refused: Set[str]) -> dict[str, Json]:
    """Return what is asked for by our names, without what the model refuses."""
    return {n: value for n, value in request.sampling.to_json().items() if value is not None and n not in refused}


def move_pictures(messages: Iterable[Message]) -> list[Message]:
    """Return the messages with the pictures of tools' messages moved into a user's message, each behind its name.

    It stands behind the last tool's message of the turn, since endpoints refuse it between them.
    """
    found: list[Message] = []
    waiting: list[Part] = []
    for message in messages:
        if message.role != "tool" and waiting:
            found.append(Message(role="user", parts=tuple(waiting)))
            waiting = []
        if message.role == "tool" and message.images:
            waiting += named_pictures(message)
            message = replace(message, parts=texts_without(message, "Pictures in the next message"))
        found.append(message)
    return [*found, Message(role="user", parts=tuple(waiting))] if waiting else found


def named_pictures(message: Message) -> list[Part]:
    """Return the pictures of a message, each behind its name."""
    return [part for image in message.images for part in (TextPart(text=f"{image.alias}:"), image)]


def texts_without(message: Message, where: str) -> tuple[TextPart, ...]:
    """Return the texts of a message whose pictures stand elsewhere: without their labels, and with a word on `where`."""
    names = [image.alias for image in message.images]
    texts = [p for p in message.parts if isinstance(p, TextPart) and p.text not in {f"{name}:" for name in names}]
    return (*texts, *([TextPart(text=f"{where}: {', '.join(names)}.")] if names else []))


def at(value: object, *path: str | int) -> Any:
    """Return what stands in JSON under these keys and list indexes; None where there is nothing."""
    for step in path:
        try:
            value = None if isinstance(value, str) else value[step]  # type: ignore[index]
        except (KeyError, IndexError, TypeError):
            return None
    return value


def text_at(value: object, *path: str | int) -> str:
    """Return the text that stands there; "" where there is none."""
    found = at(value, *path)
    return found if isinstance(found, str) else ""


def items_at(value: object, *path: str | int) -> list[Any]:
    """Return the list that stands there; [] where there is none."""
    found = at(value, *path)
    return found if isinstance(found, list) else []


def whole_tokens(tokens: Iterable[Token | None], scrub: Scrub) -> tuple[Token, ...]:
    """Return the tokens of a reply; () where one is missing, and where they spell a key, which no single one shows."""
    read = list(tokens)
    found = tuple(token for token in read if token is not None)
    text = "".join(token.text for token in found)
    return found if len(found) == len(read) and scrub(text) == text else ()


def without_tokens(answer: JsonObject, choices: str, tokens: str) -> JsonObject:
    """Return an answer whose choices do not repeat their tokens. choices, tokens: what the fields are called."""
    told = [one for one in items_at(answer, choices) if isinstance(one, Mapping)]
    return {**answer, choices: [{name: value for name, value in one.items() if name != tokens} for one in told]}


def calls_of(
    asked: Iterable[tuple[object, object, object]], scrub: Scrub
) -> tuple[tuple[ToolCall, ...], tuple[MalformedCall, ...]]:
    """Return the calls of a reply, and those that cannot be read.

    asked: (a call, perhaps with an `id`; its name; its arguments or their text).
    """
    made = [_call(call, name, arguments, number, scrub) for number, (call, name, arguments) in enumerate(asked, 1)]
    read = tuple(call for call in made if isinstance(call, ToolCall))
    return read, tuple(call for call in made if isinstance(call, MalformedCall))


def _call(call: object, name: object, arguments: Any, number: int, scrub: Scrub) -> ToolCall | MalformedCall:
    if not isinstance(name, str) or not name:
        return MalformedCall(raw=json.dumps(call), error="a tool call needs a name")
    try:
        # No text at all is how some servers write a call without arguments.
        parsed = cleaned(loads(arguments or "{}"), scrub) if isinstance(arguments, str) else arguments
    except ValueError as error:
        return MalformedCall(raw=arguments, error=f"the arguments are not JSON: {error}")
    if not isinstance(parsed, Mapping):
        return MalformedCall(raw=json.dumps(arguments), error="the arguments are not a JSON object")
    return ToolCall(id=str(at(call, "id") or f"call_{number}"), name=name, arguments=parsed)


def count(value: object, *path: str | int) -> int | None:
    """Return a number of tokens that a provider reported; None where it reported none."""
    found = at(value, *path)
    return found if isinstance(found, int) and not isinstance(found, bool) and 0 <= found < 2**53 else None


def loads(text: str | bytes) -> Json:
    """Parse JSON. A number that is not finite stays the text that it was. Raises ValueError, also for deep nesting."""
    return cast("Json", parse_json(text, parse_constant=str, parse_float=_finite))


def _finite(text: str) -> float | str:
    value = float(text)
    return value if math.isfinite(value) else text


def cleaned(value: object, scrub: Scrub, *, cut_images: bool = True) -> Json:
    """Return a value as JSON without the key, with image data cut, and with half surrogate pairs (no valid UTF-8) replaced.

    Other objects become their text, bytes base64, numbers that are not finite their name. cut_images: False takes out the
    key and nothing else.
    """
    if isinstance(value, str):
        return clean_text(value, scrub) if cut_images else scrub(value)
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, Mapping):
        return {clean_text(str(k), scrub): cleaned(item, scrub, cut_images=cut_images) for k, item in value.items()}
    if isinstance(value, list | tuple | Set):
        return [cleaned(item, scrub, cut_images=cut_images) for item in value]
    return scrub(base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else str(value))


def clean_text(text: str, scrub: Scrub) -> str:
    """Return the text without the key, with image data cut, and as valid UTF-8."""
    text = scrub(text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8"))
    return _IMAGE_DATA.sub(r"\1…", text) if ";base64," in text else text


def one_line(text: str, most: int = 400) -> str:
    """Return a text on one line, cut to `most` characters."""
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"
