"""Rows as anybody might write them: each becomes a sample or is rejected with a reason, and costs no other row."""

from __future__ import annotations

import csv
import io
import json
import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from PIL import Image

from editloupe.data.images import ImageStore
from editloupe.data.rows import OWN_COLUMNS, Loaded
from editloupe.data.samples import load
from editloupe.errors import DataError
from editloupe.values import Sample

DEEP = "[" * 60_000 + "]" * 60_000
FEWER = "[" * 800 + "1" + "]" * 800
"""Deep, and yet within what the reader of JSON takes."""
FILES = ("source.png", "edited.png", "mask.png")

TEXTS = st.one_of(
    st.text(st.characters(codec=None), max_size=8),
    st.sampled_from(
        ["nan", "inf", "-inf", "1e999", "9" * 400, "9" * 5000, DEEP, FEWER, '{"x": 1e999}', "1,2,3", "1,2,3,4", "[1,2,3,4]",
         "[[0,0],[9,9]]", "0 0 9 9;0 0 8 8", "{}", "NaN", "../x.png", "/etc/passwd", "a\0b", "\ud800", "\u202e", "x" * 5000,
         "=1+1", "unit", "yxyx_thousandths"]
    ),
)  # fmt: skip
NUMBERS = st.one_of(
    st.integers(),
    st.floats(),
    st.sampled_from([10**400, -(10**400), 2**63, 1e308, -1e-320, float("nan"), float("inf"), -0.0]),
)
PLAIN = st.one_of(st.none(), st.booleans(), NUMBERS, TEXTS, st.sampled_from(FILES))
VALUES = st.recursive(
    PLAIN, lambda part: st.lists(part, max_size=5) | st.dictionaries(st.sampled_from("xywh01 ") | TEXTS, part, max_size=5),
    max_leaves=12,
)  # fmt: skip
BOXES = st.lists(NUMBERS, min_size=3, max_size=5) | VALUES
COLUMNS = st.sampled_from([*sorted(OWN_COLUMNS), "model", "human_if", "human_if_anna", "human_", "note", ""]) | TEXTS


