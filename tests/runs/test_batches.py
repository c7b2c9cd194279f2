"""Judging by batch endpoints: the findings, traces and replay of a live run, and nothing sent twice.

As a program, invocations that are killed: each line of its input is a list in JSON of the folder with the edits, the run,
the backend, and the point at which the invocation kills itself, or 0 for one that ends.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe.agent.graph import shared_graph
from editloupe.backends.batch import openai as dialect_of_openai
from editloupe.backends.batch.base import InBatches, Limits
from editloupe.backends.prices import ModelPrice, Prices
from editloupe.chat import Usage
from editloupe.errors import ConfigError, DataError
from editloupe.protocols.repeats import Repeats
from editloupe.runs.batches import RunBatches
from editloupe.runs.outcome import Outcome
from editloupe.runs.replay import Live, Replay
from editloupe.runs.store import RunStore
from editloupe.traces.events import ModelCall
from editloupe.traces.read import read_trace
from tests.backends.batch_server import BatchServer, Body, GeminiBatchServer, OpenAIBatchServer
from tests.backends.gemini_server import answer
from tests.backends.openai_server import completion
from tests.conftest import LOOK, final
from tests.setups import open_with, run_over

ROOT = Path(__file__).parents[2]
LABELS = (
    "Flawless Execution", "Over Modification", "Wrong Action", "Localization Failure",
    "Scene Collapse", "Multiple Anomalies", "Single Anomaly", "Perfect Consistency",
)  # fmt: skip


def label_of(body: Body) -> str:
    """A label that rests on all that was asked."""
    # Google's SDK writes the bytes of images in the alphabet of URLs.
    text = json.dumps(body, sort_keys=True).replace("-", "+").replace("_", "/")
    known = [label for label in LABELS if label in text]
    return known[sum(text.encode()) % len(known)]


def openai_says(body: Body) -> tuple[int, Body]:
    spoken = sum(message["role"] == "assistant" for message in body["messages"])
    looks = "localize_differences" in str(body["messages"][0]) and spoken < 4
    return 200, completion(LOOK if looks else final(label_of(body)))


def gemini_says(body: Body) -> tuple[int, Body]:
    return 200, answer({"text": final(label_of(body))})


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """A function that starts a server of a dialect; it may refuse nothing that was not told to be."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "GOOGLE_API_KEY", "GEMINI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as stack:

        def start(dialect: str, says: Any = None, **options: Any) -> Any:
            kind, usual = {"openai": (OpenAIBatchServer, openai_says), "google": (GeminiBatchServer, gemini_says)}[dialect]
            return stack.enter_context(kind(says or usual, **options))

        yield start


def uri(server: BatchServer) -> str:
    model = "google/tiny-gemini" if isinstance(server, GeminiBatchServer) else "openai/tiny-vl"
    return f"{model}?base_url={server.url}"


def judge(server: BatchServer | None, folder: Path, out: Path, *, batch: bool = True, **given: Any) -> Outcome:
    address = {} if server is None else {"backend": uri(server)}
    setup = open_with(**{**address, "batch": batch, "mode": "plain", "patience": 0, **given})
    return run_over(setup, folder, out)


def findings(out: Path) -> dict[Any, Any]:
    found = RunStore.read(out).findings.values()
    return {f.task_id: {**f.to_json(), "seconds": 0, "usage": None} for f in found}


def replies(out: Path) -> dict[str, list[str]]:
    traces = [read_trace(path) for path in sorted(out.glob("traces/*/*/*.jsonl"))]
    calls = {t.header.task_id: [e for e in t.events if isinstance(e, ModelCall)] for t in traces}
    return {task: [f"{call.request_key} {call.content.text}" for call in made] for task, made in calls.items()}


def batched(server: BatchServer) -> dict[str, int]:
    """How often each question was sent in a batch that was taken."""
    return dict(server.asked)


