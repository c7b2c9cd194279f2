"""`editloupe serve` as its clients meet it: verdicts, limits, refusals, a full queue, a shutdown."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from editloupe.chat import Request
from editloupe.errors import Unavailable
from editloupe.runs.store import RunStore
from tests.conftest import final
from tests.conftest import png as encoded
from tests.service.loopback_judge import Service, by_number, edit, inline, needs_extra, number_of, png, serving, slow

ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[str]
TOKEN = {"Authorization": "Bearer let me in"}


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def test_a_verdict_has_labels_a_reward_and_a_trace_that_stays(tmp_path: Path):
    with serving(tmp_path / "run") as service:
        status, _, said = service.ask("/v1/judge", edit(6))
        assert status == 200
        # Number 6 gets the labels of value 6 % 4 + 1 = 3: (3 − 1) / 3 × 100.
        two_thirds = pytest.approx(200 / 3)
        scores = {"instruction_following": two_thirds, "visual_consistency": two_thirds}
        assert said["reward"] == {"value": two_thirds, "why": None, "scores": scores}
        assert [(f["metric"], f["status"], f["label"], f["value"], f["reused"]) for f in said["findings"]] == [
            ("instruction_following", "ok", "Over Modification", 3.0, False),
            ("visual_consistency", "ok", "Single Anomaly", 3.0, False),
        ]
        assert all(f["reason"] == "this is mug 6" for f in said["findings"])
        assert said["id"] == "edit-6"
        for finding in said["findings"]:
            assert (tmp_path / "run" / finding["trace"]).is_file()
    # What was served is a run like any other.
    store = RunStore.read(tmp_path / "run")
    assert not store.problems
    assert [f.label for f in store.current()] == ["Over Modification", "Single Anomaly"]
    assert store.samples[said["sample"]].instruction == "Paint mug 6 blue."


def test_the_same_edit_is_judged_once_and_another_repeat_again_also_after_a_restart(tmp_path: Path):
    with serving(tmp_path / "run") as service:
        first = service.ask("/v1/judge", edit(1))[2]
        again = service.ask("/v1/judge", edit(1, id="of another client"))[2]
        assert len(service.lmm.requests) == 2  # two criteria
        assert again["id"] == "of another client"
        assert [f["reused"] for f in again["findings"]] == [True, True]
        assert [f["label"] for f in again["findings"]] == [f["label"] for f in first["findings"]]
        other = service.ask("/v1/judge", edit(1, repeat=1))[2]
        assert len(service.lmm.requests) == 4 and [f["reused"] for f in other["findings"]] == [False, False]
    with serving(tmp_path / "run") as service:
        assert service.ask("/v1/judge", edit(1))[2]["reward"] == first["reward"]
        assert not service.lmm.requests
    file = tmp_path / "run" / "findings.jsonl"
    lines = file.read_text().splitlines()
    # Killed between a trace's end and the line of its finding: the next start writes it.
    file.write_text("".join(f"{line}\n" for line in lines[:-1]))
    with serving(tmp_path / "run"):
        pass
    assert file.read_text().splitlines() == lines
    assert sorted(json.loads(line)["repeat"] for line in lines) == [0, 0, 1, 1]


def test_equal_requests_at_once_share_one_verdict(tmp_path: Path):
    with serving(tmp_path / "run", slow(0.3)) as service, ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: service.ask("/v1/judge", edit(3)), range(8)))
        assert [status for status, _, _ in answers] == [200] * 8
        assert len(service.lmm.requests) == 2
    assert {f["label"] for _, _, said in answers for f in said["findings"]} == {"Flawless Execution", "Perfect Consistency"}


def test_a_failure_has_no_number_and_says_why(tmp_path: Path):
    def refuses(request: Request) -> Any:
        text = request.messages[0].text
        return final("Excellent", "I like it") if "Visual Consistency" in text else Unavailable("the endpoint is down")

    with serving(tmp_path / "run", refuses) as service:
        status, _, said = service.ask("/v1/judge", edit(1))
        assert status == 200
        assert said["reward"] == {
            "value": None,
            "why": "instruction_following: backend_failed; visual_consistency: unparsed",
            "scores": {"instruction_following": None, "visual_consistency": None},
        }
        assert all(f["value"] is None and f["label"] is None for f in said["findings"])
        # One criterion that is there has its score; the reward is still none.
        one = service.ask("/v1/judge", edit(1, criteria=["VC"]))[2]
        assert [f["metric"] for f in one["findings"]] == ["visual_consistency"]
    with serving(tmp_path / "run") as service:
        # What the endpoint failed at is asked again; what the model said stands.
        assert service.ask("/v1/judge", edit(1))[2]["reward"]["scores"] == {
            "instruction_following": pytest.approx(100 / 3),
            "visual_consistency": None,
        }


def test_a_form_with_files_and_a_path_below_the_root_are_judged_as_well(tmp_path: Path):
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.png").write_bytes(png(90))
    (tmp_path / "secret.png").write_bytes(png(90))
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    fields = {"instruction": b"Paint mug 6 blue.", "boxes": b"4,4,20,20", "criteria": b"IF"}
    files = {f'{name}"; filename="x.png': data for name, data in (("source", png(90)), ("edited", png(120)))}
    form = b"".join(
        b'--X\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value)
        for name, value in (fields | files).items()
    )
    with serving(tmp_path / "run", root=root) as service:
        kind = {"Content-Type": "multipart/form-data; boundary=X"}
        status, _, said = service.ask("/v1/judge/upload", form + b"--X--\r\n", headers=kind)
        assert status == 200, said
        assert [f["label"] for f in said["findings"]] == ["Over Modification"]
        wrong = form.replace(b"4,4,20,20", b"4,4,2000,20")
        status, _, said = service.ask("/v1/judge/upload", wrong + b"--X--\r\n", headers=kind)
        assert status == 422 and "boxes, number 1" in said["detail"]
        status, _, said = service.ask("/v1/judge", edit(6, source={"path": "a.png"}))
        assert status == 200, said
        for path in ("../secret.png", "link.png", str(tmp_path / "secret.png"), "/etc/passwd"):
            status, _, said = service.ask("/v1/judge", edit(6, source={"path": path}))
            assert status == 422 and "is outside" in said["detail"]
    with serving(tmp_path / "other") as service:
        status, _, said = service.ask("/v1/judge", edit(6, source={"path": "a.png"}))
        assert status == 422 and "without --root" in said["detail"]


@pytest.fixture(scope="module")
def unasked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of several tests, none of which may get as far as its backbone."""
    with serving(tmp_path_factory.mktemp("unasked") / "run") as service:
        yield service


