"""A run's batches: questions without an answer are parked, sent in files as an invocation ends, and answered at a later.

`batches/N.json` says what file N holds, and is on disk before the provider is called: an invocation that is killed is found
again by the token in it. `batches/N.answers.jsonl` holds the answers as they came.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import BinaryIO, Final, Literal

from pydantic import TypeAdapter

from editloupe import files
from editloupe.backends.base import LMM, reach
from editloupe.backends.batch.base import BatchAnswer, Batches, InBatches, question_id
from editloupe.backends.batch.openai import RunBatchFiles
from editloupe.backends.token_estimate import estimate_usage
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, DataError, Parked, Rejected
from editloupe.runs.setup import Setup
from editloupe.values import compact_bytes

FOLDER: Final = "batches"
TOO_LARGE: Final = 413
"""HTTP status of a file that is rejected before a batch is made of it."""
REASON: Final = "waits for the answer of a batch; the same command goes on"


@dataclass(kw_only=True)
class Batch:
    """One file of questions: what `batches/N.json` holds."""

    number: int
    backend: str
    token: str
    """By which the provider finds it again."""
    ids: list[str]
    bytes: int
    sent_at: float
    """Epoch, in s; just before the provider was called."""
    offline: bool = False
    """Whether another program answers the file, and no provider."""
    half_of: str = ""
    """Of a file that was rejected: which half of which, such as "3.1"."""
    left_off: list[str] = field(default_factory=list)
    """What the endpoint had refused until then."""
    id: str | None = None
    """The provider's; None until it is known."""
    state: Literal["sending", "open", "ended", "rejected"] = "sending"
    words: str = ""
    """What the provider said of it last."""


@dataclass(kw_only=True)
class _Spool:
    """A file that questions are written to."""

    path: Path
    file: BinaryIO
    backend: str
    half_of: str
    ids: list[str] = field(default_factory=list)
    bytes: int = 0
    tokens: int = 0


def records_of(folder: Path) -> list[Batch]:
    """Return the batches of a run, in their order. Raises DataError."""
    found = []
    for path in folder.glob("*.json"):
        try:
            found.append(TypeAdapter(Batch).validate_json(files.read_bytes(path)))
        except ValueError as error:
            raise DataError(
                f"{path} is no record of a batch ({error}); put a copy back, or delete it: its questions are sent again"
            ) from error
    return sorted(found, key=lambda batch: batch.number)


def told_open(run: Path) -> str:
    """Return what an invocation that asks live should say of batches that are open; "" without any."""
    count = sum(batch.state in ("sending", "open") for batch in records_of(run / FOLDER))
    if not count:
        return ""
    are = "1 batch of this run is" if count == 1 else f"{count} batches of this run are"
    return f"{are} still open: what is asked live now may be paid twice. --batch takes their answers"


