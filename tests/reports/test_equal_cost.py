"""A judge that is asked several times beside one that looks closer, at the same spend."""

from __future__ import annotations

from dataclasses import replace

import pytest

from editloupe.answers import Label
from editloupe.backends.prices import ModelPrice, Prices
from editloupe.chat import Usage
from editloupe.errors import ConfigError
from editloupe.protocols.repeats import Repeats
from editloupe.reports.equal_cost import at_equal_cost, first_repeats
from editloupe.reports.judged import Judged
from tests.reports.test_compare import IF, LEVELS, judge


def repeated(values: list[list[int]], *, tokens: int, backend: str = "openai/plain") -> Judged:
    """A judge of so many samples, asked as often as there are lists."""
    first = judge("plain", list(values[0]), backend=backend)
    findings = [
        replace(f, repeat=repeat, usage=Usage(input_tokens=tokens), answer=Label(name=LEVELS[v], value=float(v)))
        for repeat, row in enumerate(values)
        for f, v in zip(first.findings, row, strict=True)
    ]
    whole = replace(first, findings=tuple(findings), repeats=Repeats(count=len(values)))
    return first_repeats(whole, len(values))


TOOL = judge("tool", [4, 4], backend="openai/tool", usage=Usage(input_tokens=350))
PLAIN = repeated([[1, 1], [4, 1], [4, 4], [4, 4], [4, 4]], tokens=100)


def labels(judged: Judged) -> list[float | None]:
    return [s.value for s in judged.scores if s.metric == IF]


def test_as_many_repeats_count_as_the_measure_spends():
    # Medians of the first 1, 3 and 5: 1 and 1; 1, 4, 4 and 1, 1, 4; 1, 4, 4, 4, 4 and 1, 1, 4, 4, 4.
    assert labels(first_repeats(PLAIN, 1)) == [1, 1]
    assert labels(first_repeats(PLAIN, 3)) == [4, 1]
    assert labels(PLAIN) == [4, 4]
    found, notes = at_equal_cost([TOOL, PLAIN], Prices())
    # 350 tokens a question buy three of 100.
    assert [len(j.findings) for j in found] == [2, 6]
    assert labels(found[1]) == [4, 1]
    assert found[1].name.endswith("×3")
    assert "350 tokens a question, which is the measure" in notes[0]
    assert "3 of 5 repeats count, 300 tokens a question" in notes[1]


def test_money_counts_where_every_price_is_known():
    prices = Prices(by_name={"tool": ModelPrice(input=10.0, output=0.0), "plain": ModelPrice(input=20.0, output=0.0)})
    found, notes = at_equal_cost([TOOL, PLAIN], prices)
    # 0.0035 USD a question buy one of 0.002.
    assert len(found[1].findings) == 2
    assert "0.0035 USD" in notes[0] and "1 of 5 repeats count, 0.002 USD" in notes[1]


def test_what_does_not_fit_is_said():
    dear = judge("tool", [4, 4], backend="openai/tool", usage=Usage(input_tokens=50))
    assert "even one costs more than the measure" in at_equal_cost([dear, PLAIN], Prices())[1][1]
    rich = judge("tool", [4, 4], backend="openai/tool", usage=Usage(input_tokens=1000))
    assert "50 % of the measure, so that more repeats would be its due" in at_equal_cost([rich, PLAIN], Prices())[1][1]
    with pytest.raises(ConfigError, match="there are 2 and 0"):
        at_equal_cost([TOOL, TOOL], Prices())
    with pytest.raises(ConfigError, match="spent nothing that its endpoint told"):
        at_equal_cost([judge("tool", [4, 4]), PLAIN], Prices())
    elsewhere = replace(TOOL, findings=tuple(replace(f, sample_id=f"other {f.sample_id}") for f in TOOL.findings))
    with pytest.raises(ConfigError, match="no question in common"):
        at_equal_cost([elsewhere, PLAIN], Prices())


def test_who_does_not_tell_its_tokens_has_not_spent_nothing():
    silent = judge("tool", [4, 4], backend="openai/tool")
    with pytest.raises(ConfigError, match="tool: its endpoint told no tokens of 2 of 2 findings"):
        at_equal_cost([silent, PLAIN], Prices())
    # Also where it is not the measure, and where one of ten findings is without.
    first, *others = PLAIN.findings
    partly = replace(PLAIN, findings=(replace(first, usage=Usage()), *others))
    with pytest.raises(ConfigError, match="told no tokens of 1 of 10 findings"):
        at_equal_cost([TOOL, partly], Prices())


def test_spend_is_of_the_questions_that_all_were_asked():
    # A third sample of 9,650 tokens, which only the measure was asked, would make it 3,450 a question.
    more = judge("tool", [4, 4, 4], backend="openai/tool", usage=Usage(input_tokens=350))
    *two, third = more.findings
    dear = replace(more, findings=(*two, replace(third, usage=Usage(input_tokens=9650))))
    found, notes = at_equal_cost([dear, PLAIN], Prices())
    assert "350 tokens a question, which is the measure" in notes[0]
    assert len(found[1].findings) == 6
