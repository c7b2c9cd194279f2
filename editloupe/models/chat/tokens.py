"""The log-probabilities of the tokens that a model writes, taken while it writes them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from editloupe.chat import Token
from editloupe.models.devices import import_torch


@dataclass(frozen=True, kw_only=True)
class Written:
    """A token that was written."""

    id: int
    logprob: float
    """Natural logarithm of its probability."""
    alternatives: tuple[tuple[int, float], ...]
    """(id, logprob) of the likeliest tokens at this place, likeliest first; the written one may be among them."""


class ScoresNotFinite(Exception):
    """The model's scores are not numbers."""


class Watch:
    """Takes the scores of each step, before sampling and penalties change them.

    top: alternatives to keep of each token; None keeps nothing, and only looks whether the scores are numbers.
    A logits processor of transformers: it must be the first.
    """

    def __init__(self, top: int | None) -> None:
        self._top = top
        self._row: Any = None
        self._kept: list[Written] = []
        self._best: tuple[tuple[int, float], ...] = ()

    def __call__(self, input_ids: Any, scores: Any) -> Any:
        """Return the scores as they are. Raises ScoresNotFinite.

        input_ids: 1×T, all tokens so far.   scores: 1×V, one a token of the vocabulary.
        """
        torch = import_torch()
        if self._top is not None:
            if self._row is not None:
                self._add(int(input_ids[0, -1]))
            self._row = torch.log_softmax(scores[0].float(), dim=-1)
            best = self._row.topk(min(self._top, len(self._row)))
            # A token that the model may not write has no finite logarithm.
            pairs = zip(best.indices.tolist(), best.values.tolist(), strict=True)
            self._best = tuple((id, logprob) for id, logprob in pairs if math.isfinite(logprob))
        # A token may be ruled out (-inf), but none may be NaN, and not all ruled out.
        if bool(scores.isnan().any()) or not bool(scores.isfinite().any()):
            raise ScoresNotFinite
        return scores

    def written(self, ids: Sequence[int]) -> list[Written]:
        """Return the tokens of a finished answer.   ids: all that were written."""
        if self._row is not None and len(self._kept) < len(ids):
            self._add(ids[-1])
        assert [token.id for token in self._kept] == list(ids), "each step is watched"
        return self._kept

    def _add(self, id: int) -> None:
        self._kept.append(Written(id=id, logprob=float(self._row[id]), alternatives=self._best))


_WINDOW: Final = 8
"""Tokens before one that decide how it is spelled, such as whether a blank stands before it."""
_PENDING: Final = "\N{REPLACEMENT CHARACTER}"
"""What a tokenizer writes for a character of which bytes are still to come, and for bytes that are none."""


def tokens_of(tokenizer: Any, written: Sequence[Written]) -> tuple[Token, ...]:
    """Return the tokens of an answer as text, which together are the answer's text. Special ones are left out.

    A character that is not whole yet is "", and the token that completes it holds all of it. A special token among the
    alternatives goes by its name.
    """
    special, ids = set(tokenizer.all_special_ids), [one.id for one in written]
    last = max((at for at, id in enumerate(ids) if id not in special), default=0)
    # Where no character is pending. What stands behind such a place is read without what stands before it.
    starts = [0]

    def text(some: Sequence[int], *, end: bool = False) -> str:
        read = str(tokenizer.decode(some, skip_special_tokens=True))
        return read if end else read.rstrip(_PENDING)

    tokens = []
    for at, one in enumerate(written):
        start = next(place for place in reversed(starts) if place <= max(0, at - _WINDOW))
        before = ids[start:at]
        head = text(before)

        def added(id: int, before: Sequence[int] = before, head: str = head, end: bool = False) -> str:
            whole = text([*before, id], end=end)
            return whole[len(head) :] if whole.startswith(head) else str(tokenizer.decode([id]))

        top = tuple(
            (str(tokenizer.convert_ids_to_tokens(id)) if id in special else added(id), logprob)
            for id, logprob in one.alternatives
        )
        if one.id not in special:
            tokens.append(Token(text=added(one.id, end=at == last), logprob=one.logprob, top=top))
        if not text([*before, one.id], end=True).endswith(_PENDING):
            starts.append(at + 1)
    return tuple(tokens)
