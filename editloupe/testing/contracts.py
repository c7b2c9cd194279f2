"""The contracts of tools and backends, checked."""

from __future__ import annotations

import io
import json
import re
import tempfile
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any, cast, get_args
from urllib.parse import urlsplit

import jsonschema
import numpy as np
from PIL import Image

from editloupe.backends.base import LMM, parse_uri
from editloupe.backends.keys import HIDDEN, scrub
from editloupe.chat import Finish, ImagePart, Message, Reply, Request, Sampling, TextPart, ToolCall, ToolSpec
from editloupe.data.images import RGB, EncodedImage, ImagePolicy, ImageStore
from editloupe.errors import BackendError, ConfigError, ImageError, ToolError
from editloupe.findings import Observation
from editloupe.tools.base import Tool, Toolbox, ToolContext, spec
from editloupe.tools.cache import ToolCache
from editloupe.tools.tolerance import Tolerance, tolerance_of
from editloupe.values import Box, ImageRef, Json, View, canonical_json


def check_tool(
    tool: Tool, *, images: Mapping[str, RGB] | None = None, arguments: Mapping[str, Json] | None = None
) -> Observation:
    """Check that a tool keeps its contract; returns the observation of a plain call, for checks of your own.

    images: name → H×W×3 uint8 RGB; None takes a drawn pair, "Original Image" and "Edited Image".
    arguments: of a call that works; None makes them from the schema (image names for arguments whose name contains
    "image", a box in the middle for arrays of four numbers, defaults and first choices else).

    Checked: name, version and description; a schema that is valid, described and closed; an unknown image, a missing and
    an additional argument and a box outside 0..1000 are ToolErrors; text that states boxes or sizes; views inside their
    origins and pictures in the store; the same call, the same text and pictures; inputs untouched; of one that says
    `repeatable`, the same in a conversation that has seen more.

    Raises AssertionError, which names the tool and what it broke.
    """
    inputs = dict(images) if images is not None else drawn_pair()
    check = _ToolCheck(tool, inputs)
    schema = check.schema()
    call = dict(arguments) if arguments is not None else check.arguments(schema)
    context = check.context
    before = {name: context.images.array(view.image).copy() for name, view in context.views.items()}
    first = check.called(call, context)
    for other, how in ((context, "twice"), (_context(inputs), "with a new image store")):
        again = check.called(call, other)
        check.require(first.text == again.text, f"called {how}, its text differs: {first.text!r} and {again.text!r}")
        same = first.to_json() == again.to_json()
        check.require(same, f"called {how}, its pictures or data differ; it must be deterministic")
    for name, view in context.views.items():
        same = np.array_equal(before[name], context.images.array(view.image))
        check.require(same, f"it changed the pixels of {name!r}; it must leave its inputs untouched")
    check.observation(first)
    check.refusals(schema, call)
    if getattr(tool, "repeatable", False):
        check.repeatable(call, inputs)
    return first


def requirement(subject: str) -> Callable[[bool, str], None]:
    """Return a function of (holds, message) that raises AssertionError, which names the subject, unless it holds."""

    def require(holds: bool, message: str) -> None:
        if not holds:
            raise AssertionError(f"{subject}: {message}")

    return require


def _context(inputs: Mapping[str, RGB], folder: Path | None = None) -> ToolContext:
    store = ImageStore(folder)
    return ToolContext(images=store, views={name: View.whole(store.add_array(rgb)) for name, rgb in inputs.items()})


