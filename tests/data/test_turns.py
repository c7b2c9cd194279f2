"""Samples of several turns or of several input images: read, written, named by turn, sent in order."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.data.write import metadata_row, place_image
from editloupe.testing import ScriptedLMM
from editloupe.values import Sample
from tests.conftest import final
from tests.data.conftest import opened

Draw = Callable[..., Path]
Write = Callable[..., Path]

TURNS = ["Make the red mug blue.", "Remove the plate", "What about a cat?"]


@pytest.fixture
def mug(draw: Draw) -> dict[str, Any]:
    """The row of three turns, the second without an output."""
    for number, name in enumerate(("mug", "mug_turn_1", "mug_turn_3", "cup", "cup-after")):
        draw(f"set/{name}.png", number)
    return {
        "id": "mug",
        "source_file_name": "mug.png",
        "instructions": TURNS,
        "edited_file_names": ["mug_turn_1.png", None, "mug_turn_3.png"],
    }


CUP = {"id": "cup", "source_file_name": "cup.png", "edited_file_name": "cup-after.png", "instruction": "Go."}


def names(sample: Sample) -> list[str | None]:
    return [None if turn.edited is None or turn.edited.path is None else turn.edited.path.name for turn in sample.turns]


def test_a_row_of_several_turns_is_one_sample(mug: dict[str, Any], write: Write) -> None:
    mug |= {"editor": "Bagel", "human_if": 3, "lang": "en"}
    loaded = opened(write("set/metadata.jsonl", [mug, CUP]).parent)
    chain, single = loaded.samples
    assert loaded.rejected == () and (chain.key, single.key) == ("Bagel/mug", "cup")
    assert [turn.instruction for turn in chain.turns] == TURNS
    assert names(chain) == ["mug_turn_1.png", None, "mug_turn_3.png"]
    # What leads from the source to the last image is all that was asked for, in sentences.
    assert chain.instruction == "Make the red mug blue. Remove the plate. What about a cat?"
    assert [chain.asked(turn) for turn in range(4)] == [chain.instruction, *TURNS]
    assert chain.edited == chain.turns[2].edited and chain.warnings == ("turn 2: no edited image",)
    assert chain.human == {"if": {"human": 3}} and chain.extra == {"lang": "en"}
    assert len(single.turns) == 1 and single.instruction == "Go." and single.extra == {}


def test_a_row_of_turns_that_makes_no_sense_is_rejected_alone(mug: dict[str, Any], write: Write) -> None:
    wrong: list[tuple[dict[str, Any], str, str]] = [
        ({"instructions": []}, "no_instruction", "the instruction is empty"),
        ({"instructions": ["Go.", " ", "Go."]}, "no_instruction", "the instruction of turn 2 is empty"),
        ({"instructions": ["Go.", None, "Go."]}, "no_instruction", "the instruction of turn 2 is empty"),
        ({"instructions": "Go."}, "row", "'instructions': expected a list with a text for each turn, found text 'Go.'"),
        ({"instructions": ["Go.", 2]}, "row", "'instructions': expected a list with a text for each turn, found the list"),
        ({"edited_file_names": {"a": 1}}, "row", "'edited_file_names': expected a list"),
        ({"edited_file_names": ["mug_turn_1.png"]}, "row", "found 3 instructions and 1 edited images"),
        ({"edited_file_name": "mug.png"}, "row", "a row of one turn has 'instruction' and 'edited_file_name'"),
        ({"edited_file_names": [None, "no.png", None]}, "missing_file", "no.png: no such file"),
        ({"edited_file_names": [None, "../a.png", None]}, "outside_folder", "holds '..'"),
    ]
    rows = [mug | changes | {"id": f"m{n}"} for n, (changes, _, _) in enumerate(wrong)]
    loaded = opened(write("set/metadata.jsonl", [*rows, CUP]).parent)
    assert [sample.id for sample in loaded.samples] == ["cup"]
    for row, (_, kind, message) in zip(loaded.rejected, wrong, strict=True):
        assert row.kind == kind and message in row.message


def test_outputs_of_editors_are_named_by_their_turn(mug: dict[str, Any], write: Write, draw: Draw, tmp_path: Path) -> None:
    path = write("set/metadata.jsonl", [mug | {"id": "m"}, CUP, {**mug, "id": "bad", "instructions": [""]}]).parent
    for name in ("a/m_turn_1.png", "a/m_turn_3.jpg", "a/cup.png", "b/m_turn_2.png", "b/m_turn_4.png", "c/cup-after.png"):
        draw(name)
    draw("c/mug_turn_3.png")
    loaded = opened(path, edited={name: tmp_path / name for name in "abc"})
    found = {sample.key: names(sample) for sample in loaded.samples}
    assert found == {
        "a/m": ["m_turn_1.png", None, "m_turn_3.jpg"],
        "a/cup": ["cup.png"],
        "b/m": [None, "m_turn_2.png", None],
        "b/cup": [None],
        # By the names of the row's own files.
        "c/m": [None, None, "mug_turn_3.png"],
        "c/cup": ["cup-after.png"],
    }
    assert [row.key for row in loaded.rejected] == ["a/bad", "b/bad", "c/bad"]
    told = f"editor 'b': files in {tmp_path / 'b'} named {{id}}; 3 missing, 1 belong to no row (m_turn_4.png)"
    assert told in loaded.notes


def test_what_is_written_is_read_back(mug: dict[str, Any], write: Write, tmp_path: Path) -> None:
    store = ImageStore()
    rows = [mug | {"editor": "a", "lang": ["en"], "bbox": [1, 2, 30, 40]}, CUP | {"instructions": ["Go", "on"]}]
    samples = load(write("set/metadata.jsonl", rows).parent, store=store).samples
    out = tmp_path / "out"
    lines = [metadata_row(sample, lambda ref: place_image(ref, out, store=store)) for sample in samples]
    assert "instruction" not in lines[0] and "edited_file_name" not in lines[0] and "edited_file_names" not in lines[1]
    again = opened(write("out/metadata.jsonl", lines).parent).samples
    for sample, other in zip(samples, again, strict=True):
        assert (other.content, other.key, other.extra) == (sample.content, sample.key, sample.extra)
        assert other.turns == sample.turns and other.warnings == sample.warnings


def test_several_input_images_are_sent_in_their_order_under_names_of_their_own(draw: Draw, write: Write) -> None:
    for number, name in enumerate(("one", "two", "merged")):
        draw(f"set/{name}.png", number)
    row = {"source_file_names": ["one.png", "two.png"], "edited_file_name": "merged.png", "instruction": "Merge."}
    (sample,) = opened(write("set/metadata.jsonl", [row]).parent).samples
    assert sample.sources == (sample.source, *sample.further)
    assert list(sample.originals) == ["Original Image", "Original Image 2"]
    lmm = ScriptedLMM([final("Wrong Action")])
    with Judge(lmm, criteria="if", mode="plain") as judge:
        (finding,) = judge.judge(sample)
    assert finding.label == "Wrong Action"
    (request,) = lmm.requests
    shown = [(part.alias, part.image) for message in request.messages for part in message.images]
    assert shown == [*sample.originals.items(), ("Edited Image", sample.edited)]
    order = "Images, in the order shown: Original Image, Original Image 2, Edited Image. The editing model was given all"
    assert order in " ".join(message.text for message in request.messages)
