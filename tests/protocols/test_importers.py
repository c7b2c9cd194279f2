"""Result files of benchmarks as findings: what was no verdict is no number, and what is left out is said.

`test_edival_results.py` has the files of EdiVal-Bench, `tests/cli/test_import.py` what becomes of a run.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.protocols.result_mapping import read_said
from editloupe.protocols.unicbench.results import UNICBENCH
from tests.data.benchmarks import gedit, imgedit, kris

Program = Callable[..., tuple[int, str, str]]


# ---- UnicBench --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("score", "reason", "status", "value"),
    [
        (7.25, "Fine.", "ok", 7.25),
        (0.0, "The wrong object was removed.", "ok", 0.0),
        (0, "", "ok", 0.0),
        (10, None, "ok", 10.0),
        (0, " Parse error ", "unparsed", None),
        (11, "Fine.", "off_menu", None),
        (-1.0, "Fine.", "off_menu", None),
        (10**400, "Fine.", "unparsed", None),
        (float("nan"), "Fine.", "unparsed", None),
        (float("inf"), "Fine.", "unparsed", None),
        ("8", "Fine.", "unparsed", None),
        (True, "Fine.", "unparsed", None),
        ([8], "Fine.", "unparsed", None),
        (None, "Fine.", "unparsed", None),
    ],
)
def test_only_a_number_of_the_scale_is_a_score(score: Any, reason: str | None, status: str, value: float | None) -> None:
    rule = UNICBENCH.mapping.metrics["instruction_following"]
    found = read_said("instruction_following", rule, {"if_score": score, "if_reason": reason})
    assert (found.status, found.answer and found.answer.value) == (status, value)
    assert found.status == "ok" or found.reason
    assert read_said("instruction_following", rule, {"nc_score": 8.0}).reason == "the row has no if_score"


# ---- GEdit-Bench, ImgEdit-Bench, KRIS-Bench ---------------------------------------------------------------------------

HEADER = "source_image,edited_image,instruction,sementics_score,quality_score,intersection_exist,instruction_language\n"


class Imports:
    """`editloupe import NAME results --data data --out run`, and what it says."""

    def __init__(self, editloupe: Program, root: Path, name: str, make: Callable[[Path], Any]) -> None:
        make(root / "data")
        code, out, err = editloupe("import", name, "results", "--data", "data", "--out", "run")
        self.code, self.out, self.err = code, " ".join(out.split()), " ".join(err.split())
        if code == 0:
            found = map(json.loads, (root / "run" / "findings.jsonl").read_text().splitlines())
            self.found = {(r["sample_id"], r["metric"]): (r["status"], (r["answer"] or {}).get("value")) for r in found}


def test_gedit_scores_are_read_and_a_guess_that_cannot_be_told_is_said_to_be_one(
    editloupe: Program, tmp_path: Path
) -> None:
    place = "save/bagel/fullset/subject-add/{0}/k1"
    lines = [f"{place}_SRCIMG.png,{place}.png,{{1}},{{2}},{{3}},True,{{0}}\n".format(*one) for one in (
        ("en", "Add a cat.", 4, 9), ("cn", "加一只猫。", 11, "nan"),
    )]  # fmt: skip
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "bagel_subject-add_all_vie_score.csv").write_text(HEADER + "".join(lines))
    (tmp_path / "results" / "bagel_my_task_en_vie_score.csv").write_text(HEADER)
    read = Imports(editloupe, tmp_path, "gedit", gedit)
    assert read.found == {
        ("k1.en", "semantic_consistency"): ("ok", 4.0),
        ("k1.en", "perceptual_quality"): ("ok", 9.0),
        ("k1.cn", "semantic_consistency"): ("off_menu", None),
        ("k1.cn", "perceptual_quality"): ("unparsed", None),
    }
    for said in (
        "2 scores have no reason: a random number of 0 to 10, which the script writes for a reply that it cannot read",
        "editor 'bagel': scores that are off_menu (sementics_score is off the scale of 0 to 10): 1",
    ):
        assert said in read.err, said
    # √(4 · 9) = 6.
    assert "bagel en subject-add O 6.0000 1 6.0000 (1/1) +0.0000" in read.out
    assert editloupe("report", "run")[0] == 0


@pytest.mark.parametrize(
    ("name", "make", "file", "text", "expected"),
    [
        (
            "gedit",
            gedit,
            "b_tone_transfer_en_vie_score.csv",
            "key,score\n1,2\n",
            "no column 'sementics_score'; expected MO",
        ),
        ("gedit", gedit, "other_score.csv", HEADER, "no result file; expected MODEL_TASK_TYPE"),
        ("imgedit", imgedit, "result.json", "[]", "expected an object, found the list []"),
        ("imgedit", imgedit, "other.json", "{}", "no result file; expected EDITOR/result.json"),
        ("kris", kris, "bagel/biology/metrics.json", '{"1": 5}', "expected an object with scores, found the number 5"),
        ("kris", kris, "bagel/biology/metrics.json", "{", "cannot be read"),
    ],
)
def test_other_files_are_refused_with_what_was_expected(
    editloupe: Program, tmp_path: Path, name: str, make: Callable[[Path], None], file: str, text: str, expected: str
) -> None:
    (tmp_path / "results" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "results" / file).write_text(text)
    read = Imports(editloupe, tmp_path, name, make)
    assert read.code == 2 and expected in read.err and not (tmp_path / "run").exists()
