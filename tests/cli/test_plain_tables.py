"""A table in a pipe is the text that Rich would lay out, however it is made."""

from __future__ import annotations

import io
import random

from rich.table import Table

from editloupe.cli import output


def laid_out(head: list[str], rows: list[list[str]], *, title: str, right: list[str], width: int) -> str:
    file = io.StringIO()
    shown = Table(title=output.plain(title) if title else None, title_justify="left")
    for name in head:
        shown.add_column(output.plain(name), overflow="fold", justify="right" if name in right else "left")
    for row in rows:
        shown.add_row(*map(output.plain, row))
    output._Plain(file=file, width=width, highlight=False, soft_wrap=False).print(shown)
    return file.getvalue()


def test_what_needs_no_broken_line_is_the_same_text() -> None:
    chance, made = random.Random(0), 0

    def cell(letters: str = "ab c–日é1\n") -> str:
        return "".join(chance.choices(letters, k=chance.randrange(12))).strip()

    for _ in range(300):
        columns, width, title = chance.randint(1, 4), chance.choice([12, 40, 1000]), cell("ab c日")
        head = list(dict.fromkeys(cell("abc日 ") for _ in range(columns)))
        rows = [[cell() for _ in head] for _ in range(chance.randrange(6))]
        text = output._as_text(head, rows, title=title, right=head[1:], width=width)
        if text is not None:
            made += 1
            assert text == laid_out(head, rows, title=title, right=head[1:], width=width)
    assert made > 100


def test_a_line_that_is_too_long_is_left_to_rich() -> None:
    wide = ["x" * 30, "y" * 30]
    for more in ({"width": 40}, {"width": 1000, "title": "z" * 70}):
        assert output._as_text(["A", "B"], [wide], **{"title": "", "right": [], **more}) is None  # type: ignore[arg-type]
