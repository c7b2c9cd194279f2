"""EdiVal from images to tables, a command a step: chains are built, edited by drawing, judged, and reported."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from PIL import Image, ImageDraw

from editloupe import Run
from editloupe.protocols.edival.instructions import Edit, parse_edit

Program = Callable[..., tuple[int, str, str]]
EXAMPLES = Path(__file__).parents[2] / "examples" / "edits"
REAL = Path(__file__).parents[3] / "shared" / "data" / "real-edits" / "source"

OBJECTS = [
    {"object": "mug", "color": "red", "material": None, "text": None, "count": 1, "foreground": True},
    {"object": "table", "color": None, "material": "wooden", "text": None, "count": 1, "foreground": False},
    {"object": "cat", "color": None, "material": None, "text": None, "count": 1, "foreground": True},
]
IMAGES = [
    pytest.param(EXAMPLES, id="examples"),
    pytest.param(
        REAL,
        id="photographs",
        marks=[
            pytest.mark.skipif(not REAL.is_dir(), reason="the photographs are not here (../shared/data/real-edits)"),
            pytest.mark.slow,
        ],
    ),
]


def said(path: Path, answer: str, times: int = 1) -> str:
    """A backend that gives one answer, and again if it is reminded."""
    reply = f"<Start Thinking>.</Start Thinking><Start Final Answer>{answer}</Start Final Answer>"
    path.write_text(f"{json.dumps(reply)}\n" * times, encoding="utf-8")
    return f"scripted/{path}"


@pytest.fixture(params=IMAGES)
def chains(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editloupe: Program) -> Path:
    """Two images or more with three edits each, as `build edival` writes them: those whose answers can be used."""
    monkeypatch.chdir(tmp_path)
    code, out, err = editloupe(
        "build", "edival", request.param, "--limit", "40", "--turns", "3", "--seed", "43", "--grounding", "none",
        "--role", f"decompose={said(tmp_path / 'objects.jsonl', json.dumps({'objects': OBJECTS}))}",
        "--role", f"instruct={said(tmp_path / 'words.jsonl', 'spoon', 3)}", "--fail-on-error", "1", "--out", "set",
    )  # fmt: skip
    assert code == 0, out + err
    return tmp_path / "set"


def rows_of(chains: Path) -> list[dict[str, Any]]:
    text = (chains / "imagefolder" / "metadata.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def edited(chains: Path, row: dict[str, Any]) -> list[Image.Image]:
    """The base image, then what a simple editor makes of it: a block more in each turn."""
    images = [Image.open(chains / "imagefolder" / row["source_file_name"]).convert("RGB")]
    for turn in (1, 2, 3):
        image = images[-1].copy()
        (width, height), left = image.size, image.width * turn // 5
        ImageDraw.Draw(image).rectangle((left, height // 8, left + width // 8, height // 3), fill=(40 * turn, 90, 200))
        images.append(image)
    return images


def verdict(edit: Edit, names: list[str]) -> int:
    """What the rules say where every object stays in its place, in one row from left to right, and a model says yes."""
    if edit.edit_type in ("color_alter", "material_alter", "background_change"):
        return 1
    if edit.edit_type in ("subject_add", "position_change"):
        if not edit.reference:
            return 1
        new, beside = names.index(edit.new or edit.target), names.index(edit.reference)
        return int({"left": new < beside, "right": new > beside}.get(edit.position, False))
    # What was to go is still seen, one is not three, and "yes" is not the text that was asked for.
    return 0


def values(run: str, metric: str) -> dict[tuple[str, int], float | str]:
    rows = Run(run).frame().to_dicts()
    return {(r["sample"], r["turn"]): r["missing"] or r["value"] for r in rows if r["metric"] == metric}


def test_a_chain_is_judged_with_boxes_from_the_data(chains: Path, editloupe: Program) -> None:
    rows, outputs = rows_of(chains), Path("outputs")
    outputs.mkdir()
    for row in rows:
        images = edited(chains, row)
        for turn in (1, 2, 3):
            # The last output of the second image is missing.
            if (row["id"], turn) != (rows[1]["id"], 3):
                images[turn].save(outputs / f"{row['id']}_turn_{turn}.png")
        width, height = images[0].size
        names = list(dict.fromkeys(name for pool in row["all_objects"] for name in pool))
        boxes = {name: [[n * width / 9, height / 2, (n + 1) * width / 9, height]] for n, name in enumerate(names)}
        # Nothing that an edit brings is there before its turn, and nothing ever goes.
        there = [row["unchanged_objects"][0] + row["available_objects"][0], *row["all_objects"]]
        row["boxes"] = [
            {name: box if name in pool or name.endswith(("mug", "table", "cat")) else [] for name, box in boxes.items()}
            for pool in there
        ]
    metadata = "".join(f"{json.dumps(row)}\n" for row in rows)
    (chains / "imagefolder" / "metadata.jsonl").write_text(metadata, encoding="utf-8")
    code, out, err = editloupe(
        "judge", chains / "imagefolder", "--edited", f"marker={outputs}", "--protocol", "edival", "--option", "cc=l1",
        "--backend", said(Path("yes.jsonl"), "yes"), "--fail-on-error", "1", "--out", "run",
    )  # fmt: skip
    assert code == 0, out + err
    follows, success = values("run", "instruction_following"), values("run", "image_success")
    second = rows[1]["id"]
    assert follows[second, 3] == success[second, 3] == "missing_output"
    for row in rows:
        names = list(dict.fromkeys(name for pool in row["all_objects"] for name in pool))
        due = [verdict(parse_edit(*edit), names) for edit in zip(row["task_type"], row["format_instructions"], strict=True)]
        if row["id"] == second:
            due[2] = "missing_output"
        assert [follows[row["id"], turn] for turn in (1, 2, 3)] == due, row["format_instructions"]
        settled = [next((one for one in due[:turn] if one != 1), 1) for turn in (1, 2, 3)]
        lost = ["missing_output" if "missing_output" in due[:turn] else one for turn, one in enumerate(settled, start=1)]
        assert [success[row["id"], turn] for turn in (1, 2, 3)] == lost
    for share in values("run", "object_l1").values():
        assert share == "missing_output" or share == "not_defined" or 0.5 < float(share) <= 1
    for command in (("report", "run"), ("show", "run"), ("verify", "run"), ("replay", "run"), ("check", "run")):
        code, out, err = editloupe(*command)
        assert code == 0, (command, out, err)
        if command[0] == "report":
            assert "Task rate by edit type, multi-turn" in out and "Consistency, multi-turn" in out
    code, out, err = editloupe("export", "run", "--html", "pages")
    assert code == 0, err
    pages = [page.read_text(encoding="utf-8") for page in Path("pages/samples").glob("*.html")]
    assert len(pages) == len(rows) and all('class="strip"' in page and 'class="mark found"' in page for page in pages)


@pytest.mark.skipif(find_spec("torch") is None or find_spec("transformers") is None, reason="torch is not installed")
def test_a_chain_is_judged_with_a_tiny_random_detector_and_encoder(
    chains: Path, tmp_path: Path, editloupe: Program
) -> None:
    from tests.models.tiny_detectors import grounding_dino_folder
    from tests.models.tiny_encoders import encoder_folder

    outputs = Path("outputs/multipass")
    outputs.mkdir(parents=True)
    for row in rows_of(chains):
        for turn, image in enumerate(edited(chains, row)[1:], start=1):
            image.save(outputs / f"{row['id']}_input_raw_turn_{turn}.png")
    code, out, err = editloupe(
        "judge", chains / "edival", "--layout", "edival", "--edited", "marker=outputs", "--protocol", "edival",
        "--detector", grounding_dino_folder(tmp_path / "detector"), "--dino", encoder_folder(tmp_path / "dino", "dinov3"),
        "--backend", said(Path("yes.jsonl"), "yes"), "--fail-on-error", "1", "--out", "run",
    )  # fmt: skip
    assert code == 0, out + err
    follows = values("run", "instruction_following")
    # What a random detector sees is nonsense; that every edit has a verdict or a reason is not.
    assert len(follows) == 3 * len(rows_of(chains)) and set(follows.values()) <= {0, 1, "not_defined"}
    backgrounds = values("run", "background_consistency")
    assert all(share == "not_defined" or 0 <= float(share) <= 1 for share in backgrounds.values())
    code, out, err = editloupe("report", "run")
    assert code == 0 and "Overall, multi-turn" in out, err
    Path("high.toml").write_text("remove_threshold = 0.9\n", encoding="utf-8")
    code, out, err = editloupe("rescore", "run", "--option", "rules=high.toml", "--out", "other")
    assert code == 0, out + err
