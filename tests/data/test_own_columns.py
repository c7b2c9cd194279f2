"""Edits of one's own: one table of any name and any columns beside any folders, by `--columns`."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars
import pytest

from editloupe import load_samples
from editloupe.data.samples import Loaded
from editloupe.errors import ConfigError, DataError
from tests.data.conftest import opened

Draw = Callable[..., Path]
Program = Callable[..., tuple[int, str, str]]

NAMES = {"source": "photo", "edited": "result", "instruction": "what", "id": "nr"}
ROWS = [{"nr": n, "photo": f"before/{n}.png", "result": f"after/{n}_x.png", "what": f"Do {n}.", "note": n} for n in "ab"]


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write a table by the ending of its name."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".parquet":
        polars.DataFrame(rows).write_parquet(path)
    else:
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
            writer.writeheader()
            writer.writerows(rows)
    return path


def files(loaded: Loaded) -> list[tuple[str, str, str | None]]:
    """Return id, source and edited image of each sample."""
    return [
        (s.id, str(s.source.path and s.source.path.name), s.edited and s.edited.path and s.edited.path.name)
        for s in loaded.samples
    ]


@pytest.fixture
def own(draw: Draw, tmp_path: Path) -> Path:
    """before/a.png, after/a_x.png and the same of b; no table yet."""
    for number, name in enumerate("ab"):
        draw(f"own/before/{name}.png", number)
        draw(f"own/after/{name}_x.png", number + 10)
    return tmp_path / "own"


def test_it_is_one_option_of_the_command_the_yaml_and_python(own: Path, editloupe: Program) -> None:
    write(own / "edits.csv", ROWS)
    given = ",".join(f"{role}={column}" for role, column in NAMES.items())
    code, said, told = editloupe("check", own, "--columns", given)
    assert code == 0 and "imagefolder; 2 of 2 samples can be judged" in " ".join((said + told).split())
    assert files(load_samples(own, columns=NAMES)) == files(opened(own, columns=NAMES))  # type: ignore[arg-type]
    Path("run.yaml").write_text(json.dumps({"path": str(own), "columns": NAMES, "protocol": "measures"}))
    code, said, told = editloupe("judge", "--config", "run.yaml", "--trust", "--out", "run")
    assert code == 0 and "6 of 6 findings judged" in said, said + told


def test_a_column_may_be_a_part_of_a_path(own: Path) -> None:
    write(own / "list.csv", [{"n": name, "t": "Go."} for name in "ab"])
    names = {"source": "before/{n}.png", "edited": "after/{n}_x.png", "instruction": "t", "id": "n"}
    assert files(opened(own, columns=names)) == [("a", "a.png", "a_x.png"), ("b", "b.png", "b_x.png")]


def test_paths_count_from_the_table_its_folder_or_the_folder_of_their_role(draw: Draw, tmp_path: Path) -> None:
    for name in ("source/a.png", "edited/a.jpg", "mask/a.png"):
        draw(f"set/{name}")
    ways = [
        {"source": "source/a.png", "edited": "edited/a.jpg", "m": "mask/a.png"},
        {"source": "a.png", "edited": "a.jpg", "m": "a.png"},
    ]
    for way in ways:
        write(tmp_path / "set/edits.csv", [{**way, "instruction": "Go."}])
        loaded = opened(tmp_path / "set", columns={"mask": "m"})
        assert [(one, two) for _, one, two in files(loaded)] == [("a.png", "a.jpg")] and "edit" in loaded.samples[0].masks


@pytest.mark.parametrize("names", [{"id": "photo", "instruction": "text"}, {"source": "photo", "instruction": "text"}])
def test_two_folders_of_equal_names_take_a_table_of_any_name(draw: Draw, tmp_path: Path, names: dict[str, str]) -> None:
    for name in "ab":
        draw(f"set/source/{name}.png")
        draw(f"set/edited/{name}.jpg", 1)
    write(tmp_path / "set/mine.csv", [{"photo": "a", "text": "Go."}, {"photo": "b.png", "text": "Go on."}])
    loaded = opened(tmp_path / "set", columns=names)
    assert loaded.format == "pairs" and files(loaded) == [("a", "a.png", "a.jpg"), ("b", "b.png", "b.jpg")]
    write(tmp_path / "set/mine.csv", [{"name": "a", "instruction": "Go."}])
    assert files(opened(tmp_path / "set")) == [("a", "a.png", "a.jpg")]


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ({**NAMES, "source": "foto"}, r"edits\.csv: no column 'foto'.* names for source; did you mean 'photo'\? the "
                                      r"columns are nr, photo, result, what, note: name one of them"),
        ({"instruction": "what"}, r"no column for the source; looked for source_file_name, source.*the columns are nr, "
                                  r"photo, .*Say which it is: --columns source=COLUMN"),
        ({**NAMES, "id": "{nr}-{nummer}"}, r"no column 'nummer', which --columns names for id; .*the columns are nr"),
    ],
)  # fmt: skip
def test_a_column_that_is_not_there_is_told_with_those_that_are(own: Path, names: dict[str, str], said: str) -> None:
    write(own / "edits.csv", ROWS)
    with pytest.raises(DataError, match=said):
        opened(own, columns=names)


def test_what_cannot_be_told_apart_is_refused_with_what_to_do(own: Path) -> None:
    write(own / "edits.csv", ROWS)
    with pytest.raises(ConfigError, match=r"'sauce' is nothing that a column holds; did you mean 'source'\?"):
        opened(own, columns={"sauce": "photo"})
    with pytest.raises(DataError, match=r"edits\.csv has the columns nr, photo, result, what, note: say with --columns"):
        opened(own)
    with pytest.raises(ConfigError, match=r"the layout run has no columns to name; leave --columns out"):
        opened(own, columns=NAMES, format="run")
    # Of two tables the one that has the columns is meant; where both have them, nobody knows.
    write(own / "other.csv", [{"x": 1}])
    assert len(opened(own, columns=NAMES).samples) == 2
    with pytest.raises(
        DataError, match=r"edits\.csv with the columns nr, photo, result, what, note; other\.csv with the columns x\. "
    ):
        opened(own, columns={**NAMES, "source": "x.png"})
    write(own / "other.csv", ROWS)
    with pytest.raises(DataError, match=r"several tables could be the data: edits\.csv with .*Give the path of the one"):
        opened(own, columns=NAMES)


def test_a_mapping_file_is_laid_over_a_layout(own: Path, tmp_path: Path) -> None:
    """What --columns says in a line, a file says with folders and names of outputs."""
    write(own / "edits.csv", [{"pic": "a.png", "what": "Go."}])
    mapping = tmp_path / "map.toml"
    mapping.write_text(
        '[columns]\nsource = "pic"\ninstruction = "what"\n[folders]\nsource = "before"\n[outputs]\nnames = "{source}_x"\n'
    )
    loaded = opened(own, fields=mapping, edited={"bagel": own / "after"})
    assert [(s.key.partition("/")[0], s.edited is not None) for s in loaded.samples] == [("bagel", True)]
    for text, said in (
        ("[colums]\nsource = 'pic'", r"unknown section or key \[colums\]; expected one of .*columns"),
        ("[outputs]\nname = 'x'", r"unknown key \[outputs\] name; expected one of names"),
        ("[columns]\nsource = 3", r"\[columns\] source: .*found the number 3"),
        ("[outputs]\nnames = 'Out'", r"map\.toml: \[outputs\] names: 'Out' needs a part in braces"),
        ("[outputs]\nnames = '{nr}'", r"unknown part \{nr\}; expected \{id\}"),
        ("layout = 'coco'", r"a mapping file is laid over one of imagefolder, .*, not over 'coco'"),
        ("[columns", "not valid TOML"),
    ):
        mapping.write_text(text)
        with pytest.raises(ConfigError, match=said):
            opened(own, fields=mapping, columns={"source": "pic", "instruction": "what"}, edited={"bagel": own / "after"})
