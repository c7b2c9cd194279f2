"""How the arguments of a call are checked."""

from __future__ import annotations

import subprocess
import sys

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from editloupe.errors import ToolError
from editloupe.tools.base import Tool, _fits, spec, validated
from editloupe.tools.enhancer import Enhancer
from editloupe.tools.localize_differences import LocalizeDifferences
from editloupe.tools.zoom_in import ZoomIn

PLAIN: tuple[Tool, ...] = (ZoomIn(), Enhancer(), LocalizeDifferences())
_NUMBERS = st.integers(-5, 1005) | st.sampled_from([2, 4]) | st.booleans() | st.floats(-1, 5) | st.none()
_VALUES = _NUMBERS | st.text(max_size=3) | st.text(min_size=199, max_size=202) | st.lists(_NUMBERS, max_size=5)
_NAMES = ["target_image", "bbox", "label", "scale", "comparison_image_1", "comparison_image_2", "other"]


@given(st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=4), st.sampled_from(PLAIN))
def test_arguments_that_fit_at_a_glance_are_valid_by_jsonschema(arguments: dict[str, object], tool: Tool) -> None:
    schema = dict(spec(tool).parameters)
    if _fits(arguments, schema):
        jsonschema.validate(arguments, schema, cls=jsonschema.Draft202012Validator)
        assert isinstance(validated(tool, arguments), BaseModel)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer", "enum": [1]}, True),
        ({"type": "integer"}, False),
        ({"type": "integer", "exclusiveMinimum": 3}, 3),
        ({"type": "string", "pattern": "^a"}, "b"),
        ({"anyOf": [{"type": "string"}]}, 3),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}, {}),
        ({"type": "object", "additionalProperties": False}, {"a": 1}),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1]),
    ],
)
def test_what_does_not_fit_or_cannot_be_told_is_left_to_jsonschema(schema: dict[str, object], value: object) -> None:
    assert not _fits(value, schema)  # type: ignore[arg-type]


def test_a_call_as_the_schema_has_it_does_not_import_jsonschema() -> None:
    code = (
        "import sys; from editloupe.tools.base import validated; from editloupe.tools.zoom_in import ZoomIn\n"
        "validated(ZoomIn(), {'target_image': 'Edited Image', 'bbox': [0, 0, 500, 500]})\n"
        "sys.exit('jsonschema' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_wrong_argument_is_named_with_what_is_expected() -> None:
    with pytest.raises(ToolError, match=r"zoom_in: wrong arguments: bbox\.2: 1200 is greater than the maximum of 1000"):
        validated(ZoomIn(), {"target_image": "Edited Image", "bbox": [0, 0, 1200, 500]})
