"""What a server says about a failure, and what comes of it.

A rule rests on the HTTP status, on `code`, `type`, `param` and headers, on the name of a parameter that was sent, on a
number with its unit, and on a few short words; never on a provider's sentences.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Final

from editloupe.backends.endpoint import TOO_LONG_ADVICE, Endpoint, Place
from editloupe.backends.payload import Scrub, at, clean_text, cleaned, loads, one_line
from editloupe.chat import Request
from editloupe.errors import BackendError, ContextTooLong, RateLimited, Rejected, Unavailable
from editloupe.values import Json

_TEXTS: Final = ("message", "msg", "detail", "error", "raw", "error_msg", "error_message", "error_description", "reason")
_CODES: Final = ("code", "type", "status", "reason", "error_type", "error_code", "quotaId")
_PARAMS: Final = ("param", "loc", "field")
_WAITS: Final = ("retryDelay", "retry_after", "retry_after_s", "retry_after_ms")
_LONGEST: Final = 4000

# Words of codes and types, which are identifiers, not sentences.
_FILTER_CODES: Final = ("filter", "inspection", "moderation", "policy", "safety", "sensitive")
_ACCOUNT_CODES: Final = ("quota", "balance", "billing", "arrear", "credit", "payment", "fund")
_RATE_CODES: Final = ("rate", "limit", "throttl", "exhaust", "overload", "concurren", "request", "token")
_KEY_CODES: Final = ("api_key", "apikey", "authentication", "unauthenticated")
_MODEL_CODES: Final = ("model_not", "invalid_model", "deploymentnotfound", "modelnotfound", "unknown_model")
# Words of sentences: at most three for each class.
_FILTER_WORDS: Final = ("moderation", "flagged", "safety")
_ACCOUNT_WORDS: Final = ("quota", "balance", "credit")
_PLACE_WORDS: Final = ("location", "region", "country")
_IMAGE_WORDS: Final = ("image", "vision", "multimodal")

_UNITS: Final = (
    ("ms|milli\\w*|毫秒", 0.001), ("s|sec\\w*|sek\\w*|seg\\w*|сек\\w*|秒钟?|초", 1.0),
    ("m|min\\w*|мин\\w*|分钟?|분", 60.0), ("h|hrs?|hours?|heures?|horas?|std|stunden?|час\\w*|小时|時間|시간", 3600.0),
    ("d|days?|tage?n?|jours?|d[ií]as?|天|日", 86400.0),
)  # fmt: skip
_DURATION: Final = re.compile(
    r"(?<!\d)(\d{1,12}(?:\.\d+)?)\s*(?:" + "|".join(f"({unit})" for unit, _ in _UNITS) + r")(?![A-Za-zÀ-ɏ])", re.IGNORECASE
)
_OFTEN: Final = re.compile(r"per[ _-]?(min|sec|hour)|/\s?(minute|min|second|sec|[smh])\b", re.IGNORECASE)
"""What a limit for a short while is counted by, unlike an account's quota."""
_PERIOD: Final = re.compile(r"(\bper|/|每)\s*$", re.IGNORECASE)
_BYTES: Final = re.compile(r"\d\s*(bytes|[kmg]i?b)\b", re.IGNORECASE)
_NUMBER: Final = re.compile(r"(?<![A-Za-z0-9_.-])\d+(?:[,.]\d+)*")


@dataclass(frozen=True, kw_only=True)
class Said:
    """A failed answer, taken apart."""

    status: int
    words: str
    """All its sentences on one line, those of a gateway's upstream included."""
    codes: tuple[str, ...] = ()
    """Codes and types, in small letters."""
    own_codes: tuple[str, ...] = ()
    """Those of them that stand under `code`."""
    params: tuple[str, ...] = ()
    """Names that it gives under `param`, `loc` or `field`."""
    wait_s: float | None = None
    """The wait that it names."""

    @property
    def shown(self) -> str:
        """Its sentences as a message has them."""
        return one_line(self.words)

    @property
    def numbers(self) -> list[float]:
        """The numbers of its sentences."""
        found = (number.replace(",", "") for number in _NUMBER.findall(self.words))
        return [float(number) for number in found if number.count(".") < 2]

    def coded(self, parts: Collection[str]) -> bool:
        """Return whether a code holds one of these."""
        return any(part in code for code in self.codes for part in parts)

    def tells(self, parts: Collection[str]) -> bool:
        """Return whether a sentence holds one of these."""
        words = self.words.casefold()
        return any(part in words for part in parts)

    def says(self, parts: Collection[str], *, own: str) -> bool:
        """Return whether a sentence holds one of these, the word before it included, that does not repeat `own`."""
        words = re.findall(r"\w+", self.words.casefold())
        pairs = zip(["", *words], words, strict=False)
        return any(part in word and f"{before} {word}" not in own for before, word in pairs for part in parts)

    def names(self, parameters: Collection[str], model: str) -> bool:
        """Return whether the message names one of these parameters. A model's name that holds one does not count."""
        if self.status and (not 400 <= self.status < 500 or self.status in (401, 402, 407, 408, 413, 429)):
            return False
        text = f"{self.words} {' '.join(self.params)}"
        for own in (model, model.rpartition("/")[2]):
            text = re.sub(rf"(?<!\w){re.escape(own)}(?!\w)", " ", text)
        return any(_spelled(name).search(text) for name in parameters)

    def refuses(self, names: Mapping[str, Sequence[str]], sent: Mapping[str, Json]) -> frozenset[str]:
        """Return what it refuses of what was sent, by our names.

        names: our name → the field in `sent`, and how else a refusal may name it.
        """
        model = str(sent["model"])
        return frozenset(ours for ours, spelled in names.items() if spelled[0] in sent and self.names(spelled, model))


