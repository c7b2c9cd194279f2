"""The strict loader: what is rendered, and what each refusal says."""

from __future__ import annotations

from pathlib import Path

import pytest

from editloupe.errors import ConfigError
from editloupe.prompts import builtin_prompts, prompt_digest, render


@pytest.fixture
def own(tmp_path: Path):
    def _own(text: str | bytes, name: str = "mine.md") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return _own


def test_a_users_template_is_rendered_from_its_path(own) -> None:
    path = own("Hello {{ name }}.\n")
    assert render(path, name="you") == render(str(path), name="you") == "Hello you."


def test_values_are_put_in_as_they_are(own) -> None:
    assert render(own("{{ a }}"), a="{{ b }} {% if %} <b>&amp;</b>") == "{{ b }} {% if %} <b>&amp;</b>"


def test_an_edited_template_takes_effect_at_once(own) -> None:
    assert render(own("one")) == "one"
    assert render(own("two")) == "two"


def test_an_unknown_variable_names_file_line_and_what_could_be_meant(own) -> None:
    path = own("one\ntwo\n{{ instrution }}\n")
    with pytest.raises(ConfigError) as caught:
        render(path, instruction="x", images=[])
    assert str(caught.value) == (
        f"prompt {str(path)!r}, line 3: 'instrution' is undefined; did you mean 'instruction'?"
        " variables here: images, instruction"
    )


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("x\n{{ d.missing }}", 2),
        ("x\n\n{{ d['missing'] }}", 3),
        ("{% if gone %}{% endif %}", 1),
        ("{{ 1 / 0 }}", 1),
        ("\n{{ 'a' + 1 }}", 2),
        ("{{ d | int('x', 99) + d }}", 1),
        ("a\n{% for x in 5 %}{% endfor %}", 2),
        ("{{ d.pop('x') }}", 1),
        ("{{ 'x' | round }}", 1),
        ("{{ range(9999999) }}", 1),
    ],
)
def test_what_goes_wrong_in_an_expression_names_its_line(own, text: str, line: int) -> None:
    with pytest.raises(ConfigError, match=rf"mine.md', line {line}: "):
        render(own(text), d={"x": 1})


@pytest.mark.parametrize(
    "text", ["{{ d.__class__.__mro__ }}", "{{ d.update({'y': 2}) }}", "{{ ''.__class__ }}", "{{ f.__globals__ }}"]
)
def test_a_template_cannot_reach_out_of_the_sandbox(own, text: str) -> None:
    data = {"x": 1}
    with pytest.raises(ConfigError, match="line 1: "):
        render(own(text), d=data, f=render)
    assert data == {"x": 1}


@pytest.mark.parametrize("text", ["{% include 'agent/format' %}", "{% extends 'x.md' %}", "{% import 'x.md' as x %}"])
def test_a_template_is_one_file(own, text: str) -> None:
    with pytest.raises(ConfigError, match=r"line 1: includes '.*'; a template must be one file"):
        render(own(text))


def test_an_unknown_name_lists_the_built_in_prompts() -> None:
    with pytest.raises(ConfigError, match=r"unknown prompt 'agent/fromat'; built in: .*agent/format.*path of its .md file"):
        render("agent/fromat")


def test_a_file_that_is_not_utf_8_is_refused(own) -> None:
    with pytest.raises(ConfigError, match="is not UTF-8"):
        render(own("ä".encode("latin-1")))


def test_the_built_in_prompts_are_listed() -> None:
    assert "agent/format" in builtin_prompts()


def test_the_digest_covers_names_and_texts_but_not_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    one, two = "agent/format", "agent/tools"
    both = prompt_digest([one, two])
    assert prompt_digest([two, one, one]) == both
    assert len({prompt_digest([]), prompt_digest([one]), prompt_digest([two]), both}) == 4
    monkeypatch.setattr("editloupe.prompts._builtin_text", lambda name: "the same")
    alike = prompt_digest([one, two])
    assert alike not in (both, prompt_digest([one]))
