"""Official result files as findings: a reply that nobody could read is no 0, and what is left out is said."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from editloupe.data.images import ImageStore
from editloupe.errors import DataError
from editloupe.findings import Finding
from editloupe.protocols.imported import Imported
from editloupe.protocols.result_mapping import ResultSaid, read_said
from editloupe.protocols.unicbench.results import UNICBENCH
from editloupe.protocols.unicbench.terms import METRICS
from tests.protocols.unicbench_files import edit, put, result, row, rows, write, write_results


def imported(tmp_path: Path, results: list[dict[str, Any]], *, given: list[dict[str, Any]] | None = None) -> Imported:
    """Results of one editor in English, with its outputs beside them."""
    given = rows() if given is None else given
    root, save = write(tmp_path / "unic", given), write_results(tmp_path / "results", results)
    edit(save / "bagel", given, ("en",))
    return UNICBENCH.read(save, data=root, edited={}, store=ImageStore())


def of(found: Imported, metric: str) -> dict[str, Finding]:
    return {finding.sample_id: finding for finding in found.findings if finding.metric == metric}


@pytest.mark.parametrize(
    ("score", "reason", "status", "value"),
    [
        (7.0, "Fine.", "ok", 7.0),
        (0.0, "The wrong object was removed.", "ok", 0.0),
        (0, "", "ok", 0.0),
        (7.25, "Fine.", "ok", 7.25),
        (10, None, "ok", 10.0),
        (0.0, "Parse error", "unparsed", None),
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
    found = said({"if_score": score, "if_reason": reason})
    assert (found.status, found.answer and found.answer.value) == (status, value)
    assert found.status == "ok" or found.reason


def said(row: dict[str, Any]) -> ResultSaid:
    return read_said("instruction_following", UNICBENCH.mapping.metrics["instruction_following"], row)


def test_a_row_without_the_key_has_no_score() -> None:
    assert said({"nc_score": 8.0}).reason == "the row has no if_score"
    assert said({"if_score": 0.0, "if_reason": "Parse error"}).reason.startswith("Parse error; ")


@pytest.mark.parametrize("below", [".", "bagel", "bagel/eval_output", "bagel/eval_output/gpt-4.1"])
def test_files_are_found_below_any_folder_of_the_official_tree(tmp_path: Path, below: str) -> None:
    save = write_results(tmp_path, [result(one) for one in rows(1)])
    write_results(tmp_path, [result(one, "cn") for one in rows(1)], language="cn")
    (save / "bagel" / "eval_output" / "gpt-4.1" / "statistics").mkdir()
    (save / "bagel" / "eval_output" / "gpt-4.1" / "statistics" / "en_statistics.json").write_text("{}")
    found, _ = UNICBENCH.files(save / below)
    assert Counter((its["editor"], its["judge"], its["language"]) for _, its in found) == {
        ("bagel", "gpt-4.1", "en"): 4,
        ("bagel", "gpt-4.1", "cn"): 4,
    }


@pytest.mark.parametrize("given", ["nothing", "file", "gone", "elsewhere"])
def test_a_folder_without_result_files_is_refused(tmp_path: Path, given: str) -> None:
    folder = tmp_path / "results"
    if given == "file":
        folder.write_text("")
    elif given != "gone":
        folder.mkdir()
    if given == "elsewhere":
        (folder / "Tone_Transformation_en_results.jsonl").write_text("{}\n")
    said = {
        "nothing": "no result file; expected MODEL/eval_output/JUDGE/SUBTASK_en",
        "file": "is a file; expected a folder with",
        "gone": "no such folder",
        "elsewhere": "files of other names or places: 1: Tone_Transformation_en_results.jsonl",
    }
    with pytest.raises(DataError, match=said[given]):
        UNICBENCH.files(folder)


def test_scores_become_findings_of_the_judge_that_its_folder_names(tmp_path: Path) -> None:
    given = rows()
    found = imported(tmp_path, [result(one) for one in given])
    assert list(found.judges) == ["gpt-4.1"]
    spec = found.judges["gpt-4.1"]
    assert (spec.kind, spec.backend, spec.endpoint) == ("lmm", "imported/unicbench/gpt-4.1", "recorded elsewhere")
    assert spec.sampling.temperature is None
    # Three metrics of 8 samples, and RA of the 2 of Reasoning Editing.
    assert Counter(f.metric for f in found.findings) == dict(zip(METRICS.values(), (8, 8, 8, 2), strict=True))
    first = of(found, "instruction_following")[f"{given[0]['key']}.en"]
    assert (first.status, first.value, first.reason, first.editor) == ("ok", 9.0, "Because of if.", "bagel")
    assert first.judge_id == spec.id and len({finding.key for finding in found.findings}) == len(found.findings)
    assert all(sample.edited is not None for sample in found.loaded.samples) and len(found.loaded.samples) == 8
    assert "editor 'bagel', judge 'gpt-4.1', en: 8 of 8 samples have an entry" in found.notes


def test_zeros_of_replies_that_could_not_be_read_are_unparsed(tmp_path: Path) -> None:
    given = rows()
    results = [result(one) for one in given]
    results[0] = result(given[0], scores={"if": "Parse error"})
    results[1] = result(given[1], scores={"if": 0.0})
    found = imported(tmp_path, results)
    said = of(found, "instruction_following")
    assert said[f"{given[0]['key']}.en"].status == "unparsed" and said[f"{given[0]['key']}.en"].answer is None
    assert (said[f"{given[1]['key']}.en"].status, said[f"{given[1]['key']}.en"].value) == ("ok", 0.0)
    # Published: (6 × 9 + 0 + 0) / 8.
    published = {one.metric: (one.mean, one.count) for one in found.published}
    assert published["instruction_following"] == (6.75, 8)
    assert published["reasoning_accuracy"] == (6.0, 2)
    # Two rows have 0, four the cube root of 9 × 8 × 7, and two the fourth root of 9 × 8 × 7 × 6.
    assert published["overall"][0] == pytest.approx((4 * 504 ** (1 / 3) + 2 * 3024 ** (1 / 4)) / 8)
    assert "editor 'bagel', judge 'gpt-4.1', en: scores that are unparsed (Parse error): 1" in found.notes


def test_scores_off_the_scale_are_statuses_and_no_numbers(tmp_path: Path) -> None:
    given = rows()
    results = [result(one) for one in given]
    results[0] = result(given[0], scores={"if": 11.0, "nc": -2.0, "vq": float("nan")})
    del results[1]["vq_score"]
    results[6] = result(given[6], scores={"ra": None})
    found = imported(tmp_path, results)
    first = {finding.metric: finding.status for finding in found.findings if finding.sample_id == f"{given[0]['key']}.en"}
    assert list(first.values()) == ["off_menu", "off_menu", "unparsed"]
    assert of(found, "visual_quality")[f"{given[1]['key']}.en"].reason == "the row has no vq_score; Because of vq."
    reasoning = of(found, "reasoning_accuracy")[f"{given[6]['key']}.en"]
    assert (reasoning.status, reasoning.reason) == ("unparsed", "the row has no ra_score")
    assert all(finding.value is None for finding in found.findings if finding.status != "ok")
    means = {one.metric: (one.mean, one.count) for one in found.published}
    assert means["visual_quality"] == (None, 7) and means["reasoning_accuracy"] == (6.0, 1)
    assert means["instruction_following"] == ((7 * 9 + 11) / 8, 8)
    notes = "\n".join(found.notes)
    assert "scores that are off_menu (if_score is off the scale of 0 to 10): 1" in notes
    assert "scores that are unparsed (the row has no ra_score): 1" in notes


def test_a_part_of_the_files_leaves_the_rest_not_judged_or_missing(tmp_path: Path) -> None:
    given = rows()
    root, save = write(tmp_path / "unic", given), write_results(tmp_path / "results", [result(one) for one in given[:5]])
    edit(save / "bagel", given[:6], ("en",))
    found = UNICBENCH.read(save, data=root, edited={}, store=ImageStore())
    statuses = {key: finding.status for key, finding in of(found, "instruction_following").items()}
    assert list(statuses.values()) == ["ok"] * 5 + ["missing_output"] * 2
    assert f"{given[5]['key']}.en" not in statuses and len(found.loaded.samples) == 8
    # The two without an output are of Reasoning Editing, which is asked for RA too.
    assert [finding.status for finding in of(found, "reasoning_accuracy").values()] == ["missing_output"] * 2
    said = "editor 'bagel', judge 'gpt-4.1', en: 5 of 8 samples have an entry; missing outputs: 2; not judged yet: 1"
    assert said in found.notes


def test_without_outputs_the_scores_are_read_all_the_same(tmp_path: Path) -> None:
    given = rows()
    root, save = write(tmp_path / "unic", given), write_results(tmp_path / "results", [result(one) for one in given[:7]])
    found = UNICBENCH.read(save, data=root, edited={}, store=ImageStore())
    assert all(sample.edited is None for sample in found.loaded.samples)
    assert {finding.status for finding in found.findings} == {"ok"} and len(of(found, "visual_quality")) == 7
    notes = "\n".join(found.notes)
    assert "7 of 8 samples have an entry; not judged yet: 1" in notes
    assert "no outputs beside the results of bagel: pages show the sources alone; name them with --edited" in notes
    named = UNICBENCH.read(save, data=root, edited={"bagel": edit(tmp_path / "else", given)}, store=ImageStore())
    assert all(sample.edited is not None for sample in named.loaded.samples)
    with pytest.raises(DataError, match=r"--edited omni: no result of this editor below .*; there are bagel"):
        UNICBENCH.read(save, data=root, edited={"omni": tmp_path / "else"}, store=ImageStore())
    with pytest.raises(DataError, match="no image there belongs to any row; saw 'a'"):
        UNICBENCH.read(save, data=root, edited={"bagel": put(tmp_path / "empty" / "a.png").parent}, store=ImageStore())


def test_an_output_that_cannot_be_read_costs_its_picture_alone(tmp_path: Path) -> None:
    given = rows()
    root = write(tmp_path / "unic", given)
    save = write_results(tmp_path / "results", [result(one) for one in (given[0], *given[2:])])
    edit(save / "bagel", given, ("en",))
    for one in given[:2]:
        put(save / "bagel" / "Background_Change" / "en" / f"{one['key']}.png", b"")
    found = UNICBENCH.read(save, data=root, edited={}, store=ImageStore())
    sample = found.loaded.samples[0]
    assert sample.edited is None and "the file is empty" in sample.warnings[-1]
    said = of(found, "visual_quality")
    assert said[sample.id].status == "ok"
    # The script leaves out a sample whose output it cannot open.
    other = said[f"{given[1]['key']}.en"]
    assert other.status == "input_error" and "the file is empty" in other.reason
    assert any("7 of 8 samples have an entry; outputs that cannot be read: 1" in note for note in found.notes)


def test_rows_that_are_not_about_the_data_are_named_and_not_counted(tmp_path: Path) -> None:
    given = rows()
    strange = {**row(999), "subtask": "Background Change"}
    results = [result(one) for one in given]
    results[0] |= {"instruction": "Replace the sky."}
    results[1] |= {"instruction_language": "cn"}
    found = imported(tmp_path, [*results, result(strange), result(given[2], scores={"if": 1.0})])
    notes = "\n".join(found.notes)
    assert "entries not counted: 4: " in notes and f"line 3: the data has no sample '{999:032x}.en'" in notes
    assert "its instruction is text 'Replace the sky.', and the data's 'Replace background 0 with city lights.'" in notes
    counted = of(found, "instruction_following")
    # The first of two rows about one sample counts; the published mean is of all ten.
    assert len(counted) == 6 and counted[f"{given[2]['key']}.en"].value == 9.0
    assert next(one.count for one in found.published if one.metric == "instruction_following") == 10


def test_a_file_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    given = rows()
    root, save = write(tmp_path / "unic", given), write_results(tmp_path / "results", [result(one) for one in given])
    file = save / "bagel" / "eval_output" / "gpt-4.1" / "Background_Change_en_results.jsonl"
    file.write_bytes(file.read_bytes()[:-30])
    found = UNICBENCH.read(save, data=root, edited={}, store=ImageStore())
    assert len(of(found, "instruction_following")) == 7
    (said,) = [note for note in found.notes if "entries not counted: 1: " in note]
    assert "Background_Change_en_results.jsonl, line 2: not read: " in said


def test_several_judges_editors_and_languages_stand_beside_one_another(tmp_path: Path) -> None:
    given = rows()
    root, save = write(tmp_path / "unic", given), tmp_path / "results"
    for editor, judge, language in (("a", "gpt-4.1", "en"), ("a", "qwen25vl", "en"), ("b", "gpt-4.1", "cn")):
        its = [result(one, language) for one in given]
        write_results(save, its, editor=editor, judge=judge, language=language)
    found = UNICBENCH.read(save, data=root, edited={}, store=ImageStore())
    assert sorted(found.judges) == ["gpt-4.1", "qwen25vl"]
    assert Counter((s.editor, s.extra["language"]) for s in found.loaded.samples) == {("a", "en"): 8, ("b", "cn"): 8}
    names = {spec.id: name for name, spec in found.judges.items()}
    assert Counter((names[f.judge_id], f.editor) for f in found.findings) == {
        ("gpt-4.1", "a"): 26,
        ("qwen25vl", "a"): 26,
        ("gpt-4.1", "b"): 26,
    }


def test_data_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    save = write_results(tmp_path / "results", [result(one) for one in rows()])
    (tmp_path / "bare").mkdir()
    (tmp_path / "bare" / "test_data.jsonl").write_text("".join(json.dumps(one) + "\n" for one in rows()))
    with pytest.raises(DataError, match=r"no sample can be used, and a finding needs one with its source image: .*no such"):
        UNICBENCH.read(save, data=tmp_path / "bare", edited={}, store=ImageStore())
    other = write(tmp_path / "other", [row(500)])
    with pytest.raises(
        DataError, match=r"no entry is about a sample of .*; name the data that was judged: .*has no sample"
    ):
        UNICBENCH.read(save, data=other, edited={}, store=ImageStore())
