"""People answer a run's questions: who is asked what, and how an answer becomes a finding in `people.jsonl`.

The questions are those that the run's protocol plans for a judge. Answers to other roles and measures come from the run's
findings; what follows from a person's own answers is planned from these. Nothing here shows one person what another said.
"""

from __future__ import annotations

import datetime
import hashlib
import json
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import closing, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from editloupe import files
from editloupe.answers import Answer, AnswerSpec, Labels, OneOf, Scale, Text, fold
from editloupe.config import RunConfig
from editloupe.data.human import ADJUDICATED, names_of
from editloupe.data.images import ImageStore
from editloupe.errors import (
    ConfigError,
    DataError,
    EditLoupeError,
    ImageError,
    ReplyError,
    StorageError,
    UnknownPlugin,
)
from editloupe.findings import Finding
from editloupe.protocols.base import (
    EvalProtocol,
    QuestionKey,
    groups,
    known_of,
    looks_at_outputs,
    make_protocol,
    planned,
)
from editloupe.runs.people import Given, Journal, Place, of_metric, person
from editloupe.runs.selection import selected
from editloupe.runs.setup import JUDGE, open_questions
from editloupe.runs.store import RunStore
from editloupe.scores import Metric
from editloupe.tasks import About, Ask, Budget, Recipe, Task
from editloupe.tools.base import BUILT_IN_TOOLS
from editloupe.traces.difference import short
from editloupe.values import Json, Serialisable, canonical_json, digest, finite, parse_json

FILE: Final = "annotation.json"
MOST_NOTE: Final = 4_000
"""Characters of a note."""
MOST_RATERS: Final = 200
_DAY_S: Final = 86_400.0


@dataclass(frozen=True, kw_only=True)
class Assignment(Serialisable):
    """Who is asked what. Samples of one source and instruction stay together."""

    raters: tuple[str, ...] = ()
    """Names; () for whoever gives a name."""
    overlap: float | None = None
    """Share of the data that every rater gets; the rest goes to one rater each. None: every rater gets everything."""
    shares: Mapping[str, float] | None = None
    """Rater → weight in the rest; None for equal ones."""
    seed: int = 0
    """Which data are shared, and who gets the rest, follows from it."""
    questions: tuple[str, ...] = ()
    """Ids of the metrics and intermediate questions that are asked; () for all."""

    def __post_init__(self) -> None:
        for name in self.raters:
            check_name(name)
        if twice := next((name for name in self.raters if self.raters.count(name) > 1), None):
            raise ConfigError(f"--raters names {twice!r} twice")
        if len(self.raters) > MOST_RATERS:
            raise ConfigError(f"--raters: expected at most {MOST_RATERS} names, found {len(self.raters)}")
        if self.overlap is not None and not 0 <= self.overlap <= 1:
            raise ConfigError(f"--overlap {self.overlap:g}: expected a share from 0 to 1")
        if self.overlap is not None and not self.raters:
            raise ConfigError("--overlap needs the names of all raters: --raters anna,ben")
        if self.shares is not None:
            if self.overlap is None:
                raise ConfigError("--share divides what --overlap leaves; give --overlap too, such as --overlap 0.2")
            if set(self.shares) != set(self.raters):
                raise ConfigError(
                    f"--share: expected a weight for each of {', '.join(self.raters)}, found {', '.join(self.shares)}"
                )
            weights = list(self.shares.values())
            if not all(math.isfinite(w) and w >= 0 for w in weights) or not sum(weights):
                raise ConfigError(f"--share: expected weights of 0 or more, not all 0, found {weights}")

    def dealt(self, names: Sequence[str]) -> list[frozenset[str] | None]:
        """Return for each group of samples who gets it; None for everybody. names: of the groups, no two alike.

        The groups are put in an order that the seed decides. The first ones are everybody's, rounded up; each further one
        goes to the rater who is furthest behind their weight.
        """
        if self.overlap is None:
            return [None] * len(names)
        order = sorted(range(len(names)), key=lambda i: hashlib.sha256(f"{self.seed}\n{names[i]}".encode()).digest())
        shared = math.ceil(self.overlap * len(names) - 1e-9)
        weights = {name: (self.shares or {}).get(name, 1.0) for name in self.raters}
        total, counts = sum(weights.values()), dict.fromkeys(self.raters, 0)
        found: list[frozenset[str] | None] = [None] * len(names)
        for number, place in enumerate(order[shared:], start=1):
            behind = max(self.raters, key=lambda name: weights[name] / total * number - counts[name])
            counts[behind] += 1
            found[place] = frozenset({behind})
        return found

    @classmethod
    def of(cls, folder: Path) -> Assignment | None:
        """Return the assignment that a run keeps; None if it keeps none. Raises ConfigError for a broken file."""
        path = folder / FILE
        try:
            return cls.from_json(parse_json(files.read_bytes(path)))
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ConfigError(f"{path} cannot be read: {error}; delete it, and say again who is asked what") from error

    def keep(self, folder: Path) -> None:
        """Write it into a run. Raises StorageError."""
        text = json.dumps(self.to_json(), indent=2, ensure_ascii=False) + "\n"
        try:
            files.write_whole(folder / FILE, text.encode("utf-8", "backslashreplace"), below=folder)
        except OSError as error:
            raise StorageError(f"{folder / FILE} cannot be written: {error.strerror or error}") from error


