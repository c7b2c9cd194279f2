"""Batch endpoints on loopback that refuse what the real ones would refuse: files above a limit, repeated ids, other models.

    with OpenAIBatchServer(says) as server: ...

`says` answers a question: (its body) -> (status, body). A batch is answered when `finish` is called. Nothing is forgotten
between two processes that ask: kills hit the client alone.
"""

from __future__ import annotations

import email.parser
import email.policy
import json
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.backends.gemini_server import camel
from tests.backends.gemini_server import complaints as gemini_complaints
from tests.backends.loopback import LoopbackHandler, LoopbackServer
from tests.backends.openai_server import complaints as openai_complaints

Body = dict[str, Any]
Says = Callable[[Body], tuple[int, Body]]


class _Handler(LoopbackHandler):
    """One connection."""

    def body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.house.received += len(data)
        return data

    def tell(self, value: object, status: int = 200, headers: dict[str, str] | None = None) -> None:
        self.answer(status, json.dumps(value).encode(), headers)

    def refuse(self, words: str, status: int = 400) -> None:
        self.house.refusals.append(words)
        self.tell({"error": {"message": words, "code": status, "type": "invalid_request_error"}}, status)

    def route(self, method: str, path: str) -> None:
        raise NotImplementedError

    def do_GET(self) -> None:  # noqa: N802 - the standard library names it
        with self.house.lock:
            self.route("GET", self.path.partition("?")[0])

    def do_POST(self) -> None:  # noqa: N802 - the standard library names it
        with self.house.lock:
            self.route("POST", self.path.partition("?")[0])


class BatchServer(LoopbackServer):
    """What both dialects share.   most_lines, most_bytes: of a file.   reject: says which batches are rejected whole."""

    def __init__(self, says: Says, *, most_lines: int = 50_000, most_bytes: int = 200_000_000) -> None:
        super().__init__()
        self.says, self.most_lines, self.most_bytes = says, most_lines, most_bytes
        self.lock = threading.RLock()
        self.files: dict[str, bytes] = {}
        self.batches: dict[str, Body] = {}
        self.asked: Counter[str] = Counter()
        """Ids of the questions of batches that were taken."""
        self.live: list[Body] = []
        self.refusals: list[str] = []
        self.received = 0
        self.reject: Callable[[int], bool] = lambda number: False
        self.reject_code = "invalid_file"
        self.takes_batches = True

    @property
    def url(self) -> str:
        return self.address

    def keep(self, data: bytes) -> str:
        name = f"file-{len(self.files)}"
        self.files[name] = data
        return name

    def lines(self, file: str) -> list[Body]:
        return [json.loads(line) for line in self.files[file].splitlines()]

    def taken(self, file: str, id_: str, extra: Body) -> Body:
        """Open a batch over a file, which is rejected where it breaks a rule."""
        wrong = self.wrong(file) or ("the file is refused" if self.reject(len(self.batches)) else "")
        batch = {
            "id": id_,
            "file": file,
            "state": "rejected" if wrong else "open",
            "wrong": wrong,
            "at": time.time(),
            **extra,
        }
        self.batches[id_] = batch
        if not wrong:
            self.asked.update(self.id_of(line) for line in self.lines(file))
        return batch

    def wrong(self, file: str) -> str:
        lines = self.lines(file)
        if len(self.files[file]) > self.most_bytes or len(lines) > self.most_lines:
            return f"the file is too large: {len(self.files[file])} bytes, {len(lines)} lines"
        if len({self.id_of(line) for line in lines}) < len(lines):
            return "an id is repeated"
        return next((wrong for line in lines for wrong in self.wrong_line(line)), "")

    def id_of(self, line: Body) -> str:
        raise NotImplementedError

    def wrong_line(self, line: Body) -> list[str]:
        raise NotImplementedError

    def result(self, line: Body) -> Body:
        raise NotImplementedError

    def unasked(self, line: Body) -> Body | None:
        """What stands for a question that was not asked; None for no line."""
        return None

    def finish(self, state: str = "completed", *, share: float = 1.0) -> None:
        """Answer every open batch, the first `share` of each, in another order than asked."""
        with self.lock:
            for batch in self.batches.values():
                if batch["state"] != "open":
                    continue
                lines = self.lines(batch["file"])
                most = round(share * len(lines))
                good = [self.result(line) for line in lines[:most]]
                bad = [told for line in lines[most:] if (told := self.unasked(line)) is not None]
                batch["state"], batch["results"] = state, [self.keep(_jsonl(good[::-1]))]
                batch["errors"] = [self.keep(_jsonl(bad))] if bad else []


