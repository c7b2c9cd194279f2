"""Judges at the same spend: one that is asked several times beside one that looks closer, as often as that one's costs.

Whether tools pay is an open question as long as the other judge may not spend as much: asked K times, a plain judge has a
median label, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.errors import ConfigError
from editloupe.figures.columns import key_of
from editloupe.figures.judged import Judged
from editloupe.protocols.base import scored


def at_equal_cost(judges: Sequence[Judged], prices: Prices) -> tuple[list[Judged], tuple[str, ...]]:
    """Return the judges, those with repeats cut to as many as the dearest judge without repeats spends; and notes.

    Spend is money a question where every judge's price is known, tokens otherwise, over the questions that all of them
    were asked. Raises ConfigError where there is no judge with repeats, none without, no question in common, or nothing
    to tell what one spent.
    """
    once = [j for j in judges if j.repeats.count == 1]
    several = [j for j in judges if j.repeats.count > 1]
    if not once or not several:
        raise ConfigError(
            "--equal-cost needs a judge that was asked once, which is the measure, and one that was asked several times "
            f"(judge --mode plain --repeats K); there are {len(once)} and {len(several)}"
        )
    for judge in judges:
        if judge.untold:
            raise ConfigError(
                f"{judge.name}: its endpoint told no tokens of {judge.untold} of {len(judge.of_models)} findings, so that "
                "nobody knows what it spent; --equal-cost needs the usage of every judge"
            )
    common = set.intersection(*({f.question for f in j.of_models} for j in judges))
    if not common:
        raise ConfigError("--equal-cost: the judges were asked no question in common; compare runs over the same data")
    money = all(prices.of_uri(j.backend, Usage(input_tokens=1, output_tokens=1)) is not None for j in judges)
    measure = max(once, key=lambda j: _spend(j, 1, common, prices, money=money))
    limit = _spend(measure, 1, common, prices, money=money)
    if not limit:
        raise ConfigError(f"{measure.name} spent nothing that its endpoint told; --equal-cost has no measure")
    found, notes = [], [f"Equal cost: {measure.name} spent {_spent(limit, money=money)} a question, which is the measure."]
    for judge in judges:
        if judge.repeats.count == 1:
            found.append(judge)
            continue
        spends = [_spend(judge, k, common, prices, money=money) for k in range(1, judge.repeats.count + 1)]
        k = max((n for n, spend in enumerate(spends, start=1) if spend <= limit), default=1)
        text = f"{judge.name}: {k} of {judge.repeats.count} repeats count, {_spent(spends[k - 1], money=money)} a question"
        notes.append(f"{text}{'; even one costs more than the measure' if spends[k - 1] > limit else ''}.")
        found.append(first_repeats(judge, k))
    return found, tuple(notes)


def first_repeats(judge: Judged, count: int) -> Judged:
    """Return the same judge as if it had been asked `count` times only."""
    findings = [f for f in judge.findings if f.repeat < count]
    rule = replace(judge.repeats, count=count)
    rejected = {score.key for score in judge.scores if score.missing == "input_error" and not score.findings}
    samples = [sample for key, sample in judge.samples.items() if key not in rejected]
    fresh = {(score.metric, key_of(score)): score for score in scored(judge.protocol, samples, findings, rule)}
    scores = tuple(fresh.get((score.metric, key_of(score)), score) for score in judge.scores)
    return replace(judge, name=f"{judge.name} ×{count}", findings=tuple(findings), scores=scores, repeats=rule)


def _spend(
    judge: Judged, repeats: int, questions: AbstractSet[tuple[str, str, str, int, str]], prices: Prices, *, money: bool
) -> float:
    """USD or tokens a question of these, of the first repeats."""
    usage = Usage.total_of(f.usage for f in judge.of_models if f.repeat < repeats and f.question in questions)
    if not money:
        return usage.total / len(questions)
    spent = prices.of_uri(judge.backend, usage)
    assert spent is not None, "money counts only where every price is known"
    return spent / len(questions)


def _spent(spend: float, *, money: bool) -> str:
    return f"{spend:.3g} USD" if money else f"{spend:,.0f} tokens"
