"""The frame of whole runs: the scores of their judges, what these spent, and people's ratings beside them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from editloupe.backends.prices import Prices
from editloupe.chat import Usage
from editloupe.data.human import value_on
from editloupe.figures.columns import with_facts
from editloupe.figures.frame import COLUMNS, OURS, SPENT, typed
from editloupe.figures.human_labels import labels_in
from editloupe.figures.judged import Judged
from editloupe.findings import Finding
from editloupe.scores import Score

if TYPE_CHECKING:
    import polars


def whole_frame(all_judged: Sequence[Judged]) -> polars.DataFrame:
    """Return the scores of a run's judges as a frame with the columns of `COLUMNS`, the dimensions, and `SPENT`.

    Costs are at list prices. The ratings that the samples carry follow, a row a rating.
    """
    import polars

    found = [_of_judge(judged, Prices()) for judged in all_judged]
    rated = list(_human_rows(all_judged[0]))
    schema = {**COLUMNS, "edit_type": str}
    found += [typed({name: [row.get(name) for row in rated] for name in schema}, schema)] if rated else []
    whole = polars.concat(found, how="diagonal_relaxed")
    dims = [name for name in whole.columns if name not in OURS]
    return whole.select(*COLUMNS, *dims, *SPENT)


def _of_judge(judged: Judged, prices: Prices) -> polars.DataFrame:
    import polars

    about = {"run": str(judged.folder), "judge": judged.name, "judge_id": judged.judge_id, "kind": "judge"}
    about["protocol"] = judged.protocol.name
    by_task: dict[str, list[Finding]] = {}
    for finding in judged.findings:
        by_task.setdefault(finding.task_id, []).append(finding)
    spent = [_spent(judged, score, by_task, prices) for score in judged.scores]
    columns = {name: [row[name] for row in spent] for name in SPENT}
    literals = typed({name: [value] for name, value in about.items()}, dict.fromkeys(about, str)).row(0, named=True)
    scored = judged.frame.with_columns(**{name: polars.lit(value) for name, value in literals.items()})
    return polars.concat([scored, typed(columns, SPENT)], how="horizontal")


def _spent(judged: Judged, score: Score, by_task: Mapping[str, list[Finding]], prices: Prices) -> dict[str, Any]:
    found = [finding for id_ in score.findings for finding in by_task.get(id_, ())]
    usage = found[0].usage if len(found) == 1 else Usage.total_of(f.usage for f in found)
    counted = usage.input_tokens is not None or usage.output_tokens is not None
    return {
        "findings": len(found),
        "tool_turns": sum(f.turns for f in found) if found else None,
        "seconds": sum(f.seconds for f in found) if found else None,
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "cost_usd": prices.of_uri(judged.backend, usage) if counted else None,
    }


def _human_rows(judged: Judged) -> Iterator[dict[str, Any]]:
    """The ratings of a run's samples as rows by column; one that is no label or number of its metric is off_menu."""
    metrics = {metric.id: metric for metric in judged.metrics.metrics}
    people = labels_in(judged.samples.values(), list(metrics.values()), str(judged.folder))
    people = with_facts(people, judged.samples, judged.protocol)
    for metric, rated in people.ratings.items():
        for (editor, sample, turn, part), by_rater in rated.items():
            source, kind = people.items[editor, sample, turn, part]
            for rater, answer in by_rater.items():
                value = value_on(metrics[metric], answer)
                yield {
                    **{"run": str(judged.folder), "protocol": judged.protocol.name, "kind": "human", "judge": rater},
                    **{"sample": sample, "editor": editor, "turn": turn, "part": part, "source": source, "edit_type": kind},
                    **{"metric": metric, "value": value, "label": answer if isinstance(answer, str) else None},
                    "normalized": None if value is None else metrics[metric].normalize(value),
                    "missing": "off_menu" if value is None else None,
                }
