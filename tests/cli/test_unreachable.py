"""An address where nobody answers stops a run, as a refused key does."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge
from editloupe.backends import google, langchain, openai, vllm
from editloupe.backends.retry import RetryPolicy
from editloupe.errors import Unavailable
from editloupe.runs.store import RunStore
from tests.backends.loopback import Body
from tests.backends.openai_server import OpenAIServer, says
from tests.conftest import final

Edits = Callable[..., Path]
Run = Callable[..., tuple[int, str, str]]
ATTEMPTS = 2


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch, editloupe: Run) -> None:
    """A failed call is tried again at once."""
    for module in (openai, vllm, google, langchain):
        policy = RetryPolicy(attempts=ATTEMPTS, sleep=lambda seconds: None)
        monkeypatch.setattr(module, "open_backend", partial(module.open_backend, policy=policy))
    for name in ("OPENAI_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, "sk-of-a-test")


@pytest.fixture
def nobody() -> Iterator[int]:
    """A port of this machine that takes no connection."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def drops(handler: Any, body: Body) -> None:
    """Closes the connection without an answer."""
    handler.close_connection = True


@pytest.mark.parametrize(
    "uri",
    [
        "openai/m?base_url=http://127.0.0.1:{}/v1",
        "vllm/m?base_url=http://127.0.0.1:{}/v1",
        "google/m?base_url=http://127.0.0.1:{}",
        "langchain/openai:m?base_url=http://127.0.0.1:{}/v1",
    ],
)
def test_an_address_where_nobody_answers_is_told_once_before_anything_is_asked(
    editloupe: Run, edits: Edits, nobody: int, uri: str
):
    if uri.startswith("langchain"):
        pytest.importorskip("langchain_openai")
    if uri.startswith("google"):
        pytest.importorskip("google.genai")
    words = ("judge", edits(8), "--backend", uri.format(nobody), "--out", "run")
    code, said, told = editloupe(*words)
    assert (code, said) == (1, "")
    assert told.count("no connection (Connection refused)") == told.count("check the address") == 1
    assert not Path("run").exists(), "no run lists whom nobody can ask"
    if uri.startswith("openai"):
        with pytest.raises(Unavailable, match="no connection"):
            Judge(uri.format(nobody), out="run")
        assert not Path("run").exists()


def test_the_same_command_goes_on_when_the_server_is_there(editloupe: Run, edits: Edits, nobody: int):
    with OpenAIServer(says(final("Wrong Action")), model="m") as server:
        folder, uri = edits(2), f"openai/m?base_url={server.url}"
        words = ("judge", folder, "--criteria", "if", "--out", "run", "--backend")
        assert editloupe(*words, uri)[0] == 0
    # With nothing left to ask, nobody looks.
    assert editloupe(*words, uri)[0] == 0
    code, said, _ = editloupe(*words, uri, "--repeats", "2")
    assert code == 1 and said.count("no connection (Connection refused)") == 1
    assert "2 findings are left. Correct this; the same command then continues." in said
    # A judge that was mistyped does not join, and is in nobody's way: `retry` asks those of the run, and no --trust for it.
    before = Path("run/run.json").read_bytes(), Path("run/config.yaml").read_bytes()
    assert editloupe(*words, f"openai/m?base_url=http://127.0.0.1:{nobody}/v2")[0] == 1
    assert before == (Path("run/run.json").read_bytes(), Path("run/config.yaml").read_bytes())


def test_a_server_that_goes_away_ends_the_run_when_patience_is_at_its_end(editloupe: Run, edits: Edits):
    with OpenAIServer(says(final("Wrong Action")), says(final("Wrong Action")), drops, model="m") as server:
        words = ("judge", edits(16), "--criteria", "if", "--concurrency", "1", "--out", "run", "--set", "patience=60")
        words = (*words, "--backend", f"openai/m?base_url={server.url}")
        code, said, _ = editloupe(*words)
        assert code == 1
        assert [f.status for f in RunStore.read(Path("run")).current()] == ["ok"] * 2 + ["backend_failed"]
        assert said.count("the patience is 60 s") == said.count("check the address") == 1
        assert "14 findings are left" in said
        server.script[:] = [says(final("Wrong Action"))]
        assert editloupe(*words)[0] == 0
