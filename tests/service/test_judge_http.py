"""`editloupe serve` as its clients meet it: verdicts, limits, refusals, a full queue, a shutdown."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from editloupe.chat import Request
from editloupe.errors import Unavailable
from editloupe.runs.store import RunStore
from tests.conftest import final, scripted, until
from tests.service.loopback_judge import Client, edit, inline, needs_extra, png, serving, slow

ROOT = Path(__file__).parents[2]
Process = subprocess.Popen[str]
TOKEN = {"Authorization": "Bearer let me in"}


def test_a_verdict_has_labels_a_reward_and_a_trace_that_stays(tmp_path: Path) -> None:
    with serving(tmp_path / "run") as client:
        status, _, said = client.ask("/v1/judge", edit(6))
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


def test_the_same_edit_is_judged_once_and_another_repeat_again_also_after_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path / "run") as client:
        first = client.ask("/v1/judge", edit(1))[2]
        again = client.ask("/v1/judge", edit(1, id="of another client"))[2]
        assert len(client.lmm.requests) == 2  # two criteria
        assert again["id"] == "of another client"
        assert [f["reused"] for f in again["findings"]] == [True, True]
        assert [f["label"] for f in again["findings"]] == [f["label"] for f in first["findings"]]
        other = client.ask("/v1/judge", edit(1, repeat=1))[2]
        assert len(client.lmm.requests) == 4 and [f["reused"] for f in other["findings"]] == [False, False]
    with serving(tmp_path / "run") as client:
        assert client.ask("/v1/judge", edit(1))[2]["reward"] == first["reward"]
        assert not client.lmm.requests
    file = tmp_path / "run" / "findings.jsonl"
    lines = file.read_text().splitlines()
    # Killed between a trace's end and the line of its finding: the next start writes it.
    file.write_text("".join(f"{line}\n" for line in lines[:-1]))
    with serving(tmp_path / "run"):
        pass
    assert file.read_text().splitlines() == lines
    assert sorted(json.loads(line)["repeat"] for line in lines) == [0, 0, 1, 1]


def test_equal_requests_at_once_share_one_verdict(tmp_path: Path) -> None:
    with serving(tmp_path / "run", slow(0.3)) as client, ThreadPoolExecutor(8) as clients:
        answers = list(clients.map(lambda _: client.ask("/v1/judge", edit(3)), range(8)))
        assert [status for status, _, _ in answers] == [200] * 8
        assert len(client.lmm.requests) == 2
    assert {f["label"] for _, _, said in answers for f in said["findings"]} == {"Flawless Execution", "Perfect Consistency"}


def test_a_failure_has_no_number_and_says_why(tmp_path: Path) -> None:
    def refuses(request: Request) -> Any:
        text = request.messages[0].text
        return final("Excellent", "I like it") if "Visual Consistency" in text else Unavailable("the endpoint is down")

    with serving(tmp_path / "run", refuses) as client:
        status, _, said = client.ask("/v1/judge", edit(1))
        assert status == 200
        assert said["reward"] == {
            "value": None,
            "why": "instruction_following: backend_failed; visual_consistency: unparsed",
            "scores": {"instruction_following": None, "visual_consistency": None},
        }
        assert all(f["value"] is None and f["label"] is None for f in said["findings"])
        # One criterion that is there has its score; the reward is still none.
        one = client.ask("/v1/judge", edit(1, criteria=["VC"]))[2]
        assert [f["metric"] for f in one["findings"]] == ["visual_consistency"]
    with serving(tmp_path / "run") as client:
        # What the endpoint failed at is asked again; what the model said stands.
        assert client.ask("/v1/judge", edit(1))[2]["reward"]["scores"] == {
            "instruction_following": pytest.approx(100 / 3),
            "visual_consistency": None,
        }


class _Pictures(BaseHTTPRequestHandler):
    """A picture at /a.png, a redirect to it at /moved, and more bytes than are taken at /long."""

    def do_GET(self) -> None:
        self.send_response(302 if self.path == "/moved" else 200)
        if self.path == "/moved":
            self.send_header("Location", "/a.png")
        self.end_headers()
        self.wfile.write(png(90) if self.path == "/a.png" else b"x" * 3_000_000)

    def log_message(self, *_: object) -> None: ...


@contextmanager
def pictures() -> Iterator[str]:
    """HOST:PORT of a server of pictures."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Pictures)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_path_below_the_root_and_a_url_of_a_named_host_are_judged_and_no_others(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.png").write_bytes(png(90))
    (tmp_path / "secret.png").write_bytes(png(90))
    (root / "link.png").symlink_to(tmp_path / "secret.png")
    with pictures() as host, serving(tmp_path / "run", root=root, image_hosts=(host,)) as client:
        for source in ({"path": "a.png"}, {"url": f"http://{host}/a.png"}):
            status, _, said = client.ask("/v1/judge", edit(6, source=source))
            assert status == 200, said
        other = "127.0.0.1:9"
        for source, told in (
            *(
                ({"path": p}, "is outside")
                for p in ("../secret.png", "link.png", str(tmp_path / "secret.png"), "/etc/passwd")
            ),
            ({"path": "nope.png"}, "cannot be read (No such file or directory)"),
            ({"path": "."}, "cannot be read (Is a directory)"),
            ({"url": f"http://{other}/a.png"}, f"nothing is fetched from '{other}'"),
            ({"url": "file:///etc/passwd"}, "nothing is fetched from 'this address'"),
            ({"url": f"http://{host}@{other}/a.png"}, "nothing is fetched from"),
            ({"url": f"http://{host}/moved"}, "answers 302; expected 200"),
            ({"url": f"http://{host}/long"}, "more than 2,000,000 bytes"),
        ):
            status, _, said = client.ask("/v1/judge", edit(6, source=source))
            assert status == 422 and told in said["error"], (source, said)
            assert "/root" not in said["error"] and str(tmp_path) not in said["error"]
    with serving(tmp_path / "other") as client:
        status, _, said = client.ask("/v1/judge", edit(6, source={"path": "a.png"}))
        assert status == 422 and "without --root" in said["error"]


