"""Dialogues and pairs for training: the shape that trl reads, the filter by agreement, what is left out and why."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import polars
import pytest
from PIL import Image

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.config import JudgeConfig, RunConfig
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from tests.conftest import final
from tests.exports.runs import INSTRUCTION, edits

Cli = Callable[..., tuple[int, str, str]]

ZOOM = (
    '<tool_call>{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [0, 0, 500, 500]}}</tool_call>'
)


def judged(
    folder: Path,
    answer: Callable[[int, int], str],
    *,
    count: int = 3,
    mode: str = "plain",
    repeats: int = 1,
    name: str = "run",
) -> Path:
    """A run that asks for instruction following.   answer: (number of the sample, of the repeat from 0) → the reply."""
    data = folder / "edits" if (folder / "edits").exists() else edits(folder / "edits", count=count + 1)
    seen: dict[int, int] = {}

    def script(request: Request) -> str:
        number = next(i for i in range(count) if INSTRUCTION.format(i) in request.messages[0].text)
        if mode == "tool" and len(request.messages) == 1:
            return f"<Start Thinking>Closer, 仔细.</Start Thinking>\n{ZOOM}"
        seen[number] = seen.get(number, -1) + 1
        return answer(number, seen[number])

    config = RunConfig.make(
        path=data,
        limit=count,
        judge=JudgeConfig(backend=ScriptedLMM(script, name=name)),
        option={"mode": mode, "criteria": "if"},
        repeats=repeats,
        concurrency=1,
    )
    drive(open_setup(config), folder / name)
    return folder / name


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows, each held to what trl reads: places for pictures, and files for them."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    for row in rows:
        parts = [part for m in [*row.get("messages", ()), *row.get("prompt", ())] for part in m["content"]]
        assert [set(p) for p in parts] == [{"type"} if p["type"] == "image" else {"type", "text"} for p in parts]
        assert sum(part["type"] == "image" for part in parts) == len(row["images"])
        for name in row["images"]:
            with Image.open(file.parent / name) as picture:
                picture.verify()
        for message in (m for column in ("messages", "prompt", "chosen", "rejected") for m in row.get(column, ())):
            assert message["role"] in ("system", "user", "assistant")
    # Constant types: a reader that has typed the first line takes all others.
    if rows:
        schema = polars.read_ndjson(io.BytesIO(file.read_bytes()), infer_schema_length=1).schema
        assert polars.read_ndjson(io.BytesIO(file.read_bytes()), infer_schema_length=None).schema.keys() == schema.keys()
    return rows


def roles(row: dict[str, Any], column: str = "messages") -> list[str]:
    return [message["role"] for message in row[column]]


def said(row: dict[str, Any], column: str) -> str:
    return "".join(part.get("text", "") for part in row[column][-1]["content"])


def ratings(path: Path, rows: Sequence[tuple[str, str]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["item", "editor", "instruction_following"])
        writer.writerows([(item, "painter", rating) for item, rating in rows])
    return path


LABELS = ("Flawless Execution", "Wrong Action", "Over Modification")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """s00, s01, s02: LABELS in their order, in the mode plain."""
    return judged(tmp_path_factory.mktemp("plain"), lambda number, _: final(LABELS[number], f"Square {number}."))


def test_a_dialogue_is_the_question_with_its_pictures_and_the_reply(editloupe: Cli, run: Path, tmp_path: Path):
    code, out, err = editloupe("export", run, "--sft", "o")
    assert (code, err) == (0, "")
    # Three samples, two pictures each.
    assert "3 dialogues in o/sft.jsonl with 6 pictures" in out and "3 of 3 findings are used" in out
    rows = rows_of(tmp_path / "o" / "sft.jsonl")
    assert [roles(row) for row in rows] == [["user", "assistant"]] * 3
    assert [said(row, "messages") for row in rows] == [final(label, f"Square {i}.") for i, label in enumerate(LABELS)]
    assert INSTRUCTION.format(0) in rows[0]["messages"][0]["content"][0]["text"]
    assert [row["lineage"]["sample"] for row in rows] == ["s00", "s01", "s02"]
    assert list(rows[0]["lineage"]) == ["run", "task_id", "judge_id", "sample", "editor", "metric", "repeat"]
    with Image.open(tmp_path / "o" / rows[0]["images"][0]) as before:
        assert before.size == (320, 240)
    # The first picture is the source, the second the edited image.
    source = (run.parent / "edits" / "before0.png").read_bytes()
    assert (tmp_path / "o" / rows[0]["images"][0]).read_bytes() == source


def test_all_turns_are_thought_call_observation_with_pictures_and_answer(editloupe: Cli, tmp_path: Path):
    run = judged(tmp_path, lambda number, _: final(LABELS[number]), mode="tool")
    assert editloupe("export", run, "--sft", "short")[0] == 0
    assert editloupe("export", run, "--sft", "long", "--turns", "all")[0] == 0
    short, whole = (rows_of(tmp_path / name / "sft.jsonl")[0] for name in ("short", "long"))
    assert roles(short) == ["user", "assistant"] and len(short["images"]) == 2
    assert roles(whole) == ["user", "assistant", "user", "assistant"]
    assert whole["images"][:2] == short["images"] and len(whole["images"]) > 2
    assert ZOOM in whole["messages"][1]["content"][0]["text"] and "仔细" in whole["messages"][1]["content"][0]["text"]
    observed = whole["messages"][2]["content"]
    assert observed[0]["text"].startswith("Observation of zoom_in") and {"type": "image"} in observed
    assert whole["messages"][0] == short["messages"][0] and whole["messages"][3] == short["messages"][1]


def test_native_calls_and_unusable_replies_are_no_example_of_all_turns(editloupe: Cli, native: Path, tmp_path: Path):
    # s00 and s03 called natively, two questions each; s01 has no label, s02 no reply, s04 no edited image.
    code, out, _ = editloupe("export", native, "--sft", "o")
    assert code == 0 and "4 dialogues" in out and "2 have no answer (unparsed)" in out
    assert "2 have no answer (backend_failed)" in out and "2 have no answer (input_error)" in out
    code, _, err = editloupe("export", native, "--sft", "all", "--turns", "all")
    assert code == 2 and "4 called tools natively" in " ".join(err.split())
    asked = iter(["I cannot say.", *(final(LABELS[0]) for _ in range(3))])
    run = judged(tmp_path, lambda *_: next(asked))
    code, out, _ = editloupe("export", run, "--sft", "reminded", "--turns", "all")
    assert "2 of 3 findings are used" in out and "1 have a reply on the way that could not be used" in out


def test_only_answers_that_agree_with_people(editloupe: Cli, run: Path, tmp_path: Path):
    people = ratings(tmp_path / "p.csv", [("s00", "Flawless Execution"), ("s01", "Over Modification")])
    code, out, _ = editloupe("export", run, "--sft", "o", "--human", people)
    assert code == 0 and "1 disagree with people" in out and "1 are rated by nobody" in out
    assert [row["lineage"]["sample"] for row in rows_of(tmp_path / "o" / "sft.jsonl")] == ["s00"]
    # The samples' own column says "Wrong Action" throughout.
    editloupe("export", run, "--sft", "o", "--human", "samples")
    assert [row["lineage"]["sample"] for row in rows_of(tmp_path / "o" / "sft.jsonl")] == ["s01"]


def test_repeats_that_agree_and_disagree_with_people_are_pairs(editloupe: Cli, tmp_path: Path):
    # Three repeats. s00: right, wrong, right.   s01: always right.   s02: always wrong, and one reply is none.
    answers = {0: (LABELS[0], LABELS[1], LABELS[0]), 1: (LABELS[0],) * 3, 2: (LABELS[1], LABELS[1], LABELS[2])}
    run = judged(tmp_path, lambda number, repeat: final(answers[number][repeat]), repeats=3)
    people = ratings(tmp_path / "p.csv", [("s00", LABELS[0]), ("s01", LABELS[0]), ("s02", LABELS[0])])
    code, out, _ = editloupe("export", run, "--sft", "o", "--dpo", "--human", people)
    assert code == 0 and "1 pairs in o/dpo.jsonl with 2 pictures" in out and "2 of 9 findings are used" in out
    # s00's third answer, all of s01 and all of s02: 1 + 3 + 3.
    assert "7 have no answer of the other kind to be paired with" in out
    (row,) = rows_of(tmp_path / "o" / "dpo.jsonl")
    assert (roles(row, "prompt"), roles(row, "chosen"), roles(row, "rejected")) == (["user"], ["assistant"], ["assistant"])
    assert (said(row, "chosen"), said(row, "rejected")) == (final(LABELS[0]), final(LABELS[1]))
    assert (row["lineage"]["repeat"], row["rejected_lineage"]["repeat"]) == (0, 1)
    assert row["lineage"].keys() == row["rejected_lineage"].keys()


def test_two_judges_make_pairs(editloupe: Cli, run: Path, tmp_path: Path):
    shutil.copytree(run.parent / "edits", tmp_path / "edits")
    other = judged(tmp_path, lambda number, _: final(LABELS[2 - number]), name="other")
    people = ratings(tmp_path / "p.csv", [("s00", LABELS[2]), ("s01", LABELS[1]), ("s02", LABELS[2])])
    code, _, _ = editloupe("export", run, other, "--sft", "o", "--dpo", "--human", people)
    assert code == 0
    rows = rows_of(tmp_path / "o" / "dpo.jsonl")
    # s00: the second judge is right; s01: both are; s02: the first is.
    found = [(row["lineage"]["sample"], row["lineage"]["judge_id"], row["rejected_lineage"]["judge_id"]) for row in rows]
    first, second = (json.loads((r / "run.json").read_text(encoding="utf-8"))["judges"] for r in (run, other))
    assert found == [("s00", *second, *first), ("s02", *first, *second)]


def test_a_verifiers_dialogue_is_an_example_where_people_rate_the_score_that_rests_on_it(editloupe: Cli, tmp_path: Path):
    """People rate the class of an edit, which unicverify makes of the answer to its question "verification"."""
    said = ({"is_changed": True, "instruction": "Add a dog."}, {"is_changed": False, "instruction": ""})

    def script(request: Request) -> str:
        number = next(i for i in range(2) if INSTRUCTION.format(i) in request.messages[0].text)
        return final(json.dumps(said[number]), "I compare.")

    backend = JudgeConfig(backend=ScriptedLMM(script))
    config = RunConfig.make(
        path=edits(tmp_path / "edits", count=3),
        limit=2,
        protocol="unicverify",
        option={"matching": "none"},
        judge=backend,
        concurrency=1,
    )
    drive(open_setup(config), tmp_path / "run")
    assert editloupe("export", "run", "--sft", "o")[0] == 0
    assert [row["lineage"]["sample"] for row in rows_of(tmp_path / "o" / "sft.jsonl")] == ["s00", "s01"]
    # Without a parser only "No Edit" is a class; of s00 people say the same of what it is not.
    (tmp_path / "p.csv").write_text("item,editor,edit_class\ns00,painter,Normal\ns01,painter,No Edit\n", encoding="utf-8")
    code, out, _ = editloupe("export", "run", "--sft", "o", "--human", "p.csv")
    assert code == 0 and "1 are rated by nobody" in out
    assert [row["lineage"]["sample"] for row in rows_of(tmp_path / "o" / "sft.jsonl")] == ["s01"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--sft", "o", "--dpo"), "nothing says which answer is the better one"),
        (("--sft", "o", "--dpo", "--human", "samples"), "nothing to export to dpo.jsonl: of 3 findings"),
        (("--sft", "o", "--human", "gone.csv"), "gone.csv"),
        (("--sft", "other"), "holds other files"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_what_does_not_fit_is_said(editloupe: Cli, run: Path, tmp_path: Path, words: tuple[str, ...], told: str):
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    code, _, err = editloupe("export", run, *words)
    assert (code, told in " ".join(err.split())) == (2, True), err
    assert not list(tmp_path.rglob("*.jsonl"))


def test_a_lost_picture_and_a_broken_trace_are_left_out(editloupe: Cli, run: Path, tmp_path: Path):
    own = tmp_path / "own"
    shutil.copytree(run, own)
    next(own.glob("traces/*/*/*.jsonl")).write_text("{}\n", encoding="utf-8")
    code, out, err = editloupe("export", own, "--sft", "o")
    assert code == 1 and "2 dialogues" in out and "1 have a trace that cannot be read" in out
    shutil.rmtree(own / "blobs")
    code, _, err = editloupe("export", own, "--sft", "o")
    assert code == 2 and "2 have a picture that is not in the run folder, or damaged" in " ".join(err.split())
