"""Protocols and measures of an installed package, through every command, with numbers worked by hand."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe import Run
from tests.toys.install import installed

Cli = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.usefixtures("site")

COLORS = ["red", "green", "cannot tell"]

ROWS: dict[str, list[dict[str, Any]]] = {
    # √(8·2) = 4 and √(9·4) = 6; the third edit has no readable first answer.
    "stars": [
        {"id": "a", "instruction": "Make it red. [follows=8 keeps=2]"},
        {"id": "b", "instruction": "Make it red. [follows=9 keeps=4]"},
        {"id": "c", "instruction": "Make it red. [follows=mumble keeps=5]"},
    ],
    # One right, one wrong, one that cannot tell: 1 of 2.
    "choice": [
        {"id": "a", "options": COLORS, "answer": "red", "question": "Which color? picks=red"},
        {"id": "b", "options": COLORS, "answer": "red", "question": "Which color? picks=green"},
        {"id": "c", "options": COLORS, "answer": "red", "question": "Which color? picks=cannot_tell"},
    ],
    # All turns pass in a only, which has four: turn 2 of b is wrong, turn 3 of c changes nothing.
    "turns": [
        {"id": "a", "turns": [f"{turn} [changed=yes right=yes]" for turn in "wxyz"]},
        {
            "id": "b",
            "turns": ["x [changed=yes right=yes]", "y [changed=yes right=no]", "z [changed=yes right=yes]"],
            "objects": [["cup"], ["cup", "jar"], []],
        },
        {"id": "c", "turns": ["x [changed=yes right=yes]", "y [changed=yes right=yes]", "z [changed=no right=yes]"]},
    ],
    # 8 × 8 of 64 × 32 pixels are another color: 1/32. The picture of c has no red at all.
    "pixels": [{"id": "a"}, {"id": "b"}, {"id": "c", "color": [0, 90, 200]}],
    # Things that begin with c are there: 1 of 2 and 1 of 1.
    # Both entries of a checklist, one of two, and one that cannot be read.
    "checklist": [
        {"id": "a", "instruction": "[items=red,lid red=yes lid=yes]"},
        {"id": "b", "instruction": "[items=red,lid red=no lid=yes]"},
        {"id": "c", "instruction": "[items=red red=mumble]"},
    ],
    "objects": [
        {"id": "a", "instruction": "Move them. [objects=cup,plate]"},
        {"id": "b", "instruction": "Move it. [objects=cap]"},
    ],
}
FAULTY = [{"id": id_, "instruction": f"Make {id_} red. [right=yes]"} for id_ in "abc"]

CALLS = {"stars": 7, "choice": 3, "turns": 10 + 9, "pixels": 0, "checklist": 3 + 6, "objects": 2 + 3}
"""What a whole run asks. One answer of stars and of checklist is asked again by a reminder, and turn 3 of c
has no second wave."""

ROLES: dict[str, list[str]] = {"pixels": [], "objects": ["--backend", "toy/judge", "--set", "role.parser=toy/reader"]}
"""Words that name who answers, where that is not `--backend toy/judge`."""

VALUES: dict[str, dict[tuple[str, int, str], float | str]] = {
    # (sample, turn, metric) → value, or why it is missing
    "stars": {("a", 0, "overall"): 4, ("b", 0, "overall"): 6, ("c", 0, "overall"): "unparsed", ("c", 0, "keeps"): 5},
    "choice": {("a", 0, "accuracy"): 1, ("b", 0, "accuracy"): 0, ("c", 0, "accuracy"): "abstained"},
    "turns": {
        **{(sample, 0, "passed"): value for sample, value in (("a", 1), ("b", 0), ("c", 0))},
        **{("b", turn, "passed"): value for turn, value in ((1, 1), (2, 0), (3, 1))},
        ("c", 3, "passed"): 0,
    },
    "pixels": {
        **{(sample, 0, "share"): 1 / 32 for sample in "abc"},
        # 200 on 1/32 of the pixels, 40 elsewhere.
        ("a", 0, "red"): (200 + 31 * 40) / 32,
        ("c", 0, "red"): "not_defined",
    },
    "checklist": {("a", 0, "holds"): 1, ("b", 0, "holds"): 0.5, ("c", 0, "holds"): "unparsed"},
    "objects": {("a", 0, "kept"): 0.5, ("b", 0, "kept"): 1},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The toy package, installed for this process and its children."""
    site = tmp_path_factory.mktemp("site")
    with installed(site), pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(Path(__file__).parents[2]), prepend=os.pathsep)
        patch.setenv("PYTHONPATH", str(site), prepend=os.pathsep)
        yield


