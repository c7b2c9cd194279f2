"""Which questions of a run people are asked, and how an answer becomes a finding in `people.jsonl`.

The questions are those that the run's protocol plans for a judge. Answers to other roles and measures come from the run's
findings; what follows from a person's own answers is planned from these. Nothing here shows one person what another said.
"""

from __future__ import annotations

import datetime
import hashlib
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeAlias

from editloupe.annotate.replies import MOST_NOTE, check_name, of_metric, options_of, read_reply
from editloupe.answers import Answer
from editloupe.config import RunConfig
from editloupe.data.human import ADJUDICATED, names_of
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, DataError, EditLoupeError, ImageError, ReplyError
from editloupe.figures.judged import protocol_of
from editloupe.findings import Finding
from editloupe.protocols.base import (
    EvalProtocol,
    QuestionKey,
    groups,
    known_of,
    looks_at_outputs,
    planned,
)
from editloupe.runs import people
from editloupe.runs.people import Given, person
from editloupe.runs.selection import selected
from editloupe.runs.setup import JUDGE, open_questions
from editloupe.runs.store import RunStore
from editloupe.tasks import About, Ask, Budget, Recipe, Task
from editloupe.tools.base import BUILT_IN_TOOLS
from editloupe.values import canonical_json, digest

_DAY_S: Final = 86_400.0

State: TypeAlias = Literal["open", "answered", "skipped"]


@dataclass(frozen=True, kw_only=True)
class PeopleQuestion:
    """One question for people."""

    id: str
    """Of what is asked, whoever answers: 16 hex digits."""
    about: About
    metric: str
    group: int

    @property
    def key(self) -> QuestionKey:
        """As `Finding.question` has it."""
        return self.about.question(self.metric)


def begin(config: RunConfig, out: Path, *, tell: Callable[[int, int], None] = lambda done, total: None) -> None:
    """Make a run without judges, or go on with one, whose questions people answer. A judge of the same config may join it.

    tell: is given how many of how many samples have their pictures in the run.
    Raises ConfigError, DataError, StorageError, and RunMismatch where the folder holds other questions or other samples.
    """
    asked = open_questions(config)
    images = ImageStore(out / "blobs", writes=False)
    found = selected(config, images, outputs=looks_at_outputs(asked.protocol))
    asked.protocol.check(found.samples)
    store = RunStore.begin(out, asked.spec, [], found, config=config.to_options())
    with closing(store):
        images.write()
        for done, sample in enumerate(found.samples, start=1):
            outputs = (turn.edited for turn in sample.turns)
            for image in filter(None, (*sample.sources, *outputs, sample.reference, *sample.masks.values())):
                with suppress(ImageError):
                    images.keep(image)
            tell(done, len(found.samples))


