"""The contracts of tools, measures and backends, checked."""

from __future__ import annotations

import importlib
import io
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from typing import Any, cast, get_args
from urllib.parse import urlsplit

import jsonschema
import numpy as np
from PIL import Image

from editloupe.answers import TEXT, answer_from_json, closed
from editloupe.backends.base import LMM, parse_uri
from editloupe.backends.keys import HIDDEN, scrub
from editloupe.chat import Finish, ImagePart, Message, Reply, Request, Sampling, TextPart, ToolCall, ToolSpec
from editloupe.data.images import RGB, ImageStore
from editloupe.errors import BackendError, ConfigError, ImageError, MeasureError, ToolError
from editloupe.findings import Observation
from editloupe.measures.base import Measured
from editloupe.tasks import STATUSES
from editloupe.tools.base import Tool, Toolbox, ToolContext, spec
from editloupe.tools.tolerance import Tolerance, tolerance_of
from editloupe.values import Json, View, canonical_json


def requirement(subject: str, secrets: Sequence[str] = ()) -> Callable[[bool, str], None]:
    """Return a function of (holds, message) that raises AssertionError, which names the subject, unless it holds.

    secrets: texts that no message shows.
    """

    def require(holds: bool, message: str) -> None:
        if not holds:
            raise AssertionError(_clean(f"{subject}: {message}", secrets))

    return require