def _spelled(name: str) -> re.Pattern[str]:
    """Match a parameter's name however it is written: max_tokens, maxTokens, max tokens."""
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)
    return re.compile(rf"(?<![A-Za-z0-9_-]){'[_ ]?'.join(parts)}(?![A-Za-z0-9_-])", re.IGNORECASE)


def said(status: int, body: object, headers: Mapping[str, str]) -> Said:
    """Take a failed answer apart. body: parsed JSON, or a text."""
    found = [("message", body)] if isinstance(body, str) else list(_leaves(body))

    def of(*names: str) -> tuple[str, ...]:
        return tuple(dict.fromkeys(str(value) for name, value in found if name in names and value != ""))

    texts = dict.fromkeys(value[:_LONGEST].strip() for name, value in found if name in _TEXTS and isinstance(value, str))
    words = " | ".join("(a web page)" if text.startswith("<") else text for text in texts if text)
    words = one_line((words or (json.dumps(body, default=str) if body else ""))[:_LONGEST], _LONGEST)
    units = {name: "ms" if name.endswith("_ms") else "s" for name in _WAITS}
    named = [v[:_LONGEST] if isinstance(v, str) else f"{v}{units[name]}" for name, v in found if name in units]
    waits = (
        _seconds(headers.get("retry-after-ms", ""), 0.001),
        _seconds(headers.get("retry-after", "")),
        max((seconds for text in named if (seconds := wait_in(text)) is not None), default=None),
        wait_in(words) if status in (429, 503, 529) else None,
        _reset_of(headers),
    )
    return Said(
        status=status,
        words=words,
        codes=tuple(code.casefold() for code in of(*_CODES)),
        own_codes=tuple(code.casefold() for code in of("code", "error_code")),
        params=of(*_PARAMS),
        wait_s=next((wait for wait in waits if wait is not None), None),
    )


def _leaves(value: object, name: str = "") -> Iterator[tuple[str, str | float]]:
    """Yield (name, value) of all that an answer holds, JSON inside a text too, without what it repeats of the request."""
    if isinstance(value, str) and name in _TEXTS and value.lstrip()[:1] in ("{", "["):
        with suppress(ValueError):
            value = loads(value)
    if isinstance(value, list) and name in _PARAMS:
        yield name, " ".join(map(str, value))
    elif isinstance(value, list):
        for item in value:
            yield from _leaves(item, name)
    elif isinstance(value, Mapping):
        for inner, item in value.items():
            yield from _leaves(item, inner) if inner not in ("input", "ctx") else ()
    elif isinstance(value, str | int | float) and not isinstance(value, bool):
        yield name, value


# Waits


def wait_in(text: str) -> float | None:
    """Return the last time that a text names ("7h12m0s", "850ms", "2 minutes"), in seconds; None where it names none.

    What stands behind "per" or a stroke is the period of a limit.
    """
    found: float | None = None
    end = -1
    for match in _DURATION.finditer(text):
        if _PERIOD.search(text[max(0, match.start() - 8) : match.start()]):
            continue
        seconds = float(match[1]) * _UNITS[(match.lastindex or 2) - 2][1]
        joined = found is not None and text[end : match.start()].strip(" ,") in ("", "and")
        found, end = (found or 0.0) + seconds if joined else seconds, match.end()
    return found


