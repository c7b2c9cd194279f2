"""Judge a folder of edits with a backend of your choice, and count the labels.

python examples/judge_a_folder.py examples/edits baseline runs/example
"""

from __future__ import annotations

import sys
from collections import Counter

from editloupe import Judge, load_samples


def main(folder: str, backend: str, out: str) -> None:
    """Judge all edits into a run folder. The same call goes on where it stopped."""
    samples = load_samples(folder)
    for row in samples.rejected:
        print(f"cannot be judged: {row.message}")
    with Judge(backend, out=out) as judge:
        findings = [finding for of_sample in judge.judge_all(samples) for finding in of_sample]
    for (metric, answer), count in sorted(Counter((f.metric, f.label or f.status) for f in findings).items()):
        print(f"{metric:24} {answer:24} {count}")


if __name__ == "__main__":
    main(*sys.argv[1:])
