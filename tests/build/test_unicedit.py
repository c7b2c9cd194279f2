"""`editloupe build unicedit` as a user types it: from edits to triplets, with nothing lost on the way."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest
from PIL import Image

from editloupe.build import unicedit
from editloupe.models import aesthetic, opening
from editloupe.runs.store import RunStore
from tests.build.conftest import lines
from tests.build.toys import Finder
from tests.conftest import pngs

Run = Callable[..., tuple[int, str, str]]
REAL = Path(__file__).parents[3] / "shared" / "data" / "real-edits"

VERIFY = ("--protocol", "unicverify", "--set", "matching=none", "--backend", "toy/a")


def draw(folder: Path, instructions: list[str], **columns: list[Any]) -> Path:
    """An ImageFolder of edits with these instructions; `columns` hold a value a row, of which None is left out."""
    (folder / "images").mkdir(parents=True)
    rows = []
    for number, instruction in enumerate(instructions):
        for role, data in zip(("source", "edited"), pngs(number, spots=1), strict=True):
            (folder / "images" / f"{number}-{role}.png").write_bytes(data)
        row = {
            "id": f"s{number}",
            "source_file_name": f"images/{number}-source.png",
            "edited_file_name": f"images/{number}-edited.png",
            "instruction": instruction,
            "edit_type": ("Color Change", "Object Removal")[number % 2],
        }
        row |= {name: values[number] for name, values in columns.items() if values[number] is not None}
        rows.append(json.dumps(row) + "\n")
    (folder / "metadata.jsonl").write_text("".join(rows), encoding="utf-8")
    return folder


def build(editloupe: Run, path: Path | str, *words: str, out: str = "set") -> tuple[int, dict[str, Any]]:
    """(exit code, funnel) of a build by the toy verifier."""
    code, said, told = editloupe("build", "unicedit", path, "--out", out, "--backend", "toy/a", "--format", "json", *words)
    assert said, told
    return code, json.loads(said)


def table(out: Path | str = "set") -> polars.DataFrame:
    return polars.concat([polars.read_parquet(file) for file in sorted(Path(out).glob("parquet/*.parquet"))])


def left_out(out: Path | str = "set") -> list[dict[str, Any]]:
    return lines(Path(out) / "left_out.jsonl")


def test_every_edit_is_written_or_left_out_with_its_reason(editloupe: Run, tmp_path: Path) -> None:
    edits = draw(
        tmp_path / "edits",
        ["Paint it red", "none", "mumble", "blank", "Paint it blue", "no output", "no source"],
        edited_file_name=[None] * 5 + ["images/gone.png", None],
        source_file_name=[None] * 6 + ["images/gone.png"],
    )
    rows = lines(edits / "metadata.jsonl")
    rows[5]["edited_file_name"] = None
    (edits / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, funnel = build(editloupe, edits)
    # Two of seven are right; the verifier mumbles at one, and two have an image missing.
    assert code == 3
    assert (funnel["read"], funnel["written"], funnel["dropped"], funnel["not_judged"]) == (7, 2, 2, 3)
    assert [(s["stage"], s["in"], s["out"], s["left_out"]) for s in funnel["stages"]] == [
        ("judged", 7, 4, {"input_error": 1, "unparsed": 1, "missing_output": 1}),
        ("changed", 4, 3, {"no_edit": 1}),
        ("restated", 3, 2, {"no_instruction": 1}),
        ("kept", 2, 2, {}),
        ("quality", 2, 2, {}),
        ("distinct", 2, 2, {}),
    ]
    assert json.loads(Path("set/funnel.json").read_text()) == {k: v for k, v in funnel.items() if k != "folder"}
    assert {one["key"]: one["why"] for one in left_out()} == {
        "s1": "no_edit", "s2": "unparsed", "s3": "no_instruction", "s5": "missing_output", "s6": "input_error",
    }  # fmt: skip
    assert all(one["detail"] for one in left_out() if one["stage"] == "judged")


def test_a_row_has_unicedits_columns_the_very_bytes_and_a_finding_to_look_up(editloupe: Run, tmp_path: Path) -> None:
    edits = draw(
        tmp_path / "edits", ["Paint it red", "none"], task=["Attribute Editing", None], subtask=["Color Alteration", None]
    )
    assert build(editloupe, edits)[0] == 0
    frame = table()
    assert frame.columns[:7] == ["key", "edit_task", "edit_subtask", "src_image", "edit_image", "prompt_en", "prompt_cn"]
    (row,) = frame.rows(named=True)
    assert (row["key"], row["edit_task"], row["edit_subtask"]) == ("s0", "Attribute Editing", "Color Alteration")
    assert (row["prompt_en"], row["prompt_cn"]) == ("Paint it red indeed", None)
    assert row["original_instruction"] == "Paint it red"
    for column, role in (("src_image", "source"), ("edit_image", "edited")):
        assert row[column]["bytes"] == (edits / "images" / f"0-{role}.png").read_bytes()
        assert row[column]["path"].endswith(".png")
    store = RunStore.read(Path("set/run"))
    finding = store.findings[row["lineage"]["task_id"], row["lineage"]["judge_id"], row["lineage"]["repeat"]]
    assert (finding.metric, finding.sample_id) == ("verification", row["lineage"]["sample"])
    assert row["lineage"]["run"] == store.identity
    assert editloupe("verify", "set/run")[0] == 0


def test_the_imagefolder_is_data_of_editloupe_again(editloupe: Run, tmp_path: Path) -> None:
    assert build(editloupe, draw(tmp_path / "edits", ["Paint it red", "none", "Remove it"]))[0] == 0
    code, said, told = editloupe("check", "set/imagefolder", "--format", "json")
    assert code == 0, said + told
    rows = lines(Path("set/imagefolder/metadata.jsonl"))
    assert [row["id"] for row in rows] == ["s0", "s2"]
    assert [row["instruction"] for row in rows] == ["Paint it red indeed", "Remove it indeed"]
    assert all(row["lineage"]["task_id"] and row["original_instruction"] for row in rows)
    assert len(list(Path("set/imagefolder/images").iterdir())) == 4


def test_a_chinese_instruction_goes_to_its_own_column(editloupe: Run, tmp_path: Path) -> None:
    edits = draw(
        tmp_path / "edits", ["把它涂成红色", "Paint it red", "变蓝"], language=["cn", "en", None], lang=["", "", "zh"]
    )
    build(editloupe, edits)
    rows = table().select("prompt_en", "prompt_cn").rows()
    assert rows == [(None, "把它涂成红色 indeed"), ("Paint it red indeed", None), (None, "变蓝 indeed")]


def test_keys_become_unique_and_a_triplet_that_occurs_twice_is_written_once(editloupe: Run, tmp_path: Path) -> None:
    # Rows 1 and 3 have row 0's key. SetRow 3 has row 0's images too, in the words of another editor's order.
    words = ["Paint it red", "Paint it blue", "Paint it green", "PAINT  it red by force", "Paint it grey"]
    edits = draw(tmp_path / "edits", words, key=["a/b", "a/b", "a/b-2", "a/b", None])
    rows = lines(edits / "metadata.jsonl")
    rows[3] |= {f"{role}_file_name": rows[0][f"{role}_file_name"] for role in ("source", "edited")}
    (edits / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, funnel = build(editloupe, edits)
    assert code == 0
    assert table()["key"].to_list() == ["a/b", "a/b-3", "a/b-2", "s4"]
    assert (funnel["written"], funnel["dropped"], funnel["renamed_keys"]) == (4, 1, 1)
    assert [(one["why"], one["detail"]) for one in left_out()] == [("duplicate", "the same as 'a/b'")]


def test_a_parquet_file_ends_before_memory_does_and_a_stop_between_two_goes_on(
    editloupe: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = draw(tmp_path / "edits", [f"Paint it {n}" for n in range(4)])
    assert build(editloupe, edits)[0] == 0 and len(list(Path("set/parquet").glob("*.parquet"))) == 1
    pair = sum((edits / "images" / f"0-{role}.png").stat().st_size for role in ("source", "edited"))
    monkeypatch.setattr(unicedit, "ROWS", 2)
    curated, out, stops = unicedit.curate(RunStore.read(Path("set/run"))), tmp_path / "other", iter([False, True])
    assert unicedit.write(curated, out, run="run", stopped=lambda: next(stops)) is None
    assert len(list(out.glob("parquet/*.parquet"))) == 1 and not (out / "funnel.json").exists()
    (out / "parquet" / ".part-0123").write_bytes(b"half a file")
    funnel = unicedit.write(curated, out, run="run")
    assert funnel is not None and funnel["written"] == table(out).height == 4 and not list(out.rglob(".part-*"))
    assert Path("set/imagefolder/metadata.jsonl").read_bytes() == (out / "imagefolder/metadata.jsonl").read_bytes()
    monkeypatch.setattr(unicedit, "_BYTES", int(1.5 * pair))
    unicedit.write(curated, out, run="run")
    assert [polars.read_parquet(p).height for p in sorted(out.glob("parquet/*.parquet"))] == [1, 1, 1, 1]
    # In fewer files again: the others go.
    monkeypatch.setattr(unicedit, "ROWS", 4)
    monkeypatch.setattr(unicedit, "_BYTES", 9 * pair)
    unicedit.write(curated, out, run="run")
    assert table(out).height == 4 and len(list(out.glob("parquet/*.parquet"))) == 1


def test_a_full_disk_is_said_and_the_same_command_goes_on(
    editloupe: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    edits = draw(tmp_path / "edits", ["Paint it red", "Paint it blue"])
    assert editloupe("judge", edits, *VERIFY, "--out", "v")[0] == 0
    # Images are copied where the disk takes no link.
    monkeypatch.setattr(os, "link", lambda *args, **kwargs: (_ for _ in ()).throw(OSError("no links")))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, limits[1]))
    try:
        code, _, told = editloupe("build", "unicedit", "v", "--out", "set")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert code == 1 and "cannot be written" in told
    # The oldest polars does not pass on what the disk said.
    assert "too large" in told or "transport error" in told
    assert not Path("set/funnel.json").exists() and not list(Path("set").rglob(".part-*"))
    assert editloupe("build", "unicedit", "v", "--out", "set")[0] == 0
    assert json.loads(Path("set/funnel.json").read_text())["written"] == 2


def test_what_retry_mends_joins_the_set(editloupe: Run, tmp_path: Path, toy: Any):
    edits = draw(tmp_path / "edits", ["Paint it red", "mumble"])
    assert build(editloupe, edits)[0] == 3
    toy(speaks=True)
    assert editloupe("judge", "set/run", "--retry", "unparsed", "--trust")[0] == 0
    code, funnel = build(editloupe, edits)
    assert (code, funnel["written"]) == (0, 2)


def test_a_run_of_the_verifier_is_taken_as_it_stands(editloupe: Run, tmp_path: Path) -> None:
    edits = draw(tmp_path / "edits", ["Paint it red", "none", "mumble"])
    assert editloupe("judge", edits, *VERIFY, "--out", "runs/v")[0] == 3
    # The pictures are the run's own: the data may be gone.
    shutil.rmtree(edits)
    before = (Path("runs/v/findings.jsonl")).read_bytes()
    code, said, told = editloupe("build", "unicedit", "runs/v", "--out", "set")
    assert code == 0, told
    assert "1 triplet of 3 edits; 1 dropped, 1 not judged" in said and "1 unparsed" in said
    assert table()["key"].to_list() == ["s0"] and not Path("set/run").exists()
    assert Path("runs/v/findings.jsonl").read_bytes() == before
    code, _, told = editloupe("build", "unicedit", "runs/v", "--out", "other", "--backend", "toy/a")
    assert code == 2 and "taken as they stand, so leave out backend" in told
    for picture in Path("runs/v/blobs").rglob("*.png"):
        picture.unlink()
    code, said, _ = editloupe("build", "unicedit", "runs/v", "--out", "other")
    assert code == 1 and "1 no image" in said


def test_a_run_of_another_protocol_is_data(editloupe: Run, tmp_path: Path) -> None:
    edits = draw(tmp_path / "edits", ["Paint it red", "none"])
    assert editloupe("judge", edits, "--mode", "plain", "--out", "runs/first")[0] == 3
    code, funnel = build(editloupe, "runs/first")
    assert (code, funnel["read"], funnel["written"]) == (0, 2, 1)


def test_a_quality_filter_leaves_out_what_does_not_please_and_crowds(
    editloupe: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By the encoder's vector, the mean colour, an image pleases as it is red; the detector sees a person in each.
    finder = Finder()
    monkeypatch.setattr(opening, "CLIP", lambda name, device: Red())
    monkeypatch.setattr(opening, "DETECTOR", lambda name, device: finder)
    monkeypatch.setattr(aesthetic, "open_aesthetic", lambda name, device: Head())
    edits = draw(tmp_path / "edits", ["Paint it red", "Paint it blue"])
    Image.new("RGB", (320, 240), (200, 0, 0)).save(edits / "images" / "0-edited.png")
    Image.new("RGB", (320, 240), (100, 0, 0)).save(edits / "images" / "1-edited.png")
    code, funnel = build(editloupe, edits, "--set", "least_aesthetic=150", "--set", "most_persons=1")
    assert (code, funnel["written"], funnel["dropped"]) == (0, 1, 1) and finder.asked == ["person"]
    assert [(one["key"], one["why"], one["detail"]) for one in left_out()] == [
        ("s1", "low_aesthetic", "100; expected 150 at least")
    ]
    # Other bounds on the same run; and a failure is no verdict.
    code, _ = build(editloupe, edits, out="v")
    words = ("build", "unicedit", "v/run", "--set", "most_persons=0", "--format", "json")
    code, said, _ = editloupe(*words, "--out", "crowds")
    assert code == 1 and {one["why"] for one in left_out("crowds")} == {"too_many_persons"}
    finder.broken = "person"
    code, said, _ = editloupe(*words, "--out", "broken")
    assert (code, json.loads(said)["not_judged"], json.loads(said)["dropped"]) == (1, 2, 0)
    monkeypatch.undo()
    code, _, told = editloupe("build", "unicedit", "v/run", "--out", "none", "--set", "least_aesthetic=5")
    assert code == 2 and "needs a file with an aesthetic head; name one by --set aesthetic=…" in " ".join(told.split())
    assert not Path("none").exists()


class Red:
    """An encoder whose vector is the image's mean colour."""

    name = version = "red"

    def __call__(self, images: Any, patches: Any) -> list[Any]:
        return [image.mean((0, 1)) for image in images]


