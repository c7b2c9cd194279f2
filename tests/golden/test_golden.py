"""What users see of run folders that version 0.1.0 wrote, word for word: one file in `expected/` for each command.

EDITLOUPE_GOLDEN=write writes the files anew; the difference is then to be read like any other change.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import shlex
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent
RUNS = sorted(path.name for path in (HERE / "runs_v1").iterdir())
WRITE = os.environ.get("EDITLOUPE_GOLDEN") == "write"

PRICES = '[models."golden/strict"]\ninput = 1.0\noutput = 10.0\n\n[models."golden/lenient"]\ninput = 0.5\noutput = 2.0\n'
RATINGS = """editor,id,if_ann,if_ben,vc_ann
alpha,mug-sand,Flawless Execution,Flawless Execution,Perfect Consistency
alpha,mug-rose,Over Modification,Flawless Execution,Single Anomaly
beta,mug-sand,Localization Failure,Localization Failure,Perfect Consistency
beta,mug-rose,Over Modification,Over Modification,Single Anomaly
"""

GATE = "--require 'mean(if)>=60' --require 'unjudged(if)<=0.02' --require 'share(if, Flawless Execution)>=0.4'"
PEOPLE = "--require 'kappa(human)>=0.5' --require 'spearman(human, if)>=0.95' --require 'mae(human, if)<=0.3'"

CASES: dict[str, str] = {
    **{f"{run}/report": f"report {run} --out OUT" for run in RUNS},
    **{f"{run}/report-json": f"report {run} --json" for run in ("missing_and_rejected", "oracle_with_targets", "repeats")},
    **{f"{run}/show": f"show {run}" for run in RUNS},
    **{f"{run}/gate": f"gate {run} {GATE}" for run in RUNS},
    **{f"{run}/replay-json": f"replay {run} --json" for run in ("baseline_tool", "missing_and_rejected")},
    "baseline_tool/show-sample": "show baseline_tool mug-sand",
    "baseline_tool/replay-live-tools": "replay baseline_tool --observations live",
    "baseline_tool/report-markdown": "report baseline_tool --markdown",
    "baseline_tool/compare": "compare baseline_tool --resamples 200",
    "missing_and_rejected/align": "align missing_and_rejected",
    "missing_and_rejected/gate-json": "gate missing_and_rejected --require 'status(refused)<=0.05' --json",
    "missing_and_rejected/gate-people": "gate missing_and_rejected --require 'kappa(human)>=0.5'",
    "missing_and_rejected/report-markdown": "report missing_and_rejected --markdown",
    "missing_and_rejected/rescore": "rescore missing_and_rejected --rubric dlebench",
    "missing_and_rejected/show-sample": "show missing_and_rejected mug-mint",
    "oracle_with_targets/align": "align oracle_with_targets --human ratings.csv --resamples 200",
    "oracle_with_targets/align-csv": "align oracle_with_targets --human ratings.csv --resamples 200 --csv",
    "oracle_with_targets/report-markdown": "report oracle_with_targets --markdown",
    "oracle_with_targets/rescore": "rescore oracle_with_targets --rubric dlebench",
    "oracle_with_targets/show-sample": "show oracle_with_targets alpha/mug-rose",
    "repeats/compare-one-judge": "compare repeats",
    "repeats/compare-equal-cost": "compare repeats scripted_two_judges --equal-cost --resamples 200",
    "repeats/report-two-runs": "report repeats scripted_two_judges --out OUT",
    "repeats/rescore": "rescore repeats --rubric dlebench --json",
    "repeats/show-repeat": "show repeats mug-sand --repeat 2",
    "scripted_two_judges/compare": "compare scripted_two_judges --resamples 200 --out OUT",
    "scripted_two_judges/compare-prices": (
        "compare scripted_two_judges --prices prices.toml --judges 'lenient judge,strict judge' --resamples 200 --json"
    ),
    "scripted_two_judges/report-markdown": "report scripted_two_judges --markdown",
    "scripted_two_judges/rescore": "rescore scripted_two_judges --rubric dlebench",
    "with_human/align": "align with_human --resamples 200",
    "with_human/align-markdown": "align with_human --resamples 200 --markdown",
    "with_human/align-csv": "align with_human --resamples 200 --csv",
    "with_human/align-json": (
        "align with_human --resamples 200 --judge 'lenient judge' --good-from 'Over Modification' --json"
    ),
    "with_human/compare": "compare with_human --resamples 200 --out OUT",
    "with_human/compare-markdown": "compare with_human --resamples 200 --markdown",
    "with_human/compare-json": "compare with_human --resamples 200 --json",
    "with_human/gate-people": f"gate with_human {PEOPLE} --summary OUT/summary.md --junit OUT/junit.xml",
    "with_human/gate-json": f"gate with_human {PEOPLE} --json",
}
"""File in `expected` → command."""


@pytest.fixture
def runs(tmp_path: Path) -> Callable[..., None]:
    """Put copies of run folders, prices and ratings where the program runs."""

    def make(*names: str) -> None:
        for name in names:
            shutil.copytree(HERE / "runs_v1" / name, tmp_path / name)
        (tmp_path / "prices.toml").write_text(PRICES, encoding="utf-8")
        (tmp_path / "ratings.csv").write_text(RATINGS, encoding="utf-8")

    return make


@pytest.mark.parametrize("case", CASES)
def test_the_output_is_the_expected_one(
    case: str,
    runs: Callable[..., None],
    tmp_path: Path,
    editloupe: Callable[..., tuple[int, str, str]],
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    words = shlex.split(CASES[case])
    runs(*(word for word in words if word in RUNS))
    code, out, err = editloupe(*words)
    sections = {"exit code": f"{code}\n", "standard output": out, "standard error": err}
    for path in sorted(p for p in (tmp_path / "OUT").rglob("*") if p.is_file()):
        # Of plots the name; report.json and report.md are what --json and --markdown print.
        shown = path.suffix in (".csv", ".xml") or path.name == "summary.md"
        sections[path.relative_to(tmp_path).as_posix()] = path.read_text(encoding="utf-8") if shown else ""
    found = "".join(f"==== {title}\n{steady(text, tmp_path)}" for title, text in sections.items())
    same_as(HERE / "expected" / f"{case}.txt", f"$ editloupe {CASES[case]}\n{found}")


@pytest.mark.parametrize("name", RUNS)
def test_a_run_of_version_1_opens_reports_replays_without_drift_and_stays_as_it_is(
    name: str, runs: Callable[..., None], tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
):
    runs(name)
    before = files(tmp_path / name)
    assert json.loads(before["run.json"])["schema"] == 1
    traces = sum(path.startswith("traces/") for path in before)
    code, out, err = editloupe("replay", name)
    assert (code, err) == (0, "")
    assert f"Replayed {traces} tasks of {name} (recorded model, recorded tools): {traces} as recorded" in out
    # What the tables say is in `expected`.
    code, out, _ = editloupe("report", name, "--json")
    assert code == 0
    assert len(json.loads(out)["judges"]) == len(json.loads(before["run.json"])["judges"])
    assert files(tmp_path / name) == before


def files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder that is not derived from others."""
    paths = (p for p in folder.rglob("*") if p.is_file() and ".sqlite" not in p.name)
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def steady(text: str, tmp_path: Path) -> str:
    """Text without this machine's paths; numbers with nine digits at most, 50.0 as 50; JSON indented, its keys sorted."""
    text = text.replace(str(tmp_path), "TMP")
    if text.startswith("{"):
        lines = [text] if text.startswith("{\n") else text.splitlines()
        text = "\n".join(json.dumps(json.loads(line), indent=1, sort_keys=True, ensure_ascii=False) for line in lines)
    text = re.sub(r"-?\d+\.\d{9,}(e-?\d+)?", lambda m: f"{float(m[0]):.9g}", text)
    text = re.sub(r"(?<![\d.])(-?\d+)\.0(?=,|$)", r"\1", text, flags=re.MULTILINE)
    text = re.sub(r" +$", "", text, flags=re.MULTILINE)
    return text if not text or text.endswith("\n") else text + "\n"


def same_as(path: Path, found: str) -> None:
    """Fail with a unified diff unless the file holds this text; with EDITLOUPE_GOLDEN=write, write it."""
    if WRITE:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(found, encoding="utf-8")
        return
    expected = path.read_text(encoding="utf-8")
    if found == expected:
        return
    diff = difflib.unified_diff(
        expected.splitlines(), found.splitlines(), str(path.relative_to(HERE)), "found", lineterm=""
    )
    pytest.fail("\n".join(diff), pytrace=False)
