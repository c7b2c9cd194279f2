"""Small data of the shape of UnicBench and UnicEdit-10M, with outputs where the official scripts write them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tests.protocols.edival_files import put

SUBTASKS = {
    "Background Change": "Scene Editing",
    "Shape-Size Alteration": "Attribute Editing",
    "Subject Removal": "Object Editing",
    "Multi-object Coordination": "Reasoning Editing",
}

Rows = Sequence[Mapping[str, Any]]


def row(number: int, subtask: str = "Background Change", **changes: Any) -> dict[str, Any]:
    """A row about an image of its own, with two reasoning points where the task has some."""
    key = f"{number:032x}"
    base = {
        "key": key,
        "task": SUBTASKS[subtask],
        "subtask": subtask,
        "cn": f"将背景 {number} 替换为夜晚的城市灯光。",
        "en": f"Replace background {number} with city lights.",
        "image_path": f"images/{key}.png",
        "resolution": [24, 16],
    }
    points = {"reasoning_points": ["The lamp is lit.", "Its shadow falls to the left."]}
    return {**base, **(points if SUBTASKS[subtask] == "Reasoning Editing" else {}), **changes}


def rows(each: int = 2) -> list[dict[str, Any]]:
    """Rows of four subtasks, one of each task."""
    return [row(100 * place + n, subtask) for place, subtask in enumerate(SUBTASKS) for n in range(each)]


def write(root: Path, given: Rows, *, name: str = "test_data.jsonl") -> Path:
    """Write the file and the image that each row names."""
    root.mkdir(parents=True, exist_ok=True)
    for path in {str(one["image_path"]) for one in given if isinstance(one.get("image_path"), str)}:
        put(root / path)
    lines = [json.dumps(one, ensure_ascii=False) + "\n" for one in given]
    (root / name).write_text("".join(lines), encoding="utf-8")
    return root


def edit(folder: Path, given: Rows, languages: Iterable[str] = ("en", "cn"), blank: str = "_") -> Path:
    """Write an editor's outputs of these rows. blank: what stands between the words of a subtask."""
    for one in given:
        for language in languages:
            put(folder / str(one["subtask"]).replace(" ", blank) / language / f"{one['key']}.png")
    return folder


Scores = Mapping[str, Any]
"""By the names that a row of results has: if, nc, vq, ra."""


def result(one: Mapping[str, Any], language: str = "en", scores: Scores | None = None, **changes: Any) -> dict[str, Any]:
    """A row of an official result file. scores: numbers, or "Parse error" for a reply that the script cannot read."""
    reasoning = one["task"] == "Reasoning Editing"
    given = {"if": 9.0, "nc": 8.0, "vq": 7.0, "ra": 6.0 if reasoning else None, **(scores or {})}
    failed = {name for name, score in given.items() if score == "Parse error"}
    numbers = {name: 0.0 if name in failed else score for name, score in given.items()}
    counted = [numbers[name] for name in ("if", "nc", "vq", *(["ra"] if numbers["ra"] is not None else []))]
    plain = all(isinstance(number, float) and number >= 0 for number in counted)
    base = {
        "key": one["key"],
        "task": one["task"],
        "subtask": one["subtask"],
        "instruction": one[language],
        "instruction_language": language,
        "edited_image_path": f"results/bagel/{one['key']}.png",
    }
    for name, number in numbers.items():
        said = None if number is None else f"Because of {name}."
        base |= {f"{name}_score": number, f"{name}_reason": "Parse error" if name in failed else said}
    overall = float(np.prod(counted)) ** (1 / len(counted)) if plain else float("nan")
    return {**base, "overall_score": overall, **changes}


def write_results(
    save_dir: Path, given: Rows, *, editor: str = "bagel", judge: str = "gpt-4.1", language: str = "en"
) -> Path:
    """Write rows of results where the official script does. Returns the folder of all models."""
    for one in given:
        name = f"{str(one['subtask']).replace(' ', '_')}_{language}_results.jsonl"
        file = save_dir / editor / "eval_output" / judge / name
        file.parent.mkdir(parents=True, exist_ok=True)
        with file.open("a", encoding="utf-8") as opened:
            opened.write(json.dumps(one, ensure_ascii=False) + "\n")
    return save_dir
