"""Arguments and options that several commands about runs share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

RunFolder = Annotated[Path, Argument(metavar="RUN", help="A run folder.", show_default=False)]
RunFolders = Annotated[list[Path], Argument(metavar="RUN…", help="Run folders.", show_default=False)]
SampleName = Annotated[str | None, Argument(metavar="[SAMPLE]", help="A sample id, or EDITOR/ID.", show_default=False)]
JudgeName = Annotated[
    str | None,
    Option("--judge", metavar="NAME", help="One judge, by name, URI or beginning of its id."),
]
JudgeNames = Annotated[str | None, Option("--judges", metavar="A,B,…", help="Only these judges, by name, in this order.")]
CriterionName = Annotated[str | None, Option("--criterion", metavar="NAME", help="Only this metric, such as if.")]
RepeatNumber = Annotated[int | None, Option("--repeat", min=1, metavar="N", help="Only this repeat of a question, from 1.")]
HumanFile = Annotated[
    Path | None,
    Option("--human", metavar="FILE", help="People's labels: CSV, JSONL or Parquet. Default: those in the runs' samples."),
]
HumanColumns = Annotated[
    str | None,
    Option("--columns", metavar="ROLE=COLUMN,…", help="What columns of people's table hold, where names do not say it."),
]
PricesFile = Annotated[Path | None, Option("--prices", metavar="FILE", help="Prices (TOML) of models that no list has.")]
Resamples = Annotated[
    int, Option("--resamples", min=100, max=100_000, metavar="N", help="Bootstrap resamples of the intervals.")
]
Full = Annotated[bool, Option("--full", help="Print every table in a terminal too. A pipe and a file always get all.")]
Out = Annotated[Path | None, Option("--out", metavar="DIR", help="Keep tables and plots in this folder.")]
Trust = Annotated[
    bool, Option("--trust", help="Use the addresses, weights and files that only the run names. Its env= is never obeyed.")
]
