"""The vllm backend against a strict server of our own on loopback, and the loop on top of it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

import pytest

from editloupe.backends.base import parse_uri
from editloupe.backends.openai import OpenAIBackend
from editloupe.backends.retry import RetryPolicy
from editloupe.backends.vllm import open_backend
from editloupe.chat import ImagePart, Message, Reply, Request, TextPart, ToolCall, ToolSpec
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError, ContextTooLong, Rejected
from editloupe.findings import Finding
from editloupe.runs.execute import Worker
from editloupe.tasks import Budget
from editloupe.values import Sample
from tests.backends.loopback import Act, sends
from tests.backends.openai_server import OpenAIServer, chooses, completion, fails, says
from tests.backends.test_openai import image
from tests.conftest import LOOK, final
from tests.setups import open_with

CANARY = "sk-canary-5ea5e11e5-7f3d"
LABELS = ("Flawless Execution", "Over Modification", "Wrong Action", "Localization Failure")
ASKED = Request(messages=(Message.of_text("user", "Which?"),), choices=LABELS)


class Bench:
    """Servers and backends of one test, closed in the right order."""

    def __init__(self) -> None:
        self.servers: list[OpenAIServer] = []
        self.backends: list[OpenAIBackend] = []

    def backend(self, *script: Act, key: str | None = None, query: str = "") -> OpenAIBackend:
        server = OpenAIServer(*script, vllm=True, key=key).__enter__()
        self.servers.append(server)
        uri = parse_uri(f"vllm/tiny-vl?base_url={server.url}{query}")
        self.backends.append(open_backend(uri, policy=RetryPolicy(attempts=1)))
        return self.backends[-1]

    @property
    def seen(self) -> list[dict[str, Any]]:
        return self.servers[-1].seen


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    for name in ("VLLM_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    bench = Bench()
    yield bench
    for backend in bench.backends:
        backend.close()
    for server in bench.servers:
        server.__exit__(None, None, None)
    assert [c for s in bench.servers for c in s.complaints] == []


def with_logprobs(text: str, *values: float) -> Act:
    body = completion(text)
    tokens = [{"token": "?", "logprob": v, "bytes": None, "top_logprobs": []} for v in values]
    body["choices"][0]["logprobs"] = {"content": tokens}
    return sends(json.dumps(body).encode())


# What is sent and read


def test_choices_go_as_vllms_structured_outputs_and_the_labels_probability_is_kept(bench: Bench) -> None:
    reply = bench.backend(with_logprobs("Wrong Action", -0.5, -0.25)).complete(ASKED, ImageStore())
    assert bench.seen[0]["structured_outputs"] == {"choice": list(LABELS)}
    assert (bench.seen[0]["logprobs"], bench.seen[0]["top_logprobs"]) == (True, 5)
    assert reply.sent["structured_outputs"] == {"choice": list(LABELS)}
    assert (reply.text, reply.logprob) == ("Wrong Action", -0.75)
    assert Reply.from_json(reply.to_json()) == reply


def test_a_free_answer_is_asked_for_as_ever_and_has_no_probability(bench: Bench) -> None:
    reply = bench.backend(says("ok")).complete(Request(messages=ASKED.messages), ImageStore())
    assert set(bench.seen[0]) == {"model", "messages", "temperature", "seed", "max_tokens"}
    assert reply.logprob is None
    assert "logprob" not in reply.to_json()


@pytest.mark.parametrize("values", [(), (-0.5, math.nan), (-math.inf,)])
def test_a_probability_that_is_not_wholly_told_is_none(bench: Bench, values: tuple[float, ...]) -> None:
    assert bench.backend(with_logprobs("Wrong Action", *values)).complete(ASKED, ImageStore()).logprob is None


def test_images_carry_their_digest_and_stay_in_the_tools_message(bench: Bench) -> None:
    store = ImageStore()
    whole, crop = image(store), image(store, value=90)
    spec = ToolSpec(name="zoom_in", description="Zoom.", parameters={"type": "object"})
    messages = (
        Message(role="user", parts=(TextPart(text="A:"), ImagePart(image=whole, alias="A"))),
        Message(role="assistant", parts=(), tool_calls=(ToolCall(id="c1", name="zoom_in", arguments={}),)),
        Message(role="tool", parts=(TextPart(text="Crop 1:"), ImagePart(image=crop, alias="Crop 1")), tool_call_id="c1"),
    )
    reply = bench.backend(says("ok")).complete(Request(messages=messages, tools=(spec,)), store)
    user, _, tool = bench.seen[0]["messages"]
    assert [b.get("uuid") for b in user["content"]] == [None, whole.sha256]
    assert (tool["role"], [b.get("uuid") for b in tool["content"]]) == ("tool", [None, crop.sha256])
    assert reply.sent["tool_images"] == "in the tool's message"


def test_reasoning_and_image_tokens_and_the_models_own_name_are_read(bench: Bench) -> None:
    details = {"cached_tokens": 48, "multimodal_tokens": {"image": 128}}
    usage = {"prompt_tokens": 200, "completion_tokens": 3, "prompt_tokens_details": details}
    reply = bench.backend(says("ok", usage=usage, reasoning="The lamp.")).complete(ASKED, ImageStore())
    assert (reply.usage.input_tokens, reply.usage.image_tokens, reply.usage.cached_tokens) == (200, 128, 48)
    assert (reply.reasoning, reply.model) == ("The lamp.", "tiny-vl-0613")


@pytest.mark.parametrize(
    ("said", "kind", "advice"),
    [
        ("At most 2 image(s) may be provided in one prompt.", Rejected, "--limit-mm-per-prompt"),
        (
            "The decoder prompt (length 9000) is longer than the maximum model length of 2048.",
            ContextTooLong,
            "longer than the maximum model length",
        ),
        (
            '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            Rejected,
            "or use --tool-protocol text",
        ),
        ("Qwen3-8B is not a multimodal model", Rejected, "the model takes no images: name one that does"),
    ],
)
def test_what_vllm_refuses_says_what_to_do(bench: Bench, said: str, kind: type[Rejected], advice: str) -> None:
    with pytest.raises(Rejected, match=advice) as caught:
        bench.backend(fails(400, said)).complete(ASKED, ImageStore())
    assert type(caught.value) is kind
    assert said in str(caught.value)


# Address and key


def test_the_address_is_this_machines_port_8000_whatever_openais_variable_says(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://example.org/v1")
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    backend = open_backend(parse_uri("vllm/Qwen/Qwen3-VL-8B-Instruct"))
    assert (backend.uri, backend.endpoint) == ("vllm/Qwen/Qwen3-VL-8B-Instruct", "http://127.0.0.1:8000/v1")
    assert backend.traits.describes == "Qwen/Qwen3-VL-8B-Instruct served by vLLM at http://127.0.0.1:8000/v1"
    backend.close()


def test_no_key_is_needed_anywhere_and_vllms_own_variable_is_sent(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    open_backend(parse_uri("vllm/m?base_url=http://gpu-box:8000/v1")).close()
    monkeypatch.setenv("OPENAI_API_KEY", "not-for-this-server")
    bench.backend(says("ok")).complete(ASKED, ImageStore())
    assert bench.servers[-1].headers[0]["authorization"] == "Bearer none"
    monkeypatch.setenv("VLLM_API_KEY", CANARY)
    assert bench.backend(says(f"key {CANARY}"), key=CANARY).complete(ASKED, ImageStore()).text == "key ***"


def test_a_refused_key_names_vllms_variable(bench: Bench) -> None:
    with pytest.raises(Rejected, match="no key was sent; set environment variable VLLM_API_KEY"):
        bench.backend(says("ok"), key=CANARY).complete(ASKED, ImageStore())


def test_a_uri_without_a_model_says_what_it_should_be() -> None:
    with pytest.raises(ConfigError, match="expected vllm/MODEL"):
        open_backend(parse_uri("vllm"))


def test_a_server_whose_address_is_new_each_time_keeps_its_place() -> None:
    first, second = (
        open_backend(parse_uri(f"vllm/m?base_url=http://127.0.0.1:{port}/v1"), place="launched: vllm serve m")
        for port in (40001, 40002)
    )
    assert (first.uri, first.endpoint) == (second.uri, second.endpoint) == ("vllm/m", "launched: vllm serve m")
    assert first.traits.describes == "m served by a vLLM that this run started"
    first.close()
    second.close()


# The loop


def judged(backend: OpenAIBackend, sample: Sample, store: ImageStore, **settings: Any) -> Finding:
    opened = open_with(backend=backend, criteria=("if",), constrain_labels=True, **settings)
    (task,) = opened.protocol.plan([sample], {})
    return Worker(setup=opened, images=store).run_task(task)


def test_the_bare_label_of_the_last_turn_is_the_answer_and_the_thought_before_it_the_reason(
    bench: Bench, sample: Sample, store: ImageStore
) -> None:
    thought = "<Start Thinking>As Crop 1 shows, it is gone.</Start Thinking>"
    backend = bench.backend(says(thought + LOOK), chooses(2))
    finding = judged(backend, sample, store, budget=Budget(max_turns=1))
    assert (finding.status, finding.label, finding.value) == ("ok", "Wrong Action", 2.0)
    assert finding.reason == "As Crop 1 shows, it is gone."
    assert finding.counts == {"constrained_labels": 1}
    first, last = bench.seen
    assert "structured_outputs" not in first
    assert last["structured_outputs"] == {"choice": list(LABELS)}
    asked = last["messages"][-1]["content"][-1]["text"]
    assert "with nothing else: no thought, no tags" in asked
    assert last["messages"][:1] == first["messages"]


@pytest.mark.parametrize("mode", ["tool", "plain"])
def test_a_model_that_never_keeps_the_form_has_a_last_word_held_to_the_labels(
    bench: Bench, sample: Sample, store: ImageStore, mode: str
) -> None:
    backend = bench.backend(says("hm"), says("hm"), says("hm"), chooses(0))
    finding = judged(backend, sample, store, mode=mode)
    assert (finding.status, finding.label) == ("ok", "Flawless Execution")
    assert finding.counts == {"reminders": 2, "constrained_labels": 1}
    assert ["structured_outputs" in body for body in bench.seen] == [False, False, False, True]
    told = bench.seen[-1]["messages"][-1]["content"]
    assert told.startswith("Tools are no longer available. " if mode == "tool" else "Decide now")


def test_a_label_that_was_cut_off_is_no_label(bench: Bench, sample: Sample, store: ImageStore) -> None:
    backend = bench.backend(says(LOOK), chooses(0, finish="length"))
    finding = judged(backend, sample, store, budget=Budget(max_turns=1))
    assert (finding.status, finding.value) == ("over_budget", None)


def test_an_answer_before_the_last_turn_is_free_and_not_counted_as_constrained(
    bench: Bench, sample: Sample, store: ImageStore
) -> None:
    finding = judged(bench.backend(says(final("Wrong Action"))), sample, store)
    assert (finding.label, finding.counts) == ("Wrong Action", {})


def test_a_call_left_in_the_text_at_the_token_limit_is_a_truncation(
    bench: Bench, sample: Sample, store: ImageStore
) -> None:
    backend = bench.backend(says(LOOK, finish="length"), says(final("Wrong Action")))
    finding = judged(backend, sample, store, tool_protocol="native")
    assert (finding.label, finding.counts) == ("Wrong Action", {"malformed_calls": 1, "reminders": 1})
    assert "cut off at its token limit" in bench.seen[1]["messages"][-1]["content"]