def check_name(rater: str) -> None:
    """Raise ConfigError for what is no name of a rater."""
    if not rater.strip() or rater != rater.strip() or len(rater) > 80 or not rater.isprintable():
        raise ConfigError(f"rater {rater!r}: expected a name of 1 to 80 printable characters")
    if rater == ADJUDICATED:
        raise ConfigError(f"rater {rater!r}: this name is kept for labels that settle a disagreement (--adjudicate)")


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


@dataclass(frozen=True, kw_only=True)
class Question:
    """One question for people."""

    id: str
    """Of what is asked, whoever answers: 16 hex digits."""
    about: About
    metric: str
    group: int

    @property
    def key(self) -> QuestionKey:
        """As `Finding.question` has it."""
        about = self.about
        return self.metric, about.editor, about.sample_id, about.turn, about.part


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far one rater is."""

    rater: str
    total: int
    answered: int
    skipped: int
    open: int
    """Questions without a word."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a rater says of a question."""

    answer: str | None
    """As the question's spec reads it; None for a skipped question."""
    note: str = ""
    """The reason, for a skipped question."""
    seconds: float = 0.0
    """For which the question was shown."""
    task_id: str
    """Of the question as the rater saw it."""
    seen: str
    """The `revision` of what stood there when the rater began; "" for an open question."""


class Meanwhile(Exception):
    """The question was answered, or taken back, since the rater's page was made. Nothing was stored."""

    def __init__(self, now: Given) -> None:
        """now: what stands there, for a rater who wants to overwrite it."""
        super().__init__("the question was answered meanwhile")
        self.now = now


