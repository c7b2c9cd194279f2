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
from typing import TYPE_CHECKING, Any, Final, TypeVar

from editloupe.backends import openai_wire as wire
from editloupe.backends import retry
from editloupe.backends.base import BackendURI, Traits
from editloupe.backends.batch.base import Batches, InBatches
from editloupe.backends.endpoint import Endpoint, Provider, is_loopback, read_endpoint
from editloupe.backends.failures import NO_IMAGES, Failed, failed, failure, is_filtered
from editloupe.backends.payload import ImageURLs, at, items_at, loads
from editloupe.backends.remote import TOOL_IMAGES, ParameterRefused
from editloupe.backends.retry import RetryPolicy
from editloupe.backends.transport import bounded
from editloupe.chat import Reply, Request
from editloupe.data.images import ImageStore
from editloupe.errors import BackendError, ConfigError, Rejected
from editloupe.values import ImageRef, Json

if TYPE_CHECKING:
    import openai

T = TypeVar("T")

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
        super().__init__(endpoint.uri, endpoint.url, endpoint.traits, address=endpoint.url, close=sdk.close, policy=policy)
        self._sdk, self._at = sdk, endpoint
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
            listed = items_at(loads(self._sent("get", "/models", options={"timeout": timeout_s})), "data")
        except Failed as error:
            raise failure(error.told, self._at, answered=self._first.answered, hint=wire.BASE_URL_HINT) from None
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

    def _ready(self, request: Request, images: ImageStore) -> Callable[[frozenset[str]], Reply]:
        # Now, while other calls are under way.
        inside = self._inside(self._refused)
        made = self._pieces(request, images, inside=inside)

        def ask(refused: frozenset[str]) -> Reply:
            if inside and TOOL_IMAGES in refused:
                return self._asked(request, self._pieces(request, images, inside=False), refused, inside=False)
            return self._asked(request, made, refused, inside=inside)

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
        return wire.body_of(wire.parameters_of(self._uri.model, request, refused), pieces)

    def _read(self, request: Request, refused: frozenset[str], status: int, body: bytes) -> Reply:
        sent = wire.parameters_of(self._uri.model, request, refused)
        try:
            if not 200 <= status < 300:
                raise failed(status, body, {}, self._at.scrub)
            return wire.read_reply(body, sent, self._at, tokens=request.top_logprobs is not None, answered=True)
        except Failed as error:
            return self._declined(error, request, sent, inside=self._inside(refused))

    def _translated(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - as in `_sent`
            ours = self._ours(error)
            hint = "the address has batches (/files and /batches)"
            raise (failure(ours.told, self._at, answered=False, hint=hint) if isinstance(ours, Failed) else ours) from None

    def _asked(self, request: Request, pieces: list[bytes], refused: frozenset[str], *, inside: bool) -> Reply:
        sent = wire.parameters_of(self._uri.model, request, refused)
        options = {"headers": {"content-type": "application/json"}}
        try:
            body = self._sent("post", "/chat/completions", content=wire.body_of(sent, pieces), options=options)
            tokens, answered = request.top_logprobs is not None, self._first.answered
            return wire.read_reply(body, sent, self._at, tokens=tokens, answered=answered)
        except Failed as error:
            return self._declined(error, request, sent, inside=inside)

    def _sent(self, verb: str, path: str, **options: Any) -> bytes:
        """Return the body of an answer. Raises BackendError: Failed for one that is a failure."""
        try:
            return bytes(getattr(self._sdk, verb)(path, cast_to=bytes, **options))
        except Exception as error:  # noqa: BLE001 - whatever the SDK and its HTTP library meet
            # The error itself does not go on: it holds the request, and the key.
            raise self._ours(error) from None

    def _ours(self, error: Exception) -> BackendError:
        """Return an error of the SDK as one of ours. Up to 2 it wraps whatever its HTTP client raises."""
        import openai

        cause = error.__cause__ or error
        if isinstance(cause, BackendError):
            # The two would hold each other, and with them this backend.
            error.__cause__ = None
            return cause
        if isinstance(error, openai.OpenAIError) and not isinstance(error, openai.APIConnectionError):
            return Rejected(f"{self._at.where}: {type(cause).__name__}: {self._at.scrub(str(cause))}")
        return self._at.unreachable(cause)

    def _declined(self, error: Failed, request: Request, sent: Mapping[str, Json], *, inside: bool) -> Reply:
        """Return the Reply for a request that is refused for its content. Raises ParameterRefused, else BackendError."""
        told = error.told
        if is_filtered(told):
            return Reply(text=told.shown, finish="filter", raw=error.raw, sent=sent)
        from_tools = [message for message in request.messages if message.role == "tool"]
        if names := wire.refused(told, sent, unused=not from_tools):
            raise ParameterRefused(*names) from error
        hint, answered = wire.BASE_URL_HINT, self._first.answered
        found = failure(told, self._at, request=request, answered=answered, hint=hint)
        in_tools = inside and any(message.images for message in from_tools)
        if in_tools and told.status in (400, 415, 422, 500) and not found.for_all:
            raise ParameterRefused(TOOL_IMAGES) from error
        raise found from error
