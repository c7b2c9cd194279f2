"""Targets: which object an edit is about, and what share of the image it takes."""
