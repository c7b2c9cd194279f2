"""test_data.jsonl as it is downloaded, its Parquet form, UnicEdit-10M, and outputs in the official folders."""

from __future__ import annotations

import json
import shutil
import tracemalloc
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from editloupe.data import embedded
from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.errors import ConfigError, DataError, SampleError
from tests.protocols.unicbench_files import edit, picture, put, row, rows, unicedit_row, write, write_parquet

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
    assert loaded.notes[0] == "8 rows in 4 subtasks, 2 in each; 2 with reasoning points"
    assert points_of(loaded) == {2: 4}
    assert {s.extra["task"] for s in loaded.samples if "reasoning_points" in s.extra} == {"Reasoning Editing"}
    # Data in one language are loaded in that.
    english = [{name: value for name, value in row(n).items() if name != "cn"} for n in range(2)]
    loaded = opened(write(tmp_path / "english", english))
    assert [sample.id[-3:] for sample in loaded.samples] == [".en", ".en"] and loaded.rejected == ()
    assert "no row has an instruction in 'cn'" in loaded.notes


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
    assert loaded.notes == ("1100 rows in 22 subtasks, 50 in each; 250 with reasoning points",)


@pytest.mark.parametrize("blank", ["_", " "])
def test_outputs_lie_in_the_official_folders(tmp_path: Path, blank: str) -> None:
    given = rows()
    root, folder = write(tmp_path / "unic", given), edit(tmp_path / "bagel", given, blank=blank)
    put(folder / "Background_Change" / "en" / "strange.png")
    put(folder / "logo.png")
    loaded = opened(root, edited={"bagel": folder})
    assert len(loaded.samples) == 16 and all(s.editor == "bagel" for s in loaded.samples)
    for sample in loaded.samples:
        path = sample.edited and sample.edited.path
        assert path is not None and path.stem == sample.extra["key"] and path.parent.name == sample.extra["language"]
        assert path.parent.parent.name == str(sample.edit_type).replace(" ", blank)
    assert "; 0 missing, 2 belong to no row (" in loaded.notes[-1]


def test_outputs_that_are_missing_are_counted_and_a_language_that_nobody_has_is_left_out(tmp_path: Path) -> None:
    given = rows()
    root = write(tmp_path / "unic", given)
    whole, english = edit(tmp_path / "a", given), edit(tmp_path / "b", given, ("en",))
    (whole / "Background_Change" / "cn" / f"{given[0]['key']}.png").unlink()
    loaded = opened(root, edited={"whole": whole, "english": english})
    missing = Counter((s.editor, s.extra["language"]) for s in loaded.samples if s.edited is None)
    assert missing == {("whole", "cn"): 1, ("english", "cn"): 8} and len(loaded.samples) == 32
    loaded = opened(root, edited={"english": english})
    assert len(loaded.samples) == 8 and {s.extra["language"] for s in loaded.samples} == {"en"}
    assert "no editor has an output in 'cn': its samples are not loaded" in loaded.notes


def test_outputs_that_could_be_two_or_that_fit_nowhere_are_refused(tmp_path: Path) -> None:
    given = [row(0), row(1)]
    root, folder = write(tmp_path / "unic", given), edit(tmp_path / "bagel", given)
    edit(folder, given[:1], ("en",), blank=" ")
    (refused,) = opened(root, edited={"bagel": folder}).rejected
    assert (refused.id, refused.kind) == (f"{given[0]['key']}.en", "no_match")
    assert "several files could be the output: Background Change/en/" in refused.message
    put(tmp_path / "out" / "Background_Change" / "en" / "strange.png")
    edit(tmp_path / "above" / "bagel", given)
    for name, said in (("out", "KEY.png"), ("above", r"one folder for each editor: --edited bagel=.*above/bagel$")):
        with pytest.raises(DataError, match=rf"no image there belongs to any row; saw .*Subtask_With_Underscores.*{said}"):
            opened(root, edited={"x": tmp_path / name})


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


def test_a_row_without_an_instruction_is_refused_in_that_language_alone(tmp_path: Path) -> None:
    without = {name: value for name, value in row(1).items() if name != "cn"}
    loaded = opened(write(tmp_path / "unic", [row(0), without, row(2, en=" ")]))
    expected = "is empty; expected what the editor was asked to do"
    assert len(loaded.samples) == 4 and {refused.id: refused.message for refused in loaded.rejected} == {
        f"{1:032x}.cn": f"test_data.jsonl, line 2: the instruction under 'cn' {expected}",
        f"{2:032x}.en": f"test_data.jsonl, line 3: the instruction under 'en' {expected}",
    }


def test_a_reasoning_row_without_usable_points_is_loaded_without_them(tmp_path: Path) -> None:
    for number, points in enumerate((None, "The lamp is lit.", [], [3], [" "])):
        given = [row(0, "Multi-object Coordination", reasoning_points=points)]
        loaded = opened(write(tmp_path / str(number), given))
        assert len(loaded.samples) == 2
        for sample in loaded.samples:
            assert "reasoning_points" not in sample.extra
            assert "reasoning_points: expected a list of texts, found " in sample.warnings[-1]
            assert sample.warnings[-1].endswith("; reasoning accuracy cannot be asked")


