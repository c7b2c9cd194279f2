"""The server: what it answers, and what it refuses."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

import pytest

from editloupe.errors import ConfigError
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from editloupe.viewer.serve import Viewer


def ask(server: Viewer, target: str, *, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], bytes]:
    """(status, headers, body); the target goes out as it is, dots and all."""
    connection = http.client.HTTPConnection(*server.server_address[:2], timeout=10)
    try:
        connection.putrequest(method, target, skip_host=True)
        if host != "":
            connection.putheader("Host", host or f"127.0.0.1:{server.server_address[1]}")
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read()
    finally:
        connection.close()


def a_sample(server: Viewer) -> str:
    return server.site.runs[0].reader.samples()[1].slug


def test_pages_pictures_and_traces_are_served(server: Viewer) -> None:
    status, headers, body = ask(server, "/")
    assert (status, headers["location"], body) == (302, "/index.html", b"")
    status, headers, body = ask(server, "/nothing.html")
    assert status == 404 and b"Back to run</a>" in body and b'href="/index.html"' in body
    for target in ("/index.html", f"/samples/{a_sample(server)}.html", "/rows.js", "/static/viewer.css", "/live.json"):
        assert ask(server, target)[0] == 200, target
    sample = server.site.runs[0].reader.samples()[1].sample
    assert sample is not None
    sha = sample.source.sha256
    status, headers, body = ask(server, f"/blobs/{sha[:2]}/{sha}.png")
    assert (status, headers["content-type"], body[:4]) == (200, "image/png", b"\x89PNG")
    status, headers, body = ask(server, f"/thumbs/{sha[:2]}/{sha}-10-10-80-80.jpg")
    assert (status, headers["content-type"], body[:2]) == (200, "image/jpeg", b"\xff\xd8")
    trace = server.site.runs[0].reader.samples()[1].findings[0].trace
    assert ask(server, f"/{trace}")[1]["content-type"] == "text/plain; charset=utf-8"


def test_every_answer_forbids_what_a_page_does_not_need(server: Viewer) -> None:
    for target in ("/index.html", f"/samples/{a_sample(server)}.html", "/nothing", "/rows.json"):
        _, headers, _ = ask(server, target)
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self'" in policy and "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"
    sha = server.site.runs[0].reader.samples()[1].sample.source.sha256  # type: ignore[union-attr]
    assert "sandbox" in ask(server, f"/blobs/{sha[:2]}/{sha}.png")[1]["content-security-policy"]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8321", "127.0.0.1.evil.example", "10.0.0.1", "[::1", "", "a b"]
)
def test_a_request_under_another_name_is_refused(server: Viewer, host: str) -> None:
    status, _, body = ask(server, "/index.html", host=host)
    # Without a name uvicorn refuses it before we do.
    assert status == (421 if host else 400)
    assert not host or b"--allow-host" in body


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost:1", "LOCALHOST", "[::1]:8321"])
def test_the_names_of_loopback_are_known(server: Viewer, host: str) -> None:
    assert ask(server, "/live.json", host=host)[0] == 200


def test_a_server_for_others_knows_literal_addresses_and_the_names_given(run: Path) -> None:
    with Viewer(Site.of([RunReader(run)]), host="0.0.0.0", names=["lab.example"]) as server:
        assert server.open_to_others
        assert server.knows("192.168.1.7:8321") and server.knows("lab.example") and server.knows("localhost")
        assert not server.knows("evil.example")


@pytest.mark.parametrize(
    "target",
    [
        "/../run.json",
        "/run.json",
        "/config.yaml",
        "/findings.jsonl",
        "/static/../viewer/serve.py",
        "/static/%2e%2e/serve.py",
        "/blobs/../run.json",
        "/blobs/aa/../../run.json",
        "/blobs/aa/%2e%2e%2f%2e%2e%2frun.json",
        "/blobs/aa/..png",
        "/thumbs/aa/../../run.json",
        "/traces/../run.json",
        "/traces/%2e%2e/findings.jsonl",
        "/traces/",
        "//etc/passwd",
        "/samples/../run.json",
        "/samples/x%00.html",
        "/samples/.html",
        "/%",
    ],
)
def test_nothing_but_pages_pictures_and_traces_can_be_read(server: Viewer, target: str) -> None:
    assert ask(server, target)[0] == 404


def test_a_link_out_of_the_run_folder_is_not_followed(copy: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret.png"
    secret.write_bytes(b"\x89PNG secret")
    sha = "ab" * 32
    (copy / "blobs" / "ab").mkdir(exist_ok=True)
    site = Site.of([RunReader(copy)])
    # A run with a link is not opened, and one that gets a link later does not follow it.
    (copy / "blobs" / "ab" / f"{sha}.png").symlink_to(secret)
    with pytest.raises(ConfigError, match="is a link"):
        RunReader(copy)
    assert site.at(f"blobs/ab/{sha}.png") is None and site.at(f"thumbs/ab/{sha}.jpg") is None


def test_only_reading_is_offered(server: Viewer) -> None:
    for method in ("PUT", "POST", "DELETE"):
        assert ask(server, "/index.html", method=method)[0] == 405, method
    status, headers, body = ask(server, "/index.html", method="HEAD")
    assert (status, body) == (200, b"") and int(headers["content-length"]) > 1000


def test_a_port_that_is_taken_is_told(run: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"127.0.0.1:{port} cannot be served"):
            Viewer(Site.of([RunReader(run)]), port=port)


def test_a_run_that_grows_is_followed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("editloupe.viewer.reader._LOOK_S", 0.0)
    path = copy / "findings.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:5]))
    reader = RunReader(copy, live=True)
    before = reader.version
    assert sum(len(e.findings) for e in reader.samples()) == 5
    with path.open("ab") as file:
        file.write(b"".join(lines[5:8]) + lines[8][:30])  # the last line is still being written
    assert sum(len(e.findings) for e in reader.samples()) == 8
    assert reader.version > before
    with path.open("ab") as file:
        file.write(lines[8][30:])
    assert sum(len(e.findings) for e in reader.samples()) == 9