def test_what_cannot_be_used_is_a_problem_that_names_it(unasked: Service):
    for wrong, told in (
        ({"instruction": "  "}, "instruction: String should match pattern"),
        ({"instruction": None}, "instruction: Input should be a valid string"),
        ({"source": inline(b"no image")}, "source: not an image"),
        ({"source": {"base64": "%%%"}}, "source: not base64"),
        ({"source": {"url": "http://x"}}, "source.base64: Field required\n"),
        ({"source": 3}, "source: Input should be an object"),
        ({"source": inline(png(width=1200, height=1000))}, "more than the limit of 1,000,000 px"),
        ({"source": inline(png(width=4, height=4))}, "too small to compare"),
        ({"boxes": [[0, 0, 500, 10]]}, "boxes, number 1"),
        ({"boxes": [[10, 10, 5, 20]]}, "boxes, number 1"),
        ({"boxes": [[0, 0, 5]]}, "boxes.0"),
        ({"criteria": ["beauty"]}, "criteria: no metric 'beauty'"),
        ({"repeat": "1"}, "repeat: Input should be a valid integer"),
        ({"more": 1}, "more: Extra inputs are not permitted"),
    ):
        status, headers, said = unasked.ask("/v1/judge", edit(1, **wrong))
        assert status == 422 and told in said["detail"], (told, said)
        assert headers["content-type"] == "application/problem+json"
        assert said["status"] == 422 and set(said) == {"type", "title", "status", "detail"}
    assert not unasked.lmm.requests


def test_strange_bytes_do_not_break_it(tmp_path: Path):
    with serving(tmp_path / "run", max_body=20_000) as service:
        for body, status in (
            (b"{", 422),
            (b"\xff\xfe", 422),
            (b'{"instruction": "\\ud800 mug 1", "source": {"base64": "x"}, "edited": {"base64": "x"}}', 422),
            (b'{"\\ud800": 1}', 422),
            (b"[" * 10_000, 422),
            (b'{"boxes": [[NaN, 0, 1, 1]]}', 422),
            (b" " * 20_001, 413),
        ):
            assert service.ask("/v1/judge", body)[0] == status, body[:40]
        assert service.ask("/v1/judge", b"{}", headers={"Content-Type": "text/plain"})[0] == 415
        # Without a length, the body is cut off where it passes the limit.
        chunked = b"%x\r\n" % 30_000 + b" " * 30_000 + b"\r\n0\r\n\r\n"
        assert service.ask("/v1/judge", chunked, headers={"Transfer-Encoding": "chunked"})[0] == 413
        assert service.queue.taken == 0
        assert service.ask("/v1/judge", edit(1, edited=inline(png(120))))[0] == 200


