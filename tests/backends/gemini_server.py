"""A generateContent server on loopback that refuses what the real one would refuse, and misbehaves on demand.

    with GeminiServer(says("hello"), fails(429)) as server:
        open_backend(parse_uri(f"google/tiny-gemini?base_url={server.url}"))

Each request takes the next act of the script; the last one stays. What was received lies in `seen` (bodies) and
`headers` (names in lower case); what breaks the protocol is answered with a 400 and kept in `complaints`.
"""

from __future__ import annotations

import base64
import json
import re
from typing import Any

from tests.backends.loopback import Act, Body, LoopbackHandler, LoopbackServer, sends
from tests.backends.openai_server import image_of

_FIELDS = {"contents", "systemInstruction", "generationConfig", "tools", "toolConfig", "safetySettings"}
_GENERATION = {
    "temperature", "topP", "seed", "maxOutputTokens", "responseMimeType", "responseJsonSchema", "thinkingConfig",
    "responseLogprobs", "logprobs",
}  # fmt: skip
_PART = {"text", "inlineData", "functionCall", "functionResponse", "thought", "thoughtSignature"}
_FREE = ("args", "response", "parametersJsonSchema", "responseJsonSchema")
_DATA = ("text", "inlineData", "functionCall", "functionResponse")


def answer(*parts: Body, finish: str | None = "STOP", usage: Body | None = None, **candidate: Any) -> Body:
    """A whole answer as a dictionary."""
    content = {"content": {"role": "model", "parts": list(parts)}} if parts else {"content": {"role": "model"}}
    return {
        "candidates": [{**content, "finishReason": finish, "index": 0, **candidate}],
        "usageMetadata": usage or {"promptTokenCount": 11, "candidatesTokenCount": 3, "totalTokenCount": 14},
        "modelVersion": "tiny-gemini-002",
        "responseId": "r1",
    }


def says(*parts: str | Body, **fields: Any) -> Act:
    """Answers with these parts; a string is a part of text."""
    made = [{"text": part} if isinstance(part, str) else part for part in parts]
    return sends(json.dumps(answer(*made, **fields)).encode())


def call(name: str, /, id: str | None = None, signature: str | None = None, **args: Any) -> Body:
    """A part that calls a function."""
    part: Body = {"functionCall": {"name": name, "args": args} | ({"id": id} if id else {})}
    return part | ({"thoughtSignature": signature} if signature else {})


def blocks(reason: str = "SAFETY") -> Act:
    """The prompt itself is refused: no candidate."""
    body = {"promptFeedback": {"blockReason": reason}, "usageMetadata": {"promptTokenCount": 11}, "modelVersion": "m"}
    return sends(json.dumps(body).encode())


def fails(code: int, message: str = "it failed", *details: Body, status: str = "SOME", **headers: str) -> Act:
    """Answers with an error object. details: such as `retry_info("7s")`."""
    error: Body = {"code": code, "message": message, "status": status, **({"details": list(details)} if details else {})}
    return lambda handler, request: handler.answer(code, json.dumps({"error": error}).encode(), headers)


def retry_info(delay: str) -> Body:
    return {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay}


class Handler(LoopbackHandler):
    """One connection."""

    house: GeminiServer

    def do_POST(self) -> None:  # noqa: N802 - the standard library names it
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        model = self.path.removeprefix("/v1beta/models/").removesuffix(":generateContent")
        if self.path != f"/v1beta/models/{model}:generateContent":
            self.answer(404, b"<html>Not Found</html>", {"Content-Type": "text/html"})
            return
        if self.headers.get("x-goog-api-key") is None:
            self.house.complaints.append("no header x-goog-api-key")
        if self.house.key is not None and self.headers.get("x-goog-api-key") != self.house.key:
            told = f"API key not valid: {self.headers.get('x-goog-api-key')}. Please pass a valid API key."
            detail = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
            fails(400, told, detail, status="INVALID_ARGUMENT")(self, {})
            return
        body = camel(json.loads(raw))
        wrong = complaints(body)
        if wrong:
            self.house.complaints.extend(wrong)
            fails(400, "; ".join(wrong), status="INVALID_ARGUMENT")(self, body)
        elif model != self.house.model:
            fails(404, f"models/{model} is not found for API version v1beta", status="NOT_FOUND")(self, body)
        else:
            self.house.take(body, {n.lower(): v for n, v in self.headers.items()})(self, body)