class Annotation:
    """The questions of one run for its raters; thread-safe.

    assignment: who is asked what; None for what the run keeps. Raises ConfigError for a run that cannot be asked again.
    """

    def __init__(self, folder: Path, assignment: Assignment | None = None) -> None:
        self.folder, self.assignment = folder, assignment or Assignment.of(folder) or Assignment()
        store = RunStore.read(folder)
        self.metrics: dict[str, Metric] = store.metrics()
        self.protocol = _protocol(store)
        self._unreported = {metric.id for metric in self.protocol.metrics} - set(self.metrics)
        """Metrics that the run does not report, since it was made for some `--criteria`: a label of one would not count."""
        self.samples = {key: sample for key, sample in store.samples.items() if key not in store.rejected}
        self._spec = store.spec
        self.identity = store.identity
        """Digest of what is asked."""
        self._checked = (0, 0, 0)
        """Number, size and time of the run.json that holds it."""

        self._groups = groups(list(self.samples.values()))
        self._group_of = {sample.key: number for number, group in enumerate(self._groups) for sample in group}
        self._dealt = self.assignment.dealt([group[0].key for group in self._groups])
        roles = store.roles()
        answered = {JUDGE} if JUDGE in self.protocol.roles else set(self.protocol.roles)
        self._others: dict[QuestionKey, Finding] = {
            f.question: f for f in store.current() if roles.get(f.judge_id, f.role) not in answered
        }
        """What measures and further roles found, by question."""
        self._lock = threading.RLock()
        self._journal = Journal(folder, self.metrics)
        self._unplanned: list[str] = []
        """Why some samples are asked nothing."""
        plans = [self._first_plan(number) for number in range(len(self._groups))]
        self._fixed = [
            None if consulted else self._for_people(number, tasks) for number, (tasks, consulted) in enumerate(plans)
        ]
        """The questions of each group; None where they depend on answers."""
        self._plans: dict[tuple[int, str], tuple[tuple[Given, ...], tuple[Question, ...]]] = {}
        """(group, rater) → what the rater had said, and the questions then."""
        self.uncomputed = sum(
            task.kind == "measure" and task.question not in self._others for tasks, _ in plans for task in tasks
        )
        """Planned measures of which the run has no finding: questions that rest on them are not asked."""
        asks = [task for tasks, _ in plans for task in tasks if task.kind == "ask"]
        self.blocked = Counter[str](task.blocked[0] for task in asks if task.blocked is not None)
        """Status → how many questions cannot be asked for it, such as `missing_output`."""
        self.unread = [f"{key}: {row.get('message')}" for key, row in store.rejected.items()]
        """Rows of the data that could not be read, each with why."""
        self._check_questions({task.metric for task in asks})

    def _check_questions(self, planned: Set[str]) -> None:
        """Raise ConfigError for a question that the protocol does not have. planned: ids before anybody has answered."""
        known = dict.fromkeys((*self.metrics, *sorted(planned - self._unreported)))
        unknown = [name for name in self.assignment.questions if name not in known]
        # Where questions follow from answers, an unknown one may still come.
        if unknown and None not in self._fixed:
            names = ", ".join(self.metrics[id_].short if id_ in self.metrics else id_ for id_ in known)
            raise ConfigError(
                f"--criteria {', '.join(unknown)}: {self.protocol.name!r} has no such question here; it has {names}"
            )

    @property
    def raters(self) -> list[str]:
        """The names that are given, and those who have answered something; the adjudicator is none of them."""
        known = dict.fromkeys((*self.assignment.raters, *(rater for rater, _ in self._standing())))
        return [name for name in known if name != ADJUDICATED]

    @property
    def problems(self) -> list[str]:
        """What of people's answers could not be read, and which samples the protocol could not ask about."""
        return [*self._journal.problems, *self._unplanned]

    def questions(self, rater: str) -> list[Question]:
        """Return what a rater is asked, in the order of the data. For the adjudicator, what the raters disagree on."""
        return self.disagreements() if rater == ADJUDICATED else self._assigned(rater, self._standing())

    def question(self, id_: str, rater: str) -> Question | None:
        """Return one of a rater's questions by its id; None if it is none of theirs."""
        return next((question for question in self.questions(rater) if question.id == id_), None)

    def task(self, question: Question, rater: str) -> Ask:
        """Return a question as a judge gets it. Raises DataError if the protocol no longer asks it."""
        standing = self._standing()
        for name in self.raters if rater == ADJUDICATED else [rater]:
            said = self._by_group(name, standing).get(question.group, ())
            for task in self._planned(question.group, said)[0]:
                if task.kind == "ask" and task.question == question.key:
                    return task
        raise DataError(f"{question.about}, {question.metric}: this is no longer asked; load the page again")

    def given(self, question: Question, rater: str) -> Given | None:
        """Return what a rater said of a question last; None if it is open."""
        self._journal.refresh()
        return self._journal.given.get((rater, question.key))

    def statuses(self, rater: str) -> list[tuple[Question, Literal["open", "answered", "skipped"]]]:
        """Return a rater's questions, and how each stands."""
        standing = self._standing()
        found: list[tuple[Question, Literal["open", "answered", "skipped"]]] = []
        for question in self.questions(rater):
            given = standing.get((rater, question.key))
            done: Literal["answered", "skipped"] = "answered" if given and given.finding.answer is not None else "skipped"
            found.append((question, "open" if given is None else done))
        return found

    def progress(self, rater: str) -> Progress:
        """Return how far a rater is."""
        counts = Counter(status for _, status in self.statuses(rater))
        return Progress(
            rater=rater, total=counts.total(), answered=counts["answered"], skipped=counts["skipped"], open=counts["open"]
        )

    @property
    def total(self) -> int:
        """How many questions there are before anybody has answered one, whoever gets them."""
        return sum(len(self._of_group(number, "", ())) for number in range(len(self._groups)))

    def shared(self) -> int:
        """Return how many questions two raters or more have answered."""
        counts = Counter(
            key
            for (rater, key), given in self._standing().items()
            if rater != ADJUDICATED and given.finding.answer is not None
        )
        return sum(count > 1 for count in counts.values())

    def votes(self, question: Question) -> list[Given]:
        """Return what the raters answered to a question; skipped ones and the adjudicated label are left out."""
        return [
            given
            for (rater, key), given in self._standing().items()
            if key == question.key and rater != ADJUDICATED and given.finding.answer is not None
        ]

    def disagreements(self) -> list[Question]:
        """Return the questions to which two raters gave different answers, in the order of the data.

        Of texts case, space and punctuation do not count; boxes and records differ where anything in them does.
        """
        standing = self._standing()
        said: dict[QuestionKey, dict[str, str]] = {}
        for (rater, key), given in standing.items():
            if rater != ADJUDICATED and given.finding.answer is not None:
                answer = given.finding.answer
                said.setdefault(key, {})[rater] = fold(answer.text) if isinstance(answer, Text) else str(answer)
        split = {key: next(iter(answers)) for key, answers in said.items() if len(set(answers.values())) > 1}
        found: dict[str, Question] = {}
        for rater in dict.fromkeys(split.values()):
            found |= {q.id: q for q in self._assigned(rater, standing, every=True) if q.key in split}
        return sorted(found.values(), key=lambda question: question.group)

    def save(self, question: Question, rater: str, reply: Reply) -> Given:
        """Store what a rater says, on disk before this returns, and return it.

        Raises DataError for an answer that the question does not take and for a run whose questions have changed;
        Meanwhile; StorageError.
        """
        self.check()
        task = self.task(question, rater)
        if reply.task_id != task.id:
            raise DataError(
                f"{question.about}, {question.metric}: the question was changed since this page was made; load the page "
                "again. What was answered before stays"
            )
        note = reply.note.strip()
        if len(note) > MOST_NOTE:
            raise DataError(f"note: expected at most {MOST_NOTE:,} characters, found {len(note):,}")
        swap = swapped(task, rater, self.assignment.seed)
        answer: Answer | None = None
        if reply.answer is not None:
            try:
                answer = read_reply(task.answer, other_name(reply.answer, swap))
            except ReplyError as error:
                if error.status != "abstained":
                    raise DataError(f"answer: {error}") from error
                note = note or reply.answer
        elif not note:
            raise DataError("a question that is skipped needs a reason")
        finding = Finding.of(
            task,
            judge_id=person(rater).id,
            repeat=0,
            status="abstained" if answer is None else "ok",
            ending="answer",
            answer=answer,
            reason=note,
            seconds=max(0.0, min(reply.seconds, _DAY_S)),
        )
        given = Given(
            finding=finding,
            rater=rater,
            time=_now(),
            of_metric=of_metric(finding, self.metrics),
            swapped=swap is not None,
        )
        if (now := self._journal.add(given, seen=reply.seen)) is not None:
            raise Meanwhile(now)
        return given

    def undo(self, rater: str) -> Question | None:
        """Take back the last answer of a rater that stands, and return its question; None if there is none.

        A line that says so is appended. Raises DataError as `save`, and StorageError.
        """
        self.check()
        mine = {question.key: question for question in self.questions(rater)}
        while True:
            standing = reversed(self._standing().items())
            last = next((given for (who, key), given in standing if who == rater and key in mine), None)
            if last is None:
                return None
            # Another process may have stored an answer to the question since it was read.
            if self._journal.add(replace(last, time=_now(), retracted=True), seen=last.revision) is None:
                return mine[last.finding.question]

    def check(self) -> None:
        """Raise DataError, which says what changed, if run.json no longer holds the questions that are asked here."""
        try:
            seen = (self.folder / "run.json").stat()
        except OSError as error:
            raise DataError(f"{self.folder} is no run any more: {error.strerror or error}") from error
        if (seen.st_ino, seen.st_size, seen.st_mtime_ns) == self._checked:
            return
        now = RunStore.read_info(self.folder)
        if now.identity == self.identity:
            self._checked = seen.st_ino, seen.st_size, seen.st_mtime_ns
            return
        changes = [f"{name} was {short(a)}, and is {short(b)}" for name, a, b in self._spec.differs_from(now.spec)]
        raise DataError(
            f"{self.folder} asks other questions now: {'; '.join(changes)}. This answer is not stored; those given before "
            "stay. Start `editloupe annotate` again"
        )

    def _standing(self) -> dict[Place, Given]:
        self._journal.refresh()
        return self._journal.snapshot()

    def _by_group(self, rater: str, standing: Mapping[Place, Given]) -> dict[int, tuple[Given, ...]]:
        """What a rater has said, by group."""
        found: dict[int, tuple[Given, ...]] = {}
        for (who, _), given in standing.items():
            number = self._group_of.get(given.finding.sample_key) if who == rater else None
            if number is not None:
                found[number] = (*found.get(number, ()), given)
        return found

    def _assigned(self, rater: str, standing: Mapping[Place, Given], *, every: bool = False) -> list[Question]:
        """every: whether what was given to others counts too."""
        said = self._by_group(rater, standing) if None in self._fixed else {}
        found: list[Question] = []
        for number, who in enumerate(self._dealt):
            if every or who is None or rater in who:
                found += self._of_group(number, rater, said.get(number, ()))
        return found

    def _of_group(self, number: int, rater: str, said: tuple[Given, ...]) -> tuple[Question, ...]:
        fixed = self._fixed[number]
        if fixed is not None:
            return fixed
        with self._lock:
            before = self._plans.get((number, rater))
            if before is None or before[0] != said:
                before = said, self._for_people(number, self._planned(number, said)[0])
                self._plans[number, rater] = before
            return before[1]

    def _for_people(self, number: int, tasks: Iterable[Task]) -> tuple[Question, ...]:
        wanted = self.assignment.questions
        return tuple(
            Question(id=digest(list(task.question))[:16], about=task.about, metric=task.metric, group=number)
            for task in tasks
            if task.kind == "ask"
            and task.blocked is None
            and task.question not in self._others
            and task.metric not in self._unreported
            and (not wanted or task.metric in wanted)
        )

    def _first_plan(self, number: int) -> tuple[tuple[Task, ...], bool]:
        """Return what `_planned` does before anybody has answered; nothing where the protocol cannot plan."""
        try:
            return self._planned(number, ())
        except EditLoupeError as error:
            self._unplanned.append(f"{', '.join(sample.key for sample in self._groups[number])}: not asked: {error}")
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


