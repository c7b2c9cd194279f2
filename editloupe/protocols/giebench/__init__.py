"""GIE-Bench: multiple-choice questions on edits, and what stayed outside a mask. The folder holds all of it."""
