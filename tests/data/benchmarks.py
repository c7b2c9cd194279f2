"""Small data sets in the shape of the public files of benchmarks. Each draws itself into a folder, outputs below `out`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars

from tests.conftest import pngs

IMAGE = polars.Struct({"bytes": polars.Binary, "path": polars.String})


def draw(file: Path, seed: int = 0, *, edited: bool = False) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(pngs(seed, spots=1)[edited])


def write(file: Path, value: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value, ensure_ascii=False), encoding="utf-8")


def cell(data: bytes | None, path: str | None = None) -> dict[str, Any]:
    return {"bytes": data, "path": path}


def column(count: int, *, edited: bool = False) -> polars.Series:
    return polars.Series([cell(pngs(i, spots=1)[edited]) for i in range(count)], dtype=IMAGE)


def gedit(root: Path) -> None:
    rows = {
        "task_type": ["subject-add", "subject-add", "tone_transfer"],
        "key": ["k1", "k1", "k2"],
        "instruction": ["Add a cat.", "加一只猫。", "Make it dusk."],
        "instruction_language": ["en", "cn", "en"],
        "input_image": column(3),
        "input_image_raw": column(3),
        "Intersection_exist": [True, True, False],
    }
    (root / "data").mkdir(parents=True)
    polars.DataFrame(rows).write_parquet(root / "data/train-00000-of-00001.parquet")
    for i, place in enumerate(("subject-add/en/k1", "subject-add/cn/k1")):
        draw(root / f"out/fullset/{place}.png", i, edited=True)
        draw(root / f"out/fullset/{place}_SRCIMG.png", i)


def imgedit(root: Path) -> None:
    entries = {
        "1082": {"id": "animal/1.png", "prompt": "Smooth the shell.", "edit_type": "adjust"},
        "673": {"id": "style/2.png", "prompt": "As a woodcut.", "edit_type": "style"},
    }
    write(root / "basic_edit.json", entries)
    draw(root / "original_images/animal/1.png", 1)
    draw(root / "original_images/style/2.png", 2)
    draw(root / "out/1082.png", 1, edited=True)


def kris(root: Path) -> None:
    one = {"ori_img": "1.png", "gt_img": "1_gt.png", "ins_en": "Draw the front view.", "explain_en": ""}
    several = {"ori_img": ["1-2.png", "1-3.png"], "gt_img": "1-1.png", "ins_en": "Predict frame 1.", "explain_en": ""}
    write(root / "KRIS_Bench/viewpoint_change/annotation.json", {"1": one})
    write(root / "KRIS_Bench/biology/annotation.json", {"1": {**one, "gt_img": ""}})
    write(root / "KRIS_Bench/temporal_prediction/annotation.json", {"1": several})
    frames = [f"temporal_prediction/1-{n}" for n in (1, 2, 3)]
    for name in ("viewpoint_change/1", "viewpoint_change/1_gt", "biology/1", *frames):
        draw(root / f"KRIS_Bench/{name}.png", len(name) + int(name[-1]) if name[-1].isdigit() else 0)
    draw(root / "out/viewpoint_change/1.jpg", edited=True)


def rise(root: Path) -> None:
    entries = [
        {"index": f"{kind}_reasoning_1", "category": f"{kind}_reasoning", "instruction": "Show it later.",
         "image": f"{kind}_reasoning_images/1.png", "reference": "It is broken.", "subtask": "Life Progression"}
        for kind in ("temporal", "spatial")
    ]  # fmt: skip
    write(root / "datav2_total_w_subtask.json", entries)
    for entry in entries:
        draw(root / "data" / str(entry["image"]))
    draw(root / "out/images/temporal_reasoning/temporal_reasoning_1.png", edited=True)


def magicbrush(root: Path) -> None:
    turns = [
        {"input": "139-input.png", "mask": "139-mask1.png", "output": "139-output1.png", "instruction": "Add a hat."},
        {"input": "139-output1.png", "mask": "139-mask2.png", "output": "139-output2.png", "instruction": "Make it red."},
    ]
    write(root / "edit_sessions.json", {"139": turns})
    write(root / "edit_turns.json", turns)
    for i, name in enumerate(("139-input", "139-output1", "139-output2")):
        draw(root / f"images/139/{name}.png", i)
    for i, name in enumerate(("139_1", "139_iter_2", "139_inde_2")):
        draw(root / f"out/139/{name}.png", i, edited=True)


def emuedit(root: Path, **more: Any) -> None:
    rows = {
        "instruction": ["Remove it.", "Add snow."],
        "image": column(2),
        "task": ["remove", "global"],
        "split": ["test", "test"],
        "idx": [7, 8],
        "hash": ["aa", "bb"],
        "input_caption": ["A cup.", "A road."],
        "output_caption": ["A table.", "A road in snow."],
    }
    root.mkdir(parents=True, exist_ok=True)
    polars.DataFrame({**rows, **more}).write_parquet(root / "test.parquet")
    draw(root / "out/7.png", edited=True)
