"""A judge behind a server is asked about probes and put on trial."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.runs.store import RunStore
from tests.backends.loopback import Body
from tests.backends.openai_server import Handler, OpenAIServer, says
from tests.conftest import final
from tests.protocols.probe_files import draw_probes

Cli = Callable[..., tuple[int, str, str]]


def flatters(handler: Handler, body: Body) -> None:
    """Calls every edit flawless."""
    question = body["messages"][0]["content"][-1]["text"]
    says(final("Perfect Consistency" if "Perfect Consistency" in question else "Flawless Execution"))(handler, body)


@pytest.fixture(autouse=True)
def key(editloupe: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-none")


def judge(editloupe: Cli, probes: Path, backend: str, mode: str = "plain") -> tuple[int, str, str]:
    return editloupe("judge", probes, "--protocol", "probes", "--backend", backend, "--mode", mode, "--out", f"runs/{mode}")


def test_a_judge_in_two_modes_is_held_against_the_truth(tmp_path: Path, editloupe: Cli) -> None:
    probes = draw_probes(tmp_path / "probes")
    with OpenAIServer(flatters) as server:
        backend = f"tiny=openai/tiny-vl?base_url={server.url}"
        judged = [judge(editloupe, probes, backend, mode) for mode in ("plain", "tool")]
        # Five probes, two questions each, in two modes.
        assert len(server.seen) == 20 and server.complaints == []
    assert [code for code, _, _ in judged] == [0, 0]
    assert "editloupe trial runs/plain" in judged[0][1]
    code, said, _ = editloupe("trial", "runs/plain", "runs/tool", "--full")
    # IF of four: flawless and one_collateral. VC of five: flawless, wrong_colour and no_edit. 5 of 9 are 55.6 %.
    assert code == 0
    assert "Judges on trial" in said and said.count("55.6 [") >= 2 and "tiny, plain" in said and "tiny, tool" in said
    code, said, _ = editloupe("trial", "runs/plain", "--format", "json")
    figure = json.loads(said)["judges"][0]["figures"]["accuracy"]
    assert code == 0 and (figure["judged"], figure["asked"]) == (9, 9) and figure["value"] == pytest.approx(5 / 9)


def test_what_was_not_judged_is_no_figure(tmp_path: Path, editloupe: Cli) -> None:
    probes = draw_probes(tmp_path / "probes", ["flawless", "no_edit"])

    def declines_one(handler: Handler, body: Body) -> None:
        question = body["messages"][0]["content"][-1]["text"]
        says("I would rather not.")(handler, body) if "Perfect Consistency" in question else flatters(handler, body)

    with OpenAIServer(declines_one) as server:
        assert judge(editloupe, probes, f"openai/tiny-vl?base_url={server.url}")[0] == 3
    said = editloupe("trial", "runs/plain", "--full")[1]
    # IF: right of the flawless one, 1 of 2. VC: two that could not be judged.
    assert "50.0 [" in said and "(2/4)" in said and "2 (of 4: unparsed 2)" in said


def test_what_does_not_fit_is_named(tmp_path: Path, editloupe: Cli, edits: Callable[..., Path]) -> None:
    draw_probes(tmp_path / "probes", ["flawless"])
    editloupe("judge", edits(1), "--out", "other")
    for words, told in (
        (("probes",), "probes is no run folder"),
        (("other",), "other holds no probes"),
        (("gone",), "gone is no run folder"),
    ):
        code, _, failed = editloupe("trial", *words)
        assert code == 2 and told in " ".join(failed.split()), words


def test_a_changed_probe_is_refused_counted_and_part_of_no_figure(tmp_path: Path, editloupe: Cli) -> None:
    probes = draw_probes(tmp_path / "probes", ["flawless", "flawless", "flawless"])
    text = (probes / "metadata.jsonl").read_text(encoding="utf-8")
    first, second, third = text.splitlines()
    row = json.loads(second)
    # A digest that is taken out proves nothing; another instruction is another question.
    del row["probe"]["digest"]
    changed = [first.replace("blue", "green", 1), json.dumps(row), third]
    (probes / "metadata.jsonl").write_text("\n".join(changed) + "\n", encoding="utf-8")
    with OpenAIServer(flatters) as server:
        code, said, _ = judge(editloupe, probes, f"tiny=openai/tiny-vl?base_url={server.url}")
        assert len(server.seen) == 2  # about p02 alone
    said = " ".join(said.split()) + " ".join(editloupe("trial", "runs/plain", "--full")[1].split())
    assert code == 3 and "p00: the probe was changed after it was built: its row" in said
    store = RunStore.read(Path("runs/plain"))
    assert {f.status for f in store.findings.values() if f.sample_id != "p02"} == {"input_error"}
