"""`editloupe build unicedit` as a user types it: from edits to triplets, with nothing lost on the way."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars
import pytest
from PIL import Image

from editloupe.build import unicedit
from editloupe.models import aesthetic, opening
from editloupe.runs.store import RunStore
from tests.build.conftest import lines, unwritten
from tests.build.toys import Finder
from tests.conftest import Cli, pngs, refused


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


def build(editloupe: Cli, path: Path | str, *words: str, out: str = "set") -> tuple[int, dict[str, Any]]:
    """(exit code, funnel) of a build from a run of the toy verifier."""
    judge = ("judge", path, "--protocol", "unicverify", "--backend", "toy/a", "--set", "matching=none")
    code, _, told = editloupe(*judge, "--set", "no_edit=lmm", "--out", "verified")
    assert code in (0, 3), told
    return triplets(editloupe, *words, out=out)


def triplets(editloupe: Cli, *words: str, out: str = "set") -> tuple[int, dict[str, Any]]:
    """(exit code, funnel) of a build from that run."""
    code, said, told = editloupe("build", "unicedit", "verified", "--out", out, "--format", "json", *words)
    assert said, told
    return code, json.loads(said)


def table(out: Path | str = "set") -> polars.DataFrame:
    return polars.concat([polars.read_parquet(file) for file in sorted(Path(out).glob("parquet/*.parquet"))])


def left_out(out: Path | str = "set") -> list[dict[str, Any]]:
    return lines(Path(out) / "left_out.jsonl")


def test_every_edit_is_written_or_left_out_with_its_reason(editloupe: Cli, tmp_path: Path) -> None:
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
    assert (code, funnel["read"], funnel["written"], funnel["dropped"], funnel["not_judged"]) == (0, 7, 2, 2, 3)
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


def test_a_row_has_unicedits_columns_the_very_bytes_and_a_finding_to_look_up(editloupe: Cli, tmp_path: Path) -> None:
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
    store = RunStore.read(Path("verified"))
    finding = store.findings[row["lineage"]["task_id"], row["lineage"]["judge_id"], row["lineage"]["repeat"]]
    assert (finding.metric, finding.sample_id) == ("verification", row["lineage"]["sample"])
    assert row["lineage"]["run"] == store.identity
    assert editloupe("verify", "verified")[0] == 0


def test_parquet_files_have_so_many_rows(editloupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edits = draw(tmp_path / "edits", [f"Paint it {n}" for n in range(4)])
    assert build(editloupe, edits)[0] == 0 and len(list(Path("set/parquet").glob("*.parquet"))) == 1
    monkeypatch.setattr(unicedit, "ROWS", 3)
    code, funnel = triplets(editloupe, out="other")
    assert (code, funnel["written"], table("other").height) == (0, 4, 4)
    assert len(list(Path("other/parquet").glob("*.parquet"))) == 2
    assert Path("set/imagefolder/metadata.jsonl").read_bytes() == Path("other/imagefolder/metadata.jsonl").read_bytes()


def test_a_quality_filter_leaves_out_what_does_not_please_and_crowds(
    editloupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # By the encoder's vector, the mean color, an image pleases as it is red; the detector sees a person in each.
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
    code, _ = triplets(editloupe, "--set", "most_persons=0", out="crowds")
    assert code == 1 and {one["why"] for one in left_out("crowds")} == {"too_many_persons"}
    finder.broken = "person"
    code, funnel = triplets(editloupe, "--set", "most_persons=0", out="broken")
    assert (code, funnel["not_judged"], funnel["dropped"]) == (1, 2, 0)
    monkeypatch.undo()
    err = refused(editloupe, "build", "unicedit", "verified", "--out", "none", "--set", "least_aesthetic=5")
    assert "needs a file with an aesthetic head; name one by --set aesthetic=…" in err
    assert unwritten("none")


class Red:
    """An encoder whose vector is the image's mean color."""

    name = version = "red"

    def __call__(self, images: Any, patches: Any) -> list[Any]:
        return [image.mean((0, 1)) for image in images]


class Head:
    """A head that reads the first number."""

    name = version = "head"

    def __call__(self, vector: Any) -> float:
        return float(vector[0])


def test_what_cannot_begin_says_so_and_makes_no_folder(editloupe: Cli, tmp_path: Path) -> None:
    draw(tmp_path / "edits", ["Paint it red"])
    build(editloupe, "edits")
    words = ("judge", "edits", "--protocol", "measures", "--set", "measures=mse", "--out", "measured")
    assert editloupe(*words)[0] == 0
    for words, said in (
        (("nowhere",), "nowhere is no run folder"),
        (("edits",), "edits is no run folder"),
        (("measured",), "is a run of the protocol 'measures'; expected one of 'unicverify'"),
        (("verified", "--backend", "toy/a"), "unicedit asks no model"),
        (("verified", "--set", "most_persons=-1"), "--set most_persons"),
        ((), "PATH is missing"),
    ):
        found, _, told = editloupe("build", "unicedit", *words, "--out", "none")
        assert found == 2 and said in " ".join(told.split()), told
        assert unwritten("none")