class _ToolCheck:
    """One tool under check."""

    def __init__(self, tool: Tool, inputs: Mapping[str, RGB]) -> None:
        self.tool = tool
        self.box = Toolbox(tools={tool.name: tool})
        self.context = _context(inputs)
        self.require = requirement(f"tool {getattr(tool, 'name', tool)!r}")

    def called(self, call: Mapping[str, Json], context: ToolContext) -> Observation:
        try:
            return self.box.call(self.tool.name, call, context)
        except ToolError as error:
            raise AssertionError(f"tool {self.tool.name!r}: the call {dict(call)!r} was refused: {error}") from error

    def refused(self, call: Mapping[str, Json], what: str) -> str:
        """Return the message of the ToolError that the call must raise."""
        try:
            self.box.call(self.tool.name, call, self.context)
        except ToolError as error:
            return str(error)
        raise AssertionError(f"tool {self.tool.name!r}: {what} must raise ToolError, but the call went through")

    def schema(self) -> dict[str, Any]:
        """Return the schema of the arguments, once it is known to be valid, described and closed."""
        tool, require = self.tool, self.require
        for field in ("name", "version", "description"):
            value = getattr(tool, field, None)
            require(isinstance(value, str) and bool(value.strip()), f"{field} must be a text, found {value!r}")
        require(re.fullmatch(r"[a-z][a-z0-9_]*", tool.name) is not None, "its name must match [a-z][a-z0-9_]*")
        tolerance = tolerance_of(tool)
        require(isinstance(tolerance, Tolerance), f"tolerance must be a Tolerance, found {tolerance!r}")
        schema: dict[str, Any] = dict(spec(tool).parameters)
        jsonschema.Draft202012Validator.check_schema(schema)
        require(schema.get("type") == "object", f"its schema must describe an object, found {schema.get('type')!r}")
        closed = schema.get("additionalProperties") is False
        require(closed, 'its schema must refuse unknown arguments: Args needs model_config = ConfigDict(extra="forbid")')
        for name, argument in schema.get("properties", {}).items():
            require(bool(argument.get("description")), f"argument {name!r} has no description")
        return schema

    def arguments(self, schema: Mapping[str, Any]) -> dict[str, Json]:
        """Return arguments of a plausible call, made from the schema."""
        made: dict[str, Json] = {}
        names = list(self.context.views)
        for name, argument in schema.get("properties", {}).items():
            if _is_image(name, argument):
                made[name] = names[0]
                names = names[1:] or names
            elif _is_box(argument):
                made[name] = [250, 250, 750, 750]
            elif name not in schema.get("required", []):
                continue
            elif argument.get("enum"):
                made[name] = argument["enum"][0]
            else:
                text = argument.get("type") == "string"
                self.require(text, f"pass `arguments`; no value can be guessed for {name!r}")
                made[name] = "red square"
        return made

    def observation(self, found: Observation) -> None:
        """Check text, views and data."""
        require, context = self.require, self.context
        require(not found.error, f"a valid call gave an error: {found.text!r}")
        stated = re.search(r"\[\d+(\.\d+)?(, ?\d+(\.\d+)?){3}\]|\d+ ?[×x] ?\d+ ?px", found.text)
        require(stated is not None, f"its text must state a box [x0, y0, x1, y1] or a size W×H px, found {found.text!r}")
        canonical_json(found.data)
        known = {image for view in context.views.values() for image in (view.image, view.origin)}
        for view in (*found.views, *found.kept):
            whole = Box.whole(width=view.image.width, height=view.image.height)
            require(_within(view.window, whole), f"a view's window {list(view.window)} leaves its picture {list(whole)}")
            origin = Box.whole(width=view.origin.width, height=view.origin.height)
            back = view.to_origin(view.window)
            require(_within(back, origin), f"a view maps to {list(back)}, outside its origin {list(origin)}")
            require(view.origin in known, "a view's origin is none of the images that the call named")
            height, width = context.images.array(view.image).shape[:2]
            size = (view.image.width, view.image.height)
            require((width, height) == size, f"a picture is {width}×{height} px but its ImageRef says {size}")
        shown = [picture for picture, _ in groupby(view.image.sha256 for view in found.views)]
        require(len(shown) == len(set(shown)), "the panes of one picture must be consecutive views")

    def refusals(self, schema: Mapping[str, Any], call: Mapping[str, Json]) -> None:
        """Check that calls with wrong arguments raise ToolError."""
        self.refused({**call, "no_such_argument": 1}, "an argument that its schema does not have")
        for name in schema.get("required", []):
            self.refused({key: value for key, value in call.items() if key != name}, f"a call without {name!r}")
        for name, argument in schema.get("properties", {}).items():
            if _is_image(name, argument):
                message = self.refused({**call, name: "No Such Image"}, f"an unknown image as {name!r}")
                listed = all(known in message for known in self.context.views)
                self.require(listed, f"its error about an unknown image must list the known ones, found {message!r}")
            if _is_box(argument):
                for wrong in ([100, 100, 1200, 900], [-5, 100, 900, 900], [900, 900, 100, 100], [500, 500, 500, 500]):
                    self.refused({**call, name: wrong}, f"{name} {wrong}")

    def repeatable(self, call: Mapping[str, Json], inputs: Mapping[str, RGB]) -> None:
        """Check that a cached result is what another conversation, which has seen more, would be given."""
        with tempfile.TemporaryDirectory() as folder:
            cache, context = ToolCache(Path(folder) / "cache"), _context(inputs, Path(folder) / "blobs")
            other = View.whole(context.images.add_array(np.full((64, 64, 3), 128, dtype=np.uint8)))
            seen = frozenset({canonical_json({"name": self.tool.name, "arguments": {"another": "call"}})})
            cache.call(self.box, self.tool.name, call, context)
            context = replace(context, views={**context.views, "Another Image": other}, past_calls=seen)
            kept, _ = cache.call(self.box, self.tool.name, call, context)
            self.require(
                kept.to_json() == self.box.call(self.tool.name, call, context).to_json(),
                "it says repeatable, and what it says depends on other images or other calls made; it must look at nothing "
                "else, or not say so",
            )


