"""A backend that refuses every question is asked once, whoever asks: command line, Python, HTTP service, Studio."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe import Judge, load_samples
from editloupe.runs import studio
from tests.backends.loopback import Act
from tests.backends.openai_server import OpenAIServer, fails
from tests.conftest import Cli, Edits
from tests.service import loopback_judge as http

EDITS = 6

REFUSALS: dict[str, tuple[Act, str]] = {
    "a refused key": (fails(401, "Incorrect API key provided"), "no key was sent"),
    "an empty account": (fails(429, "You exceeded your current quota", code="insufficient_quota"), "account"),
    "an unknown model": (fails(404, "The model 'm' does not exist", code="model_not_found"), "check the model's name"),
    "a server without eyes": (
        fails(400, "image input is not supported by this model"),
        "if the model takes no images, name one that does",
    ),
}


def by_command(uri: str, folder: Path, editloupe: Cli) -> str:
    code, said, told = editloupe("judge", folder, "--backend", uri, "--criteria", "if", "--out", "run")
    assert code == 1
    return said + told


def in_python(uri: str, folder: Path, editloupe: Cli) -> str:
    found = Judge(uri, criteria="if").judge_all(load_samples(folder))
    assert [finding.status for (finding,) in found] == ["backend_failed"] * EDITS
    return found[-1][0].reason


def over_http(uri: str, folder: Path, editloupe: Cli) -> str:
    with http.serving(folder.parent / "run", backend=uri, criteria=("if",)) as service:
        status, _, said = service.ask("/v1/judge", [http.edit(number) for number in range(EDITS)])
    findings = [one["findings"][0] for one in said]
    assert (status, [one["status"] for one in findings]) == (200, ["backend_failed"] * EDITS)
    return str(findings[-1]["reason"])


def in_studio(uri: str, folder: Path, editloupe: Cli) -> str:
    question = {"source": str(folder / "source/s00.png"), "edited": str(folder / "edited/s00.png"), "instruction": "Red."}
    verdict = studio.graph().invoke(question, context=studio.Wiring(backend=uri))
    assert (verdict["status"], verdict["label"]) == ("backend_failed", None)
    return str(verdict["reason"])


@pytest.mark.parametrize("door", [by_command, in_python, over_http, in_studio])
@pytest.mark.parametrize("refusal", REFUSALS)
def test_it_is_asked_once_and_the_reason_says_what_to_do(
    door: Callable[..., str],
    refusal: str,
    edits: Edits,
    editloupe: Cli,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    act, cure = REFUSALS[refusal]
    folder = edits(EDITS)
    with OpenAIServer(act, model="m") as server:
        # Whoever reaches Studio may not name an address: it comes from the server's own environment.
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        said = door("openai/m?env=none", folder, editloupe)
        assert len(server.seen) == 1
    assert cure in " ".join(said.split())
