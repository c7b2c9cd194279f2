"""What `tests.mutants` makes of a file, without running it."""

from __future__ import annotations

import ast
from textwrap import dedent

from tests.mutants import AREAS, ROOT, Mutant, drawn, mutants

SOURCE = dedent('''\
    def f(xs: "list[int]" = ()) -> "int | 3":
        """Über 7."""
        for x in xs:
            if x < 2 and not g(x, key=x):
                continue
        return len(xs) + 1, f"{x + 5}", "a" + h()
    ''')


def test_each_operator_makes_its_mutant_and_words_stay():
    made = [f"{m.node.lineno}: {ast.unparse(m.node)} -> {m.new}" for m in mutants(SOURCE, "f.py")]
    assert made == [
        "4: x < 2 and (not g(x, key=x)) -> (x < 2 or not g(x, key=x))",
        "4: x < 2 -> (x >= 2)",
        "4: x < 2 -> (x <= 2)",
        "4: 2 -> (3)",
        "4: not g(x, key=x) -> (g(x, key=x))",
        "4: g(x, key=x) -> (g(x))",
        "5: continue -> break",
        "6: return (len(xs) + 1, f'{x + 5}', 'a' + h()) -> return None",
        "6: len(xs) + 1 -> (len(xs) - 1)",
        "6: 1 -> (2)",
    ]


def test_a_mutant_changes_its_own_place_alone():
    # The column counts bytes: ü is two of them.
    source = 'a = "ü"; b = 1\nc = 1\n'
    [first, second] = mutants(source, "f.py")
    assert (first.applied(source), second.applied(source)) == ('a = "ü"; b = (2)\nc = 1\n', 'a = "ü"; b = 1\nc = (2)\n')
    assert str(Mutant("f.py", second.node, "(2)")) == "f.py:2: 1  ->  (2)"


def test_the_same_seed_draws_the_same_mutants_of_code_that_can_be_read():
    words = [str(mutant) for mutant in drawn(ROOT, AREAS["words"], count=5, seed=1)]
    assert words == [str(mutant) for mutant in drawn(ROOT, AREAS["words"], count=5, seed=1)]
    assert len(set(words)) == 5 and words != [str(mutant) for mutant in drawn(ROOT, AREAS["words"], count=5, seed=2)]
