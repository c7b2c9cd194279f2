"""`editloupe export`: a run in another form."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from editloupe.backends.prices import Prices, read_prices
from editloupe.cli.options import PricesFile
from editloupe.cli.output import note, say, status, warn
from editloupe.errors import ConfigError
from editloupe.exports.atif import write_atif
from editloupe.exports.episodes import Source
from editloupe.exports.findings import write_findings
from editloupe.exports.inspect_log import write_inspect
from editloupe.exports.junit import write_junit
from editloupe.exports.otel import write_otel
from editloupe.viewer.export import export as write
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader


def export(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders; several only for --html.")],
    html: Annotated[Path | None, Option(metavar="DIR", help="Pages that open without a server.")] = None,
    otel: Annotated[
        Path | None, Option(metavar="FILE", help="OpenTelemetry spans: OTLP as JSON, one line a trace.")
    ] = None,
    atif: Annotated[Path | None, Option(metavar="DIR", help="Trajectories (ATIF v1.7), one JSON file a trace.")] = None,
    inspect: Annotated[Path | None, Option(metavar="FILE", help="A log of Inspect, format 2, as JSON.")] = None,
    findings: Annotated[Path | None, Option(metavar="FILE", help="One row a finding: .jsonl, .csv or .parquet.")] = None,
    junit: Annotated[Path | None, Option(metavar="FILE", help="JUnit XML, a test case a finding.")] = None,
    junit_fail_below: Annotated[
        str | None, Option(metavar="LABEL|NUMBER", help="What is worth less fails its test case. Default: no answer does.")
    ] = None,
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
    others = {"--otel": otel, "--atif": atif, "--inspect": inspect, "--findings": findings, "--junit": junit}
    asked = {name: path for name, path in others.items() if path is not None}
    if html is None and not asked:
        raise ConfigError(f"nothing to write; name one of --html, {', '.join(others)}")
    if asked and len(runs) > 1:
        raise ConfigError(f"{', '.join(asked)}: one run at a time, found {len(runs)}; only --html shows several")
    for name, given, needs in (
        ("--content", content, otel),
        ("--junit-fail-below", junit_fail_below is not None, junit),
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
    # Only spans and trajectories show traces that have no finding yet.
    if not source.findings and (asked.keys() - {"--otel", "--atif"} or next(source.episodes(), None) is None):
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
        say(f"{write_inspect(source, inspect):,} findings as samples of an Inspect log in {inspect}")
    if findings is not None:
        say(f"{write_findings(source, findings):,} findings in {findings}")
    if junit is not None:
        done = write_junit(source, junit, fail_below=junit_fail_below)
        say(f"{done.tests:,} test cases, {done.failures:,} failures, {done.errors:,} errors in {junit}")
        if done.limitless:
            note(f"{junit_fail_below!r} is no limit for {', '.join(done.limitless)}: nothing fails there.")
    warn(dict.fromkeys(source.problems))
    return 1 if source.problems else 0


def _pages(runs: list[Path], html: Path, prices: Prices) -> None:
    with ExitStack() as opened:
        readers = [opened.enter_context(RunReader(run)) for run in runs]
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
