"""`editloupe export`: a run in another form."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from typer import Argument, Option

from editloupe.backends.prices import Prices, read_prices
from editloupe.cli.options import Columns, CriterionName, PricesFile, finite
from editloupe.cli.output import note, say, status, warn
from editloupe.cli.recorded import metric_id
from editloupe.errors import ConfigError
from editloupe.exports.atif import write_atif
from editloupe.exports.episodes import Source
from editloupe.exports.findings import write_findings
from editloupe.exports.inspect_log import write_inspect
from editloupe.exports.junit import write_junit
from editloupe.exports.otel import write_otel
from editloupe.exports.people import write_people
from editloupe.exports.references import Reference, people_of, second_judge
from editloupe.exports.training import Answers, Turns, write_dpo, write_sft
from editloupe.figures.labels import column_names
from editloupe.viewer.export import export as write
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader


def export(
    runs: Annotated[list[Path], Argument(metavar="RUN", help="Run folders; several only for --html and --to dpo.")],
    html: Annotated[Path | None, Option(metavar="DIR", help="Pages that open without a server.")] = None,
    otel: Annotated[
        Path | None, Option(metavar="FILE", help="OpenTelemetry spans: OTLP as JSON, one line a trace.")
    ] = None,
    atif: Annotated[Path | None, Option(metavar="DIR", help="Trajectories (ATIF v1.7), one JSON file a trace.")] = None,
    inspect: Annotated[
        Path | None,
        Option(metavar="DIR|FILE.json", help="A log of Inspect; in a folder under the name that Inspect looks for."),
    ] = None,
    findings: Annotated[Path | None, Option(metavar="FILE", help="One row a finding: .jsonl, .csv or .parquet.")] = None,
    human: Annotated[
        Path | None, Option("--human", metavar="FILE", help="People's ratings, a row each: .jsonl, .csv or .parquet.")
    ] = None,
    junit: Annotated[Path | None, Option(metavar="FILE", help="JUnit XML, a test case a finding.")] = None,
    junit_fail_below: Annotated[
        str | None, Option(metavar="LABEL|NUMBER", help="What is worth less fails its test case. Default: no answer does.")
    ] = None,
    to: Annotated[
        Literal["sft", "dpo"] | None, Option(help="With --out: dialogues (sft) or pairs (dpo) to train a judge with trl.")
    ] = None,
    out: Annotated[
        Path | None, Option("--out", metavar="DIR", help="With --to: JSON Lines, with the pictures beside.")
    ] = None,
    turns: Annotated[
        Turns | None,
        Option(help="With --to sft: the question and the last answer, or all turns with tools. Default: answer."),
    ] = None,
    agree_with: Annotated[
        str | None,
        Option(metavar="FILE|samples", help="With --to: people's ratings, a table or those in the run's samples."),
    ] = None,
    agree_with_run: Annotated[
        Path | None, Option(metavar="RUN", help="With --to: a second judge of the same data, to agree with.")
    ] = None,
    columns: Columns = None,
    tolerance: Annotated[
        float, Option(min=0, callback=finite, help="With --to: by how much numbers that agree may differ.")
    ] = 0.0,
    criterion: CriterionName = None,
    content: Annotated[bool, Option("--content", help="With --otel: also texts, arguments and image addresses.")] = False,
    blob_base_url: Annotated[
        str | None, Option(metavar="URL", help="Address of the run's blobs/. Default: its file:// address.")
    ] = None,
    judge: Annotated[str | None, Option(metavar="ID", help="Only this judge of the run, not for --html.")] = None,
    sample: Annotated[
        list[str] | None, Option(metavar="ID", help="Only this sample; may be repeated, not for --html.")
    ] = None,
    prices: PricesFile = None,
) -> int:
    """Write a run as pages or in formats of other tools; one or several at once. Exit code 2 if there is nothing."""
    known = read_prices(prices)
    others: dict[str, Path | str | None] = {
        "--otel": otel,
        "--atif": atif,
        "--inspect": inspect,
        "--findings": findings,
        "--human": human,
        "--junit": junit,
        "--to": to,
    }
    asked = {name: path for name, path in others.items() if path is not None}
    if html is None and not asked:
        raise ConfigError(f"nothing to write; name one of --html, {', '.join(others)}")
    if len(runs) > 1 and (single := [name for name in asked if name != "--to" or to != "dpo"]):
        raise ConfigError(f"{', '.join(single)}: one run at a time, found {len(runs)}; only --html and --to dpo take more")
    if to is not None and out is None:
        raise ConfigError(f"--to {to}: name the folder to write to with --out DIR")
    for name, given, needs in (
        ("--content", content, otel),
        ("--junit-fail-below", junit_fail_below is not None, junit),
        ("--out", out is not None, to),
        ("--turns", turns is not None, to),
        ("--agree-with", agree_with is not None, to),
        ("--agree-with-run", agree_with_run is not None, to),
        ("--columns", columns is not None, agree_with),
        ("--tolerance", tolerance > 0, agree_with or agree_with_run),
        ("--criterion", criterion is not None, to),
        ("--judge", judge is not None, asked or None),
        ("--sample", bool(sample), asked or None),
    ):
        if given and needs is None:
            raise ConfigError(f"{name} says how something else is written; see editloupe export --help")
    if html is not None:
        _pages(runs, html, known)
    if not asked:
        return 0
    source = Source(folder=runs[0], judge=judge, samples=tuple(sample or ()), blob_base_url=blob_base_url, prices=known)
    # Only spans and trajectories show traces that have no finding yet, and people need no judge.
    empty = not source.findings and (asked.keys() - {"--otel", "--atif"} or next(source.episodes(), None) is None)
    if empty and asked.keys() != {"--human"}:
        raise ConfigError(f"{runs[0]} has no finding to export; judge something first")
    if otel is not None:
        with status("writing spans") as line:
            count = write_otel(
                source, otel, content=content, progress=lambda n: line.update(f"writing spans, {n:,} traces")
            )
        left = "" if content else "; texts and images are left out, --content includes them"
        say(f"{count:,} traces as OpenTelemetry spans in {otel}{left}{_without(source)}")
    if atif is not None:
        with status("writing trajectories") as line:
            count = write_atif(source, atif, progress=lambda n: line.update(f"writing trajectories, {n:,}"))
        say(f"{count:,} trajectories in {atif}{_without(source)}")
    if inspect is not None:
        with status("writing samples"):
            written = write_inspect(source, inspect)
        say(f"{len(source.findings):,} findings as samples of an Inspect log in {written}")
    if findings is not None:
        say(f"{write_findings(source, findings):,} findings in {findings}")
    if human is not None:
        say(f"{write_people(source, human):,} ratings by people in {human}")
    if junit is not None:
        done = write_junit(source, junit, fail_below=junit_fail_below)
        say(f"{done.tests:,} test cases, {done.failures:,} failures, {done.errors:,} errors in {junit}")
        if done.limitless:
            note(f"{junit_fail_below!r} is no limit for {', '.join(done.limitless)}: nothing fails there.")
    problems = source.problems
    if to is not None:
        assert out is not None, "--to needs --out"
        sources = [source, *(Source(folder=run, judge=judge, samples=tuple(sample or ())) for run in runs[1:])]
        named = column_names(columns, "--columns")
        held = [
            Answers(source=one, references=_references(one, agree_with, named, agree_with_run, tolerance))
            for one in sources
        ]
        metric = None if criterion is None else metric_id(source.store, criterion)
        _training(to, held, out, turns, metric)
        problems = [problem for one in sources for problem in one.problems]
    warn(dict.fromkeys(problems))
    return 1 if problems else 0


def _references(
    source: Source, people: str | None, columns: dict[str, str], second: Path | None, tolerance: float
) -> tuple[Reference, ...]:
    """What the answers of a run are held against. Raises ConfigError."""
    found: list[Reference] = []
    if people is not None:
        file = None if people == "samples" else Path(people)
        ratings, notes = people_of(source.store, file, columns, tolerance)
        found.append(ratings)
        for text in notes:
            note(text)
    if second is not None:
        found.append(second_judge(source.store, second, tolerance))
    return tuple(found)


def _training(to: str, runs: list[Answers], folder: Path, turns: Turns | None, metric: str | None) -> None:
    if to == "dpo" and turns is not None:
        raise ConfigError("--turns goes with --to sft; a pair has the question and two answers")
    if to == "dpo" and metric is not None and not runs[0].references:
        raise ConfigError("--criterion goes with --agree-with or --agree-with-run; without, only verification is paired")
    with status("writing dialogues"):
        if to == "sft":
            done = write_sft(runs[0], folder, turns=turns or "answer", metric=metric)
        else:
            done = write_dpo(runs, folder, metric=metric)
    what = "dialogues" if to == "sft" else "pairs"
    say(f"{done.rows:,} {what} in {folder / to}.jsonl with {done.images:,} pictures")
    say(f"{done.used:,} of {done.findings:,} findings are used")
    for reason, count in done.left_out.most_common():
        say(f"left out: {count:,} {reason}")


def _pages(runs: list[Path], html: Path, prices: Prices) -> None:
    readers = [RunReader(run) for run in runs]
    if not any(reader.counts()[0] for reader in readers):
        raise ConfigError(f"{', '.join(map(str, runs))}: no sample to show; judge something first")
    site = Site.of(readers, prices=prices)
    with status("writing pages") as line:
        done = write(site, html, progress=lambda n, total: line.update(f"writing pages, {n:,} of {total:,} samples"))
    say(f"{done.pages:,} pages and {done.pictures:,} pictures, {done.size_bytes / 1e6:.1f} MB; open {done.index}")


def _without(source: Source) -> str:
    """Say how many findings have no trace: those that were never asked."""
    blocked = [f for f in source.findings if f.trace is None]
    statuses = ", ".join(dict.fromkeys(f.status for f in blocked))
    return f"; {len(blocked):,} findings have no trace ({statuses})" if blocked else ""
