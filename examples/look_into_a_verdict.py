"""Print the steps of a sample's verdicts: what the judge thought, what it called, and what it read.

python examples/look_into_a_verdict.py runs/example kitchen-mug
"""

from __future__ import annotations

import sys

from editloupe import Run


def main(folder: str, sample: str) -> None:
    """Print every finding of a sample with its steps."""
    run = Run.open(folder)
    for finding in run.findings:
        if finding.sample_id != sample:
            continue
        print(f"{finding.metric}: {finding.label or finding.status} ({finding.reason})")
        trace = run.trace(finding)
        for step in trace.steps():
            print(f"  thinks: {step.thought[:90]}")
            for call in step.calls:
                print(f"  calls:  {call.name}({dict(call.arguments)})")
        for problem in trace.problems:
            print(f"  damaged: {problem}")


if __name__ == "__main__":
    main(*sys.argv[1:])