def _reset_of(headers: Mapping[str, str]) -> float | None:
    """Return when the limits that are used up begin anew; where headers do not say what is left, the nearest reset."""
    used_up: list[float] = []
    others: list[float] = []
    for name, value in headers.items():
        if "ratelimit" in name.lower() and "reset" in name.lower() and (seconds := _seconds(value)) is not None:
            left = headers.get(name.lower().replace("reset", "remaining"), "").strip()
            if left in ("", "0", "0.0"):
                (used_up if left else others).append(seconds)
    return max(used_up) if used_up else min(others, default=None)


def _seconds(value: str, unit_s: float = 1.0) -> float | None:
    """Return what a header names: "6m0s", a number, or a moment (epoch in s or ms, ISO 8601, as mail writes it)."""
    try:
        number = float(value) * unit_s
    except ValueError:
        for moment in (datetime.fromisoformat, parsedate_to_datetime):
            with suppress(ValueError):
                return max(0.0, moment(value.strip()).timestamp() - time.time())
        return wait_in(value)
    if not 0 <= number < math.inf:
        return None
    epoch_s = number / 1000 if number > 1e11 else number
    return max(0.0, epoch_s - time.time()) if number > 1e8 else number


# What comes of it


class Failed(BackendError):
    """A failed answer, taken apart and without the key: before an SDK makes an error of it that holds the request."""

    def __init__(self, told: Said, raw: Json) -> None:
        super().__init__(told.words, status=told.status)
        self.told, self.raw = told, raw


def failed(status: int, body: bytes, headers: Mapping[str, str], scrub: Scrub) -> Failed:
    """Take a failed answer apart, a redirect among them. scrub: takes the key out of a text."""
    try:
        raw = cleaned(loads(body), scrub)
    except ValueError:
        raw = clean_text(body.decode("utf-8", "replace")[:_LONGEST], scrub)
    if location := headers.get("location"):
        raw = f"sends to another address, {clean_text(location, scrub)}, and is not followed"
    return Failed(said(status, raw, headers), raw)


def parse_answer(body: bytes, endpoint: Endpoint, address_hint: str, *, answered: bool) -> Mapping[str, Json]:
    """Parse an answer with status 200, cleaned of the key. answered: whether the address has given an answer before.

    Raises Rejected for a web page from one that has not, with `address_hint`; Unavailable for what is no whole JSON object;
    Failed where an error stands in it, beside an answer too.
    """
    answer: Json = None
    broken = ""
    try:
        answer = cleaned(loads(body.decode("utf-8-sig", "replace")), endpoint.scrub)
    except ValueError as error:
        # The error itself does not go on: it holds the text, and with it what a server echoes of the key.
        broken = str(error)
    if broken and body.lstrip()[:1] == b"<":
        told = f"{endpoint.where}: answered with a web page, not JSON; {address_hint}"
        raise Unavailable(told) if answered else Rejected(told, for_all=True)
    if broken:
        raise Unavailable(f"{endpoint.where}: the answer ({len(body):,} bytes) is not whole JSON: {broken}")
    if not isinstance(answer, Mapping):
        raise Unavailable(f"{endpoint.where}: expected a JSON object, found {str(answer)[:80]!r}")
    if found := answer.get("error"):
        raise Failed(said(_status_in(found), answer, {}), answer)
    return answer


def _status_in(error: Json) -> int:
    """Return the HTTP status that an error in an answer names, by number or as a fault of the request."""
    named = [str(at(error, name) or "") for name in ("code", "status", "type")]
    by_word = 400 if any(word in text.casefold() for text in named for word in ("invalid", "filter")) else 502
    return next((int(text) for text in named if re.fullmatch("[45][0-9]{2}", text)), by_word)


def is_filtered(told: Said) -> bool:
    """Return whether the request was refused for its content."""
    coded = told.status in (400, 403, 422, 451) and told.coded(_FILTER_CODES)
    return coded or (told.status in (403, 451) and told.tells(_FILTER_WORDS))


