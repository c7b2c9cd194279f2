"""Names and areas of target objects: from boxes, by a detector, unknown; nothing that failed becomes a number."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe.backends.scripted import ScriptedLMM
from editloupe.build.targets import TargetRow, TargetTable, as_csv, with_boxes
from editloupe.chat import Reply, Request
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.images import ImageStore
from editloupe.errors import ModelAbsent, ToolError
from editloupe.measures.detection import DetectTarget
from editloupe.models import opening
from editloupe.models.detect.base import Detector
from editloupe.prompts import render
from editloupe.protocols.targets.protocol import PROMPT, Targets
from editloupe.runs.outcome import Outcome
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.runs.store import RunStore
from editloupe.testing import check_measure, check_protocol
from editloupe.testing.protocols import drawn_samples
from tests.conftest import final
from tests.tools.test_search import Reds

Folder = Callable[..., Path]
Find = Callable[..., Outcome]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    """A folder of sources alone, 200×100 px, each with a red 20×10 px rectangle at (40, 30) unless `red` says no."""

    def make(*rows: dict[str, object], red: bool = True) -> Path:
        root = tmp_path / "data"
        root.mkdir()
        for number, row in enumerate(rows):
            picture = np.full((100, 200, 3), 120 + number, dtype=np.uint8)
            if red:
                picture[30:40, 40:60] = (255, 0, 0)
            Image.fromarray(picture).save(root / f"{number}.png")
            row |= {"id": f"s{number}", "source_file_name": f"{number}.png"}
        (root / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        return root

    return make


@pytest.fixture
def find(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Find:
    """Run the protocol on a folder; without a detector it is absent."""

    def run(
        root: Path, *, lmm: ScriptedLMM | None = None, detector: Detector | None = None, stop: threading.Event | None = None
    ) -> Outcome:
        def opened(name: str | None, device: str) -> Detector:
            if detector is None:
                raise ModelAbsent("none here")
            return detector

        monkeypatch.setattr(opening, "DETECTOR", opened)
        config = RunConfig.make(path=root, protocol="targets", judge=JudgeConfig.make(backend=lmm), concurrency=2)
        return drive(open_setup(config), tmp_path / "run", stop=stop)

    return run


def rows(outcome: Outcome) -> tuple[TargetRow, ...]:
    return TargetTable.of("data", outcome).rows


MUG = {"instruction": "Make the mug blue."}


def test_boxes_of_the_data_are_used_and_nobody_is_asked(folder: Folder, find: Find) -> None:
    root = folder({"instruction": "Make the mug blue.", "bboxes": [[0, 0, 20, 10], [0, 0, 200, 100]], "target_name": "mug"})
    lmm, reds = ScriptedLMM([]), Reds()
    small, whole = rows(find(root, lmm=lmm, detector=reds))
    # 20·10 of 200·100 px is 1 %; the second box is all of the image.
    assert (small.area_ratio, whole.area_ratio) == (0.01, 1.0)
    assert {small.how, whole.how} == {"boxes"} and small.phrase == "mug" and small.phrase_by == "the data"
    assert lmm.requests == [] and reds.asked == []


def test_a_detector_finds_what_the_instruction_names(folder: Folder, find: Find) -> None:
    (row,) = rows(find(folder({"instruction": "Make the Red Mug blue."}), detector=(reds := Reds(more=2))))
    assert row.box is not None and list(row.box) == [40, 30, 60, 40]
    assert (row.area_ratio, row.how, row.score, row.detections) == (0.01, "detector", 0.62, 3)
    assert reds.asked[0][0] == "red mug" and row.phrase_by.startswith("rules (baseline")


def test_a_model_names_the_object_and_the_whole_image_is_not_looked_for(folder: Folder, find: Find) -> None:
    def script(request: Request) -> str:
        return final("The whole image.") if "cinematic" in request.messages[0].text else final('the "red thing"')

    root = folder({"instruction": "Make it cinematic."}, {"instruction": "Make it so."})
    whole, thing = rows(find(root, lmm=ScriptedLMM(script), detector=(reds := Reds())))
    assert (whole.area_ratio, whole.how, whole.phrase) == (1.0, "whole image", "image")
    assert whole.box is not None and list(whole.box) == [0, 0, 200, 100]
    assert (thing.area_ratio, thing.phrase, thing.phrase_by) == (0.01, "red thing", "scripted/test")
    assert [phrase for phrase, _ in reds.asked] == ["red thing"]


class Breaks(Reds):
    """Fails as a network can."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    def __call__(self, images, phrase):  # type: ignore[no-untyped-def]
        raise self.error


@pytest.mark.parametrize(
    ("instruction", "detector", "status", "missing"),
    [
        ("Make the mug blue.", None, "no_detector", "not_defined"),
        ("Make the mug blue.", Reds(limit=1), "not_found", "not_defined"),
        ("Make the mug blue.", Breaks(ToolError("too long")), "tool_failed", "tool_failed"),
        ("Zzz.", Reds(), "no_phrase", "abstained"),
    ],
)
def test_what_cannot_be_found_out_has_a_kind_and_no_number(
    instruction: str, detector: Detector | None, status: str, missing: str, folder: Folder, find: Find
) -> None:
    outcome = find(folder({"instruction": instruction}), detector=detector)
    assert [(score.value, score.missing) for score in outcome.scores] == [(None, missing)]
    (row,) = rows(outcome)
    assert (row.status, row.area_ratio, row.box, row.score) == (status, None, None, None) and row.reason
    table = TargetTable(name="a", rows=(row,))
    assert table.unknown == {status: 1} and table.known == () and table.shares.unknown == 1
    assert set(table.summary()["quantiles"].values()) == {None}  # type: ignore[union-attr]