def _is_image(name: str, argument: Mapping[str, Any]) -> bool:
    return "image" in name and argument.get("type") == "string"


def _is_box(argument: Mapping[str, Any]) -> bool:
    numbers = argument.get("items", {}).get("type") in ("integer", "number")
    return argument.get("type") == "array" and numbers and argument.get("maxItems") == 4


def _within(box: Box, outer: Box) -> bool:
    dust = 1e-6
    return (
        box.x0 >= outer.x0 - dust and box.y0 >= outer.y0 - dust and box.x1 <= outer.x1 + dust and box.y1 <= outer.y1 + dust
    )


def check_backend(
    backend: LMM | Callable[[], LMM],
    *,
    request: Request | None = None,
    images: ImageStore | None = None,
    failing: LMM | None = None,
    secrets: Sequence[str] = (),
    threads: int = 8,
) -> Reply:
    """Check that a backend keeps its contract; returns the reply to a plain question, for checks of your own.

    backend: what is to be checked, or what opens it (then it is opened twice, and must be the same judge both times).
    It is really asked: about 15 short questions, so point it at a test server, or expect to pay for them.
    request, images: what to ask in place of a drawn pair, for a backend that answers only what it knows; tools are
    then left out.   failing: the same backend where its endpoint fails.   secrets: texts, such as a key, that may show
    nowhere.   threads: calls at once.

    Checked: a canonical URI; sane traits; a whole Reply that survives a trace; `sent` names the model and each sampling
    parameter that was asked for, or says that it was dropped; request and images untouched; images taken from the store by
    the policy that the traits name; calls from several threads; tool calls and their pictures, and tools that may no longer
    be called, where the traits say native_tools; an answer by a JSON Schema where they say constrains_schema, or the word
    that the schema was dropped; the reply's tokens where they say gives_logprobs, or the word that they were dropped;
    errors that are BackendErrors (ImageError for an image that is gone).

    Raises AssertionError, which names the backend and what it broke.
    """
    lmm = backend() if callable(backend) and not hasattr(backend, "complete") else cast("LMM", backend)
    check = _BackendCheck(lmm, tuple(secrets))
    check.identity()
    if lmm is not backend:
        again = cast("Callable[[], LMM]", backend)()
        check.require(again.uri == lmm.uri, f"opened twice it is two judges: {lmm.uri!r} and {again.uri!r}")
    store = images if images is not None else ImageStore()
    asked = request or _plain_question(store, check.traits.max_images)
    reply = check.answer(asked, store)
    check.sent(asked, reply)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: check.answer(asked, store), range(threads)))
    if request is None:
        check.failure(asked, ImageStore(), (ImageError, BackendError), "for an image that is gone")
        if check.traits.native_tools:
            check.tools(store)
        if check.traits.is_lmm or check.traits.constrains_schema:
            check.schema()
        if check.traits.gives_logprobs:
            check.logprobs()
    if failing is not None:
        check = _BackendCheck(failing, tuple(secrets))
        error = check.failure(asked, store, (BackendError,), "where its endpoint fails")
        check.require(error is not None, "the backend given as `failing` did not fail")
        shown = "".join(traceback.format_exception(error))
        check.require(check.clean(shown) == shown, "the error of a failing endpoint shows a secret")
    return reply


