"""Protocols and measures of an installed package, through every command, with numbers worked by hand."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from editloupe import plugins
from editloupe.runs.store import RunStore
from tests.toys.install import install

Cli = Callable[..., tuple[int, str, str]]

COLOURS = ["red", "green", "cannot tell"]

ROWS: dict[str, list[dict[str, Any]]] = {
    # √(8·2) = 4 and √(9·4) = 6; the third edit has no readable first answer.
    "stars": [
        {"id": "a", "instruction": "Make it red. [follows=8 keeps=2]"},
        {"id": "b", "instruction": "Make it red. [follows=9 keeps=4]"},
        {"id": "c", "instruction": "Make it red. [follows=mumble keeps=5]"},
    ],
    # One right, one wrong, one that cannot tell: 1 of 2.
    "choice": [
        {"id": "a", "options": COLOURS, "answer": "red", "question": "Which colour? picks=red"},
        {"id": "b", "options": COLOURS, "answer": "red", "question": "Which colour? picks=green"},
        {"id": "c", "options": COLOURS, "answer": "red", "question": "Which colour? picks=cannot_tell"},
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
    # 8 × 8 of 64 × 32 pixels are another colour: 1/32. The picture of c has no red at all.
    "pixels": [{"id": "a"}, {"id": "b"}, {"id": "c", "colour": [0, 90, 200]}],
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

BACKENDS: dict[str, list[str]] = {
    "stars": ["--backend", "toy/judge"],
    "choice": ["--backend", "toy/judge"],
    "turns": ["--backend", "toy/judge"],
    "pixels": [],
    "checklist": ["--backend", "toy/judge"],
    "objects": ["--backend", "toy/judge", "--role", "parser=toy/reader"],
}

VALUES: dict[str, dict[tuple[str, int, str, str], float | str]] = {
    # (sample, turn, part, metric) → value, or why it is missing
    "stars": {
        ("a", 0, "", "overall"): 4.0,
        ("b", 0, "", "overall"): 6.0,
        ("c", 0, "", "overall"): "unparsed",
        ("c", 0, "", "keeps"): 5.0,
    },
    "choice": {("a", 0, "", "accuracy"): 1.0, ("b", 0, "", "accuracy"): 0.0, ("c", 0, "", "accuracy"): "abstained"},
    "turns": {
        ("a", 0, "", "passed"): 1.0,
        ("b", 0, "", "passed"): 0.0,
        ("c", 0, "", "passed"): 0.0,
        ("b", 1, "", "passed"): 1.0,
        ("b", 2, "", "passed"): 0.0,
        ("b", 3, "", "passed"): 1.0,
        ("c", 3, "", "passed"): 0.0,
    },
    "pixels": {
        ("a", 0, "", "share"): 1 / 32,
        ("b", 0, "", "share"): 1 / 32,
        ("c", 0, "", "share"): 1 / 32,
        # 200 on 1/32 of the pixels, 40 elsewhere.
        ("a", 0, "", "red"): (200 + 31 * 40) / 32,
        ("c", 0, "", "red"): "not_defined",
    },
    "checklist": {("a", 0, "", "holds"): 1.0, ("b", 0, "", "holds"): 0.5, ("c", 0, "", "holds"): "unparsed"},
    "objects": {("a", 0, "", "kept"): 0.5, ("b", 0, "", "kept"): 1.0},
}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The toy package, installed for this process and its children."""
    site = install(tmp_path_factory.mktemp("site"))
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), str(Path(__file__).parents[2]), before]))
    sys.path.insert(0, str(site))
    plugins.forget()
    yield site
    sys.path.remove(str(site))
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
    plugins.forget()


@pytest.fixture
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
        base = np.full((32, 64, 3), 40 if "colour" not in row else 0, np.uint8)
        base[..., 2] = 40 + number
        Image.fromarray(base).save(folder / f"{row['id']}.png")
        turns = row.get("turns") or [row.get("instruction", "Make it red.")]
        made = []
        for turn, instruction in enumerate(turns, 1):
            edited = base.copy()
            edited[:8, 8 * turn : 8 * turn + 8] = row.get("colour", [200, 20, 20])
            Image.fromarray(edited).save(folder / f"{row['id']}-{turn}.png")
            made.append({"instruction": instruction, "edited": f"{row['id']}-{turn}.png"})
        extra = {key: row[key] for key in ("options", "answer", "question", "objects") if key in row}
        listed.append({"id": row["id"], "source": f"{row['id']}.png", "turns": made, **extra})
    (folder / "samples.json").write_text(json.dumps(listed))
    return folder


