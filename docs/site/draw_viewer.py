"""Take the pictures of README and docs: judge the example folder and drawn edits, photograph pages, film a verdict.

    python -m docs.site.draw_viewer        needs Playwright (pip install 'editloupe[browser]') and a Chromium

CHROMIUM names the browser; else it is the one on the path.
"""

from __future__ import annotations

import io
import os
import shutil
import socket
import tempfile
import threading
from pathlib import Path

import uvicorn
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.judged_runs import make
from editloupe.annotate.page import make_app
from editloupe.annotate.questions import Annotation, begin
from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.config import JudgeConfig, RunConfig
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.viewer.export import export
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader

ROOT = Path(__file__).parents[2]


ZOOM = '<tool_call>{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [%s]}}</tool_call>'

LOOKS = {
    "careful": [
        ("The mug is small. I look at it closely.", ZOOM % "70, 320, 175, 470"),
        ("Only the mug is blue now.", "Flawless Execution"),
    ],
    "hasty": [("The mug seems blue, and the shelf too.", "Over Modification")],
    "elsewhere": [
        ("I look at the bottles first.", ZOOM % "400, 300, 560, 480"),
        ("Nothing has changed here.", "Wrong Action"),
    ],
}
"""Judge → its thoughts, each with a call or a label."""


def judge(name: str) -> JudgeConfig:
    """A scripted judge of instruction following; it finds everything else as it was."""

    def script(request: Request) -> str:
        thought, said = LOOKS[name][sum(message.role == "assistant" for message in request.messages)]
        if "Instruction Following" not in request.messages[0].text:
            thought, said = "Everything else is as it was.", "Perfect Consistency"
        said = said if said.startswith("<") else f"<Start Final Answer>{said}</Start Final Answer>"
        return f"<Start Thinking>{thought}</Start Thinking>\n{said}"

    return JudgeConfig(backend=ScriptedLMM(script, name=name), name=name)


def photograph_cards(browser: Browser, runs: list[Path]) -> None:
    """Photograph the cards of the last of these runs."""
    pages = runs[0].parent / "list"
    export(Site.of([RunReader(run) for run in runs]), pages)
    page = browser.new_page(viewport={"width": 1400, "height": 900}, reduced_motion="reduce")
    page.goto(f"file://{pages}/{runs[-1].name}/index.html#sort=-differ&differ=judges")
    page.wait_for_selector("#cards .card")
    page.wait_for_timeout(300)
    page.screenshot(path=ROOT / "docs" / "images" / "viewer-matrix.png")


def photograph_questions(browser: Browser, folder: Path) -> None:
    """Photograph the first question of the example folder as a rater sees it."""
    begin(RunConfig(path=ROOT / "examples" / "edits"), folder)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(make_app(Annotation(folder)), ws="none", log_level="warning"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
        thread.start()
        page = browser.new_page(viewport={"width": 1400, "height": 720}, reduced_motion="reduce")
        page.goto(f"http://127.0.0.1:{listening.getsockname()[1]}/rate?rater=anna")
        page.wait_for_selector(".option")
        page.wait_for_timeout(500)
        page.screenshot(path=ROOT / "docs" / "images" / "annotate.png")
        server.should_exit = True
        thread.join(5)


def film(page: Page, path: Path) -> None:
    """Film how a verdict is looked into: the labels, the pictures at the target, then each step with its crop."""
    page.set_viewport_size({"width": 1000, "height": 680})
    page.evaluate("window.scrollTo(0, 0)")
    frames = [_frame(page)]
    for place in ("viewers", "verdicts"):
        page.evaluate(f"document.getElementById('{place}')?.scrollIntoView()")
        frames.append(_frame(page))
    for _ in range(3):
        page.keyboard.press("j")
        frames.append(_frame(page))
    first, *rest = [frame.quantize(96, dither=Image.Dither.NONE) for frame in frames]
    first.save(path, save_all=True, append_images=rest, duration=2200, loop=0, optimize=True)


def _frame(page: Page) -> Image.Image:
    page.wait_for_timeout(500)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def main() -> None:
    with tempfile.TemporaryDirectory() as temporary, sync_playwright() as playwright:
        first, mug, pages = (Path(temporary) / name for name in ("first", "mug", "pages"))
        edits = ROOT / "examples" / "edits"
        drive(open_setup(RunConfig(path=edits)), first, config={})
        for name in LOOKS:
            config = RunConfig(path=edits, sample=["kitchen-mug"], judge=judge(name))
            drive(open_setup(config), mug, config={})
        export(Site.of([RunReader(mug)]), pages)
        path = os.environ.get("CHROMIUM") or shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 960}, reduced_motion="reduce")
        page.goto(f"file://{next((pages / 'samples').glob('kitchen-mug-*.html'))}")
        page.wait_for_selector(".verdict.open")
        page.mouse.move(5, 950)
        page.screenshot(path=ROOT / "docs" / "images" / "viewer.png")
        film(page, ROOT / "docs" / "images" / "verdict.gif")
        photograph_questions(browser, Path(temporary) / "people")
        photograph_cards(browser, [first, make(Path(temporary) / "three-judges", samples=40, editors=2)])
        browser.close()


if __name__ == "__main__":
    main()
