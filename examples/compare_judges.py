"""Compare two runs of the same edits: how often their judges give one label, and where they differ.

python examples/compare_judges.py runs/example runs/other
"""

from __future__ import annotations

import sys

from editloupe import Run

KEYS = ["sample", "editor", "turn", "part", "metric"]


def main(first: str, second: str) -> None:
    """Print the share of equal labels among the scores that both judges have, and each difference."""
    one, other = (Run.open(folder).frame().filter(kind="judge") for folder in (first, second))
    both = one.join(other, on=KEYS, nulls_equal=True, suffix="_other").drop_nulls(["value", "value_other"])
    same = both.filter(both["value"] == both["value_other"])
    print(f"{len(same)} of {len(both)} scores are equal; {len(one) - len(both)} were not judged by both")
    for row in both.filter(both["value"] != both["value_other"]).iter_rows(named=True):
        print(f"{row['sample']:24} {row['metric']:24} {row['label']} / {row['label_other']}")


if __name__ == "__main__":
    main(*sys.argv[1:])
