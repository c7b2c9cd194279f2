"""Say what share of small faults the tests find: python -m tests.mutants --area agent --count 20 --seed 1.

Each mutant is one small change of editloupe, drawn with a seed, and meets the tests of its own area in a copy of the tree.
Not part of any check: an area takes minutes.
"""

from __future__ import annotations

import argparse
import ast
import copy
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Final

ROOT: Final = Path(__file__).parents[1]
RECORD: Final = Path(__file__).with_name("mutants.json")
NOT_COPIED: Final = shutil.ignore_patterns(".git", ".venv*", ".ci-venv*", "__pycache__", ".*_cache")


@dataclass(frozen=True)
class Area:
    """Code, and the tests that should find a fault in it."""

    code: tuple[str, ...]
    """Globs below editloupe/."""

    tests: tuple[str, ...]
    """Globs below tests/."""


AREAS: Final[Mapping[str, Area]] = {
    "words": Area(("*.py",), ("core", "agent/test_repl*.py", "agent/test_answer*.py", "data", "service/test_doors.py")),
    "agent": Area(("agent/**/*.py", "traces/**/*.py"), ("agent", "traces")),
    "backends": Area(("backends/**/*.py",), ("backends",)),
    "runs": Area(("runs/**/*.py",), ("runs", "cli/test_judges.py", "cli/test_replay.py", "cli/test_show.py")),
    "protocols": Area(
        ("protocols/**/*.py", "build/**/*.py", "rubrics/**/*.py", "prompts/**/*.py"),
        ("protocols", "rubrics", "prompts", "build"),
    ),
    "figures": Area(
        ("stats/**/*.py", "figures/**/*.py"),
        ("stats", "figures", "cli/test_gate.py", "cli/test_rank.py", "cli/test_compare_people.py"),
    ),
    "imaging": Area(("imaging/**/*.py", "tools/**/*.py"), ("imaging", "tools")),
    "models": Area(("models/**/*.py", "measures/**/*.py", "baseline/**/*.py"), ("models", "measures", "baseline")),
    "data": Area(("data/**/*.py",), ("data",)),
    "exports": Area(("exports/**/*.py", "service/**/*.py"), ("exports", "service")),
    "viewer": Area(("viewer/**/*.py", "annotate/**/*.py"), ("viewer",)),
    "cli": Area(("cli/**/*.py",), ("cli",)),
}

# --- Mutants ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    """Relative to the root of the tree."""

    node: ast.expr | ast.stmt
    """What is replaced; knows its place."""

    new: str
    """Its source afterward."""

    def applied(self, source: str) -> str:
        """Return the file's text with the change."""
        lines = source.encode().splitlines(keepends=True)
        begins = [0]
        for line in lines:
            begins.append(begins[-1] + len(line))
        start = begins[self.node.lineno - 1] + self.node.col_offset
        end = begins[(self.node.end_lineno or 0) - 1] + (self.node.end_col_offset or 0)
        content = source.encode()
        return (content[:start] + self.new.encode() + content[end:]).decode()

    def __str__(self) -> str:
        return f"{self.file}:{self.node.lineno}: {ast.unparse(self.node)}  ->  {self.new}"


_NEGATED: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
}  # fmt: skip
_AT_THE_EDGE: Final[dict[type[ast.cmpop], type[ast.cmpop]]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
_SWAPPED: Final[dict[type[ast.operator], type[ast.operator]]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult, ast.Mod: ast.Mult,
}  # fmt: skip
_UNSEEN: Final = {"annotation", "returns", "decorator_list", "type_params"}


def mutants(source: str, file: str) -> list[Mutant]:
    """Return every mutant of a file, in the order of the file."""
    return [
        Mutant(file, node, f"({ast.unparse(new)})" if isinstance(new, ast.expr) else ast.unparse(new))
        for node in _nodes(ast.parse(source))
        for new in _changed(node)
    ]


def _nodes(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """All expressions and statements but types, decorators and f-strings, inside which Python 3.11 knows no places."""
    if isinstance(node, ast.expr | ast.stmt):
        yield node
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)):
        return
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if name not in _UNSEEN and isinstance(child, ast.AST):
                yield from _nodes(child)


def _changed(node: ast.expr | ast.stmt) -> Iterator[ast.expr | ast.stmt]:
    """What may stand in the node's place."""
    match node:
        case ast.Compare(ops=[operator]):
            for table in (_NEGATED, _AT_THE_EDGE):
                if type(operator) in table:
                    yield _with(node, ops=[table[type(operator)]()])
        case ast.BoolOp(op=operator):
            yield _with(node, op=ast.Or() if isinstance(operator, ast.And) else ast.And())
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield operand
        case ast.BinOp(op=operator) if type(operator) in _SWAPPED and not _is_text(node):
            yield _with(node, op=_SWAPPED[type(operator)]())
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            yield ast.Constant(number + 1)
        case ast.Call(keywords=keywords):
            for keyword in keywords:
                if keyword.arg is not None:
                    yield _with(node, keywords=[other for other in keywords if other is not keyword])
        case ast.Return(value=ast.expr() as value) if not (isinstance(value, ast.Constant) and value.value is None):
            yield ast.Return(ast.Constant(None))
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()


