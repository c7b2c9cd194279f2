"""Edits of several input images: loaded as a list, shown and sent in order; tools and measures take the first."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.testing import ScriptedLMM
from editloupe.values import Sample
from tests.conftest import final

Draw = Callable[..., Path]
Program = Callable[..., tuple[int, str, str]]


@pytest.fixture
def merged(draw: Draw, write: Callable[..., Path]) -> Path:
    """One edit of two input images."""
    for number, name in enumerate(("one", "two", "merged")):
        draw(f"set/{name}.png", number)
    row = {
        "id": "m",
        "source_file_names": ["one.png", "two.png"],
        "edited_file_name": "merged.png",
        "instruction": "Merge.",
    }
    return write("set/metadata.jsonl", [row]).parent


def opened(path: Path, **options: Any) -> Sample:
    (sample,) = load(path, store=ImageStore(), **options).samples
    return sample


def test_they_are_sent_in_their_order_under_names_of_their_own(merged: Path) -> None:
    sample = opened(merged)
    assert sample.sources == (sample.source, *sample.further) and list(sample.originals) == [
        "Original Image",
        "Original Image 2",
    ]
    lmm = ScriptedLMM([final("Wrong Action")])
    with Judge(lmm, criteria="if", mode="plain") as judge:
        (finding,) = judge.judge(sample)
    assert finding.label == "Wrong Action"
    (request,) = lmm.requests
    assert [(part.alias, part.image) for message in request.messages for part in message.images] == [
        *sample.originals.items(),
        ("Edited Image", sample.edited),
    ]
    text = " ".join(message.text for message in request.messages)
    assert (
        "Images, in the order shown: Original Image, Original Image 2, Edited Image. The editing model was given all"
        in text
    )
