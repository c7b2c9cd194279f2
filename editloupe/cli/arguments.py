"""Arguments and options that several commands about runs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option


def opt(flag: str, metavar: str | None, text: str, panel: str | None = None, **how: Any) -> Any:
    """Return an option with its help text.   metavar: None for a flag, and for a choice of words, which are shown."""
    return Option(flag, metavar=metavar, help=text, rich_help_panel=panel, **how)


RunFolder = Annotated[Path, Argument(metavar="RUN", help="A run folder.", show_default=False)]
RunFolders = Annotated[list[Path], Argument(metavar="RUN", help="Run folders.", show_default=False)]
SampleName = Annotated[str | None, Argument(metavar="SAMPLE", help="A sample id, or EDITOR/ID.", show_default=False)]

CriterionName = Annotated[str | None, opt("--criterion", "NAME", "Only this metric, such as if.")]
JudgeName = Annotated[str | None, opt("--judge", "NAME", "One judge, by name, URI or beginning of its id.")]
JudgeNames = Annotated[str | None, opt("--judges", "A,B,…", "Only these judges, by name, URI or beginning of their ids.")]
RepeatNumber = Annotated[int | None, opt("--repeat", "N", "Only this repeat of a question, from 1.", min=1)]
HumanFile = Annotated[Path | None, opt("--human", "FILE", "People's labels (CSV, JSONL, Parquet). Default: the data's.")]
HumanColumns = Annotated[str | None, opt("--columns", "ROLE=COLUMN,…", "What the columns of --human hold.")]
PricesFile = Annotated[Path | None, opt("--prices", "FILE", "Prices (TOML) of models that no list has.")]
Resamples = Annotated[int, opt("--resamples", "N", "Bootstrap resamples of the intervals.", min=100, max=100_000)]
TableName = Annotated[str | None, opt("--table", "NAME", "Only this table.")]
Full = Annotated[bool, opt("--full", None, "Print every table in a terminal too. A pipe always gets all.")]
OutFolder = Annotated[Path | None, opt("--out", "DIR", "Keep tables and plots in this folder.")]
TrustRun = Annotated[bool, opt("--trust", None, "Use what only the run names: addresses, weights, files. Never its env=.")]
