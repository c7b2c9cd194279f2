"""What the tests of both recipes in examples/training have: rows of training data, and a recipe in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
EXTRA = ("torch", "transformers", "trl", "peft", "datasets")
needs_train = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in EXTRA), reason="needs the extra `train`: torch, trl, peft"
)


def says(role: str, text: str, images: int = 0) -> dict[str, Any]:
    """A message with places for images before its text."""
    return {"role": role, "content": [*[{"type": "image"}] * images, {"type": "text", "text": text}]}


def write_rows(file: Path, rows: Sequence[Any]) -> Path:
    """Write rows as JSON Lines, and text as it is."""
    file.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows), encoding="utf-8")
    return file


def run(*words: object) -> subprocess.CompletedProcess[str]:
    """Python with these words, on the CPU and offline."""
    return subprocess.run(
        [sys.executable, *map(str, words)], cwd=ROOT, env={**os.environ, "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True, text=True, timeout=400, check=False,
    )  # fmt: skip


def training(out: Path, done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """training.json of a recipe that has ended."""
    assert done.returncode == 0, done.stderr
    return dict(json.loads((out / "training.json").read_text(encoding="utf-8")))