@pytest.fixture(autouse=True)
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """What the toy backend was asked: a URI a call."""
    path = tmp_path / "calls.txt"
    monkeypatch.setenv("TOY_CALLS", str(path))
    monkeypatch.delenv("TOY_DIE", raising=False)
    return lambda: path.read_text().splitlines() if path.exists() else []


def draw(folder: Path, protocol: str) -> Path:
    """The rows of a protocol as a folder; every edit is a square of 8 px on a plain picture of 64×32 px."""
    folder.mkdir(parents=True)
    listed = []
    for number, row in enumerate(ROWS.get(protocol, FAULTY)):
        base = np.full((32, 64, 3), 40 if "color" not in row else 0, np.uint8)
        base[..., 2] = 40 + number
        Image.fromarray(base).save(folder / f"{row['id']}.png")
        turns = row.get("turns") or [row.get("instruction", "Make it red.")]
        made = []
        for turn, instruction in enumerate(turns, 1):
            edited = base.copy()
            edited[:8, 8 * turn : 8 * turn + 8] = row.get("color", [200, 20, 20])
            Image.fromarray(edited).save(folder / f"{row['id']}-{turn}.png")
            made.append({"instruction": instruction, "edited": f"{row['id']}-{turn}.png"})
        extra = {key: row[key] for key in ("options", "answer", "question", "objects") if key in row}
        listed.append({"id": row["id"], "source": f"{row['id']}.png", "turns": made, **extra})
    (folder / "samples.json").write_text(json.dumps(listed))
    return folder


def judge_words(protocol: str, data: Path, out: Path) -> list[str | Path]:
    roles = ROLES.get(protocol, ["--backend", "toy/judge"])
    return ["judge", data, "--protocol", protocol, *roles, "--out", out, "--fail-on-error", "1"]


def faulty_words(tmp_path: Path, fault: str) -> list[str | Path]:
    """The words that judge with a protocol that goes wrong for sample b."""
    data = draw(tmp_path / "data", "faulty")
    words = ("--set", f"fault={fault}", "--backend", "toy/judge", "--out", tmp_path / "run")
    return ["judge", data, "--protocol", "faulty", *words]


