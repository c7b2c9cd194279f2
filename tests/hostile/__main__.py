"""Run the campaign of faults, and count its cases by kind.

    python -m tests.hostile [PROCESSES]

Each kind of spoiled run meets each command that opens a run, next to the spoiled links and files; two processes by default.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest


class Count:
    """A plugin of pytest that counts what became of the cases of each kind."""

    def __init__(self) -> None:
        self.cases: dict[str, Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count a case when it has run, or when it failed before."""
        if report.when == "call" or report.failed:
            file, _, name = report.nodeid.partition("::")
            kind = re.search(r"\[(.+)\]", name) if "test_a_spoiled_run" in name else None
            told = kind[1].rpartition("-")[0] if kind else Path(file).stem
            self.cases.setdefault(told, Counter())[report.outcome] += 1


def main() -> int:
    """Print a line a kind, and all."""
    count = Count()
    processes = sys.argv[1] if len(sys.argv) > 1 else "2"
    every = "slow or campaign or not slow"
    code = pytest.main(["-q", "-n", processes, "--dist", "load", "-m", every, str(Path(__file__).parent)], plugins=[count])
    for kind, outcomes in sorted(count.cases.items()):
        print(
            f"{sum(outcomes.values()):5}  {kind}: {', '.join(f'{n} {outcome}' for outcome, n in sorted(outcomes.items()))}"
        )
    print(f"{sum(n for outcomes in count.cases.values() for n in outcomes.values()):5}  in all")
    return int(code)


if __name__ == "__main__":
    raise SystemExit(main())
