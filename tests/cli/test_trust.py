"""A run from somebody else: no key goes to an address that it names, and nothing that it names is opened or started."""

from __future__ import annotations

import json
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.backends.openai_server import OpenAIServer, says
from tests.conftest import Cli, draw_edits, final, refused

MINE, THEIRS = "sk-mine-5ea5e11e5", "cloud-secret-0fb1"

COMMANDS: dict[str, list[str]] = {
    "retry": ["judge", "RUN", "--retry", "unparsed"],
    "replay": ["replay", "RUN", "--model", "live"],
    "fork": ["replay", "RUN", "s00", "--at", "0"],
    "judge": ["judge", "--config", "RUN/config.yaml", "--out", "new"],
    "judge into the run": ["judge", "--config", "RUN/config.yaml", "--limit", "1", "--set", "seed=5", "--out", "new"],
}
"""Every command that may ask the model that a run names."""


@pytest.fixture
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer(says(final("Wrong Action")), says(final("Fantastic"))) as server:
        yield server


@pytest.fixture
def foreign(editloupe: Cli, server: OpenAIServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that names the server's address and a variable of this machine for its key; the user has a key of their own."""
    draw_edits(tmp_path / "edits", 2)
    monkeypatch.setenv("CLOUD_SECRET", THEIRS)
    named = f"openai/{server.model}?base_url={server.url}&env=CLOUD_SECRET"
    words = ("judge", "edits", "--criteria", "if", "--concurrency", "1", "--backend", named, "--out", "theirs")
    assert editloupe(*words)[0] == 3, "one answer off the menu, which a retry may ask again"
    monkeypatch.setenv("OPENAI_API_KEY", MINE)
    server.seen.clear()
    server.headers.clear()
    server.script[:] = [says(final("Wrong Action"))]
    return tmp_path / "theirs"


@pytest.mark.parametrize("name", COMMANDS)
def test_no_key_goes_to_an_address_that_only_the_run_names(
    editloupe: Cli, server: OpenAIServer, foreign: Path, tmp_path: Path, name: str
):
    words = [word.replace("RUN", str(foreign)) for word in COMMANDS[name]]
    code, said, told = editloupe(*words)
    assert (code, server.seen, said) == (2, [], "")
    assert f"names the endpoint {server.url}" in " ".join(told.split())
    assert "--trust" in told
    assert not (tmp_path / "new").exists()
    # Trusted, the server is asked, with the user's usual key; never with what the run's env= names.
    told = editloupe(*words, "--trust")[2]
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {MINE}"}
    if name not in ("replay", "fork"):
        # run.json and the traces hold no env=.
        assert "A run's env= is never obeyed" in " ".join(told.split())


def test_an_editloupe_yaml_that_lies_here_is_trusted_no_more_than_another_file(
    editloupe: Cli, server: OpenAIServer, foreign: Path, tmp_path: Path
):
    address = f"openai/{server.model}?base_url={server.url}"
    config = {"path": "edits", "criteria": "if", "backend": address}
    (tmp_path / "editloupe.yaml").write_text(yaml.safe_dump(config))
    shutil.copy(tmp_path / "editloupe.yaml", tmp_path / "other.yaml")
    for words in (("judge", "--out", "new"), ("judge", "--config", "other.yaml", "--out", "new")):
        server.headers.clear()
        code, said, told = editloupe(*words)
        assert (code, server.headers, said) == (2, [], "")
        assert f"names the endpoint {server.url} (backend openai), and you do not" in " ".join(told.split())
        assert not (tmp_path / "new").exists()
        for out, *given in (("trusted", "--trust"), ("named", "--backend", address)):
            assert editloupe(*words[:-1], f"{out} {len(words)}", *given)[0] == 0
            assert {headers["authorization"] for headers in server.headers} == {f"Bearer {MINE}"}


STRANGER = "http://stranger.invalid"
NAMED: tuple[tuple[dict[str, object], str], ...] = (
    ({"backend": f"vllm/m?base_url={STRANGER}/v1"}, f"the endpoint {STRANGER}/v1"),
    ({"backend": f"google/m?base_url={STRANGER}"}, f"the endpoint {STRANGER}"),
    ({"backend": "langchain/huggingface:stranger/model"}, "the weights huggingface:stranger/model"),
    ({"backend": f"theirs/{STRANGER}/m"}, f"the address {STRANGER}/m"),
    ({"role": {"other": f"openai/m?base_url={STRANGER}/v1"}}, f"the endpoint {STRANGER}/v1"),
    ({"judges": {"a": f"openai/m?base_url={STRANGER}/v1"}}, f"the endpoint {STRANGER}/v1"),
    ({"detector": "stranger/weights"}, "the detector 'stranger/weights'"),
    ({"preference": f"{STRANGER}:8100"}, f"the preference '{STRANGER}:8100'"),
    ({"rubric": "/tmp/stranger.toml"}, "the rubric '/tmp/stranger.toml'"),
    ({"prompt": "/tmp/stranger.md"}, "the prompt '/tmp/stranger.md'"),
    ({"option": ["folder=/tmp/stranger"]}, "the folder '/tmp/stranger'"),
)
"""What is changed in config.yaml, and what the refusal names."""


@pytest.fixture
def own(editloupe: Cli, tmp_path: Path) -> Path:
    """A run of the user's own."""
    draw_edits(tmp_path / "edits", 1)
    assert editloupe("judge", "edits", "--criteria", "if", "--out", "run")[0] == 0
    return tmp_path / "run"


def test_what_only_a_run_names_is_neither_asked_nor_opened(editloupe: Cli, own: Path):
    plain = (own / "config.yaml").read_text()
    for options, what in NAMED:
        (own / "config.yaml").write_text(yaml.safe_dump({**yaml.safe_load(plain), **options}))
        for command in (("judge", "--config", "run/config.yaml", "--out", "new"), ("judge", "run", "--retry")):
            code, said, told = editloupe(*command)
            assert (code, said) == (2, ""), (options, command)
            assert what in " ".join(told.split()) and "--trust" in told, (options, command)
    assert not own.with_name("new").exists()


def test_the_retry_that_a_run_of_ones_own_proposes_works(editloupe: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    draw_edits(tmp_path / "edits", 1)
    monkeypatch.setenv("MY_KEY", MINE)
    with OpenAIServer(says(final("Fantastic"))) as server:
        uri = f"openai/{server.model}?base_url={server.url}&env=MY_KEY"
        said = editloupe("judge", "edits", "--criteria", "if", "--backend", uri, "--out", "run")[1]
        proposed = said.partition("Judge these again: editloupe ")[2].partition("\n")[0]
        server.script[:] = [says(final("Wrong Action"))]
        assert editloupe(*shlex.split(proposed))[0] == 0
    assert {headers["authorization"] for headers in server.headers} == {f"Bearer {MINE}"}


def test_a_rubric_that_run_json_names_as_a_file_is_not_read(editloupe: Cli, own: Path):
    info = json.loads((own / "run.json").read_text())
    info["record"]["options"]["rubric"] = "/etc/stranger.toml"
    (own / "run.json").write_text(json.dumps(info))
    for words in (
        ("report", "run"),
        ("compare", "run"),
        ("gate", "run", "--require", "mean(if) >= 0"),
        ("replay", "run", "--set", "mask_pad=0.1"),
    ):
        assert "names the file '/etc/stranger.toml'" in refused(editloupe, *words), words
    # Its pages say why there is no score.
    assert editloupe("export", "run", "--html", "new")[0] == 0
    assert "names the file '/etc/stranger.toml'" in (own.with_name("new") / "rows.js").read_text(encoding="utf-8")
