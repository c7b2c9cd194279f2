"""What a call took where its endpoint does not say: by rule, so that a budget holds with servers that tell no usage."""

from __future__ import annotations

import json
from typing import Final

from editloupe.backends.base import Traits
from editloupe.chat import Reply, Request, Usage

CHARACTERS_A_TOKEN: Final = 4


def lacks_usage(usage: Usage) -> bool:
    """Return whether the endpoint left out the input or the output tokens of a call."""
    return usage.input_tokens is None or usage.output_tokens is None


def estimate_usage(request: Request, reply: Reply, traits: Traits) -> Usage | None:
    """Estimate input and output tokens where the endpoint left them out. A field that it gave is None, so that both add up.

    A token for every 4 characters of text, tools and thoughts that can be seen; images by the rule of the model's maker at
    the size at which they are sent. None where the input is missing and no rule is known for its images.
    """
    sizes = [traits.image_policy.size(p.image.width, p.image.height) for m in request.messages for p in m.images]
    rule, told = traits.image_tokens, reply.usage
    if told.input_tokens is None and sizes and rule is None:
        return None
    asked = [message.text for message in request.messages]
    asked += [json.dumps(call.to_json()) for message in request.messages for call in message.tool_calls]
    asked += [json.dumps(tool.to_json()) for tool in request.tools]
    said = [reply.text, reply.reasoning, *(json.dumps(call.to_json()) for call in reply.tool_calls)]
    # At least 1 token of text: a call that took nothing would never use a budget up.
    read, written = (max(1, -(-sum(map(len, texts)) // CHARACTERS_A_TOKEN)) for texts in (asked, said))
    pictures = sum(rule.count(*size) for size in sizes) if rule else 0
    return Usage(
        input_tokens=read + pictures if told.input_tokens is None else None,
        output_tokens=written if told.output_tokens is None else None,
    )
