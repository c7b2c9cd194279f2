"""What becomes of a run when three calls in ten go wrong, and how much longer it takes.

    python -m benchmarks.faults                   # 384 samples, 0.5 s an answer, 64 connections
    python -m benchmarks.faults --write           # and put the table into benchmarks/README.md

The server of `benchmarks.load` answers with a 429 (with and without Retry-After), a 500, a connection reset in the middle
of the answer, no answer within the attempt's time-out, half a JSON, or an empty reply. It counts how often each request
came: never more often than the policy allows. Every sample must end with a label or a status that names the failure.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from benchmarks.load.data import draw
from benchmarks.load.server import CALLS, FAULTS, Seen, Server, serving
from benchmarks.pages import options, show, table
from editloupe.backends.retry import DEFAULT_POLICY
from editloupe.runs.outcome import Outcome
from tests.setups import open_with, run_over

COLUMNS = (
    "connections", "calls that go wrong:", "calls:", "most of one request:", "labels:", "other statuses", "seconds:",
    "times:",
)  # fmt: skip


class Run(NamedTuple):
    """One run as it ended, as the server saw it, and how long it took."""

    outcome: Outcome
    seen: Seen
    seconds: float


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--samples", type=int, default=384)
    parser.add_argument("--latency", type=float, default=0.5, help="seconds (0.5)")
    parser.add_argument("--timeout", type=float, default=2.0, help="of one attempt, in seconds (2)")
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--share", type=float, default=0.3, help="of calls that go wrong (0.3)")
    args = parser.parse_args()
    runs = list[tuple[str, float, Run]]()
    with tempfile.TemporaryDirectory() as folder:
        data = draw(Path(folder) / "data", args.samples)
        for told, connections in ((f"{args.connections}", args.connections), ("adaptive", None)):
            for share in (0.0, args.share):
                with serving(args.latency, faults=share) as server:
                    out = Path(folder) / f"{told}-{share}"
                    runs.append((told, share, judged(data, out, server, timeout_s=args.timeout, connections=connections)))
    show("faults", report(runs, args), write=args.write)


def judged(data: Path, out: Path, server: Server, *, timeout_s: float, connections: int | None) -> Run:
    """One run over all samples. connections: at once; None adapts."""
    uri = f"openai/m?base_url={server.url}&env=none&timeout_s={timeout_s:g}"
    setup = open_with(backend=uri, criteria=("if",))
    began = time.perf_counter()
    outcome = run_over(setup, data, out, config={}, max_connections=connections)
    return Run(outcome, server.seen(), time.perf_counter() - began)


def report(runs: list[tuple[str, float, Run]], args: argparse.Namespace) -> str:
    """The runs as a Markdown table; raises SystemExit where the contract is broken."""
    whole = {told: run.seconds for told, share, run in runs if not share}
    rows = []
    for told, share, run in runs:
        statuses = Counter(finding.status for finding in run.outcome.findings)
        labels = statuses.pop("ok", 0)
        others = ", ".join(f"{n} {status}" for status, n in sorted(statuses.items())) or "none"
        most = max(run.seen.asked, default=1)
        times = f"{run.seconds:.1f}", f"{run.seconds / whole[told]:.2f}"
        rows.append((told, f"{share:.0%}", run.seen.calls, most, labels, others, *times))
        ended, asked = len(run.outcome.findings), run.outcome.asked
        if ended != asked or most > DEFAULT_POLICY.attempts:
            raise SystemExit(f"{told}: {ended} of {asked} samples ended, {most} calls of one request")
    head = (
        f"{args.samples} samples of {CALLS} calls, {args.latency:g} s an answer, {args.timeout:g} s for an attempt; "
        f"{args.share:.0%} of the calls go wrong: {', '.join(FAULTS)}, each as often."
    )
    return f"{head}\n\n{table(COLUMNS, rows)}"


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
