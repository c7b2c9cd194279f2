"""The vllm backend and the whole loop against a real vLLM with tiny random models: `make test-vllm`.

What a random model says is noise; that it is asked rightly, that its label is one of the rubric's, and that what vLLM
counts and refuses is understood, is what is tested. One server a model.
"""

from __future__ import annotations

import json
import math
import re
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe.backends import vllm
from editloupe.backends.base import parse_uri
from editloupe.backends.openai import OpenAIBackend
from editloupe.chat import ImagePart, Message, Part, Request, Sampling, TextPart, ToolCall, ToolSpec
from editloupe.data.images import ImageStore
from editloupe.errors import Rejected
from editloupe.tasks import Budget
from editloupe.values import Sample
from tests.agent.test_loop import LABELS, judged
from tests.backends import vllm_peer
from tests.backends.conftest import image

pytestmark = [pytest.mark.vllm, pytest.mark.filterwarnings("default")]

SHORT = Sampling(max_tokens=24)
ZOOM = ToolSpec(name="zoom_in", description="Enlarge a part.", parameters={"type": "object", "properties": {"box": {}}})


class Peer:
    """A running server, its model and the backend that asks it."""

    def __init__(self, kind: str, path: Path, address: str) -> None:
        self.kind, self.path, self.address = kind, path, address
        self.backend: OpenAIBackend = vllm.open_backend(parse_uri(f"vllm/{path}?base_url={address}/v1"))

    def forget(self) -> None:
        """Empty the server's prefix cache."""
        urllib.request.urlopen(f"{self.address}/reset_prefix_cache", data=b"", timeout=60).close()

    def metric(self, name: str) -> float:
        """A counter of the server's /metrics, added up over its labels."""
        with urllib.request.urlopen(f"{self.address}/metrics", timeout=60) as answer:
            text = answer.read().decode()
        values = re.findall(rf"^{re.escape(name)}(?:\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        assert values, f"{name} is none of the server's metrics"
        return math.fsum(map(float, values))


@pytest.fixture(scope="module", params=vllm_peer.KINDS)
def peer(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Peer]:
    environment = vllm_peer.environment()
    if environment is None:
        pytest.skip("no vLLM environment: `make test-vllm` makes one, EDITLOUPE_VLLM names one")
    path = vllm_peer.tiny_model(environment, request.param, tmp_path_factory.mktemp("models"))
    with pytest.MonkeyPatch.context() as patch, vllm_peer.served(environment, path) as address:
        patch.delenv("VLLM_API_KEY", raising=False)
        peer = Peer(request.param, path, address)
        yield peer
        peer.backend.close()


def user(*parts: Part | str) -> Message:
    return Message(role="user", parts=tuple(TextPart(text=part) if isinstance(part, str) else part for part in parts))


def test_images_are_counted_by_the_server_and_the_same_request_is_computed_once(peer: Peer) -> None:
    store = ImageStore()
    parts = [ImagePart(image=image(store, value=v, size=(200, 150)), alias=str(v)) for v in (10, 90, 170)]
    counted = []
    for count in (0, 1, 3):
        reply = peer.backend.complete(Request(messages=(user("Look.", *parts[:count]),), sampling=SHORT), store)
        assert (reply.usage.input_tokens or 0) > (reply.usage.image_tokens or 0)
        assert reply.model == str(peer.path)
        counted.append(reply.usage.image_tokens or 0)
    none, one, three = counted
    assert (none, 0 < one <= 66, three) == (0, True, 3 * one)
    # A block of the cache is 128 tokens on a CPU.
    request = Request(messages=(user("Again. " * 40, parts[0]),), sampling=SHORT)
    first, second = (peer.backend.complete(request, store) for _ in range(2))
    assert (first.text, (second.usage.cached_tokens or 0) > 0) == (second.text, True)


def test_pictures_stay_in_the_tools_message_and_too_many_say_what_to_do(peer: Peer) -> None:
    store = ImageStore()
    crop = ImagePart(image=image(store, size=(120, 120)), alias="Crop 1")
    call = ToolCall(id="c1", name="zoom_in", arguments={"box": "A"})
    messages = (
        user("Look.", ImagePart(image=image(store, value=10, size=(120, 120)), alias="A")),
        Message(role="assistant", parts=(), tool_calls=(call,)),
        Message(role="tool", parts=(TextPart(text="Crop 1:"), crop), tool_call_id="c1"),
        Message.of_text("user", "Go on."),
    )
    reply = peer.backend.complete(Request(messages=messages, tools=(ZOOM,), sampling=SHORT), store)
    assert reply.sent["tool_images"] == "in the tool's message"
    alone = peer.backend.complete(Request(messages=messages[:1], sampling=SHORT), store)
    assert reply.usage.image_tokens == 2 * (alone.usage.image_tokens or 0) > 0
    parts = [ImagePart(image=image(store, value=v), alias=str(v)) for v in range(vllm_peer.IMAGES + 1)]
    with pytest.raises(Rejected, match=f"At most {vllm_peer.IMAGES} image.*--limit-mm-per-prompt"):
        peer.backend.complete(Request(messages=(user(*parts),), sampling=SHORT), store)


class Insists:
    """The served model, held to a tool call in its first turns: a random model would never make one by itself.

    The rest of the conversation, and what stands in it, is the loop's and the server's.
    """

    def __init__(self, backend: OpenAIBackend, turns: int, *, native: bool) -> None:
        self._backend, self._turns, self._native = backend, turns, native
        self.asked: list[Request] = []
        self.replies: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)

    def complete(self, request: Request, images: ImageStore) -> Any:
        turn, reply = len(self.asked), self._backend.complete(request, images)
        self.asked.append(request)
        self.replies.append(reply)
        if turn >= self._turns:
            return reply
        box: list[Any] = [100 + 50 * turn, 100, 500 + 50 * turn, 500]
        arguments = {"target_image": "Edited Image", "bbox": box}
        if self._native:
            asked = ToolCall(id=f"c{turn}", name="zoom_in", arguments=arguments)
            return replace(reply, tool_calls=(asked,), finish="tools")
        call = json.dumps({"name": "zoom_in", "parameters": arguments})
        return replace(reply, text=f"<tool_call>{call}</tool_call>", finish="stop")


