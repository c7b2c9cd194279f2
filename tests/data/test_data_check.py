"""Looking a data set through without a model."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from PIL import Image

from editloupe import Judge
from editloupe.backends.scripted import ScriptedLMM
from editloupe.data.check import DataReport, check
from editloupe.data.images import ImageStore
from editloupe.data.samples import load, load_samples
from tests.conftest import final
from tests.data.test_image_store import png


def looked_through(path: Path) -> DataReport:
    store = ImageStore()
    return check(load(path, store=store), store)


def test_every_problem_is_named_by_kind_file_and_sample(
    pair: Callable[..., dict], write: Callable[..., Path], draw: Callable[..., Path]
) -> None:
    names = ["cat", "wide", "tall", "cut", "clear", "same", "empty", "box", "gone", "none"]
    rows = [pair(name) for name in names]
    rows[6]["instruction"] = " "
    rows[7]["bbox"] = [0, 0, 500, 500]
    rows[8]["edited_file_name"] = "edited/gone-away.png"
    rows[9]["edited_file_name"] = None
    rows[0]["mask_file_name"] = "mask.png"
    rows.append({**rows[0]})
    path = write("set/metadata.jsonl", [*rows, "{"]).parent
    draw("set/mask.png", size=(20, 20))
    draw("set/edited/wide.png", 1, size=(128, 96))
    draw("set/edited/tall.png", 1, size=(48, 64))
    cut = draw("set/edited/cut.png", 1, size=(200, 200))
    cut.write_bytes(cut.read_bytes()[:5000])
    draw("set/source/cut.png", 1, size=(200, 200))
    Image.new("RGBA", (64, 48), (0, 0, 0, 10)).save(path / "edited" / "clear.png")
    (path / "edited" / "same.png").write_bytes((path / "source" / "same.png").read_bytes())
    report = looked_through(path)
    found = {(p.severity, p.kind, p.sample) for p in report.problems}
    assert found == {
        ("error", "box", "box"),
        ("error", "damaged_image", "cut"),
        ("error", "duplicate_id", "cat#line-11"),
        ("error", "missing_file", "gone"),
        ("error", "no_instruction", "empty"),
        ("error", "row", "line-12"),
        ("warning", "aspect", "tall"),
        ("warning", "image", "clear"),
        ("warning", "mask_size", "cat"),
        ("warning", "missing_output", "none"),
        ("warning", "size", "wide"),
        ("warning", "unchanged", "same"),
    }
    # The one without an output is not judged.
    assert (report.rows, report.errors, report.warnings, report.usable) == (12, 6, 6, 5)
    assert [p.severity for p in report.problems] == ["error"] * 6 + ["warning"] * 6
    assert report.problems == looked_through(path).problems
    damaged = next(p for p in report.problems if p.kind == "damaged_image")
    assert damaged.file == path / "edited" / "cut.png" and "cut off" in damaged.message
    assert json.loads(json.dumps(report.to_json()))["counts"]["box"] == 1


def test_a_file_with_too_few_pixels_is_found_by_check_and_gets_no_verdict(
    pair: Callable[..., dict], write: Callable[..., Path]
) -> None:
    path = write("set/metadata.jsonl", [pair("whole"), pair("short")]).parent
    # Whole chunks, each with the right checksum, and the lines of pixels end after ten of 48.
    (path / "edited" / "short.png").write_bytes(png(64, 48, (b"\0" + bytes(3 * 64)) * 10))
    (problem,) = looked_through(path).problems
    assert (problem.severity, problem.kind, problem.sample) == ("error", "damaged_image", "short")
    lmm = ScriptedLMM([final("Wrong Action")])
    found = Judge(lmm, criteria=("if",), mode="plain").judge_all(load_samples(path))
    assert [finding.status for (finding,) in found] == ["ok", "input_error"] and len(lmm.requests) == 1
