"""Probes: edits whose truth is known because they were made that way, and what judges say of them."""
