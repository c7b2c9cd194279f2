"""OpenAI's batch endpoint, and its lines, which vLLM's `run-batch` reads and writes as files.

A line is `{custom_id, method, url, body}`; a line of an answer `{custom_id, response: {status_code, body}, error}`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from editloupe import files
from editloupe.backends.batch.base import BatchAnswer, BatchState, InBatches, Limits
from editloupe.backends.payload import at, one_line
from editloupe.chat import Request
from editloupe.data.images import ImageStore
from editloupe.values import compact_bytes

if TYPE_CHECKING:
    import openai

_URL: Final = "/v1/chat/completions"
_TOKEN: Final = "editloupe"
"""The key of a batch's metadata by which it is found again."""
_EARLIER_S: Final = 3600.0
"""How far the provider's clock may differ from ours."""


class Lines:
    """Questions and answers as lines."""

    limits = Limits(lines=50_000, bytes=200_000_000)

    def __init__(self, backend: InBatches) -> None:
        self._backend = backend

    def line(self, id: str, request: Request, images: ImageStore) -> bytes:
        head = compact_bytes({"custom_id": id, "method": "POST", "url": _URL})
        return head[:-1] + b',"body":' + self._backend.body_of(request, images) + b"}\n"

    def size(self, request: Request, images: ImageStore) -> int:
        return len(self.line("0" * 64, request, images))

    def answer(self, line: bytes) -> BatchAnswer:
        data = json.loads(line)
        id_, response, status = at(data, "custom_id"), at(data, "response"), at(data, "response", "status_code")
        if not isinstance(id_, str) or (response is None and not at(data, "error")):
            raise ValueError("expected custom_id and response, or error")
        if response is None:
            # Expired, cancelled, or lost without an answer over HTTP.
            return BatchAnswer(id=id_, status=0)
        # vLLM has the words of a failure beside the response.
        body = json.dumps(at(response, "body") or at(data, "error")).encode()
        return BatchAnswer(id=id_, status=status if isinstance(status, int) else 200, body=body)


class OpenAIBatches(Lines):
    """The endpoint."""

    def __init__(self, backend: InBatches, sdk: openai.OpenAI) -> None:
        super().__init__(backend)
        self._sdk = sdk

    def send(self, path: Path, token: str, since: float) -> str:
        def uploaded() -> str:
            with path.open("rb") as file:
                return self._sdk.files.create(file=(f"{token}.jsonl", file), purpose="batch").id

        uploaded_id = self._backend.called(uploaded)

        def create() -> str:
            told = {_TOKEN: token}
            made = self._sdk.batches.create(
                input_file_id=uploaded_id, endpoint=_URL, completion_window="24h", metadata=told
            )
            return made.id

        return self._backend.created(create, lambda: self._found(token, since))

    def find(self, token: str, since: float) -> str | None:
        return self._backend.called(lambda: self._found(token, since))

    def _found(self, token: str, since: float) -> str | None:
        for batch in self._sdk.batches.list(limit=100):  # the newest first
            if (batch.metadata or {}).get(_TOKEN) == token:
                return batch.id
            if batch.created_at < since - _EARLIER_S:
                break
        return None

    def state(self, id: str, questions: Sequence[str]) -> BatchState:
        batch = self._backend.called(lambda: self._sdk.batches.retrieve(id))
        errors = (batch.errors.data if batch.errors else None) or []
        words = one_line("; ".join([batch.status, *(f"{e.code}: {e.message}" for e in errors)]))
        if batch.status == "failed":
            full = any(error.code == "token_limit_exceeded" for error in errors)
            return BatchState(kind="rejected", words=words, full=full)
        if batch.status not in ("completed", "expired", "cancelled"):
            return BatchState(kind="open", words=words)
        if not batch.output_file_id and batch.request_counts and batch.request_counts.completed:
            # It tells of answers, and not yet where they are: to end here would pay for them twice.
            return BatchState(kind="open", words=f"{words}, without a file of answers")
        names = [name for name in (batch.output_file_id, batch.error_file_id) if name]
        return BatchState(kind="ended", words=words, answers=b"".join(map(self._file, names)))

    def _file(self, name: str) -> bytes:
        return self._backend.called(lambda: self._sdk.files.content(name).read())


class RunBatchFiles(Lines):
    """Files for a program that asks by itself, such as vLLM's `run-batch`: written to one folder, read from another.

    Raises ValueError for a line that is no answer, and for two answers to one question.
    """

    def __init__(self, backend: InBatches, *, write: Path | None, read: Path | None) -> None:
        super().__init__(backend)
        self._write, self._read = write, read
        self._answers: dict[str, tuple[BatchAnswer, bytes, str]] = {}
        if read is not None and not read.is_dir():
            raise ValueError(f"{read} is no folder")
        for path in sorted(read.glob("*.jsonl")) if read is not None else ():
            for number, line in enumerate(path.read_bytes().splitlines(), start=1):
                if line.strip():
                    self._take(line + b"\n", f"{path}, line {number}")

    def _take(self, line: bytes, where: str) -> None:
        try:
            found = self.answer(line)
        except ValueError as error:
            raise ValueError(f"{where} is no answer of a batch: {error}") from None
        known = self._answers.get(found.id)
        if known is not None and known[0].good:
            if found.good and found.body != known[0].body:
                told = f"{known[2]} and {where} hold different answers to the question {found.id}; take one of them out"
                raise ValueError(told)
        elif found.status:
            self._answers[found.id] = found, line, where

    def check(self, known: set[str]) -> int:
        """Return how many answers belong to no question. Raises ValueError where all do."""
        strange = set(self._answers) - known
        if strange and len(strange) == len(self._answers):
            raise ValueError(
                f"{self._read} holds {len(strange):,} answers, and none to a question of this run; name the folder "
                "with the answers to the files that this run wrote (--set batch_file=DIR)"
            )
        return len(strange)

    def send(self, path: Path, token: str, since: float) -> str:
        assert self._write is not None
        target = self._write / f"{token}.jsonl"
        with files.whole(target) as file, path.open("rb") as questions:
            shutil.copyfileobj(questions, file)
        return str(target)

    def find(self, token: str, since: float) -> str | None:
        found = None if self._write is None else self._write / f"{token}.jsonl"
        return str(found) if found is not None and found.exists() else None

    def state(self, id: str, questions: Sequence[str]) -> BatchState:
        lines = b"".join(self._answers[one][1] for one in questions if one in self._answers)
        return BatchState(kind="ended" if lines else "open", words=f"the file {id}", answers=lines)