class GeminiServer(LoopbackServer):
    """The server; a context manager. model: the one it has.   key: what it asks for in x-goog-api-key, None for none."""

    handler = Handler

    def __init__(self, *script: Act, model: str = "tiny-gemini", key: str | None = None) -> None:
        super().__init__(*script)
        self.model, self.key = model, key
        self.signatures: set[bytes] = set()

    @property
    def url(self) -> str:
        return self.address


def camel(value: Any, *, free: bool = False) -> Any:
    """Names of fields in the case of the API's reference; it takes both, and the SDK mixes them. free: a user's names."""
    if isinstance(value, list):
        return [camel(item, free=free) for item in value]
    if not isinstance(value, dict):
        return value
    ours = {name if free else re.sub("_([a-z])", lambda found: found[1].upper(), name): value[name] for name in value}
    return {name: camel(item, free=free or name in _FREE) for name, item in ours.items()}


def complaints(body: Body) -> list[str]:
    """What is wrong with a request, as sentences; empty where nothing is."""
    config, contents = body.get("generationConfig", {}), body.get("contents") or []
    found = [f"unknown field {name!r}" for name in sorted({*set(body) - _FIELDS, *set(config) - _GENERATION})]
    if not 0 <= config.get("temperature", 1) <= 2:
        found.append(f"temperature {config['temperature']!r} is not in 0..2")
    if "responseJsonSchema" in config and config.get("responseMimeType") != "application/json":
        found.append("responseJsonSchema needs the responseMimeType application/json")
    roles = [content.get("role") for content in contents]
    if not len(roles) % 2 or roles != [("user", "model")[number % 2] for number in range(len(roles))]:
        found.append(f"roles {roles}: they alternate, and the user has the first word and the last")
    open_calls: list[tuple[str | None, str]] = []
    for number, content in enumerate(contents):
        parts = content.get("parts") or []
        if set(content) != {"role", "parts"} or not parts:
            found.append(f"content {number}: no parts, or unknown fields in {sorted(content)}")
        found += [f"content {number}: {wrong}" for part in parts for wrong in _part_complaints(part, content.get("role"))]
        answers = [_key(part["functionResponse"]) for part in parts if "functionResponse" in part]
        if sorted(answers, key=str) != sorted(open_calls, key=str):
            found.append(f"content {number}: function responses {answers} do not answer the calls {open_calls}")
        open_calls = [_key(part["functionCall"]) for part in parts if "functionCall" in part]
    for function in (one for tool in body.get("tools", []) for one in tool.get("functionDeclarations", [])):
        if set(function) != {"name", "description", "parametersJsonSchema"}:
            found.append(f"broken function declaration {sorted(function)}")
    mode = body.get("toolConfig", {}).get("functionCallingConfig", {}).get("mode", "AUTO")
    return found if mode in ("AUTO", "ANY", "NONE") else [*found, f"unknown mode {mode!r}"]


def _key(part: Body) -> tuple[str | None, str]:
    return part.get("id"), part["name"]


def _part_complaints(part: Body, role: str | None) -> list[str]:
    found = [f"unknown field {name!r}" for name in sorted(set(part) - _PART)]
    held, signed = [name for name in _DATA if name in part], "thoughtSignature" in part
    if len(held) != 1 and (held or not signed):
        found.append(f"a part holds exactly one of {_DATA}, found {held}")
    if part.get("text") == "" and not signed:
        found.append("an empty text")
    called, answered = part.get("functionCall"), part.get("functionResponse")
    if called and (role != "model" or not isinstance(called.get("args", {}), dict)):
        found.append("a broken functionCall")
    if answered and (set(answered) - {"id", "name", "response"} or not isinstance(answered.get("response"), dict)):
        found.append("a broken functionResponse")
    try:
        decoded(part.get("thoughtSignature", ""))
        if "inlineData" in part:
            data = base64.b64encode(decoded(part["inlineData"]["data"])).decode()
            image_of(f"data:{part['inlineData']['mimeType']};base64,{data}")
    except (ValueError, OSError) as error:
        found.append(f"no base64, or no image of its media type: {error}")
    return found


def decoded(text: str) -> bytes:
    """Base64 of either alphabet, as the API takes it."""
    return base64.b64decode(text.replace("-", "+").replace("_", "/"), validate=True)


def pictures(body: Body) -> list[bytes]:
    """The images of a request, in order."""
    return [decoded(p["inlineData"]["data"]) for c in body["contents"] for p in c["parts"] if "inlineData" in p]
