"""What commands take from a run folder: how it was asked, with which tools, and which findings a command line means."""

from __future__ import annotations

from pathlib import Path

from editloupe.cli.options import read_config
from editloupe.config import RunConfig
from editloupe.errors import ConfigError, did_you_mean
from editloupe.figures.judged import Judged, chosen
from editloupe.findings import Finding
from editloupe.runs.judges import names_of
from editloupe.runs.setup import weights_of
from editloupe.runs.store import RunStore
from editloupe.runs.trust import Trust
from editloupe.tools.ablations import ablated
from editloupe.tools.base import Toolbox, open_toolbox


def recorded_runs(folder: Path) -> list[RunConfig]:
    """Return the run that a run folder's config.yaml describes, once for each judge. Raises ConfigError."""
    path = folder / "config.yaml"
    if not path.exists():
        raise ConfigError(
            f"{folder} has no config.yaml, so that its judges cannot be asked again: it was imported, scored again or made "
            "in Python; judge the data itself with editloupe judge"
        )
    try:
        runs = RunConfig.each_judge(read_config(path))
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if runs[0].path is None:
        raise ConfigError(f"{path} names no path; expected the file that editloupe judge wrote")
    return runs


def run_toolbox(store: RunStore, trust: Trust) -> Toolbox:
    """Return the run's tools, opened with the weights of its config.yaml.

    Raises ConfigError for weights that only the run folder names.
    """
    # A run made in Python has no config.yaml.
    config = recorded_runs(store.folder)[0] if (store.folder / "config.yaml").exists() else RunConfig()
    # Files of its protocol's options are not opened here.
    trust.check(config.model_copy(update={"option": {}}))
    identity = store.info["identity"]
    assert isinstance(identity, dict)
    recorded, absent, ablations = (identity.get(name) for name in ("tools", "absent_tools", "ablations"))
    known = [*(recorded if isinstance(recorded, dict) else ()), *(absent if isinstance(absent, list) else ())]
    box = open_toolbox(known, weights_of(config))
    return ablated(box, [str(a) for a in ablations] if isinstance(ablations, list) else [])


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
        near = did_you_mean(sample, known) + ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
        raise ConfigError(f"{store.folder}: no finding for sample {sample!r}; {near or 'none yet'}")
    names = names_of(store.info.get("judges"))
    judges = set(names)
    if judge is not None:
        judges = {*store.judges_called(judge), *(id_ for id_, name in names.items() if name == judge)}
    metric = criterion
    if criterion is not None and all(f.metric != criterion for f in store.findings.values()):
        try:
            metric = store.metric_set().metric(criterion).id
        except ConfigError as error:
            raise ConfigError(f"{store.folder}: {error}") from error
    found = [f for f in findings if metric in (None, f.metric) and f.judge_id in judges and repeat in (None, f.repeat + 1)]
    if findings and not found:
        asked = {"criterion": criterion, "judge": judge, "repeat": repeat}
        wanted = ", ".join(f"{name} {value!r}" for name, value in asked.items() if value is not None)
        raise ConfigError(f"{store.folder}: no finding for {wanted}; the run's judges are {', '.join(names.values())}")
    return found
