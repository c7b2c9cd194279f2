"""EdiVal-Bench as it is downloaded, with outputs in the official folders."""

from __future__ import annotations

import ast
import csv
import json
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from editloupe.data.images import ImageStore
from editloupe.data.samples import Loaded, load
from editloupe.protocols.edival.chain import read_chain
from editloupe.protocols.edival.instructions import EDIT_TYPES
from editloupe.values import Sample
from tests.protocols.edival_files import CHAINS, edit, lines, picture, write

Program = Callable[..., tuple[int, str, str]]
REAL = Path(__file__).parents[3] / "shared" / "data" / "benchmarks" / "edival" / "instructions_first_40_images.csv"


def opened(path: Path, **options: Any) -> Loaded:
    return load(path, store=ImageStore(), **options)


def names(sample: Sample) -> list[str]:
    paths = [turn.edited.path for turn in sample.turns if turn.edited is not None]
    return [f"{path.parent.name}/{path.name}" for path in paths if path is not None]


def test_a_chain_is_one_sample_and_each_of_its_prompts_another(tmp_path: Path) -> None:
    root, folder = write(tmp_path / "data", lines()), edit(tmp_path / "bagel")
    loaded = opened(root, edited={"bagel": folder})
    assert (loaded.format, loaded.rejected) == ("edival", ())
    assert [sample.id for sample in loaded.samples] == ["0", "1", "0.c1", "0.c2", "0.c3", "1.c1", "1.c2", "1.c3"]
    samples = {sample.id: sample for sample in loaded.samples}
    multi, single = samples["0"], samples["0.c3"]
    assert {s.editor for s in loaded.samples} == {"bagel"} and {s.edit_type for s in loaded.samples} == {None}
    # Without the stray quotes; the objects to keep belong to the sentence.
    asked = ["Add bench on the left of oak tree", "Change the count of oak tree to 4", CHAINS[0][2][1]]
    assert [turn.instruction for turn in multi.turns] == asked
    assert names(multi) == [f"multipass/0_input_raw_turn_{n}.png" for n in (1, 2, 3)]
    assert [turn.instruction for turn in single.turns] == [". ".join(asked) + "."]
    assert names(single) == ["singlepass/0_input_raw_turn_3.png"]
    assert [turn.instruction for turn in samples["1.c1"].turns] == ["Change the position of cup to left of jar"]
    assert multi.source.path is not None and multi.source.path.name == "0_input_raw.jpg"
    assert multi.source == single.source and multi.dataset == "EdiVal-Bench"
    for sample, count in ((multi, 3), (single, 3), (samples["0.c1"], 1)):
        chain = read_chain(sample)
        assert [edit.edit_type for edit in chain.edits] == [one[0] for one in CHAINS[0][:count]]
        assert [pools.available for pools in chain.pools] == [(f"thing {n}",) for n in range(1, count + 1)]
        assert [pools.unchanged for pools in chain.pools] == [("jar",), (), ()][:count]
        assert [pools.background_kept for pools in chain.pools] == [True, True, False][:count]
        assert chain.mode == ("multipass" if sample is multi else "singlepass")
    assert read_chain(multi).edits[2].keep == read_chain(single).edits[2].keep == ("bench",)
    assert read_chain(samples["1"]).edits[1].old_text == 'Open "now"'
    assert loaded.notes == (
        "6 lines about 2 images: 2 of 3 turns",
        f"editor 'bagel': files in {folder} named "
        "{mode}/{image}_input_raw_turn_{turn}; 0 missing, 0 belong to no row",
    )


@pytest.mark.skipif(not REAL.is_file(), reason="the shared sample of the benchmark is not on this machine")
def test_the_sample_of_the_benchmark_loads_whole(tmp_path: Path, editloupe: Program) -> None:
    shutil.copy(REAL, tmp_path / "data.csv")
    with REAL.open(encoding="utf-8", newline="") as file:
        given = list(csv.DictReader(file))
    one = picture("one for all")
    for line in given:
        if line["turns"] == "1":
            (tmp_path / f"{line['image_index']}_input_raw.png").write_bytes(one)
        for mode in ("multipass", "singlepass"):
            (tmp_path / "bagel" / mode).mkdir(parents=True, exist_ok=True)
            (tmp_path / "bagel" / mode / f"{line['image_index']}_input_raw_turn_{line['turns']}.png").write_bytes(one)
    loaded = opened(tmp_path / "data.csv", edited={"bagel": tmp_path / "bagel"})
    assert loaded.rejected == () and loaded.notes[0] == "120 lines about 40 images: 40 of 3 turns"
    modes = Counter(sample.extra["mode"] for sample in loaded.samples)
    assert modes == {"multipass": 40, "singlepass": 120}
    chains = {sample.id: read_chain(sample) for sample in loaded.samples}
    for sample in loaded.samples:
        assert all(turn.edited is not None for turn in sample.turns)
        assert all(not turn.instruction.startswith('"') and '"' not in turn.instruction[-2:] for turn in sample.turns)
    for line in given:
        chain, turn = chains[line["image_index"]], int(line["turns"])
        assert chains[f"{line['image_index']}.c{turn}"].edits == chain.edits[:turn]
        pools = chain.pools[turn - 1]
        assert [list(pools.ever), list(pools.available), list(pools.unchanged)] == [
            ast.literal_eval(line[name]) for name in ("all_objects", "available_objects", "unchanged_objects")
        ]
        assert pools.background_kept == (line["bg_consistency"] == "True")
        assert chain.edits[turn - 1].edit_type == ast.literal_eval(line["task_type"])[-1]
    types = Counter(edit.edit_type for id_, chain in chains.items() if "." not in id_ for edit in chain.edits)
    assert sum(types.values()) == 120 and set(types) == set(EDIT_TYPES)
    code, said, told = editloupe(
        "check", tmp_path / "data.csv", "--edited", f"bagel={tmp_path / 'bagel'}", "--format", "json"
    )
    assert code == 0, (said, told)
    assert json.loads(said)["rows"] == 160
