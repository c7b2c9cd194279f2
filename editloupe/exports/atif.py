"""Write trajectories in the Agent Trajectory Interchange Format, ATIF v1.7: a JSON file a trace, its pictures beside it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, Final

from editloupe.chat import ImagePart, Message, TextPart, Usage
from editloupe.data.images import extension
from editloupe.errors import ImageError
from editloupe.exports.episodes import Episode, Exchange, Source, function, lost, remarks, sampling
from editloupe.exports.write import claim, json_bytes, whole, without_none
from editloupe.files import read_bytes
from editloupe.traces.events import Note, ToolResult
from editloupe.values import ImageRef

VERSION: Final = "ATIF-v1.7"

MARKER: Final = ".editloupe-trajectories"
"""A file in every folder that we wrote. It lets us write there again."""

_TYPES: Final = {"image/jpeg", "image/png", "image/gif", "image/webp"}
"""The media types that the format knows."""


def write_atif(source: Source, folder: Path, *, progress: Callable[[int], None] = lambda n: None) -> int:
    """Write every trace below `folder` under its path in the run, and return how many there are.

    Pictures are copied to `images/`, or named by `source.blob_base_url`. Raises ConfigError where the folder holds other
    things, StorageError. What could not be read stands in `source.problems`.
    """
    claim(folder, MARKER, option="--atif")
    written = 0
    for episode in source.episodes():
        path = folder / PurePosixPath(episode.name).with_suffix(".json")
        with whole(path, below=folder) as file:
            file.write(json_bytes(_Writer(source, folder, path).trajectory(episode), indent=1) + b"\n")
        written += 1
        progress(written)
    return written


class _Writer:
    """Writes one trajectory."""

    def __init__(self, source: Source, folder: Path, path: Path) -> None:
        """path: of the file. Addresses of pictures are relative to it."""
        self.source = source
        self.folder = folder
        self.up = "../" * len(path.relative_to(folder).parent.parts)

    def trajectory(self, episode: Episode) -> dict[str, Any]:
        header, finding = episode.header, episode.finding
        steps: list[dict[str, Any]] = []
        for exchange in episode.exchanges:
            steps += self._steps(episode, exchange, first=not steps)
        for number, step in enumerate(steps, start=1):
            step["step_id"] = number
        extra = without_none(
            trace=episode.name,
            task=header.task,
            repeat=header.repeat,
            absent=header.absent,
            finding=None if finding is None else finding.to_json(),
            parent=header.parent,
            notes=[{"time": e.time, "text": e.text} for e in episode.trace.events if isinstance(e, Note)] or None,
        )
        return {
            "schema_version": VERSION,
            "session_id": header.run,
            "trajectory_id": episode.name,
            "agent": {
                "name": "editloupe",
                "version": header.editloupe,
                "model_name": episode.model,
                "tool_definitions": [function(tool) for tool in header.tools],
                "extra": {"judge_id": header.judge_id, "judge": header.judge},
            },
            "steps": steps,
            "final_metrics": self._totals(episode, len(steps)),
            "extra": extra,
        }

    def _steps(self, episode: Episode, exchange: Exchange, *, first: bool) -> list[dict[str, Any]]:
        # What a later request adds are observations and reminders: they stand with the step that they answer.
        asked = exchange.messages if first else exchange.added
        found: list[dict[str, Any]] = [
            {
                "source": "system" if message.role == "system" else "user",
                "timestamp": episode.header.time if first else exchange.event.time,
                "message": self._content(message),
            }
            for message in asked
        ]
        if exchange.failure is not None:
            failure = exchange.failure
            message = f"The endpoint did not answer: {failure.error}: {failure.message}"
            found.append({"source": "system", "timestamp": exchange.event.time, "message": message})
        else:
            found.append(self._agent(episode, exchange))
        if exchange.shared:
            for step in found:
                step["is_copied_context"] = True
        return found

    def _agent(self, episode: Episode, exchange: Exchange) -> dict[str, Any]:
        reply = exchange.reply
        assert reply is not None, "a failure is no step of the agent"
        calls = {c.id: (c.name, c.arguments) for c in (exchange.said.tool_calls if exchange.said else ())}
        for result in exchange.results:
            calls.setdefault(str(result.call["id"]), (str(result.call["name"]), result.call["arguments"]))
        listed = [
            {"tool_call_id": id_, "function_name": name, "arguments": dict(arguments)}
            for id_, (name, arguments) in calls.items()
        ]
        results: list[dict[str, Any]] = [self._result(result) for result in exchange.results]
        if said := remarks(exchange):
            results.append({"content": said})
        metrics = _metrics(reply.usage, self.source.cost(episode.backend, reply.usage))
        extra = without_none(
            finish=reply.finish,
            request=sampling(reply),
            malformed_calls=[call.to_json() for call in reply.malformed_calls] or None,
        )
        return without_none(
            source="agent",
            timestamp=exchange.event.time,
            model_name=reply.model or episode.model,
            message=reply.text,
            reasoning_content=reply.reasoning or None,
            tool_calls=listed or None,
            observation={"results": results} if results else None,
            metrics=metrics or None,
            llm_call_count=1 if episode.is_lmm or metrics or reply.reasoning else 0,
            extra=extra,
        )

    def _result(self, result: ToolResult) -> dict[str, Any]:
        observation = result.observation
        parts: list[TextPart | ImagePart] = [TextPart(text=str(observation["text"]))]
        images = dict.fromkeys(ImageRef.from_json(view["image"]) for view in observation["views"])
        for alias, image in zip(result.aliases, images, strict=False):
            parts += [TextPart(text=f"{alias}:"), ImagePart(image=image, alias=alias)]
        return {
            "source_call_id": str(result.call["id"]),
            "content": self._content(Message(role="tool", parts=tuple(parts))),
            "extra": without_none(
                seconds=result.seconds,
                error=observation["error"],
                views=observation["views"],
                data=observation["data"] or None,
                crashed=result.crashed,
            ),
        }

    def _content(self, message: Message) -> str | list[dict[str, Any]]:
        if not message.images:
            return message.text
        return [
            {"type": "text", "text": part.text} if isinstance(part, TextPart) else self._image(part)
            for part in message.parts
        ]

    def _image(self, part: ImagePart) -> dict[str, Any]:
        ref = part.image
        if ref.media_type not in _TYPES:
            text = f"[{part.alias}: image {ref.sha256}, {ref.media_type}, which this format does not know]"
            return {"type": "text", "text": text}
        path = self.source.image_path(ref)
        if path is None:
            return {"type": "text", "text": lost(part)}
        where = self.source.image(ref) if self.source.blob_base_url is not None else self._copied(path)
        if where is None:
            return {"type": "text", "text": lost(part)}
        return {"type": "image", "source": {"media_type": ref.media_type, "path": where}}

    def _copied(self, path: Path) -> str | None:
        """Copy a picture, and return where it is; None if the file is no picture of that type."""
        name = f"images/{path.parent.name}/{path.name}"
        copy = self.folder / name
        if copy.exists():
            return self.up + name
        try:
            data = read_bytes(path)
            if f".{extension(data, name=name)}" != path.suffix:
                return None
        except (OSError, ImageError):
            return None
        with whole(copy, below=self.folder) as file:
            file.write(data)
        return self.up + name

    def _totals(self, episode: Episode, steps: int) -> dict[str, Any]:
        """What this trace did itself: the parent paid for a fork's shared beginning."""
        total = sum((e.reply.usage for e in episode.exchanges if e.reply is not None and not e.shared), Usage())
        metrics = _metrics(total, self.source.cost(episode.backend, total))
        found: dict[str, Any] = {f"total_{name}": value for name, value in metrics.items() if name != "extra"}
        seconds = {} if episode.finding is None else {"seconds": round(episode.finding.seconds, 4)}
        return {**found, "total_steps": steps, "extra": {**metrics.get("extra", {}), **seconds}}


def _metrics(usage: Usage, cost: float | None) -> dict[str, Any]:
    extra = without_none(image_tokens=usage.image_tokens, reasoning_tokens=usage.reasoning_tokens)
    return without_none(
        prompt_tokens=usage.input_tokens,
        completion_tokens=usage.output_tokens,
        cached_tokens=usage.cached_tokens,
        cost_usd=cost,
        extra=extra or None,
    )
