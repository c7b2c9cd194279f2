"""Building data sets: one engine, and a recipe for each paper."""