class Annotation:
    """The questions of one run for its raters; thread-safe.

    raters: names; () for whoever gives a name.   metrics: ids of what is asked; () for all.
    Raises ConfigError for a run that cannot be asked again.
    """

    def __init__(self, folder: Path, *, raters: Sequence[str] = (), metrics: Sequence[str] = ()) -> None:
        for name in raters:
            check_name(name)
        self.folder, self.named = folder, tuple(dict.fromkeys(raters))
        store = RunStore.read(folder)
        self.metrics, self.protocol = store.metrics(), _protocol(store)
        self.samples = {key: sample for key, sample in store.samples.items() if key not in store.rejected}
        self.unread = [f"{key}: {row.get('message')}" for key, row in store.rejected.items()]
        """Rows of the data that could not be read, each with why."""
        known = names_of(self.metrics.values())
        self._wanted = {known(name) or name for name in metrics}
        self._unreported = {metric.id for metric in self.protocol.metrics} - set(self.metrics)
        """Metrics that the run does not report, since it was made for some `--criteria`: a label of one would not count."""
        self._groups = groups(list(self.samples.values()))
        self._group_of = {sample.key: number for number, group in enumerate(self._groups) for sample in group}
        roles = store.roles()
        answered = {JUDGE} if JUDGE in self.protocol.roles else set(self.protocol.roles)
        self._others: dict[QuestionKey, Finding] = {
            f.question: f for f in store.current() if roles.get(f.judge_id, f.role) not in answered
        }
        """What measures and further roles found, by question."""
        self._lock, self.problems = threading.RLock(), list[str]()
        """What of people's answers could not be read, and which samples the protocol could not ask about."""
        self._given: dict[people.Place, Given] = {}
        self._size = -1
        """Bytes of people.jsonl that are in `_given`."""
        plans = [self._first_plan(number) for number in range(len(self._groups))]
        self._fixed = [None if consulted else self._of_people(n, tasks) for n, (tasks, consulted) in enumerate(plans)]
        """The questions of each group; None where they depend on answers."""
        self._plans: dict[tuple[int, str], tuple[tuple[Given, ...], tuple[PeopleQuestion, ...]]] = {}
        """(group, rater) → what the rater had said, and the questions then."""
        asks = [task for tasks, _ in plans for task in tasks if task.kind == "ask"]
        self.blocked = Counter[str](task.blocked[0] for task in asks if task.blocked is not None)
        """Status → how many questions cannot be asked for it, such as `missing_output`."""
        names = {*self.metrics, *(task.metric for task in asks)} - self._unreported
        if None not in self._fixed and (unknown := self._wanted - names):
            listed = ", ".join(self.metrics[id_].short if id_ in self.metrics else id_ for id_ in sorted(names))
            raise ConfigError(
                f"--criteria {', '.join(sorted(unknown))}: no such question is asked here; there are {listed}"
            )

    @property
    def raters(self) -> list[str]:
        """The names that are given, and those who have answered something."""
        known = dict.fromkeys((*self.named, *(rater for rater, _ in self._standing())))
        return [name for name in known if name != ADJUDICATED]

    @property
    def total(self) -> int:
        """How many questions there are before anybody has answered one."""
        return sum(len(self._of_group(number, "", ())) for number in range(len(self._groups)))

    def check(self, rater: str) -> None:
        """Raise ConfigError for a name that may not answer here."""
        check_name(rater)
        if self.named and rater not in self.named:
            raise ConfigError(f"{rater!r} is none of the raters: {', '.join(self.named)}")

    def questions(self, rater: str) -> dict[str, tuple[PeopleQuestion, State]]:
        """Return by id what a rater is asked, in the order of the data, and how it stands."""
        standing = self._standing()
        said = self._by_group(rater, standing) if None in self._fixed else {}
        found: dict[str, tuple[PeopleQuestion, State]] = {}
        for number in range(len(self._groups)):
            for question in self._of_group(number, rater, said.get(number, ())):
                given = standing.get((rater, question.key))
                done: State = "answered" if given and given.finding.answer is not None else "skipped"
                found[question.id] = question, "open" if given is None else done
        return found

    def progress(self, rater: str) -> Counter[str]:
        """Return how many of a rater's questions are open, answered and skipped."""
        return Counter(state for _, state in self.questions(rater).values())

    def task(self, question: PeopleQuestion, rater: str) -> Ask:
        """Return a question as a judge gets it. Raises DataError if the protocol no longer asks it."""
        said = self._by_group(rater, self._standing()).get(question.group, ())
        for task in self._planned(question.group, said)[0]:
            if task.kind == "ask" and task.question == question.key:
                return task
        raise DataError(f"{question.about}, {question.metric}: this is no longer asked; load the page again")

    def given(self, question: PeopleQuestion, rater: str) -> Given | None:
        """Return what a rater said of a question last; None if it is open."""
        return self._standing().get((rater, question.key))

    def latest(self, rater: str) -> str | None:
        """Return the id of the question that a rater answered last; None before the first answer."""
        mine = [given for (who, _), given in self._standing().items() if who == rater]
        return _id(max(mine, key=lambda given: given.time).finding.question) if mine else None

    def save(
        self, question: PeopleQuestion, rater: str, said: str | None, *, task_id: str, note: str = "", seconds: float = 0.0
    ) -> Given:
        """Store what a rater says, on disk before this returns, and return it.

        said: as the question's spec reads it; None for a skipped question, of which the note is the reason.
        task_id: of the question as the rater saw it.   seconds: for which it was shown.
        Raises DataError for an answer that the question does not take, and StorageError.
        """
        task, note = self.task(question, rater), note.strip()
        if task_id != task.id:
            raise DataError(f"{question.about}, {question.metric}: the question was changed; load the page again")
        if len(note) > MOST_NOTE:
            raise DataError(f"note: expected at most {MOST_NOTE:,} characters, found {len(note):,}")
        if said is None and not note:
            raise DataError("a question that is skipped needs a reason")
        swap, answer = swapped(task, rater), None
        if said is not None:
            answer, note = _read(task, other_name(said, swap), note)
        finding = Finding.of(
            task,
            judge_id=person(rater).id,
            repeat=0,
            status="abstained" if answer is None else "ok",
            ending="answer",
            answer=answer,
            reason=note,
            seconds=max(0.0, min(seconds, _DAY_S)),
        )
        # Finer than people are, so that no two lines of a rater are the same.
        time = datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
        on_metric = of_metric(finding, self.metrics)
        given = Given(finding=finding, rater=rater, time=time, of_metric=on_metric, swapped=swap is not None)
        with self._lock:
            began, ended = people.add(self.folder, given)
            # Else another process has written meanwhile, and the file is read again.
            if began == self._size:
                self._given.pop(given.place, None)
                self._given[given.place], self._size = given, ended
        return given

    def _standing(self) -> dict[people.Place, Given]:
        """What counts now, other processes' answers included."""
        path = self.folder / people.FILE
        with self._lock:
            size = path.stat().st_size if path.exists() else 0
            if size != self._size:
                self._given, self._size = people.read(self.folder, self.metrics, self.problems), size
                self.problems[:] = dict.fromkeys(self.problems)
            return dict(self._given)

    def _by_group(self, rater: str, standing: Mapping[people.Place, Given]) -> dict[int, tuple[Given, ...]]:
        found: dict[int, tuple[Given, ...]] = {}
        for (who, _), given in standing.items():
            number = self._group_of.get(given.finding.sample_key) if who == rater else None
            if number is not None:
                found[number] = (*found.get(number, ()), given)
        return found

    def _of_group(self, number: int, rater: str, said: tuple[Given, ...]) -> tuple[PeopleQuestion, ...]:
        fixed = self._fixed[number]
        if fixed is not None:
            return fixed
        with self._lock:
            before = self._plans.get((number, rater))
            if before is None or before[0] != said:
                before = said, self._of_people(number, self._planned(number, said)[0])
                self._plans[number, rater] = before
            return before[1]

    def _of_people(self, number: int, tasks: Iterable[Task]) -> tuple[PeopleQuestion, ...]:
        return tuple(
            PeopleQuestion(id=_id(task.question), about=task.about, metric=task.metric, group=number)
            for task in tasks
            if task.kind == "ask"
            and task.blocked is None
            and task.question not in self._others
            and task.metric not in self._unreported
            and (not self._wanted or task.metric in self._wanted)
        )

    def _first_plan(self, number: int) -> tuple[tuple[Task, ...], bool]:
        """Return what `_planned` does before anybody has answered; nothing where the protocol cannot plan."""
        try:
            return self._planned(number, ())
        except EditLoupeError as error:
            self.problems.append(f"{', '.join(sample.key for sample in self._groups[number])}: not asked: {error}")
            return (), False

    def _planned(self, number: int, said: Sequence[Given]) -> tuple[tuple[Task, ...], bool]:
        """Return what is planned for a group where a person has said this, and whether that depends on answers."""
        own = {given.finding.question: given.finding for given in said}
        tasks: dict[str, Task] = {}
        arrived: list[Finding] = []
        while True:
            known = known_of(arrived)
            now = {task.id: task for task in planned(self.protocol, self._groups[number], known)}
            new = [task for id_, task in now.items() if id_ not in tasks]
            # In the protocol's own order, also of what came later.
            tasks = {**now, **{id_: task for id_, task in tasks.items() if id_ not in now}}
            answers = [(task.id, self._others.get(task.question) or own.get(task.question)) for task in new]
            found = [replace(finding, task_id=id_) for id_, finding in answers if finding is not None]
            if not found or not known.consulted:
                return tuple(tasks.values()), known.consulted
            arrived += found


