"""How many replies the parser reads wrongly: labels that nobody gave, and labels that it does not see.

    python -m benchmarks.replies

The replies and what is to be read in them stand in tests/core/replies.json. A false accept is a label where there is none
or another; a false reject is a status where there is a label: it costs a reminder.
"""

from __future__ import annotations

from collections import Counter

from tests.core.test_replies import CORPUS, NAMES, cases, read


def main() -> None:
    """Print both rates."""
    relabelled = {one["reply"]: one["new"] for one in CORPUS["relabelled"]}
    outcomes: Counter[str] = Counter()
    for reply, old in cases():
        wanted, found = relabelled.get(reply, old), read(reply)
        outcomes["with a label" if wanted in NAMES else "without a label"] += 1
        if found in NAMES and found != wanted:
            outcomes["false accepts"] += 1
            print(f"false accept of {found}: {reply!r}")
        elif found not in NAMES and wanted in NAMES:
            outcomes["false rejects"] += 1
            print(f"false reject ({found}): {reply!r}")
    print(
        f"{outcomes['with a label'] + outcomes['without a label']} replies, {outcomes['with a label']} with a label, "
        f"{outcomes['without a label']} without: {outcomes['false accepts']} false accepts, "
        f"{outcomes['false rejects']} false rejects"
    )


if __name__ == "__main__":
    main()
