"""Doors: wires of other projects' reward servers in front of the same judge (entry points `editloupe.doors`)."""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import Callable, Sequence
from typing import Any

from PIL import Image
from prometheus_client import CollectorRegistry, Counter, Summary
from starlette.routing import Route

from editloupe import plugins
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
            for kind, picture in (("null", edit.source), ("black", _black(edit.source))):
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


def open_door(name: str, door: Door) -> Sequence[Route]:
    """Return the routes of an installed door. Raises UnknownPlugin, and ConfigError for an entry point of another kind."""
    make = plugins.load("doors", name)
    if not callable(make):
        raise ConfigError(f"{plugins.described('doors', name)} is not a function of a Door that returns routes")
    routes: Callable[[Door], Sequence[Route]] = make
    return routes(door)


def _black(picture: SentPicture) -> SentPicture:
    """Return a black image of the same size; an image that cannot be read, or has no bytes here, as 64×64 px."""
    try:
        with Image.open(io.BytesIO(base64.b64decode(picture.base64 or ""))) as opened:
            size = opened.size
    except (OSError, ValueError):
        size = (64, 64)
    file = io.BytesIO()
    Image.new("RGB", size).save(file, "PNG")
    return SentPicture(base64=base64.b64encode(file.getvalue()).decode("ascii"))
