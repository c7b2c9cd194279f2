"""Doors: wires of other projects' reward servers in front of the same judge (entry points `editloupe.doors`)."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
from prometheus_client import CollectorRegistry, Counter, Summary
from starlette.routing import Route

from editloupe import plugins
from editloupe.data.images import encode_png
from editloupe.errors import ConfigError, EditLoupeError
from editloupe.service.edits import SentEdit, SentPicture
from editloupe.service.judging import Service


class Door:
    """What a wire needs of the service: a reward for an edit, and places."""

    def __init__(
        self, service: Service, *, registry: CollectorRegistry, group_mean: bool = False, canary: int | None = None
    ) -> None:
        """Make a door.

        group_mean: an edit without a score gets its group's mean.   canary: after so many edits, one is judged again as an
        edit that changes nothing and as a black image; the metrics report their rewards.
        """
        self.service, self.group_mean, self._canary = service, group_mean, canary
        self._rewards = Counter("editloupe_rewards", "Edits of doors.", ("scored",), registry=registry)
        self._canaries = Summary("editloupe_canary_reward", "Rewards of known bad edits.", ("kind",), registry=registry)
        self._unscored = Counter("editloupe_canaries_unscored", "Known bad edits not judged.", ("kind",), registry=registry)
        self._seen = 0
        self._under_way: set[asyncio.Task[None]] = set()

    async def judge(self, edit: SentEdit) -> float | str:
        """Return the reward of an edit, 0 to 1, or why there is none. Raises as `Service.judge` does."""
        found = await self._judged(edit)
        self._rewards.labels("yes" if isinstance(found, float) else "no").inc()
        self._seen += 1
        if self._canary and self._seen % self._canary == 0:
            for kind, picture in (("null", edit.source), ("black", _black())):
                bad = edit.model_copy(update={"edited": picture, "repeat": 0})
                task = asyncio.create_task(self._watch(kind, bad))
                self._under_way.add(task)
                task.add_done_callback(self._under_way.discard)
        return found

    async def _judged(self, edit: SentEdit) -> float | str:
        graded: Any = (await self.service.judge(edit))["reward"]
        return str(graded["why"]) if graded["value"] is None else graded["value"] / 100

    async def _watch(self, kind: str, edit: SentEdit) -> None:
        try:
            found = await self._judged(edit)
        except (EditLoupeError, TimeoutError) as error:
            found = str(error)
        if isinstance(found, float):
            self._canaries.labels(kind).observe(found)
        else:
            self._unscored.labels(kind).inc()


Opens: TypeAlias = Callable[[Door], Sequence[Route]]
"""What an entry point of a door is: it makes the routes of its wire."""


def load_door(name: str) -> Opens:
    """Return an installed door. Raises UnknownPlugin, and ConfigError for an entry point of another kind."""
    opens = plugins.load("doors", name)
    if not callable(opens):
        raise ConfigError(f"{plugins.described('doors', name)} is not a function of a Door that returns routes")
    return cast(Opens, opens)


@cache
def _black() -> SentPicture:
    """Return a black image."""
    png = encode_png(np.zeros((256, 256, 3), np.uint8))
    return SentPicture(base64=base64.b64encode(png).decode("ascii"))
