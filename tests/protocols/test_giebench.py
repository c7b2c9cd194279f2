"""GIE-Bench: questions, their keys and measures; accuracy as the paper has it; the tables from its own counts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars
import pytest

from editloupe import Run
from editloupe.answers import Choice, OneOf
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.images import ImageStore
from editloupe.data.samples import load
from editloupe.errors import ReplyError
from editloupe.protocols.giebench.questions import MultipleChoice, read_question, shown
from editloupe.protocols.giebench.tables import EDIT_TYPES
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from tests.conftest import final
from tests.guards.doors import tables
from tests.protocols.giebench_data import ABSTAIN, draw, row, write
from tests.protocols.giebench_published import edits, published

Cli = Callable[..., tuple[int, str, str]]


def question(*options: str, key: str = "", text: str = "What color is the mug?") -> MultipleChoice:
    columns = {"evaluation_question": text, "multiple_choice_options": list(options), "expected_answer": key or options[0]}
    return read_question(columns)


def as_shown(*options: str, seed: int | None = None, letters: bool = True, **more: str) -> Any:
    found = question(*options, **more)
    return shown(found, found.order(seed, about=""), letters=letters)


def test_a_letter_or_the_words_of_an_option_are_one_choice_and_other_replies_have_a_status() -> None:
    spec = as_shown("Green", "Red", "Blue", ABSTAIN).answer
    assert spec.choices() == ("A", "B", "C", "D") and OneOf.from_json(spec.to_json()) == spec
    for reply in ("B", "b)", "(B)", "B. Red", "Red.", "**Red**", "Answer: Red", "red", '{"answer": "B"}'):
        assert spec.parse(reply) == Choice(name="Red"), reply
    replies = {
        "contradictory": ("Red or Blue", "B, or C", "B. Blue"),
        "off_menu": ("Purple", "E", "not Red"),
        "unparsed": ("",),
        "abstained": ("D", ABSTAIN, "I cannot tell from the image.", "I can't tell from the image"),
    }
    for status, said in replies.items():
        for reply in said:
            with pytest.raises(ReplyError) as caught:
                spec.parse(reply)
            assert caught.value.status == status, reply


# ---- The paper's own counts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "judge", "rows"),
    [("2", "GPT-4o", 10), ("2", "Gemini", 1), pytest.param("7", "Gemini", 10, marks=pytest.mark.slow)],
)
def test_the_paper_s_tables_come_of_its_counts_in_every_cell(number: str, judge: str, rows: int) -> None:
    (models,) = (found for (table, who), found in published().items() if table == number and who.startswith(judge))
    assert len(models) == rows
    made = [one for model, counts in models.items() for one in edits(model, counts)]
    findings = [finding for _, both in made for finding in both]
    table = next(iter(tables("giebench", samples=[sample for sample, _ in made], findings=findings).values()))
    heads = [column.title for column in table.columns]
    assert heads[1:10] == list(EDIT_TYPES) and heads[10:12] == ["Mean of all 9 types", "Mean of all samples"]
    for line in table.rows:
        cells, shown = models[str(line.cells[0].value)], dict(zip(heads, line.cells, strict=True))
        for name in EDIT_TYPES:
            assert f"{shown[name].value:.2f}" == cells[name][0], (line.cells[0].value, name)
            assert (shown[name].judged, shown[name].asked) == (cells[name][2], 120)
        # The paper's Overall is the mean over all samples; over types it would be another number.
        assert f"{shown['Mean of all samples'].value:.2f}" == cells["Overall"][0], line.cells[0].value
        assert shown["Mean of all samples"].judged == cells["Overall"][2]
        macro = sum(100 * cells[name][1] / cells[name][2] for name in EDIT_TYPES) / 9
        assert shown["Mean of all 9 types"].value == pytest.approx(macro)
    if (number, judge) == ("2", "GPT-4o"):
        last = dict(zip(heads, table.rows[-1].cells, strict=True))
        # 856 right of 1,007 is 85.00; over types 84.75; of all 1,080, with the 73 missing outputs as wrong, 79.26.
        assert f"{last['Mean of all 9 types'].value:.2f}" == "84.75"
        assert f"{last['Mean of all samples, missing outputs as the worst'].value:.2f}" == "79.26"


def test_spearman_of_editors_ranks_with_people_s_gives_table_4(tmp_path: Path, editloupe: Cli) -> None:
    # Of eight editors Spearman's ρ is 1 - 6 Σd² / (8 · 63); Σd² of 10, 4, 8 and 14 gives the four figures of Table 4.
    people = {".881": "21437568", ".952": "21435678", ".905": "21436587", ".833": "15243678"}
    write(tmp_path / "gie", [row(n) for n in range(7)])
    edited = {f"e{editor}": tmp_path / f"e{editor}" for editor in range(1, 9)}
    for editor, folder in enumerate(edited.values(), start=1):
        for n in range(7):
            draw(folder / f"{n}.png", spot=(editor, 0, 0))
    loaded = load(tmp_path / "gie", store=ImageStore(), edited=edited)
    shows = {sample.edited.sha256: sample for sample in loaded.samples if sample.edited}

    def script(request: Request) -> str:
        sample = shows[request.messages[0].images[-1].image.sha256]
        # Editor e1 has none of seven right, e8 all.
        return final("Red" if int(sample.id) < int(sample.editor[1]) - 1 else "Green")

    judge = JudgeConfig.make(backend=ScriptedLMM(script))
    config = RunConfig.make(path=tmp_path / "gie", protocol="giebench", edited=edited, judge=judge)
    drive(open_setup(config), tmp_path / "run")
    right = Run("run").frame().filter(metric="accuracy").group_by("editor").agg(polars.col("value").mean()).rows()
    (tmp_path / "judge.csv").write_text("item,accuracy\n" + "".join(f"{editor},{mean}\n" for editor, mean in right))
    for printed, ranks in people.items():
        table = "item,accuracy\n" + "".join(f"e{n},{rank}\n" for n, rank in enumerate(ranks, start=1))
        (tmp_path / "people.csv").write_text(table, encoding="utf-8")
        tables_of_both = ("--scores", "judge.csv", "--human", "people.csv")
        code, said, err = editloupe("compare", *tables_of_both, "--format", "json", "--resamples", "100")
        assert code == 0, err
        (found,) = json.loads(said)["human_agreement"]
        spearman = found["all"]["figures"]["spearman"]
        assert f"{spearman['value']:.3f}".lstrip("0") == printed and spearman["judged"] == 8
