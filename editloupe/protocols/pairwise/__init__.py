"""Pairwise: of two edits of one source and instruction, the better one."""
