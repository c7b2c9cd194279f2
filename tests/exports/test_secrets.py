"""A key that was used, and that the endpoint says again, stands in no export."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from editloupe.config import JudgeConfig, RunConfig
from editloupe.exports.episodes import Source
from editloupe.exports.findings import write_findings
from editloupe.exports.inspect_log import write_inspect
from editloupe.exports.otel import write_otel
from editloupe.exports.sft import Answers, write_sft
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from tests.backends.loopback import Body
from tests.backends.openai_server import Handler, OpenAIServer, fails, says
from tests.conftest import LOOK, final
from tests.exports.runs import INSTRUCTION, edits

CANARY = "sk-canary-5ea5e11e5-7f3d"
BASIC = base64.b64encode(f"user:{CANARY}".encode()).decode()
PERCENT = "".join(f"%{ord(c):02X}" for c in CANARY)


def test_a_key_that_an_endpoint_repeats_is_in_no_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)

    def answers(handler: Handler, body: Body) -> None:
        if INSTRUCTION.format(1) in body["messages"][0]["content"][-1]["text"]:
            fails(400, f"the key {CANARY} ({PERCENT}) may not do this")(handler, body)
        elif any(message["role"] == "assistant" for message in body["messages"]):
            says(final("Wrong Action", f"I was given {CANARY}, Basic {BASIC}."))(handler, body)
        else:
            says(LOOK)(handler, body)

    with OpenAIServer(answers, model="m", key=CANARY) as server:
        judge = JudgeConfig(backend=f"openai/m?base_url={server.url}")
        config = RunConfig(path=edits(tmp_path / "edits", count=3), judge=judge, concurrency=1)
        drive(open_setup(config), tmp_path / "run")
    source = Source(folder=tmp_path / "run")
    out = tmp_path / "out"
    assert write_otel(source, out / "spans.jsonl", content=True) == 4
    write_inspect(source, out / "log.json")
    for name in ("f.jsonl", "f.csv"):
        write_findings(source, out / name)
    assert write_sft(Answers(source=source), out / "training", turns="all").rows == 2
    files = [path for path in out.rglob("*") if path.is_file()]
    assert len(files) > 8
    files += [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    # Without the ends of the base64, which hold a part of what stands beside the key.
    spelt = [word.encode() for word in (CANARY, PERCENT, BASIC[8:-4])]
    assert [path.name for path in files if any(word in path.read_bytes() for word in spelt)] == []
