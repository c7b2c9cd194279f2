"""`editloupe backends`: which there are; and what one can do, asked live."""

from __future__ import annotations

from typing import Annotated

import typer
from typer import Argument

from editloupe import plugins
from editloupe.backends.base import open_backend
from editloupe.backends.probe import probe as run
from editloupe.cli.options import AsJson
from editloupe.cli.output import note, plain, print_json, say, table
from editloupe.errors import UnknownPlugin

_WHAT = {
    "baseline": ("baseline", "rules on pixels, embedded: no key, no GPU, no network; not an LMM"),
    "google": ("google/MODEL[?base_url=…]", "Gemini, with the extra google"),
    "langchain": ("langchain/PROVIDER:MODEL", "any LangChain chat model, through its package for the provider"),
    "openai": ("openai/MODEL[?base_url=…]", "OpenAI, or any server that speaks its chat completions"),
    "recorded": ("recorded/RUN[?judge=ID]", "what a judge of an earlier run answered, from its traces"),
    "scripted": ("scripted/FILE.jsonl", "replies read from a file, one a line: for tests and demonstrations"),
    "transformers": ("transformers/FOLDER[?base=…]", "a local model or adapter, in this process, with the extra local"),
    "vllm": (
        "vllm/MODEL[?base_url=…]",
        "a model that vLLM serves, here on port 8000 or elsewhere",
    ),
}

_STYLES = {"yes": "green", "no": "yellow", "failed": "red"}


def backends(context: typer.Context) -> None:
    """List the backends that --backend takes, show one, or ask one what it can do."""
    if context.invoked_subcommand:
        return
    names = plugins.names("backends")
    rows = [(*_WHAT.get(name, (f"{name}/…", "")), plugins.origin("backends", name)) for name in names]
    table("Backend", "What it is", "From", rows=rows)


def show(name: Annotated[str, Argument(metavar="NAME", help="What stands before the slash of a URI.")]) -> None:
    """Show what a backend is and how --backend names it."""
    known = plugins.names("backends")
    if name not in known:
        raise UnknownPlugin("backend", name, known)
    form, what = _WHAT.get(name, (f"{name}/…", ""))
    say(f"{name} ({plugins.origin('backends', name)})", "bold")
    if what:
        say(what)
    say(f"--backend {form}")
    say(f"What it can do: editloupe backends probe {form.partition('[')[0]}")


def probe(
    uri: Annotated[str, Argument(metavar="URI", help="As --backend takes it, for example openai/gpt-4.1.")],
    as_json: AsJson = False,
) -> int:
    """Ask a backend live what it can do: answer, see, tell several pictures apart, call a tool, keep to a JSON schema.

    About five short questions with small drawn pictures, at the provider's price. Exit code 0 where it can judge
    (answers, sees, tells pictures apart), 1 where it cannot, 2 for a URI that cannot be opened.
    """
    backend = open_backend(uri)
    report = run(backend, listener=lambda name: None if as_json else note(f"asking: {name}"))
    if as_json:
        print_json(report.to_json(), indent=2)
        return 0 if report.can_judge else 1
    if not report.probes:
        say(f"{backend.uri}: {report.verdict}")
        return 0
    say(f"{backend.uri} at {backend.endpoint}")
    rows = [
        [plain(cell, _STYLES.get(row.result, "dim")) for cell in (row.name, row.result, row.asked, row.answered)]
        for row in report.probes
    ]
    table("Can it …", "", "Asked", "Answered", rows=rows)
    tokens = f"{report.usage.total:,} tokens" if report.usage.total else "tokens not told"
    say(f"{report.verdict} ({report.questions_answered} questions answered, {tokens})")
    return 0 if report.can_judge else 1