SHORTLY: dict[str, Any] = {"sampling": SHORT, "tools": ("zoom_in",)}


@pytest.mark.parametrize("protocol", ["text", "native"])
def test_six_turns_end_in_a_label_and_are_read_from_the_prefix_cache(
    peer: Peer, sample: Sample, store: ImageStore, protocol: str
) -> None:
    names = [f"vllm:{cache}_{what}_total" for cache in ("prefix_cache", "mm_cache") for what in ("queries", "hits")]
    peer.forget()
    before = [peer.metric(n) for n in names]
    model = Insists(peer.backend, 6, native=protocol == "native")
    finding = judged(model, sample, store, budget=Budget(max_turns=6), tool_protocol=protocol, **SHORTLY)
    assert (finding.status, finding.turns, finding.label in LABELS) == ("ok", 6, True)
    assert [m.role for m in model.asked[-1].messages].count("tool") == (6 if protocol == "native" else 0)
    assert model.asked[-1].answer_schema is not None
    # Two pictures at first, one more a crop, each counted by the server.
    pictures_told = [r.usage.image_tokens for r in model.replies]
    assert (pictures_told, len(pictures_told)) == (sorted(set(pictures_told)), 7)
    queries, hits, pictures, known = (peer.metric(n) - b for n, b in zip(names, before, strict=True))
    sent = [r.usage.input_tokens for r in model.replies]
    # What was sent before is sent again, byte by byte: all but each request's own end.
    shared = sum(sent[:-1])
    assert queries == sum(sent), (peer.kind, sent)
    # 2 + 3 + … + 8 pictures in seven requests, of which eight are new, at most: a random crop may be one of before.
    assert (pictures, known >= 35 - 8) == (35, True)
    # The cache holds whole blocks, on a CPU of 128 tokens.
    assert shared - 128 * len(sent) <= hits <= shared


def test_a_conversation_that_outgrows_the_context_is_over_budget(peer: Peer, sample: Sample, store: ImageStore) -> None:
    class Talks(Insists):
        def complete(self, request: Request, images: ImageStore) -> Any:
            return replace(super().complete(request, images), text="blah " * 6000)

    finding = judged(Talks(peer.backend, 0, native=False), sample, store, **SHORTLY)
    assert (finding.status, finding.value) == ("over_budget", None)
    assert "24576" in finding.reason
