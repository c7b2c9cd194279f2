"""A judge that is asked several times beside one that looks closer, at the same spend: `compare --equal-cost`."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.figures.runs import LEVELS, Row, finding, sample, write_run

Compared = Callable[..., tuple[dict[str, Any], list[str]]]

PLAIN = [[1, 1], [4, 1], [4, 4], [4, 4], [4, 4]]
"""Labels of two samples, a list a repeat."""


def once(values: Sequence[int], *, tokens: int | None = None, of: Callable[[int], str] = "s{}".format) -> list[Row]:
    """Findings of a judge that was asked once."""
    return repeated([values], tokens=tokens, of=of)


def repeated(
    lists: Sequence[Sequence[int]], *, tokens: int | None = None, of: Callable[[int], str] = "s{}".format
) -> list[Row]:
    usage = {} if tokens is None else {"input_tokens": tokens}
    return [
        finding(sample(of(i)), LEVELS[value], repeat=repeat, usage=usage)
        for repeat, row in enumerate(lists)
        for i, value in enumerate(row)
    ]


@pytest.fixture
def compare(tmp_path: Path, editloupe: Callable[..., tuple[int, str, str]]) -> Callable[..., tuple[int, str, str]]:
    """`compare --equal-cost` of a judge "tool" and a judge "plain", a run each."""

    def run(tool: list[Row], plain: list[Row], *words: str | Path, name: str = "") -> tuple[int, str, str]:
        folder = tmp_path / f"runs {name}"
        for name, rows in (("tool", tool), ("plain", plain)):
            samples = [sample(id) for id in dict.fromkeys(row["sample_id"] for row in rows)]
            repeats = 1 + max(row["repeat"] for row in rows)
            uris = {name: f"openai/{name}"}
            write_run(folder / name, samples, {name: rows}, backends=uris, repeats=repeats)
        return editloupe("compare", folder / "tool", folder / "plain", "--equal-cost", "--resamples", "200", *words)

    return run


@pytest.fixture
def compared(compare: Callable[..., tuple[int, str, str]]) -> Compared:
    """The second judge's effort, and what is told."""

    def run(tool: list[Row], plain: list[Row], *words: str | Path, name: str = "") -> tuple[dict[str, Any], list[str]]:
        code, told, said = compare(tool, plain, "--format", "json", *words, name=name)
        assert code == 0, said
        data = json.loads(told)
        standing = data["summaries"][1]
        return {**data["costs"][1], "mean": standing["mean"]["value"]}, data["notes"]

    return run


def test_as_many_repeats_count_as_the_measure_spends(compared: Compared):
    plain, notes = compared(once([4, 4], tokens=350), repeated(PLAIN, tokens=100))
    # 350 tokens a question buy three of 100.
    assert plain["findings"] == 6
    assert plain["judge"].endswith("×3")
    # Medians of the first three, 1, 4, 4 and 1, 1, 4: the labels 4 and 1, scores 100 and 0.
    assert plain["mean"] == pytest.approx(50.0)
    assert "350 tokens a question, which is the measure" in notes[0]
    assert "3 of 5 repeats count, 300 tokens a question" in notes[1]


def test_money_counts_where_every_price_is_known(compared: Compared, tmp_path: Path):
    prices = tmp_path / "prices.toml"
    prices.write_text("[models.tool]\ninput = 10.0\noutput = 0.0\n[models.plain]\ninput = 20.0\noutput = 0.0\n")
    plain, notes = compared(once([4, 4], tokens=350), repeated(PLAIN, tokens=100), "--prices", prices)
    # 0.0035 USD a question buy one of 0.002.
    assert plain["findings"] == 2
    assert "0.0035 USD" in notes[0] and "1 of 5 repeats count, 0.002 USD" in notes[1]


def test_what_does_not_fit_is_said(compared: Compared):
    # Of five, 1, 4, 4, 4, 4 and 1, 1, 4, 4, 4: the medians are the labels 4 and 4; of one 1 and 1.
    for tokens, mean, told in (
        (50, 0.0, "even one costs more than the measure"),
        (1000, 100.0, "5 of 5 repeats count, 500 tokens a question"),
    ):
        plain, notes = compared(once([4, 4], tokens=tokens), repeated(PLAIN, tokens=100), name=str(tokens))
        assert plain["mean"] == mean and told in notes[1]


# Of the last two: who does not tell its tokens has not spent nothing, be it the measure or one finding of ten.
@pytest.mark.parametrize(
    ("tool", "plain", "told"),
    [
        (once([4, 4], tokens=350), once([4, 4], tokens=350), "there are 2 and 0"),
        (once([4, 4], tokens=350, of="other {}".format), repeated(PLAIN, tokens=100), "no question in common"),
        (once([4, 4]), repeated(PLAIN, tokens=100), "tool, tool: its endpoint told no tokens of 2 of 2 findings"),
        (
            once([4, 4], tokens=350),
            [row if i else row | {"usage": {}} for i, row in enumerate(repeated(PLAIN, tokens=100))],
            "told no tokens of 1 of 10 findings",
        ),
    ],
    ids=["no repeats", "no common question", "no tokens", "one without tokens"],
)
def test_what_cannot_be_set_equal_is_refused(
    tool: list[Row], plain: list[Row], told: str, compare: Callable[..., tuple[int, str, str]]
):
    code, _, said = compare(tool, plain)
    assert (code, told in said) == (2, True), said
