"""DLEBench: small-scale edits, judged label by label."""

from editloupe.protocols.dlebench.protocol import DLEBench

__all__ = ["DLEBench"]
