"""The grid of a sample's labels, the steps beside each other, and the place at which the page opens."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from editloupe.backends.scripted import ScriptedLMM
from editloupe.chat import Request
from editloupe.config import JudgeConfig, RunConfig
from editloupe.runs.run import drive
from editloupe.runs.setup import open_setup
from editloupe.viewer.pages import Site
from editloupe.viewer.reader import RunReader
from tests.conftest import final, pngs

CALL = '{"name": "zoom_in", "parameters": {"target_image": "Edited Image", "bbox": [250, 250, 500, 500]}}'
SAME = f"<tool_call>{CALL}</tool_call>"
OTHER = SAME.replace("250, 250", "300, 300")


def judge(name: str, replies: Sequence[str]) -> JudgeConfig:
    """A judge that gives these replies, one a turn, to every question on instruction following; it is content otherwise."""

    def script(request: Request) -> str:
        if "Instruction Following" not in request.messages[0].text:
            return final("Perfect Consistency")
        return replies[sum(message.role == "assistant" for message in request.messages)]

    return JudgeConfig(backend=ScriptedLMM(script, name=name), name=name)


def page_of(folder: Path, *judges: JudgeConfig, box: tuple[int, ...] = (100, 80, 180, 140), repeats: int = 1) -> str:
    data = folder / "data"
    data.mkdir()
    for name, image in zip(("before", "after"), pngs(1, spots=1), strict=True):
        (data / f"{name}.png").write_bytes(image)
    row = {
        "id": "s", "source_file_name": "before.png", "edited_file_name": "after.png", "instruction": "Make it red.",
        "bbox": list(box), "human_instruction_following_ben": "Wrong Action",
    }  # fmt: skip
    (data / "metadata.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    for one in judges:
        drive(open_setup(RunConfig(path=data, judge=one, concurrency=1, repeats=repeats)), folder / "run")
    site = Site.of([RunReader(folder / "run")])
    return site.sample_page(site.runs[0], site.runs[0].reader.samples()[0])


def words(markup: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", " ", markup).split())


def rows(page: str) -> list[list[str]]:
    """The words of each cell of the grid, its head first."""
    table = page.partition('<table class="labels">')[2].partition("</table>")[0]
    return [
        [words(cell) for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)]
        for row in re.findall(r"<tr>.*?</tr>", table, re.DOTALL)
    ]


def test_labels_of_judges_and_people_stand_side_by_side(tmp_path: Path) -> None:
    strict, lenient = judge("strict", [final("Wrong Action")]), judge("lenient", [final("Flawless Execution")])
    head, first, second = rows(page_of(tmp_path, strict, lenient))
    assert head == ["Question", "strict", "lenient", "ben person"]
    assert first == [
        "Instruction Following",
        "Instruction Following, strict: Wrong Action I have seen enough.",
        "Instruction Following, lenient: Flawless Execution I have seen enough.",
        "Wrong Action",
    ]
    assert [cell.rpartition(": ")[2].partition(" I have")[0] for cell in second] == [
        "Visual Consistency", "Perfect Consistency", "Perfect Consistency", "",
    ]  # fmt: skip


def test_a_reason_begins_beside_its_label(tmp_path: Path) -> None:
    long = f"{'The square is red and this goes on ' * 19}. Nothing else."
    many = page_of(
        tmp_path,
        judge("a", [final("Wrong Action", "It is 2.5 px off. See there.")]),
        judge("b", [final("Flawless Execution", long)]),
    )
    shown = [words(why) for why in re.findall(r'<p class="why".*?</p>', many)]
    # Of a long reason as many words as 400 characters hold: 11 · 35 + 13 of a twelfth, and the ellipsis.
    assert shown[:2] == ["It is 2.5 px off. See there.", f"{'The square is red and this goes on ' * 11}The square is …"]
    assert len(shown) == 4, "both questions of both judges"


def test_repeats_share_a_cell_under_their_numbers(tmp_path: Path) -> None:
    _, first, _ = rows(page_of(tmp_path, judge("one", [final("Wrong Action")]), repeats=3))
    assert re.findall(r"repeat (\d) Wrong Action", first[1]) == ["1", "2", "3"]


def test_a_call_that_the_cache_answered_has_a_badge_and_no_remark(tmp_path: Path) -> None:
    page = page_of(tmp_path, judge("first", [SAME, final("Wrong Action")]), judge("second", [SAME, final("Wrong Action")]))
    first, second = (
        page.partition(f'aria-label="Instruction Following: {name}"')[2].partition("</section>")[0]
        for name in ("first", "second")
    )
    assert "answered from cache" not in first and second.count("answered from cache</span>") == 1
    assert "did not run" not in page


@pytest.mark.parametrize(
    ("box", "opens"),
    # Of 320×240 = 76,800 px: 20×20 are 0.52 %, 32×24 are 1 % and no less.
    [((100, 80, 120, 100), True), ((100, 80, 132, 104), False)],
)
def test_a_page_opens_at_a_target_under_one_percent(tmp_path: Path, box: tuple[int, ...], opens: bool) -> None:
    page = page_of(tmp_path, judge("one", [final("Wrong Action")]), box=box)
    found = re.search(r'data-home="([^"]*)"', page)
    assert found is not None and ("data-home-opens" in page) == opens
    shares = [float(v) for v in found[1].split()]
    assert shares == pytest.approx([box[0] / 320, box[1] / 240, box[2] / 320, box[3] / 240])
