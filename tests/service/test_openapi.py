"""The service keeps what its OpenAPI says: to Schemathesis, which makes requests from it, and to a generated client."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import clients
from tests.service.loopback_judge import by_number, needs_extra, png, serving

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
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


def test_files_of_a_form_are_binary_and_nothing_in_it_is_null(tmp_path: Path):
    with serving(tmp_path / "run", by_number) as service:
        described = service.ask("/openapi.json")[2]
        assert service.ask("/openapi.json")[2] == described, "asked again, the same"
    form = described["components"]["schemas"]["Body_upload"]["properties"]
    files = [(form[name]["type"], form[name]["format"]) for name in ("source", "edited", "reference")]
    assert files == [("string", "binary")] * 3
    assert "null" not in json.dumps(form) and form["boxes"]["items"] == {"type": "string"}
    named = {operation["operationId"] for path in described["paths"].values() for operation in path.values()}
    assert named == {"judge", "upload", "batch", "healthz", "readyz", "prometheus"}


@pytest.mark.clients
@pytest.mark.parametrize("token", [None, "let-me-in"])
def test_a_generated_client_judges(tmp_path: Path, token: str | None):
    needs_extra()
    python = clients.client("openapi")
    (tmp_path / "before.png").write_bytes(png(90))
    (tmp_path / "after.png").write_bytes(png(120))
    with serving(tmp_path / "run", by_number, token=token) as service:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        described = service.ask("/openapi.json", headers=headers)[2]
        (tmp_path / "openapi.json").write_text(json.dumps(described), encoding="utf-8")
        clients.run(
            python.parent / "openapi-python-client", "generate", "--path", "openapi.json", "--fail-on-warning",
            "--meta", "none", "--output-path", tmp_path / "generated", cwd=tmp_path,
            # It formats with the ruff of its own environment.
            env={**os.environ, "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}"},
        )  # fmt: skip
        said = clients.run(python, "-c", _USE, f"http://127.0.0.1:{service.port}", token or "", cwd=tmp_path)
    told = json.loads(said.splitlines()[-1])
    # Label number 2 of four is Over Modification, worth 3; and number 2 of visual consistency as much.
    labels = {"instruction_following": "Over Modification", "visual_consistency": "Single Anomaly"}
    judged = {"upload": ["mine", labels], "judge": ["edit-2", labels], "batch": 2}
    assert told == {**judged, "refused": ["Problem", 422], "health": "ok"}


_USE = """
import base64, json, sys
from pathlib import Path
from generated import AuthenticatedClient, Client
from generated.api.judge import batch, judge, upload
from generated.api.operation import healthz
from generated.models import Batch, BodyUpload, Edit, Inline
from generated.types import File
url, token = sys.argv[1:]
client = AuthenticatedClient(base_url=url, token=token) if token else Client(base_url=url)
def file(name):
    return File(payload=Path(name).open("rb"), file_name=name, mime_type="image/png")
def inline(name):
    return Inline(base64=base64.b64encode(Path(name).read_bytes()).decode())
def told(verdict):
    return [verdict.id, {f.metric: f.label for f in verdict.findings}]
form = BodyUpload(source=file("before.png"), edited=file("after.png"), instruction="Paint mug 2 blue.", id="mine",
                  boxes=["1,2,30,40"], repeat=0)
uploaded = upload.sync(client=client, body=form)
edit = Edit(source=inline("before.png"), edited=inline("after.png"), instruction="Paint mug 2 blue.", id="edit-2")
judged = judge.sync(client=client, body=edit)
several = batch.sync(client=client, body=Batch(edits=[edit, edit]))
wrong = BodyUpload(source=file("before.png"), edited=file("after.png"), instruction="Paint mug 2 blue.", boxes=["1,2"])
refused = upload.sync_detailed(client=client, body=wrong)
print(json.dumps({
    "upload": told(uploaded), "judge": told(judged), "batch": len(several.results),
    "refused": [type(refused.parsed).__name__, int(refused.status_code)],
    "health": healthz.sync(client=client).status,
}))
"""