@pytest.mark.parametrize("dialect", ["openai", "google"])
def test_a_run_by_batch_ends_as_the_same_run_asked_live_at_half_the_price(dialect: str, serve, edits, tmp_path: Path):
    server, folder = serve(dialect), edits(6)
    live, out = tmp_path / "live", tmp_path / "batch"
    judge(server, folder, live, batch=False)
    uploaded, server.received, server.live = server.received, 0, []
    # Of 12 questions one is asked live, and the others wait; an invocation that finds nothing changes nothing.
    for _ in range(2):
        assert judge(server, folder, out).waiting == 11
        statuses = [f.status for f in RunStore.read(out).findings.values()]
        assert (statuses.count("waiting"), len(server.live), len(server.batches)) == (11, 1, 1)
    server.finish()
    done = judge(server, folder, out)
    assert (done.waiting, done.ledger.calls, set(batched(server).values()), server.refusals) == (0, 11, {1}, [])
    assert findings(out) == findings(live)
    assert replies(out) == replies(live)
    # 11 input tokens at 1 USD and 3 output tokens at 2 USD a million are 17 millionths; eleven calls cost half of that.
    prices = Prices(by_name=dict.fromkeys(("tiny-vl", "tiny-gemini"), ModelPrice(input=1, output=2)))
    spent = [prices.of_uri(uri(server), f.usage) for f in RunStore.read(out).findings.values()]
    assert sum(spent) == pytest.approx(17e-6 * (1 + 11 / 2))
    again = Replay(folder=out, live=Live()).tasks(RunStore.read(out).current())
    assert [replayed.verdict for replayed in again] == ["same"] * 12
    if dialect == "google":
        # Each image goes up once for both criteria.
        assert server.received <= 0.55 * uploaded


def test_with_tools_three_steps_go_in_waves_and_the_rest_live(serve, edits, tmp_path: Path):
    server, folder = serve("openai"), edits(2)
    live, out = tmp_path / "live", tmp_path / "batch"
    judge(server, folder, live, batch=False, mode="tool", criteria=("if",))
    server.live = []
    waves = []
    while judge(server, folder, out, mode="tool", criteria=("if",)).waiting:
        waves.append(len(server.live))
        server.finish()
        assert len(waves) < 9
    # Each of the two conversations has five steps. The first question of all is live; its own later steps go in waves.
    assert len(server.batches) == 3 and sum(batched(server).values()) == 5 and len(server.live) == 5
    assert findings(out) == findings(live)
    assert replies(out) == replies(live)


@pytest.mark.parametrize("dialect", ["openai", "google"])
def test_what_a_batch_left_goes_into_the_next_wave(dialect: str, serve, edits, tmp_path: Path):
    server, folder, out = serve(dialect), edits(5), tmp_path / "out"
    for state in ("expired", "cancelled", "completed"):
        outcome = judge(server, folder, out)
        server.finish(state, share=0.5 if state != "completed" else 1.0)
    assert len(server.batches) == 3 and any("without an answer" in note for note in outcome.notes)
    assert judge(server, folder, out).waiting == 0
    assert {f.status for f in RunStore.read(out).findings.values()} == {"ok"}
    # 9 by batch, 5 of them unanswered, 3 again: halves are rounded to even.
    assert len(server.live) == 1


def test_a_rejected_file_is_halved_once_and_then_asked_live(serve, edits, tmp_path: Path):
    server, folder, out = serve("openai"), edits(5), tmp_path / "out"
    # The file of nine, and the second half of it.
    server.reject = lambda number: number in (0, 2)
    assert judge(server, folder, out).waiting == 9
    halved = judge(server, folder, out)
    assert halved.waiting == 9 and any("in halves" in note for note in halved.notes)
    server.finish()
    done = judge(server, folder, out)
    assert done.waiting == 0 and any("asked live" in note for note in done.notes)
    sizes = [len(server.lines(batch["file"])) for batch in server.batches.values()]
    assert sizes[0] == 9 and sorted(sizes[1:]) == [4, 5] and len(server.live) == 1 + sizes[2]
    assert {f.status for f in RunStore.read(out).findings.values()} == {"ok"}


