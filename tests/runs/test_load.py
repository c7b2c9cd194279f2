"""A run under load: what goes wrong ends in a label or a status, and a conversation goes out as it went out before."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import pytest

from benchmarks.load.data import draw
from benchmarks.load.server import FAULTS, serving
from editloupe.backends.base import parse_uri
from editloupe.backends.openai import open_backend
from editloupe.backends.retry import RetryPolicy
from editloupe.data import images
from editloupe.runs.outcome import Outcome
from tests.backends.openai_server import OpenAIServer, says
from tests.conftest import final
from tests.setups import open_with, run_over

# A tenth of each wait, those that the server asks for included.
POLICY = RetryPolicy(sleep=lambda seconds: time.sleep(seconds / 100))


def judged(folder: Path, url: str, samples: int, *, model: str = "m", timeout_s: float = 10.0) -> Outcome:
    backend = open_backend(parse_uri(f"openai/{model}?base_url={url}&env=none&timeout_s={timeout_s}"), policy=POLICY)
    setup = open_with(backend=backend, criteria=("if",))
    data = draw(folder / "data", samples, size=(96, 64))
    return run_over(setup, data, folder / "run", config={}, concurrency=8, max_connections=8)


def test_with_three_faults_in_ten_every_sample_ends_and_no_request_comes_too_often(tmp_path: Path):
    with serving(0.01, faults=0.3, seed=1) as server:
        outcome = judged(tmp_path, server.url, 24, timeout_s=2.0)
        seen = server.seen()
    assert len(outcome.findings) == outcome.asked == 24
    for finding in outcome.findings:
        assert (finding.answer is None) == (finding.status != "ok")
        assert finding.status in ("ok", "backend_failed", "unparsed")
        assert finding.status == "ok" or finding.reason
    # 24 · 3 calls, 3 in 10 of them again: each kind comes up.
    assert set(seen.faults) == set(FAULTS)
    assert max(seen.asked) <= POLICY.attempts
    # A call beyond the first of a request is a retry, and only a fault is retried; "empty" is a reply.
    assert seen.calls - len(seen.asked) <= sum(n for kind, n in seen.faults.items() if kind != "empty")
    assert sum(finding.status == "ok" for finding in outcome.findings) >= 20


def test_every_request_begins_with_the_one_before_and_each_image_is_encoded_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    encoded: list[bytes] = []
    plain = images.encode_png

    def counted(rgb: images.RGB) -> bytes:
        encoded.append(rgb.tobytes())
        return plain(rgb)

    monkeypatch.setattr(images, "encode_png", counted)
    zoom = '{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [%d, 0, 900, 900]}}'
    call = f"<tool_call>{zoom}</tool_call>"
    with OpenAIServer(says(call % 0), says("hm"), says(call % 300), says(final("Wrong Action"))) as server:
        outcome = judged(tmp_path, server.url, 1, model=server.model)
    assert [finding.label for finding in outcome.findings] == ["Wrong Action"]
    assert len(server.raw) == 4
    told = [raw[raw.index(b'"messages":') :] for raw in server.raw]
    for earlier, later in itertools.pairwise(told):
        # But for the brackets that end the list and the body.
        assert earlier.endswith(b"]}") and later.startswith(earlier[:-2])
    # Splicing changes no byte of what one writing of the whole gives.
    written = [json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode() for body in server.seen]
    assert written == server.raw
    # The two crops. The inputs are JPEG, and go as they are.
    assert len(encoded) == len(set(encoded)) == 2
    assert server.complaints == []