class Head:
    """A head that reads the first number."""

    name = version = "head"

    def __call__(self, vector: Any) -> float:
        return float(vector[0])


def test_rules_may_settle_what_nobody_changed(editloupe: Run, tmp_path: Path) -> None:
    edits = draw(tmp_path / "edits", ["Paint it red", "Paint it blue"])
    shutil.copy(edits / "images" / "1-source.png", edits / "images" / "1-edited.png")
    code, funnel = build(editloupe, edits, "--set", "rules=first")
    assert (code, funnel["written"], funnel["dropped"]) == (0, 1, 1)
    (one,) = left_out()
    assert one["why"] == "no_edit" and one["lineage"]["task_id"]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["nowhere", "--backend", "toy/a"], 2, "nowhere"),
        (["edits"], 2, "verify"),
        (["edits", "--backend", "openai/gpt-4.1"], 2, "OPENAI_API_KEY"),
        (["edits", "--backend", "toy/a", "--backend", "toy/b"], 2, "takes one judge"),
        ([], 2, "PATH is missing"),
    ],
)
def test_what_cannot_begin_says_so_and_makes_no_folder(
    words: list[str], code: int, said: str, editloupe: Run, tmp_path: Path
) -> None:
    draw(tmp_path / "edits", ["Paint it red"])
    found, _, told = editloupe("build", "unicedit", *words, "--out", "set")
    assert found == code and said in told, told
    assert not Path("set").exists()
    assert build(editloupe, "edits")[0] == 0


