"""A chat completions server on loopback that refuses what a real one would refuse, and misbehaves on demand.

    with OpenAIServer(says("hello"), fails(429)) as server:
        open_backend(parse_uri(f"openai/tiny-vl?base_url={server.url}"))

Each request takes the next act of the script; the last one stays. What was received lies in `seen` (bodies) and
`headers` (names in lower case); what breaks the protocol is answered with a 400 and kept in `complaints`.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from PIL import Image

from tests.backends.loopback import Act, Body, LoopbackHandler, LoopbackServer, sends

_FIELDS = {
    "model", "messages", "temperature", "top_p", "seed", "max_tokens", "max_completion_tokens", "tools", "tool_choice",
    "n", "stop", "stream", "response_format", "logprobs", "top_logprobs",
}  # fmt: skip


def completion(text: str | None, *, finish: str | None = "stop", usage: Body | None = None, **message: Any) -> Body:
    """A whole answer as a dictionary."""
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "tiny-vl-0613",
        "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": text, **message}}],
        "usage": usage or {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14},
    }


def says(text: str | None, **fields: Any) -> Act:
    """Answers with `completion(text, **fields)`."""
    return sends(json.dumps(completion(text, **fields)).encode())


def fails(status: int, message: str = "it failed", *, headers: dict[str, str] | None = None, **error: Any) -> Act:
    """Answers with an error object."""
    body = json.dumps({"error": {"message": message, "type": "some_error", "param": None, "code": None, **error}})
    return lambda handler, request: handler.answer(status, body.encode(), headers or {})


class Handler(LoopbackHandler):
    """One connection."""

    house: OpenAIServer

    def do_GET(self) -> None:  # noqa: N802 - the standard library names it
        self.house.listed += self.path == "/v1/models"
        if self.path != "/v1/models" or self.house.models is None:
            self.answer(404, b'{"detail":"Not Found"}')
            return
        listed = [{"object": "model", "created": 1_760_000_000, "owned_by": "us", **model} for model in self.house.models]
        self.answer(200, json.dumps({"object": "list", "data": listed}).encode())

    def do_POST(self) -> None:  # noqa: N802 - the standard library names it
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        if self.path != "/v1/chat/completions":
            self.answer(404, b'{"detail":"Not Found"}')
            return
        if self.house.key is not None and self.headers.get("Authorization") != f"Bearer {self.house.key}":
            fails(401, f"Incorrect API key provided: {self.headers.get('Authorization')}")(self, {})
            return
        self.house.raw.append(raw)
        body = json.loads(raw)
        wrong = complaints(body, vllm=self.house.vllm)
        if wrong:
            self.house.complaints.extend(wrong)
            fails(400, "; ".join(wrong))(self, body)
        elif body["model"] != self.house.model:
            fails(404, f"The model {body['model']!r} does not exist", code="model_not_found")(self, body)
        else:
            self.house.take(body, {n.lower(): v for n, v in self.headers.items()})(self, body)


class OpenAIServer(LoopbackServer):
    """The server; a context manager. model: the one it has.   key: the bearer token that it asks for, None for none.

    raw: the bodies as they came.   models: what /models lists, None for a server without; listed: how often it is asked.
    vllm: takes what vLLM takes beyond the protocol: digests of images, and images in tools' messages.
    """

    def __init__(
        self,
        *script: Act,
        model: str = "tiny-vl",
        key: str | None = None,
        models: list[Body] | None = None,
        vllm: bool = False,
    ) -> None:
        super().__init__(*script)
        self.model, self.key, self.models, self.vllm = model, key, models, vllm
        self.raw: list[bytes] = []
        self.listed = 0

    @property
    def url(self) -> str:
        return f"{self.address}/v1"

    handler = Handler


def complaints(body: Body, *, vllm: bool = False) -> list[str]:
    """What is wrong with a request, as sentences; empty where nothing is."""
    found = [f"unknown field {name!r}" for name in sorted(set(body) - _FIELDS)]
    found += _format_complaints(body["response_format"]) if "response_format" in body else []
    temperature = body.get("temperature", 1)
    if not isinstance(temperature, int | float) or not 0 <= temperature <= 2:
        found.append(f"temperature {temperature!r} is not in 0..2")
    open_calls: set[str] = set()
    for number, message in enumerate(body["messages"]):
        found += [f"message {number}: {wrong}" for wrong in _message_complaints(message, open_calls, vllm=vllm)]
    found += [f"call {call!r} has no tool message" for call in sorted(open_calls)]
    for tool in body.get("tools", []):
        function = tool["function"]
        if tool["type"] != "function" or set(function) != {"name", "description", "parameters"}:
            found.append(f"broken tool {tool!r}")
    return found


def _format_complaints(form: Body) -> list[str]:
    """A strict schema is closed and requires all its properties, as OpenAI asks."""
    held = form.get("json_schema", {})
    schema = held.get("schema", {})
    if form.get("type") != "json_schema" or set(held) != {"name", "schema", "strict"} or schema.get("type") != "object":
        return [f"response_format holds no named schema: {form!r}"]
    closed = schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(schema["properties"])
    return [] if closed else [f"Invalid schema for response_format, it must be closed: {schema!r}"]


def _message_complaints(message: Body, open_calls: set[str], *, vllm: bool) -> list[str]:
    found = [f"unknown field {n!r}" for n in sorted(set(message) - {"role", "content", "tool_calls", "tool_call_id"})]
    role, content = message.get("role"), message.get("content")
    if role not in ("system", "user", "assistant", "tool"):
        found.append(f"unknown role {role!r}")
    if role == "tool" and message.get("tool_call_id") not in open_calls:
        found.append(f"tool_call_id {message.get('tool_call_id')!r} answers no call")
    open_calls.discard(str(message.get("tool_call_id")))
    for call in message.get("tool_calls", []):
        open_calls.add(call["id"])
        if call["type"] != "function" or not isinstance(json.loads(call["function"]["arguments"]), dict):
            found.append(f"broken call {call!r}")
    if content == [] or (content is None and not message.get("tool_calls")):
        found.append("no content")
    for block in content if isinstance(content, list) else []:
        found += _block_complaints(block, role, vllm=vllm)
    return found


def _block_complaints(block: Body, role: str | None, *, vllm: bool) -> list[str]:
    if block.get("type") == "text":
        return [] if set(block) == {"type", "text"} and block["text"] else [f"broken text block {block!r}"]
    if block.get("type") != "image_url" or set(block) - ({"uuid"} if vllm else set()) != {"type", "image_url"}:
        return [f"unknown block {str(block)[:80]!r}"]
    if role not in (("user", "tool") if vllm else ("user",)):
        return [f"an image in a message of role {role!r}"]
    try:
        image_of(block["image_url"]["url"])
    except (ValueError, OSError) as error:
        return [f"image: {error}"]
    return []


def image_of(url: str) -> bytes:
    """The bytes of an image data URI. Raises ValueError or OSError where it holds no whole image of its media type."""
    head, _, text = url.partition(",")
    data = base64.b64decode(text, validate=True)
    with Image.open(io.BytesIO(data)) as image:
        image.load()
        if head != f"data:{image.get_format_mimetype()};base64":
            raise ValueError(f"{image.format} data behind {head[:60]!r}")
    return data


@contextmanager
def serving() -> Iterator[Callable[..., OpenAIServer]]:
    """A function that starts servers of the model "m"; none of them may see a request that breaks the protocol."""
    servers: list[OpenAIServer] = []
    with ExitStack() as stack:

        def start(*script: Act, **options: Any) -> OpenAIServer:
            servers.append(stack.enter_context(OpenAIServer(*script, model="m", **options)))
            return servers[-1]

        yield start
    assert [c for s in servers for c in s.complaints] == []