def test_what_cannot_be_used_is_named_and_asked_of_nobody(tmp_path: Path) -> None:
    with serving(tmp_path / "run") as client:
        for wrong, told in (
            ({"instruction": "  "}, "instruction: String should match pattern"),
            ({"instruction": None}, "instruction: Input should be a valid string"),
            ({"source": inline(b"no image")}, "source: not an image"),
            ({"source": {"base64": "%%%"}}, "source: not base64"),
            ({"source": {}}, 'source: expected one of "base64", "path" and "url"'),
            ({"source": 3}, "source: Input should be"),
            ({"source": inline(png(width=1200, height=1000))}, "more than the limit of 1,000,000 px"),
            ({"source": inline(png(width=4, height=4))}, "too small to compare"),
            ({"boxes": [[0, 0, 500, 10]]}, "boxes, number 1"),
            ({"boxes": [[10, 10, 5, 20]]}, "boxes, number 1"),
            ({"boxes": [[0, 0, 5]]}, "boxes.0"),
            ({"boxes": [[0, 0, 5, float("nan")]]}, "boxes.0.3"),
            ({"criteria": ["beauty"]}, "criteria: no metric 'beauty'"),
            ({"repeat": "1"}, "repeat: Input should be a valid integer"),
            ({"more": 1}, "more: Extra inputs are not permitted"),
        ):
            status, _, said = client.ask("/v1/judge", edit(1, **wrong))
            assert status == 422 and told in said["error"], (told, said)
        for body in (b"{", b"\xff\xfe", b'{"\\ud800": 1}', b"[" * 100_000, b"[]", b"3"):
            assert client.ask("/v1/judge", body)[0] == 422, body[:40]
        assert client.ask("/v1/judge", b"{}", headers={"Content-Type": "text/plain"})[0] == 415
        # Without a length, the body is cut off where it passes the limit.
        chunked = b"%x\r\n" % 3_000_000 + b" " * 3_000_000 + b"\r\n0\r\n\r\n"
        assert client.ask("/v1/judge", chunked, headers={"Transfer-Encoding": "chunked"})[0] == 413
        assert client.ask("/v1/judge", b" " * 2_000_001)[0] == 413
        assert not client.lmm.requests
        assert client.ask("/v1/judge", edit(1))[0] == 200


def test_each_edit_of_a_list_has_a_verdict_or_an_error_of_its_own(tmp_path: Path) -> None:
    with serving(tmp_path / "run") as client:
        status, _, said = client.ask("/v1/judge", [edit(0), edit(1, source=inline(b"broken")), edit(3)])
    assert status == 200 and said[1] == {"error": said[1]["error"]} and said[1]["error"].startswith("source: not an image")
    # Number 0 gets the lowest labels, number 3 the highest.
    assert [(said[i]["id"], said[i]["reward"]["value"]) for i in (0, 2)] == [("edit-0", 0.0), ("edit-3", 100.0)]


def test_the_client_of_the_docs_is_the_reward_of_a_trainer(tmp_path: Path) -> None:
    """The block of docs/rewards.md, as it stands there."""
    (block,) = re.findall(
        r"```python not-run: needs the service\n(.*?)```", (ROOT / "docs/rewards.md").read_text(), re.DOTALL
    )
    client: dict[str, Any] = {}
    exec(compile(block, "rewards.md", "exec"), client)
    for name, data in (("before", png(90)), ("after", png(120)), ("broken", b"no image")):
        (tmp_path / f"{name}.png").write_bytes(data)
    sources, edited = [tmp_path / "before.png"] * 3, [tmp_path / f"{name}.png" for name in ("after", "broken", "after")]
    with serving(tmp_path / "run") as service:
        told = client["rewards"](
            sources, edited, [f"Paint mug {n} blue." for n in (3, 3, 1)], f"http://127.0.0.1:{service.port}"
        )
    # The highest labels, none, and the second lowest of four.
    assert told == [1.0, None, pytest.approx(1 / 3)]


