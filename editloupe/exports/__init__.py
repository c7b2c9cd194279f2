"""Runs in the formats of others, made from the run folder after the fact: no network, no SDK."""
