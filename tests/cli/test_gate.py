"""`editloupe gate`: figures worked out by hand, exit codes, and the files that CI servers read."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from editloupe import Judge
from editloupe.backends.scripted import Line, ScriptedLMM
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from tests.conftest import Cli, draw_edits, final, refused

LABELS = ("Localization Failure", "Wrong Action", "Over Modification", "Flawless Execution")
IF = (4, 4, 3, 2, 1, None)
"""The judge's values by sample; the last is refused."""

HUMAN = "item,criterion,label\n" + "".join(
    f"s{i:02},IF,{value}\ns{i:02},VC,4\n" for i, value in enumerate((4, 4, 3, 2, 2, 4))
)


def script(request: Request) -> Line:
    text = request.messages[0].text
    if "Visual Consistency" in text:
        return final("Perfect Consistency")
    found = re.search(r"Make square (\d+) red", text)
    assert found is not None
    value = IF[int(found[1])]
    return Reply(text="I would rather not.", finish="refusal") if value is None else final(LABELS[value - 1])


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that no test writes to."""
    place = tmp_path_factory.mktemp("judged")
    with Judge(ScriptedLMM(script), mode="plain", out=place / "run") as judge:
        judge.judge_all(load(draw_edits(place / "edits", 6), store=ImageStore()).samples)
    (place / "human.csv").write_text(HUMAN)
    return place / "run"


FIGURES = (
    ("asked", 12),
    ("asked(if)", 6),
    ("judged(IF)", 5),
    ("unjudged", 1 / 12),
    ("status(refused)", 1 / 12),
    ("status(off_menu)", 0),
    # (100 + 100 + 200/3 + 100/3 + 0) / 5
    ("mean(if)", 60),
    ("mean(overall)", 80),
    # Change Color has 100, 200/3, 0; Removal Object 100, 100/3.
    ("macro(instruction_following)", (500 / 9 + 200 / 3) / 2),
    ("share(if, flawless-execution)", 2 / 5),
    ("exact(human, if)", 0.8),
    # Chance: (2·2 + 1·1 + 1·2 + 1·0) / 25 = 0.28.
    ("kappa(human, if)", 0.52 / 0.72),
    # Off by one in one of five.
    ("mae(human, if)", 0.2),
    ("bias(human, if)", -0.2),
)
"""What may be required, and its value in the run."""


def human_of(run: Path, text: str) -> tuple[str | Path, ...]:
    return ("--human", run.parent / "human.csv") if "human" in text else ()


def test_a_figure_is_what_it_says(editloupe: Cli, run: Path) -> None:
    for metric, value in FIGURES:
        words = ("--require", f"{metric} >= 0.5", "--format", "json")
        code, out, err = editloupe("gate", run, *words, *human_of(run, metric))
        (found,) = json.loads(out)["checked"]
        assert found["value"] == pytest.approx(value), (metric, err)
        assert found["verdict"] == ("passed" if value >= 0.5 else "failed") and code == (0 if value >= 0.5 else 100)


def test_what_fails_is_named_with_what_was_found(editloupe: Cli, run: Path, tmp_path: Path) -> None:
    human = ("--human", run.parent / "human.csv")
    words = ("--require", "unjudged<=0.02", "--require", "mean(if)>=60", "--require", "exact(human)>=0.9")
    code, out, err = editloupe("gate", run, *words, *human, "--junit", tmp_path / "ci" / "junit.xml")
    assert code == 100
    told = [line for line in err.splitlines() if line.startswith("error:")]
    assert told == [
        "error: unjudged<=0.02: 0.0833333 (1 refused of 12) [test, plain]",
        "error: exact(human)>=0.9 (IF): 0.8 (5 of 6 rated ones judged; 0.4 to 1) [test, plain]",
    ]
    assert f"Run: {run}" in out.replace("\n", "") and "2 of 4 requirements hold" in out
    (suite,) = ElementTree.parse(tmp_path / "ci" / "junit.xml").getroot()
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("4", "2", "0")
    cases = {case.get("name"): [child.tag for child in case] for case in suite}
    assert cases == {
        "unjudged<=0.02": ["failure"],
        "mean(if)>=60": ["system-out"],
        "exact(human)>=0.9 (IF)": ["failure"],
        "exact(human)>=0.9 (VC)": ["system-out"],
    }


def test_undefined_never_passes_and_says_why(editloupe: Cli, run: Path, tmp_path: Path) -> None:
    human = ("--human", run.parent / "human.csv")
    for require, why in (
        ("kappa(human, vc)>=-1", "gave one value only"),
        ("spearman(human, vc)>=-1", "gave one value only"),
        ("f1(human, if)>=0", "instruction_following has no f1"),
    ):
        code, _, err = editloupe("gate", run, "--require", require, *human, "--junit", tmp_path / "j.xml")
        assert code == 2 and "undefined" in err and why in err, err
        (case,) = ElementTree.parse(tmp_path / "j.xml").getroot()[0]
        assert [child.tag for child in case] == ["error"]
    # Beside a requirement that fails, that one decides.
    code, _, err = editloupe("gate", run, "--require", "kappa(human, vc)>=0", "--require", "mean(if)>=99", *human)
    assert code == 100 and err.count("error:") == 2


def test_labels_that_people_misspelled_are_named_as_compare_does(editloupe: Cli, run: Path, tmp_path: Path) -> None:
    human = tmp_path / "h.csv"
    human.write_text("picture,kind,mark\n" + "".join(f"s{i:02},IF,{v}\n" for i, v in enumerate((4, "Wrong Akt", 3, 2, 1))))
    words = (run, "--human", human, "--columns", "item=picture,criterion=kind,label=mark")
    told = "instruction_following: no label of the metric and left out: people's 'Wrong Akt' (1)"
    code, out, err = editloupe("gate", *words, "--require", "exact(human, if) >= 1", "--format", "json")
    # The four others agree.
    assert code == 0 and json.loads(out)["checked"][0]["value"] == 1.0 and told in " ".join(err.split())
    assert told in " ".join(editloupe("compare", *words, "--resamples", "100")[2].split())
    for command in (
        ("gate", run, "--require", "asked>=0"),
        ("compare", run),
        ("view", run),
        ("export", run, "--html", "x"),
    ):
        err = refused(editloupe, *command, "--columns", "item=picture")
        assert "name a table with --human FILE" in err, command


REFUSED = (
    ("beauty>=1", "unknown metric 'beauty'; known: asked, judged, unjudged"),
    ("mean(if)", "expected METRIC OPERATOR NUMBER"),
    ("mean(if)>=1e999", "expected METRIC OPERATOR NUMBER"),
    ("mean>=60", "expected mean(C), mean(overall)"),
    ("mean(beauty)>=60", "no metric 'beauty'"),
    ("status(ok)>=0", "no status 'ok'; known: abstained"),
    ("share(if, Perfect Consistency)>=0", "no label 'Perfect Consistency' of instruction_following"),
    ("kappa(people)>=0.6", "expected kappa(human)"),
    ("kappa(human)>=0.6", "carry no human labels"),
    ("unjudged<=2", "unjudged is at most 1; 2 % is 0.02"),
)
"""What cannot be required, and why."""


def test_what_cannot_be_required_is_refused(editloupe: Cli, run: Path, tmp_path: Path) -> None:
    for require, told in REFUSED:
        err = refused(editloupe, "gate", run, "--require", require, "--require", "asked>=0")
        assert told in err, require
    some = ("--require", "asked>=0")
    for words, told in (
        ((run,), "share(C, LABEL) share of this label among the verdicts of C, 0..1"),
        ((run,), "nothing is required; add one of these, such as --require 'unjudged<=0.02'"),
        ((tmp_path / "nowhere", *some), "is no run folder"),
        ((run, *some, "--judge", "gpt"), "no judge 'gpt'"),
    ):
        assert told in refused(editloupe, "gate", *words)
