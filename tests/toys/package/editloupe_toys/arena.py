"""Every two edits of one task beside each other, ties included; a Bradley-Terry ranking of the editors."""

from itertools import combinations

from editloupe.answers import OneOf
from editloupe.protocols.base import BaseProtocol
from editloupe.scores import Interval, Metric, Score
from editloupe.stats.bradley_terry import rank
from editloupe.stats.spec import TableSpec
from editloupe.stats.table import simple
from editloupe.tasks import About, Ask, Recipe

POINTS = {"first": 1.0, "tie": 0.5, "second": 0.0}


def ranking(frame):
    """Return the editors by strength."""
    games = frame.filter(frame["metric"] == "won").drop_nulls("value").to_dicts()
    matches = [(row["editor"], row["part"].removeprefix("against "), row["value"], row["source"]) for row in games]
    if not matches:
        return None
    rows = [(one.editor, f"{one.strength:.4f}") for one in rank(matches).strengths]
    return simple("bradley-terry", "Editors by strength", ("Editor", "Log strength"), rows)


class Arena(BaseProtocol):
    name = "arena"
    metrics = tuple(Metric(id=id_, domain=Interval(low=0, high=1)) for id_ in ("points", "won"))
    of_some = frozenset({"won"})
    tables = (TableSpec(title="Share of points", metrics=("points",), overall=False), ranking)

    def plan(self, group, known):
        for first, second in combinations([sample for sample in group if sample.edited], 2):
            yield Ask(
                protocol=self.name,
                metric="better",
                about=About.pair(first, second),
                prompt=f"Which edit is better? {first.instruction} (ask {first.editor}{second.editor})",
                views=(Recipe(alias="Edit A", origin=first.edited), Recipe(alias="Edit B", origin=second.edited)),
                answer=OneOf(options=tuple(POINTS)),
                tools=self.tools,
                budget=self.budget,
            )

    def score(self, group, known):
        points = {sample.editor: [] for sample in group}
        for first, second in combinations([sample for sample in group if sample.edited], 2):
            answer = known.answer("better", About.pair(first, second))
            won = None if answer is None else POINTS[answer.name]
            for one, other, value in ((first, second, won), (second, first, None if won is None else 1 - won)):
                points[one.editor].append(value)
                if value is not None:
                    place = {"sample_id": one.id, "editor": one.editor, "part": f"against {other.editor}"}
                    yield Score(**place, metric="won", value=value)
        for sample in group:
            mine = points[sample.editor]
            missing = "unparsed" if None in mine else None if mine else "not_defined"
            value = None if missing else sum(mine) / len(mine)
            yield Score(sample_id=sample.id, editor=sample.editor, metric="points", value=value, missing=missing)
