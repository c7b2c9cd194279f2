"""Every recipe, end to end: the same bytes again, killed and continued, half of the answers refused, what cannot begin."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.errors import ModelAbsent
from editloupe.models import opening
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from tests.build.conftest import left, lines, metadata, pictures, unwritten, written
from tests.build.toys import PX
from tests.conftest import Cli, draw_edits, refused
from tests.forks import ended


@dataclass(frozen=True, kw_only=True)
class Case:
    """A recipe on small data."""

    words: tuple[str, ...]
    """The command but for --out."""
    make: Callable[[Path], Any]
    """Draws the data into a folder."""
    file: str
    """The set's main file."""
    rows: int = 4
    refuse: tuple[str, str] = ("", "")
    """A kind of question, and the stage at which its row is left out."""
    die: int = 2
    """After so many answers or kept items it is killed."""


def photographs(folder: Path) -> None:
    """Four images with a red square each, as COCO has them."""
    pictures(folder, 4)
    square: dict[str, Any] = {"category_id": 1, "bbox": [20, 20, 24, 24]}
    large: dict[str, Any] = {"category_id": 2, "bbox": [100, 100, 150, 100]}
    images = [{"id": n, "file_name": f"{n}.png", "width": 320, "height": 240} for n in range(4)]
    objects = [(n, square) for n in range(4)] + [(0, large), (2, large)]
    annotations = [
        {**one, "id": id_, "image_id": n, "segmentation": [_outline(one["bbox"])]} for id_, (n, one) in enumerate(objects)
    ]
    names = [{"id": 1, "name": "square"}, {"id": 2, "name": "field"}]
    (folder / "all.json").write_text(json.dumps({"images": images, "annotations": annotations, "categories": names}))


def _outline(box: Any) -> list[int]:
    x, y, w, h = box
    return [x, y, x + w, y, x + w, y + h, x, y + h]


def judged(folder: Path) -> None:
    """Four edits, each with a difference of which people said whether it was asked for."""
    draw_edits(folder, 4)
    rows = [json.loads(line) for line in (folder / "metadata.jsonl").read_text().splitlines()]
    one = {"op": "ADD", "object": "square", "box": [0.1, 0.1, 0.3, 0.3], "coherent": True}
    metadata(folder, *({**row, "differences": [one]} for row in rows))


def verified(folder: Path) -> None:
    """A run in which a model looked at four edits."""
    draw_edits(folder / "edits", 4)
    judge, option = JudgeConfig.make(backend="toy/a"), {"matching": "none", "no_edit": ["lmm"]}
    config = RunConfig.make(path=folder / "edits", protocol="unicverify", judge=judge, option=option)
    drive(open_setup(config), folder / "run")


def boxed(folder: Path) -> None:
    """Four edits of images with a red square, which is boxed or named."""
    pictures(folder, 4)
    own: list[dict[str, Any]] = [{"target_name": "red square"}, {"bbox": list(PX), "target_name": "red square"}]
    edits = [{"source_file_name": f"{n}.png", "edited_file_name": f"{(n + 1) % 4}.png"} for n in range(4)]
    metadata(folder, *({**row, "id": str(n), "instruction": "x", **own[n % 2]} for n, row in enumerate(edits)))


def masked(folder: Path) -> None:
    """A photograph with two masked targets: a red square, and a blue one beside it."""
    pictures(folder, 1)
    rgb = np.array(Image.open(folder / "0.png").convert("RGB"))
    rows = []
    for name, (x, y), color in (("red square", (20, 20), None), ("blue box", (120, 140), (40, 70, 190))):
        mask = np.zeros(rgb.shape[:2], np.uint8)
        mask[y : y + 24, x : x + 24] = 255
        Image.fromarray(mask).save(folder / f"{name}.png")
        if color:
            rgb[y : y + 24, x : x + 24] = color
        rows.append({"file_name": "0.png", "id": name, "target_name": name, "mask_file_name": f"{name}.png"})
    Image.fromarray(rgb).save(folder / "0.png")
    metadata(folder, *rows)