def failure(
    told: Said, endpoint: Place, *, request: Request | None = None, answered: bool = True, hint: str = ""
) -> BackendError:
    """Return a failed answer as one of our errors, with what to do about it.

    told: with the status 0 where a library raised without one.   request: what was asked, whose words an answer may repeat.
    answered: whether the endpoint has answered before, after which no sentence alone, and no address that was right, stops
    a run.   hint: on its address.
    """
    messages = request.messages if request is not None else ()
    own = " ".join(re.findall(r"\w+", " ".join(message.text for message in messages).casefold()))
    status, said_ = told.status, [f"HTTP {told.status}"] * (told.status > 0) + [told.shown] * bool(told.words)
    message = f"{endpoint.where}: {', '.join(said_)}"

    def rejected(cure: str, *, for_all: bool = False, kind: type[Rejected] = Rejected) -> Rejected:
        return kind(f"{message}; {cure}" if cure else message, status=status or None, for_all=for_all)

    if not status:
        return rejected("")
    if _is_account(told, own=own, answered=answered):
        return rejected(_ACCOUNT, for_all=True)
    if status == 429:
        # The request's own tokens and the limit that they exceed, and no time to wait for.
        above = told.wait_s is None and told.tells(("token",)) and len({n for n in told.numbers if n >= 1000}) == 2
        return rejected(_ABOVE) if above else RateLimited(message, status=status, retry_after_s=told.wait_s)
    if any(one.images for one in messages) and (cure := _of_pictures(told, answered=answered)):
        return rejected(cure, for_all=cure == NO_IMAGES)
    if status == 408 or status >= 500:
        return Unavailable(message, status=status, retry_after_s=told.wait_s)
    if status in (400, 413, 422) and _is_too_long(told):
        return rejected(TOO_LONG_ADVICE, kind=ContextTooLong)
    if status == 413 or (status == 400 and _BYTES.search(told.words)):
        return rejected(_LARGE)
    key = status == 401 or told.coded(_KEY_CODES) or told.tells(("api key",))
    if not key and _is_place(told, own=own, answered=answered):
        return rejected("this provider does not serve this place, or this account from it", for_all=True)
    if key or status == 403:
        return rejected(endpoint.key_hint, for_all=True)
    if status in (404, 405) or status < 400 or told.coded(_MODEL_CODES):
        cure = f"check the model's name, and that {hint or 'the address is right'}"
        return Unavailable(f"{message}; {cure}", status=status) if answered else rejected(cure, for_all=True)
    return rejected("")


_ACCOUNT: Final = "check the account: its balance, quota and limits; waiting does not help"
_ABOVE: Final = "this one request is above the limit: reduce images with ?max_image_side=PX, or lower --max-turns"
_LARGE: Final = "the request is too large: reduce images with ?max_image_side=PX"
_LARGE_IMAGE: Final = "an image is too large: reduce images with ?max_image_side=PX (?max_image_bytes=N refuses them here)"
_MANY_IMAGES: Final = (
    "too many images in one request, or too large ones: say ?max_images=N and lower --max-turns, reduce them with "
    "?max_image_side=PX; vLLM takes more with --limit-mm-per-prompt '{\"image\": N}'"
)
NO_IMAGES: Final = (
    "if the model takes no images, name one that does, such as Qwen/Qwen3-VL-8B-Instruct (editloupe check --backend URI "
    "asks it)"
)


def _is_account(told: Said, *, own: str, answered: bool) -> bool:
    """Return whether it is the account that lacks money or quota. A rate may be called a quota as well."""
    lacks = any("insufficient" in code and any(part in code for part in _ACCOUNT_CODES) for code in told.codes)
    if told.status == 402 or lacks or told.coded(("perday",)):
        return True
    rate = told.coded(("rate", "throttl", "perminute")) or (told.status == 429 and _OFTEN.search(told.words))
    if told.wait_s is not None or rate:
        return False
    if told.coded(_ACCOUNT_CODES):
        return True
    # A code of its own that names no rate, from an endpoint that has never answered: nothing says that waiting helps.
    opaque = told.status == 429 and not answered and any(code != "429" for code in told.own_codes)
    says = told.status in (403, 429) and not answered and told.says(_ACCOUNT_WORDS, own=own)
    return says or (opaque and not told.coded(_RATE_CODES))


def _is_place(told: Said, *, own: str, answered: bool) -> bool:
    """Return whether the place is not served. A 400 that counts, or names a parameter, means a place in it."""
    within = told.status in (400, 422) and (told.params or told.numbers)
    return told.coded(_PLACE_WORDS) or (not answered and not within and told.says(_PLACE_WORDS, own=own))


def _is_too_long(told: Said) -> bool:
    counted = told.tells(("token", "length")) and any(n >= 1000 for n in told.numbers)
    return told.coded(("context", "too_long")) or told.tells(("context",)) or counted


def _of_pictures(told: Said, *, answered: bool) -> str:
    """Return what to do about a complaint about pictures: their size, their number, or that there are any; "" for none."""
    says = told.tells(_IMAGE_WORDS) or any("content" in param for param in told.params)
    if told.status not in (400, 404, 413, 415, 422, 500, 501) or told.coded(("context",)) or not says:
        return ""
    if told.status < 500 and any(told.numbers):
        return _LARGE_IMAGE if max(told.numbers) > 200 else _MANY_IMAGES
    return "" if answered else NO_IMAGES
