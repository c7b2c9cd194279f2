"""A model served by vLLM: chat completions with what vLLM adds to them.

vllm/MODEL                                          http://127.0.0.1:8000/v1, where `vllm serve MODEL` answers
vllm/MODEL?base_url=http://gpu-box:8000/v1          another address

Parameters are those of the openai backend; no key is needed, `VLLM_API_KEY` is sent where it is set. Beyond the openai
backend: pictures inside a tool's message, where the model's template takes them, and each picture's digest as its `uuid`,
so that the server's cache knows it again without reading it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from editloupe.backends import openai, retry
from editloupe.backends.base import BackendURI
from editloupe.backends.endpoint import Provider

VLLM: Final = Provider(
    traits=replace(openai.OPENAI.traits, describes="served by vLLM at {place}", tool_result_images=True),
    base_url="http://127.0.0.1:8000/v1",
    key_variables=("VLLM_API_KEY",),
    key_needed=False,
    image_ids=True,
    batches=False,
)


def open_backend(uri: BackendURI, *, policy: retry.RetryPolicy = retry.DEFAULT_POLICY) -> openai.OpenAIBackend:
    """Open the backend behind `vllm/MODEL`. Nothing is sent yet; errors as `openai.open_backend` has them."""
    return openai.open_backend(uri, provider=VLLM, policy=policy)