def test_no_set_is_written_while_batches_have_yet_to_answer(editloupe, edits, tmp_path: Path):
    words = (
        "build",
        "edival",
        edits(2),
        "--set",
        "grounding=none",
        "--backend",
        "vllm/tiny?base_url=http://127.0.0.1:9/v1",
        "--out",
        "set",
    )
    code, _, told = editloupe(*words, "--set", "batch=true", "--set", "batch_file=questions")
    assert code == 5 and "2 questions wait for the answers of batches" in told
    assert {path.name for path in (tmp_path / "set").iterdir()} == {"build.json", "run"}
    assert len(list((tmp_path / "questions").glob("*.jsonl"))) == 1


def test_a_full_queue_is_waited_for_and_never_asked_live(serve, edits, tmp_path: Path):
    server, folder, out = serve("openai"), edits(5), tmp_path / "out"
    server.reject, server.reject_code = lambda number: True, "token_limit_exceeded"
    for _ in range(3):
        assert judge(server, folder, out).waiting == 9 and len(server.live) == 1
    server.reject = lambda number: False
    judge(server, folder, out)
    server.finish()
    assert judge(server, folder, out).waiting == 0 and len(server.live) == 1


def test_a_line_without_a_reply_is_told_once_and_asked_anew(serve, edits, tmp_path: Path):
    server, folder, out = serve("openai"), edits(3), tmp_path / "out"
    server.says = lambda body: (200, {"error": {"message": "x", "code": 502}}) if server.batches else openai_says(body)
    judge(server, folder, out, criteria=("if",))
    server.finish()
    server.says = openai_says
    told = judge(server, folder, out, criteria=("if",))
    assert [f.status for f in told.findings].count("backend_failed") == 2
    judge(server, folder, out, criteria=("if",))
    server.finish()
    judge(server, folder, out, criteria=("if",))
    assert {f.status for f in RunStore.read(out).findings.values()} == {"ok"}


def test_a_parameter_that_lines_refuse_is_left_off_for_all_of_them(serve, edits, tmp_path: Path):
    refusal = {"message": "Unsupported parameter: 'seed'", "type": "invalid_request_error", "param": "seed"}
    refused = {"error": {**refusal, "code": "unsupported_parameter"}}
    server, folder, out = serve("openai"), edits(3), tmp_path / "out"
    server.says = lambda body: (400, refused) if server.batches and "seed" in body else openai_says(body)
    judge(server, folder, out)
    server.finish()
    assert judge(server, folder, out).waiting == 5
    server.finish()
    assert judge(server, folder, out).waiting == 0
    assert {f.status for f in RunStore.read(out).findings.values()} == {"ok"}


def test_cached_tokens_of_a_batch_cost_half_of_what_they_cost_live():
    prices = Prices(by_name={"m": ModelPrice(input=2, output=8, cached_input=0.5)})
    live = Usage(input_tokens=1_000_000, output_tokens=0, cached_tokens=1_000_000)
    assert prices.of_uri("openai/m", live) == pytest.approx(0.5)
    batched = replace(live, batch_input_tokens=1_000_000)
    assert prices.of_uri("openai/m", batched) == pytest.approx(0.25)


def test_answers_that_come_later_are_read_and_a_folder_that_is_not_there_is_named(edits, tmp_path: Path):
    folder, out, asked, given = edits(3), tmp_path / "out", tmp_path / "q", tmp_path / "a"
    vllm = {"backend": "vllm/tiny?base_url=http://127.0.0.1:9/v1"}
    assert judge(None, folder, out, **vllm, batch_file=asked).waiting == 6
    with pytest.raises(DataError, match="is no folder"):
        judge(None, folder, out, **vllm, batch_answers=tmp_path / "typo")
    run_batch(asked, given, openai_says)
    (file,) = given.glob("*.jsonl")
    whole = file.read_bytes()
    file.write_bytes(b"".join(whole.splitlines(keepends=True)[:3]))
    assert judge(None, folder, out, **vllm, batch_answers=given).waiting == 3
    file.write_bytes(whole)
    assert judge(None, folder, out, **vllm, batch_answers=given).waiting == 0


