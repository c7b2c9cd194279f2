"""A server of `editloupe annotate` that is killed while raters answer: what it said to be saved is there."""

from __future__ import annotations

import http.client
import json
import random
import re
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from editloupe.runs.store import RunStore
from editloupe.values import digest
from tests.conftest import draw_edits

RATERS = ("anna", "ben", "cleo")


def ask(port: int, address: str, data: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    body = None if data is None else json.dumps(data).encode()
    try:
        connection.request("GET" if data is None else "POST", address, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def answers(port: int, rater: str, saved: dict[tuple[str, str], str]) -> None:
    """Answer open questions until the server is gone; saved: what it said to have stored."""
    try:
        while True:
            _, queue = ask(port, f"/queue?rater={rater}")
            wanted = [one["id"] for one in queue["questions"] if one["state"] == "open"]
            if not wanted:
                return
            _, asked = ask(port, f"/question?rater={rater}&id={wanted[0]}")
            said = random.choice(asked["options"])["name"]
            data = {"rater": rater, "id": asked["id"], "task_id": asked["task_id"], "answer": said, "note": ""}
            status, told = ask(port, "/answer", data)
            assert status == 200, told
            saved[rater, asked["id"]] = said
    except (OSError, http.client.HTTPException, ValueError):
        return


@pytest.mark.slow
def test_nothing_that_was_said_to_be_saved_is_lost_by_kill_9(tmp_path: Path) -> None:
    run, saved = tmp_path / "run", dict[tuple[str, str], str]()
    words = [str(draw_edits(tmp_path / "edits", 20)), "--raters", ",".join(RATERS), "--out", str(run)]
    for seconds in (0.3, 0.6, 1.0, None):
        command = [sys.executable, "-u", "-m", "editloupe", "annotate", *words, "--port", "0"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as served:
            assert served.stdout is not None
            port = next(int(found[1]) for line in served.stdout if (found := re.search(r"127\.0\.0\.1:(\d+)/", line)))
            threads = [threading.Thread(target=answers, args=(port, rater, saved)) for rater in RATERS]
            for thread in threads:
                thread.start()
            if seconds is None:
                for thread in threads:
                    thread.join(120)
            else:
                time.sleep(seconds)
            served.kill()
            for thread in threads:
                thread.join(30)
        store = RunStore.read(run)
        assert store.problems == []
        stored = {(one.rater, digest(list(one.finding.question))[:16]): one.finding.label for one in store.people.values()}
        # One a rater may be stored without that its page was told.
        assert saved.items() <= stored.items() and len(stored) <= len(saved) + 4 * len(RATERS)
    assert len(stored) == 2 * 20 * len(RATERS)
