"""At which size images and targets reach a backend, in the trace and in the run's notes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from editloupe.backends.base import Traits
from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.images import ImagePolicy, ImageStore
from editloupe.runs.sent_sizes import sent_targets, small_targets_message
from editloupe.runs.worker import Worker
from editloupe.traces.events import Note
from editloupe.traces.read import read_trace
from editloupe.values import Box, Sample, Target, Turn
from tests.conftest import final
from tests.setups import open_with


def with_target(store: ImageStore, side: int) -> Sample:
    """A source of 400×300 px and an edited image of 200×150 px; a target 40 px wide, in the source only."""
    source, edited = (store.add_array(np.full((h, w, 3), 90, np.uint8)) for w, h in ((400, 300), (200, 150)))
    turn = Turn(instruction="Turn the mug red.", edited=edited)
    target = Target(name="mug", boxes={"source": Box(0, 0, 40, side)})
    return Sample(id="one", source=source, turns=(turn,), targets=(target,))


def test_a_target_shrinks_with_its_image_and_the_run_says_how_many_are_too_small(store: ImageStore):
    for max_side, sent, small in ((None, (40, 20), False), (320, (32, 16), False), (200, (20, 10), True)):
        (target,) = sent_targets(with_target(store, 20), ImagePolicy(max_side=max_side))
        assert (target.width, target.height, target.role, target.name) == (40, 20, "source", "mug")
        assert ((target.sent_width, target.sent_height), target.small) == (pytest.approx(sent), small)
    samples = [with_target(store, side) for side in (20, 15, 8)]
    told = small_targets_message([*samples, replace(samples[0], targets=())], ImagePolicy())
    assert told is not None and told.startswith("In 2 of 3 samples with boxes a target is under 16 px")
    assert small_targets_message(samples[:1], ImagePolicy()) is None


def test_the_trace_says_what_was_sent(store: ImageStore, tmp_path: Path):
    lmm = ScriptedLMM([final("Wrong Action")])
    lmm.traits = Traits(describes="a script in an LMM's place", max_image_side=200)
    setup, sample = open_with(backend=lmm, criteria=("if",)), with_target(store, 20)
    (task,) = setup.protocol.plan([sample], {})
    finding = Worker(setup=setup, images=store, run=tmp_path, samples={sample.key: sample}).run_task(task)
    notes = [event for event in read_trace(tmp_path / str(finding.trace)).events if isinstance(event, Note)]
    assert [note.data.get("px") for note in notes] == [[200, 150], [200, 150], None]
    assert notes[0].text.startswith("Original Image is sent as image/png, 200×150 px, ")
    assert notes[0].data["bytes"] == len(store.encoded(sample.source, ImagePolicy(max_side=200)).data)
    assert notes[2].text == "mug is 20×10 px of the source image as sent, under 16 px: the model may not see it"
