"""`editloupe trial PROBES --backend openai/…`: a judge behind a server is judged and put on trial by one command."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from editloupe.runs.store import RunStore
from tests.backends.loopback import Body
from tests.backends.openai_server import Handler, OpenAIServer, fails, says
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


def test_one_command_judges_in_each_mode_and_holds_what_was_said_against_the_truth(tmp_path: Path, editloupe: Cli) -> None:
    probes = draw_probes(tmp_path / "probes")
    with OpenAIServer(flatters) as server:
        backend = f"tiny=openai/tiny-vl?base_url={server.url}"
        words = (probes, "--backend", backend, "--mode", "plain,tool", "--full")
        code, said, told = editloupe("trial", *words)
        assert code == 0, told
        judged = editloupe("judge", probes, "--protocol", "probes", "--backend", backend, "--mode", "plain")[1]
        assert "Held against the truth: editloupe trial runs/probes-tiny-probes-plain" in judged
        # Five probes, two questions each, in two modes.
        assert len(server.seen) == 20 and server.complaints == []
        # The same command asks nothing twice.
        assert editloupe("trial", *words)[0] == 0 and len(server.seen) == 20
    # IF of four: flawless and one_collateral. VC of five: flawless, wrong_colour and no_edit. 5 of 9 are 55.6 %.
    assert "Judges on trial" in said and said.count("55.6 [") >= 2 and "tiny, plain" in said and "tiny, tool" in said
    for mode in ("plain", "tool"):
        store = RunStore.read(Path(f"runs/probes-tiny-probes-{mode}"))
        assert store.protocol == "probes" and store.options()["mode"] == mode
    code, said, _ = editloupe("trial", "runs/probes-tiny-probes-plain", "--format", "json")
    figure = json.loads(said)["judges"][0]["figures"]["accuracy"]
    assert code == 0 and (figure["judged"], figure["asked"]) == (9, 9) and figure["value"] == pytest.approx(5 / 9)


def test_what_was_not_judged_is_no_figure_and_the_exit_code_says_so(tmp_path: Path, editloupe: Cli) -> None:
    probes = draw_probes(tmp_path / "probes", ["flawless", "no_edit"])

    def declines_one(handler: Handler, body: Body) -> None:
        question = body["messages"][0]["content"][-1]["text"]
        says("I would rather not.")(handler, body) if "Perfect Consistency" in question else flatters(handler, body)

    with OpenAIServer(declines_one) as server:
        backend = f"openai/tiny-vl?base_url={server.url}"
        code, said, _ = editloupe("trial", probes, "--backend", backend, "--mode", "plain", "--full")
    # IF: right of the flawless one, 1 of 2. VC: two that could not be judged.
    assert code == 3 and "50.0 [" in said and "(2/4)" in said and "2 (of 4: unparsed 2)" in said


def test_a_judge_that_answers_nothing_has_no_trial(tmp_path: Path, editloupe: Cli) -> None:
    with OpenAIServer(fails(400, "no such thing")) as server:
        backend = f"openai/tiny-vl?base_url={server.url}"
        code, said, _ = editloupe("trial", draw_probes(tmp_path / "probes"), "--backend", backend, "--mode", "plain")
    assert code == 1 and "Judges on trial" not in said


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("run", "--mode", "plain"), "--mode is for a folder of probes that is judged first"),
        (("run", "--max-cost", "1"), "--max-cost is for a folder of probes"),
        (("probes", "--format", "json"), "is to be judged first"),
        (("probes", "--mode", "nope"), "option mode: Input should be 'tool', 'oracle' or 'plain'; found 'nope'"),
        (("probes", "--set", "asks=nope"), "option asks: Input should be 'dlebench', 'unicbench' or 'giebench'"),
        (("edits",), "no sample is a probe"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, editloupe: Cli, edits: Callable[..., Path], words: tuple[str, ...], told: str
) -> None:
    draw_probes(tmp_path / "probes", ["flawless"])
    edits(1)
    code, _, failed = editloupe("trial", *words)
    assert code == 2 and told in " ".join(failed.split())


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
        backend = f"tiny=openai/tiny-vl?base_url={server.url}"
        code, said, _ = editloupe("trial", probes, "--backend", backend, "--mode", "plain", "--full")
        assert len(server.seen) == 2  # about p02 alone
    assert code == 3 and "p00: the probe was changed after it was built: its row" in " ".join(said.split())
    store = RunStore.read(Path("runs/probes-tiny-probes-plain"))
    assert {f.status for f in store.findings.values() if f.sample_id != "p02"} == {"input_error"}
