"""DLEBench: small-scale edits, judged label by label. protocol.py, loader.py, rubric.toml and prompts/ are all of it."""
