"""A run's tasks in other processes, on this machine or on others. The parent gives them out and owns all that is shared.

The parent listens; each worker opens one connection for control and one for each task that it works on at a time (a seat).
On a seat the parent sends a task, and until the finding comes the worker asks it for every call: the parent's ledger grants
it and counts what it took, the parent's limit of connections says when. So budgets, rates and refusals have one owner, and
a connection that ends gives back what was granted on it. Workers write traces, pictures and tools' answers into the run
folder, the parent alone writes findings.

A worker that is lost is replaced, and its tasks are asked again: they go on from their traces.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing import AuthenticationError
from multiprocessing.connection import Connection, answer_challenge, deliver_challenge, wait
from pathlib import Path
from typing import Any, Final, Protocol, TypeAlias

import cv2

import editloupe
from editloupe import files
from editloupe.backends import langsmith
from editloupe.backends.base import LMM
from editloupe.backends.limits import ConnectionLimit, limit_of, stand_in
from editloupe.backends.stopping import sleep
from editloupe.chat import Usage
from editloupe.config import RunConfig, RunSpec
from editloupe.cores import usable_cores, use_cores
from editloupe.data.images import CACHE_BYTES, ImageStore
from editloupe.errors import (
    BackendError,
    ConfigError,
    EditLoupeError,
    Interrupted,
    RateLimited,
    Rejected,
    WorkerError,
    first_words,
)
from editloupe.findings import Finding
from editloupe.runs.budget import Ledger, Metered
from editloupe.runs.setup import Setup, open_setup, weights_of
from editloupe.runs.worker import Worker, tool_cache_of
from editloupe.tasks import Task
from editloupe.tools.cache import ToolCache
from editloupe.values import Json, Sample

LOST_AT_FIRST: Final = 3
"""Workers lost before any was ready, after which the run is broken."""
LOST_IN_A_ROW: Final = 20
"""Workers lost without a finding between them, or three times as many as there are, after which the run is broken."""
LOST_ON_A_TASK: Final = 5
"""Workers lost while they had the same task, after which it gets a finding that says so."""
GREET_S: Final = 20.0
"""Within which a connection must show that it knows the key."""
END_S: Final = 10.0
"""Within which workers must end once they are told to."""
SILENT_S: Final = 30
"""After which a machine that says nothing counts as lost. A worker gives up earlier: it must not write where another goes
on."""

Address: TypeAlias = tuple[str, int]
"""Host and port."""


class Process(Protocol):
    """A worker, as its parent sees it."""

    def ended(self) -> str | None:
        """Return why it has ended; None while it runs, or waits for its turn to start."""

    def end(self, within_s: float) -> str | None:
        """Wait so long until it has ended, and return why; end it after that, and return None."""


class Launcher(Protocol):
    """Starts workers."""

    host: str
    """The address of this machine by which workers reach it."""
    shares: bool
    """Whether all workers run on this machine, so that each takes its share of the cores and of the memory for images."""

    def start(self, address: Address, key: bytes, number: int) -> Process:
        """Start a worker, which calls `work` with these arguments."""

    def close(self) -> None:
        """Give back what is held for starting workers; all have ended."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """What a worker is given at a time."""

    task: Task
    repeat: int
    sample: Sample | None
    """For the remarks on how large its targets are sent."""


@dataclass(eq=False)
class _Member:
    """One worker of a crew."""

    process: Process
    control: Connection | None = None
    seats: list[_Seat] = field(default_factory=list)
    tools: tuple[int, int] = (0, 0)
    """Calls of tools that ran, and that were answered from equal ones."""
    lost: bool = False


@dataclass(frozen=True, eq=False)
class _Seat:
    member: _Member
    connection: Connection


class Crew:
    """Workers that answer a run's tasks. Use in a `with` block.

    count: workers.   seats: tasks at once in each.   ledger: grants every call.
    tools: whether tasks may call tools, whose weights are then loaded before the first one.
    """

    def __init__(
        self, launcher: Launcher, setup: Setup, run: Path, ledger: Ledger, *, count: int, seats: int, tools: bool
    ) -> None:
        self.width = count * seats
        """Tasks at once."""
        self._launcher, self._setup, self._ledger, self._count = launcher, setup, ledger, count
        self._backends = {one.backend.uri: one.backend for one in setup.respondents.values()}
        self._key = secrets.token_bytes(32)
        self._mark = run / "cache" / f"workers-{secrets.token_hex(8)}"
        self._opening: dict[str, Json] = {
            "editloupe": editloupe.__version__,
            "folder": str(Path.cwd()),
            "run": str(run.resolve()),
            "mark": self._mark.name,
            "config": setup.config.model_dump(mode="json"),
            "tools": tools,
            "seats": seats,
            "beside": count if launcher.shares else 1,
            "identity": _identity(setup),
        }
        self._changed = threading.Condition()
        self._members: dict[int, _Member] = {}
        self._free: deque[_Seat] = deque()
        self._started = self._lost = 0
        self._ready = self._closed = False
        self._broken: Exception | None = None
        self._last = ""
        self._watching = threading.Thread(target=self._watch, daemon=True, name="crew watches")

    def __enter__(self) -> Crew:
        self._listening = socket.create_server((self._launcher.host, 0), backlog=2 * self.width + self._count)
        # A socket that is closed wakes nobody who waits for a connection.
        self._listening.settimeout(0.5)
        files.write_whole(self._mark, b"", below=self._mark.parent.parent)
        try:
            for _ in range(self._count):
                self._start()
        except BaseException:
            self.close()
            raise
        threading.Thread(target=self._listen, daemon=True, name="crew listens").start()
        self._watching.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def tool_calls(self) -> tuple[int, int]:
        """Calls of tools that ran, and that were answered from equal ones."""
        with self._changed:
            counts = [member.tools for member in self._members.values()]
        return sum(ran for ran, _ in counts), sum(hits for _, hits in counts)

    def answer(self, job: Job) -> Finding:
        """Return the finding of a task, which a worker answers. Any thread may call it.

        Raises Interrupted when the run is to stop, ConfigError for a worker that differs from this process, WorkerError
        where there are no workers, and what the task raised.
        """
        for _ in range(LOST_ON_A_TASK):
            seat = self._take()
            try:
                outcome, tools = self._served(seat.connection, job)
            except (EOFError, OSError) as error:
                self._lose(seat.member, f"its connection ended ({first_words(error)})")
                continue
            with self._changed:
                self._lost, seat.member.tools = 0, tools
                if not seat.member.lost:
                    self._free.append(seat)
                self._changed.notify()
            if isinstance(outcome, Finding):
                return outcome
            raised, text = outcome
            raise raised.__new__(raised, text)
        judge_id = self._setup.judge_of(job.task).id
        reason = f"{LOST_ON_A_TASK} workers were lost while they answered this, the last one because {self._last}"
        return Finding.of(
            job.task, judge_id=judge_id, repeat=job.repeat, status="tool_failed", reason=reason, ending="fault"
        )

    def close(self) -> None:
        """Let the workers end; those that do not are killed."""
        with self._changed:
            if self._closed:
                return
            self._closed = True
            self._changed.notify_all()
            members = list(self._members.values())
        self._listening.close()
        if self._watching.is_alive():
            # It asks the launcher, which may be closed next.
            self._watching.join()
        for member in members:
            _tell(member.control, b"end")
        until = time.monotonic() + (END_S if self._broken is None else 0)
        for member in members:
            # One that is on its way up has not heard.
            member.process.end(max(0.0, until - time.monotonic()) if member.control else 0.0)
            self._hang_up(member)
        self._mark.unlink(missing_ok=True)

    def _start(self) -> None:
        with self._changed:
            if self._closed or self._broken:
                raise WorkerError("the run has ended; no worker is started any more")
            number, self._started = self._started, self._started + 1
            address = self._listening.getsockname()[:2]
            self._members[number] = _Member(self._launcher.start(address, self._key, number))

    def _take(self) -> _Seat:
        with self._changed:
            while not self._free or self._broken or self._closed:
                if self._broken is not None:
                    raise self._broken
                if self._closed or self._ledger.stop.is_set():
                    raise Interrupted("the run was asked to stop; this task goes on from here next time")
                self._changed.wait(0.2)
            return self._free.popleft()

    def _served(self, worker: Connection, job: Job) -> tuple[_Outcome, tuple[int, int]]:
        """Return the outcome of a task and how many calls of tools the worker has made. Raises EOFError and OSError."""
        worker.send(job)
        while True:
            match worker.recv():
                case "call", uri:
                    self._grant(worker, self._backends[uri])
                case "done", outcome, tools:
                    return outcome, tools

    def _grant(self, worker: Connection, backend: LMM) -> None:
        """Grant a call and see it through. Whatever ends this gives back what was granted."""
        try:
            with self._ledger.call(backend):
                worker.send(None)
                while True:
                    match worker.recv():
                        case "connect", endpoint:
                            with suppress(BackendError), limit_of(endpoint).call():
                                worker.send(None)
                                if (failed := worker.recv()) is not None:
                                    raise failed[0]("", retry_after_s=failed[1])
                        case "again", endpoint:
                            limit_of(endpoint).again()
                        case "ended", BackendError() as error:
                            return self._ledger.refuse(backend, error)
                        case "ended", (usage, guess):
                            return self._ledger.spend(backend, usage, guess)
                        case "ended", None:
                            return None
        except (Rejected, Interrupted) as error:
            worker.send(error)

    def _lose(self, member: _Member, why: str) -> None:
        """Replace a worker that was lost. What it was answering is asked again."""
        with self._changed:
            if member.lost or self._closed:
                return None
            member.lost = True
            self._free = deque(seat for seat in self._free if seat.member is not member)
        with suppress(EOFError, OSError):
            if member.control is not None and member.control.poll():
                return self._break(ConfigError(member.control.recv_bytes().decode()))
        self._hang_up(member)
        self._last = why = member.process.end(0.5) or why
        with self._changed:
            self._lost += 1
            lost = self._lost
        if not self._ready and lost >= LOST_AT_FIRST:
            return self._break(WorkerError(f"{lost} workers were lost before any was ready, the last one because {why}"))
        if lost > max(LOST_IN_A_ROW, 3 * self._count):
            return self._break(
                WorkerError(f"{lost} workers were lost and nothing was judged between, the last one because {why}")
            )
        try:
            self._start()
        except Exception as error:  # noqa: BLE001 - whatever it is, the run must not wait for a worker that never comes
            self._break(WorkerError(f"a worker was lost because {why}, and cannot be replaced: {first_words(error)}"))
        return None

    def _break(self, error: Exception) -> None:
        with self._changed:
            if self._broken is None and not self._closed:
                self._broken = error
            self._changed.notify_all()
            members = list(self._members.values())
        for member in members:
            self._hang_up(member)

    def _hang_up(self, member: _Member) -> None:
        with self._changed:
            seats, control = list(member.seats), member.control
        for connection in (*(seat.connection for seat in seats), control):
            if connection is not None:
                # Closing would wake nobody who reads.
                with suppress(OSError), socket.socket(fileno=os.dup(connection.fileno())) as end:
                    end.shutdown(socket.SHUT_RDWR)

    def _listen(self) -> None:
        while not self._closed:
            try:
                peer, _ = self._listening.accept()
            except TimeoutError:
                continue
            except OSError:
                time.sleep(0.1)  # closed, or no free file number
                continue
            threading.Thread(target=self._greet, args=(peer,), daemon=True, name="crew greets").start()

    def _greet(self, peer: socket.socket) -> None:
        """Take a connection in, if who is there knows the key. Nothing is unpickled before that."""
        connection = _connection(peer, silent_s=SILENT_S, patience_s=GREET_S)
        try:
            deliver_challenge(connection, self._key)
            answer_challenge(connection, self._key)
            number, kind = json.loads(connection.recv_bytes(100))
            _set_patience(connection, 0)
        except (OSError, EOFError, ValueError, AuthenticationError):
            connection.close()
            return
        with self._changed:
            member = self._members[number]
            if member.lost or self._closed:
                connection.close()
            elif kind == "control":
                member.control = connection
                _tell(connection, json.dumps(self._opening).encode())
            else:
                member.seats.append(seat := _Seat(member, connection))
                self._free.append(seat)
                self._ready = True
                self._changed.notify()

    def _watch(self) -> None:
        """Notice workers that end or differ, and tell all of a stop."""
        try:
            self._watch_all()
        except Exception as error:  # noqa: BLE001 - such as a cluster that is gone; nobody would notice what is lost
            self._break(WorkerError(f"the workers cannot be watched any more: {first_words(error)}"))

    def _watch_all(self) -> None:
        told: set[_Member] = set()
        while not (self._closed or self._broken):
            with self._changed:
                members = [member for member in self._members.values() if not member.lost]
            controls = {member.control: member for member in members if member.control is not None}
            if self._ledger.stop.is_set():
                for member in {*controls.values()} - told:
                    _tell(member.control, b"stop")
                    told.add(member)
            for control in wait(list(controls), timeout=0.2) if controls else ():
                self._lose(controls[control], "its connection ended")  # type: ignore[index]
            if not controls:
                time.sleep(0.2)
            for member in members:
                if (why := member.process.ended()) is not None:
                    self._lose(member, why)


_Outcome: TypeAlias = Finding | tuple[type[EditLoupeError], str]
"""What a task came to, or what it raised: kind and message."""


def _tell(control: Connection | None, message: bytes) -> None:
    # Who is gone hears nothing, and is noticed elsewhere.
    with suppress(OSError):
        if control is not None:
            control.send_bytes(message)


def _connection(peer: socket.socket, *, silent_s: int, patience_s: float) -> Connection:
    """Return a connection on which a machine that is gone is noticed, and no message waits for the next one.

    patience_s: of each read; 0 for no bound.
    """
    peer.setblocking(True)
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    bounds = {"KEEPIDLE": silent_s // 2, "KEEPINTVL": silent_s // 6, "KEEPCNT": 3, "USER_TIMEOUT": silent_s * 1000}
    for name, value in bounds.items():
        if (number := getattr(socket, f"TCP_{name}", None)) is not None:
            peer.setsockopt(socket.IPPROTO_TCP, number, value)
    connection = Connection(peer.detach())
    _set_patience(connection, patience_s)
    return connection


def _set_patience(connection: Connection, seconds: float) -> None:
    with socket.socket(fileno=os.dup(connection.fileno())) as peer:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("@ll", int(seconds), 0))


def _identity(setup: Setup) -> dict[str, Json]:
    """Return what must be the same in all processes of a run."""
    judges = {role: one.spec.to_json() for role, one in setup.respondents.items()}
    found: dict[str, Json] = json.loads(json.dumps({**setup.spec.identity, "judges": judges}))
    return found


# In the worker.

_here = threading.local()
"""`seat`: the connection of this thread's task.   `outcome`: what its call came to."""