def test_a_line_fails_as_a_live_call_and_is_asked_again(serve, edits, tmp_path: Path):
    broken = {"error": {"message": "The server had an error.", "type": "server_error", "code": None, "param": None}}
    filtered = {"error": {"message": "no", "type": "x", "code": "content_filter", "param": None}}
    server = serve("openai", lambda body: (500, broken) if not server.mended and server.batches else openai_says(body))
    server.mended = False
    folder, out = edits(3), tmp_path / "out"
    judge(server, folder, out, criteria=("if",))
    server.finish()
    failed = judge(server, folder, out, criteria=("if",))
    assert [f.status for f in failed.findings].count("backend_failed") == 2 and failed.waiting == 0
    assert judge(server, folder, out, criteria=("if",)).waiting == 2
    server.says = lambda body: (400, filtered)
    server.finish()
    ended = judge(server, folder, out, criteria=("if",))
    assert [f.status for f in ended.findings].count("filtered") == 2


def test_files_are_split_below_the_limits_and_none_is_rejected(serve, edits, tmp_path: Path, monkeypatch):
    check_split(serve, edits, tmp_path, monkeypatch, samples=6, repeats=2, most=2_000_000)


@pytest.mark.slow
def test_ten_thousand_image_questions_are_split(serve, edits, tmp_path: Path, monkeypatch):
    check_split(serve, edits, tmp_path, monkeypatch, samples=50, repeats=100, most=20_000_000)


def check_split(serve, edits, tmp_path: Path, monkeypatch, *, samples: int, repeats: int, most: int) -> None:
    monkeypatch.setattr(dialect_of_openai.Lines, "limits", Limits(lines=1000, bytes=most))
    server, folder, out = serve("openai", most_lines=1000, most_bytes=most), edits(samples), tmp_path / "out"
    address = f"{uri(server)}&max_image_side=64" if repeats > 2 else uri(server)
    outcome = judge(server, folder, out, backend=address, repeats=Repeats(count=repeats))
    asked = 2 * samples * repeats - 1
    assert outcome.waiting == asked == sum(batched(server).values()) and server.refusals == []
    assert {batch["state"] for batch in server.batches.values()} == {"open"} and len(server.batches) > 3
    sizes = [len(data) for data in server.files.values()]
    # A file is full when the next line does not fit: no file but the last is below three quarters.
    assert max(sizes) <= 0.9 * most and min(sizes[:-1]) > 0.6 * most
    server.finish()
    assert judge(server, folder, out, backend=address, repeats=Repeats(count=repeats)).waiting == 0


def test_images_are_uploaded_again_when_their_address_would_not_last(serve, edits, tmp_path: Path, monkeypatch):
    server, folder, out = serve("google"), edits(2), tmp_path / "out"
    judge(server, folder, out)
    first = len(server.uris)
    server.finish("expired", share=0)
    now = time.time
    monkeypatch.setattr("editloupe.backends.batch.google.time.time", lambda: now() + 3600)
    judge(server, folder, out)
    again = len(server.uris)
    server.finish("expired", share=0)
    monkeypatch.setattr("editloupe.backends.batch.google.time.time", lambda: now() + 30 * 3600)
    judge(server, folder, out)
    # Three images, of which two samples are made, and a file of lines; another file; all of them once more.
    assert (first, again, len(server.uris)) == (4, 5, 9)


# By files

SCHEMA = {"custom_id": str, "method": str, "url": str, "body": dict}
"""vLLM's `BatchRequestInput`: these fields, all required."""