class RunBatches:
    """The batches of one run and its setup. Thread-safe."""

    def __init__(self, setup: Setup, run: Path) -> None:
        self._config, self._folder, self._run = setup.config, run / FOLDER, run
        self._lock = threading.Lock()
        self.asked: dict[str, Batched] = {}
        """By URI: a backend that has several roles is one."""
        self.records: list[Batch] = []
        self._fate: dict[str, str] = {}
        """Question → "open", "live", or the half of a rejected file that it goes into."""
        self._answers: dict[str, tuple[Batch, int, int]] = {}
        """Question → its batch, and where its answer stands in the file of answers."""
        self._fresh: set[int] = set()
        """Batches that were under way as this invocation began: what came of them is told at it."""
        self._spools: list[_Spool] = []
        self._parked: set[str] = set()
        self.remarks: list[str] = []
        # A conversation without tools is one step; what follows on it, such as a reminder, is asked live.
        self._waves = setup.config.batch_waves if setup.toolbox.tools else 1
        self.setup = setup.with_backends(self._wrapped)

    @property
    def offline(self) -> bool:
        """Whether files go to another program, and nobody is called."""
        return bool(self._config.batch_file or self._config.batch_answers)

    def _wrapped(self, backend: LMM) -> LMM:
        """Return a backend that is asked by batches. Raises ConfigError for one that has none."""
        if backend.uri in self.asked:
            return self.asked[backend.uri]
        if not isinstance(backend, InBatches):
            raise ConfigError(
                f"--batch: {backend.uri} has no batch endpoint; openai, google and vllm have. Leave --batch out"
            )
        if self.offline:
            try:
                door: Batches = RunBatchFiles(backend, write=self._config.batch_file, read=self._config.batch_answers)
            except (OSError, ValueError) as error:
                raise DataError(f"--set batch_answers: {error}") from error
        else:
            door = backend.batches(self._folder)
        self.asked[backend.uri] = Batched(backend, door, self)
        return self.asked[backend.uri]

    # What is known from before

    def fetch(self) -> None:
        """Look at each batch that is open, and take its answers in. Raises BackendError, DataError and StorageError."""
        with files.writing(self._run):
            for path in sorted(self._folder.glob("*.questions.jsonl")):
                files.unlink(path, below=self._run)
            self.records = records_of(self._folder)
        self._check_answers()
        for batch in self.records:
            if (asked := self.asked.get(batch.backend)) is not None:
                asked.backend.leave_off(frozenset(batch.left_off))
                underway, ours = batch.state in ("sending", "open"), batch.offline == self.offline
                if underway and ours:
                    self._fresh.add(batch.number)
                elif underway:
                    live = "leave batch_file and batch_answers out"
                    ways = "--set batch_answers=DIR reads them" if batch.offline else live
                    self.remarks.append(
                        f"{len(batch.ids):,} questions wait for the answers to {batch.id}: {ways}. To send them anew, "
                        f"delete {self._folder / f'{batch.number}.json'}."
                    )
                # A folder may have got more answers since the first, and a file of answers may have been lost here.
                again = batch.state == "ended" and batch.id is not None
                again = again and (batch.offline or not self._answers_of(batch).exists())
                if ours and (underway or again):
                    self._look(batch, asked.door)
                self._settle(batch, asked.door)

    def _check_answers(self) -> None:
        for asked in self.asked.values():
            if isinstance(asked.door, RunBatchFiles):
                try:
                    strange = asked.door.check({id_ for batch in self.records for id_ in batch.ids})
                except ValueError as error:
                    raise DataError(str(error)) from error
                if strange:
                    self.remarks.append(
                        f"{strange:,} answers in {self._config.batch_answers} belong to no question of this run."
                    )

    def _look(self, batch: Batch, door: Batches) -> None:
        """Bring the record of an open batch up to date, and keep its answers if it has ended."""
        batch.id = batch.id or door.find(batch.token, batch.sent_at)
        if batch.id is None:
            batch.state, batch.words = "ended", "was not sent"
        else:
            try:
                state = door.state(batch.id, batch.ids)
            except BackendError as error:
                if error.status not in (404, 410):
                    raise
                raise DataError(
                    f"batch {batch.id}, or its file of answers, is not known there: {error}. Give the key of the account "
                    f"that sent it; if it was deleted, delete {self._folder / f'{batch.number}.json'}: its questions are "
                    "sent, and paid for, again"
                ) from error
            if batch.offline and batch.state == "ended" and state.kind != "ended":
                return
            # Halves once more, or as they are when others are done: at full price nothing that is merely too much now.
            later = state.full and batch.half_of
            batch.state, batch.words = "ended" if later else state.kind, state.words
            if batch.state == "ended":
                answers, path = state.answers, self._answers_of(batch)
                with files.writing(self._run):
                    if batch.offline and path.exists():
                        answers = b"".join(dict.fromkeys((files.read_bytes(path) + answers).splitlines(keepends=True)))
                    files.write_whole(path, answers, below=self._run, synced=True)
        self._write(batch)

    def _settle(self, batch: Batch, door: Batches) -> None:
        """Say of each question of a batch what is to be done."""
        for id_ in batch.ids:
            self._fate.pop(id_, None)
        if batch.state in ("open", "sending"):
            self._fate.update(dict.fromkeys(batch.ids, "open"))
        elif batch.state == "rejected":
            halves = [f"{batch.number}.{2 * n // len(batch.ids)}" for n in range(len(batch.ids))]
            self._fate.update(zip(batch.ids, ["live"] * len(halves) if batch.half_of else halves, strict=True))
            if self.is_fresh(batch):
                self._tell_rejected(batch)
        elif batch.id is not None:
            self._read_answers(batch, door)

    def _tell_rejected(self, batch: Batch) -> None:
        then = "asked live" if batch.half_of else "sent once more, in halves"
        self.remarks.append(f"Batch {batch.id or batch.number} was rejected ({batch.words}): its questions are {then}.")

    def _read_answers(self, batch: Batch, door: Batches) -> None:
        own, answered, fresh = set(batch.ids), set(), self.is_fresh(batch)
        for start, length, answer in _answers_in(self._answers_of(batch), door):
            # A failure is told at the invocation at which it came; at a later one the question is asked anew, as live.
            if answer.id in own and (answer.good or (fresh and answer.status and answer.id not in answered)):
                answered.add(answer.id)
                self._answers[answer.id] = batch, start, length
        if fresh and (left := len(own - answered)):
            self.remarks.append(
                f"Batch {batch.id} ({batch.words}) left {left:,} of {len(own):,} questions without an answer."
            )

    def _answers_of(self, batch: Batch) -> Path:
        return self._folder / f"{batch.number}.answers.jsonl"

    def _write(self, batch: Batch) -> None:
        with files.writing(self._run):
            data = compact_bytes(asdict(batch))
            files.write_whole(self._folder / f"{batch.number}.json", data, below=self._run, synced=True)

    # For the backends

    def answer(self, door: Batches, id_: str) -> tuple[Batch, BatchAnswer] | None:
        """Return the answer to a question; None where there is none."""
        if id_ not in self._answers:
            return None
        batch, start, length = self._answers[id_]
        with files.open_plain(self._answers_of(batch)) as file:
            file.seek(start)
            return batch, door.answer(file.read(length))

    def is_fresh(self, batch: Batch) -> bool:
        """Return whether a batch was under way as this invocation began, so that its answers came at it."""
        return batch.number in self._fresh

    def asks_live(self, request: Request, id_: str) -> bool:
        """Return whether a question is beyond the waves, or its file was rejected twice."""
        step = sum(message.role == "assistant" for message in request.messages)
        return not self.offline and (step >= self._waves or self._fate.get(id_) == "live")

    def park(self, asked: Batched, id_: str, request: Request, images: ImageStore) -> None:
        """Keep a question for the next wave, once. Raises BackendError for one that can never be sent, and ImageError."""
        if self._fate.get(id_) == "open" or id_ in self._parked:
            return
        line = asked.door.line(id_, request, images)
        guess = estimate_usage(request, Reply(text=""), asked.traits)
        with self._lock, files.writing(self._run):
            if id_ not in self._parked:
                self._parked.add(id_)
                spool = self._spool(asked, self._fate.get(id_, ""), len(line), (guess and guess.input_tokens) or 0)
                spool.file.write(line)
                spool.ids.append(id_)

    def _spool(self, asked: Batched, half_of: str, size: int, tokens: int) -> _Spool:
        """Return the file that a line goes into, with its size added."""
        alike = [one for one in self._spools if (one.backend, one.half_of) == (asked.uri, half_of)]
        holds = asked.door.limits.hold
        if not alike or not holds(len(alike[-1].ids) + 1, alike[-1].bytes + size, alike[-1].tokens + tokens):
            path = self._folder / f"{secrets.token_hex(8)}.questions.jsonl"
            file = files.append(path, below=self._run, new=True)
            alike.append(_Spool(path=path, file=file, backend=asked.uri, half_of=half_of))
            self._spools.append(alike[-1])
        alike[-1].bytes += size
        alike[-1].tokens += tokens
        return alike[-1]

    # The end of an invocation

    def send(self) -> None:
        """Send what is parked. Raises Rejected where the provider takes no batch; StorageError."""
        for spool in self._spools:
            spool.file.close()
        if self._config.batch_answers and not self._config.batch_file:
            if self._parked:
                self.remarks.append(f"{len(self._parked):,} more questions: --set batch_file=DIR writes them.")
            return
        for spool in self._spools:
            asked = self.asked[spool.backend]
            batch = Batch(
                number=1 + max((one.number for one in self.records), default=0),
                backend=spool.backend,
                token=f"editloupe-{secrets.token_hex(8)}",
                ids=spool.ids,
                bytes=spool.bytes,
                sent_at=time.time(),
                offline=self.offline,
                half_of=spool.half_of,
                left_off=sorted(asked.backend.refused),
            )
            self._write(batch)
            self.records.append(batch)
            self._sent(batch, asked.door, spool.path)

    def _sent(self, batch: Batch, door: Batches, path: Path) -> None:
        try:
            batch.id, batch.state = door.send(path, batch.token, batch.sent_at), "open"
        except BackendError as error:
            if error.status == TOO_LARGE:
                batch.state, batch.words = "rejected", str(error)
                self._tell_rejected(batch)
            elif error.retryable:
                # It may have come through: the next invocation looks for it.
                self.remarks.append(
                    f"Batch {batch.number} could not be sent for certain ({error}); the same command looks."
                )
                return
            else:
                batch.state, batch.words = "ended", f"was not sent: {error}"
                self._write(batch)
                raise Rejected(f"no batch is taken: {error}. Leave --batch out to ask live", for_all=True) from error
        except OSError as error:
            raise ConfigError(f"--set batch_file={self._config.batch_file}: {files.write_cure(error)}") from error
        self._write(batch)

    def close(self) -> None:
        """Delete the files of questions: those that were sent, and those that the next invocation writes again."""
        for spool in self._spools:
            spool.file.close()
            with suppress(OSError):
                files.unlink(spool.path, below=self._run)


