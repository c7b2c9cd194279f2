"""`view --human`: people's labels of a table stand beside the judges' own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.errors import ConfigError
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader

WORDS = ("Flawless Execution", "Wrong Action")


def table(path: Path, *lines: str, head: str = "item") -> Path:
    path.write_text(f"{head},criterion,rater,label\n" + "".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def rows(site: Site) -> list[dict[str, Any]]:
    found = site.at("rows.json")
    assert found is not None
    listed: list[dict[str, Any]] = json.loads(found.body)["rows"]
    return listed


def test_labels_of_a_table_are_a_column_on_every_page(run: Path, tmp_path: Path) -> None:
    human = table(
        tmp_path / "labels.csv",
        "painter/s01,IF,ann,Wrong Action",
        "painter/s01,IF,ben,Flawless Execution",
        "painter/s03,Visual Consistency,ann,Scene Collapse",
        "painter/s99,IF,ann,Wrong Action",
    )
    site = Site.of([RunReader(run, human=human)])
    by_id = {row["id"]: row for row in rows(site)}
    said = [(chip["rater"], chip["name"]) for chip in by_id["s01"]["people"]["instruction_following"]]
    # The sample's own column of people stays.
    assert said == [("human", "Flawless Execution"), ("ann", "Wrong Action"), ("ben", "Flawless Execution")]
    # The judge says Flawless Execution (4), ann Wrong Action (2): (4 - 2) / 3 of 100.
    assert by_id["s01"]["human"] == 66.67
    assert by_id["s02"]["people"] == rows(Site.of([RunReader(run)]))[2]["people"]
    sample = site.runs[0].reader.samples()[3]
    page = site.sample_page(site.runs[0], sample)
    assert '<th scope="col" class="person">ann <small>person</small></th>' in page and "Scene Collapse" in page
    # What a sample's page reads alone is the same, and so are columns of other names.
    human.write_text(human.read_text().replace("item", "image"))
    alone = Site.of([RunReader(run, human=human, columns={"item": "image"})])
    found = alone.runs[0].reader.sample(sample.slug)
    assert found is not None and found.sample == sample.sample


def test_a_table_of_other_samples_is_refused_in_one_line(run: Path, tmp_path: Path) -> None:
    human = table(
        tmp_path / "labels.csv", "painter,x1,IF,ann,Wrong Action", "painter,x2,IF,ann,Wrong Action", head="editor,item"
    )
    with pytest.raises(ConfigError, match=r"none of the 2 items of .*labels\.csv is in the run run: people rated") as told:
        Site.of([RunReader(run, human=human)])
    assert "\n" not in str(told.value)


def test_the_command_takes_the_table_and_says_what_is_wrong(
    run: Path, tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]
) -> None:
    human = table(tmp_path / "labels.csv", "nobody,IF,ann,Wrong Action")
    code, _, err = editloupe("view", run, "--human", human)
    assert code == 2 and "names no editor" in err
    code, _, err = editloupe("view", run, "--columns", "item=image")
    assert code == 2 and "name a table with --human" in err
    code, _, err = editloupe("view", run, "--human", human, "--columns", "item=image")
    assert code == 2 and "image" in err
    code, _, err = editloupe("view", run, "--human", tmp_path / "none.csv")
    assert code == 2 and "none.csv" in err