def work(address: Address, key: bytes, number: int) -> None:
    """Answer tasks of the parent at an address until it says that the run ends. The process ends with the connection."""
    with suppress(ValueError):  # not in the main thread
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    control = _join(address, key, number, "control")
    opening = json.loads(control.recv_bytes())
    stop = threading.Event()
    try:
        worker = _opened(opening, stop)
    except EditLoupeError as error:
        control.send_bytes(f"a worker on {socket.gethostname()}: {error}".encode())
        return
    # Each task has a thread.
    cv2.setNumThreads(1)
    for _ in range(opening["seats"]):
        seat = _join(address, key, number, "seat")
        threading.Thread(target=_sit, args=(worker, seat), daemon=True, name="judge").start()
    with _or_end():
        while control.recv_bytes() == b"stop":
            stop.set()
    if worker.setup.config.langsmith:
        langsmith.flush()


def _join(address: Address, key: bytes, number: int, kind: str) -> Connection:
    peer = socket.create_connection(address, timeout=GREET_S)
    connection = _connection(peer, silent_s=SILENT_S * 2 // 3, patience_s=GREET_S)
    answer_challenge(connection, key)
    deliver_challenge(connection, key)
    connection.send_bytes(json.dumps([number, kind]).encode())
    _set_patience(connection, 0)
    return connection


def _opened(opening: dict[str, Any], stop: threading.Event) -> Worker:
    """Return who answers, here. Raises ConfigError that says what is not as it is at the parent."""
    if (theirs := opening["editloupe"]) != (ours := editloupe.__version__):
        raise ConfigError(f"editloupe is {ours} here and {theirs} where the run was started; install the same version")
    folder, run = Path(opening["folder"]), Path(opening["run"])
    if not folder.is_dir():
        raise ConfigError(f"the working folder {folder} is not here; start the run in a folder that all machines share")
    os.chdir(folder)
    if not (run / "cache" / opening["mark"]).is_file():
        raise ConfigError(
            f"the run folder {run} is not here, or another one: name one by --out that all machines share under one path"
        )
    config = RunConfig.model_validate(opening["config"])
    for path in filter(None, (config.path, *config.edited.values())):
        if not path.exists():
            raise ConfigError(f"the data {path} are not here; they must lie in a folder that all machines share")
    setup = open_setup(config)
    if differing := RunSpec(identity=_identity(setup)).differs_from(RunSpec(identity=opening["identity"])):
        said = "; ".join(f"{name} is {ours!r} here and {theirs!r} there" for name, ours, theirs in differing)
        raise ConfigError(f"not as it is where the run was started: {said}")
    if opening["tools"]:
        setup.toolbox.prepare()
    use_cores(max(1, usable_cores() // opening["beside"]))
    for one in setup.respondents.values():
        stand_in(one.backend.endpoint, _Connections(one.backend.endpoint))
    grants = _Grants()
    return Worker(
        setup=setup.with_backends(lambda backend: Metered(backend, grants)),
        images=ImageStore(run / "blobs", cache_bytes=CACHE_BYTES // opening["beside"]),
        run=run,
        stop=stop,
        cache=ToolCache(tool_cache_of(run), device=weights_of(config).device, shared=True),
    )


@contextmanager
def _or_end() -> Iterator[None]:
    """End the process where the connection ends: nobody would hear of what it does."""
    try:
        yield
    except (EOFError, OSError):
        os._exit(1)


def _sit(worker: Worker, seat: Connection) -> None:
    """Answer one task after the other."""
    _here.seat = seat
    cache = worker.cache
    assert cache is not None
    try:
        while True:
            with _or_end():
                job: Job = seat.recv()
            samples = {} if job.sample is None else {job.sample.key: job.sample}
            outcome: _Outcome
            try:
                outcome = replace(worker, samples=samples).run_task(job.task, repeat=job.repeat)
            except EditLoupeError as error:
                outcome = type(error), str(error)
            with _or_end():
                seat.send(("done", outcome, (cache.ran, cache.hits)))
    except BaseException:  # noqa: BLE001 - the process ends with it
        # Without this thread the parent would wait for ever.
        traceback.print_exc()
        os._exit(1)


def _ask(*words: str) -> None:
    """Ask the parent and wait until it agrees. Raises Rejected or Interrupted where it does not."""
    with _or_end():
        _here.seat.send(words)
        said = _here.seat.recv()
    if said is not None:
        raise said


class _Grants:
    """The parent's ledger, as a worker sees it."""

    @contextmanager
    def call(self, backend: LMM) -> Iterator[None]:
        _ask("call", backend.uri)
        _here.outcome = None
        try:
            yield
        finally:
            with _or_end():
                _here.seat.send(("ended", _here.outcome))

    def spend(self, backend: LMM, usage: Usage, guess: Usage | None) -> None:
        _here.outcome = usage, guess

    def refuse(self, backend: LMM, error: BackendError) -> None:
        # A subclass of another package may be one that cannot be pickled.
        _here.outcome = BackendError(str(error), status=error.status, for_all=error.for_all, lost=error.lost)


class _Connections(ConnectionLimit):
    """The parent's limit of an endpoint's connections, as a worker sees it."""

    def __init__(self, endpoint: str) -> None:
        super().__init__()
        self._endpoint = endpoint

    def again(self) -> None:
        with _or_end():
            _here.seat.send(("again", self._endpoint))

    @contextmanager
    def call(
        self,
        clock: Callable[[], float] | None = None,
        wait: Callable[[float], None] = sleep,
        *,
        patience_s: float = math.inf,
    ) -> Iterator[None]:
        _ask("connect", self._endpoint)
        failed: tuple[type[BackendError], float | None] | None = BackendError, None
        try:
            yield
            failed = None
        except BackendError as error:
            kind = RateLimited if isinstance(error, RateLimited) else BackendError
            asked = error.retry_after_s
            failed = kind, asked if asked is not None and asked <= patience_s else None
            raise
        finally:
            with _or_end():
                _here.seat.send(failed)


# On this machine.

_PROGRAM: Final = """\
import json, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
sys.path[:], (host, port), key, number = json.load(sys.stdin)
from editloupe.runs.workers import work
work((host, port), bytes.fromhex(key), number)
"""


class Local:
    """Starts workers as processes of this machine."""

    host, shares = "127.0.0.1", True

    def start(self, address: Address, key: bytes, number: int) -> LocalProcess:
        """Start one. Raises OSError."""
        return LocalProcess(json.dumps([sys.path, address, key.hex(), number]).encode())

    def close(self) -> None:
        """Do nothing."""


class LocalProcess:
    """A worker on this machine. What it says on standard error is told when it is lost."""

    def __init__(self, given: bytes) -> None:
        self._why: str | None = None
        self._lock = threading.Lock()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - read when it has ended
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=self._log
        )
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(given)

    def ended(self) -> str | None:
        with self._lock:
            code = self._process.poll()
            if code is not None and self._why is None:
                with self._log:
                    self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 2000))
                    said = self._log.read().decode(errors="replace").strip().rpartition("\n")[2]
                how = f"it was ended by signal {-code}" if code < 0 else f"it ended with exit code {code}"
                self._why = f"{how}: {said}" if said else how
            return self._why

    def end(self, within_s: float) -> str | None:
        try:
            self._process.wait(within_s)
            return self.ended()
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            self.ended()
            return None
