"""CLIP-I and CLIP-T with patched areas: what is planned when, which pixels are measured, and why a score is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from editloupe.answers import Choice
from editloupe.data.images import RGB, ImageStore
from editloupe.findings import Finding
from editloupe.imaging.views import make_view
from editloupe.measures.base import Models
from editloupe.protocols.base import Known, make_protocol
from editloupe.scores import Score
from editloupe.tasks import Task
from editloupe.values import Json, Sample, Turn
from tests.imaging.drawn import textured, with_square
from tests.protocols.said import computed, found, played

STORE = ImageStore()
BASE = textured(160, 120)
ASKED, UNASKED = (16, 24, 48, 60), (80, 60, 144, 96)
"""px of a picture of 160×120: what was asked for, and what was not."""
EDITED = with_square(with_square(BASE, ASKED), UNASKED, (20, 20, 250))
MEAN = [round(float(v)) for v in BASE.reshape(-1, 3).mean(0)]
PATCHES = ("none", "coherent", "incoherent", "all", "random")
LISTED: list[Json] = [
    {"op": "ADD", "object": "cup", "box": [0.1, 0.2, 0.3, 0.5]},
    {"op": "EDIT", "object": "sky", "box": [0.5, 0.5, 0.9, 0.8]},
]


class Means:
    """CLIP whose vectors are mean colors, and of a text always the same red."""

    name = "drawn"

    def get(self, kind: str) -> Any:
        return {"clip": self, "clip_text": lambda texts: [np.array([1, 0, 0], np.float32)] * len(texts)}[kind]

    def __call__(self, images: Sequence[RGB], patches: Sequence[Any]) -> list[Any]:
        return [image.mean((0, 1)).astype(np.float32) for image in images]


def sample_of(edited: RGB | None = EDITED, **extra: Json) -> Sample:
    turn = Turn(instruction="add a cup", edited=None if edited is None else STORE.add_array(edited))
    given: dict[str, Json] = {"target_caption": " a red\ncup", "differences": LISTED, **extra}
    return Sample(id="0", source=STORE.add_array(BASE), turns=(turn,), extra=given)


@dataclass
class Asked:
    """A sample that is asked about wave by wave. says: the object of a difference → yes, no or a status."""

    sample: Sample = field(default_factory=sample_of)
    says: Mapping[str, str] = field(default_factory=lambda: {"cup": "yes", "sky": "no"})
    door: Any = field(default_factory=Means)
    protocol: Any = field(default_factory=lambda: make_protocol("dice", {"detector": "given", "patch": ",".join(PATCHES)}))

    def tasks(self) -> dict[str, Task]:
        return {task.metric: task for task in played(self.protocol, self.sample, self._answered)[0]}

    def scores(self) -> dict[str, Score]:
        _, findings = played(self.protocol, self.sample, self._answered)
        scores = self.protocol.score([self.sample], Known(findings))
        return {score.metric: score for score in scores if score.metric.startswith("clip")}

    def _answered(self, task: Task) -> Finding:
        if (ended := computed(task, STORE, self.door)) is not None:
            return ended
        said = next(said for name, said in self.says.items() if f'"{name}"' in task.prompt)
        known = said in ("yes", "no")
        return found(task, "ok", answer=Choice(name=said)) if known else found(task, said, reason="no word")


def pictures(task: Task) -> dict[str, RGB]:
    return {view.alias: STORE.array(make_view(view, STORE).image) for view in task.views}


def test_boxes_have_the_mean_color_of_the_source_in_both_images() -> None:
    tasks = Asked().tasks()
    for patch, boxes in (("none", []), ("coherent", [ASKED]), ("incoherent", [UNASKED]), ("all", [ASKED, UNASKED])):
        shown, text = pictures(tasks[f"clip_i_{patch}"]), tasks[f"clip_t_{patch}"]
        for alias, own in (("source", BASE), ("edited", EDITED)):
            expected = own.copy()
            for x0, y0, x1, y1 in boxes:
                expected[y0:y1, x0:x1] = MEAN
            assert np.array_equal(shown[alias], expected), (patch, alias)
        assert text.kind == "measure" and (text.measure, text.args) == ("clip_text_similarity", {"text": "a red cup"})
        assert np.array_equal(pictures(text)["edited"], shown["edited"])
    # In an edited image of another size a place has the same share of the sides.
    large = np.repeat(np.repeat(EDITED, 2, 0), 3, 1)
    found = pictures(Asked(sample_of(large)).tasks()["clip_i_all"])["edited"]
    x0, y0, x1, y1 = UNASKED
    assert (found[2 * y0 : 2 * y1, 3 * x0 : 3 * x1] == MEAN).all()
    assert np.array_equal(found[: 2 * ASKED[1]], large[: 2 * ASKED[1]])


def test_scores_and_the_reasons_for_missing_ones() -> None:
    asked = Asked()
    found, tasks = asked.scores(), Asked().tasks()
    # Nothing but the two areas differs.
    assert found["clip_i_all"].value == pytest.approx(1.0) and 0 < (found["clip_i_none"].value or 0) < 0.999
    # (r, g, b) · (1, 0, 0) / |(r, g, b)| of the mean color of the patched image.
    r, g, b = pictures(tasks["clip_t_all"])["edited"].mean((0, 1))
    assert found["clip_t_all"].value == pytest.approx(r / (r * r + g * g + b * b) ** 0.5, abs=1e-6)
    assert found["clip_t_all"].findings == (tasks["clip_t_all"].id, tasks["differences"].id)
    # One verdict that is missing costs the two patches that rest on it.
    half = Asked(says={"cup": "yes", "sky": "refused"}).scores()
    missing = {metric: (score.missing, score.reason) for metric, score in half.items() if score.value is None}
    assert missing == {f"{k}_{p}": ("refused", "no word") for k in ("clip_i", "clip_t") for p in ("coherent", "incoherent")}
    # Without a list of differences nothing is known but the whole images.
    unknown = Asked(sample_of(differences=None)).scores()
    assert {m for m, score in unknown.items() if score.value is not None} == {"clip_i_none", "clip_t_none"}
    assert {score.missing for score in unknown.values()} == {None, "input_error"}
    assert {score.missing for score in Asked(sample_of(None)).scores().values()} == {"missing_output"}
    assert {score.missing for score in Asked(door=Models(device="cpu")).scores().values()} == {"not_defined"}
    nothing = Asked()
    assert {s.missing for s in nothing.protocol.score([nothing.sample], Known()) if s.metric != "given"} == {
        "not judged yet"
    }
