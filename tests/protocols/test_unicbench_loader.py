"""test_data.jsonl as it is downloaded, its Parquet form, UnicEdit-10M, and outputs in the official folders."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from tests.protocols.edival_files import picture, put
from tests.protocols.unicbench_files import row, rows, write

REAL = Path(__file__).parents[3] / "shared" / "data" / "benchmarks" / "unicbench" / "test_data.jsonl"


def opened(path: Path, **options: Any) -> Loaded:
    return load(path, store=ImageStore(), **{"outputs": "edited" in options, **options})


def points_of(loaded: Loaded) -> Counter[int]:
    points = (sample.extra.get("reasoning_points") for sample in loaded.samples)
    return Counter(len(found) for found in points if isinstance(found, list))


def test_each_row_becomes_a_sample_for_each_language(tmp_path: Path) -> None:
    loaded = opened(write(tmp_path / "unic", rows()))
    assert (loaded.format, len(loaded.samples), loaded.rejected) == ("unicbench", 16, ())
    first, second = loaded.samples[:2]
    key = "0" * 32
    assert (first.id, second.id) == (f"{key}.en", f"{key}.cn")
    assert first.instruction == "Replace background 0 with city lights." and second.instruction.startswith("将背景 0")
    assert first.dataset == "UnicBench" and first.edit_type == "Background Change" and first.edited is None
    columns = {"key": key, "task": "Scene Editing", "subtask": "Background Change", "resolution": [24, 16]}
    assert first.extra == {**columns, "language": "en"} and second.extra == {**columns, "language": "cn"}
    assert second.source == first.source
    assert points_of(loaded) == {2: 4}
    assert {s.extra["task"] for s in loaded.samples if "reasoning_points" in s.extra} == {"Reasoning Editing"}
    # Data in one language are loaded in that.
    english = [{name: value for name, value in row(n).items() if name != "cn"} for n in range(2)]
    loaded = opened(write(tmp_path / "english", english))
    assert [sample.id[-3:] for sample in loaded.samples] == [".en", ".en"] and loaded.rejected == ()


@pytest.mark.skipif(not REAL.is_file(), reason="the real file is not here")
def test_the_real_file_has_the_counts_of_the_paper(tmp_path: Path) -> None:
    shutil.copy(REAL, tmp_path)
    data = picture("one for all")
    for line in REAL.read_text(encoding="utf-8").splitlines():
        put(tmp_path / json.loads(line)["image_path"], data)
    loaded = opened(tmp_path)
    assert len(loaded.samples) == 2200 and loaded.rejected == () and len({s.key for s in loaded.samples}) == 2200
    for language in ("en", "cn"):
        its = [sample for sample in loaded.samples if sample.extra["language"] == language]
        subtasks = Counter(sample.edit_type for sample in its)
        assert len(its) == 1100 and len(subtasks) == 22 and set(subtasks.values()) == {50}
        tasks = Counter(sample.extra["task"] for sample in its)
        assert tasks == {"Object Editing": 350, "Attribute Editing": 250, "Scene Editing": 250, "Reasoning Editing": 250}
    assert points_of(loaded) == {2: 4, 3: 190, 4: 218, 5: 86, 6: 2}  # each row twice


@pytest.mark.parametrize(
    ("changes", "kind", "said"),
    [
        ({"key": "a/b"}, "row", "key 'key': expected text without '/', since outputs are named by it; found text 'a/b'"),
        ({"key": ".."}, "row", "found text '..'"),
        ({"key": None}, "row", "found null"),
        ({"subtask": ""}, "row", "'subtask': expected its name, found text ''"),
        ({"task": None}, "row", "'task': expected its name, found null"),
        ({"image_path": None}, "row", "column 'image_path' is empty"),
        ({"image_path": "images/gone.png"}, "missing_file", "images/gone.png: no such file"),
    ],
)
def test_a_bad_row_is_named_and_others_are_loaded(tmp_path: Path, changes: dict[str, Any], kind: str, said: str) -> None:
    root = write(tmp_path / "unic", [row(0), row(1), row(2)])
    lines = (root / "test_data.jsonl").read_text(encoding="utf-8").splitlines()
    lines[1] = json.dumps({**row(1), **changes})
    (root / "test_data.jsonl").write_text("\n".join(lines), encoding="utf-8")
    loaded = opened(root)
    assert len(loaded.samples) == 4 and {refused.kind for refused in loaded.rejected} == {kind}
    for refused in loaded.rejected:
        assert refused.message.startswith("test_data.jsonl, line 2: ") and said in refused.message
