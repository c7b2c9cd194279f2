"""Samples of which a protocol gave no score because its `score` raised."""

from __future__ import annotations

from collections.abc import Iterable

from editloupe.protocols.base import EvalProtocol, described
from editloupe.scores import Score


def unscored(protocol: EvalProtocol, scores: Iterable[Score]) -> dict[str, str]:
    """Return sample key → what `score` raised, or gave wrongly, for the samples that have no score for that reason."""
    faults = tuple(f"{described(protocol)}{what}" for what in (" raised in score", " gave ", ": the score "))
    return {s.key: s.reason for s in scores if s.missing == "input_error" and s.reason.startswith(faults)}


def told(faults: dict[str, str], *, most: int = 5) -> list[str]:
    """Return one message for each fault, with the samples that it costs."""
    messages = []
    for reason in dict.fromkeys(faults.values()):
        keys = [key for key, why in faults.items() if why == reason]
        more = f" and {len(keys) - most} more" if len(keys) > most else ""
        messages.append(f"{reason}; no score of {', '.join(keys[:most])}{more}")
    return messages