@pytest.mark.parametrize("protocol", ROWS)
def test_a_protocol_of_another_package_goes_through_every_command(
    protocol: str, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    def done(*words: str | Path) -> str:
        code, said, err = editloupe(*words)
        assert code == 0, (words, said, err)
        return said

    data, out = draw(tmp_path / "data", protocol), tmp_path / "run"
    # The same command again asks nobody.
    for _ in range(2):
        done(*judge_words(protocol, data, out))
        assert len(calls()) == CALLS[protocol]
    assert calls().count("toy/reader") == (2 if protocol == "objects" else 0)
    found = {(row["sample"], row["turn"], row["metric"]): row for row in Run(out).frame().to_dicts() if not row["part"]}
    for place, value in VALUES[protocol].items():
        given = found[place]["missing"] if found[place]["value"] is None else found[place]["value"]
        assert given == (value if isinstance(value, str) else pytest.approx(value)), place
    # Measures alone leave nothing to replay.
    assert editloupe("replay", out)[0] == (2 if protocol == "pixels" else 0)
    listed = done("show", out)
    assert all(f" {row['id']} " in listed for row in ROWS[protocol]), listed
    done("show", out, "a")
    assert done("report", out).strip()
    done("export", out, "--html", tmp_path / "pages")
    assert any("a" in page.read_text(encoding="utf-8") for page in (tmp_path / "pages").rglob("*.html"))
    done("gate", out, "--require", "unjudged<=1")
    assert editloupe("gate", out, "--require", "unjudged<=-1")[0] in (2, 100)
    if protocol == "turns":
        # One sample of three passes as a whole, whatever the first table shows.
        done("gate", out, "--require", "mean(passed)>0.33", "--require", "mean(passed)<0.34")
    if protocol == "stars":
        done("replay", out, "--set", "polite=true")
    assert len(calls()) == CALLS[protocol]


def test_an_arena_of_three_editors_ranks_them_by_bradley_terry(
    tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    first_wins, folder = "[ab=first bc=first ac=first]", tmp_path / "data"
    folder.mkdir()
    rows = []
    for number, instruction in enumerate((first_wins, first_wins, "[ab=second bc=second ac=tie]")):
        for shade, name in enumerate(("source", *"abc")):
            Image.new("RGB", (64, 32), (40 + number, 40, 60 * shade)).save(folder / f"{number}-{name}.png")
        for editor in "abc":
            files = {"source_file_name": f"{number}-source.png", "edited_file_name": f"{number}-{editor}.png"}
            rows.append({"id": f"s{number}", "editor": editor, "instruction": instruction, **files})
    (folder / "metadata.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "run"
    code, said, err = editloupe("judge", folder, "--protocol", "arena", "--backend", "toy/judge", "--out", out)
    assert code == 0 and len(calls()) == 9, said + err
    code, report, err = editloupe("report", out)
    # Of three games each, a won 2 against b and 2½ against c, and b 2 against c. By symmetry the strengths are s, 0 and -s,
    # and a's points are expected: 3x/(x+1) + 3x²/(x²+1) = 4½ for x = e^s, so x³ - x² - x = 3, x = 2.1304.
    assert code == 0 and all(f"{sign}{math.log(2.1304):.3f}" in report for sign in ("", "-")), report + err
    # 4½, 3 and 1½ of 6 points.
    assert [f"{points:.3f}" in report for points in (0.75, 0.5, 0.25)] == [True] * 3, report


def test_each_of_two_input_images_is_asked_about(
    site: Path, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    folder, out = tmp_path / "data", tmp_path / "run"
    folder.mkdir()
    for shade, name in enumerate(("cup", "table", "edit")):
        Image.new("RGB", (64, 32), (40, 40, 60 * shade)).save(folder / f"{name}.png")
    rows = [
        {"id": "both", "source_file_names": ["cup.png", "table.png"], "instruction": "[input1=yes input2=yes]"},
        {"id": "first", "source_file_names": ["cup.png", "table.png"], "instruction": "[input1=yes input2=no]"},
        {"id": "single", "source_file_name": "cup.png", "instruction": "[input1=no]"},
    ]
    lines = (json.dumps({**row, "edited_file_name": "edit.png"}) + "\n" for row in rows)
    (folder / "metadata.jsonl").write_text("".join(lines))
    code, said, err = editloupe("judge", folder, "--protocol", "inputs", "--backend", "toy/judge", "--out", out)
    assert code == 0 and len(calls()) == 5, said + err

    from editloupe import Run

    assert {row["sample"]: row["value"] for row in Run(out).frame().to_dicts()} == {
        "both": 1.0,
        "first": 0.5,
        "single": 0.0,
    }
    assert editloupe("replay", out)[0] == 0
    assert editloupe("show", out, "both")[0] == 0


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("plan", "raised in plan: KeyError: 'no such column' (faulty.py, line 36)"),
        ("twice", "planned the same task twice: right, b"),
        ("forever", "plans without an end: more than 1,000 tasks"),
        ("chain", "plans without an end: right, b, 9 would be asked after 8 questions that follow one from another's"),
        ("role", "planned a task on the role 'nobody'; it declares judge"),
        ("measure", "planned the measure 'no-such-measure'; installed are"),
        ("op", "planned a view with the op 'blur'; known are whole, crop"),
        ("crop", "planned right, b: view 'Edited Image': op 'crop' cannot use its parameters (ValueError: a crop needs a"),
        ("off", "planned right, b: view 'Edited Image': op 'crop' cannot use its parameters (ValueError: box [0, 0, 999,"),
        ("outline", "planned right, b: view 'Edited Image': op 'outline' cannot use its parameters (error: OpenCV"),
        ("empty", "raised in plan: ConfigError: expected at least 2 answers to choose from, found 0"),
        ("fold", "raised in plan: ConfigError: an option 'yes' of 'yes' reads the same as 'Yes.'"),
        ("origin", "planned a task (right, b) with the view 'Edited Image' of None; expected a picture of the sample"),
        ("crossed", "raised in plan: AttributeError: 'str' object has no attribute 'turns' (faulty.py, line 67)"),
        ("score", "raised in score: ZeroDivisionError: division by zero (faulty.py, line 84)"),
    ],
)
def test_a_fault_of_a_protocol_names_package_and_place_and_other_samples_go_on(
    fault: str, message: str, tmp_path: Path, editloupe: Cli
) -> None:
    code, said, err = editloupe(*faulty_words(tmp_path, fault))
    assert code == 3, said + err
    rows = {row["sample"]: row for row in Run(tmp_path / "run").frame().to_dicts()}
    assert {id_: rows[id_]["value"] for id_ in "abc"} == {"a": 1.0, "b": None, "c": 1.0}
    told = " ".join((said + err).split()) + str(rows["b"]["reason"])
    assert f"protocol 'faulty' (editloupe-toys 0.1) {message}" in told, told


def test_a_metric_that_is_asked_under_another_id_ends_the_run_with_its_name(tmp_path: Path, editloupe: Cli) -> None:
    code, _, err = editloupe(*faulty_words(tmp_path, "misspelt"))
    told = "protocol 'faulty' (editloupe-toys 0.1) declares 'right' and scored it for no sample; it asked 'rihgt'"
    assert code == 1 and told in " ".join(err.split()), err
