"""Chat completions over the official `openai` SDK: OpenAI itself and every server that speaks its protocol.

openai/MODEL                                        https://api.openai.com/v1
openai/MODEL?base_url=http://127.0.0.1:8000/v1      any compatible server: llama.cpp, Ollama, LM Studio, a gateway

Further parameters stand in docs/backends.md. How requests, replies and errors are translated stands in openai_wire.py.
The body is made of pieces that are encoded once, and posted through the SDK's own door: headers, certificates, proxies,
time-outs and errors are the SDK's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from editloupe.backends import openai_wire as wire
from editloupe.backends import retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.batch.base import Batches, InBatches
from editloupe.backends.endpoint import Endpoint, Provider, is_loopback, read_endpoint
from editloupe.backends.failures import NO_IMAGES, Failed, failure
from editloupe.backends.payload import ImageURLs, at, items_at, loads
from editloupe.backends.remote import TOOL_IMAGES
from editloupe.backends.retry import RetryPolicy
from editloupe.backends.transport import bounded
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, Rejected
from editloupe.values import ImageRef, Json

if TYPE_CHECKING:
    import openai

LOOK_S: Final = 2.0
"""Most seconds for a server's list of models before its first question."""


OPENAI: Final = Provider(
    traits=Traits(
        describes="over chat completions at {place}", native_tools=True, constrains_schema=True, gives_logprobs=True
    ),
    base_url="https://api.openai.com/v1",
    base_url_variable="OPENAI_BASE_URL",
    key_variables=("OPENAI_API_KEY",),
)


def open_backend(
    uri: BackendURI, *, provider: Provider = OPENAI, policy: RetryPolicy = retry.DEFAULT_POLICY
) -> OpenAIBackend:
    """Open the backend behind `openai/MODEL`, or another provider's that speaks the protocol. Nothing is sent yet.

    Raises ConfigError: no model, an unknown parameter, a base_url that cannot be used, a missing key or package.
    """
    endpoint = read_endpoint(uri, provider)
    try:
        import openai
    except ImportError as error:
        raise ConfigError(f"backend {uri.provider!r} needs the package openai: pip install 'openai>=2.30,<4'") from error
    # A proxy from the environment has no business between us and a server on this machine. A redirect would take the
    # pictures elsewhere.
    http = bounded(openai.DefaultHttpxClient, endpoint)(trust_env=not is_loopback(endpoint.url), follow_redirects=False)
    sdk = openai.OpenAI(api_key=endpoint.key or "none", base_url=endpoint.url, max_retries=0, http_client=http)
    return OpenAIBackend(endpoint, sdk, policy=policy)


