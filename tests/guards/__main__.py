"""Write the frozen figures and questions anew: `python -m tests.guards --write [PART …] [WORD]`.

PART: numbers, published, questions or old_run; all without one. Runs the guards themselves, slow ones and those that need
../shared too, which then write instead of comparing. WORD chooses among them as pytest's -k does.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.guards.frozen import WRITING

PARTS = ("numbers", "published", "questions", "old_run")


def main() -> int:
    if "--write" not in sys.argv[1:]:
        print(__doc__)
        return 2
    words = [word for word in sys.argv[1:] if word != "--write"]
    parts = [word for word in words if word in PARTS] or list(PARTS)
    chosen = [word for word in words if word not in parts]
    os.environ[WRITING] = "yes"
    here = Path(__file__).parent
    files = [str(here / f"test_{part}.py") for part in parts]
    return int(pytest.main(["-n", "0", "-m", "", *(["-k", chosen[0]] if chosen else []), *files]))


if __name__ == "__main__":
    sys.exit(main())