def test_a_batch_gives_each_edit_a_verdict_or_a_problem(tmp_path: Path):
    with serving(tmp_path / "run", max_queue=6, concurrency=4) as service:
        edits = [edit(0), edit(1, source=inline(b"broken")), edit(3)]
        status, _, said = service.ask("/v1/judge/batch", {"edits": edits})
        assert status == 200
        assert [r["problem"] is None for r in said["results"]] == [True, False, True]
        assert said["results"][1]["problem"]["detail"].startswith("source: not an image")
        assert [said["results"][i]["verdict"]["reward"]["value"] for i in (0, 2)] == [0.0, 100.0]
        status, _, said = service.ask("/v1/judge/batch", {"edits": [edit(i) for i in range(11)]})
        assert status == 422 and "at most 10" in said["detail"]
        assert service.queue.taken == 0


def test_a_full_queue_says_when_to_come_back_and_nothing_piles_up(tmp_path: Path):
    with serving(tmp_path / "run", slow(0.3), concurrency=2, max_queue=2, criteria=("if",)) as service:
        with ThreadPoolExecutor(12) as clients:
            answers = list(clients.map(lambda n: service.ask("/v1/judge", edit(n)), range(12)))
        busy = [headers for status, headers, _ in answers if status == 503]
        good = [said for status, _, said in answers if status == 200]
        assert len(good) + len(busy) == 12 and len(good) >= 4 and len(busy) >= 4
        assert all(1 <= int(headers["retry-after"]) <= 60 for headers in busy)
        assert all(headers["content-type"] == "application/problem+json" for headers in busy)
        for said in good:
            assert said["findings"][0]["reason"] == f"this is mug {said['id'].removeprefix('edit-')}"
        assert service.queue.taken == 0
        assert service.ask("/v1/judge", edit(50))[0] == 200


def test_requests_that_wait_do_not_keep_their_bodies_in_memory(tmp_path: Path):
    gate = threading.Event()

    def held(request: Request) -> Any:
        gate.wait(30)
        return by_number(request)

    noise = np.random.default_rng(0).integers(0, 256, (600, 800, 3), dtype=np.uint8)
    shared = json.dumps(inline(encoded(noise))).encode()
    assert len(shared) > 1_900_000

    def ask(number: int) -> int:
        small = json.dumps(inline(png(90)))
        head = f'{{"instruction": "Paint mug {number} blue.", "source": {small}, "edited": '.encode()
        with closing(http.client.HTTPConnection("127.0.0.1", service.port, timeout=60)) as connection:
            # In pieces, so that the clients, in this process too, share the one large one.
            connection.request("POST", "/v1/judge", iter([head, shared, b"}"]), {"Content-Type": "application/json"})
            return connection.getresponse().status

    bounds = {"concurrency": 1, "max_body": 4_000_000, "criteria": ("if",)}
    with serving(tmp_path / "run", held, **bounds) as service, ThreadPoolExecutor(16) as clients:
        tracemalloc.start()
        try:
            asked = [clients.submit(ask, number) for number in range(16)]
            until(lambda: len(service.queue.in_flight) == 16)
            kept, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            gate.set()
        assert [future.result() for future in asked] == [200] * 16
    # 16 bodies are 31 MB; what one worker has decoded for one edit is 1.5.
    assert kept < 10_000_000, kept


def test_a_request_whose_time_is_up_goes_on_when_it_is_asked_again(tmp_path: Path):
    with serving(tmp_path / "run", slow(0.7), timeout_s=0.4, criteria=("if",)) as service:
        status, _, said = service.ask("/v1/judge", edit(2))
        assert status == 504 and "within 0.4 s" in said["detail"]
        time.sleep(0.6)
        # The call that was under way was recorded, and is not made again.
        status, _, said = service.ask("/v1/judge", edit(2))
        assert status == 200 and said["findings"][0]["label"] == "Over Modification"
        assert len(service.lmm.requests) == 1