def judge_words(protocol: str, data: Path, out: Path) -> list[str | Path]:
    return ["judge", data, "--protocol", protocol, *BACKENDS[protocol], "--out", out, "--fail-on-error", "1"]


@pytest.mark.parametrize("protocol", ROWS)
def test_a_protocol_of_another_package_goes_through_every_command(
    protocol: str, site: Path, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    data, out = draw(tmp_path / "data", protocol), tmp_path / "run"
    code, said, err = editloupe(*judge_words(protocol, data, out))
    assert code == 0, err
    assert len(calls()) == CALLS[protocol]
    if protocol == "objects":
        assert calls().count("toy/reader") == 2
    # The same command again asks nobody.
    code, said, err = editloupe(*judge_words(protocol, data, out))
    assert (code, len(calls())) == (0, CALLS[protocol]), err

    from editloupe import Run

    frame = Run(out).frame()
    found = {
        (row["sample"], row["turn"], row["part"], row["metric"]): row["missing"] if row["value"] is None else row["value"]
        for row in frame.to_dicts()
    }
    for place, value in VALUES[protocol].items():
        assert found[place] == (pytest.approx(value) if isinstance(value, float) else value), place

    code, said, err = editloupe("replay", out)
    assert code == 0, said + err
    code, said, err = editloupe("show", out)
    assert code == 0, err
    assert all(f" {row['id']} " in said for row in ROWS[protocol]), said
    code, said, err = editloupe("show", out, "a")
    assert code == 0, err
    code, said, err = editloupe("report", out)
    assert code == 0 and said.strip(), err
    code, said, err = editloupe("export", out, "--html", tmp_path / "pages")
    assert code == 0, err
    assert any("a" in page.read_text(encoding="utf-8") for page in (tmp_path / "pages").rglob("*.html"))
    code, said, err = editloupe("gate", out, "--require", "unjudged<=1")
    assert code == 0, said + err
    code, said, err = editloupe("gate", out, "--require", "unjudged<=-1")
    assert code in (2, 100), said + err
    if protocol == "turns":
        # One sample of three passes as a whole, whatever the first table shows.
        code, said, err = editloupe("gate", out, "--require", "mean(passed)>0.33", "--require", "mean(passed)<0.34")
        assert code == 0, said + err
    if protocol != "pixels":
        code, said, err = editloupe("rescore", out, "--option", "polite=true") if protocol == "stars" else (0, "", "")
        assert code == 0, said + err
    assert len(calls()) == CALLS[protocol]


def test_an_arena_of_three_editors_ranks_them_by_bradley_terry(
    site: Path, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    first_wins, folder = "[ab=first bc=first ac=first]", tmp_path / "data"
    folder.mkdir()
    rows = []
    for number, instruction in enumerate((first_wins, first_wins, "[ab=second bc=second ac=tie]")):
        for shade, name in enumerate(("source", *"abc")):
            Image.new("RGB", (64, 32), (40 + number, 40, 60 * shade)).save(folder / f"{number}-{name}.png")
        rows += [
            {
                "id": f"s{number}",
                "editor": editor,
                "source_file_name": f"{number}-source.png",
                "edited_file_name": f"{number}-{editor}.png",
                "instruction": instruction,
            }
            for editor in "abc"
        ]
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


def test_two_judges_of_another_packages_protocol_are_compared(
    site: Path, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    data, out = draw(tmp_path / "data", "stars"), tmp_path / "run"
    words = ["judge", data, "--protocol", "stars", "--backend", "toy/one", "--backend", "toy/two", "--out", out]
    code, said, err = editloupe(*words, "--fail-on-error", "1")
    assert code == 0, err
    code, said, err = editloupe("compare", out, "--json")
    assert code == 0, err
    assert "overall" in said


@pytest.mark.parametrize("protocol", ["turns", *(pytest.param(p, marks=pytest.mark.slow) for p in ("stars", "objects"))])
def test_a_killed_run_goes_on_without_a_second_call(
    protocol: str, site: Path, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    data, out = draw(tmp_path / "data", protocol), tmp_path / "run"
    words = [str(word) for word in judge_words(protocol, data, out)]
    killed = subprocess.run(
        [sys.executable, "-m", "editloupe", *words, "--concurrency", "1"],
        env={**os.environ, "TOY_DIE": "4"},
        capture_output=True,
        timeout=120,
        cwd=tmp_path,
    )
    assert killed.returncode == 137
    assert len(calls()) == 4
    code, _, err = editloupe(*words)
    assert code == 0, err
    # The call at which it died was never answered; all others are asked once.
    assert len(calls()) == CALLS[protocol] + 1


def test_a_run_whose_protocol_is_not_installed_says_so(
    site: Path, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    data, out = draw(tmp_path / "data", "choice"), tmp_path / "run"
    assert editloupe(*judge_words("choice", data, out))[0] == 0
    info = json.loads((out / "run.json").read_text())
    info["identity"]["protocol"] = "gone"
    (out / "run.json").write_text(json.dumps(info))
    other = shutil.copytree(out, tmp_path / "other")
    for words in (["report", out], ["compare", out, other], ["gate", out, "--require", "unjudged<=1"]):
        code, _, err = editloupe(*words)
        assert code == 2, words
        assert "gone" in err and "installed" in err, err
    config = out / "config.yaml"
    config.write_text(config.read_text(encoding="utf-8").replace("protocol: choice", "protocol: gone"), encoding="utf-8")
    for words in (["retry", out], ["rescore", out, "--option", "polite=true"]):
        code, _, err = editloupe(*words)
        told = f"{out} was judged by a protocol that is not installed here: unknown protocol 'gone'"
        assert code == 2 and told in err, err


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
    fault: str, message: str, site: Path, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    from editloupe import Run

    data, out = draw(tmp_path / "data", "faulty"), tmp_path / "run"
    words = ["--protocol", "faulty", "--option", f"fault={fault}", "--backend", "toy/judge", "--out", out]
    code, said, err = editloupe("judge", data, *words)
    assert code == 3, said + err
    frame = Run(out).frame()
    rows = {row["sample"]: row for row in frame.to_dicts()}
    assert {id_: rows[id_]["value"] for id_ in "abc"} == {"a": 1.0, "b": None, "c": 1.0}
    named = f"protocol 'faulty' (editloupe-toys 0.1) {message}"
    told = " ".join((said + err).split()) + str(rows["b"]["reason"])
    assert named in told, told


def test_a_metric_that_is_asked_under_another_id_ends_the_run_with_its_name(
    site: Path, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    data, out = draw(tmp_path / "data", "faulty"), tmp_path / "run"
    words = ["--protocol", "faulty", "--option", "fault=misspelt", "--backend", "toy/judge", "--out", out]
    code, _, err = editloupe("judge", data, *words)
    told = "protocol 'faulty' (editloupe-toys 0.1) declares 'right' and scored it for no sample; it asked 'rihgt'"
    assert code == 1 and told in " ".join(err.split()), err


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("float", "returned 7.0; expected an editloupe.answers.Answer"),
        ("float32", "returned np.float32(7.0); expected an editloupe.answers.Answer"),
        ("number of float32", "returned Number(value=np.float32(7.0), kind='number'); expected an"),
        ("status", "raised a MeasureError with the unknown status 'broken': it hurts"),
        ("ok", "raised a MeasureError with the unknown status 'ok': it hurts"),
    ],
)
def test_a_measure_that_breaks_its_contract_is_named_and_other_samples_go_on(
    what: str, message: str, site: Path, tmp_path: Path, editloupe: Cli
) -> None:
    data, out = draw(tmp_path / "data", "faulty"), tmp_path / "run"
    code, said, err = editloupe("judge", data, "--protocol", "wrong", "--option", f"what={what}", "--out", out)
    assert code == 3, said + err
    found = {f.sample_id: f for f in RunStore.read(out).findings.values()}
    assert {id_: (f.status, f.value) for id_, f in found.items()} == {
        "a": ("ok", 7.0),
        "b": ("tool_failed", None),
        "c": ("ok", 7.0),
    }
    assert found["b"].reason.startswith(f"measure 'toy-wrong' (editloupe-toys 0.1) {message}"), found["b"].reason


def test_a_measure_that_cannot_be_opened_stops_the_run_and_is_named(site: Path, tmp_path: Path, editloupe: Cli) -> None:
    data, out = draw(tmp_path / "data", "faulty"), tmp_path / "run"
    code, _, err = editloupe("judge", data, "--protocol", "wrong", "--option", "what=unopened", "--out", out)
    told = "measure 'toy-unopened' (editloupe-toys 0.1) cannot be opened: TypeError: no weights file"
    assert code == 2 and told in err, err


def test_a_fault_in_score_is_told_by_judge_and_by_report(
    site: Path, tmp_path: Path, editloupe: Cli, calls: Callable[[], list[str]]
) -> None:
    data, out = draw(tmp_path / "data", "faulty"), tmp_path / "run"
    words = ["judge", data, "--protocol", "faulty", "--option", "fault=score", "--backend", "toy/judge", "--out", out]
    told = "protocol 'faulty' (editloupe-toys 0.1) raised in score: ZeroDivisionError: division by zero"
    code, said, err = editloupe(*words)
    assert code == 3 and f"warning: {told}" in err and "; no score of b" in err, err
    assert "3 of 3 findings judged" in said and "1 sample has no score" in said, said
    # One of three is tolerated.
    code, said, err = editloupe(*words, "--fail-on-error", "0.4", "--json")
    done = next(line for line in map(json.loads, said.splitlines()) if line["event"] == "done")
    assert code == 0 and told in done["unscored"]["b"] and told in err
    code, said, err = editloupe("report", out)
    assert code == 0 and told in err and "; no score of b" in err
    assert told in (out / "report" / "report.md").read_text(encoding="utf-8")


def test_two_packages_with_one_protocol_name_are_named(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from editloupe.errors import ConfigError
    from editloupe.protocols.base import make_protocol

    points = "[editloupe.protocols]\nstars = editloupe_toys.turns:EveryTurn\n"
    other = install(tmp_path / "other", name="rival-toys", entry_points=points)
    monkeypatch.syspath_prepend(str(other))
    plugins.forget()
    with pytest.raises(ConfigError, match=r"'stars' comes from two packages, editloupe-toys 0\.1 and rival-toys 0\.1"):
        make_protocol("stars")
    plugins.forget()


@pytest.mark.parametrize(
    ("text", "message"),
    [("Gone = no_such_name", "NameError: name 'no_such_name' is not defined"), ("class Gone(", "SyntaxError: ")],
)
def test_a_package_that_cannot_be_imported_spoils_no_other(
    text: str, message: str, site: Path, tmp_path: Path, editloupe: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"broken_{message[:4].lower()}"
    other = install(tmp_path / "other", name="broken-toys", entry_points=f"[editloupe.protocols]\nbroken = {name}:Gone\n")
    (other / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(str(other))
    plugins.forget()
    code, said, err = editloupe("protocols")
    plugins.forget()
    assert code == 0, err
    assert "stars" in said and "broken-toys" in said
    assert f"protocol 'broken' (broken-toys 0.1, {name}:Gone) cannot be imported: {message}" in " ".join(err.split())


def test_one_name_and_one_value_in_two_packages_is_a_clash_and_one_package_twice_on_the_path_is_none(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from editloupe.errors import ConfigError

    monkeypatch.syspath_prepend(str(install(tmp_path / "again")))
    plugins.forget()
    assert plugins.load("protocols", "stars")
    points = "[editloupe.protocols]\nstars = editloupe_toys.stars:Stars\n"
    monkeypatch.syspath_prepend(str(install(tmp_path / "other", name="rival-toys", entry_points=points)))
    plugins.forget()
    with pytest.raises(ConfigError, match=r"'stars' comes from two packages, editloupe-toys 0\.1 and rival-toys 0\.1"):
        plugins.load("protocols", "stars")
    plugins.forget()


def test_options_that_do_not_fit_are_named_with_the_package(site: Path) -> None:
    from editloupe.errors import ConfigError
    from editloupe.protocols.base import make_protocol

    with pytest.raises(ConfigError, match=r"'stars' \(editloupe-toys 0\.1\): unknown option 'rude'; it has: polite"):
        make_protocol("stars", {"rude": 1})
    with pytest.raises(ConfigError, match=r"option polite: .*found 'perhaps'"):
        make_protocol("stars", {"polite": "perhaps"})
