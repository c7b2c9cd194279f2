"""The ratchet of `tests.house`, on a planted tree."""

from __future__ import annotations

from pathlib import Path

from tests import house


def _plant(root: Path, files: dict[str, int]) -> dict[str, int]:
    """Write files of so many lines and measure them."""
    for name, count in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("x = 1\n" * count, encoding="utf-8")
    return house.lines(root)


def _too_high(found: dict[str, int], recorded: dict[str, int]) -> list[str]:
    """The names of the figures that are too high."""
    return [message.split(":")[0] for message in house.excesses(house.figures(found, recorded))]


def test_a_folder_grows_by_three_percent_or_up_to_its_budget(tmp_path: Path) -> None:
    # The budget of service/ is 700: 10 lines recorded may become 700, 1,000 may become 1,030.
    assert _plant(tmp_path, {"editloupe/service/a.py": 700})["service"] == 700
    small, large = {"service": 10}, {"service": 1_000, house.ALL: 1_000}
    assert _too_high(house.lines(tmp_path), small) == []
    assert _too_high(_plant(tmp_path, {"editloupe/service/b.py": 1}), small) == ["service"]
    assert _too_high(_plant(tmp_path, {"editloupe/service/b.py": 330}), large) == []
    found = _plant(tmp_path, {"editloupe/service/deep/c.py": 1})
    [message] = house.excesses(house.figures(found, large))
    assert message.startswith("service: found 1,031, allowed 1,030 (recorded 1,000 + 3 %, budget 700). Make it smaller, ")


def test_every_line_is_counted_once_and_a_strange_folder_is_named(tmp_path: Path) -> None:
    found = _plant(
        tmp_path,
        {
            "editloupe/values.py": 1,
            "editloupe/stats/table.py": 2,
            "editloupe/figures/plots.py": 4,
            "editloupe/agent/nodes.py": 8,
            "editloupe/traces/read.py": 16,
            "editloupe/attic/old.py": 32,
            "tests/test_a.py": 64,
        },
    )
    counts = {name: count for name, count in found.items() if count}
    assert counts == {
        house.WORDS: 1,
        "stats, figures, reports": 6,
        "traces, agent": 24,
        "attic": 32,
        house.ALL: 63,
        "tests/": 64,
    }
    assert _too_high(found, {}) == ["attic"]


def test_class_names_and_circles(tmp_path: Path) -> None:
    (tmp_path / "editloupe").mkdir()
    (tmp_path / "editloupe/a.py").write_text("class A: ...\nclass B: ...\n", encoding="utf-8")
    (tmp_path / "editloupe/b.py").write_text("def f():\n    class A: ...\n", encoding="utf-8")
    assert house.twice(tmp_path) == 1
    graph = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": {"e"}, "e": set()}
    assert house.components(graph) == [{"b", "c"}]
    # One circle is more than none; of 46 commands, 48 are more than 3 % above (47.38).
    assert _too_high({"import circles": 1, "commands": 48}, {"import circles": 0, "commands": 46}) == [
        "import circles",
        "commands",
    ]


def test_what_is_recorded_falls_and_rises_only_when_told() -> None:
    found, recorded = {"cli": 5, "runs": 5, "build": 5}, {"cli": 9, "runs": 1, "gone": 3}
    assert house.written(found, recorded, may_rise=False) == {"cli": 5, "runs": 1, "build": 0}
    assert house.written(found, recorded, may_rise=True) == found
