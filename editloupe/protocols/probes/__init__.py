"""Probes: edits whose truth is known because they were made that way."""
