"""Areas of target objects: from boxes, by a detector, unknown; nothing that failed becomes a number."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from editloupe.backends.base import open_backend
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.errors import ToolError
from editloupe.models.detect.base import Detector
from editloupe.reports.targets import TargetTable, as_csv, with_boxes
from editloupe.runs.execute import ThreadExecutor
from editloupe.runs.target_phrase import PhraseFinder
from editloupe.runs.targets import Kept, TargetArea, TargetSearch
from tests.tools.test_search import Reds

Folder = Callable[..., Path]


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


def find(root: Path, *, lmm: ScriptedLMM | None = None, detector: Detector | None = None, kept: Path | None = None,
         stop: threading.Event | None = None) -> list[TargetArea]:  # fmt: skip
    images = ImageStore()
    search = TargetSearch(
        phrases=PhraseFinder(lmm or open_backend("baseline")),
        detector=detector,
        no_detector="none here",
        asking=ThreadExecutor(2),
        looking=ThreadExecutor(2),
        images=images,
        kept=Kept(kept),
        stop=stop or threading.Event(),
    )
    return search.find(load(root, store=images, outputs=False))


def test_boxes_of_the_data_are_used_and_nobody_is_asked(folder: Folder) -> None:
    root = folder({"instruction": "Make the mug blue.", "bboxes": [[0, 0, 20, 10], [0, 0, 200, 100]], "target_name": "mug"})
    lmm, reds = ScriptedLMM([]), Reds()
    small, whole = find(root, lmm=lmm, detector=reds)
    # 20·10 of 200·100 px is 1 %; the second box is all of the image.
    assert (small.area_ratio, whole.area_ratio) == (0.01, 1.0)
    assert {small.how, whole.how} == {"boxes"} and small.phrase == "mug" and small.phrase_by == "the data"
    assert lmm.requests == [] and reds.asked == []


def test_a_detector_finds_what_the_instruction_names(folder: Folder) -> None:
    (row,) = find(folder({"instruction": "Make the Red Mug blue."}), detector=(reds := Reds(more=2)))
    assert row.box is not None and list(row.box) == [40, 30, 60, 40]
    assert (row.area_ratio, row.how, row.score, row.detections) == (0.01, "detector", 0.62, 3)
    assert reds.asked[0][0] == "red mug"
    assert row.phrase_by.startswith("rules 1")


def test_a_model_names_the_object_and_the_whole_image_is_not_looked_for(folder: Folder) -> None:
    def script(request: Request) -> str:
        return "[Result]: image" if "cinematic" in request.messages[0].text else "[Result]: red thing"

    root = folder({"instruction": "Make it cinematic."}, {"instruction": "Make it so."})
    whole, thing = find(root, lmm=ScriptedLMM(script), detector=(reds := Reds()))
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
    ("instruction", "detector", "status"),
    [
        ("Make the mug blue.", None, "no_detector"),
        ("Make the mug blue.", Reds(limit=1), "not_found"),
        ("Make the mug blue.", Breaks(ToolError("too long")), "tool_failed"),
        ("Make the mug blue.", Breaks(RuntimeError("boom")), "tool_failed"),
        ("Zzz.", Reds(), "no_phrase"),
    ],
)
def test_what_cannot_be_found_out_has_a_kind_and_no_number(
    instruction: str, detector: Detector | None, status: str, folder: Folder
) -> None:
    (row,) = find(folder({"instruction": instruction}), detector=detector)
    assert (row.status, row.area_ratio, row.box, row.score) == (status, None, None, None)
    assert row.reason
    table = TargetTable(name="a", rows=(row,))
    assert table.unknown == {status: 1} and table.known == () and table.shares.unknown == 1
    assert table.summary()["quantiles"] == {"0.25": None, "0.5": None, "0.75": None}


def test_editors_share_a_target_and_a_broken_row_is_counted(folder: Folder) -> None:
    root = folder({"instruction": "Make the mug blue."}, {"instruction": "Make the mug blue."}, {"instruction": ""})
    lines = [json.loads(line) for line in (root / "metadata.jsonl").read_text().splitlines()]
    # The same edit by another editor, and a source that is no image.
    lines.append({**lines[0], "editor": "b"})
    (root / "1.png").write_bytes(b"no image")
    (root / "metadata.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    rows = find(root, detector=Reds())
    assert [(r.item, r.status) for r in rows] == [("s0", "ok"), ("s1", "input_error"), ("s2", "input_error")]


def test_a_search_that_was_cut_off_pays_for_nothing_twice(folder: Folder, tmp_path: Path) -> None:
    root = folder({"instruction": "Make the mug blue."}, {"instruction": "Make the mug green."})
    kept = tmp_path / "areas.json.kept.jsonl"
    first = find(root, lmm=ScriptedLMM(["[Result]: mug"]), detector=Reds(), kept=kept)
    lines = kept.read_bytes().splitlines()
    assert len(lines) == 5  # an empty first one, two names, two places
    kept.write_bytes(b"\n".join(lines)[:-10])  # killed in the middle of a line
    lmm, reds = ScriptedLMM(["[Result]: mug"]), Reds()
    assert find(root, lmm=lmm, detector=reds, kept=kept) == first
    assert lmm.requests == [] and len(reds.asked) == 1
    # Another judge is asked anew.
    other = ScriptedLMM(["[Result]: cup"], name="other")
    find(root, lmm=other, detector=Reds(), kept=kept)
    assert len(other.requests) == 2


def test_a_stopped_search_says_what_it_did_not_reach(folder: Folder) -> None:
    stop = threading.Event()
    stop.set()
    (row,) = find(folder({"instruction": "Make the mug blue."}), detector=Reds(), stop=stop)
    assert (row.status, row.area_ratio) == ("not_reached", None)


def test_csv_has_a_line_a_target_with_its_box_in_px(folder: Folder) -> None:
    rows = find(folder({"instruction": "Make the mug blue."}, {"instruction": "Zzz."}), detector=Reds())
    text = as_csv([TargetTable(name="data", rows=tuple(rows))]).splitlines()
    assert text[1].startswith('data,s0,Make the mug blue.,mug,"rules 1 (baseline, not an LMM)",')
    assert ",40.0,30.0,60.0,40.0,0.01,detector,0.62,1,ok," in text[1]
    assert ",,,,,,,,no_phrase," in text[2]


def test_metadata_gets_boxes_only_where_there_were_none(folder: Folder) -> None:
    rows = find(
        folder({"instruction": "Make the mug blue."}, {"instruction": "Make it cinematic."}, {"instruction": "Zzz."}),
        detector=Reds(),
    )
    lines = [({"id": r.item, "note": "é"}, (r.source.sha256 if r.source else "", r.instruction)) for r in rows]
    text, count = with_boxes(lines, rows, detector="reds 1")  # type: ignore[arg-type]
    first, second, third = map(json.loads, text.splitlines())
    assert count == 1
    assert (first["bbox"], first["bbox_format"], first["target_name"]) == ([40, 30, 60, 40], "xyxy", "mug")
    assert first["bbox_by"]["detector"] == "reds 1" and first["note"] == "é"
    assert "bbox" not in second and "bbox" not in third
    had = [({**lines[0][0], "bbox": [1, 2, 3, 4]}, lines[0][1])]
    assert json.loads(with_boxes(had, rows, detector="reds 1")[0])["bbox"] == [1, 2, 3, 4]  # type: ignore[arg-type]


def test_a_set_of_sources_without_any_output_is_read_in_every_layout(tmp_path: Path) -> None:
    picture = Image.fromarray(np.full((64, 64, 3), 90, dtype=np.uint8))
    pairs, dle = tmp_path / "pairs", tmp_path / "dle"
    for place in (pairs / "source", dle / "Source_Images", dle / "Reference_Images"):
        place.mkdir(parents=True)
        picture.save(place / "a.png")
    (pairs / "instructions.csv").write_text("name,instruction\na,Make the mug blue.\n")
    row = {"image": "a.png", "reference_image": "a.png", "edit_operation": "Change the color of the small mug to blue."}
    (dle / "data.jsonl").write_text(json.dumps(row) + "\n")
    for root in (pairs, dle):
        assert [(r.phrase, r.status) for r in find(root)] == [("mug" if root == pairs else "small mug", "no_detector")]