def _with(node: ast.expr, **fields: object) -> ast.expr:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new


def _is_text(node: ast.BinOp) -> bool:
    """Whether a sum or a remainder is of text, which has no other sign."""
    parts = (node.left, node.right)
    return any(isinstance(p, ast.JoinedStr) or (isinstance(p, ast.Constant) and isinstance(p.value, str)) for p in parts)


def drawn(root: Path, area: Area, *, count: int, seed: int) -> list[Mutant]:
    """Draw mutants of an area: the same for the same tree, count and seed."""
    files = sorted({file for glob in area.code for file in (root / "editloupe").glob(glob)})
    named = [(file, file.relative_to(root).as_posix()) for file in files]
    found = [mutant for file, name in named for mutant in mutants(file.read_text(encoding="utf-8"), name)]
    return random.Random(seed).sample(found, min(count, len(found)))


# --- Trying them ------------------------------------------------------------------------------------------------------


class Tree:
    """A copy of the working tree in which faults are planted."""

    def __init__(self, folder: Path, tests: list[str]) -> None:
        shutil.copytree(ROOT, folder, ignore=NOT_COPIED)
        self.folder, self.tests = folder, tests

    def outcome(self, timeout_s: float) -> str:
        """Run the tests until the first fails: "survived", "killed" or "timed out"."""
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *self.tests]
        # Ahead of the tree that is installed, in programs that tests start too. Bytecode saves half of the start.
        environment = {**os.environ, "PYTHONPATH": str(self.folder), "OMP_NUM_THREADS": "1"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        process = subprocess.Popen(command, cwd=self.folder, env=environment, start_new_session=True, **quiet)  # type: ignore[call-overload]
        try:
            code = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return "timed out"
        finally:
            # What tests have started may live on.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()
        if code in (3, 4, 5):
            raise SystemExit(f"pytest ends with {code} for {' '.join(self.tests)}: run it and see why")
        return "survived" if code == 0 else "killed"

    def outcome_of(self, mutant: Mutant, timeout_s: float) -> str:
        """Plant a mutant, run the tests, and take it back."""
        file = self.folder / mutant.file
        source = file.read_text(encoding="utf-8")
        try:
            self._write(file, mutant.applied(source))
            return self.outcome(timeout_s)
        finally:
            self._write(file, source)

    def _write(self, file: Path, text: str) -> None:
        file.write_text(text, encoding="utf-8")
        # Bytecode is told by second and size, which two mutants may share.
        for compiled in (file.parent / "__pycache__").glob(f"{file.stem}.*.pyc"):
            compiled.unlink()


def tried(name: str, count: int, seed: int, processes: int) -> Counter[str]:
    """Try mutants of an area, print each survivor, and return how many had which outcome."""
    area = AREAS[name]
    found = [path for glob in area.tests for path in sorted((ROOT / "tests").glob(glob))]
    tests = [path.relative_to(ROOT).as_posix() for path in found]
    with tempfile.TemporaryDirectory(prefix="editloupe-mutants-") as folder, ThreadPoolExecutor(processes) as threads:
        trees: Queue[Tree] = Queue()
        for number in range(processes):
            trees.put(Tree(Path(folder, str(number)), tests))
        first = trees.queue[0]
        began = time.monotonic()
        if first.outcome(1800) != "survived":
            raise SystemExit(f"{name}: {' '.join(tests)} fail without any fault; nothing can be said")
        needed = time.monotonic() - began
        print(f"{name}: the tests take {needed:.0f} s", flush=True)

        def outcome(mutant: Mutant) -> str:
            tree = trees.get()
            try:
                said = tree.outcome_of(mutant, 60 + 3 * needed)
            finally:
                trees.put(tree)
            if said == "survived":
                print(f"  survived  {mutant}", flush=True)
            return said

        return Counter(threads.map(outcome, drawn(first.folder, area, count=count, seed=seed)))


def main() -> None:
    """Try the mutants of the areas, and print the share that was killed."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--area", action="append", choices=list(AREAS), help="may be given several times; default: all")
    parser.add_argument("--count", type=int, default=17, help="mutants of each area; 17 of each are 200")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2, choices=(1, 2))
    parser.add_argument("--write", action="store_true", help=f"record the shares in tests/{RECORD.name}")
    options = parser.parse_args()
    for name in options.area or AREAS:
        outcomes = tried(name, options.count, options.seed, options.processes)
        count, killed = outcomes.total(), outcomes.total() - outcomes["survived"]
        print(
            f"{name}: {killed} of {count} killed ({outcomes['timed out']} by the time-out), seed {options.seed}", flush=True
        )
        if options.write:
            recorded = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
            recorded[name] = {"seed": options.seed, "tried": count, "killed": killed}
            RECORD.write_text(json.dumps(recorded, indent=1, sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
