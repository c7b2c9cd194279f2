"""`editloupe rescore`: the recorded answers of a run by another rubric, without a model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from rich.table import Table
from typer import Option

from editloupe.answers import Number
from editloupe.cli.options import AsJson, RunFolder
from editloupe.cli.output import command, many, out, plain, print_json, say, say_first, warn
from editloupe.config import pairs
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.protocols.base import EvalProtocol
from editloupe.runs.rescore import Rescored, mean, protocol_with, write_rescored
from editloupe.runs.rescore import rescore as read_again
from editloupe.runs.store import RunStore

_SHOWN = 20


def rescore(
    run: RunFolder,
    rubric: Annotated[str | None, Option(help="A built-in rubric or your own .toml file.")] = None,
    option: Annotated[
        list[str] | None, Option(metavar="NAME=VALUE", help="Another option of the protocol; may be repeated.")
    ] = None,
    out_dir: Annotated[Path | None, Option("--out", help="Write the findings as a run of their own.")] = None,
    as_json: AsJson = False,
) -> int:
    """Read recorded answers of a run by another rubric and say what changes. Nothing is written without --out.

    Labels get the values of the new rubric. Numbers stay as they were given: one outside the new scale is off_menu.
    """
    store = RunStore.read(run)
    changes = {**pairs(option or []), **({} if rubric is None else {"rubric": rubric})}
    if not changes:
        raise ConfigError("nothing is changed; name another --rubric, or --option NAME=VALUE")
    protocol = protocol_with(store, changes)
    if out_dir is not None and out_dir.resolve() == run.resolve():
        raise ConfigError(f"--out {out_dir} is the run itself, whose findings stay as they are; name another folder")
    done = list(read_again(store, protocol))
    if not done:
        raise ConfigError(f"{run}: nothing to re-score: the run has no findings")
    if out_dir is not None:
        write_rescored(store, protocol, done, out_dir)
    if as_json:
        for one in done:
            print_json(one.to_json())
    else:
        _report(done, store, protocol)
        if option:
            told = f"editloupe report {out_dir}" if out_dir else "write the run with --out, then editloupe report it"
            say(f"Scores made from findings follow the new options: {told}")
        if out_dir is not None:
            say(f"Written: {command('show', out_dir)}")
    warn(store.problems)
    return 1 if all(one.now is None for one in done) else 0


def _report(done: Sequence[Rescored], store: RunStore, protocol: EvalProtocol) -> None:
    for judge_id, name in store.judge_names().items():
        mine = [one for one in done if one.before.judge_id == judge_id]
        for criterion in dict.fromkeys(one.before.metric for one in mine):
            rows = [one for one in mine if one.before.metric == criterion and one.now is not None]
            if rows:
                title = f"{criterion.replace('_', ' ').capitalize()}, judged by {name}"
                out().print(_table(rows, store, protocol, title))
    if any(isinstance(one.before.answer, Number) and one.before.role != "measure" for one in done):
        say(
            "Numbers stay as the judge gave them: none is converted to another scale, and one outside it is off_menu. "
            "Penalties are words of the prompt, so that others change no recorded number; judge again for that."
        )
    changed = [one for one in done if one.changed]
    lines = [
        f"  {one.before.about.key}, {one.before.metric}: {_named(one.before)} → {_named(one.now)}"
        for one in changed
        if one.now is not None
    ]
    say_first(lines, _SHOWN, "; --json lists all.")
    reasons = Counter(one.reason for one in done if one.reason)
    warn(f"{many(count, 'finding')} left out: {reason}" for reason, count in reasons.items())
    say(f"\n{len(changed)} of {len(done)} findings change; no model was asked.")


def _table(rows: Sequence[Rescored], store: RunStore, protocol: EvalProtocol, title: str) -> Table:
    """Label → label with counts, and the means beneath."""
    before = [one.before for one in rows]
    now = [one.now for one in rows if one.now is not None]
    metrics = {metric.id: metric for metric in protocol.metrics}
    scales = store.metrics().get(before[0].metric), metrics.get(now[0].metric)
    table = Table("Recorded", "By the new rubric", title=plain(title), title_justify="left", show_footer=True)
    table.add_column("Findings", justify="right")
    for column, findings, metric in zip(table.columns, (before, now), scales, strict=False):
        value = mean(findings, metric)
        judged = f"{sum(f.status == 'ok' for f in findings)} of {len(findings)} judged"
        if metric is None or value is None:
            column.footer = plain(judged)
        else:
            column.footer = plain(f"Mean {f'{value:.1f} of 100' if metric.levels else f'{value:.4g}'} ({judged})")
    counts = Counter((_named(one.before), _named(one.now)) for one in rows if one.now is not None)
    for (then, new), count in counts.most_common():
        table.add_row(plain(then), plain(new, "yellow" if then != new else ""), str(count))
    return table


def _named(finding: Finding) -> str:
    if finding.status != "ok":
        return f"({finding.status})"
    if finding.label is None:
        return str(finding.answer)
    return finding.label if finding.value is None else f"{finding.label} ({finding.value:g})"
