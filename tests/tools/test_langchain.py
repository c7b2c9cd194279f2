"""The tools as LangChain's and LangGraph's users meet them: a ToolNode, parallel calls, pictures in the messages."""

from __future__ import annotations

import base64
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from PIL import Image

from editloupe.findings import Observation
from editloupe.tools import as_langchain
from tests.conftest import pixels


@pytest.fixture
def images(tmp_path: Path) -> dict[str, Any]:
    """An edit of one square, as two files."""
    before, after = pixels(0, spots=1)
    found = {"Original Image": tmp_path / "before.png", "Edited Image": tmp_path / "after.png"}
    Image.fromarray(before).save(found["Original Image"])
    Image.fromarray(after).save(found["Edited Image"])
    return found


def call(name: str, number: int = 0, **arguments: Any) -> dict[str, Any]:
    return {"name": name, "args": arguments, "id": f"call-{number}", "type": "tool_call"}


def answered(tools: list[BaseTool], *calls: dict[str, Any], keep: bool = False) -> list[ToolMessage]:
    """A graph of one ToolNode, given a model's message with these calls."""
    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "tools")
    graph.add_edge("tools", END)
    app = graph.compile(checkpointer=InMemorySaver() if keep else None)
    config: Any = {"configurable": {"thread_id": "1"}}
    state = app.invoke({"messages": [AIMessage("", tool_calls=calls)]}, config)
    messages = app.get_state(config).values["messages"] if keep else state["messages"]
    return [m for m in messages if isinstance(m, ToolMessage)]


BOX = [0, 0, 500, 500]


def test_a_tool_node_answers_parallel_calls_with_pictures_under_names_of_their_own(images: dict[str, Any]):
    tools = as_langchain(images)
    messages = answered(
        tools,
        call("zoom_in", 0, target_image="Edited Image", bbox=BOX),
        call("zoom_in", 1, target_image="Original Image", bbox=BOX),
        call("localize_differences", 2, comparison_image_1="Original Image", comparison_image_2="Edited Image"),
    )
    assert [m.tool_call_id for m in messages] == ["call-0", "call-1", "call-2"]
    assert {m.status for m in messages} == {"success"}
    assert sorted(name for m in messages for name in m.artifact["names"]) == ["Crop 1", "Crop 2", "Crop 3"]
    for message in messages:
        blocks = message.content_blocks
        assert [b["type"] for b in blocks] == ["text", "text", "image"]
        assert blocks[1]["text"] == f"{message.artifact['names'][0]}:"
        assert blocks[0]["text"].count(message.artifact["names"][0]) >= 1
        assert blocks[2]["mime_type"] == "image/png"
        picture = Image.open(io.BytesIO(base64.b64decode(blocks[2]["base64"])))
        observation = Observation.from_json(message.artifact)
        assert picture.size == (observation.images[0].width, observation.images[0].height)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"target_image": "Crop 7", "bbox": BOX}, "the images are: 'Original Image', 'Edited Image'"),
        ({"target_image": "Edited Image", "bbox": [600, 0, 500, 500]}, "empty or inverted"),
        # LangChain would drop `more`, had it the pydantic class.
        ({"target_image": "Edited Image", "bbox": BOX, "more": 1}, "'more' was unexpected"),
        ({"bbox": BOX}, "'target_image' is a required property"),
        ({}, "'target_image' is a required property"),
    ],
)
def test_what_a_model_can_mend_is_a_message_that_it_reads(arguments: dict[str, Any], told: str, images: dict[str, Any]):
    (message,) = answered(as_langchain(images, tools=["zoom_in"]), call("zoom_in", **arguments))
    assert message.status == "error"
    assert told in message.text
    assert message.text.startswith("Error: ")


def test_the_package_of_tools_imports_nothing_before_it_is_used():
    code = (
        "import sys, editloupe.tools;"
        "assert not {'numpy', 'pydantic', 'langchain_core', 'PIL'} & set(sys.modules);"
        "from editloupe.tools import as_langchain; assert 'langgraph' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
