"""`editloupe import` of the result files of GEdit-Bench, ImgEdit-Bench and KRIS-Bench: what was no verdict is no number."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.data.benchmarks import draw, gedit, imgedit, kris, write

Program = Callable[..., tuple[int, str, str]]


def findings(run: Path) -> dict[tuple[str, str], tuple[str, float | None]]:
    """(sample, metric) → (status, value)."""
    rows = map(json.loads, (run / "findings.jsonl").read_text().splitlines())
    return {(r["sample_id"], r["metric"]): (r["status"], (r["answer"] or {}).get("value")) for r in rows}


def joined(text: str) -> str:
    return " ".join(text.split())


HEADER = "source_image,edited_image,instruction,sementics_score,quality_score,intersection_exist,instruction_language\n"


def score_file(folder: Path, task: str, *lines: str, language: str = "all") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"bagel_{task}_{language}_vie_score.csv").write_text(HEADER + "".join(f"{line}\n" for line in lines))


def gedit_line(key: str, language: str, instruction: str, sc: str, pq: str) -> str:
    place = f"save/bagel/fullset/subject-add/{language}/{key}"
    return f"{place}_SRCIMG.png,{place}.png,{instruction},{sc},{pq},True,{language}"


def test_gedit_scores_are_read_and_a_guess_that_cannot_be_told_is_said_to_be_one(
    editloupe: Program, tmp_path: Path
) -> None:
    gedit(tmp_path / "data")
    lines = (gedit_line("k1", "en", "Add a cat.", "4", "9"), gedit_line("k1", "cn", "加一只猫。", "11", "nan"))
    score_file(tmp_path / "results", "subject-add", *lines)
    (tmp_path / "results" / "bagel_my_task_en_vie_score.csv").write_text(HEADER)
    code, out, err = editloupe("import", "gedit", "results", "--data", "data", "--out", "run")
    assert code == 0, err
    assert "files of other names are not read: 1: bagel_my_task_en_vie_score.csv; expected MODEL_TASK_TYPE" in joined(err)
    assert findings(tmp_path / "run") == {
        ("k1.en", "semantic_consistency"): ("ok", 4.0),
        ("k1.en", "perceptual_quality"): ("ok", 9.0),
        ("k1.cn", "semantic_consistency"): ("off_menu", None),
        ("k1.cn", "perceptual_quality"): ("unparsed", None),
    }
    said = joined(err)
    assert (
        "2 scores have no reason: a random number of 0 to 10, which the script writes for a reply that it cannot read"
        in said
    )
    assert "editor 'bagel': scores that are off_menu (sementics_score is off the scale of 0 to 10): 1" in said
    # √(4 · 9) = 6.
    assert "bagel en subject-add O 6.0000 1 6.0000 (1/1) +0.0000" in joined(out)
    code, out, err = editloupe("report", "run")
    assert code == 0, err
    code, _, err = editloupe("compare", "run", "run")
    assert "Traceback" not in err


def test_imgedit_means_of_less_than_three_aspects_are_no_score(editloupe: Program, tmp_path: Path) -> None:
    imgedit(tmp_path / "data")
    replies = {
        "1082": "Brief reasoning: fine.\nPrompt Compliance: 5\nVisual Seamlessness: 4\nPhysical & Detail Fidelity: 4",
        "673": "Brief reasoning: cut off.\nStyle Fidelity: 1",
    }
    write(tmp_path / "results/bagel/result.json", replies)
    code, out, err = editloupe("import", "imgedit", "results", "--data", "data", "--out", "run")
    assert code == 0, err
    assert findings(tmp_path / "run") == {
        ("1082", "overall"): ("ok", pytest.approx(13 / 3)),
        ("673", "overall"): ("unparsed", None),
    }
    assert "editor 'bagel': scores that are unparsed (1 of 3 aspects have a number): 1" in joined(err)
    # The script's mean of style is that of one aspect, 1; here none is left.
    assert "bagel adjust Overall 4.3300 1 4.3333 (1/1) +0.0033" in joined(out)
    assert "bagel style Overall 1.0000 1 – (0/1) –" in joined(out)


def test_imgedit_errors_and_missing_outputs_are_statuses(editloupe: Program, tmp_path: Path) -> None:
    imgedit(tmp_path / "data")
    write(tmp_path / "results/bagel/result.json", {"1082": {"error": "Connection error."}})
    draw(tmp_path / "results/bagel/1082.png", 1, edited=True)
    code, _, err = editloupe("import", "imgedit", "results", "--data", "data", "--out", "run")
    assert code == 0, err
    assert findings(tmp_path / "run") == {
        ("1082", "overall"): ("backend_failed", None),
        ("673", "overall"): ("missing_output", None),
    }


def test_imgedit_replies_off_the_scale_are_no_score(editloupe: Program, tmp_path: Path) -> None:
    imgedit(tmp_path / "data")
    write(tmp_path / "results/bagel/result.json", {"1082": "A: 7\nB: 4\nC: 4", "673": 3, "9": "A: 1\nB: 1\nC: 1"})
    code, _, err = editloupe("import", "imgedit", "results", "--data", "data", "--out", "run")
    assert code == 0 and "bagel/result.json, key '9': the data has no sample '9'" in joined(err)
    assert findings(tmp_path / "run") == {("1082", "overall"): ("off_menu", None), ("673", "overall"): ("unparsed", None)}


def test_kris_scores_asked_without_an_instruction_are_no_verdicts(editloupe: Program, tmp_path: Path) -> None:
    kris(tmp_path / "data")
    scores = {
        "instruction": "", "explain": "", "consistency_score": 4, "consistency_reasoning": "Same.", "instruction_score": 1,
        "instruction_reasoning": "Nothing was asked.", "quality_score": 5, "quality_reasoning": None,
    }  # fmt: skip
    full = {**scores, "instruction": "Draw the front view.", "instruction_score": None, "knowledge_score": 2}
    write(tmp_path / "results/bagel/viewpoint_change/metrics.json", {"1": scores})
    write(tmp_path / "results/bagel/biology/metrics.json", {"1": full})
    code, _, err = editloupe("import", "kris", "results", "--data", "data", "--out", "run")
    assert code == 0, err
    assert findings(tmp_path / "run") == {
        ("viewpoint_change-1", "consistency"): ("input_error", None),
        ("viewpoint_change-1", "instruction"): ("input_error", None),
        ("viewpoint_change-1", "quality"): ("ok", 5.0),
        ("biology-1", "consistency"): ("ok", 4.0),
        ("biology-1", "instruction"): ("unparsed", None),
        ("biology-1", "quality"): ("ok", 5.0),
        ("biology-1", "knowledge"): ("ok", 2.0),
    }
    said = joined(err)
    assert "scores that are input_error (asked without the instruction): 2" in said
    # Two of quality, one of knowledge.
    assert "scores without reasoning: 3; the script takes the first digit of 1 to 5 where a reply has no score" in said
    assert editloupe("report", "run")[0] == 0


def test_kris_entries_about_another_instruction_do_not_count(editloupe: Program, tmp_path: Path) -> None:
    kris(tmp_path / "data")
    write(tmp_path / "results/bagel/biology/metrics.json", {"1": {"instruction": "Other.", "quality_score": 5}})
    code, _, err = editloupe("import", "kris", "results", "--data", "data", "--out", "run")
    assert code == 2 and "no entry is about a sample of data" in joined(err)
    assert "its instruction is text 'Other.', and the data's 'Draw the front view.'" in joined(err)


@pytest.mark.parametrize(
    ("name", "make", "file", "text", "expected"),
    [
        (
            "gedit",
            gedit,
            "bagel_tone_transfer_en_vie_score.csv",
            "key,score\n1,2\n",
            "no column 'sementics_score'; expected MODEL_",
        ),
        (
            "gedit",
            gedit,
            "other_score.csv",
            HEADER,
            "files of other names or places: 1: other_score.csv",
        ),
        ("imgedit", imgedit, "result.json", "[]", "expected an object, found the list []"),
        ("imgedit", imgedit, "other.json", "{}", "no result file; expected EDITOR/result.json"),
        ("kris", kris, "bagel/biology/metrics.json", '{"1": 5}', "expected an object with scores, found the number 5"),
        ("kris", kris, "bagel/biology/metrics.json", "{", "cannot be read"),
    ],
)
def test_other_files_are_refused_with_what_was_expected(
    editloupe: Program, tmp_path: Path, name: str, make: Callable[[Path], None], file: str, text: str, expected: str
) -> None:
    make(tmp_path / "data")
    (tmp_path / "results" / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "results" / file).write_text(text)
    code, _, err = editloupe("import", name, "results", "--data", "data", "--out", "run")
    assert code == 2 and expected in joined(err)


def test_nothing_can_be_judged_by_it(editloupe: Program, tmp_path: Path) -> None:
    imgedit(tmp_path / "data")
    code, _, err = editloupe("judge", "data", "--edited", "bagel=data/out", "--protocol", "published", "--out", "run")
    assert code == 2 and "the protocol 'published' asks nothing" in joined(err)
