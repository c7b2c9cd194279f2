"""`editloupe export`: a run in another form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

from editloupe.cli.options import HumanColumns, JudgeName, RunFolders, check_company, opt, people_columns
from editloupe.cli.output import note, say, status, warn
from editloupe.errors import ConfigError
from editloupe.exports.episodes import Source
from editloupe.exports.findings import write_findings
from editloupe.exports.inspect_log import write_inspect
from editloupe.exports.otel import write_otel
from editloupe.exports.sft import Answers, People, Turns, write_dpo, write_sft
from editloupe.viewer.export import export as write
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader


def export(
    runs: RunFolders,
    html: Annotated[Path | None, opt("--html", "DIR", "Pages that open without a server.")] = None,
    findings: Annotated[Path | None, opt("--findings", "FILE", "A row a finding: .jsonl, .csv or .parquet.")] = None,
    otel: Annotated[Path | None, opt("--otel", "FILE", "OpenTelemetry spans (OTLP as JSON), a line a trace.")] = None,
    content: Annotated[bool, opt("--content", None, "With --otel: also texts, arguments and image addresses.")] = False,
    inspect: Annotated[Path | None, opt("--inspect", "DIR|FILE.json", "A log of Inspect.")] = None,
    sft: Annotated[Path | None, opt("--sft", "DIR", "Dialogues to train a judge with trl, and their pictures.")] = None,
    dpo: Annotated[bool, opt("--dpo", None, "With --sft: pairs of a chosen and a rejected answer.")] = False,
    turns: Annotated[Turns, opt("--turns", None, "With --sft: the last answer alone (default), or all.")] = "answer",
    human: Annotated[str | None, opt("--human", "FILE|samples", "With --sft and --html: people's labels.")] = None,
    columns: HumanColumns = None,
    judge: JudgeName = None,
) -> int:
    """Write a run as pages or in formats of other tools; one or several at once. Exit code 2 if there is nothing.

    Several runs go with --html and with --sft DIR --dpo.
    """
    others = {"--findings": findings, "--otel": otel, "--inspect": inspect, "--sft": sft}
    asked = [name for name, path in others.items() if path is not None]
    if html is None and not asked:
        raise ConfigError(f"nothing to write; name one of --html, {', '.join(others)}")
    if len(runs) > 1 and (single := [name for name in asked if name != "--sft" or not dpo]):
        raise ConfigError(f"{', '.join(single)}: one run at a time, found {len(runs)}; only --html and --dpo take more")
    check_company(
        ("--otel", otel is not None, {"--content": content}),
        ("--sft", sft is not None, {"--dpo": dpo, "--turns": turns != "answer"}),
        ("--sft or --html", sft is not None or html is not None, {"--human": human}),
        (f"one of {', '.join(others)}", bool(asked), {"--judge": judge}),
    )
    people = None if human in (None, "samples") else Path(str(human))
    named = people_columns(people, columns)
    if html is not None:
        _pages(runs, html, people, named)
    sources = [Source(folder=run, judge=judge) for run in runs]
    source = sources[0]
    if asked and not source.findings:
        raise ConfigError(f"{runs[0]} has no finding to export; judge something first")
    if findings is not None:
        say(f"{write_findings(source, findings):,} findings in {findings}")
    if otel is not None:
        with status("writing spans"):
            count = write_otel(source, otel, content=content)
        left = "" if content else "; without texts and images, which --content includes"
        untraced = sum(finding.trace is None for finding in source.findings)
        more = f"; {untraced:,} findings have no trace" if untraced else ""
        say(f"{count:,} traces as OpenTelemetry spans in {otel}{left}{more}")
    if inspect is not None:
        with status("writing samples"):
            written = write_inspect(source, inspect)
        say(f"{len(source.findings):,} findings as samples of an Inspect log in {written}")
    if sft is not None:
        rated = [Answers(source=one, people=None if human is None else People(one.store, people, named)) for one in sources]
        for text in (text for one in rated if one.people is not None for text in one.people.notes):
            note(text)
        _training(rated, sft, dpo=dpo, turns=turns)
    problems = [problem for one in sources for problem in (one.problems if asked else ())]
    warn(dict.fromkeys(problems))
    return 1 if problems else 0


def _training(runs: Sequence[Answers], folder: Path, *, dpo: bool, turns: Turns) -> None:
    """Write dialogues or pairs to train a judge with."""
    if dpo and runs[0].people is None:
        raise ConfigError("--dpo: nothing says which answer is the better one; name people's labels with --human")
    with status("writing dialogues"):
        done = write_dpo(runs, folder) if dpo else write_sft(runs[0], folder, turns=turns)
    what, name = ("pairs", "dpo.jsonl") if dpo else ("dialogues", "sft.jsonl")
    say(f"{done.rows:,} {what} in {folder / name} with {done.images:,} pictures")
    say(f"{done.used:,} of {done.findings:,} findings are used")
    for reason, count in done.left_out.most_common():
        say(f"left out: {count:,} {reason}")


def _pages(runs: list[Path], html: Path, human: Path | None, columns: Mapping[str, str]) -> None:
    readers = [RunReader(run, human=human, columns=columns) for run in runs]
    if not any(reader.counts()[0] for reader in readers):
        raise ConfigError(f"{', '.join(map(str, runs))}: no sample to show; judge something first")
    with status("writing pages") as line:
        told = "writing pages, {:,} of {:,} samples"
        done = write(Site.of(readers), html, progress=lambda n, total: line.update(told.format(n, total)))
    say(f"{done.pages:,} pages and {done.pictures:,} pictures, {done.size_bytes / 1e6:.1f} MB; open {done.index}")
