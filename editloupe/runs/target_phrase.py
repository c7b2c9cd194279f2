"""Which object an instruction is about: asked of an LMM (DLEBench, appendix 11), or read by the baseline's rules."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from editloupe.backends.base import LMM
from editloupe.baseline.phrase import VERSION, WHOLE_IMAGE, target_phrase
from editloupe.chat import Message, Reply, Request, Sampling
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ContextTooLong, EditLoupeError, ReplyError
from editloupe.prompts import prompt_digest, render
from editloupe.tools.search import MAX_PHRASE
from editloupe.values import digest

__all__ = ["WHOLE_IMAGE", "Phrase", "PhraseFinder", "parse_result"]

TEMPLATES: Final = ("dlebench/target", "dlebench/target_remind")
MOST_WORDS: Final = 12
"""A name that is longer is a sentence."""

_RESULT = re.compile(r"^[ \t>*_`#-]*\[\s*result\s*\][ \t*_`]*[:：][ \t*_`]*(.*)$", re.IGNORECASE | re.MULTILINE)
_WRAPPED = "\"'`“”‘’«»<>[]*_ \t."
_WHOLE = frozenset(("image", "whole image", "entire image", "picture", "photo", "whole picture", "entire picture"))


@dataclass(frozen=True, kw_only=True)
class Phrase:
    """text: the object's name, "image" for the whole image; None where there is none.   by: who named it.
    status: "ok", "no_phrase" (no rule fits), or why the LMM's answer cannot be used, as findings have it.
    """

    text: str | None
    by: str
    status: str = "ok"
    reason: str = ""


class PhraseFinder:
    """Names the target object of an instruction; safe in threads.

    The embedded baseline reads by rules and says so in `by`; any other backend is asked, with one reminder.
    """

    def __init__(self, backend: LMM, sampling: Sampling | None = None) -> None:
        self._backend, self._sampling = backend, sampling or Sampling()

    @property
    def by_rules(self) -> bool:
        return self._backend.uri == "baseline"

    @property
    def by(self) -> str:
        """Who names: "rules 1 (baseline, not an LMM)", or the backend's URI."""
        return f"rules {VERSION} (baseline, not an LMM)" if self.by_rules else self._backend.uri

    @property
    def id(self) -> str:
        """Digest of all that an answer depends on beside the instruction."""
        backend = self._backend
        return digest(
            [self.by, backend.version, backend.endpoint, self._sampling.to_json(), prompt_digest(TEMPLATES), MOST_WORDS]
        )

    def __call__(self, instruction: str, images: ImageStore) -> Phrase:
        if self.by_rules:
            text = target_phrase(instruction)
            reason = "" if text else "no rule fits this instruction; name an LMM with --backend"
            return Phrase(text=text, by=self.by, status="ok" if text else "no_phrase", reason=reason)
        messages = [Message.of_text("user", render("dlebench/target", instruction=instruction))]
        try:
            reply = self._asked(messages, images)
            try:
                return Phrase(text=_named(reply), by=self.by)
            except ReplyError as error:
                if error.status != "unparsed":
                    raise
                messages += [
                    Message.of_text("assistant", reply.text),
                    Message.of_text("user", render("dlebench/target_remind", problem=str(error))),
                ]
            return Phrase(text=_named(self._asked(messages, images)), by=self.by)
        except ReplyError as error:
            return Phrase(text=None, by=self.by, status=error.status, reason=str(error))
        except ContextTooLong as error:
            return Phrase(text=None, by=self.by, status="over_budget", reason=f"context: {error}")
        except BackendError as error:
            return Phrase(text=None, by=self.by, status="backend_failed", reason=f"{type(error).__name__}: {error}")

    def _asked(self, messages: list[Message], images: ImageStore) -> Reply:
        try:
            return self._backend.complete(Request(messages=tuple(messages), sampling=self._sampling), images)
        except EditLoupeError:
            raise
        except Exception as error:
            raise BackendError(f"{self._backend.uri} raised {type(error).__name__}: {error}") from error


def parse_result(text: str) -> str:
    """The name after `[Result]:`, without article, quotes and brackets; "image" for the whole image.

    Raises ReplyError: "unparsed" (no such line, an empty or overlong name), "contradictory" (several names).
    """
    given = [_bare(match[1]) for match in _RESULT.finditer(text)]
    found = list({name.casefold(): name for name in reversed(given)}.values())
    if len(found) > 1:
        raise ReplyError("contradictory", f"it names several objects: {', '.join(map(repr, found[:4]))}")
    if not found:
        raise ReplyError("unparsed", "it has no line of the form [Result]: <Object Name>")
    name = found[0]
    if not any(c.isalnum() for c in name) or name.casefold() == "object name":
        raise ReplyError("unparsed", "it names no object after [Result]:")
    if len(name) > MAX_PHRASE or len(name.split()) > MOST_WORDS:
        raise ReplyError("unparsed", f"what stands after [Result]: is no name ({len(name.split())} words)")
    return WHOLE_IMAGE if name.casefold() in _WHOLE else name


def _named(reply: Reply) -> str:
    if reply.finish == "refusal":
        raise ReplyError("refused", reply.text or "the model refused without a reason")
    if reply.finish == "filter":
        raise ReplyError("filtered", reply.text or "the provider's content filter cut the reply")
    return parse_result(reply.text)


def _bare(name: str) -> str:
    return re.sub(r"^(the|an?)\s+", "", " ".join(name.strip(_WRAPPED).split()), flags=re.IGNORECASE)
