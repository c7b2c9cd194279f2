"""How many replies the parser reads wrongly: labels that nobody gave, and labels that it does not see.

    python -m benchmarks.replies

The replies and what is to be read in them stand in tests/agent/replies.py. A false accept is a label where there is none
or another; a false reject is a status where there is a label.
"""

from __future__ import annotations

from collections import Counter

from tests.agent.replies import ANSWERS, REFUSED, REPLIES
from tests.agent.test_replies import LABELS, read

_NAMES = set(LABELS.choices() or ())


def main() -> None:
    """Print both rates."""
    tagged = "<Start Thinking>I look.</Start Thinking><Start Final Answer>{}</Start Final Answer>"
    cases = [
        (wanted, tagged.format(answer)) for table in (ANSWERS, REFUSED) for wanted, some in table.items() for answer in some
    ]
    cases += [(wanted, reply) for wanted, some in REPLIES.items() for reply in some]
    outcomes: Counter[str] = Counter()
    for wanted, reply in cases:
        found = read(reply)
        outcomes["with a label" if wanted in _NAMES else "without a label"] += 1
        if found in _NAMES and found != wanted:
            outcomes["false accepts"] += 1
            print(f"false accept of {found}: {reply!r}")
        elif found not in _NAMES and wanted in _NAMES:
            outcomes["false rejects"] += 1
            print(f"false reject ({found}): {reply!r}")
    print(
        f"{len(cases)} replies, {outcomes['with a label']} with a label, {outcomes['without a label']} without: "
        f"{outcomes['false accepts']} false accepts, {outcomes['false rejects']} false rejects"
    )


if __name__ == "__main__":
    main()
