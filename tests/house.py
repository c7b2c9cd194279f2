"""Measure the house against its budgets: python -m tests.house, which `make check` calls.

A ratchet: a figure may grow by 3 % above what `house.json` records, or up to its budget. `--write` lowers what is recorded
to what is found; `--write --raise` also raises it, with a reason in the commit.
"""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = Path(__file__).with_name("house.json")
GROWTH_PERCENT: Final = 3

WORDS: Final = "words (editloupe/*.py)"
ALL: Final = "editloupe/ in all"
ROOMS: Final[Mapping[str, tuple[tuple[str, ...], int]]] = {
    "data": (("data",), 3_000),
    "imaging": (("imaging",), 3_000),
    "prompts, rubrics": (("prompts", "rubrics"), 800),
    "traces, agent": (("traces", "agent"), 1_500),
    "backends": (("backends",), 3_300),
    "models": (("models",), 3_300),
    "tools": (("tools",), 2_100),
    "measures": (("measures",), 1_400),
    "baseline": (("baseline",), 400),
    "protocols": (("protocols",), 7_400),
    "build": (("build",), 4_500),
    "runs": (("runs",), 3_800),
    "stats, figures, reports": (("stats", "figures", "reports"), 5_000),
    "annotate": (("annotate",), 900),
    "viewer": (("viewer",), 2_500),
    "exports": (("exports",), 1_200),
    "service": (("service",), 700),
    "cli": (("cli",), 3_200),
    "testing": (("testing",), 600),
}
"""Lines of Python that rooms of editloupe/ may have: their folders, and the budget."""
BUDGETS: Final[Mapping[str, int]] = {
    WORDS: 3_200,
    **{room: budget for room, (_, budget) in ROOMS.items()},
    ALL: 53_000,
    "tests/": 35_000,
    "options": 220,
    "pages of docs": 22,
    "words of docs": 40_000,
    "import circles": 0,
    "modules in the largest circle": 0,
    "class names that stand twice": 0,
}