def loaded(out: Path) -> tuple[Any, Any]:
    """Both layouts as `datasets` reads them."""
    import datasets

    cache = str(out.parent / "cache")
    parquet = datasets.load_dataset(str(out / "parquet"), split="train", cache_dir=cache)
    folder = datasets.load_dataset("imagefolder", data_dir=str(out / "imagefolder"), split="train", cache_dir=cache)
    return parquet, folder


needs_datasets = pytest.mark.skipif(importlib.util.find_spec("datasets") is None, reason="needs datasets (extra `train`)")


@needs_datasets
@pytest.mark.filterwarnings("ignore")
def test_datasets_shows_the_images_of_both_layouts(editloupe: Run, tmp_path: Path) -> None:
    words = ["Paint it red", "none", "Paint it blue"]
    edits = draw(tmp_path / "edits", words)
    rows = lines(edits / "metadata.jsonl")
    rows[2]["source_file_name"] = rows[0]["source_file_name"]  # one source, two edits
    (edits / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    build(editloupe, edits)
    parquet, folder = loaded(tmp_path / "set")
    assert len(parquet) == len(folder) == 2
    assert parquet[1]["src_image"].size == folder[1]["source"].size == (320, 240)
    edited = Image.open(edits / "images" / "2-edited.png").convert("RGB").tobytes()
    assert parquet[1]["edit_image"].convert("RGB").tobytes() == folder[1]["edited"].convert("RGB").tobytes() == edited
    assert parquet[1]["prompt_en"] == folder[1]["instruction"] == "Paint it blue indeed"
    assert parquet[1]["lineage"] == folder[1]["lineage"]


@pytest.mark.slow
@pytest.mark.skipif(not REAL.is_dir(), reason="the real edits are not here (../shared/data/real-edits)")
@pytest.mark.filterwarnings("ignore")
def test_the_real_pairs_pass_with_nothing_lost(editloupe: Run, tmp_path: Path) -> None:
    code, funnel = build(editloupe, REAL)
    rows = lines(REAL / "metadata.jsonl")
    assert (code, funnel["read"], len(rows)) == (0, 83, 83)
    assert funnel["written"] + funnel["dropped"] + funnel["not_judged"] == 83
    frame, gone = table(), left_out()
    assert frame.height == funnel["written"] and len(gone) == 83 - frame.height
    assert {x["sample"] for x in frame["lineage"]} | {x["lineage"]["sample"] for x in gone} == {row["id"] for row in rows}
    findings = RunStore.read(Path("set/run")).findings
    assert all((x["task_id"], x["judge_id"], x["repeat"]) in findings for x in frame["lineage"])
    digests = {row["id"]: hashlib.sha256((REAL / row["edited_file_name"]).read_bytes()).hexdigest() for row in rows}
    for row in frame.iter_rows(named=True):
        assert hashlib.sha256(row["edit_image"]["bytes"]).hexdigest() == digests[row["lineage"]["sample"]]
        Image.open(io.BytesIO(row["src_image"]["bytes"])).verify()
    if importlib.util.find_spec("datasets") is not None:
        parquet, folder = loaded(tmp_path / "set")
        assert len(parquet) == len(folder) == funnel["written"]
        assert [one["src_image"].size for one in parquet] == [one["source"].size for one in folder]