def test_only_who_may_ask_is_answered_and_others_learn_of_no_address(tmp_path: Path):
    with serving(tmp_path / "run", token="let me in") as service:
        status, headers, said = service.ask("/v1/judge", edit(1))
        assert (status, headers["www-authenticate"], said["status"]) == (401, "Bearer", 401)
        for header in ("Bearer wrong", "Basic let me in", "Bearer", "Bearer \xff"):
            assert service.ask("/v1/judge", edit(1), headers={"Authorization": header})[0] == 401
        for path, body, more, status in (
            ("/v1/judge", edit(1), TOKEN, 200),
            ("/metrics", None, {}, 401),
            ("/healthz", None, {}, 200),
            ("/healthz", None, {"Host": "evil.example"}, 421),
            ("/v1/judge", edit(1), {**TOKEN, "Origin": "https://evil.example"}, 403),
            ("/v1/judge", edit(1), {**TOKEN, "Origin": "http://localhost:3000"}, 200),
        ):
            assert service.ask(path, body, headers=more)[0] == status, (path, more)
        assert service.ask("/openapi.json", headers=TOKEN)[2]["components"]["securitySchemes"]
        for headers in ({}, {"Authorization": "Bearer wrong"}):
            status, _, ready = service.ask("/readyz", headers=headers)
            assert (status, ready["status"], ready["places"]) == (200, "ready", 36)
            assert (ready["backend"], ready["options"], ready["mode"], ready["rubric"]) == (None, {}, None, None)
            assert "scripted" not in str(ready)
        ready = service.ask("/readyz", headers=TOKEN)[2]
        assert (ready["backend"], ready["options"]["mode"]) == ("scripted/test", "plain")
        # The token itself is the asker's to know.
        said = service.ask("/")[2]
        assert '/v1/judge/upload -H "Authorization: Bearer TOKEN" -F source=' in said and "let me in" not in said


def test_the_address_itself_says_what_can_be_asked(unasked: Service):
    status, headers, said = unasked.ask("/")
    assert (status, headers["content-type"]) == (200, "text/plain; charset=utf-8")
    for operation in ("POST /v1/judge/upload ", "GET  /metrics ", "GET  /openapi.json"):
        assert operation in said
    assert f"curl -s http://127.0.0.1:{unasked.port}/v1/judge/upload -F source=" in said
    assert unasked.ask("/", headers={"Host": "elsewhere.example"})[0] == 421
    assert unasked.ask("/", {})[0] == 405


def test_metrics_and_health_tell_how_it_goes(tmp_path: Path):
    with serving(tmp_path / "run", max_queue=5) as service:
        service.ask("/v1/judge", edit(1))
        service.ask("/v1/judge", edit(1))
        service.ask("/v1/judge", {})
        assert "GET /openapi.json says what there is" in service.ask("/nothing/here")[2]["detail"]
        ready = service.ask("/readyz")[2]
        assert ready["backend"] == "scripted/test" and (ready["places"], ready["taken"]) == (9, 0)
        _, headers, text = service.ask("/metrics")
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = text.splitlines()
        assert 'editloupe_requests_total{endpoint="/v1/judge",status="200"} 2.0' in lines
        assert 'editloupe_requests_total{endpoint="/v1/judge",status="422"} 1.0' in lines
        assert 'editloupe_requests_total{endpoint="other",status="404"} 1.0' in lines
        # The second one was known.
        assert 'editloupe_findings_total{metric="instruction_following",status="ok"} 1.0' in lines
        assert "editloupe_places_taken 0.0" in lines
        assert any(line.startswith("process_resident_memory_bytes") for line in lines)


@contextmanager
def command(*words: str, code: str = "from editloupe.cli import main; main()") -> Iterator[tuple[Process, Service]]:
    """`editloupe serve` in a process of its own, killed in the end."""
    needs_extra()
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--port", "0", "--mode", "plain", "--criteria", "if", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert "answers at http://127.0.0.1:" in line, line + process.stderr.read()
        port = int(line.partition("http://127.0.0.1:")[2].split(",")[0])
        yield process, Service(port, None, None, None)  # type: ignore[arg-type]
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_the_command_serves_and_stops_when_told(tmp_path: Path, number: signal.Signals):
    replies, out = tmp_path / "replies.jsonl", tmp_path / "run"
    replies.write_text(json.dumps(final("Flawless Execution")) + "\n")
    words = ("--out", str(out), "--backend", f"scripted/{replies}", "--body-timeout", "0.3")
    with command(*words) as (process, service):
        assert service.ask("/v1/judge", edit(1))[2]["reward"]["value"] == 100.0
        trickle(service.port).close()
        process.send_signal(number)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 0, told
    assert "Stopping: 0 edits under way" in told and "Traceback" not in told
    assert len((out / "findings.jsonl").read_text().splitlines()) == 1


