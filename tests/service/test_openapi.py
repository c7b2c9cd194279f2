"""The service keeps what its OpenAPI says: Schemathesis makes requests from the description and checks each answer."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.service.loopback_judge import needs_extra, serving

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("token", [None, "let-me-in"])
def test_answers_are_as_described(tmp_path: Path, token: str | None):
    needs_extra()
    pytest.importorskip("schemathesis", reason="needs schemathesis")
    with serving(tmp_path / "run", lambda _: "I cannot say.", root=tmp_path, token=token) as service:
        words = ["run", f"http://127.0.0.1:{service.port}/openapi.json", "--checks", "all", "--seed", "1"]
        # That a box lies in an image and a criterion is one of the rubric's is more than a schema can say.
        words += ["--exclude-checks", "positive_data_acceptance", "--max-examples", "12", "--workers", "2", "--no-color"]
        words += [] if token is None else ["--header", f"Authorization: Bearer {token}"]
        done = subprocess.run(
            [sys.executable, "-m", "schemathesis.cli", *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SCHEMATHESIS_HOOKS": "tests.service.schemathesis_hooks"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        metrics = service.ask("/metrics", headers=headers)[2]
    # It got through to the judge, and it was refused.
    for endpoint in ("/v1/judge", "/v1/judge/batch"):
        for status in (200, 422):
            assert re.search(f'requests_total{{endpoint="{endpoint}",status="{status}"}}', metrics), metrics
