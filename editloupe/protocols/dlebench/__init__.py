"""DLEBench: small-scale edits, judged label by label, and how they are built. README.md lists the files."""
