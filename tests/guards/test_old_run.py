"""A run that version 0.2.0 wrote goes on being shown, reported and compared with the same numbers.

Two judges, each asked twice; two people's labels; an output that is missing and a reply that could not be read.
`make_old_run.py` tells how it was made. Nothing here reads words, digests or the run's own files.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe.findings import Observation
from editloupe.tools.base import ToolContext
from editloupe.tools.localize_differences import LocalizeDifferences
from tests.guards.doors import Found, Program, labels, means, name_of, statuses
from tests.guards.frozen import Figure, holds
from tests.guards.old_run import unpacked
from tests.guards.scenarios import draw


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return unpacked(tmp_path)


def test_it_is_read_and_reported_with_the_same_numbers(run: Path, editloupe: Program) -> None:
    holds("old-run-report", {**labels(run), "statuses": statuses(run), **means(editloupe, run)})


def test_it_is_shown_with_the_same_labels(run: Path, editloupe: Program) -> None:
    code, out, err = editloupe("show", run, "--format", "json")
    assert code == 0, err
    found: Found = {}
    for row in json.loads(out)["records"]:
        about = f"{row.pop('Sample')} by {row.pop('Judge')}"
        for metric, shown in row.items():
            # "Wrong Action ×2" is a label twice.
            counts = {name: int(times or 1) for name, times in re.findall(r"([^,×]+?)(?: ×(\d+))?(?:, |$)", shown)}
            found.setdefault(about, {}).update({f"{metric}: {name}": times for name, times in counts.items()})
    assert len(found) == 12
    holds("old-run-show", found)
    code, out, err = editloupe("show", run, "mug-sand")
    assert code == 0, err
    # Twice two questions to two judges, each with its steps.
    assert out.count("zoom_in") >= 4 and out.count("Flawless Execution") >= 4 and out.count("Perfect Consistency") >= 4


def test_it_is_compared_with_the_same_numbers(run: Path, editloupe: Program) -> None:
    code, out, err = editloupe("compare", run, "--format", "json", "--resamples", "200")
    assert code == 0, err
    told = json.loads(out)
    found: Found = {}
    for one in told["summaries"]:
        figures = {name: one["mean"][name] for name in ("value", "judged", "asked")}
        found[f"{name_of(one['judge'])} | {one['criterion']}"] = {**figures, "common": one["common"]["value"]}
    for one in told["pairs"]:
        about = f"{name_of(one['first'])} and {name_of(one['second'])} | {one['criterion']}"
        found[about] = {**values(one["figures"]), "difference": one["difference"]["value"], "common": one["common"]}
    # People said nothing of the other criterion.
    for one in (one for one in told["human_agreement"] if one["criterion"] == "instruction_following"):
        found[f"people and {name_of(one['judge'])} | {one['criterion']}"] = values(one["all"]["figures"])
    for one in told["costs"]:
        spent = {name: one["usage"].get(name) for name in ("input_tokens", "output_tokens")}
        found[f"cost | {name_of(one['judge'])}"] = {"verdicts": one["verdicts"], "findings": one["findings"], **spent}
    assert sum(about.startswith("people") for about in found) == 2
    holds("old-run-compare", found)


def test_what_tools_said_that_this_version_does_not_is_shown_and_replayed_as_recorded(
    tmp_path: Path, editloupe: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = LocalizeDifferences.__call__

    def then(tool: LocalizeDifferences, args: Any, context: ToolContext) -> Observation:
        seen = now(tool, args, context)
        read = {"reader": "RapidOCR 3.10", "crops": {"Crop 1": [{"text": "CAFE 12", "box": [1, 2, 30, 8]}]}}
        return replace(seen, text=f"{seen.text}\nText read in Crop 1: 'CAFE 12'.", data={**seen.data, "text_reading": read})

    with monkeypatch.context() as version:
        version.setattr(LocalizeDifferences, "__call__", then)
        version.setattr(LocalizeDifferences, "revision", "5; text 2 RapidOCR 3.10")
        code, _, err = editloupe("judge", draw(tmp_path / "edits"), "--out", run := tmp_path / "run")
        assert code == 0, err
    code, out, err = editloupe("show", run, "mug")
    assert code == 0 and "Text read in Crop 1: 'CAFE 12'." in out, err
    code, out, err = editloupe("replay", run)
    assert code == 0 and "2 as recorded" in out, err
    # Tools that run again are others, and said to be.
    code, out, err = editloupe("replay", run, "--observations", "live")
    assert code == 4 and "text 2 RapidOCR 3.10" in err, (code, out, err)


def values(figures: dict[str, dict[str, Figure]]) -> dict[str, Figure]:
    """Each figure's value, and the number of items behind it."""
    return {name: one[what] for name, one in figures.items() for name, what in ((name, "value"), (f"{name} of", "judged"))}
