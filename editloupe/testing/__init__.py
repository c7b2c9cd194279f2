"""The public test kit: what a plug-in must hold, each checked in one call. Nothing in editloupe imports it.

from editloupe.testing import check_protocol

def test_my_protocol_keeps_the_contract():
    check_protocol(MyProtocol)
"""

from editloupe.backends.scripted import ScriptedLMM
from editloupe.testing.contracts import check_backend, check_measure, check_tool
from editloupe.testing.protocols import check_protocol

__all__ = ["ScriptedLMM", "check_backend", "check_measure", "check_protocol", "check_tool"]
