"""A backend that answers the toy protocols' questions by directives in the instruction, such as [follows=8 keeps=2].

TOY_CALLS names a file that gets a line a call. TOY_DIE ends the process, as kill -9 does, at that call.
"""

import json
import os
import re
from pathlib import Path

from editloupe.backends.base import Traits
from editloupe.chat import Reply, Usage

QUESTIONS = {
    "How well does the edit follow": "follows",
    "How well is the rest kept": "keeps",
    "Which color": "picks",
    "Is anything changed": "changed",
    "Is it right": "right",
    "Which objects": "objects",
}


class Toy:
    """The backend. It keeps no state, so that threads and processes may share it."""

    endpoint, version = "in process", "1"
    traits = Traits(describes="a toy", is_lmm=False)

    def __init__(self, uri):
        self.uri = str(uri)

    def complete(self, request, images):
        calls = Path(os.environ["TOY_CALLS"])
        with calls.open("a") as file:
            file.write(f"{self.uri}\n")
        if os.environ.get("TOY_DIE") == str(len(calls.read_text().splitlines())):
            os._exit(137)
        text = request.messages[0].text
        directives = dict(re.findall(r"(\w+)=([^\s\]]+)", text))
        named = re.search(r"\(ask (\w+)\)", text)
        asked = named[1] if named else next((key for words, key in QUESTIONS.items() if words in text), None)
        answer = directives[asked].replace("_", " ") if asked else "yes" if "the c" in text else "no"
        if asked == "objects":
            answer = json.dumps({"objects": answer.split(",")})
        said = answer if answer == "mumble" else f"<Start Final Answer>{answer}</Start Final Answer>"
        return Reply(text=said, model="toy", usage=Usage(input_tokens=10, output_tokens=1))


def open_backend(uri):
    """Return the backend toy/NAME."""
    return Toy(uri)