def _clean(text: str, secrets: Sequence[str]) -> str:
    """Return a text without secrets, however short."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return scrub(text, tuple(secrets))


def check_tool(
    tool: Tool, *, images: Mapping[str, RGB] | None = None, arguments: Mapping[str, Json] | None = None
) -> Observation:
    """Check that a tool keeps its contract; returns the observation of a plain call, for checks of your own.

    images: name → H×W×3 uint8 RGB; None takes a drawn pair, "Original Image" and "Edited Image".
    arguments: of a call that works; None makes them from the schema (image names for arguments whose name contains
    "image", a box in the middle for arrays of four numbers, defaults and first choices else).

    Checked: name, version and description; a schema that is valid, described and closed; an unknown image, a missing and
    an additional argument and a box outside 0..1000 are ToolErrors; text that states boxes or sizes; views inside their
    origins and pictures in the store; the same call, the same text and pictures; inputs untouched.

    Raises AssertionError, which names the tool and what it broke.
    """
    inputs = dict(images) if images is not None else drawn_pair()
    require = requirement(f"tool {getattr(tool, 'name', tool)!r}")
    schema = _schema(tool, require)
    call = dict(arguments) if arguments is not None else _arguments(schema, list(inputs), require)
    context = _context(inputs)
    first, again, elsewhere = (_called(tool, call, one) for one in (context, context, _context(inputs)))
    if isinstance(first, ToolError):
        raise AssertionError(f"tool {tool.name!r}: the call {call!r} was refused: {first}")
    for other, how in ((again, "twice"), (elsewhere, "with a new image store")):
        require(first == other, f"called {how}, it differs: {first} and {other}; it must be deterministic")
    for name, rgb in inputs.items():
        same = np.array_equal(rgb, context.images.array(context.views[name].image))
        require(same, f"it changed the pixels of {name!r}; it must leave its inputs untouched")
    _check_observation(first, context, require)
    for what, wrong in _refused(schema, call):
        error = _called(tool, wrong, context)
        require(isinstance(error, ToolError), f"{what} must raise ToolError, but the call went through")
        unlisted = [name for name in inputs if "No Such Image" in wrong.values() and name not in str(error)]
        require(not unlisted, f"its error about an unknown image must list the known ones, found {str(error)!r}")
    return first


def _called(tool: Tool, call: Mapping[str, Json], context: ToolContext) -> Observation | ToolError:
    try:
        return Toolbox(tools={tool.name: tool}).call(tool.name, call, context)
    except ToolError as error:
        return error


def _context(inputs: Mapping[str, RGB]) -> ToolContext:
    store = ImageStore()
    return ToolContext(images=store, views={name: View.whole(store.add_array(rgb)) for name, rgb in inputs.items()})


def _schema(tool: Tool, require: Callable[[bool, str], None]) -> dict[str, Any]:
    """Return the schema of the arguments, once it is known to be valid, described and closed."""
    for field in ("name", "version", "description"):
        value = getattr(tool, field, None)
        require(isinstance(value, str) and bool(value.strip()), f"{field} must be a text, found {value!r}")
    require(re.fullmatch(r"[a-z][a-z0-9_]*", tool.name) is not None, "its name must match [a-z][a-z0-9_]*")
    require(isinstance(tolerance_of(tool), Tolerance), f"tolerance must be a Tolerance, found {tolerance_of(tool)!r}")
    schema: dict[str, Any] = dict(spec(tool).parameters)
    jsonschema.Draft202012Validator.check_schema(schema)
    refuses = schema.get("type") == "object" and schema.get("additionalProperties") is False
    require(refuses, 'its schema must refuse unknown arguments: Args needs model_config = ConfigDict(extra="forbid")')
    for name, argument in schema.get("properties", {}).items():
        require(bool(argument.get("description")), f"argument {name!r} has no description")
    return schema


def _arguments(schema: Mapping[str, Any], images: list[str], require: Callable[[bool, str], None]) -> dict[str, Json]:
    """Return arguments of a plausible call, made from the schema."""
    made: dict[str, Json] = {}
    for name, argument in schema.get("properties", {}).items():
        if _is_image(name, argument):
            made[name] = images[0]
            images = images[1:] or images
        elif _is_box(argument):
            made[name] = [250, 250, 750, 750]
        elif name in schema.get("required", []):
            choices = argument.get("enum") or (["red square"] if argument.get("type") == "string" else [])
            require(bool(choices), f"pass `arguments`; no value can be guessed for {name!r}")
            made[name] = choices[0]
    return made


def _refused(schema: Mapping[str, Any], call: Mapping[str, Json]) -> list[tuple[str, dict[str, Json]]]:
    """Return calls that must raise ToolError, each with what is wrong with it."""
    calls = [("an argument that its schema does not have", {**call, "no_such_argument": 1})]
    for name in schema.get("required", []):
        calls.append((f"a call without {name!r}", {key: value for key, value in call.items() if key != name}))
    for name, argument in schema.get("properties", {}).items():
        if _is_image(name, argument):
            calls.append((f"an unknown image as {name!r}", {**call, name: "No Such Image"}))
        if _is_box(argument):
            for box in ([100, 100, 1200, 900], [-5, 100, 900, 900], [900, 900, 100, 100], [500, 500, 500, 500]):
                calls.append((f"{name} {box}", {**call, name: box}))
    return calls


def _check_observation(found: Observation, context: ToolContext, require: Callable[[bool, str], None]) -> None:
    require(not found.error, f"a valid call gave an error: {found.text!r}")
    stated = re.search(r"\[\d+(\.\d+)?(, ?\d+(\.\d+)?){3}\]|\d+ ?[×x] ?\d+ ?px", found.text)
    require(stated is not None, f"its text must state a box [x0, y0, x1, y1] or a size W×H px, found {found.text!r}")
    canonical_json(found.data)
    known = {image for view in context.views.values() for image in (view.image, view.origin)}
    for view in (*found.views, *found.kept):
        for box, image, what in (
            (view.window, view.image, "its picture"), (view.to_origin(view.window), view.origin, "its origin"),
        ):  # fmt: skip
            inside = min(box.x0, box.y0, image.width - box.x1, image.height - box.y1) >= -1e-6
            require(inside, f"a view lies at {list(box)}, outside {what} of {image.width}×{image.height} px")
        require(view.origin in known, "a view's origin is none of the images that the call named")
        height, width = context.images.array(view.image).shape[:2]
        size = view.image.width, view.image.height
        require((width, height) == size, f"a picture is {width}×{height} px but its ImageRef says {size}")


def _is_image(name: str, argument: Mapping[str, Any]) -> bool:
    return "image" in name and argument.get("type") == "string"


def _is_box(argument: Mapping[str, Any]) -> bool:
    numbers = argument.get("items", {}).get("type") in ("integer", "number")
    return argument.get("type") == "array" and numbers and argument.get("maxItems") == 4


def check_measure(
    measure: Any,
    *,
    args: Mapping[str, Json] | None = None,
    images: Mapping[str, RGB] | None = None,
    models: Any = None,
) -> list[str]:
    """Check that a measure keeps its contract. Return what it said of each input, for checks of your own.

    measure: a measure's class, or an instance.   args: arguments that work; None for the defaults.
    images: alias → H×W×3 uint8 RGB, pictures that it can measure; None takes a drawn pair, "source" and "edited".
    models: what the measure is given as `models`; None for `editloupe.models`.

    Checked: name, version, Args and needs; an unknown argument is refused; the same input gives the same answer; inputs
    stay untouched; an answer is finite and round-trips through JSON; equal images, one white pixel, images of two sizes
    and no image at all give an answer or a MeasureError with a known status, and nothing else.

    Raises AssertionError, which names the measure and what it broke.
    """
    opened = importlib.import_module("editloupe.models") if models is None else models
    made = measure() if isinstance(measure, type) else measure
    name = getattr(made, "name", type(made).__name__)
    require = requirement(f"measure {name!r}")
    for part, kind in (("name", str), ("version", str), ("needs", tuple)):
        require(isinstance(getattr(made, part, None), kind), f"expected {part} as a {kind.__name__}")
    require(bool(made.name) and bool(made.version), "name and version must not be empty")
    require(hasattr(made, "Args") and hasattr(made.Args, "model_validate"), "expected Args, a pydantic model")
    try:
        made.Args.model_validate({"no such argument": 1})
    except ValueError:
        pass
    else:
        require(False, "Args takes an unknown argument; derive it from editloupe.measures.base.Args")
    given = made.Args.model_validate(dict(args or {}))
    pictures = dict(images) if images is not None else dict(zip(("source", "edited"), drawn_pair().values(), strict=True))

    def said(what: str, inputs: Mapping[str, RGB]) -> str:
        before = {alias: rgb.copy() for alias, rgb in inputs.items()}
        try:
            found = made(given, inputs, opened)
            answer = found.answer if isinstance(found, Measured) else found
        except MeasureError as error:
            require(error.status in STATUSES and error.status != "ok", f"{what}: unknown status {error.status!r}")
            require(bool(str(error)), f"{what}: a MeasureError needs a reason")
            return f"{error.status}: {error}"
        except Exception as error:
            raise AssertionError(f"measure {name!r}: {what}: raised {error!r}; expected a MeasureError") from error
        finally:
            same = all(np.array_equal(before[alias], rgb) for alias, rgb in inputs.items())
            require(same, f"{what}: an input was changed")
        value = getattr(answer, "value", None)
        require(value is None or math.isfinite(value), f"{what}: the answer {value!r} is not finite")
        require(answer_from_json(answer.to_json()) == answer, f"{what}: the answer does not round-trip through JSON")
        return str(answer)

    plain = said("a plain input", pictures)
    require(said("the same input again", pictures) == plain, "the same input gave another answer")
    first = next(iter(pictures.values()))
    pixel: RGB = np.full((1, 1, 3), 255, np.uint8)
    return [
        plain,
        said("equal images", dict.fromkeys(pictures, first)),
        said("images of one white pixel", dict.fromkeys(pictures, pixel)),
        said("images of two sizes", {a: rgb if i else rgb[:-1] for i, (a, rgb) in enumerate(pictures.items())}),
        said("no image", {}),
    ]


def check_backend(backend: LMM | Callable[[], LMM], *, secrets: Sequence[str] = (), threads: int = 8) -> Reply:
    """Check that a backend keeps its contract; returns the reply to a plain question, for checks of your own.

    backend: what is to be checked, or what opens it (then it is opened twice, and must be the same judge both times).
    It is really asked: about 15 short questions, so point it at a test server, or expect to pay for them.
    secrets: texts, such as a key, that may show nowhere.   threads: calls at once.

    Checked: a canonical URI; sane traits; a whole Reply that survives a trace; `sent` names the model and each sampling
    parameter that was asked for, or says that it was dropped; request and images untouched; calls from several threads;
    tool calls and their pictures where the traits say native_tools; an answer by a JSON Schema where they say
    constrains_schema, or the word that the schema was dropped; an image that is gone is an ImageError or a BackendError.

    Raises AssertionError, which names the backend and what it broke.
    """
    lmm = backend() if callable(backend) and not hasattr(backend, "complete") else cast("LMM", backend)
    check = _BackendCheck(lmm, secrets)
    check.identity()
    if lmm is not backend:
        again = cast("Callable[[], LMM]", backend)()
        check.require(again.uri == lmm.uri, f"opened twice it is two judges: {lmm.uri!r} and {again.uri!r}")
    store = ImageStore()
    asked = _plain_question(store, check.traits.max_images)
    reply = check.answer(asked, store)
    check.sent(asked, reply)
    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(lambda _: check.answer(asked, store), range(threads)))
    check.gone(asked)
    if check.traits.native_tools:
        check.tools(store)
    if check.traits.is_lmm or check.traits.constrains_schema:
        check.schema()
    return reply


class _BackendCheck:
    """One backend under check."""

    def __init__(self, lmm: LMM, secrets: Sequence[str]) -> None:
        self.lmm, self.secrets, self.traits = lmm, secrets, lmm.traits
        self.require = requirement(f"backend {lmm.uri}", secrets)

    def identity(self) -> None:
        lmm, traits = self.lmm, self.traits
        for name in ("uri", "endpoint", "version"):
            value = getattr(lmm, name, None)
            right = isinstance(value, str) and (bool(value) or name == "version")
            self.require(right, f"{name} must be a text that is not empty, found {value!r}")
        for what, text in (("uri", lmm.uri), ("endpoint", lmm.endpoint), ("repr", repr(lmm)), ("traits", repr(traits))):
            self.require(_clean(text, self.secrets) == text, f"its {what} shows a secret")
        try:
            canonical = str(parse_uri(lmm.uri))
        except ConfigError as error:
            canonical = f"one that can be read ({error})"
        unknown = sorted(set(traits.sampling) - set(vars(Sampling())))
        for holds, told in (
            (canonical == lmm.uri, f"its uri must be canonical: expected {canonical!r}"),
            ("@" not in urlsplit(lmm.endpoint).netloc, "its endpoint holds credentials"),
            (bool(traits.describes.strip()), "traits.describes must say in one line what it is"),
            ("image/png" in traits.image_formats, "traits.image_formats must have image/png: crops are PNG"),
            (not unknown, f"traits.sampling names {unknown}; known are {sorted(vars(Sampling()))}"),
        ):
            self.require(holds, told)

    def answer(self, request: Request, images: ImageStore) -> Reply:
        """Return the reply, once it is known to be fit for a trace and to leave request and images as they were."""
        key = request.key()
        refs = [part.image for message in request.messages for part in message.images]
        before = [images.data(ref) for ref in refs]
        reply = self.complete(request, images)
        # Neither is raised as a cause, which could show a secret.
        self.require(not isinstance(reply, Exception), f"it did not answer: {reply!r}")
        self.require(isinstance(reply, Reply), f"complete must return a Reply, found {type(reply).__name__}")
        assert isinstance(reply, Reply)
        self.require(request.key() == key, "it changed the request")
        self.require([images.data(ref) for ref in refs] == before, "it changed an image")
        known = get_args(Finish)
        self.require(reply.finish in known, f"reply.finish must be one of {known}, found {reply.finish!r}")
        for name, count in asdict(reply.usage).items():
            right = count is None or (type(count) is int and count >= 0)
            self.require(right, f"reply.usage.{name} must be a count or None, found {count!r}")
        try:
            # As they are, and not as a serializer would mend them.
            json.dumps([reply.raw, dict(reply.sent)], allow_nan=False)
            text = canonical_json(reply.to_json())
            again = canonical_json(Reply.from_json(json.loads(text)).to_json())
        except (TypeError, ValueError):
            text, again = "cannot be written as JSON", ""
        self.require(again == text, f"its reply does not come back the same from a trace: {text[:200]}")
        self.require(_clean(text, self.secrets) == text, "its reply shows a secret")
        return reply

    def complete(self, request: Request, images: ImageStore) -> object:
        """Return the reply, or what was raised."""
        try:
            return self.lmm.complete(request, images)
        except Exception as error:  # noqa: BLE001 - whatever it raises is looked at
            return error

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

    def gone(self, request: Request) -> None:
        """Check that an image that is gone ends in an error of ours."""
        found = self.complete(request, ImageStore())
        ours = isinstance(found, Reply | ImageError | BackendError)
        self.require(ours, f"for an image that is gone it must raise ImageError, found {found!r}")

    def tools(self, images: ImageStore) -> None:
        """Check tools on offer, calls answered by text and pictures, and tools that may no longer be called."""
        parameters = closed({"target_image": {**TEXT, "description": "Name of the image."}})
        look = ToolSpec(name="zoom_in", description="Shows a part of an image larger.", parameters=parameters)
        first = Message.of_text("user", "Call zoom_in for the image 'Edited Image', once.")
        reply = self.answer(Request(messages=(first,), tools=(look,)), images)
        calls = reply.tool_calls or (ToolCall(id="call_1", name="zoom_in", arguments={"target_image": "Edited Image"}),)
        carry = reply.carry if reply.tool_calls else None
        said = Message(role="assistant", parts=(), tool_calls=calls, carry=carry)
        crop = images.add_array(drawn_pair()["Edited Image"][100:140, 140:190])
        shown = (TextPart(text="Observation of zoom_in:"), TextPart(text="Crop 1:"), ImagePart(image=crop, alias="Crop 1"))
        results = tuple(Message(role="tool", parts=shown, tool_call_id=call.id) for call in calls)
        talk = (first, said, *results, Message.of_text("user", "What color is it? One word."))
        for allowed in (True, False):
            self.answer(Request(messages=talk, tools=(look,), calls_allowed=allowed), images)

    def schema(self) -> None:
        """Check that an answer is an instance of its schema, or that the reply says that the schema was dropped."""
        schema = closed({"color": {**TEXT, "enum": ["Red", "Green", "Blue"]}})
        question = Message.of_text("user", 'What is the color of grass? Answer as JSON: {"color": "Red, Green or Blue"}')
        reply = self.answer(Request(messages=(question,), answer_schema=schema), ImageStore())
        if "answer_schema" in reply.dropped:
            return
        holds = self.traits.constrains_schema
        self.require(holds, "a schema was asked for, which it cannot keep to: sent['dropped'] must name it")
        try:
            jsonschema.validate(json.loads(reply.text), schema)
        except (ValueError, jsonschema.ValidationError):
            self.require(False, f"traits.constrains_schema: expected JSON by the schema, found {reply.text[:80]!r}")


def _plain_question(images: ImageStore, most: int | None) -> Request:
    """Return a question with images as PNG and BMP, and every sampling parameter."""
    parts: list[TextPart | ImagePart] = [TextPart(text="What is drawn here? A few words.")]
    for (name, rgb), format in list(zip(drawn_pair().items(), ("PNG", "BMP"), strict=True))[:most]:
        file = io.BytesIO()
        Image.fromarray(rgb).save(file, format=format)
        parts += [TextPart(text=f"{name}:"), ImagePart(image=images.add_bytes(file.getvalue(), name=name), alias=name)]
    sampling = Sampling(temperature=0.0, top_p=1.0, seed=7, max_tokens=64)
    return Request(messages=(Message(role="user", parts=tuple(parts)),), sampling=sampling)


def drawn_pair() -> dict[str, RGB]:
    """Return a gray slope with a blue square that turns red: 320×240 px, the same pixels every time."""
    slope = np.linspace(90, 160, 320, dtype=np.float64).astype(np.uint8)
    original = np.repeat(np.tile(slope, (240, 1))[..., None], 3, axis=2)
    edited = original.copy()
    original[100:140, 140:190] = (30, 60, 200)
    edited[100:140, 140:190] = (200, 40, 30)
    return {"Original Image": original, "Edited Image": edited}
