"""How far a judge agrees with itself: the labels of questions that were asked several times."""

from __future__ import annotations

from collections.abc import Mapping

from editloupe.reports.grid import Grid, Row
from editloupe.reports.judged import Judged
from editloupe.values import Json


def doubt_grids(judged: Judged) -> list[Grid]:
    """A row an editor and criterion; nothing where each question was asked once."""
    rule = judged.repeats
    if rule.count == 1:
        return []
    rows: list[Row] = []
    records: list[Mapping[str, Json]] = []
    for editor in judged.editors:
        for criterion in judged.criteria:
            scores = [s for s in judged.scores if (s.editor, s.metric) == (editor, criterion)]
            doubts = [s.entropy for s in scores if s.entropy is not None]
            same = sum(bits == 0 for bits in doubts)
            mean = sum(doubts) / len(doubts) if doubts else None
            lost = {status: sum(s.missing == status for s in scores) for status in ("abstained", "contradictory")}
            rows.append(
                Row(
                    cells=(
                        editor or "(not named)",
                        judged.metrics.metric(criterion).short,
                        f"{same}/{len(doubts)}",
                        "–" if mean is None else f"{mean:.2f}",
                        *map(str, lost.values()),
                    )
                )
            )
            records.append(
                {
                    "judge": judged.name,
                    "editor": editor,
                    "criterion": criterion,
                    "repeats": rule.count,
                    "compared": len(doubts),
                    "unanimous": same,
                    "mean_entropy_bits": mean,
                    "highest_entropy_bits": max(doubts) if doubts else None,
                    **lost,
                }
            )
    above = "" if rule.abstain_above is None else f" Above {rule.abstain_above:g} bits a question is abstained from."
    return [
        Grid(
            name="doubt",
            title=f"Doubt: {rule.count} repeats a question, the {rule.by} label counts",
            head=("Editor", "", "All the same", "Mean entropy", "Abstained", "Contradictory"),
            rows=tuple(rows),
            caption=f"Entropy of a question's labels in bits: 0 where all repeats give the same.{above}",
            fixed=2,
            records=tuple(records),
        )
    ]
