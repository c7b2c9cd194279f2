"""A run folder, for Python: its samples, findings, traces and scores."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError
from editloupe.findings import Finding
from editloupe.runs.store import RunStore
from editloupe.traces.read import Trace, read_trace
from editloupe.values import Sample, notebook_html, with_images

if TYPE_CHECKING:
    import polars


class Run:
    """One run folder, opened for reading. No model and no tool is asked."""

    def __init__(self, path: str | Path) -> None:
        """Open a run folder. Raises ConfigError if it is none."""
        self.folder = Path(path)
        self._store = RunStore.read(self.folder)

    @classmethod
    def open(cls, path: str | Path) -> Run:
        """Open a run folder. Raises ConfigError if it is none."""
        return cls(path)

    @property
    def samples(self) -> list[Sample]:
        """The samples, in the order of the data, with the images that the run keeps: a judge takes them."""
        kept = ImageStore(self._store.blobs, writes=False)
        return [
            with_images(sample, lambda ref: replace(ref, path=kept.path(ref))) for sample in self._store.samples.values()
        ]

    @cached_property
    def findings(self) -> list[Finding]:
        """The latest finding of each judge, question and repeat, in the order of the samples."""
        return self._store.current()

    @property
    def problems(self) -> list[str]:
        """What of the folder could not be read."""
        return list(self._store.problems)

    def frame(self) -> polars.DataFrame:
        """Return the scores as a polars frame, one row a score; `editloupe.figures.frame` describes the columns.

        Raises ConfigError if nothing has been judged or the protocol is not installed.
        """
        from editloupe.figures.judged import judged_in
        from editloupe.figures.run_frame import whole_frame

        return whole_frame(judged_in(self._store))

    def scores(self) -> polars.DataFrame:
        """Return who judged what how well: one row a judge, sample and metric, with `value` or why it is `missing`.

        `frame` has more columns and the ratings of people. Raises as `frame`.
        """
        columns = ("judge", "sample", "editor", "turn", "part", "metric", "value", "label", "missing", "reason")
        import polars

        return self.frame().filter(polars.col("kind") == "judge").select(columns)

    def trace(self, finding: Finding | str) -> Trace:
        """Return the recorded steps of a finding, or of the finding with this task id or its first characters.

        Raises ConfigError if there is none here, or several begin so; TraceError if it is damaged.
        """
        if isinstance(finding, str):
            begun = [one for one in self.findings if one.task_id.startswith(finding)]
            if len(begun) != 1:
                found = f"{len(begun)} findings" if begun else "no finding"
                raise ConfigError(f"{self.folder}: {found} with a task id that begins with {finding!r}; expected one")
            finding = begun[0]
        if finding.trace is None:
            raise ConfigError(f"the finding on {finding.metric} of {finding.about.key!r} has no trace: it was never asked")
        path = self.folder / finding.trace
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise ConfigError(f"{finding.trace} is not inside {self.folder}")
        return read_trace(path)

    def _repr_html_(self) -> str | None:
        return notebook_html("run", self)

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"