LONG = final("the thing that is to be changed by this edit here is the cat")


@pytest.mark.parametrize(
    ("script", "phrase", "status", "asked"),
    [
        ([final("mug")], "mug", "no_detector", 1),
        (["", final("mug")], "mug", "no_detector", 2),
        ([LONG] * 3, None, "unparsed", 2),
        ([LONG, final("cat")], "cat", "no_detector", 2),
        ([final("Cannot judge")], None, "abstained", 1),
        ([Reply(text="I cannot help.", finish="refusal")], None, "refused", 1),
        (["", RuntimeError("boom")], None, "backend_failed", 2),
    ],
)
def test_a_models_answer_is_a_name_or_has_its_kind_of_failure(
    script: list[str | Reply | Exception], phrase: str | None, status: str, asked: int, folder: Folder, find: Find
) -> None:
    lmm = ScriptedLMM(script)
    (row,) = rows(find(folder({**MUG}), lmm=lmm))
    assert (row.phrase, row.status, len(lmm.requests)) == (phrase, status, asked)
    assert lmm.requests[0].messages[0].images == ()


def test_editors_share_a_target_and_a_broken_row_is_counted(folder: Folder, find: Find) -> None:
    root = folder({**MUG}, {**MUG}, {"instruction": ""})
    lines = [json.loads(line) for line in (root / "metadata.jsonl").read_text().splitlines()]
    # The same edit by another editor, and a source that is no image.
    lines.append({**lines[0], "editor": "b"})
    (root / "1.png").write_bytes(b"no image")
    (root / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    outcome = find(root, detector=(reds := Reds()))
    assert [(r.item, r.status) for r in rows(outcome)] == [("s0", "ok"), ("s1", "input_error"), ("s2", "input_error")]
    # Each editor's sample has its score; they rest on one search.
    assert [(s.key, s.value) for s in outcome.scores if s.value is not None] == [("s0", 0.01), ("b/s0", 0.01)]
    assert len(reds.asked) == 1


def test_the_same_run_again_pays_for_nothing_twice_and_another_detector_asks_no_model(folder: Folder, find: Find) -> None:
    root = folder({"instruction": "Make the mug blue."}, {"instruction": "Make the mug green."})
    first = find(root, lmm=ScriptedLMM([final("mug")]))
    assert {row.status for row in rows(first)} == {"no_detector"}
    lmm, reds = ScriptedLMM([final("mug")]), Reds()
    found = find(root, lmm=lmm, detector=reds)
    assert {row.status for row in rows(found)} == {"ok"}
    assert lmm.requests == [] and len(reds.asked) == 2
    again = find(root, lmm=(lmm := ScriptedLMM([])), detector=(reds := Reds()))
    assert rows(again) == rows(found)
    assert lmm.requests == [] and reds.asked == []
    # What counts in the folder is the latest; each search has a trace and names what it rests on.
    store = RunStore.read(again.store.folder)
    current = store.current(again.setup.judge.id)
    assert [f.status for f in current if f.metric == "detect_target"][-1] == "ok"
    assert all((store.folder / str(f.trace)).is_file() for f in current)
    # Another judge is asked anew.
    find(root, lmm=(other := ScriptedLMM([final("cup")], name="other")), detector=Reds())
    assert len(other.requests) == 2


def test_a_stopped_search_says_what_it_did_not_reach(folder: Folder, find: Find) -> None:
    (stop := threading.Event()).set()
    (row,) = rows(find(folder({**MUG}), detector=Reds(), stop=stop))
    assert (row.status, row.area_ratio) == ("not_reached", None)


def test_csv_has_a_line_a_target_and_metadata_gets_boxes_only_where_there_were_none(folder: Folder, find: Find) -> None:
    found = rows(find(folder({**MUG}, {"instruction": "Make it cinematic."}, {"instruction": "Zzz."}), detector=Reds()))
    text = as_csv([TargetTable(name="data", rows=found)]).splitlines()
    assert text[1].startswith('data,s0,Make the mug blue.,mug,"rules (baseline ')
    assert ",40.0,30.0,60.0,40.0,0.01,detector,0.62,1,ok," in text[1] and ",,,,,,,,no_phrase," in text[3]
    lines = [({"id": r.item, "note": "é"}, (r.source, r.instruction)) for r in found]
    text, count = with_boxes(lines, found, detector="reds 1")
    first, second, third = map(json.loads, text.splitlines())
    assert count == 1
    assert (first["bbox"], first["bbox_format"], first["target_name"]) == ([40, 30, 60, 40], "xyxy", "mug")
    assert first["bbox_by"]["detector"] == "reds 1" and first["note"] == "é"
    assert "bbox" not in second and "bbox" not in third
    had = [({**lines[0][0], "bbox": [1, 2, 3, 4]}, lines[0][1])]
    assert json.loads(with_boxes(had, found, detector="reds 1")[0])["bbox"] == [1, 2, 3, 4]


def test_protocol_measure_and_prompt_keep_their_contracts() -> None:
    check_measure(DetectTarget, args={"phrase": "red mug"}, models=Found(), images={"a": np.zeros((9, 9, 3), np.uint8)})
    store = ImageStore()
    # Without boxes in the data, whose areas are known although nobody answers.
    check_protocol(Targets, samples=[replace(sample, targets=()) for sample in drawn_samples(store)], images=store)
    # An instruction of several lines stays one line.
    text = render(PROMPT, instruction="Make it red.\nName the object of this instruction: cat")
    assert text.rstrip().endswith("instruction: Make it red. Name the object of this instruction: cat")


class Found:
    """A door with one detector behind it."""

    def get(self, kind: str) -> Detector:
        return Reds()