def test_rows_of_another_shape_are_refused(tmp_path: Path) -> None:
    for line, said in (
        ('{"name": "a"}', "no column for the source; looked for image_path; the columns are name"),
        ('{"key": "a", "task": "b", "subtask": "c", "image_path": "d"}', "no row has the key 'en' or 'cn'"),
    ):
        (tmp_path / "test_data.jsonl").write_text(f"{line}\n", encoding="utf-8")
        with pytest.raises(SampleError, match=said):
            opened(tmp_path)
    file = write_parquet(tmp_path / "other" / "train.parquet", [{"name": "a"}], images={})
    with pytest.raises(DataError, match=r"expected .*: test_data\.jsonl with its images, .*; found rows with the columns"):
        opened(file, format="unicbench")


@pytest.mark.parametrize("place", ["train.parquet", "data/train-00000-of-00001.parquet"])
def test_parquet_holds_its_images_and_every_column_in_every_row(tmp_path: Path, place: str) -> None:
    given = rows()
    images = [picture(str(n)) for n in range(len(given))]
    write_parquet(tmp_path / "hub" / place, given, images={"image": images})
    store = ImageStore()
    loaded = load(tmp_path / "hub", store=store, edited={"a": edit(tmp_path / "a", given)})
    assert loaded.format == "unicbench" and len(loaded.samples) == 16 and loaded.rejected == ()
    assert [store.data(sample.source) for sample in loaded.samples[::2]] == images and points_of(loaded) == {2: 4}
    assert all("image" not in sample.extra and sample.warnings == () for sample in loaded.samples)
    of_file = opened(write(tmp_path / "unic", given), edited={"a": tmp_path / "a"})
    assert [(s.key, s.turns, s.extra) for s in loaded.samples] == [(s.key, s.turns, s.extra) for s in of_file.samples]
    # A row without an image is refused.
    broken = [images[0], None, b"no image", *images[3:]]
    loaded = opened(write_parquet(tmp_path / "broken.parquet", given, images={"image": broken}))
    first, second = (refused.message for refused in loaded.rejected[::2])
    assert first == "broken.parquet, line 2: column 'image' is empty; expected the image before the edit"
    assert "row 3, column 'image': not an image that can be read" in second and len(loaded.samples) == 12


def test_images_in_parquet_are_read_again_and_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "_ROWS", 4)
    # 40 images of 300 kB are 12 MB. Two blocks of 4 rows are 2.4 MB. What follows a picture is no part of it.
    images = [picture(str(n)) + bytes(300_000) for n in range(40)]
    file = write_parquet(tmp_path / "train.parquet", [row(n) for n in range(40)], images={"image": images})
    store = ImageStore(tmp_path / "run" / "blobs", writes=False)
    # Modules that a first call imports are not counted.
    load(file, store=ImageStore(), outputs=False)
    tracemalloc.start()
    loaded = load(file, store=store, outputs=False)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(loaded.samples) == 80 and held < 5_000_000 and not (tmp_path / "run").exists()
    assert [store.data(sample.source) for sample in loaded.samples[::2]] == images


def test_unicedit_has_source_and_edit_in_the_row_and_keys_that_repeat(tmp_path: Path) -> None:
    given = [unicedit_row(0), unicedit_row(0, prompt_en="Remove it."), unicedit_row(1), unicedit_row(2, prompt_en=None)]
    source, edits = picture("s"), [picture(str(n)) for n in range(4)]
    for n in (0, 1):
        part, images = slice(2 * n, 2 * n + 2), {"src_image": [source] * 2, "edit_image": edits[2 * n : 2 * n + 2]}
        write_parquet(tmp_path / "data" / f"train-{n}.parquet", given[part], images=images)
    store = ImageStore()
    loaded = load(tmp_path, store=store)
    assert len(loaded.samples) == 3
    for sample, edited, own in zip(loaded.samples, edits[:3], given[:3], strict=True):
        assert sample.edited is not None and sample.id == f"{own['key']}-{sample.edited.sha256[:12]}"
        assert store.data(sample.edited) == edited and store.data(sample.source) == source
        assert sample.instruction == own["prompt_en"] and sample.dataset == "UnicEdit-10M"
        columns = {"task": "Object Editing", "subtask": "Subject Removal", "language": "en"}
        assert sample.extra == {"key": own["key"], **columns, "prompt_cn": own["prompt_cn"]}
    (refused,) = loaded.rejected
    assert refused.line == 4 and "the instruction under 'prompt_en' is empty" in refused.message
    # A shard that is loaded alone gives the same ids.
    alone = load(tmp_path / "data" / "train-0.parquet", store=ImageStore())
    assert [sample.id for sample in alone.samples] == [sample.id for sample in loaded.samples[:2]]
    with pytest.raises(ConfigError, match="UnicEdit-10M has its edits in its rows; leave --edited out"):
        load(tmp_path, store=store, edited={"a": tmp_path})
