"""What the environment says of the tools, and what is no such setting."""

from __future__ import annotations

import pytest

from editloupe.errors import ConfigError
from editloupe.tools.settings import ToolSettings


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("PICTURE_BUDGET", "0", "expected a number above 0, such as 0.5, found 0.0"),
        ("PICTURE_BUDGET", "nan", "expected a number above 0, such as 0.5, found nan"),
        ("PICTURE_BUDGET", "half", "expected a number such as 0.5, found 'half'"),
    ],
)
def test_a_wrong_variable_is_named(name: str, value: str, told: str) -> None:
    with pytest.raises(ConfigError) as error:
        ToolSettings.from_environment({f"EDITLOUPE_{name}": value})
    assert str(error.value) == f"EDITLOUPE_{name}: {told}"
