"""Scores images by HPSv3 for editloupe, in HPSv3's own environment: its package pins other versions than editloupe's.

    python -m venv hpsv3 && hpsv3/bin/pip install hpsv3
    hpsv3/bin/python examples/preference_worker.py --port 8100
    editloupe judge … --protocol edival --set preference=http://127.0.0.1:8100

It needs nothing of editloupe's. It loads the model (Qwen2-VL-7B with a head, fetched with the first start), then answers on
this machine, one image at a time. docs/measures.md describes the protocol.
"""

from __future__ import annotations

import argparse
import base64
import binascii
import json
import math
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, version
from typing import Any

MOST_BYTES = 256 * 2**20


def load(device: str, checkpoint: str | None) -> Callable[[bytes, str], tuple[float, float]]:
    """Return what scores an image: PNG bytes and a prompt → mean and σ."""
    from hpsv3 import HPSv3RewardInferencer

    model = HPSv3RewardInferencer(device=device, checkpoint_path=checkpoint)
    one_at_a_time = threading.Lock()

    def score(image: bytes, prompt: str) -> tuple[float, float]:
        with tempfile.NamedTemporaryFile(suffix=".png") as file:
            file.write(image)
            file.flush()
            with one_at_a_time:
                mean, log_sigma = model.reward(prompts=[prompt], image_paths=[file.name])[0]
        # Its loss takes the exponential of the second output as σ.
        return float(mean), math.exp(float(log_sigma))

    return score


def named(checkpoint: str | None) -> str:
    """Return the model's name, which is part of a judge's identity."""
    try:
        package = version("hpsv3")
    except PackageNotFoundError:
        package = "of a checkout"
    return f"HPSv3 {package}" if checkpoint is None else f"HPSv3 {package}, {checkpoint}"


class Handler(BaseHTTPRequestHandler):
    """GET / says which model answers. POST /score scores an image."""

    protocol_version = "HTTP/1.1"
    model: str
    score: Any

    def do_GET(self) -> None:
        """Say which model answers."""
        self.answer(200, {"model": self.model}) if self.path == "/" else self.answer(404, {"error": "expected GET /"})

    def do_POST(self) -> None:
        """Score the image of a request."""
        try:
            length = int(self.headers.get("Content-Length") or 0)
            if self.path != "/score" or not 0 < length <= MOST_BYTES:
                raise ValueError("expected POST /score with an image")
            asked = json.loads(self.rfile.read(length))
            image, prompt = base64.b64decode(asked["image"], validate=True), str(asked["prompt"])
        except (ValueError, KeyError, TypeError, binascii.Error) as error:
            self.close_connection = True
            self.answer(400, {"error": f"{type(error).__name__}: {error}"})
            return
        try:
            mean, sigma = self.score(image, prompt)
        except Exception as error:  # noqa: BLE001 - whatever the model raises, the one who asked is told
            self.answer(500, {"error": f"{type(error).__name__}: {error}"})
            return
        self.answer(200, {"model": self.model, "mean": mean, "sigma": sigma})

    def answer(self, status: int, said: dict[str, Any]) -> None:
        """Send a JSON object."""
        body = json.dumps(said).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    """Load the model and answer until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--port", type=int, default=8100, help="0 takes a free one")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--checkpoint", help="HPSv3.safetensors; without one it is fetched from the hub")
    given = parser.parse_args()
    Handler.model = named(given.checkpoint)
    Handler.score = staticmethod(load(given.device, given.checkpoint))
    server = ThreadingHTTPServer((given.host, given.port), Handler)
    print(f"{Handler.model} answers at http://{given.host}:{server.server_address[1]}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