def test_more_requests_than_may_wait_are_refused_and_nothing_piles_up(tmp_path: Path) -> None:
    with serving(tmp_path / "run", slow(0.5), concurrency=2, max_queue=2, criteria=("if",)) as client:
        with ThreadPoolExecutor(12) as clients:
            answers = list(clients.map(lambda n: client.ask("/v1/judge", edit(n)), range(12)))
        good = [said for status, _, said in answers if status == 200]
        busy = [said for status, headers, said in answers if status == 503 and headers["retry-after"] == "5"]
        assert len(good) + len(busy) == 12 and len(good) >= 4 and len(busy) >= 4
        assert all("of 4 places for edits are taken" in said["error"] for said in busy)
        for said in good:
            assert said["findings"][0]["reason"] == f"this is mug {said['id'].removeprefix('edit-')}"
        assert client.ask("/v1/judge", edit(50))[0] == 200
        status, _, said = client.ask("/v1/judge", [edit(number) for number in range(5)])
        assert status == 413 and said["error"].startswith("5 edits in one list; expected at most 4"), "never to be taken"


def test_a_request_whose_time_is_up_goes_on_when_it_is_asked_again(tmp_path: Path) -> None:
    with serving(tmp_path / "run", slow(0.7), timeout_s=0.4, criteria=("if",)) as client:
        status, _, said = client.ask("/v1/judge", edit(2))
        assert status == 504 and "within 0.4 s" in said["error"]
        until(lambda: client.service.running == 0)
        # The call that was under way was recorded, and is not made again.
        status, _, said = client.ask("/v1/judge", edit(2))
        assert status == 200 and said["findings"][0]["label"] == "Over Modification"
        assert len(client.lmm.requests) == 1


def test_only_who_may_ask_is_answered(tmp_path: Path) -> None:
    with serving(tmp_path / "run", token="let me in") as client:
        status, _, said = client.ask("/v1/judge", edit(1))
        assert (status, said["error"]) == (401, "expected the header Authorization: Bearer TOKEN")
        for header in ("Bearer wrong", "Basic let me in", "Bearer", "Bearer \xff"):
            assert client.ask("/v1/judge", edit(1), headers={"Authorization": header})[0] == 401
        for path, body, more, status in (
            ("/v1/judge", edit(1), TOKEN, 200),
            ("/metrics", None, {}, 401),
            ("/healthz", None, {}, 200),
            ("/healthz", None, {"Host": "evil.example"}, 400),
            ("/v1/judge", edit(1), {**TOKEN, "Host": "evil.example"}, 400),
            ("/nothing/here", None, TOKEN, 404),
        ):
            assert client.ask(path, body, headers=more)[0] == status, (path, more)
        assert "scripted" not in str(client.ask("/healthz")[2])


def test_metrics_and_health_tell_how_it_goes(tmp_path: Path) -> None:
    with serving(tmp_path / "run") as client:
        client.ask("/v1/judge", [edit(1), edit(1, source=inline(b"broken"))])
        client.ask("/v1/judge", edit(1))
        health = client.ask("/healthz")[2]
        assert (health["status"], health["protocol"], health["places"], health["taken"]) == ("ok", "dlebench", 36, 0)
        assert health["criteria"] == ["instruction_following", "visual_consistency"]
        _, headers, text = client.ask("/metrics")
        assert headers["content-type"].startswith("text/plain; version=0.0.4")
        lines = text.splitlines()
        assert 'editloupe_edits_total{status="200"} 2.0' in lines and 'editloupe_edits_total{status="422"} 1.0' in lines
        # The second one was known.
        assert 'editloupe_findings_total{metric="instruction_following",status="ok"} 1.0' in lines
        assert "editloupe_edits_taken 0.0" in lines
        assert any(line.startswith("process_resident_memory_bytes") for line in lines)


@contextmanager
def command(*words: str, code: str = "from editloupe.cli import main; main()") -> Iterator[tuple[Process, Client]]:
    """`editloupe serve` in a process of its own, killed in the end."""
    needs_extra()
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--port", "0", "--mode", "plain", "--set", "criteria=if", *words],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
    )
    assert process.stderr is not None
    try:
        line = process.stderr.readline()
        assert "answers at http://127.0.0.1:" in line, line + process.stderr.read()
        yield process, Client(int(line.partition("http://127.0.0.1:")[2].split(",")[0]))
    finally:
        process.kill()
        process.communicate()


def test_the_command_serves_and_stops_when_told(tmp_path: Path) -> None:
    out, uri = tmp_path / "run", scripted(tmp_path / "replies.jsonl", final("Flawless Execution"))
    with command("--out", str(out), "--backend", uri) as (process, client):
        assert client.ask("/v1/judge", edit(1))[2]["reward"]["value"] == 100.0
        process.send_signal(signal.SIGTERM)
        _, told = process.communicate(timeout=30)
    assert process.returncode == 0, told
    assert "Traceback" not in told
    assert len((out / "findings.jsonl").read_text().splitlines()) == 1
