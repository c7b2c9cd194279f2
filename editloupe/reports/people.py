"""The labels that people gave, for judges to be compared with: from a table, or from the samples' own columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from editloupe.reports.compare import People
from editloupe.reports.entries import entries_of_run, join, knows, ratings_of_run
from editloupe.reports.judged import Judged
from editloupe.reports.ratings import read_ratings
from editloupe.reports.scales import Reading
from editloupe.runs.store import RunStore


def labels_of_people(
    judges: Sequence[Judged], human: Path | None = None, columns: Mapping[str, str] | None = None
) -> tuple[People | None, str, tuple[str, ...]]:
    """(people's most frequent label by editor, sample and criterion; where they are from; notes); None without any.

    human: a table; None for the columns of the first judge's samples.   columns: role → column, where names do not say it.
    Raises ConfigError where the table does not fit the samples.
    """
    first = judges[0]
    rubric = first.metrics.metrics
    if human is None:
        if not any(sample.human for sample in first.samples.values()):
            return None, "", ()
        people = ratings_of_run(RunStore.read(first.folder), knows(rubric))
    else:
        only = rubric[0].id if len(rubric) == 1 else None
        people = read_ratings(human, known=knows(rubric), columns=columns or {}, option="--columns", only=only)
    entries, notes = join(entries_of_run(first), people, where=f"the run {first.folder}", closed=True)
    labels: dict[tuple[str, str, str], str | float] = {}
    for criterion in rubric:
        rated = [entry.ratings.get(criterion.id, {}) for entry in entries]
        reading = Reading([None] * len(entries), rated, criterion, None)
        notes = [*notes, *reading.notes]
        for entry, label in zip(entries, reading.labels, strict=True):
            if label is not None:
                labels[(*entry.key, criterion.id)] = label
    return labels, "the samples' own columns" if human is None else human.name, (*people.notes, *notes)