JUDGE = ("--backend", "toy/a", "--concurrency", "1")
TRAIN = ("--set", "test_share=0", "--set", "seed=3")
CASES = {
    "dlebench": Case(
        words=("build", "dlebench", "data", "--set", "editor=drawing", *JUDGE), make=lambda folder: pictures(folder, 4),
        file="data.jsonl", refuse=("metadata", "instructed"), die=5,
    ),
    "giebench": Case(
        words=("build", "giebench", "data", "--set", "edits=1", *JUDGE), make=lambda folder: pictures(folder, 4),
        file="gie_bench.json", refuse=("edit", "written"), die=7,
    ),
    "edival": Case(
        words=("build", "edival", "data", *JUDGE), make=lambda folder: pictures(folder, 4),
        file="edival/instructions.csv", refuse=("list", "decomposed"), die=6,
    ),
    "unicedit": Case(
        words=("build", "unicedit", "data/run"), make=verified, file="imagefolder/metadata.jsonl", die=3,
    ),
    "similar": Case(
        words=("build", "differences", "data/all.json", "--set", "stage=1", *TRAIN), make=photographs, rows=3,
        file="train/sft.jsonl",
    ),
    "inpainted": Case(
        words=("build", "differences", "data/all.json", "--set", "stage=2", "--set", "least_area=0.005", *TRAIN),
        make=photographs, file="train/sft.jsonl",
    ),
    "coherence": Case(
        words=("build", "differences", "data", "--set", "stage=3", *TRAIN), make=judged, file="train/sft.jsonl",
    ),
    "masks": Case(words=("build", "masks", "data"), make=boxed, file="metadata.jsonl"),
    "probes": Case(
        words=("build", "probes", "data", "--set", "count=8", "--set", "areas=0.3,1", "--set", "twins=0"), make=masked,
        rows=8, file="metadata.jsonl", die=3,
    ),
}  # fmt: skip


def build(editloupe: Cli, case: Case, out: str = "set") -> tuple[int, Any]:
    """(exit code, what is told)."""
    code, said, told = editloupe(*case.words, "--out", out, "--format", "json")
    assert said, told
    return code, json.loads(said)


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_gives_the_same_bytes_again_and_asks_nothing_twice(
    name: str, editloupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    case.make(Path("data"))
    monkeypatch.setenv("TOY_LOG", str(tmp_path / "asked"))
    code, told = build(editloupe, case)
    assert (code, told["written"]) == (0, case.rows), told
    files, asked = written("set"), (tmp_path / "asked").read_text() if case.refuse[0] else ""
    assert case.file in files and (case.refuse[0] in asked)
    # What was written is renewed, what is no file of the set goes, and nobody is asked.
    (Path("set") / case.file).unlink()
    written_picture = next(name for name in files if name.endswith(".png"))
    stale = (Path("set") / written_picture).with_name("stale.png")
    stale.write_bytes(b"stale")
    assert build(editloupe, case) == (code, told)
    assert {n: b for n, b in written("set").items() if n != stale.relative_to("set").as_posix()} == files
    assert name == "masks" or not stale.exists()
    assert not case.refuse[0] or (tmp_path / "asked").read_text() == asked
    # Another folder has the same.
    build(editloupe, case, "other")
    assert written("other") == files


@pytest.mark.parametrize("name", CASES)
def test_a_recipe_that_is_killed_goes_on_to_the_same_bytes(
    name: str, editloupe: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]
    case.make(Path("data"))
    monkeypatch.setenv("TOY", json.dumps({"die": case.die}))
    patched = "from tests.build import toys; toys.patch()"
    code, told = ended(*case.words, "--out", "set", folder=Path.cwd(), stdout=Path(os.devnull), before=patched)
    assert code == 9, told
    assert not (Path("set") / case.file).exists() and not Path("set/funnel.json").exists()
    monkeypatch.delenv("TOY")
    assert build(editloupe, case)[0] == build(editloupe, case, "whole")[0] == 0
    assert written("set") == written("whole")


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.refuse[0]])
def test_a_role_that_refuses_half_of_its_rows_leaves_the_other_half(
    name: str, editloupe: Cli, toy: Callable[..., None]
) -> None:
    case = CASES[name]
    case.make(Path("data"))
    kind, stage = case.refuse
    toy(half=kind)
    code, told = build(editloupe, case)
    assert (code, told["written"], left(told)) == (3, 2, {stage: {"refused": 2}})
    assert [(row["stage"], row["why"]) for row in lines("set/left_out.jsonl")] == [(stage, "refused")] * 2
    # A refusal is an answer: the same command asks nothing again.
    assert build(editloupe, case)[1] == told


