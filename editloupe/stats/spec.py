"""What a protocol says of a table of scores: its rows, its columns, and what a cell holds. Frozen values, no I/O."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from editloupe.values import Serializable

CellKind: TypeAlias = Literal["mean", "macro", "rate"]
"""How the scores of a cell become one number.

mean: their mean.   macro: their mean; the summary row counts every listed row alike, beside the mean of all samples.
rate: their mean in percent.
"""


@dataclass(frozen=True, kw_only=True)
class TableSpec(Serializable):
    """A table of scores: rows and columns are dimensions, a cell sums up the scores that fall into it."""

    title: str
    metrics: tuple[str, ...] = ()
    """Ids of the metrics; () for all."""
    rows: str = "editor"
    """A column of the frame: editor, judge, turn, or a dimension of the protocol."""
    columns: str = "metric"
    """A column of the frame."""
    cell: CellKind = "mean"
    """How the scores of a cell become one number. A cell of several metrics is the mean of theirs."""
    order: tuple[str, ...] = ()
    """The first rows in this order; the others follow by name. Without one, rows stand as they come."""
    overall: bool = True
    """Add a row over all rows. Without one, each cell has its interval."""
    normalize: bool = False
    """Show values on 0 to 100."""
    apart: bool = False
    """Rows, such as languages, and editors are never put together. A report of several editors leaves the table out."""
    transposed: bool = False
    """Show rows as columns: a line for each editor, as papers list them."""
    source: str = ""
    """The paper's table."""
    name: str = ""
    """Of its files, without ending; "" for one made of the title."""
    caption: str = ""
    """Said below the table, behind how to read it."""