class Batched:
    """A backend that gives the answers that batches have given, and parks what none has answered."""

    def __init__(self, backend: InBatches, door: Batches, batches: RunBatches) -> None:
        self.backend, self.door, self._batches = backend, door, batches
        self.uri, self.endpoint, self.version, self.traits = backend.uri, backend.endpoint, backend.version, backend.traits
        self._first = threading.Lock()
        self._checked: bool | None = None

    def reach(self) -> None:
        """Try the address, unless nobody is called. Raises Unavailable."""
        if not self._batches.offline:
            reach(self.backend)

    def complete(self, request: Request, images: ImageStore) -> Reply:
        """Return the answer of a batch. Raises Parked where there is none yet, and as the backend does."""
        id_ = question_id(self.uri, request)
        found = self._batches.answer(self.door, id_)
        try:
            reply = None if found is None else self.backend.reply_of(request, found[1], frozenset(found[0].left_off))
        except BackendError:
            # As a line that failed: told at the invocation at which it came, and asked anew at a later one.
            if found is not None and self._batches.is_fresh(found[0]):
                raise
            reply = None
        if found is not None and reply is not None:
            return self._recorded(reply, found[0])
        if self._batches.asks_live(request, id_):
            return self.backend.complete(request, images)
        if not self._batches.offline and (first := self._first_reply(request, images)) is not None:
            return first
        self._batches.park(self, id_, request, images)
        raise Parked(REASON)

    def _first_reply(self, request: Request, images: ImageStore) -> Reply | None:
        """Ask the first question of a run live: a refused key or parameter is met before a wave is sent."""
        with self._first:
            if self._checked is None:
                # A wave was sent before.
                sent = (batch.id for batch in self._batches.records if batch.backend == self.uri)
                self._checked = any(id_ is not None for id_ in sent)
            if self._checked:
                return None
            reply = self.backend.complete(request, images)
            self._checked = True
            return reply

    def _recorded(self, reply: Reply, batch: Batch) -> Reply:
        usage = reply.usage
        if not self._batches.offline:
            usage = replace(usage, batch_input_tokens=usage.input_tokens, batch_output_tokens=usage.output_tokens)
        return replace(reply, usage=usage, sent={**reply.sent, "batch": batch.id})


def _answers_in(path: Path, door: Batches) -> Iterator[tuple[int, int, BatchAnswer]]:
    """Yield (where it stands, its length, an answer) of a file of answers; lines that are none are left out."""
    start = 0
    with files.open_plain(path) as file:
        for line in file:
            with suppress(ValueError):
                yield start, len(line), door.answer(line)
            start += len(line)
