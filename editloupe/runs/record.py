"""What run.json says of a run: its identity, how it was asked, its metrics, its judges."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Self

from editloupe.data.run_file import NAME, check_contents, read_run_file
from editloupe.errors import ConfigError
from editloupe.runs.differences import RunSpec
from editloupe.runs.judges import JudgeEntry, names_of
from editloupe.runs.trust import names_file
from editloupe.scores import Metric, MetricSet
from editloupe.values import Json, digest


class RunRecord:
    """The record of one run. Read it with `read_info`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.info: dict[str, Json] = {}

    @classmethod
    def read_info(cls, folder: Path) -> Self:
        """Return a run with run.json alone. Raises ConfigError if `folder` is no run."""
        found = cls(folder)
        found._load_info()
        return found

    def _load_info(self) -> None:
        if os.path.lexists(self.folder / NAME):
            check_contents(self.folder)
        self.info = read_run_file(self.folder)

    @property
    def spec(self) -> RunSpec:
        """The run as a value."""
        return RunSpec(identity=object_of(self.info.get("identity")), record=object_of(self.info.get("record")))

    @property
    def identity(self) -> str:
        """The run's name in its traces."""
        return digest(dict(self.spec.identity))[:16]

    @property
    def protocol(self) -> str:
        """The name of the protocol that the run was asked by."""
        return str(self.spec.identity.get("protocol"))

    @property
    def mode(self) -> str:
        """The protocol's option of this name; "" if it has none."""
        return str(object_of(self.spec.record.get("options")).get("mode") or "")

    @property
    def tags(self) -> tuple[str, ...]:
        """The words that the user gave the run."""
        return tuple(map(str, list_of(self.spec.record.get("tags"))))

    @property
    def rescored(self) -> bool:
        """Whether the findings are another run's, read by another rubric, and the traces are that run's."""
        return "rescored_from" in self.spec.record

    def refuse_rescored(self) -> None:
        """Raise ConfigError if the traces do not end in these findings."""
        if self.rescored:
            raise ConfigError(
                f"{self.folder} holds re-scored findings of another run; give that run, whose traces they are"
            )

    def options(self) -> dict[str, Json]:
        """Return the options by which the run's protocol can be made again. Raises ConfigError for a file."""
        options = dict(object_of(self.spec.record.get("options")))
        for name in ("rubric", "prompt"):
            if names_file(options.get(name)):
                raise ConfigError(
                    f"{self.folder / NAME} names the file {options[name]!r} as its {name}; expected the text itself, as "
                    "editloupe writes it. Files that a run names are not opened"
                )
        return options

    def metrics(self) -> dict[str, Metric]:
        """Return the metrics of the run's protocol by id, in its order. Raises ConfigError for what is no metric."""
        try:
            metrics = [Metric.from_json(m) for m in list_of(self.spec.record.get("metrics"))]
        except (KeyError, TypeError, ValueError) as error:
            raise ConfigError(f"{self.folder / NAME}: its metrics are not of the expected shape: {error}") from error
        return {metric.id: metric for metric in metrics}

    def metric_set(self) -> MetricSet:
        """Return the run's metrics with a name for all of them. Raises ConfigError where run.json has none."""
        metrics = tuple(self.metrics().values())
        if not metrics:
            raise ConfigError(f"{self.folder / NAME} records no metric; expected some, as editloupe judge writes them")
        return MetricSet(id=str(object_of(self.options().get("rubric")).get("id") or self.protocol), metrics=metrics)

    def listed_judge(self, id_: str) -> Mapping[str, Json]:
        """Return somebody who answers as run.json lists it; empty if it does not."""
        return self._listed().get(id_, {})

    def _listed(self) -> dict[str, Mapping[str, Json]]:
        return {id_: data for id_, data in object_of(self.info.get("judges")).items() if isinstance(data, Mapping)}

    def entries(self) -> dict[str, JudgeEntry]:
        """Return everybody who answers by id. Raises ConfigError for an entry of another shape."""
        try:
            return {id_: JudgeEntry.from_json(data) for id_, data in self._listed().items()}
        except ValueError as error:
            problem = str(error).partition("\n")[0][:300]
            raise ConfigError(f"{self.folder / NAME}: a judge is not of the expected shape: {problem}") from error

    def roles(self) -> dict[str, str]:
        """Return what everybody answers: id → role."""
        return {id_: str(data.get("role") or "judge") for id_, data in self._listed().items()}

    def judges(self) -> dict[str, str]:
        """Return those who have the role "judge": id → backend URI."""
        listed = self._listed()
        return {id_: str(listed[id_].get("backend")) for id_, role in self.roles().items() if role == "judge"}

    def judge_names(self) -> dict[str, str]:
        """Return those who have the role "judge": id → the given name, else the model's; no two alike (`names_of`)."""
        names = names_of(self.info.get("judges"))
        return {id_: names[id_] for id_ in self.judges()}

    def judges_called(self, wanted: str | None) -> list[str]:
        """Return the ids of the judges that a word means: a name, a URI, an id or its beginning. None means all.

        A URI without its options means the judges of that model.
        """
        names, uris = self.judge_names(), self.judges()
        if wanted is None:
            return list(uris)
        exactly = [id_ for id_ in uris if wanted in (id_, names[id_], uris[id_])]
        exactly = exactly or [id_ for id_ in uris if wanted == uris[id_].partition("?")[0]]
        return exactly or [id_ for id_ in uris if wanted and id_.startswith(wanted)]


def list_of(value: Json) -> list[Json]:
    """Return a list; an empty one for anything else, as a file of strangers may hold."""
    return value if isinstance(value, list) else []


def object_of(value: Json) -> Mapping[str, Json]:
    """Return an object; an empty one for anything else."""
    return value if isinstance(value, Mapping) else {}