def _jsonl(lines: list[Body]) -> bytes:
    return b"".join(json.dumps(line).encode() + b"\n" for line in lines)


class _OpenAI(_Handler):
    house: OpenAIBatchServer

    def route(self, method: str, path: str) -> None:
        house, parts = self.house, path.removeprefix("/v1/").split("/")
        if method == "POST" and path == "/v1/chat/completions":
            body = json.loads(self.body())
            if wrong := openai_complaints(body):
                self.refuse("; ".join(wrong))
                return
            house.live.append(body)
            status, told = house.says(body)
            self.tell(told, status)
        elif path == "/v1/models":
            self.tell({"error": {"message": "Not Found"}}, 404)
        elif not house.takes_batches:
            self.body()
            self.refuse("Not Found", 404)
        elif method == "POST" and parts == ["files"]:
            fields = self._fields()
            if fields["purpose"] != b"batch" or len(fields["file"]) > house.most_bytes:
                self.refuse("purpose or size")
                return
            self.tell(self._file(house.keep(fields["file"])))
        elif method == "POST" and parts == ["batches"]:
            asked = json.loads(self.body())
            if set(asked) != {"input_file_id", "endpoint", "completion_window", "metadata"}:
                self.refuse(f"fields {sorted(asked)}")
                return
            batch = house.taken(asked["input_file_id"], f"batch_{len(house.batches)}", {"metadata": asked["metadata"]})
            self.tell(self._batch(batch))
        elif parts == ["batches"]:
            newest = [self._batch(batch) for batch in reversed(house.batches.values())]
            self.tell({"object": "list", "data": newest, "has_more": False})
        elif parts[0] == "batches" and parts[1] in house.batches:
            self.tell(self._batch(house.batches[parts[1]]))
        elif parts[0] == "files" and parts[2:] == ["content"] and parts[1] in house.files:
            self.answer(200, house.files[parts[1]], {"Content-Type": "application/octet-stream"})
        else:
            self.refuse(f"no {path}", 404)

    def _fields(self) -> dict[str, bytes]:
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + self.body())
        return {
            str(p.get_param("name", header="content-disposition")): p.get_payload(decode=True) for p in message.iter_parts()
        }

    def _file(self, name: str) -> Body:
        size = len(self.house.files[name])
        told = {
            "object": "file",
            "bytes": size,
            "created_at": 1,
            "filename": "a.jsonl",
            "purpose": "batch",
            "status": "processed",
        }
        return {"id": name, **told}

    def _batch(self, batch: Body) -> Body:
        status = {"open": "in_progress", "rejected": "failed"}.get(batch["state"], batch["state"])
        wrong = {
            "object": "list",
            "data": [{"code": self.house.reject_code, "message": batch["wrong"], "line": None, "param": None}],
        }
        return {
            "id": batch["id"],
            "object": "batch",
            "endpoint": "/v1/chat/completions",
            "completion_window": "24h",
            "input_file_id": batch["file"],
            "created_at": int(batch["at"]),
            "status": status,
            "metadata": batch["metadata"],
            "errors": wrong if status == "failed" else None,
            "output_file_id": (batch.get("results") or [None])[0],
            "error_file_id": (batch.get("errors") or [None])[0],
        }


class OpenAIBatchServer(BatchServer):
    """OpenAI's: `openai/tiny-vl?base_url=URL`."""

    handler = _OpenAI

    @property
    def url(self) -> str:
        return f"{self.address}/v1"

    def id_of(self, line: Body) -> str:
        return str(line["custom_id"])

    def wrong_line(self, line: Body) -> list[str]:
        if set(line) != {"custom_id", "method", "url", "body"} or line["url"] != "/v1/chat/completions":
            return [f"a line of {sorted(line)}"]
        return openai_complaints(line["body"])

    def result(self, line: Body) -> Body:
        status, body = self.says(line["body"])
        response = {"status_code": status, "request_id": "r", "body": body}
        return {"id": "x", "custom_id": line["custom_id"], "response": response, "error": None}

    def unasked(self, line: Body) -> Body:
        error = {
            "code": "batch_expired",
            "message": "This request could not be executed before the completion window expired.",
        }
        return {"id": "x", "custom_id": line["custom_id"], "response": None, "error": error}


