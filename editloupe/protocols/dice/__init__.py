"""DICE: what changed between two images, and was it asked for."""
