"""Tests of editloupe.

They write bytecode even where the environment says not to: without it, each process compiles all tests again (15 s), and
each program that a test starts compiles the package.
"""

import os
import sys

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
