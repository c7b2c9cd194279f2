"""The embedded judge: of 83 real edits it answers 4 in Instruction Following, all right, and abstains from the others.

It is rules on pixels, an example of a judge, and says so. docs/backends.md has what it was measured on.
"""

from editloupe.baseline.backend import PixelBaseline, open_backend

__all__ = ["PixelBaseline", "open_backend"]
