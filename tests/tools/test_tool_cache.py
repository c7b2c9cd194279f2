"""Equal calls on equal images run once, and what is said fits the conversation that gets it."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from pydantic import BaseModel

from editloupe.data.images import ImageStore
from editloupe.errors import ToolError
from editloupe.findings import Observation
from editloupe.tools.ablations import ablated
from editloupe.tools.base import Toolbox, ToolContext, open_toolbox
from editloupe.tools.cache import ToolCache
from editloupe.values import Json, View
from tests.conftest import pixels

ZOOM: Mapping[str, Json] = {"target_image": "Edited Image", "bbox": [100, 100, 400, 400], "label": "the square"}


@pytest.fixture
def images(tmp_path: Path) -> ImageStore:
    return ImageStore(tmp_path / "blobs")


@pytest.fixture
def talk(images: ImageStore) -> ToolContext:
    before, after = pixels(0, spots=2)
    views = {n: View.whole(images.add_array(p)) for n, p in (("Original Image", before), ("Edited Image", after))}
    for view in views.values():
        images.keep(view.image)
    return ToolContext(images=images, views=views)


@pytest.fixture
def cache(tmp_path: Path) -> ToolCache:
    return ToolCache(tmp_path / "cache")


def ask(cache: ToolCache, box: Toolbox, talk: ToolContext, images: ImageStore, tool: str, arguments: Mapping[str, Json]):
    """(observation, from the cache, the conversation afterward); the observation is what it would be without a cache."""
    seen, cached = cache.call(box, tool, arguments, talk)
    assert seen.to_json() == box.call(tool, arguments, talk).to_json()
    return seen, cached, talk.after(tool, arguments, seen, talk.names(seen))


def test_an_equal_call_is_answered_from_the_first(cache: ToolCache, talk: ToolContext, images: ImageStore):
    box = open_toolbox(["zoom_in", "localize_differences"])
    first, cached, later = ask(cache, box, talk, images, "zoom_in", ZOOM)
    assert not cached
    assert ask(cache, box, talk, images, "zoom_in", {**ZOOM, "target_image": " edited IMAGE"})[:2] == (first, True)
    # Another process: the same folder.
    assert ask(ToolCache(cache._folder), box, talk, images, "zoom_in", ZOOM)[1]
    # The conversation has made it before, and is told so: another observation.
    seen, cached, _ = ask(cache, box, later, images, "zoom_in", ZOOM)
    assert (cached, seen.data["repeated"], "exactly this call before" in seen.text) == (False, True, True)
    assert (cache.ran, cache.hits) == (2, 1)


def test_another_version_device_or_ablation_is_asked_anew(
    cache: ToolCache, talk: ToolContext, images: ImageStore, monkeypatch: pytest.MonkeyPatch
):
    box = open_toolbox(["zoom_in"])
    ask(cache, box, talk, images, "zoom_in", ZOOM)
    black = ablated(box, ["black-crops"])
    assert not ask(cache, black, talk, images, "zoom_in", ZOOM)[1]
    assert ask(cache, black, talk, images, "zoom_in", ZOOM)[1]
    assert not ask(ToolCache(cache._folder, device="cuda:1"), box, talk, images, "zoom_in", ZOOM)[1]
    assert ask(ToolCache(cache._folder, device="cuda:0"), box, talk, images, "zoom_in", ZOOM)[1], "the same kind of device"
    monkeypatch.setattr(type(box.tools["zoom_in"]), "revision", "99")
    assert not ask(cache, box, talk, images, "zoom_in", ZOOM)[1]


class Broken:
    """Counts its calls; fails as often as it is told."""

    name: ClassVar[str] = "broken"
    description: ClassVar[str] = "For tests."
    version = "1"
    repeatable = True

    class Args(BaseModel):
        pass

    def __init__(self, *answers: Observation | Exception) -> None:
        self.answers = list(answers)

    def __call__(self, args: Args, context: ToolContext) -> Observation:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_failures_are_not_kept(cache: ToolCache, talk: ToolContext, images: ImageStore):
    fine = Observation(text="found")
    tool = Broken(ToolError("not now"), ValueError("crash"), Observation(text="Error", error=True), fine)
    box, context = Toolbox(tools={"broken": tool}), talk
    for error in (ToolError, ValueError):
        with pytest.raises(error):
            cache.call(box, "broken", {}, context)
    assert cache.call(box, "broken", {}, context) == (Observation(text="Error", error=True), False)
    assert [cache.call(box, "broken", {}, context) for _ in range(2)] == [(fine, False), (fine, True)]
    tool.repeatable, tool.answers = False, [Observation(text="1"), Observation(text="2")]
    assert [cache.call(box, "broken", {}, context)[0].text for _ in range(2)] == ["1", "2"]


def test_callers_at_once_share_one_call(cache: ToolCache, talk: ToolContext, images: ImageStore):
    began = threading.Barrier(8)
    tool = Broken(Observation(text="once"))
    box, context = Toolbox(tools={"broken": tool}), talk

    def call(_: int) -> tuple[Observation, bool]:
        began.wait()
        return cache.call(box, "broken", {}, context)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(call, range(8)))
    assert {o.text for o, _ in found} == {"once"}
    assert sum(not cached for _, cached in found) == 1
    assert replace(found[0][0]) == found[-1][0]