class _Gemini(_Handler):
    house: GeminiBatchServer

    def route(self, method: str, path: str) -> None:
        house = self.house
        if method == "POST" and path == "/upload/v1beta/files":
            told = camel(json.loads(self.body()))["file"]
            house.pending.append(told)
            to = {
                "X-Goog-Upload-URL": f"{house.address}/upload-to/{len(house.pending) - 1}",
                "X-Goog-Upload-Status": "active",
            }
            self.tell({}, headers=to)
        elif path.startswith("/upload-to/"):
            number, data = path.rpartition("/")[2], self.body()
            house.parts.setdefault(number, bytearray()).extend(data)
            if "finalize" not in self.headers["X-Goog-Upload-Command"]:
                self.tell({}, headers={"X-Goog-Upload-Status": "active"})
                return
            name, told = house.keep(bytes(house.parts.pop(number))), house.pending[int(number)]
            uri = f"{house.address}/v1beta/files/{name}"
            house.uris[uri] = told["mimeType"]
            file = {"name": f"files/{name}", "uri": uri, "mimeType": told["mimeType"], "state": "ACTIVE"}
            self.tell({"file": file}, headers={"X-Goog-Upload-Status": "final"})
        elif path.endswith(":generateContent"):
            body = camel(json.loads(self.body()))
            if wrong := gemini_complaints(body):
                self.refuse("; ".join(wrong))
                return
            house.live.append(body)
            status, told = house.says(body)
            self.tell(told, status)
        elif path.endswith(":batchGenerateContent"):
            asked = camel(json.loads(self.body()))["batch"]
            file = asked["inputConfig"]["fileName"].removeprefix("files/")
            self.tell(self._job(house.taken(file, f"b{len(house.batches)}", {"displayName": asked["displayName"]})))
        elif path == "/v1beta/batches":
            self.tell({"operations": [self._job(batch) for batch in reversed(house.batches.values())]})
        elif path.startswith("/v1beta/batches/"):
            self.tell(self._job(house.batches[path.rpartition("/")[2]]))
        elif path.endswith(":download"):
            self.answer(200, house.files[path.removesuffix(":download").rpartition("/")[2]])
        else:
            self.refuse(f"no {path}", 404)

    def _job(self, batch: Body) -> Body:
        names = {"open": "RUNNING", "rejected": "FAILED", "completed": "SUCCEEDED"}
        state = names.get(batch["state"], batch["state"].upper())
        created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(batch["at"]))
        told = {"displayName": batch["displayName"], "state": f"BATCH_STATE_{state}", "createTime": created}
        if batch.get("results"):
            told["output"] = {"responsesFile": f"files/{batch['results'][0]}"}
        return {"name": f"batches/{batch['id']}", "metadata": told}


class GeminiBatchServer(BatchServer):
    """Gemini's: `google/tiny-gemini?base_url=URL`."""

    handler = _Gemini

    def __init__(self, says: Says, **options: Any) -> None:
        super().__init__(says, **options)
        self.pending: list[Body] = []
        self.parts: dict[str, bytearray] = {}
        self.uris: dict[str, str] = {}

    def id_of(self, line: Body) -> str:
        return str(line["key"])

    def wrong_line(self, line: Body) -> list[str]:
        if set(line) != {"key", "request"}:
            return [f"a line of {sorted(line)}"]
        return gemini_complaints(self._in_line(camel(line["request"])))

    def _in_line(self, body: Body) -> Body:
        """A request with the bytes of its files in place of their addresses."""
        import base64

        for part in (part for content in body["contents"] for part in content["parts"] if "fileData" in part):
            file = part.pop("fileData")
            if self.uris.get(file["fileUri"]) != file["mimeType"]:
                part["unknownFile"] = file
                continue
            data = self.files[file["fileUri"].rpartition("/")[2]]
            part["inlineData"] = {"mimeType": file["mimeType"], "data": base64.b64encode(data).decode()}
        return body

    def result(self, line: Body) -> Body:
        status, body = self.says(self._in_line(camel(line["request"])))
        return {"key": line["key"], "response": body} if status == 200 else {"key": line["key"], "error": body["error"]}
