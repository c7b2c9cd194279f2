"""`check_backend`: every adapter here passes, and what breaks the contract is named, also of a backend of one's own."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from editloupe import Judge, Sample
from editloupe.backends.base import Traits, open_backend
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Reply, Request, Usage
from editloupe.config import JudgeConfig, RunConfig
from editloupe.data.images import ImageStore
from editloupe.errors import ConfigError
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.testing import check_backend
from tests.backends import gemini_server, openai_server
from tests.backends.conftest import CANARY, Bench
from tests.backends.loopback import Act, Body
from tests.conftest import draw_edits, final, pixels


def test_the_baseline_and_a_script_keep_the_contract() -> None:
    check_backend(lambda: open_backend("baseline"))
    check_backend(ScriptedLMM(lambda request: "Green", native_tools=True))


def plays(server: Any, call: Act) -> Act:
    """Calls a tool where one is offered, answers by a schema where there is one, else repeats its key."""

    def act(handler: Any, body: Body) -> None:
        held = "response_format" in body or "responseJsonSchema" in body.get("generationConfig", ())
        first = body.get("tools") and len(body.get("contents") or body["messages"]) == 1
        said: Act = call if first else server.says('{"color": "Green"}' if held else f"a square, {CANARY}")
        said(handler, body)

    return act


CALL = {"id": "c0", "type": "function", "function": {"name": "zoom_in", "arguments": '{"target_image": "A"}'}}
SIGNED = gemini_server.call("zoom_in", signature="c2lnbmF0dXJl", target_image="Edited Image")


@pytest.mark.parametrize("provider", ["openai", "vllm", "google", "langchain"])
def test_every_adapter_keeps_the_contract(provider: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = {"google": "google.genai", "langchain": "langchain_openai"}
    pytest.importorskip(packages.get(provider, "json"), reason=f"{packages.get(provider)} is not installed")
    for name in ("OPENAI_API_KEY", "VLLM_API_KEY", "GOOGLE_API_KEY"):
        monkeypatch.setenv(name, CANARY)
    server: Any = gemini_server if provider == "google" else openai_server
    call = server.says(SIGNED) if provider == "google" else server.says(None, tool_calls=[CALL], finish="tool_calls")
    backend = bench.backend(provider, plays(server, call), key=CANARY)
    reply = check_backend(lambda: bench.open(backend.uri), secrets=[CANARY])
    assert reply.text == "a square, ***"


class Broken(ScriptedLMM):
    """An LMM with one fault, which `complete_` puts in."""

    def __init__(self, fault: Callable[[Request, ImageStore], Reply], **traits: Any) -> None:
        super().__init__(["ok"])
        self._fault = fault
        self.traits = replace(self.traits, **traits)

    def complete(self, request: Request, images: ImageStore) -> Reply:
        return self._fault(request, images)


def once_at_a_time(request: Request, images: ImageStore, inside: threading.Lock = threading.Lock()) -> Reply:  # noqa: B008
    if not inside.acquire(blocking=False):
        raise RuntimeError("two at once")
    time.sleep(0.05)
    inside.release()
    return Reply(text="ok")


def silent_about_the_schema(request: Request, images: ImageStore) -> Reply:
    sampling = {n: v for n, v in request.sampling.to_json().items() if v is not None}
    return Reply(text="ok", sent={"model": "m", **sampling})


def boom(request: Request, images: ImageStore) -> Reply:
    raise KeyError("choices")


BROKEN: list[tuple[ScriptedLMM, str]] = [
    (Broken(lambda r, i: "ok"), "must return a Reply, found str"),  # type: ignore[arg-type, return-value]
    (Broken(lambda r, i: Reply(text="ok", raw={"x": float("nan")})), "from a trace: cannot be written as JSON"),
    (Broken(lambda r, i: Reply(text="ok", finish="done")), "reply.finish must be one of"),  # type: ignore[arg-type]
    (Broken(lambda r, i: Reply(text="ok", usage=Usage(input_tokens=-1))), "usage.input_tokens must be a count"),
    (Broken(lambda r, i: Reply(text="ok"), is_lmm=True), "must name the model"),
    (Broken(lambda r, i: Reply(text="ok", sent={"model": "m"}), is_lmm=True), "temperature was asked for"),
    (Broken(lambda r, i: Reply(text=CANARY)), "its reply shows a secret"),
    (Broken(lambda r, i: Reply(text="ok"), constrains_schema=True), "expected JSON by the schema, found 'ok'"),
    (Broken(silent_about_the_schema, is_lmm=True), r"a schema was asked for.*sent\['dropped'\] must name it"),
    (Broken(lambda r, i: Reply(text="ok"), image_formats=("image/jpeg",)), "must have image/png"),
    (Broken(lambda r, i: Reply(text="ok"), sampling=("heat",)), r"traits.sampling names \['heat'\]"),
    (Broken(boom), "did not answer: KeyError"),
    (Broken(once_at_a_time), "did not answer: RuntimeError"),
    (ScriptedLMM(["ok"], name=f"x{CANARY}"), "uri shows a secret"),
    (ScriptedLMM(["ok"], name="x?b=1&a=2"), "must be canonical"),
    (ScriptedLMM(["ok"], name="x?api_key=1"), "must be canonical: expected .one that can be read"),
]  # fmt: skip


def test_a_broken_backend_is_named_with_its_fault() -> None:
    for backend, message in BROKEN:
        with pytest.raises(AssertionError, match=message) as caught:
            check_backend(backend, secrets=[CANARY])
        assert CANARY not in str(caught.value)


class Mine:
    """A backend that answers with whatever it was given."""

    uri, endpoint, version, traits = "mine/first", "in process", "1", Traits(describes="mine")

    def __init__(self, answer: Any) -> None:
        self.answer, self.asked = answer, 0

    def complete(self, request: Any, images: Any) -> Any:
        self.asked += 1
        return self.answer


class Bare:
    """Has the method alone."""

    def complete(self, request: Any, images: Any) -> Reply:
        return Reply(text="x")


class Described(Mine):
    traits: Any = "sees everything"


def test_what_is_no_backend_is_refused_with_the_way_to_make_one() -> None:
    for given, told in (
        (lambda request, images: "Wrong Action", "nothing else; missing a required argument: 'images'"),
        (42, r"openai/gpt-4\.1, or a function .*, or an object with .*complete\(request, images\) -> Reply.*found 42"),
        (b"openai/m", "expected provider/model"), ("", "expected provider/model"), (object(), r"docs/backends\.md"),
        (None, r"Judge\(None\): expected provider/model.* leave it out for the baseline"),
        (Mine, r"found a class; make one: Mine\("),
        (Bare(), "class Bare has no uri, endpoint, version, traits; expected a function .*, or an object with"),
        (Described("x"), r"backend mine/first: traits is a str; expected .*Traits\(describes="),
    ):  # fmt: skip
        with pytest.raises(ConfigError, match=told):
            Judge(given)  # type: ignore[arg-type]
    assert Judge().id == Judge("baseline").id


@pytest.mark.parametrize(("answer", "found"), [("Wrong Action", "str"), (Reply(text=None), "a Reply whose")])  # type: ignore[arg-type]
def test_an_answer_that_is_no_reply_is_a_failure_that_says_what_to_return(answer: Any, found: str, tmp_path: Path):
    told = rf"backend mine/first: complete\(request, images\) returned {found}.*; expected .*Reply\(text="
    findings = Judge(Mine(answer)).judge(Sample.from_images(*pixels(1, spots=1), "Make it red."))
    assert {finding.status for finding in findings} == {"backend_failed"}
    assert all(re.search(told, finding.reason) for finding in findings)
    lmm = Mine(answer)
    config = RunConfig(path=draw_edits(tmp_path / "edits", 3), judge=JudgeConfig(backend=lmm), concurrency=1)
    outcome = drive(open_setup(config), tmp_path / "run")
    # The next question would have no answer either.
    assert lmm.asked == 1 and re.search(told, outcome.ledger.refused)
    assert "ok" not in {finding.status for finding in outcome.findings}
    # And a backend that answers goes on in the same folder.
    right = Mine(Reply(text=final("Wrong Action")))
    drive(open_setup(config.with_judge(JudgeConfig(backend=right))), tmp_path / "run")
    # Three edits. For visual consistency that is no label; one reminder is spent on each, since the reply repeats itself.
    assert right.asked == 3 + 3 * 2