@st.composite
def rows(draw: st.DrawFn, values: st.SearchStrategy[Any] = VALUES) -> dict[str, Any]:
    """A row that may be sound but for some columns."""
    row: dict[str, Any] = {"source_file_name": "source.png", "edited_file_name": "edited.png", "instruction": "Do it."}
    if draw(st.booleans()):
        row |= {"bbox": draw(BOXES if values is VALUES else values)}
    return row | draw(st.dictionaries(COLUMNS, values, max_size=6))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with images."""
    root = tmp_path_factory.mktemp("rows")
    for number, name in enumerate(FILES):
        Image.fromarray(np.full((16, 24, 3), number, dtype=np.uint8)).save(root / name)
    return root


SOUND = [
    {"id": f"sound {n}", "source_file_name": "source.png", "edited_file_name": "edited.png", "instruction": f"Do {n}."}
    for n in (1, 2)
]


def loaded(root: Path, name: str, data: bytes) -> Loaded:
    """The data set with this metadata."""
    for old in root.glob("metadata.*"):
        old.unlink()
    (root / name).write_bytes(data)
    return load(root, store=ImageStore())


def check(found: Loaded, sound: Loaded) -> None:
    """The sound rows are what they are without the odd one, which is a sample or has a reason."""
    assert len(found.samples) + len(found.rejected) == 3
    samples = {sample.id: sample for sample in found.samples}
    for sample in sound.samples[:1] + sound.samples[-1:]:
        assert samples.pop(sample.id).content == sample.content
    for sample in samples.values():
        # As a run writes and reads it.
        again = Sample.from_json(json.loads(json.dumps(sample.to_json(), ensure_ascii=False, allow_nan=False)))
        assert (again.id, again.content) == (sample.id, sample.content)
        assert all(math.isfinite(v) for target in sample.targets for box in target.boxes.values() for v in box)
    for row in found.rejected:
        assert row.message and row.id and len(row.message) < 2000
        json.dumps(row.to_json(), ensure_ascii=False).encode("utf-8", "backslashreplace")


QUICKLY = settings(
    derandomize=True, max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def as_json_lines(root: Path, *lines: str) -> Loaded:
    return loaded(root, "metadata.jsonl", "".join(line + "\n" for line in lines).encode())


@QUICKLY
@given(rows())
@example({"bbox": [0, 0, 9, 10**400]})
@example({"human_if": 10**400})
@example({"bbox": FEWER})
@example({"bbox": DEEP})
@example({"bbox": '{"x": 1e999, "y": 0, "w": 1, "h": 1}'})
def test_a_json_row_is_a_sample_or_rejected(root: Path, row: dict[str, Any]) -> None:
    lines = [json.dumps(one) for one in (SOUND[0], SOUND[1])]
    odd = json.dumps({"source_file_name": "source.png", "edited_file_name": "edited.png", "instruction": "Do it."} | row)
    check(as_json_lines(root, lines[0], odd, lines[1]), as_json_lines(root, *lines))


ODD_LINES = (
    f'{{"bbox": {DEEP}}}',
    f'{{"bbox": {FEWER}}}',
    f'{{"note": {FEWER}}}',
    '{"bbox": [0, 0, 1e999, 1]}',
    '{"bbox": NaN}',
    f'{{"bbox": [0, 0, 9, {"9" * 5000}]}}',
    '{"id": "\\u0000"}',
    '{"instruction": "\\ud800"}',
    '{"a": 1, "a": 2}',
    '{"source_file_name": "a\\u0000b"}',
    "\0",
    DEEP,
    "[",
    "7",
    '"text"',
)


@pytest.mark.parametrize("odd", ODD_LINES, ids=range(len(ODD_LINES)))
def test_a_line_that_no_writer_of_json_makes_is_rejected_alone(root: Path, odd: str) -> None:
    lines = [json.dumps(one) for one in SOUND]
    found = as_json_lines(root, lines[0], odd, lines[1])
    check(found, as_json_lines(root, *lines))
    (row,) = found.rejected
    assert row.message.startswith("metadata.jsonl, line 2: ")


def as_csv(root: Path, table: list[dict[str, str]]) -> Loaded:
    text = io.StringIO(newline="")
    columns = dict.fromkeys(name for row in table for name in row)
    writer = csv.DictWriter(text, fieldnames=list(columns), restval="")
    writer.writeheader()
    writer.writerows(table)
    return loaded(root, "metadata.csv", text.getvalue().encode())


@QUICKLY
@given(
    st.dictionaries(st.sampled_from([*sorted(OWN_COLUMNS), "human_if", "note"]), TEXTS.filter(lambda t: t.isprintable()))
)
@example({"bbox": FEWER})
@example({"bbox": DEEP})
@example({"bbox": "a\0b"})
@example({"human_if": "1e999"})
@example({"bbox": "1e999,0,1,1"})
def test_a_csv_row_is_a_sample_or_rejected(root: Path, row: dict[str, str]) -> None:
    # A row of blanks is no row.
    odd = (
        {"source_file_name": "source.png", "edited_file_name": "edited.png", "instruction": "Do it."} | row | {"more": "x"}
    )
    columns = dict.fromkeys((*SOUND[0], *odd), "")
    check(as_csv(root, [SOUND[0], columns | odd, SOUND[1]]), as_csv(root, SOUND))


def as_parquet(root: Path, **columns: Any) -> Loaded:
    data = io.BytesIO()
    sound: dict[str, Any] = {name: [SOUND[0][name], SOUND[0][name], SOUND[1][name]] for name in SOUND[0]}
    polars.DataFrame({**sound, "id": ["sound 1", "odd", "sound 2"], **columns}, strict=False).write_parquet(data)
    return loaded(root, "metadata.parquet", data.getvalue())


@QUICKLY
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "bbox": st.lists(st.floats(), max_size=5),
            "edited_bbox": st.text(st.characters(codec="utf-8"), max_size=8),
            "human_if": st.floats() | st.none(),
            "note": st.binary(max_size=4) | st.dictionaries(st.sampled_from("ab"), st.integers(0, 9), min_size=2),
            "edit_type": st.text(st.characters(codec="utf-8"), max_size=8),
        },
    )
)
@example({"bbox": [0.0, 0.0, math.nan, math.inf]})
@example({"edited_bbox": FEWER})
def test_a_parquet_row_is_a_sample_or_rejected(root: Path, row: dict[str, Any]) -> None:
    check(as_parquet(root, **{name: [None, value, None] for name, value in row.items()}), as_parquet(root))


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_parquet_file_is_an_error_of_the_data(root: Path, seed: int) -> None:
    as_parquet(root, bbox=[[0.0, 0.0, 9.0, 9.0]] * 3)
    draw, data = random.Random(seed), bytearray((root / "metadata.parquet").read_bytes())
    for _ in range(4):
        data[draw.randrange(len(data) // 2, len(data))] = draw.randrange(256)
    try:
        found = loaded(root, "metadata.parquet", bytes(data))
    except DataError:
        return
    assert len(found.samples) + len(found.rejected) <= 3
