"""What all that builds data sets stands on: why something becomes no row, what a set holds, models that are needed.

A recipe stands behind the entry point group `editloupe.builders`: an `engine.SetRecipe`, which asks a model, or a
`direct.DirectRecipe`, which asks nobody.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from editloupe import models
from editloupe.errors import ConfigError, ModelAbsent
from editloupe.measures.base import Models
from editloupe.values import Json

LEFT_OUT: Final = "left_out.jsonl"


class LeftOut(Exception):
    """Says why something becomes no row: raised at the stage where it ends, and kept for left_out.jsonl.

    why: for programs, such as "not_found", or the status of a finding.
    failed: the status of a failure, which leaves open whether there is a row: it may go otherwise another time.
    at: the stage, by the name that the funnel has for it.   told: what else is known of it.
    """

    def __init__(
        self, why: str, detail: str = "", *, failed: str = "", at: str = "", told: Mapping[str, Json] | None = None
    ) -> None:
        self.why, self.failed, self.at, self.told = why.replace(" ", "_"), failed, at, dict(told or {})
        super().__init__(detail)

    def kept(self, stage: str) -> LeftOut:
        """Return it with its stage, and without the frames that it came through."""
        self.at = stage
        return self.with_traceback(None)

    def to_json(self) -> dict[str, Json]:
        """Return it as a line of left_out.jsonl has it."""
        return {"stage": self.at, "why": self.why, "detail": str(self)}


@contextmanager
def leaving_out(why: str, *errors: type[Exception], failed: str = "", at: str = "") -> Iterator[None]:
    """Turn these errors into a LeftOut for the block."""
    try:
        yield
    except errors as error:
        raise LeftOut(why, str(error), failed=failed, at=at) from error


@dataclass(kw_only=True)
class Built:
    """A set that has been written."""

    read: int
    """Images, or what `unit` says."""
    written: int
    """Rows of the set."""
    noun: str
    """What a row is, for example "chain"."""
    unit: str = "image"
    """What is read, one by one, for example "pair"."""
    passes: Mapping[str, str]
    """Stages, in their order: name → what passes, in words."""
    lost: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(stage, why) → how many do not pass."""
    counts: Mapping[str, Json] = field(default_factory=dict)
    """What else funnel.json counts."""
    notes: Sequence[str] = ()
    """What a reader should do next."""

    def funnel(self) -> dict[str, Json]:
        """Return the counts as JSON. What enters a stage is what the one before let pass."""
        left, stages = self.read, list[Json]()
        for name, passes in self.passes.items():
            lost = {why: n for (at, why), n in sorted(self.lost.items()) if at == name}
            out = left - sum(lost.values())
            stages.append({"stage": name, "passes": passes, "in": left, "out": out, "left_out": {**lost}})
            left = out
        return {"read": self.read, "stages": stages, "written": self.written, "dropped": self.read - left, **self.counts}


def need(models_: Models, kind: str, advice: str) -> Any:
    """Return a model, ready to be used. Raises ConfigError where it cannot be had.

    advice: the message; {reason} stands for why there is none.
    """
    try:
        model = models_.get(kind)
        models.prepare(model)
    except ModelAbsent as reason:
        raise ConfigError(advice.format(reason=reason)) from reason
    return model


def counted(count: Mapping[str, int]) -> dict[str, Json]:
    """Return counts as JSON, in the order of their names."""
    return dict(sorted(count.items()))


def json_text(value: Json) -> bytes:
    """Return a file of JSON that a person reads too. Half a surrogate pair becomes a question mark."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=1).encode("utf-8", "replace") + b"\n"
