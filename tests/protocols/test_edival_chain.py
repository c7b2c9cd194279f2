"""A chain of edits in a sample's columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from editloupe.errors import DataError
from editloupe.protocols.edival.chain import Chain, Pools, columns, read_chain
from editloupe.protocols.edival.instructions import Edit
from editloupe.values import ImageRef, Sample, Turn

IMAGE = ImageRef(sha256="0" * 64, width=8, height=8, media_type="image/png")
CHAIN = Chain(
    mode="multipass",
    edits=(Edit(edit_type="subject_remove", target="cup"), Edit(edit_type="background_change", new="park", keep=("jar",))),
    pools=(
        Pools(ever=("cup", "jar"), unchanged=("jar",), available=("jar",), background_kept=True),
        Pools(ever=("cup", "jar"), unchanged=("jar",), available=(), background_kept=False),
    ),
)


def sample(chain: Chain = CHAIN, **extra: Any) -> Sample:
    count = len(chain.edits) if chain.mode == "multipass" else 1
    turns = tuple(Turn(instruction="x", edited=IMAGE) for _ in range(count))
    return Sample(id="0", source=IMAGE, turns=turns, extra={**columns(chain), **extra})


def test_a_chain_is_read_as_it_was_written():
    assert read_chain(sample()) == CHAIN
    one = replace(CHAIN, mode="singlepass")
    assert read_chain(sample(one)) == one
    assert [CHAIN.turn(i) for i in (0, 1)] == [1, 2] and [one.turn(i) for i in (0, 1)] == [1, 1]


def test_columns_that_hold_no_chain_are_told():
    for extra, said in (
        ({"mode": "both"}, "column 'mode' holds 'both'; expected multipass or singlepass"),
        ({"all_objects": None}, "column 'all_objects' holds None; expected a list"),
        ({"task_type": ["subject_remove"]}, "found 1 of task_type, 2 of format_instructions"),
        ({"instructions": ["a", 2]}, "column 'instructions' holds 2; expected texts"),
        ({"unchanged_objects": [["a"], "b"]}, "column 'unchanged_objects' holds 'b'; expected a list of names"),
        ({"bg_consistency": [True, "no"]}, "column 'bg_consistency' holds 'no'; expected true or false"),
        ({"task_type": ["subject_remove", "paint"]}, "sample '0': unknown edit type 'paint'"),
        ({"mode": "singlepass"}, "one turn for all"),
    ):
        with pytest.raises(DataError, match=said):
            read_chain(sample(**extra))