def run_batch(questions: Path, answers: Path, says: Callable[[Body], tuple[int, Body]]) -> int:
    """What `vllm run-batch` does with each file, by its published classes `BatchRequestInput` and `BatchRequestOutput`."""
    answers.mkdir(exist_ok=True)
    count = 0
    for path in questions.glob("*.jsonl"):
        made = []
        for line in path.read_text().splitlines():
            asked = json.loads(line)
            assert {name: type(value) for name, value in asked.items()} == SCHEMA
            assert (asked["method"], asked["url"]) == ("POST", "/v1/chat/completions")
            status, body = says(asked["body"])
            response = {"status_code": status, "request_id": "vllm-batch-1", "body": body if status == 200 else None}
            error = None if status == 200 else body
            made.append({"id": "vllm-1", "custom_id": asked["custom_id"], "response": response, "error": error})
        (answers / path.name).write_text("".join(json.dumps(one) + "\n" for one in made))
        count += len(made)
    return count


def test_files_of_questions_are_answered_by_a_program_without_a_network(edits, tmp_path: Path):
    folder, out, questions, answers = edits(3), tmp_path / "out", tmp_path / "questions", tmp_path / "answers"
    given = {"backend": "vllm/tiny?base_url=http://127.0.0.1:9/v1", "batch_file": questions}
    assert judge(None, folder, out, **given).waiting == 6
    assert judge(None, folder, out, **given).waiting == 6 and len(list(questions.iterdir())) == 1
    assert run_batch(questions, answers, openai_says) == 6
    done = judge(None, folder, out, **given, batch_answers=answers)
    assert done.waiting == 0 and {f.status for f in done.findings} == {"ok"}
    # Answers of another run, one without a question among others, two to one question, and a line that is none.
    other = tmp_path / "other"
    judge(None, folder, other, **{**given, "batch_file": tmp_path / "mine"}, criteria=("if",))
    strange = json.dumps({"custom_id": "0" * 64, "response": {"status_code": 200, "body": completion("x")}, "error": None})
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange" / "a.jsonl").write_text(strange)
    with pytest.raises(DataError, match="none to a question of this run"):
        judge(None, folder, other, **given, batch_answers=tmp_path / "strange", criteria=("if",))
    (answers / "strange.jsonl").write_text(strange)
    noted = judge(None, folder, other, **given, batch_answers=answers, criteria=("if",))
    assert noted.waiting == 0 and any("4 answers in" in note for note in noted.notes)
    line = json.loads(
        next(path for path in answers.glob("*.jsonl") if path.name != "strange.jsonl").read_text().splitlines()[0]
    )
    line["response"]["body"] = completion("another")
    for text, words in ((json.dumps(line), "different answers"), ("{}", "is no answer of a batch")):
        (answers / "zz.jsonl").write_text(text)
        with pytest.raises(DataError, match=words):
            judge(None, folder, out, **given, batch_answers=answers)


# Bad input


def test_what_cannot_be_asked_by_batch_says_what_to_do(serve, edits, tmp_path: Path):
    folder, key = edits(2), "http://127.0.0.1:9/v1"
    cases = (
        ({"backend": "baseline"}, "Leave --batch out"),
        ({"backend": f"vllm/tiny?base_url={key}"}, "--set batch_file=DIR"),
        ({"executor": "ray"}, "leave --executor ray out"),
        ({"max_cost": 1.0}, "--dry-run"),
        ({"batch": False, "batch_file": tmp_path}, "needs --batch"),
    )
    server = serve("openai")
    for given, words in cases:
        with pytest.raises(ConfigError, match=words):
            judge(server, folder, tmp_path / "out", **given)
    # A server without batches, or a model that they do not take: one question was asked, and nothing is lost.
    server.takes_batches = False
    refused = judge(server, folder, tmp_path / "out")
    assert "Leave --batch out" in refused.ledger.refused and len(server.live) == 1
    assert judge(server, folder, tmp_path / "out", batch=False).failed == 0 and len(server.live) == 4