IMAGES = ("dlebench", "giebench", "edival")


@pytest.mark.parametrize("name", IMAGES)
def test_images_that_cannot_be_read_are_left_out_with_the_reason(name: str, editloupe: Cli) -> None:
    case = CASES[name]
    case.make(Path("data"))
    shutil.copy("data/0.png", "data/again.png")
    Path("data/broken.png").write_bytes(Path("data/0.png").read_bytes()[:400])
    code, told = build(editloupe, case)
    assert (code, told["written"]) == (3, 4)
    (row,) = lines("set/left_out.jsonl")
    assert (row["image"], row["stage"], row["why"]) == ("broken", "read", "unreadable_image")


@pytest.mark.parametrize("name", IMAGES)
def test_both_layouts_and_what_people_look_through_hold_the_same_rows(name: str, editloupe: Cli) -> None:
    case = CASES[name]
    case.make(Path("data"))
    build(editloupe, case)
    store = ImageStore()
    folders = [folder for folder in ("imagefolder", "to_review") if Path("set", folder).exists()]
    loaded = [load(Path("set", folder), store=store, outputs=False) for folder in folders]
    assert not any(one.rejected for one in loaded)
    rows = [[(sample.id, sample.content) for sample in one.samples] for one in loaded]
    assert len(rows[0]) == 4 and rows == [rows[0]] * (1 if name == "edival" else 2)
    benchmark = load(Path("set/edival" if name == "edival" else "set"), store=store, outputs=False)
    said = [
        [(one.instruction, one.edit_type, one.source.sha256) for one in each.samples] for each in (benchmark, loaded[0])
    ]
    assert said[0] == said[1] and benchmark.format == name


@pytest.mark.parametrize("name", CASES)
def test_a_folder_of_something_else_is_refused_and_left_alone(name: str, editloupe: Cli) -> None:
    case = CASES[name]
    case.make(Path("data"))
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    assert "holds other files" in refused(editloupe, *case.words, "--out", "mine")
    assert [path.name for path in Path("mine").iterdir()] == ["notes.txt"]
    Path("empty").mkdir()
    code, _, told = editloupe(*[word.replace("data", "empty") for word in case.words], "--out", "none")
    assert code == 2 and unwritten("none"), told


def test_without_weights_the_command_says_what_to_do_and_writes_nothing(
    editloupe: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def absent(name: str | None, device: str) -> Any:
        raise ModelAbsent("no weights")

    for function in ("DETECTOR", "SEGMENTER"):
        monkeypatch.setattr(opening, function, absent)
    for name, advice in {
        "dlebench": "targets need a detector, and there is none: no weights. Name one with --detector, or choose",
        "giebench": "masks need a detector, and there is none: no weights. Name one with --set detector=…, or choose --set",
        "edival": "grounding needs a detector, and there is none: no weights. Name one with --detector, or choose",
        "masks": "cannot be made: no weights",
    }.items():
        case = CASES[name]
        case.make(tmp_path / name)
        err = refused(editloupe, *[word.replace("data", name) for word in case.words], "--out", "set")
        assert advice in err
        assert unwritten("set")
