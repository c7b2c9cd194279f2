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
    count: Counter[str] = Counter()
    for reply, old in cases():
        wanted, found = relabelled.get(reply, old), read(reply)
        count["with" if wanted in NAMES else "without"] += 1
        wrongly = "accept" if found in NAMES else "reject" if wanted in NAMES else ""
        if wrongly and found != wanted:
            count[wrongly] += 1
            print(f"false {wrongly} ({found}): {reply!r}")
    print(
        f"{count['with'] + count['without']} replies, {count['with']} with a label, {count['without']} without: "
        f"{count['accept']} false accepts, {count['reject']} false rejects"
    )


if __name__ == "__main__":
    main()