class OpenAIBackend(InBatches):
    """A model behind a chat completions endpoint."""

    def __init__(self, endpoint: Endpoint, sdk: openai.OpenAI, *, policy: RetryPolicy) -> None:
        super().__init__(endpoint, hint=wire.BASE_URL_HINT, close=sdk.close, policy=policy)
        self._sdk = sdk
        self._reads: list[Json] | None = None
        """What its list of models says that it reads, once it was asked."""
        self._image_urls = ImageURLs(self.traits.image_policy)

    def context_limit(self) -> int | None:
        """Return the tokens that one conversation may have; None where the endpoint's list of models does not say.

        Raises BackendError.
        """
        found = self._listed(self._at.timeout_s)
        # vLLM's name, those of gateways, llama.cpp's.
        limits = [at(found, name) for name in ("max_model_len", "context_length", "context_window")]
        return next((n for n in (*limits, at(found, "meta", "n_ctx")) if type(n) is int and n > 0), None)

    def _listed(self, timeout_s: float) -> Mapping[str, Json]:
        """Return what the endpoint's list of models says of this one. Raises BackendError."""
        try:
            listed = items_at(loads(self._call("get", "/models", options={"timeout": timeout_s})), "data")
        except Failed as error:
            raise failure(error.told, self._at, answered=self._first.answered, hint=self._hint) from None
        except ValueError as error:
            raise Rejected(f"{self._at.where}: /models is not JSON") from error
        model = self._uri.model
        return next((entry for entry in listed if at(entry, "id") == model), listed[0] if len(listed) == 1 else {})

    def _look(self) -> None:
        super()._look()
        if self._at.url == self._at.provider.base_url and not is_loopback(self._at.url):
            return
        if self._reads is None:
            self._reads = []
            with suppress(BackendError):
                listed = self._listed(min(LOOK_S, self._at.timeout_s / 4))
                self._reads = items_at(listed, "architecture", "input_modalities")
        if self._reads and "image" not in self._reads:
            told = f"its list of models says that it reads {', '.join(map(str, self._reads))}"
            raise Rejected(f"{self._at.where}: {told}; {NO_IMAGES}", for_all=True)

    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], bytes]:
        # Now, while other calls are under way.
        inside = self._inside(self._refused)
        made = self._pieces(request, images, inside=inside)

        def ask(refused: frozenset[str]) -> bytes:
            moved = inside and TOOL_IMAGES in refused
            pieces = self._pieces(request, images, inside=False) if moved else made
            body = wire.body_of(self._sent(request, refused), pieces)
            options = {"headers": {"content-type": "application/json"}}
            return self._call("post", "/chat/completions", content=body, options=options)

        return ask

    def _inside(self, refused: frozenset[str]) -> bool:
        """Return whether pictures stand in tools' messages."""
        return self.traits.tool_result_images and TOOL_IMAGES not in refused

    def _pieces(self, request: Request, images: ImageStore, *, inside: bool) -> list[bytes]:
        urls, ids = partial(self._image_urls.ascii, images), self._at.provider.image_ids
        return wire.pieces_of(request, urls, tool_images=inside, image_ids=ids)

    def batches(self, folder: Path) -> Batches:
        """Return the batch endpoint. Raises ConfigError for vLLM, whose server has none."""
        from editloupe.backends.batch.openai import OpenAIBatches

        if not self._at.provider.batches:
            raise ConfigError(
                f"--batch: {self.uri} has no batch endpoint. Write files with --set batch_file=DIR, run each with `vllm "
                "run-batch -i FILE -o ANSWERS/FILE`, then give the same command with --set batch_answers=ANSWERS too"
            )
        return OpenAIBatches(self, self._sdk)

    def _body(
        self, request: Request, images: ImageStore, refused: frozenset[str], picture: Callable[[ImageRef], object] | None
    ) -> bytes:
        pieces = self._pieces(request, images, inside=self._inside(refused))
        return wire.body_of(self._sent(request, refused), pieces)

    def _sent(self, request: Request, refused: frozenset[str]) -> dict[str, Json]:
        return wire.parameters_of(self._uri.model, request, refused)

    def _parsed(self, answer: Any, request: Request, sent: dict[str, Json], *, answered: bool) -> Reply:
        return wire.read_reply(answer, sent, self._at, tokens=request.top_logprobs is not None, answered=answered)

    def _call(self, verb: str, path: str, **options: Any) -> bytes:
        """Return the body of an answer. Raises BackendError: Failed for one that is a failure."""
        return self._ours(lambda: bytes(getattr(self._sdk, verb)(path, cast_to=bytes, **options)))

    def _named(self, failed: Failed, request: Request, refused: frozenset[str]) -> frozenset[str]:
        told, from_tools = failed.told, [message for message in request.messages if message.role == "tool"]
        if names := wire.refused(told, self._sent(request, refused), unused=not from_tools):
            return names
        # In whatever words, an answer to pictures in a tool's message may mean them.
        maybe = self._inside(refused) and any(message.images for message in from_tools)
        stops = failure(told, self._at, request=request, answered=self._first.answered).for_all
        return frozenset({TOOL_IMAGES} if maybe and told.status in (400, 415, 422, 500) and not stops else ())
