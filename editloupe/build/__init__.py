"""Building data sets: one engine, and a recipe for each set. Judging never imports it."""
