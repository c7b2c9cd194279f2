"""Which judge and which findings of a run a command line means."""

from __future__ import annotations

from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.reports.judged import Judged, chosen
from editloupe.runs.judges import names_of
from editloupe.runs.store import RunStore


def one_judge(store: RunStore, judge: str | None) -> Judged:
    """Return the judge that a command means, or the only one of the run. Raises ConfigError."""
    found = chosen(store, judge)
    if len(found) > 1:
        known = ", ".join(f"{one.title or one.backend} ({one.judge_id})" for one in found)
        raise ConfigError(f"{store.folder} has several judges, {known}; name one with --judge")
    return found[0]


def findings_of(
    store: RunStore,
    *,
    sample: str | None = None,
    criterion: str | None = None,
    judge: str | None = None,
    repeat: int | None = None,
) -> list[Finding]:
    """Return the findings that a command means, other roles' and measures' too. Raises ConfigError if there are none.

    sample: an id, or EDITOR/ID.   criterion: a metric by id or short name, or a question.   judge: a name, a URI, or the
    beginning of an id.   repeat: from 1.   None: all.
    """
    findings = [f for f in store.current() if sample in (None, f.sample_id, f.about.key)]
    if not findings and sample is not None:
        known = list(dict.fromkeys(f.sample_id for f in store.current()))
        near = ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        raise ConfigError(f"{store.folder}: no finding for sample {sample!r}; the samples are {near or 'none yet'}")
    names = names_of(store.info.get("judges"))
    judges = set(names)
    if judge is not None:
        judges = {*store.judges_called(judge), *(id_ for id_, name in names.items() if name == judge)}
    metric = None if criterion is None else _metric_id(store, criterion)
    found = [f for f in findings if metric in (None, f.metric) and f.judge_id in judges and repeat in (None, f.repeat + 1)]
    if findings and not found:
        asked = {"criterion": criterion, "judge": judge, "repeat": repeat}
        wanted = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
        where = f"{store.folder}: " if sample is None else f"{store.folder}, sample {sample!r}: "
        raise ConfigError(f"{where}no finding for {wanted}; the run's judges are {', '.join(names.values())}")
    return found


def _metric_id(store: RunStore, name: str) -> str:
    if any(f.metric == name for f in store.findings.values()):
        return name
    try:
        return store.metric_set().metric(name).id
    except ConfigError as error:
        raise ConfigError(f"{store.folder}: {error}") from error
