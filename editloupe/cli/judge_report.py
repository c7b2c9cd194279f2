"""What `editloupe judge` prints and writes when a judge is done."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from editloupe.backends.base import LMM, parse_uri
from editloupe.cli.output import command, many, note, print_json, say, say_first, show_table, show_tables, slug, warn
from editloupe.cli.recorded import recorded_runs
from editloupe.config import RunConfig
from editloupe.figures import render
from editloupe.figures.closing import Closing, Heading
from editloupe.figures.judged import judged_in
from editloupe.figures.side_by_side import side_by_side
from editloupe.findings import PENDING, Finding
from editloupe.protocols.base import described
from editloupe.runs.budget import Ledger
from editloupe.runs.outcome import Outcome
from editloupe.runs.setup import Setup
from editloupe.runs.trust import foreign, to_open
from editloupe.scores import fault_messages
from editloupe.stats.table import Table
from editloupe.tools.ablations import ABLATIONS, checked
from editloupe.values import Json


def heading_of(setup: Setup) -> Heading:
    """Return what a reader must know before the numbers: who judged, and what was missing."""
    notes = []
    if not setup.backend.traits.is_lmm and setup.backend.uri == "baseline":
        notes.append(
            "The pixel baseline follows rules on pixels and replaces no LMM. Name one: --backend openai/MODEL "
            "(editloupe list backends)."
        )
    ablations = checked(setup.config.ablate)
    notes += [f"Ablation {name}: {ABLATIONS[name]}; labels tell of the judge, not of the edits." for name in ablations]
    if setup.toolbox.absent and setup.judge.kind != "measure":
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


@dataclass(kw_only=True)
class Told:
    """What one command has told of its judges."""

    means: bool
    """Each judge's means are printed as soon as it is done."""
    notes: set[str] = field(default_factory=set)
    kept: list[Table] = field(default_factory=list)
    """The means that were not printed."""


def report(outcome: Outcome, heading: Heading, folder: Path, *, as_json: bool, told: Told) -> None:
    """Print what a judge found, or one JSON object, and write the summary into the run if it covers all samples."""
    unscored = outcome.unscored
    close = Closing.of(outcome.setup.protocol, outcome.scores, _self_agreement(outcome))
    heading = replace(heading, notes=(*heading.notes, *close.agreement))
    names, id_ = outcome.store.judge_names(), outcome.setup.judge.id
    summary = close.summary(heading, judge_id=id_ if id_ in names else "")
    if outcome.whole:
        # Each judge of several has its own.
        name = f"summary-{slug(outcome.setup.name)}-{id_[:6]}" if len(names) > 1 else "summary"
        outcome.store.write_report(f"{name}.json", render.json_text(summary))
        outcome.store.write_report(f"{name}.md", close.markdown(heading))
    judged = sum(f.status == "ok" for f in outcome.findings)
    warn(fault_messages(unscored))
    if as_json:
        done: dict[str, Json] = {
            "event": "done",
            "run": str(folder),
            "judge_id": outcome.setup.judge.id,
            "name": outcome.setup.name,
            "asked": outcome.asked,
            "judged": judged,
            "failed": outcome.failed,
            **({"unscored": dict(unscored)} if unscored else {}),
            "schema_answers": sum(f.status == "ok" and "schema_answers" in f.counts for f in outcome.findings),
            "reused": outcome.reused,
            "tool_calls": {"run": outcome.tool_calls, "from_cache": outcome.cached},
            "interrupted": outcome.interrupted,
            **({"waiting": outcome.waiting} if outcome.waiting else {}),
            "spent": outcome.ledger.to_json(),
            "seconds": round(outcome.seconds, 3),
            "summary": summary,
        }
        print_json(done)
        return
    for line in outcome.notes:
        if line not in told.notes:
            note(line)
    told.notes.update(outcome.notes)
    if close.scored and judged:
        say(heading.text, "bold")
        for line in heading.notes:
            if line not in told.notes:
                say(line, "yellow")
        if told.means:
            show_tables(close.brief)
        else:
            told.kept += close.brief
        told.notes.update(heading.notes)
    reused = f", {outcome.reused} of them from before" if outcome.reused else ""
    say(f"\n{judged} of {outcome.asked} findings judged{reused}, in {outcome.seconds:.1f} s.")
    if unscored:
        count = "1 sample has" if len(unscored) == 1 else f"{len(unscored)} samples have"
        say(f"{count} no score, because the protocol failed. Correct it, then: {command('report', folder)}", "yellow")
    if outcome.ledger.usage.total or outcome.ledger.calls_without_usage:
        say(spent_message(outcome.ledger, outcome.setup.backend))
    if outcome.cached:
        calls = outcome.tool_calls + outcome.cached
        say(f"Tools: {calls:,} calls, {outcome.cached:,} from cache.")
    if outcome.interrupted:
        why = f"Stopped by the budget ({outcome.ledger.reason})" if outcome.ledger.reason else "Interrupted"
        say(f"{why}. The same command continues.")
    elif stopped := stopped_message(outcome):
        say(stopped)
    elif outcome.waiting:
        say(f"{many(outcome.waiting, 'question')} wait for the answers of batches. The same command goes on (exit code 5).")
    elif outcome.failed:
        _tell_failures(outcome, folder)


