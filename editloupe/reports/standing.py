"""A run's summaries as they stand: from its findings alone, also while it is still running."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from editloupe import plugins
from editloupe.errors import ConfigError
from editloupe.protocols.base import EvalProtocol, Summary
from editloupe.records import Budget, Finding
from editloupe.rubrics.model import Rubric
from editloupe.values import Json, Sample, Score, sample_key


def recorded_rubric(info: Mapping[str, Json]) -> Rubric:
    """The rubric that a run.json holds. Raises RubricError or ConfigError where it holds none."""
    record = info.get("record")
    rubric = record.get("rubric") if isinstance(record, Mapping) else None
    if not isinstance(rubric, Mapping):
        raise ConfigError("run.json holds no rubric under 'record'")
    return Rubric.from_json(rubric)


def summaries(
    info: Mapping[str, Json], rubric: Rubric, samples: Mapping[str, Sample], findings: Sequence[Finding]
) -> list[Summary]:
    """One summary an editor, of the findings of one judge; a sample without a finding counts as asked and not judged.

    info: run.json.   samples: by key.   findings: of several of one place, each counts (repeats).
    Raises ConfigError for a protocol that is not known here.
    """
    identity = info.get("identity")
    asked = identity if isinstance(identity, Mapping) else {}
    seen = {f.criterion for f in findings}
    criteria = tuple(c.id for c in rubric.criteria if c.id in seen) or None
    make = plugins.load("protocols", str(asked.get("protocol")))
    protocol: EvalProtocol = make(rubric, mode=asked.get("mode", "tool"), criteria=criteria, tools=(), budget=Budget())  # type: ignore[operator]
    return protocol.summarise(_scores(rubric, criteria, samples, findings))


def _scores(
    rubric: Rubric, criteria: Sequence[str] | None, samples: Mapping[str, Sample], findings: Sequence[Finding]
) -> list[Score]:
    by_place: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        by_place.setdefault((sample_key(finding.editor, finding.sample_id), finding.criterion), []).append(finding)
    wanted = [c for c in rubric.criteria if criteria is None or c.id in criteria]
    known = {key: (s.id, s.editor, s.edit_type) for key, s in samples.items()}
    for finding in findings:
        known.setdefault(sample_key(finding.editor, finding.sample_id), (finding.sample_id, finding.editor, None))
    missing: list[Finding | None] = [None]
    return [
        Score(
            sample_id=id_,
            editor=editor,
            edit_type=edit_type,
            metric=criterion.id,
            value=None if f is None else f.value,
            normalised=None if f is None or f.value is None else criterion.normalise(f.value),
            label=None if f is None else f.label,
            missing="not judged yet" if f is None else None if f.value is not None else f.status,
        )
        for key, (id_, editor, edit_type) in known.items()
        for criterion in wanted
        for f in by_place.get((key, criterion.id)) or missing
    ]