class _BackendCheck:
    """One backend under check."""

    def __init__(self, lmm: LMM, secrets: tuple[str, ...]) -> None:
        self.lmm, self.secrets = lmm, secrets
        self.traits = lmm.traits

    def require(self, holds: bool, message: str) -> None:
        if not holds:
            raise self.fault(message)

    def fault(self, message: str) -> AssertionError:
        return AssertionError(self.clean(f"backend {getattr(self.lmm, 'uri', self.lmm)}: {message}"))

    def identity(self) -> None:
        lmm, traits = self.lmm, self.traits
        for name in ("uri", "endpoint", "version"):
            value = getattr(lmm, name, None)
            self.require(isinstance(value, str), f"{name} must be a text, found {value!r}")
            self.require(bool(value) or name == "version", f"{name} must not be empty")
        for what, text in (("uri", lmm.uri), ("endpoint", lmm.endpoint), ("repr", repr(lmm)), ("traits", repr(traits))):
            self.require(self.clean(text) == text, f"its {what} shows a secret")
        try:
            canonical = str(parse_uri(lmm.uri))
        except ConfigError as error:
            raise self.fault(f"its uri is none: {error}") from error
        self.require(canonical == lmm.uri, f"its uri must be canonical: expected {canonical!r}")
        self.require("@" not in urlsplit(lmm.endpoint).netloc, "its endpoint holds credentials")
        self.require(bool(traits.describes.strip()), "traits.describes must say in one line what it is")
        formats = traits.image_formats
        self.require("image/png" in formats, f"traits.image_formats must have image/png (crops are PNG), found {formats}")
        for name in ("max_image_side", "max_images"):
            value = getattr(traits, name)
            self.require(value is None or value > 0, f"traits.{name} must be above 0 or None, found {value!r}")
        unknown = sorted(set(traits.sampling) - set(vars(Sampling())))
        self.require(not unknown, f"traits.sampling names {unknown}; known are {sorted(vars(Sampling()))}")

    def answer(self, request: Request, images: ImageStore) -> Reply:
        """Return the reply, once it is known to be fit for a trace and to leave request and images as they were."""
        key = request.key()
        refs = [part.image for message in request.messages for part in message.images]
        before = [images.data(ref) for ref in refs]
        spy = _SpyingStore(images)
        try:
            reply = self.lmm.complete(request, cast("ImageStore", spy))
        except Exception as error:  # noqa: BLE001 - whatever it raises is its fault; as a cause it could show a secret
            raise self.fault(f"it did not answer: {error!r}") from None
        self.require(isinstance(reply, Reply), f"complete must return a Reply, found {type(reply).__name__}")
        self.require(request.key() == key, "it changed the request")
        self.require([images.data(ref) for ref in refs] == before, "it changed an image")
        side = self.traits.max_image_side
        for policy in spy.policies:
            further = sorted(set(policy.formats) - set(self.traits.image_formats))
            self.require(not further, f"it took images as {further}, which traits.image_formats does not have")
            fits = side is None or policy.max_side == side
            self.require(fits, f"it took images of up to {policy.max_side} px, not {side}")
        self._whole(reply)
        return reply

    def _whole(self, reply: Reply) -> None:
        for name in ("text", "reasoning", "model"):
            value = getattr(reply, name)
            self.require(isinstance(value, str), f"reply.{name} must be a text, found {value!r}")
        known = get_args(Finish)
        self.require(reply.finish in known, f"reply.finish must be one of {known}, found {reply.finish!r}")
        for name, count in vars(reply.usage).items():
            right = count is None or (isinstance(count, int) and not isinstance(count, bool) and count >= 0)
            self.require(right, f"reply.usage.{name} must be a count or None, found {count!r}")
        try:
            # As they are, and not as a serialiser would mend them.
            json.dumps([reply.raw, dict(reply.sent)], allow_nan=False)
            text = canonical_json(reply.to_json())
            again = Reply.from_json(json.loads(text))
        except (TypeError, ValueError) as error:
            raise self.fault(f"its reply cannot be written to a trace as JSON: {error}") from None
        self.require(canonical_json(again.to_json()) == text, "its reply does not come back the same from a trace")
        self.require(self.clean(text) == text, "its reply shows a secret")
        ids = [call.id for call in reply.tool_calls]
        self.require(all(ids) and len(set(ids)) == len(ids), f"each tool call needs an id of its own, found {ids}")

    def sent(self, request: Request, reply: Reply) -> None:
        """Check that an LMM's reply says what was really on the wire."""
        if not self.traits.is_lmm:
            return
        self.require(bool(reply.sent.get("model")), "reply.sent must name the model that was asked for")
        # Providers write names in their own way (topP), and have other ones for the token limit.
        keys = {key.replace("_", "").casefold() for key in reply.sent}
        for name in (name for name, value in vars(request.sampling).items() if value is not None):
            named = name.replace("_", "") in keys or (name == "max_tokens" and any("tokens" in key for key in keys))
            reported = named or name in reply.dropped
            self.require(reported, f"{name} was asked for: reply.sent must hold it, or name it in sent['dropped']")
            offered = name in self.traits.sampling
            self.require(offered or not named, f"reply.sent has {name}, which traits.sampling does not name")

    def failure(
        self, request: Request, images: ImageStore, expected: tuple[type[Exception], ...], when: str
    ) -> Exception | None:
        """Return the error of a call that must raise one of those expected; None if it answers."""
        try:
            self.lmm.complete(request, images)
        except expected as error:
            return error
        except Exception as error:  # noqa: BLE001 - as in `answer`
            found = f"{type(error).__name__}: {error}"
            raise self.fault(f"{when} it must raise {expected[0].__name__}, found {found}") from None
        return None

    def tools(self, images: ImageStore) -> None:
        """Check tools on offer, calls answered by text and pictures, and tools that may no longer be called."""
        look = ToolSpec(
            name="zoom_in",
            description="Shows a part of an image larger.",
            parameters={
                "type": "object",
                "properties": {"target_image": {"type": "string", "description": "Name of the image."}},
                "required": ["target_image"],
                "additionalProperties": False,
            },
        )
        first = Message.of_text("user", "Call zoom_in for the image 'Edited Image', once.")
        reply = self.answer(Request(messages=(first,), tools=(look,)), images)
        calls = reply.tool_calls or (ToolCall(id="call_1", name="zoom_in", arguments={"target_image": "Edited Image"}),)
        carry = reply.carry if reply.tool_calls else None
        said = Message(role="assistant", parts=(), tool_calls=calls, carry=carry)
        crop = images.add_array(drawn_pair()["Edited Image"][100:140, 140:190])
        shown = (TextPart(text="Observation of zoom_in:"), TextPart(text="Crop 1:"), ImagePart(image=crop, alias="Crop 1"))
        results = tuple(Message(role="tool", parts=shown, tool_call_id=call.id) for call in calls)
        talk = (first, said, *results, Message.of_text("user", "What colour is it? One word."))
        self.answer(Request(messages=talk, tools=(look,)), images)
        self.answer(Request(messages=talk, tools=(look,), calls_allowed=False), images)

    def schema(self) -> None:
        """Check that an answer is an instance of its schema, or that the reply says that the schema was dropped."""
        schema: dict[str, Json] = {
            "type": "object",
            "properties": {"colour": {"type": "string", "enum": ["Red", "Green", "Blue"]}},
            "required": ["colour"],
            "additionalProperties": False,
        }
        question = Message.of_text("user", 'What is the colour of grass? Answer as JSON: {"colour": "Red, Green or Blue"}')
        reply = self.answer(Request(messages=(question,), answer_schema=schema), ImageStore())
        if "answer_schema" in reply.dropped:
            return
        holds = self.traits.constrains_schema
        self.require(holds, "a schema was asked for, which it cannot keep to: sent['dropped'] must name it")
        try:
            jsonschema.validate(json.loads(reply.text), schema)
        except (ValueError, jsonschema.ValidationError):
            raise self.fault(f"traits.constrains_schema: expected JSON by the schema, found {reply.text[:80]!r}") from None

    def logprobs(self) -> None:
        """Check that the tokens of a reply hold its text and have alternatives, or that it says that they were dropped."""
        question = Message.of_text("user", "What is the colour of grass? One word.")
        reply = self.answer(Request(messages=(question,), top_logprobs=3), ImageStore())
        if "top_logprobs" in reply.dropped:
            return
        spoken = "".join(token.text for token in reply.tokens)
        self.require(
            reply.text in spoken, f"traits.gives_logprobs: the tokens {spoken[:80]!r} do not hold the reply's text"
        )
        top = [logprob for token in reply.tokens for _, logprob in token.top]
        self.require(bool(top), "traits.gives_logprobs: the tokens have no alternatives")
        known = [*top, *(token.logprob for token in reply.tokens)]
        self.require(all(value <= 0 for value in known), f"a log-probability is at most 0, found {max(known)}")

    def clean(self, text: str) -> str:
        for secret in self.secrets:
            text = text.replace(secret, HIDDEN)
        return scrub(text, self.secrets)