def trickle(port: int) -> socket.socket:
    """Send a body byte by byte until the service answers 408, and return the connection, which is still open."""
    client = socket.create_connection(("127.0.0.1", port), timeout=10)
    head = "POST /v1/judge HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 90000\r\n"
    client.sendall(f"{head}\r\n".encode())
    client.settimeout(0.05)
    until, said = time.monotonic() + 10, b""
    while not said and time.monotonic() < until:
        with contextlib.suppress(TimeoutError):
            client.sendall(b" ")
            said = client.recv(10_000)
    assert said.startswith(b"HTTP/1.1 408 "), said
    return client


def test_a_body_that_trickles_in_gives_its_place_back_long_before_the_requests_time_is_up(tmp_path: Path):
    bounds = {"body_s": 0.3, "timeout_s": 60, "concurrency": 1, "max_queue": 0, "criteria": ("if",)}
    with serving(tmp_path / "run", **bounds) as service, trickle(service.port):
        assert service.ask("/v1/judge", edit(1))[0] == 200


@pytest.mark.parametrize(("length", "status"), [(None, 200), ("90000", 408)])
def test_a_place_is_free_before_the_client_sees_the_status(tmp_path: Path, length: str | None, status: int):
    seen: list[tuple[str, int]] = []
    with serving(tmp_path / "run", body_s=0.3, criteria=("if",)) as service:
        app = service.server.config.loaded_app

        async def watched(scope: Any, receive: Any, send: Any) -> None:
            async def noting_places(message: Any) -> None:
                seen.append((message["type"], service.queue.taken))
                await send(message)

            await app(scope, receive, noting_places)

        service.server.config.loaded_app = watched
        assert service.ask("/v1/judge", edit(1), headers={"Content-Length": length} if length else {})[0] == status
    assert seen == [("http.response.start", 0), ("http.response.body", 0)]


def test_work_in_flight_is_finished_at_shutdown_or_given_back_as_an_error(tmp_path: Path):
    gate = threading.Event()

    def held(request: Request) -> Any:
        if number_of(request) >= 10:
            gate.wait(20)
        return slow(0.5)(request)

    with ThreadPoolExecutor(8) as clients, serving(tmp_path / "run", held, concurrency=4, criteria=("if",)) as service:
        quick = [clients.submit(service.ask, "/v1/judge", edit(n)) for n in range(2)]
        stuck = [clients.submit(service.ask, "/v1/judge", edit(n)) for n in (10, 11)]
        until(lambda: service.queue.running == 4)
        service.queue.closing = True
        status, headers, said = service.ask("/v1/judge", edit(5))
        assert status == 503 and "shutting down" in said["detail"] and headers["retry-after"] == "5"
        assert service.ask("/readyz")[0] == 503
        assert service.ask("/healthz")[0] == 200
        # Those that end in time are answered.
        assert [f.result()[0] for f in quick] == [200, 200]
        loop = service.server.servers[0].get_loop()
        loop.call_soon_threadsafe(service.queue.give_up)
        # The others are told so, although their threads still hang in the call.
        for future in stuck:
            status, _, said = future.result()
            assert status == 503 and "what is recorded is kept" in said["detail"]
        threading.Timer(0.5, gate.set).start()
    # And what they were asked goes on from what was recorded.
    with serving(tmp_path / "run", criteria=("if",)) as service:
        assert service.ask("/v1/judge", edit(10))[2]["findings"][0]["label"] == "Over Modification"


def test_without_the_extra_the_command_names_it(editloupe, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    for name in list(sys.modules):
        if name.startswith("editloupe.service.") and "http" in name:
            monkeypatch.delitem(sys.modules, name)
    code, _, told = editloupe("serve", "--out", "run")
    assert code == 2 and "pip install 'editloupe[serve]'" in told


def test_a_wrong_option_is_named_before_anything_is_served(editloupe):
    needs_extra()
    for option, value, told in (
        ("--root", "nowhere", "--root nowhere: is no folder"),
        ("--token-file", "nowhere", "--token-file nowhere cannot be read"),
        ("--backend", "no-such/model", "unknown backend"),
        ("--mode", "guess", "Input should be 'tool', 'oracle' or 'plain'; found 'guess'"),
        ("--host", "203.0.113.1", "cannot listen there"),
    ):
        code, _, said = editloupe("serve", "--out", "run", option, value)
        assert code == 2 and told in said
        assert not Path("run").exists()
