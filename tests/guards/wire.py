"""A server that takes questions in the dialects of OpenAI and Gemini, keeps them, and answers what a scenario says.

It checks nothing: whether a request is well formed is what the servers of `tests/backends` tell.
"""

from __future__ import annotations

import base64
import io
import json
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, ClassVar, Self

import numpy as np
from PIL import Image

Body = Mapping[str, Any]


@dataclass(frozen=True)
class Call:
    """A tool call that the model makes."""

    name: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        call = {"name": self.name, "parameters": self.arguments}
        return f"<Start Thinking>I look.</Start Thinking>\n<tool_call>{json.dumps(call)}</tool_call>"


Says = str | Call


@dataclass(frozen=True)
class Part:
    """A piece of a message as it was sent."""

    kind: str
    """text, image, call or result."""
    text: str
    """The words; of an image its size, type and look."""


@dataclass
class Asked:
    """A request as it was sent."""

    messages: list[tuple[str, list[Part]]]
    settings: dict[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """All words of the first messages, up to the first answer."""
        first = self.messages[: next((n for n, (role, _) in enumerate(self.messages) if role in ANSWERERS), None)]
        return "\n".join(part.text for _, parts in first for part in parts if part.kind == "text")

    @property
    def turn(self) -> int:
        """How many answers it holds."""
        return sum(role in ANSWERERS for role, _ in self.messages)


ANSWERERS = ("assistant", "model")


def look(data: bytes, media_type: str) -> str:
    """What tells a picture from another: size, type, mean color, and how bright each sixteenth of it is, from 0 to f."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    pixels = np.asarray(image, dtype=float)
    mean = ",".join(f"{channel:.0f}" for channel in pixels.mean(axis=(0, 1)))
    grid = np.asarray(image.convert("L").resize((4, 4), Image.Resampling.BOX)) // 16
    levels = " ".join("".join(f"{level:x}" for level in line) for line in grid)
    return f"{image.width}×{image.height} {media_type} mean {mean} light {levels}"


def read_openai(body: Body) -> Asked:
    """A request in the dialect of chat completions."""
    messages = []
    for message in body["messages"]:
        content = message.get("content")
        parts = [] if content is None else [content] if isinstance(content, str) else content
        found = [_openai_part(part) for part in parts]
        if message["role"] == "tool":
            found = [Part("result", ""), *found]
        found += [Part("call", call["function"]["name"]) for call in message.get("tool_calls") or ()]
        messages.append((message["role"], found))
    tools = [(tool["function"]["name"], tool["function"]["parameters"]) for tool in body.get("tools", [])]
    return Asked(messages, settings(body, tools, leave=("messages", "tools", "model")))


def _openai_part(part: str | Body) -> Part:
    if isinstance(part, str) or part["type"] == "text":
        return Part("text", part if isinstance(part, str) else part["text"])
    head, _, data = part["image_url"]["url"].partition(";base64,")
    return Part("image", look(base64.b64decode(data), head.removeprefix("data:")))


def read_gemini(body: Body) -> Asked:
    """A request in the dialect of generateContent, whose names of fields the SDK writes in two ways."""
    body = camel(body)
    system = body.get("systemInstruction", {}).get("parts", [])
    contents = [*([{"role": "system", "parts": system}] if system else []), *body["contents"]]
    messages = [(content["role"], [_gemini_part(part) for part in content["parts"]]) for content in contents]
    declared = [one for tool in body.get("tools", []) for one in tool["functionDeclarations"]]
    tools = [(one["name"], one.get("parametersJsonSchema") or one.get("parameters")) for one in declared]
    config = body.get("generationConfig", {})
    return Asked(
        messages, settings({**body, **config}, tools, leave=("contents", "tools", "systemInstruction", "generationConfig"))
    )


def camel(value: Any) -> Any:
    """Write names of fields as the reference does, and leave what a user has named."""
    if isinstance(value, list):
        return [camel(one) for one in value]
    if not isinstance(value, dict):
        return value
    named = {re.sub("_([a-z])", lambda found: found[1].upper(), name): one for name, one in value.items()}
    return {
        name: one if name in ("args", "response", "parametersJsonSchema") else camel(one) for name, one in named.items()
    }


def _gemini_part(part: Body) -> Part:
    if "text" in part:
        return Part("text", part["text"])
    if "functionCall" in part:
        return Part("call", part["functionCall"]["name"])
    if "functionResponse" in part:
        return Part("result", " ".join(str(said)[:24] for said in part["functionResponse"]["response"].values()))
    inline = part["inlineData"]
    data = base64.b64decode(inline["data"].replace("-", "+").replace("_", "/"))
    return Part("image", look(data, inline["mimeType"]))


def settings(body: Body, tools: Sequence[tuple[str, Any]], leave: Sequence[str]) -> dict[str, Any]:
    """What a request says beside its messages; of tools the names of their parameters."""
    found = {name: value for name, value in sorted(body.items()) if name not in leave}
    declared = {name: sorted(schema.get("properties", {})) for name, schema in sorted(tools)}
    return {**found, **({"tools": declared} if declared else {})}


class Wire:
    """The server; a context manager. says: what to answer to a request.   asked: all requests, in order."""

    def __init__(self, says: Callable[[Asked], Says]) -> None:
        self.asked: list[Asked] = []
        self.says = says
        self.lock = threading.Lock()
        handler = type("Handler", (_Handler,), {"wire": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02})

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def answer(self, path: str, body: Body) -> Body:
        """The whole answer to a request."""
        gemini = "contents" in body
        asked = read_gemini(body) if gemini else read_openai(body)
        with self.lock:
            self.asked.append(asked)
        said = self.says(asked)
        native = isinstance(said, Call) and "tools" in body
        return _gemini_answer(said, native=native) if gemini else _openai_answer(said, native=native)


def _openai_answer(said: Says, *, native: bool) -> Body:
    message: dict[str, Any] = {"role": "assistant", "content": None if native else str(said)}
    if native:
        assert isinstance(said, Call)
        function = {"name": said.name, "arguments": json.dumps(said.arguments)}
        message["tool_calls"] = [{"id": "call_1", "type": "function", "function": function}]
    return {
        "id": "1",
        "object": "chat.completion",
        "created": 1_760_000_000,
        "model": "guard",
        "choices": [{"index": 0, "finish_reason": "tool_calls" if native else "stop", "message": message}],
        "usage": {"prompt_tokens": 1000, "completion_tokens": 20, "total_tokens": 1020},
    }


def _gemini_answer(said: Says, *, native: bool) -> Body:
    part: dict[str, Any] = {"text": str(said)}
    if native:
        assert isinstance(said, Call)
        part = {"functionCall": {"name": said.name, "args": dict(said.arguments)}}
    return {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 1000, "candidatesTokenCount": 20, "totalTokenCount": 1020},
        "modelVersion": "guard",
    }


class _Handler(BaseHTTPRequestHandler):
    wire: ClassVar[Wire]
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._send({"object": "list", "data": [{"id": "guard", "object": "model"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(self.wire.answer(self.path, body))

    def _send(self, answer: Body) -> None:
        data = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(data)
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        """Guards read `asked`, not a log."""
