"""Say conversations in the terms of the GenAI conventions and of OpenInference. Images are addresses, never bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from editloupe.chat import Finish, ImagePart, Message, Reply, ToolCall
from editloupe.exports import semconv
from editloupe.exports.episodes import Exchange, Source
from editloupe.values import Json

FINISH: Final[Mapping[Finish, str]] = {
    "stop": "stop",
    "length": "length",
    "tools": "tool_call",
    "refusal": "content_filter",
    "filter": "content_filter",
}
"""Why a reply ended, as the GenAI conventions say it."""


def captured(source: Source, exchange: Exchange) -> dict[str, Json]:
    """Return what was sent and what came back, under both conventions' names."""
    found: dict[str, Json] = {
        semconv.INPUT_MESSAGES: _text([{"role": m.role, "parts": _parts(source, m)} for m in exchange.messages]),
        **_flat(source, semconv.OI_INPUT_MESSAGES, exchange.messages),
    }
    reply = exchange.reply
    if reply is not None:
        said = {"role": "assistant", "parts": _reply_parts(reply), "finish_reason": FINISH[reply.finish]}
        message = exchange.said or Message.of_text("assistant", reply.text)
        found |= {
            semconv.OUTPUT_MESSAGES: _text([said]),
            **_flat(source, semconv.OI_OUTPUT_MESSAGES, [message]),
            semconv.OI_OUTPUT: reply.text,
            semconv.OI_OUTPUT_TYPE: "text/plain",
        }
    return found


def tools(offered: Iterable[Mapping[str, Any]]) -> dict[str, Json]:
    """Return the tools as they were offered."""
    listed = [function(tool) for tool in offered]
    flat: dict[str, Json] = {
        f"{semconv.OI_TOOLS}.{i}.{semconv.OI_TOOL_SCHEMA}": _text(tool) for i, tool in enumerate(listed)
    }
    return {semconv.TOOL_DEFINITIONS: _text([{"type": "function", **tool["function"]} for tool in listed]), **flat}


def function(tool: Mapping[str, Any]) -> dict[str, Any]:
    """Return a tool as OpenAI's chat completions define one."""
    inner = {name: tool[name] for name in ("name", "description", "parameters") if name in tool}
    return {"type": "function", "function": inner}


def _parts(source: Source, message: Message) -> list[dict[str, Any]]:
    if message.role == "tool":
        return [{"type": "tool_call_response", "id": message.tool_call_id, "response": _pieces(source, message)}]
    return _pieces(source, message) + [_call(call) for call in message.tool_calls]


def _pieces(source: Source, message: Message) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in message.parts:
        if not isinstance(part, ImagePart):
            found.append({"type": "text", "content": part.text})
        elif (uri := source.image(part.image)) is not None:
            found.append({"type": "uri", "modality": "image", "mime_type": part.image.media_type, "uri": uri})
        else:
            found.append({"type": "text", "content": lost(part)})
    return found


def lost(part: ImagePart) -> str:
    """Return the text that stands for an image whose bytes are not in the run folder."""
    return f"[{part.alias}: image {part.image.sha256} is not in the run folder]"


def _reply_parts(reply: Reply) -> list[dict[str, Any]]:
    thought = [{"type": "reasoning", "content": reply.reasoning}] if reply.reasoning else []
    text = [{"type": "text", "content": reply.text}] if reply.text else []
    return [*thought, *text, *(_call(call) for call in reply.tool_calls)]


def _call(call: ToolCall) -> dict[str, Any]:
    return {"type": "tool_call", "id": call.id, "name": call.name, "arguments": dict(call.arguments)}


def _flat(source: Source, prefix: str, said: Iterable[Message]) -> dict[str, Json]:
    """OpenInference has no nested values: one attribute a leaf, numbered by message and by part."""
    found: dict[str, Json] = {}
    for i, message in enumerate(said):
        at = f"{prefix}.{i}"
        found[f"{at}.{semconv.OI_ROLE}"] = message.role
        if message.tool_call_id is not None:
            found[f"{at}.{semconv.OI_MESSAGE_CALL_ID}"] = message.tool_call_id
        for j, part in enumerate(message.parts):
            here = f"{at}.{semconv.OI_CONTENTS}.{j}"
            uri = source.image(part.image) if isinstance(part, ImagePart) else None
            if uri is not None:
                found[f"{here}.{semconv.OI_CONTENT_TYPE}"] = "image"
                found[f"{here}.{semconv.OI_CONTENT_IMAGE}.{semconv.OI_IMAGE_URL}"] = uri
            else:
                found[f"{here}.{semconv.OI_CONTENT_TYPE}"] = "text"
                text = lost(part) if isinstance(part, ImagePart) else part.text
                found[f"{here}.{semconv.OI_CONTENT_TEXT}"] = text
        for j, call in enumerate(message.tool_calls):
            here = f"{at}.{semconv.OI_TOOL_CALLS}.{j}"
            found[f"{here}.{semconv.OI_CALL_ID}"] = call.id
            found[f"{here}.{semconv.OI_CALL_NAME}"] = call.name
            found[f"{here}.{semconv.OI_CALL_ARGUMENTS}"] = _text(dict(call.arguments))
    return found


def _text(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
