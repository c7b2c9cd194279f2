"""`editloupe replay RUN --rubric NAME`: recorded answers read by other options of the protocol; no model is asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from editloupe.answers import Number
from editloupe.cli.output import as_json, command, many, print_json, say, say_first, warn
from editloupe.cli.recorded import findings_of
from editloupe.cli.tables import show_tables
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.protocols.base import EvalProtocol
from editloupe.runs.rescore import Rescored, mean, protocol_with, rescore, write_rescored
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.stats.table import Table, simple


def score_again(run: Path, changes: Mapping[str, Any], chosen: Mapping[str, Any], out: Path | None) -> int:
    """Print what other options of the protocol change, and write it if `out` is named. Return the exit code.

    Raises ConfigError if no finding can be read by them.
    """
    store = RunStore.read(run)
    protocol = protocol_with(store, changes)
    if out is not None and out.resolve() == run.resolve():
        raise ConfigError(f"--out {out} is the run itself, whose findings stay as they are; name another folder")
    done = list(rescore(store, protocol))
    if all(one.now is None for one in done):
        asked = ", ".join(dict.fromkeys(one.before.metric for one in done)) or "no criterion"
        read = ", ".join(metric.id for metric in protocol.metrics)
        why = f": {done[0].reason}" if done else ""
        raise ConfigError(f"{run}: no answer can be scored again{why}. The run asked {asked}; expected some of {read}")
    if out is not None:
        write_rescored(store, protocol, done, out)
    if any(value is not None for value in chosen.values()):
        keys = {finding.key for finding in findings_of(store, **chosen)}
        done = [one for one in done if one.before.key in keys]
    if as_json():
        for one in done:
            print_json(one.to_json())
    else:
        _report(done, store, protocol)
        if out is not None:
            say(f"Written: {command('show', out)}")
    warn(store.problems)
    return 0


def _report(done: Sequence[Rescored], store: RunStore, protocol: EvalProtocol) -> None:
    """Print counts and means of each judge and metric, and the findings that change."""
    show_tables(list(_tables(done, store, protocol)), choose="take --format json")
    if any(isinstance(one.before.answer, Number) and one.before.role != "measure" for one in done):
        say("Numbers stay as the judge gave them: they are not converted to another scale, and one outside it is off_menu.")
    lines = [
        f"  {one.before.about.key}, {one.before.metric}: {_named(one.before)} → {_named(one.now)}"
        for one in done
        if one.changed and one.now is not None
    ]
    say_first(lines)
    reasons = Counter(one.reason for one in done if one.reason)
    warn(f"{many(count, 'finding')} not scored: {reason}" for reason, count in reasons.items())
    say(f"\n{len(lines)} of {len(done)} findings change; no model was asked.")


def _tables(done: Sequence[Rescored], store: RunStore, protocol: EvalProtocol) -> Iterator[Table]:
    """For each judge and metric: label → label with counts, and the means beneath."""
    names, metrics = store.judge_names(), {metric.id: metric for metric in protocol.metrics}
    groups: dict[tuple[str, str], list[tuple[Finding, Finding]]] = {}
    for one in done:
        if one.now is not None and one.before.judge_id in names:
            groups.setdefault((names[one.before.judge_id], one.before.metric), []).append((one.before, one.now))
    for (judge, criterion), pairs in groups.items():
        before, now = zip(*pairs, strict=True)
        means = _mean(before, store.metrics().get(criterion)), _mean(now, metrics.get(now[0].metric))
        counts = Counter((_named(then), _named(after)) for then, after in pairs)
        yield simple(
            criterion,
            f"{criterion.replace('_', ' ').capitalize()}, judged by {judge}",
            ("Recorded", "By the new rubric", "Findings"),
            [*((then, after, str(count)) for (then, after), count in counts.most_common()), (*means, str(len(pairs)))],
            keys={"judge": judge, "criterion": criterion},
        )


def _mean(findings: Sequence[Finding], metric: Metric | None) -> str:
    value = mean(findings, metric)
    judged = f"{sum(f.status == 'ok' for f in findings)} of {len(findings)} judged"
    if metric is None or value is None:
        return judged
    return f"Mean {f'{value:.1f} of 100' if metric.levels else f'{value:.4g}'} ({judged})"


def _named(finding: Finding) -> str:
    if finding.status != "ok":
        return f"({finding.status})"
    if finding.label is None:
        return str(finding.answer)
    return finding.label if finding.value is None else f"{finding.label} ({finding.value:g})"
