"""Run folders as a stranger might make them."""
