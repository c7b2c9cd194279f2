"""The bench of these tests: strict servers on loopback, and backends that ask them."""

from __future__ import annotations

import importlib
import io
import traceback
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from PIL import Image

from editloupe.backends.base import parse_uri
from editloupe.backends.retry import RetryPolicy
from editloupe.chat import ImagePart, Message, Part, Reply, Request
from editloupe.data.images import ImageStore
from editloupe.values import ImageRef
from tests.backends.gemini_server import GeminiServer
from tests.backends.loopback import Act
from tests.backends.openai_server import OpenAIServer

CANARY = "sk-canary-5ea5e11e5-7f3d"
ONCE = RetryPolicy(attempts=1)
HELLO = Request(messages=(Message.of_text("user", "hello"),))
STORE = ImageStore()


class Bench:
    """Servers and backends of one test, closed in the right order."""

    def __init__(self, stack: ExitStack) -> None:
        self.servers: list[Any] = []
        self._stack = stack

    def serve(self, provider: str, *script: Act, **options: Any) -> Any:
        """A new server of the provider's protocol with this script."""
        server: Any
        if provider == "google":
            server = GeminiServer(*script, **options)
        else:
            server = OpenAIServer(*script, vllm=provider == "vllm", **options)
        self.servers.append(self._stack.enter_context(server))
        return server

    def open(self, uri: str, *, policy: RetryPolicy = ONCE) -> Any:
        """The backend of a URI. Failed calls are not tried again, unless the policy says so."""
        parsed = parse_uri(uri)
        module = importlib.import_module(f"editloupe.backends.{parsed.provider}")
        backend = module.open_backend(parsed, policy=policy)
        self._stack.callback(backend.close)
        return backend

    def backend(self, provider: str, *script: Act, query: str = "", policy: RetryPolicy = ONCE, **options: Any) -> Any:
        """A backend on a new server with this script. provider: with langchain, OpenAI's class is asked."""
        server = self.serve(provider, *script, **options)
        name = f"openai:{server.model}" if provider == "langchain" else server.model
        return self.open(f"{provider}/{name}?base_url={server.url}{query}", policy=policy)

    def ask(self, provider: str, *script: Act, request: Request = HELLO, images: ImageStore = STORE, **more: Any) -> Reply:
        """What a new server with this script replies."""
        reply: Reply = self.backend(provider, *script, **more).complete(request, images)
        return reply

    @property
    def server(self) -> Any:
        """The newest server."""
        return self.servers[-1]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A bench without keys or addresses from outside. In the end, no server may have seen a broken request."""
    names = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "VLLM_API_KEY", "GOOGLE_API_KEY", "GEMINI_API_KEY")
    for name in (*names, "GOOGLE_GEMINI_BASE_URL", "GOOGLE_GENAI_USE_VERTEXAI"):
        monkeypatch.delenv(name, raising=False)
    with ExitStack() as stack:
        bench = Bench(stack)
        yield bench
    assert [c for s in bench.servers for c in s.complaints] == []


def everything(error: BaseException | None) -> str:
    """What could be shown of an error and of all that it was made from."""
    shown = []
    while error is not None:
        shown += [*traceback.format_exception(error), repr(error), str(vars(error)), str(error.args)]
        error = error.__cause__ or error.__context__
    return "\n".join(shown)


def image(store: ImageStore, *, value: int = 200, format: str = "PNG", size: tuple[int, int] = (24, 16)) -> ImageRef:
    """A picture of one color."""
    file = io.BytesIO()
    Image.new("RGB", size, (value, 40, 40)).save(file, format=format)
    return store.add_bytes(file.getvalue())


def asks(*parts: Part | ImageRef, **fields: Any) -> Request:
    """A question of one message; a picture gets the name A."""
    made = tuple(ImagePart(image=part, alias="A") if isinstance(part, ImageRef) else part for part in parts)
    return Request(messages=(Message(role="user", parts=made),), **fields)