def read_reply(spec: AnswerSpec, said: str) -> Answer:
    """Return what a person answers. Of a menu only the very words count. Raises DataError and ReplyError."""
    options = options_of(spec)
    if options and said not in options:
        raise DataError(f"answer: expected one of {', '.join(options)}; found {said!r}")
    if isinstance(spec, Scale) and finite(_number(said)) is None:
        raise DataError(f"answer: expected a number from {spec.low:g} to {spec.high:g}; found {said!r}")
    found: Answer = spec.parse(said)
    return found


def options_of(spec: AnswerSpec) -> tuple[str, ...]:
    """Return the words of a menu; () for an answer that is none of a menu, and for numbers."""
    if isinstance(spec, Labels):
        return spec.choices()
    return spec.options if isinstance(spec, OneOf) else ()


def swapped(task: Ask, rater: str, seed: int) -> tuple[str, str] | None:
    """Return the names of the two pictures that this rater sees in exchanged places; None where nothing is exchanged.

    That can be where two of the answers name pictures ("Edit A", "Edit B"). A rater who is asked about both orders of a
    pair sees both; chance decides which one first.
    """
    shown = {view.alias: view for view in task.views}
    names = [name for name in options_of(task.answer) if name in shown]
    if len(names) != 2:
        return None
    pair = sorted(canonical_json({**shown[name].to_json(), "alias": ""}) for name in names)
    chance = hashlib.sha256("\n".join([str(seed), rater, task.metric, *pair]).encode("utf-8", "replace")).digest()[0]
    return (names[0], names[1]) if chance & 1 else None


