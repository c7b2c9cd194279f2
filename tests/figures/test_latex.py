"""A table for a paper: booktabs, with every character that LaTeX would read as a command escaped."""

from __future__ import annotations

from editloupe.figures.render import latex
from editloupe.stats.table import Cell, Column, Row, Table, words


def test_a_table_is_one_of_booktabs_and_no_text_is_a_command() -> None:
    rows = [
        Row(cells=(words(r"a_b & c\d{e}~^ 5% #1 $x$"), Cell(value=62.5, digits=1, judged=5, asked=6))),
        Row(cells=(words("Overall κ → –"), Cell(value=-1.25, digits=2)), strong=True),
    ]
    columns = Column(title="Editor\nname", words=True), Column(title="Mean %")
    table = Table(name="means", title="Means | by_editor", columns=columns, rows=tuple(rows), caption="n < 10")
    assert latex(table).splitlines() == [
        r"\begin{table}",
        r"  \caption{Means \textbar{} by\_editor n \textless{} 10}",
        r"  \begin{tabular}{lr}",
        r"  \toprule",
        r"  Editor name & Mean \% \\",
        r"  \midrule",
        r"  a\_b \& c\textbackslash{}d\{e\}\textasciitilde{}\textasciicircum{} 5\% \#1 \$x\$ & 62.5 (5/6) \\",
        r"  \midrule",
        r"  \textbf{Overall $\kappa$ $\to$ --} & \textbf{-1.25} \\",
        r"  \bottomrule",
        r"  \end{tabular}",
        r"\end{table}",
    ]
