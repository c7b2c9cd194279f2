"""The embedded judge: rules on pixels behind the same Request and Reply as any LMM. It is not an LMM, and says so.

dialogue.py reads the conversation, instruction_parser.py the instruction, region_features.py the pixels, and verdicts.py
decides. docs/backends.md has the rules in order, what they were measured on, and what they cannot see.
"""

from editloupe.baseline.backend import PixelBaseline, open_backend

__all__ = ["PixelBaseline", "open_backend"]
