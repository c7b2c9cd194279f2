"""Traces: one append-only JSONL file a task. This package writes, reads and verifies them; replay lives in `runs`."""