def other_name(name: str, swap: tuple[str, str] | None) -> str:
    """Return the other name of two that are exchanged; any other word, and without an exchange every word, as it is."""
    return name if swap is None or name not in swap else swap[swap.index(name) - 1]


def views_of(task: Ask, swap: tuple[str, str] | None) -> list[Recipe]:
    """Return the pictures of a question, two of them with exchanged names."""
    by_name = {view.alias: view for view in task.views}
    return [replace(by_name[other_name(view.alias, swap)], alias=view.alias) for view in task.views]


def wanted_questions(store: RunStore, names: Iterable[str]) -> tuple[str, ...]:
    """Return the ids of metrics by id, name or short name; the id of an intermediate question stays as it is."""
    known = names_of(store.metrics().values())
    return tuple(known(name) or name for name in names)


def _protocol(store: RunStore) -> EvalProtocol:
    identity = store.spec.identity
    named = {str(name) for key in ("tools", "absent_tools") for name in _names(identity.get(key))}
    tools = [*(name for name in BUILT_IN_TOOLS if name in named), *sorted(named - set(BUILT_IN_TOOLS))]
    budget = identity.get("budget")
    try:
        return make_protocol(
            store.protocol,
            store.options(),
            tools=tools,
            budget=Budget.from_json(budget) if isinstance(budget, Mapping) else Budget(),
        )
    except UnknownPlugin as error:
        raise ConfigError(f"{store.folder} was made by a protocol that is not installed here: {error}") from error


def _names(value: Json) -> Iterable[Json]:
    return value if isinstance(value, Mapping | list) else ()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _now() -> str:
    # Finer than people are, so that no two lines of a rater are the same.
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
