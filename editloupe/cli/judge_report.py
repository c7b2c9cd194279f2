"""What `editloupe judge` prints and writes when a judge is done."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from editloupe.backends.base import LMM, parse_uri
from editloupe.cli.output import as_json, command, fail, many, note, print_json, say, say_first, slug, warn
from editloupe.cli.tables import show_table, show_tables, table
from editloupe.figures import render
from editloupe.figures.closing import Closing, Heading
from editloupe.figures.judged import judged_in, self_agreement
from editloupe.figures.report import side_by_side
from editloupe.findings import PENDING, Finding
from editloupe.protocols.base import described
from editloupe.runs.budget import Ledger
from editloupe.runs.estimate import Ahead
from editloupe.runs.outcome import Outcome
from editloupe.runs.setup import Setup
from editloupe.runs.trust import foreign
from editloupe.scores import fault_messages
from editloupe.tools.ablations import ABLATIONS, checked
from editloupe.values import Json, sample_key


def heading_of(setup: Setup) -> Heading:
    """Return what a reader must know before the numbers: who judged, and what was missing."""
    notes = []
    if setup.backend.uri == "baseline":
        notes.append(
            "The pixel baseline follows rules on pixels and replaces no LMM. Name one: --backend openai/MODEL "
            "(editloupe list backends)."
        )
    ablations = checked(setup.config.ablate)
    notes += [f"Ablation {name}: {ABLATIONS[name]}; labels tell of the judge, not of the edits." for name in ablations]
    if setup.judge.kind != "measure":
        for reason in dict.fromkeys(setup.toolbox.absent.values()):
            names = ", ".join(n for n, why in setup.toolbox.absent.items() if why == reason)
            notes.append(f"Tools absent: {names} ({reason}).")
    rubric, mode = setup.options.get("rubric"), setup.options.get("mode")
    return Heading(
        judge=f"{setup.main.name}, {setup.backend.uri}" if setup.main.name else setup.backend.uri,
        describes=setup.backend.traits.describes,
        mode="" if mode is None else str(mode),
        rubric=str(rubric["id"]) if isinstance(rubric, Mapping) else setup.protocol.name,
        by="rubric" if isinstance(rubric, Mapping) else "protocol",
        ablations=ablations,
        notes=tuple(notes),
    )


def report(outcome: Outcome, folder: Path) -> None:
    """Print what a judge found, or one JSON object, and write the summary into the run if it covers all samples."""
    close = Closing.of(outcome.setup.protocol, outcome.scores, self_agreement(outcome.scores, outcome.setup.repeats))
    heading = heading_of(outcome.setup)
    heading = replace(heading, notes=(*heading.notes, *close.agreement))
    names, id_ = outcome.store.judge_names(), outcome.setup.judge.id
    summary = close.summary(heading, judge_id=id_ if id_ in names else "")
    if outcome.whole:
        # Each judge of several has its own.
        name = f"summary-{slug(outcome.setup.name)}-{id_[:6]}" if len(names) > 1 else "summary"
        outcome.store.write_report(f"{name}.json", render.json_text(summary))
        outcome.store.write_report(f"{name}.md", close.markdown(heading))
    warn(fault_messages(outcome.unscored))
    judged = sum(f.status == "ok" for f in outcome.findings)
    if as_json():
        print_json(_event(outcome, folder, summary, judged))
    else:
        for line in outcome.notes:
            note(line)
        if close.scored and judged:
            say(heading.text, "bold")
            for line in heading.notes:
                say(line, "yellow")
            show_tables(close.brief)
        _say_end(outcome, folder, judged)
    if lost := outcome.never_scored:
        asked = sorted({finding.metric for finding in outcome.findings} - set(outcome.setup.metrics))
        others = f"; it asked {', '.join(map(repr, asked))}, which it does not declare" if asked else ""
        fail(
            f"{described(outcome.setup.protocol)} declares {', '.join(map(repr, lost))} and scored it for no sample"
            f"{others}. Correct the ids in plan and score, then: {command('report', folder)}"
        )


def _event(outcome: Outcome, folder: Path, summary: Mapping[str, Json], judged: int) -> dict[str, Json]:
    unscored: dict[str, Json] = dict(outcome.unscored)
    return {
        "event": "done",
        "run": str(folder),
        "judge_id": outcome.setup.judge.id,
        "name": outcome.setup.name,
        "asked": outcome.asked,
        "judged": judged,
        "failed": outcome.failed,
        **({"unscored": unscored} if unscored else {}),
        "schema_answers": sum(f.status == "ok" and "schema_answers" in f.counts for f in outcome.findings),
        "reused": outcome.reused,
        "tool_calls": {"run": outcome.tool_calls, "from_cache": outcome.cached},
        "interrupted": outcome.interrupted,
        **({"waiting": outcome.waiting} if outcome.waiting else {}),
        "spent": outcome.ledger.to_json(),
        "seconds": round(outcome.seconds, 3),
        "summary": dict(summary),
    }


def _say_end(outcome: Outcome, folder: Path, judged: int) -> None:
    reused = f", {outcome.reused} of them from before" if outcome.reused else ""
    say(f"\n{judged} of {outcome.asked} findings judged{reused}, in {outcome.seconds:.1f} s.")
    if count := len(outcome.unscored):
        told = "1 sample has" if count == 1 else f"{count} samples have"
        say(f"{told} no score, because the protocol failed. Correct it, then: {command('report', folder)}", "yellow")
    if outcome.ledger.usage.total or outcome.ledger.calls_without_usage:
        say(spent_message(outcome.ledger, outcome.setup.backend))
    if outcome.cached:
        say(f"Tools: {outcome.tool_calls + outcome.cached:,} calls, {outcome.cached:,} from cache.")
    if why := unfinished(outcome):
        say(why)
    else:
        _say_failures(outcome, folder)


def conclude(outcome: Outcome, folder: Path) -> None:
    """Print the judges of a run side by side, and the commands that show what was found."""
    if len(outcome.store.judge_names()) > 1 and (together := side_by_side(judged_in(outcome.store))[0]) is not None:
        say("")
        show_table(together)
    if outcome.setup.protocol.name == "probes":
        say(f"Compare with the truth: {command('trial', folder)}")
    say(f"All tables: {command('report', folder)}")
    say(f"Look at the verdicts: {command('view', folder)}")


def unfinished(outcome: Outcome) -> str:
    """Return why not all was asked, and how to go on; "" if all was."""
    if outcome.interrupted:
        why = f"Stopped by the budget ({outcome.ledger.reason})" if outcome.ledger.reason else "Interrupted"
        return f"{why}. The same command continues."
    if outcome.failed and outcome.ledger.refused:
        left = "1 finding is" if outcome.failed == 1 else f"{outcome.failed} findings are"
        why = f"Stopped asking, since every further question would fail: {outcome.ledger.refused}"
        return f"{why}\n{left} left. Correct this; the same command then continues."
    if outcome.waiting:
        waits = "1 question waits" if outcome.waiting == 1 else f"{outcome.waiting:,} questions wait"
        return f"{waits} for the answers of batches. The same command goes on (exit code 5)."
    return ""


def spent_message(ledger: Ledger, backend: LMM) -> str:
    """Return calls, tokens and money of this invocation, and what of them is estimated."""
    both, more = ledger.usage + ledger.estimated, ledger.estimated.total
    tokens = f"{both.input_tokens or 0:,} input and {both.output_tokens or 0:,} output tokens"
    tokens = f"about {tokens}" if more else tokens
    cost = "" if ledger.cost is None or not backend.traits.is_lmm else f", about {ledger.cost:.4g} USD"
    spent = f"Spent: {many(ledger.calls, 'call')}, {tokens}{cost} ({ledger.prices.basis(backend)})."
    if not ledger.calls_without_usage:
        return spent
    guess = f": {more:,} of these tokens are estimated" if more else ", and no rule is known to estimate it"
    return f"{spent}\n{many(ledger.calls_without_usage, 'call')} reported no usage{guess}."


def _say_failures(outcome: Outcome, folder: Path) -> None:
    """Print what failed, the like of it together, and how to judge it again where that can help."""
    alike: dict[tuple[str, str], list[Finding]] = {}
    for one in (finding for finding in outcome.findings if finding.status != "ok"):
        # How long the attempts took differs between equal failures.
        alike.setdefault((one.status, one.reason.partition(" (gave up after")[0]), []).append(one)
    lines = []
    for first, *others in alike.values():
        more = f" and {len(others)} more" if others else ""
        reason = textwrap.shorten(first.reason, 240, placeholder=" …")
        lines.append(f"  {first.about.key}, {first.metric}{more}: {first.status}: {reason}")
    say_first(lines, 5, more="")
    # Rules and measures answer the same again; an abstention is an answer. Only what the world caused may change.
    statuses = {status for status, _ in alike} - {"abstained", "not_defined"}
    statuses = statuses & PENDING if outcome.setup.backend.uri in ("baseline", "measure") else statuses
    if statuses:
        again = [",".join(sorted(statuses - PENDING))] if statuses - PENDING else []
        advice = "Correct these in the data, then judge them again" if statuses == {"input_error"} else "Judge these again"
        uri = outcome.setup.config.judge.backend
        named = [f"--backend={uri}"] if isinstance(uri, str) and foreign(parse_uri(uri)) else []
        say(f"{advice}: {command('judge', folder, '--retry', *again, *named)}")


def say_ahead(setup: Setup, ahead: Ahead, folder: Path, *, basis: str) -> None:
    """Print what judging into `folder` would do and cost, from one call a task to every turn used.   basis: of prices."""
    heading, loaded, tasks = heading_of(setup), ahead.loaded, len(ahead.due) + ahead.reused
    say("Dry run: no model is asked and nothing is written.", "bold")
    say(heading.text)
    for line in (*loaded.notes, *heading.notes, *ahead.remarks):
        say(line, "yellow")
    say_first([f"rejected: {sample_key(row.editor, row.id)}: {row.message}" for row in loaded.rejected], 10, more="")
    blocked = {f"not asked about: {d.task.about.key}: {': '.join(d.task.blocked)}" for d in ahead.due if d.task.blocked}
    say_first(sorted(blocked), 10, more="")
    repeats = f" ({setup.repeats.count} repeats a question)" if setup.repeats.count > 1 else ""
    begun = f", {ahead.begun} of them continue" if ahead.begun else ""
    reused = f"{ahead.reused} are in {folder}" if ahead.reused else f"none is in {folder} yet"
    grows = " Further questions follow from the answers and are not counted." if ahead.grows else ""
    samples = many(len(loaded.samples), "sample")
    say(f"{samples}, {many(tasks, 'task')}{repeats}: {reused}, {ahead.asked} to ask{begun}.{grows}")
    if not as_json():
        _say_cost(setup, ahead, basis)
        return
    counts = {"samples": len(loaded.samples), "tasks": tasks, "reused": ahead.reused, "to_ask": ahead.asked}
    bounds: dict[str, Json] = {"least": ahead.least.to_json(), "most": ahead.most.to_json()}
    wave: dict[str, Json] = {} if ahead.wave is None else {"wave": dict(vars(ahead.wave))}
    print_json({"event": "dry_run", "run": str(folder), "name": setup.name, **counts, **bounds, **wave})


def _say_cost(setup: Setup, ahead: Ahead, basis: str) -> None:
    """Print calls, tokens and money from one end to the other."""
    ends, heads = (ahead.least, ahead.most), ("One call a task", "Every turn used")
    rows = [["Calls", *(f"{end.calls:,}" for end in ends)]]
    if setup.backend.traits.is_lmm:
        rows += [
            ["Input tokens", *("unknown" if end.input_tokens is None else f"{end.input_tokens:,}" for end in ends)],
            ["Output tokens", *(f"{end.output_tokens:,}" for end in ends)],
            ["Cost in USD", *("unknown" if end.cost_usd is None else f"{end.cost_usd:.4g}" for end in ends)],
        ]
    if ahead.wave is not None:
        least, most = (end.cost_usd for end in ends)
        # At least the first step of each conversation goes into a batch.
        known = [] if least is None or most is None else [f"{least / 2:.4g}", f"at most {most - least / 2:.4g}"]
        rows.append(["Cost by batch in USD", *(known or ["unknown"] * 2)])
    table("", *heads, rows=rows, title=f"Estimate: {setup.name}", right=heads)
    if ahead.wave is not None:
        say(f"The first wave: {many(ahead.wave.files, 'file')}, {ahead.wave.bytes / 1e6:,.1f} MB.")
    if setup.backend.traits.is_lmm:
        say(f"Prices: {basis}.", "dim")