def next_steps(outcome: Outcome, folder: Path) -> None:
    """Print the commands that show what a run found."""
    if outcome.findings:
        if outcome.setup.protocol.name == "probes":
            say(f"Compare with the truth: {command('trial', folder)}")
        say(f"All tables: {command('report', folder)}")
        say(f"Look at the verdicts: {command('view', folder)}")


def stopped_message(outcome: Outcome) -> str:
    """Return why nothing more was asked, and what is left; "" if no backend ended the run."""
    if not (outcome.failed and outcome.ledger.refused):
        return ""
    left = "1 finding is" if outcome.failed == 1 else f"{outcome.failed} findings are"
    why = f"Stopped asking, since every further question would fail: {outcome.ledger.refused}"
    return f"{why}\n{left} left. Correct this; the same command then continues."


def _self_agreement(outcome: Outcome) -> list[str]:
    """How far a judge agrees with itself."""
    rule, entropies = outcome.setup.repeats, [s.entropy for s in outcome.scores if s.entropy is not None]
    if rule.count == 1 or not entropies:
        return []
    same = sum(bits == 0 for bits in entropies)
    abstained = sum(s.missing == "abstained" for s in outcome.scores)
    gone = "" if rule.abstain_above is None else f"; {abstained} abstained, above {rule.abstain_above:g} bits"
    return [
        f"{rule.count} repeats a question, the {rule.by} label counts. Repeats agree on {same} of {len(entropies)} scores; "
        f"mean entropy of labels {sum(entropies) / len(entropies):.2f} bits{gone}."
    ]


def spent_message(ledger: Ledger, backend: LMM) -> str:
    """Calls, tokens and money of this visit, and what of them is estimated."""
    both, more = ledger.usage + ledger.estimated, ledger.estimated.total
    tokens = f"{both.input_tokens or 0:,} input and {both.output_tokens or 0:,} output tokens"
    tokens = f"about {tokens}" if more else tokens
    cost = "" if ledger.cost is None or not backend.traits.is_lmm else f", about {ledger.cost:.4g} USD"
    spent = f"Spent: {many(ledger.calls, 'call')}, {tokens}{cost} ({ledger.prices.basis(backend)})."
    if not ledger.calls_without_usage:
        return spent
    guess = f": {more:,} of these tokens are estimated" if more else ", and no rule is known to estimate it"
    return f"{spent}\n{many(ledger.calls_without_usage, 'call')} told no usage{guess}."


def _tell_failures(outcome: Outcome, folder: Path) -> None:
    failures = [f for f in outcome.findings if f.status != "ok"]
    alike: dict[tuple[str, str], list[Finding]] = {}
    for one in failures:
        # How long the attempts took differs between equal failures.
        alike.setdefault((one.status, one.reason.partition(" (gave up after")[0]), []).append(one)
    lines = []
    for first, *others in alike.values():
        more = f" and {len(others)} more" if others else ""
        reason = textwrap.shorten(first.reason, 240, placeholder=" …")
        lines.append(f"  {first.about.key}, {first.metric}{more}: {first.status}: {reason}")
    say_first(lines, 5)
    failures = [f for f in failures if (f.role, f.status) != ("measure", "not_defined")]
    if not failures:
        return
    # Pending ones are always judged again; what a model caused only when it is named.
    final = sorted({f.status for f in failures} - PENDING)
    again = [",".join(final)] if final else []
    advice = "Judge these again"
    if all(f.ending == "protocol" for f in failures):
        advice = f"Correct the {described(outcome.setup.protocol)} first, then judge these again"
    elif all(f.status == "input_error" for f in failures):
        advice = "Correct these in the data first, then judge them again"
    say(f"{advice}: {command('judge', folder, '--retry', *again, *_trusted(recorded_runs(folder)))}")


def _trusted(runs: Iterable[RunConfig]) -> list[str]:
    """Return the words by which the user of `judge --retry` names what it does not take from their own run."""
    runs = list(runs)
    judges = [judge.backend for run in runs for judge in (run.judge, *run.role.values())]
    known = [f"--backend={uri}" for uri in judges if isinstance(uri, str) and foreign(parse_uri(uri))]
    return [*dict.fromkeys(known), *(["--trust"] if any(True for run in runs for _ in to_open(run)) else [])]


def together(outcome: Outcome | None, folder: Path, codes: Mapping[str, int] | None, told: Told) -> None:
    """Print the judges of a run side by side, if it has several; one by one where there is no such table.

    outcome: of the last judge; None if none has begun.   codes: by judge, for one line of JSON; None for a table.
    """
    names = {} if outcome is None else outcome.store.judge_names()
    if len(names) < 2 and codes is None:
        return
    table = None
    if outcome is not None and outcome.store.findings:
        table = side_by_side(judged_in(outcome.store))
    if codes is not None:
        listed: list[Json] = [{"judge_id": id_, "name": name} for id_, name in names.items()]
        side = None if table is None else table.to_json()
        print_json({"event": "judges", "run": str(folder), "judges": listed, "exit_codes": dict(codes), "together": side})
    elif table is not None:
        say("")
        show_table(table)
    else:
        show_tables(told.kept)