def test_the_command_ends_with_5_until_all_is_answered(serve, edits, tmp_path: Path, editloupe):
    server, folder, out = serve("openai"), edits(2), tmp_path / "out"
    words = ("judge", str(folder), "--mode", "plain", "--backend", uri(server), "--batch", "--out", str(out))
    code, said, _ = editloupe(*words, "--dry-run")
    assert code == 0 and "Cost by batch in USD" in said and "1 file" in said
    code, said, _ = editloupe(*words)
    assert code == 5 and "3 questions wait" in said
    server.finish()
    assert editloupe("judge", str(out), "--retry", "waiting", "--backend", uri(server))[0] == 0


# Kills


def main() -> None:
    """Make an invocation for each line of input, in a process of its own."""
    # What takes long to load is loaded once.
    shared_graph()
    for line in sys.stdin:
        folder, out, address, left = json.loads(line)
        open_with(backend=address, batch=True, mode="plain")
        child = os.fork()
        if child == 0:
            for kind, name in ((InBatches, "called"), (RunBatches, "_write"), (RunBatches, "_settle")):
                setattr(kind, name, killing(getattr(kind, name), left) if left else getattr(kind, name))
            setup = open_with(backend=address, batch=True, mode="plain", patience=0)
            os._exit(5 if run_over(setup, Path(folder), Path(out)).waiting else 0)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)


COUNTED = [0]


def killing(call: Any, last: int) -> Any:
    """The same function, with two points at which its process may die: before it begins and after its end."""

    def point() -> None:
        COUNTED[0] += 1
        if COUNTED[0] == last:
            os.kill(os.getpid(), signal.SIGKILL)

    def called(*given: Any, **named: Any) -> Any:
        point()
        value = call(*given, **named)
        point()
        return value

    return called


@pytest.fixture(scope="module")
def invoke() -> Iterator[Callable[..., int]]:
    """A function that makes an invocation, with a line for the program, and returns its exit code."""
    command = [sys.executable, "-m", "tests.runs.test_batches"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:

        def made(*line: str | int) -> int:
            assert process.stdin and process.stdout
            print(json.dumps(line), file=process.stdin, flush=True)
            return int(process.stdout.readline())

        yield made


def check_kills(serve, edits, tmp_path: Path, invoke: Callable[..., int], *, dialect: str, kills: int) -> None:
    server, folder, out, live = serve(dialect), edits(4), tmp_path / "out", tmp_path / "live"
    judge(server, folder, live, batch=False)
    dice, codes, line = random.Random(5), [], (str(folder), str(out), uri(server))
    while codes.count(-signal.SIGKILL) < kills and len(codes) < 4 * kills:
        codes.append(invoke(*line, dice.randint(1, 12)))
        if dice.random() < 0.3:
            # The more is expired, the longer there is something to kill.
            server.finish("expired", share=dice.choice((0.0, 0.2)))
    while (code := invoke(*line, 0)) == 5:
        server.finish()
    assert code == 0 and codes.count(-signal.SIGKILL) >= kills // 2
    assert findings(out) == findings(live)
    answered = [
        line for batch in server.batches.values() for name in batch.get("results", ()) for line in server.lines(name)
    ]
    ids = [server.id_of(line) for line in answered]
    assert len(ids) == len(set(ids)), "a question was answered, and paid for, twice"
    assert server.refusals == []


@pytest.mark.parametrize("dialect", ["openai", "google"])
def test_a_few_kills_send_nothing_twice(dialect: str, serve, edits, tmp_path: Path, invoke):
    check_kills(serve, edits, tmp_path, invoke, dialect=dialect, kills=3)


@pytest.mark.slow
@pytest.mark.parametrize("dialect", ["openai", "google"])
def test_a_hundred_kills_send_nothing_twice(dialect: str, serve, edits, tmp_path: Path, invoke):
    check_kills(serve, edits, tmp_path, invoke, dialect=dialect, kills=100)


if __name__ == "__main__":
    main()
