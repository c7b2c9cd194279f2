"""Print the lowest version of every package that the project names, as constraints for pip: python -m tests.lowest."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def lowest() -> list[str]:
    """Return "name==version" for each lower bound of the dependencies and of the extras."""
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    named = [*project["dependencies"], *(line for name, lines in extras.items() if name != "dev" for line in lines)]
    bounds = [match.groups() for line in named if (match := re.match(r"([\w.-]+)>=([\d.]+)", line))]
    # Of a package named twice, the bound that comes first: an extra may ask for more.
    return [f"{name}=={bound}" for name, bound in dict(reversed(bounds)).items()]


if __name__ == "__main__":
    print("\n".join(lowest()))