@dataclass(frozen=True)
class Figure:
    """One row of the table."""

    name: str
    found: int
    recorded: int
    budget: int | None
    """The design's bound; None where it names none."""

    @property
    def allowed(self) -> int:
        """The most that passes."""
        return max(self.recorded * (100 + GROWTH_PERCENT) // 100, self.budget or 0)


def lines(root: Path) -> dict[str, int]:
    """Count the lines of Python (as `wc -l`) of each room of root/editloupe, of all of it, and of root/tests.

    A folder that is no room of the house is a figure of its own, under its name.
    """
    house = root / "editloupe"
    places = {place: room for room, (names, _) in ROOMS.items() for place in names}
    counts = Counter({WORDS: 0, **dict.fromkeys(ROOMS, 0)})
    for file in house.rglob("*.py"):
        place = file.relative_to(house).parts[0]
        counts[places.get(place, WORDS if file.parent == house else place)] += _lines(file)
    return {**counts, ALL: counts.total(), "tests/": sum(map(_lines, (root / "tests").rglob("*.py")))}


def _lines(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def pages(root: Path) -> int:
    """Count the pages of docs."""
    return sum(1 for _ in (root / "docs").rglob("*.md"))


def twice(root: Path) -> int:
    """Count the names that more than one class of editloupe bears."""
    trees = (ast.parse(file.read_bytes()) for file in (root / "editloupe").rglob("*.py"))
    names = Counter(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    return sum(count > 1 for count in names.values())


def commands() -> dict[str, int]:
    """Return each command of the program, groups and the commands below them included, with its number of options."""
    import typer.main

    from editloupe import cli

    def below(group: typer.core.TyperGroup, context: typer.Context) -> Iterator[tuple[str, int]]:
        for name in group.list_commands(context):
            # Commands are imported when they are resolved.
            _, command, _ = group.resolve_command(context, [name])
            inner = typer.Context(command, info_name=name, parent=context)
            options = (p for p in command.params if p.param_type_name == "option")
            yield inner.command_path, sum(1 for option in options if not getattr(option, "hidden", False))
            if isinstance(command, typer.core.TyperGroup):
                yield from below(command, inner)

    root = typer.main.get_command(cli.app)
    return dict(below(root, typer.Context(root, info_name="editloupe")))


def circles() -> list[set[str]]:
    """Return the sets of modules of editloupe that import one another; imports inside functions and for types count."""
    import grimp

    graph = grimp.build_graph("editloupe", cache_dir=None)
    return components({module: graph.find_modules_directly_imported_by(module) for module in graph.modules})


def components(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Return the strongly connected components of more than one node."""
    reached = {node: _reached(graph, node) for node in graph}
    found: list[set[str]] = []
    for node in sorted(graph):
        circle = {other for other in reached[node] if node in reached[other]}
        if len(circle) > 1 and circle not in found:
            found.append(circle)
    return found


def _reached(graph: Mapping[str, set[str]], start: str) -> set[str]:
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph[waiting.pop()] - seen
        seen |= new
        waiting += new
    return seen


def measure() -> dict[str, int]:
    """Measure this tree."""
    options = commands()
    found = circles()
    return {
        **lines(ROOT),
        "commands": len(options),
        "options": sum(options.values()),
        "pages of docs": pages(ROOT),
        "words of docs": sum(len(page.read_text(encoding="utf-8").split()) for page in (ROOT / "docs").glob("*.md")),
        "import circles": len(found),
        "modules in the largest circle": max(map(len, found), default=0),
        "class names that stand twice": twice(ROOT),
    }


def figures(found: Mapping[str, int], recorded: Mapping[str, int]) -> list[Figure]:
    """Put what was found beside what is recorded and the budgets."""
    return [Figure(name, value, recorded.get(name, 0), BUDGETS.get(name)) for name, value in found.items()]


def excesses(rows: list[Figure]) -> list[str]:
    """Return a message for each figure above what is allowed."""
    return [
        f"{row.name}: found {row.found:,}, allowed {row.allowed:,} (recorded {row.recorded:,} + {GROWTH_PERCENT} %, budget "
        f"{_number(row.budget)}). Make it smaller, or write why it grows into the commit and call "
        "python -m tests.house --write --raise"
        for row in rows
        if row.found > row.allowed
    ]


def table(rows: list[Figure]) -> str:
    """Return the figures as lines of text."""
    cells = [("figure", "found", "recorded", "budget")]
    cells += [(row.name, f"{row.found:,}", f"{row.recorded:,}", _number(row.budget)) for row in rows]
    return "\n".join(f"{name:30}{found:>10}{recorded:>10}{budget:>10}" for name, found, recorded, budget in cells)


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"


def written(found: Mapping[str, int], recorded: Mapping[str, int], *, may_rise: bool) -> dict[str, int]:
    """Return what is to be recorded: the lower figures, or all that were found."""
    return {name: value if may_rise else min(value, recorded.get(name, 0)) for name, value in found.items()}


def main() -> int:
    """Print the table; return 1 if a figure is too high."""
    parser = argparse.ArgumentParser(prog="python -m tests.house", description=__doc__)
    parser.add_argument("--write", action="store_true", help="record lower figures")
    parser.add_argument("--raise", dest="may_rise", action="store_true", help="with --write: record higher ones too")
    options = parser.parse_args()
    if options.may_rise and not options.write:
        parser.error("--raise goes with --write")
    recorded = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    found = measure()
    if options.write:
        recorded = written(found, recorded, may_rise=options.may_rise)
        RECORD.write_text(json.dumps(recorded, indent=1) + "\n", encoding="utf-8")
    rows = figures(found, recorded)
    print(table(rows))
    failures = excesses(rows)
    for message in failures:
        print(message, file=sys.stderr)
    return int(bool(failures))


if __name__ == "__main__":
    sys.exit(main())