def swapped(task: Ask, rater: str) -> tuple[str, str] | None:
    """Return the names of the two pictures that this rater sees in exchanged places; None where nothing is exchanged.

    That can be where two of the answers name pictures ("Edit A", "Edit B"). A rater who is asked about both orders of a
    pair sees both; chance decides which one first.
    """
    shown = {view.alias: view for view in task.views}
    names = [name for name in options_of(task.answer) if name in shown]
    if len(names) != 2:
        return None
    pair = sorted(canonical_json({**shown[name].to_json(), "alias": ""}) for name in names)
    chance = hashlib.sha256("\n".join([rater, task.metric, *pair]).encode("utf-8", "replace")).digest()[0]
    return (names[0], names[1]) if chance & 1 else None


def other_name(name: str, swap: tuple[str, str] | None) -> str:
    """Return the other name of two that are exchanged; any other word, and without an exchange every word, as it is."""
    return name if swap is None or name not in swap else swap[swap.index(name) - 1]


def views_of(task: Ask, swap: tuple[str, str] | None) -> list[Recipe]:
    """Return the pictures of a question, two of them with exchanged names."""
    by_name = {view.alias: view for view in task.views}
    return [replace(by_name[other_name(view.alias, swap)], alias=view.alias) for view in task.views]


def _id(question: QuestionKey) -> str:
    return digest(list(question))[:16]


def _read(task: Ask, said: str, note: str) -> tuple[Answer | None, str]:
    """Return the answer with its note; None for the option that abstains, which is the note then. Raises DataError."""
    try:
        return read_reply(task.answer, said), note
    except ReplyError as error:
        if error.status != "abstained":
            raise DataError(f"answer: {error}") from error
        return None, note or said


def _protocol(store: RunStore) -> EvalProtocol:
    identity = store.spec.identity
    held = [identity.get("tools"), identity.get("absent_tools")]
    named = {str(name) for one in held if isinstance(one, Mapping | list) for name in one}
    tools = [*(name for name in BUILT_IN_TOOLS if name in named), *sorted(named - set(BUILT_IN_TOOLS))]
    budget = identity.get("budget")
    limits = Budget.from_json(budget) if isinstance(budget, Mapping) else Budget()
    return protocol_of(store, tools=tools, budget=limits)
