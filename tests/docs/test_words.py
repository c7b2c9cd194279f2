"""Words and turns of phrase that do not come back: each had to be read twice, or is not American English."""

from __future__ import annotations

import re
from pathlib import Path

from docs.site.reference import commands_page

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]

NOT_WRITTEN = (
    (r"\bof which\b", "two sentences"),
    (r"\bwhat (it|they|this) leaves? out\b", "name it"),
    (r"\b(comes?|came) along\b", "found, included"),
    (r"\bmend(s|ed|ing)?\b", "fix, correct"),
    (r"\bin (the )?place of\b", "instead of"),
    (r"(?<!there )\b(is|are) no (?!longer|more|less|later|earlier|better|answer\b)[a-z]+", "is not a …"),
    (r"\bbut for\b", "except"),
    (r"\bwhoever\b", "anyone who"),
    (r"\bnobody\b", "no one, not …"),
    (r"\bat hand\b", "available"),
    (r"\bis none\b(?! of)", "does not exist"),
    (r"\bworth the name\b", "production"),
    (r"\bvisits?\b", "run, invocation"),
    (r"\bpanes?\b", "panel"),
    (r"\b(colour|grey|centre|neighbour|behaviour|favour)", "American spelling"),
    (r"\b(recogni|normali|summari|optimi|organi)s(e|ed|es|ing|ation)\b", "American spelling"),
)
"""Pattern → what to write instead."""


def prose(text: str) -> str:
    """The page without its code, whose names are what they are."""
    return re.sub(r"`[^`\n]*`", "`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))


def test_no_page_and_no_help_uses_a_phrase_that_was_read_twice() -> None:
    texts = {path.name: prose(path.read_text(encoding="utf-8")) for path in PAGES}
    texts["editloupe --help"] = prose(commands_page())
    found = [
        f"{name}: {match[0]!r} ({instead}): …{text[max(0, match.start() - 40) : match.end() + 30]!r}"
        for name, text in texts.items()
        for pattern, instead in NOT_WRITTEN
        for match in re.finditer(pattern, text, re.IGNORECASE)
    ]
    assert not found, "\n".join(found)