class _SpyingStore:
    """An image store that notes by which policies images were taken."""

    def __init__(self, images: ImageStore) -> None:
        self._images = images
        self.policies: list[ImagePolicy] = []

    def encoded(self, ref: ImageRef, policy: ImagePolicy) -> EncodedImage:
        self.policies.append(policy)
        return self._images.encoded(ref, policy)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._images, name)


def _plain_question(images: ImageStore, most: int | None) -> Request:
    """Return a question with images as PNG, JPEG and BMP, and every sampling parameter."""
    drawn = drawn_pair()
    drawn["Reference Image"] = np.ascontiguousarray(drawn["Original Image"][::-1])
    parts: list[TextPart | ImagePart] = [TextPart(text="What is drawn here? A few words.")]
    for (name, rgb), format in list(zip(drawn.items(), ("PNG", "JPEG", "BMP"), strict=True))[:most]:
        file = io.BytesIO()
        Image.fromarray(rgb).save(file, format=format)
        parts += [TextPart(text=f"{name}:"), ImagePart(image=images.add_bytes(file.getvalue(), name=name), alias=name)]
    sampling = Sampling(temperature=0.0, top_p=1.0, seed=7, max_tokens=64)
    return Request(messages=(Message(role="user", parts=tuple(parts)),), sampling=sampling)


def drawn_pair() -> dict[str, RGB]:
    """Return a grey slope with a blue square that turns red: 320×240 px, the same pixels every time."""
    slope = np.linspace(90, 160, 320, dtype=np.float64).astype(np.uint8)
    original = np.repeat(np.tile(slope, (240, 1))[..., None], 3, axis=2)
    edited = original.copy()
    original[100:140, 140:190] = (30, 60, 200)
    edited[100:140, 140:190] = (200, 40, 30)
    return {"Original Image": original, "Edited Image": edited}
