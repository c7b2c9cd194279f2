"""The notebook of the examples runs from top to bottom, and what its cells end in shows itself as HTML."""

from __future__ import annotations

import ast
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(EXAMPLES / "edits", tmp_path / "edits")
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((EXAMPLES / "judge_in_a_notebook.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    shown: list[str] = []
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] != "code":
            continue
        assert not cell["outputs"], "a notebook is kept without outputs"
        *before, last = ast.parse("".join(cell["source"])).body
        exec(compile(ast.Module(before, []), f"cell {number}", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)
            shown.append(value._repr_html_())
        else:
            exec(compile(ast.Module([last], []), f"cell {number}", "exec"), names)
    assert len(shown) == 6 and all("<" in html for html in shown)
    assert shown[3].count("data:image/jpeg") == 6  # three samples with two images each
